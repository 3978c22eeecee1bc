//! The fast path between real hosts: streams and datagrams that are translated, checksummed and segmented by Linux arrive whole, and go by
//! the worker.
#![allow(clippy::unwrap_used)]

mod lab;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::line::{datagram, host, receive, spec};
use lab::{BPF, Host, NET_ADMIN, NET_RAW, Raw, command, ip, pattern, restrict, segment_udp};
use ports::{
    Alone, Bypass, Entry, FallThrough, FastPath, Guard, GuardSet, Line, MARK, Offload, Opened, Place, Punt,
    Spec, Tuple, Wish, interface_index,
};
use wire::checksum::Delta;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Batch, DscpSet, Pool};

const INSIDE: [&str; 2] = ["10.0.0.2", "fd00::2"];
const OUTSIDE: [&str; 2] = ["198.51.100.1", "2001:db8:1::2"];
const FAR: [&str; 2] = ["192.0.2.9", "2001:db8:9::9"];
/// Link-layer addresses, by interface.
const LAN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const WAN: [u8; 6] = [2, 0, 0, 0, 0, 3];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// A client and a server, and the gateway between them.
struct Lab {
    client: Host,
    server: Host,
    path: Arc<FastPath>,
    pool: Pool,
    lines: [Box<dyn Line>; 2],
    _guards: Vec<(Guard, Punt, ports::Held)>,
}

fn fast_path() -> Option<Arc<FastPath>> {
    match FastPath::open(1024, [1, 2], MARK) {
        Ok(path) => Some(Arc::new(path)),
        Err(error) if error.error.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIPPED: no programs may be loaded here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Lab {
    fn new() -> Option<Lab> {
        let path = fast_path()?;
        let (client, server) = (Host::new(), Host::new());
        client.connect("lan", "eth", 1);
        server.connect("wan", "eth", 1);
        ip(&format!("link set lan address {}", mac(LAN)));
        ip(&format!("link set wan address {}", mac(WAN)));
        for (host, own, of_host, gateway) in [(&client, INSIDE, CLIENT, LAN), (&server, FAR, SERVER, WAN)] {
            host.run(move || {
                ip(&format!("link set eth address {}", mac(of_host)));
                for (own, [bits, via]) in own.iter().zip([["32", "169.254.0.1"], ["128 nodad", "fe80::1"]]) {
                    ip(&format!("addr add {own}/{bits} dev eth"));
                    ip(&format!("neigh add {via} lladdr {} dev eth", mac(gateway)));
                }
                ip("route add 169.254.0.1 dev eth");
                ip("route add default via 169.254.0.1");
                ip("-6 route add default via fe80::1 dev eth");
            });
        }
        let pool = Pool::new(4096, 2048).unwrap();
        let (set, _) = GuardSet::open(Path::new("/proc/self"), MARK);
        let set = set.with_fast_path(path.clone());
        let mut guards = Vec::new();
        let lines = ["lan", "wan"].map(|name| {
            let guard = set.put(interface_index(name).unwrap(), &Alone::default(), None, None).unwrap();
            let punt = Punt::open(name, MARK, 1).unwrap();
            guard.open(punt.ifindex).unwrap();
            let spec = Spec {
                name: name.to_owned(),
                wish: Wish::Packet,
                offload: Offload::Segment,
                fast_path: Some(path.clone()),
                ..Spec::default()
            };
            let Opened { mut lines, held, bypass, .. } = ports::open(&spec, &[pool.memory()]).unwrap();
            assert!(matches!(bypass, Bypass::On), "{bypass:?}");
            guards.push((guard, punt, held));
            lines.remove(0)
        });
        Some(Lab { client, server, path, pool, lines, _guards: guards })
    }

    /// Runs `talk` between the hosts with a worker that translates and publishes; returns what it published, and the frames
    /// that it forwarded.
    fn serve(self, talk: impl FnOnce(&Host, &Host)) -> (Arc<FastPath>, Vec<[Place; 2]>, u64) {
        let Lab { client, server, path, mut pool, lines, _guards } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let (told, worker_path) = (stop.clone(), path.clone());
        let worker = thread::spawn(move || {
            let [mut lan, mut wan] = lines;
            let ifindex = ["lan", "wan"].map(|name| interface_index(name).unwrap());
            let (mut places, mut forwarded) = (Vec::new(), 0);
            while !told.load(Ordering::Relaxed) {
                forwarded += carry(&mut *lan, &mut *wan, &mut pool, |frame| {
                    outward(frame, ifindex)
                        .and_then(|entries| worker_path.publish(&entries))
                        .into_iter()
                        .for_each(|new| places.push(new));
                });
                forwarded += carry(&mut *wan, &mut *lan, &mut pool, inward);
                lan.mark();
                lan.settled();
                wan.mark();
                wan.settled();
            }
            (places, forwarded)
        });
        talk(&client, &server);
        stop.store(true, Ordering::Relaxed);
        let (places, forwarded) = worker.join().unwrap();
        (path, places, forwarded)
    }
}

fn carry(from: &mut dyn Line, to: &mut dyn Line, pool: &mut Pool, mut work: impl FnMut(&mut [u8])) -> u64 {
    let mut batch = Batch::new();
    from.receive(&mut batch, pool).unwrap();
    let frames = batch.len() as u64;
    batch.iter_mut().for_each(|frame| work(frame.bytes_mut()));
    for _ in 0..10_000 {
        if !batch.is_empty() {
            to.transmit(&mut batch, pool).unwrap();
        }
    }
    batch.drain().for_each(|frame| pool.put(frame));
    frames
}

/// Sends a packet of the client on, and returns the entries of its flow once it is open.
fn outward(frame: &mut [u8], [lan, wan]: [u32; 2]) -> Option<[Entry; 2]> {
    let is_v4 = frame[12..14] == [8, 0];
    let at = if is_v4 { 34 } else { 54 };
    let protocol = Protocol(frame[if is_v4 { 23 } else { 20 }]);
    let is_open = protocol == Protocol::UDP || frame[at + 13] & 0x07 == 0;
    let [sport, dport] = [at, at + 2].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
    let version = usize::from(!is_v4);
    let tuple = |source: &str, sport, destination: &str, dport| Tuple {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        sport,
        dport,
    };
    let (inside, outside, far) = (INSIDE[version], OUTSIDE[version], FAR[version]);
    let mapped = sport ^ 1;
    translate(frame, outside, None, [mapped, dport], [SERVER, WAN]);
    let entry = |from, to, ifindex, out, link: [[u8; 6]; 2]| Entry {
        from,
        protocol,
        ifindex,
        vlan: 0,
        to,
        link: link.concat().try_into().unwrap(),
        tag: None,
        mtu: 1500,
        out,
        dscp: DscpSet::ALL,
        mark: None,
        window: None,
    };
    is_open.then(|| {
        [
            entry(
                tuple(inside, sport, far, dport),
                tuple(outside, mapped, far, dport),
                lan,
                wan,
                [SERVER, WAN],
            ),
            entry(
                tuple(far, dport, outside, mapped),
                tuple(far, dport, inside, sport),
                wan,
                lan,
                [CLIENT, LAN],
            ),
        ]
    })
}

/// Sends a packet of the server on.
fn inward(frame: &mut [u8]) {
    let is_v4 = frame[12..14] == [8, 0];
    let at = if is_v4 { 34 } else { 54 };
    let [sport, dport] = [at, at + 2].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
    let version = usize::from(!is_v4);
    translate(frame, FAR[version], Some(INSIDE[version]), [sport, dport ^ 1], [CLIENT, LAN]);
}

/// Puts addresses, ports and link-layer addresses into a frame, and keeps its checksums right.
fn translate(frame: &mut [u8], source: &str, destination: Option<&str>, ports: [u16; 2], link: [[u8; 6]; 2]) {
    frame[..12].copy_from_slice(&link.concat());
    let (source, destination): (IpAddr, Option<IpAddr>) =
        (source.parse().unwrap(), destination.map(|destination| destination.parse().unwrap()));
    let (places, bytes, at, protocol) =
        if source.is_ipv4() { ([26, 30], 4, 34, frame[23]) } else { ([22, 38], 16, 54, frame[20]) };
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut header = Delta::NONE;
    let change = |frame: &mut [u8], at: usize, new: &[u8], delta: &mut Delta| {
        for (at, new) in (at..).step_by(2).zip(new.chunks(2)) {
            *delta = delta.change16(word(frame, at), u16::from_be_bytes([new[0], new[1]]));
            frame[at..at + 2].copy_from_slice(new);
        }
    };
    for (place, address) in places.into_iter().zip([Some(source), destination]) {
        let octets = match address {
            Some(IpAddr::V4(address)) => address.octets().to_vec(),
            Some(IpAddr::V6(address)) => address.octets().to_vec(),
            None => frame[place..place + bytes].to_vec(),
        };
        change(frame, place, &octets, &mut header);
    }
    let mut transport = header;
    for (place, port) in [at, at + 2].into_iter().zip(ports) {
        change(frame, place, &port.to_be_bytes(), &mut transport);
    }
    let checksum = at + if protocol == 6 { 16 } else { 6 };
    let right = transport.apply_udp(word(frame, checksum));
    frame[checksum..checksum + 2].copy_from_slice(&right.to_be_bytes());
    if source.is_ipv4() {
        let hops = [frame[22] - 1, frame[23]];
        change(frame, 22, &hops, &mut header);
        let right = header.apply(word(frame, 24));
        frame[24..26].copy_from_slice(&right.to_be_bytes());
    } else {
        frame[21] -= 1;
    }
}

/// Bytes of a stream's longer part, each way.
const BYTES: usize = 4 << 20;

/// Small messages first, with pauses in which the flow leaves the worker, then a stream each way.
fn talk(mut stream: TcpStream, is_first: bool) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let send = |stream: &mut TcpStream, bytes| stream.write_all(&pattern(bytes)).unwrap();
    let receive = |stream: &mut TcpStream, bytes| {
        let mut data = vec![0; bytes];
        stream.read_exact(&mut data).unwrap();
        assert!(data == pattern(bytes));
    };
    for bytes in [[100; 10].as_slice(), &[BYTES]].concat() {
        if is_first {
            send(&mut stream, bytes);
            receive(&mut stream, bytes);
            thread::sleep(Duration::from_millis(10));
        } else {
            receive(&mut stream, bytes);
            send(&mut stream, bytes);
        }
    }
}

/// Checksums are completed and packets segmented by devices, or by Linux.
#[test]
fn streams_go_by_translated_and_arrive_whole() {
    for offload in ["on", "off"] {
        lab::run(move || {
            let Some(lab) = Lab::new() else { return };
            for name in ["lan", "wan"] {
                command("ethtool", &format!("-K {name} tx {offload}"));
            }
            let (path, places, forwarded) = lab.serve(|client, server| {
                for far in FAR.map(|far| far.parse::<IpAddr>().unwrap()) {
                    let listener = server.run(move || TcpListener::bind((far, 80)).unwrap());
                    let served = server.start(move || talk(listener.accept().unwrap().0, false));
                    client.run(move || talk(TcpStream::connect((far, 80)).unwrap(), true));
                    served();
                }
            });
            let falls = path.fall_through();
            println!("tx {offload}: {forwarded} frames forwarded by the worker; {falls:?}");
            assert_eq!(places.len(), 2);
            let segments = (BYTES / 1448) as u64;
            for place in places.iter().flatten() {
                let account = path.account(*place);
                println!("{account:?}");
                assert!(account.packets > segments * 99 / 100, "of {segments}");
                assert!(account.bytes.0 > (BYTES * 99 / 100) as u64 + account.packets * 40);
                assert_eq!(account.frame_bytes.0, account.bytes.0 + 14 * account.packets);
                assert!(ports::now().since(account.seen).0 < 20_000_000_000);
            }
            assert_eq!(FallThrough { stale: 0, too_big: 0, window: 0, ..falls }, falls);
            assert!(forwarded < 300, "{forwarded} frames did not go by");
        });
    }
}

#[test]
fn datagrams_go_by_single_and_as_many_segments() {
    lab::run(|| {
        let Some(lab) = Lab::new() else { return };
        let (path, places, _) = lab.serve(|client, server| {
            for far in FAR.map(|far| far.parse::<IpAddr>().unwrap()) {
                let received = server.start(move || {
                    let socket = UdpSocket::bind((far, 53)).unwrap();
                    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                    let mut buffer = [0; 2048];
                    (0..40)
                        .map(|_| socket.recv(&mut buffer).map(|length| buffer[..length].to_vec()).unwrap())
                        .collect::<Vec<_>>()
                });
                client.run(move || {
                    let socket = UdpSocket::bind(("::".parse::<IpAddr>().unwrap(), 0)).unwrap();
                    let to = match far {
                        IpAddr::V4(far) => IpAddr::V6(far.to_ipv6_mapped()),
                        IpAddr::V6(_) => far,
                    };
                    for number in 0..20_u8 {
                        thread::sleep(Duration::from_millis(20));
                        socket.send_to(&[number; 100], (to, 53)).unwrap();
                    }
                    segment_udp(&socket, 1000);
                    for _ in 0..2 {
                        thread::sleep(Duration::from_millis(20));
                        socket.send_to(&pattern(10_000), (to, 53)).unwrap();
                    }
                });
                let received = received();
                for (number, datagram) in received[..20].iter().enumerate() {
                    assert_eq!(datagram, &[number as u8; 100]);
                }
                assert!(received[20..].concat() == [pattern(10_000), pattern(10_000)].concat());
            }
        });
        assert_eq!(places.len(), 2);
        for [place, _] in places {
            let account = path.account(place);
            // The first packet, which the flow was published for, went by the worker, and the one after it.
            assert!((36..=38).contains(&account.packets), "{account:?}");
        }
        assert_eq!(path.fall_through().stale, 0);
    });
}

/// The verifier asks more of programs whose loader may not look at the kernel's memory (CAP_PERFMON).
#[test]
fn the_capabilities_of_the_service_are_enough() {
    lab::run(|| {
        if fast_path().is_none() {
            return;
        }
        let (_other, pool) = (host("lan"), Pool::new(256, 2048).unwrap());
        restrict(&[NET_ADMIN, NET_RAW, BPF]);
        let path = fast_path().unwrap();
        let (set, _) = GuardSet::open(Path::new("/proc/self"), MARK);
        let set = set.with_fast_path(path.clone());
        let guard = set.put(interface_index("lan").unwrap(), &Alone::default(), None, None).unwrap();
        let punt = Punt::open("lan", MARK, 1).unwrap();
        guard.open(punt.ifindex).unwrap();
        let spec = Spec { fast_path: Some(path), ..spec("lan", Wish::Packet) };
        let opened = ports::open(&spec, &[pool.memory()]).unwrap();
        assert!(matches!(opened.bypass, Bypass::On), "{opened:?}");
        guard.close().unwrap();
    });
}

/// A kernel that refuses says so, and the port works as without.
#[test]
fn what_the_kernel_refuses_is_said_and_the_port_works_all_the_same() {
    lab::run(|| {
        let Some(path) = fast_path() else { return };
        let (other, mut pool) = (host("lan"), Pool::new(256, 2048).unwrap());
        let raw = other.run(|| Raw::open("eth"));
        restrict(&[NET_ADMIN, NET_RAW]);
        let refused = FastPath::open(1024, [1, 2], MARK).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(libc::EPERM), "{refused}");
        assert!(refused.to_string().starts_with("could not "), "{refused}");
        let spec = Spec { fast_path: Some(path.clone()), ..spec("lan", Wish::Packet) };
        let Opened { mut lines, bypass, held: _held, .. } = ports::open(&spec, &[pool.memory()]).unwrap();
        let Bypass::Refused(error) = bypass else { panic!("{bypass:?}") };
        assert_eq!(error.error.raw_os_error(), Some(libc::EPERM), "{error}");
        let frame = datagram(Mac(CLIENT), Mac(LAN), &[], 100, 1);
        raw.send(&frame);
        assert_eq!(receive(&mut *lines[0], &mut pool, 1), [frame]);
        lines[0].mark();
        lines[0].settled();
        assert_eq!(path.fall_through(), FallThrough::default());
    });
}

/// All frames that are not on the fast path are received once, by one or several workers.
#[test]
fn what_does_not_go_by_comes_to_one_worker() {
    lab::run(|| {
        let Some(path) = fast_path() else { return };
        let (other, mut pool) = (host("lan"), Pool::new(1024, 2048).unwrap());
        ip(&format!("link set lan address {}", mac(LAN)));
        let raw = other.run(|| Raw::open("eth"));
        for workers in [1, 2, 3] {
            let before = path.fall_through().unknown;
            let spec = Spec { fast_path: Some(path.clone()), ..spec("lan", Wish::Packet) };
            let memories: Vec<_> = (0..workers).map(|_| pool.memory()).collect();
            let Opened { mut lines, bypass, held: _held, .. } = ports::open(&spec, &memories).unwrap();
            assert!(matches!(bypass, Bypass::On), "{bypass:?}");
            let frames: Vec<_> =
                (0..100).map(|port| datagram(Mac(CLIENT), Mac(LAN), &[], 100, port)).collect();
            frames.iter().for_each(|frame| raw.send(frame));
            let mut received = Vec::new();
            for line in &mut lines {
                received.extend(receive(&mut **line, &mut pool, 100 - received.len()));
                line.mark();
                line.settled();
            }
            received.sort();
            let mut sorted = frames.clone();
            sorted.sort();
            assert!(received == sorted, "{} of {workers} workers", received.len());
            assert_eq!(path.fall_through().unknown - before, 100);
        }
    });
}
