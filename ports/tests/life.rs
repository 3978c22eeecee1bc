//! Opening and closing of ports: reasons for refusals, errors of vanished interfaces, and no state left behind.
#![allow(clippy::unwrap_used)]

mod lab;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::line::{FAR, NEAR, Wire, at_home, datagram, guarded, host, lend, open, receive, spec, transmit};
use lab::{Host, Raw, answers, command, converse, echo, ip, pings, wait};
use ports::{Copying, Driver, Gone, Line, MARK, Opened, Punt, Spec, Tagged, Tap, Wish};
use wire::{Batch, Frame, Pool, PoolMemory, PortError, Received};

/// Errors of receiving and of sending on a line, called until each fails.
fn failures(line: &mut dyn Line, pool: &mut Pool) -> [PortError; 2] {
    let patience = Instant::now();
    let mut batch = Batch::new();
    let receiving = loop {
        if let Err(error) = line.receive(&mut batch, pool) {
            break error;
        }
        assert!(patience.elapsed() < Duration::from_secs(5), "receives on");
    };
    batch.drain().for_each(|frame| pool.put(frame));
    assert!(batch.extend_from(pool).unwrap().fill(&datagram(NEAR, FAR, &[], 60, 1)));
    let sending = line.transmit(&mut batch, pool).expect_err("sends on");
    batch.drain().for_each(|frame| pool.put(frame));
    [receiving, sending]
}

#[test]
fn a_port_that_goes_says_so_and_opens_anew() {
    lab::run(|| {
        for wish in [Wish::Xdp, Wish::Packet] {
            let mut pool = Pool::new(512, 2048).unwrap();
            for how in [Gone::Removed, Gone::Down] {
                let hosts = host("lan");
                let mut opened = open("lan", wish, &pool);
                let punt = Punt::open("lan", MARK, 1).unwrap();
                lend(&mut *opened.lines[0], &mut pool);
                match how {
                    Gone::Removed => ip("link del lan"),
                    Gone::Down => ip("link set lan down"),
                }
                for error in failures(&mut *opened.lines[0], &mut pool) {
                    assert_eq!(Gone::of(&error), Some(how), "{wish:?}: {error}");
                    assert!(error.to_string().starts_with("lan: could not "), "{error}");
                }
                if how == Gone::Down {
                    ip("link set lan up");
                    drop((opened, punt));
                    // As long as the interface was down no longer than the port was open, it works again at once.
                    let mut opened = open("lan", wish, &pool);
                    lend(&mut *opened.lines[0], &mut pool);
                    let raw = hosts.run(|| Raw::open("eth"));
                    raw.send(&datagram(FAR, NEAR, &[], 80, 1));
                    assert_eq!(receive(&mut *opened.lines[0], &mut pool, 1).len(), 1);
                    drop(opened);
                    ip("link del lan");
                } else {
                    drop((opened, punt));
                }
                assert_eq!(at_home(&mut pool), 512, "{wish:?} {how:?}");
            }
        }
    });
}

#[test]
fn a_tap_whose_device_is_down_loses_frames_and_one_whose_device_goes_says_so() {
    lab::run(|| {
        let mut pool = Pool::new(16, 2048).unwrap();
        let mut tap = Tap::open("soft", 1500, None, 1).unwrap();
        ip("link set soft down");
        let mut batch = Batch::new();
        assert!(batch.extend_from(&mut pool).unwrap().fill(&datagram(NEAR, FAR, &[], 60, 1)));
        wire::Port::transmit(&mut tap.lines[0], &mut batch, &mut pool).unwrap();
        assert_eq!((batch.len(), pool.available()), (0, 16));
        let statistics = Line::statistics(&mut tap.lines[0]);
        assert_eq!((statistics.sent, statistics.dropped), (0, 1));
        ip("link set soft up");
        assert!(batch.extend_from(&mut pool).unwrap().fill(&datagram(NEAR, FAR, &[], 60, 2)));
        wire::Port::transmit(&mut tap.lines[0], &mut batch, &mut pool).unwrap();
        assert_eq!(Line::statistics(&mut tap.lines[0]).sent, 1);
        ip("link del soft");
        for error in failures(&mut tap.lines[0], &mut pool) {
            assert_eq!(Gone::of(&error), Some(Gone::Removed), "{error}");
        }
        Tap::open("soft", 1500, None, 1).unwrap();
    });
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn one_that_is_killed() {
    if std::env::var_os("WIRERATE_TO_BE_KILLED").is_none() {
        return;
    }
    // It is started in the namespace that it is to be in.
    let mut pool = Pool::new(512, 2048).unwrap();
    let mut lines = Vec::new();
    let mut guards = Vec::new();
    for (name, wish) in [("fast", Wish::Xdp), ("slow", Wish::Packet)] {
        let opened = open(name, wish, &pool);
        lines.extend(opened.lines);
        let punt = Punt::open(name, MARK, 1).unwrap();
        guards.push((opened.held, guarded(name, &punt), punt));
    }
    let _tap = Tap::open("soft", 1500, None, 2).unwrap();
    lend(&mut *lines[0], &mut pool);
    println!("\nopen");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    lab::run(|| {
        let (one, other) = (Host::new(), Host::new());
        one.connect("fast", "eth", 1);
        other.connect("slow", "eth", 1);
        ip("addr add 10.0.0.1/24 dev fast");
        ip("addr add 10.1.0.1/24 dev slow");
        one.run(|| ip("addr add 10.0.0.2/24 dev eth"));
        other.run(|| ip("addr add 10.1.0.2/24 dev eth"));
        let links = || {
            let listed = command("ip", "-o link show");
            listed.lines().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let before = links();
        for _ in 0..2 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_that_is_killed", "--nocapture"])
                .env("WIRERATE_TO_BE_KILLED", "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let said = BufReader::new(child.stdout.take().unwrap());
            assert!(said.lines().any(|line| line.unwrap() == "open"), "it did not open its ports");
            assert_eq!(links().len(), before.len() + 3, "two punts and a soft interface");
            assert!(command("ip", "link show fast").contains("prog/xdp"));
            assert!(!one.run(|| pings("10.0.0.1")) && !other.run(|| pings("10.1.0.1")));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(links(), before);
            assert!(!command("ip", "link show fast").contains("prog/xdp"));
            // The hosts may still be told that there was nobody when they asked last.
            for (host, address) in [(&one, "10.0.0.1"), (&other, "10.1.0.1")] {
                assert!(host.run(move || answers(address)));
            }
        }
    });
}

#[test]
fn workers_share_a_port_and_each_frame_is_one_s() {
    // An eighth of them, in four rings: each holds all frames, however the device spreads flows, which no two boots do alike.
    const SLOTS: u32 = 4 * 8 * 512;
    lab::run(|| {
        // Driver, queues of the interface, workers.
        for (wish, queues, workers) in
            [(Wish::Packet, 1, 3), (Wish::Xdp, 2, 2), (Wish::Xdp, 4, 1), (Wish::Xdp, 5, 2)]
        {
            let host = Host::new();
            host.connect("lan", "eth", queues);
            let mut pools: Vec<Pool> = (0..workers).map(|_| Pool::new(SLOTS, 2048).unwrap()).collect();
            let memories: Vec<PoolMemory> = pools.iter().map(Pool::memory).collect();
            let Opened { mut lines, held: _held, .. } =
                ports::open(&spec("lan", wish), &memories).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(lines.len(), workers);
            for (line, pool) in lines.iter_mut().zip(&mut pools) {
                lend(&mut **line, pool);
            }
            let raw = host.run(|| Raw::open("eth"));
            for round in 0..4 {
                for sport in 0..100 {
                    raw.send(&datagram(FAR, NEAR, &[], 60 + round, sport));
                }
            }
            // By whom each flow came, and how often.
            let mut flows: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
            for (worker, (line, pool)) in lines.iter_mut().zip(&mut pools).enumerate() {
                assert!(
                    wait(line.fd(), Duration::from_secs(1)) || workers > 1,
                    "frames wait, and so the line says"
                );
                let received = receive_all(&mut **line, pool);
                assert!(!received.is_empty() || workers > 1);
                for frame in received {
                    flows.entry(u16::from_be_bytes([frame[34], frame[35]])).or_default().push(worker);
                }
            }
            assert_eq!(flows.len(), 100, "{wish:?} {queues} {workers}");
            assert!(flows.values().all(|by| by.len() == 4), "{wish:?}: each frame once");
            if wish == Wish::Packet {
                assert!(
                    flows.values().all(|by| by.iter().all(|worker| *worker == by[0])),
                    "a flow stays with its worker"
                );
                assert!((0..workers).all(|worker| flows.values().any(|by| by[0] == worker)), "all have work");
            }
            // And each sends.
            for (line, pool) in lines.iter_mut().zip(&mut pools) {
                let frame = datagram(NEAR, FAR, &[], 90, 9);
                transmit(&mut **line, pool, std::slice::from_ref(&frame));
                assert!(raw.receive() == Some(frame));
            }
            drop(lines);
            assert!(pools.iter_mut().all(|pool| at_home(pool) == SLOTS as usize));
            ip("link del lan");
        }
    });
}

/// Frames received until none came for a while.
fn receive_all(line: &mut dyn Line, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut batch = Batch::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(100) {
        if line.receive(&mut batch, pool).unwrap() != Received::Nothing {
            last = Instant::now();
        }
        all.extend(batch.iter().map(|frame| frame.bytes().to_vec()));
        batch.drain().for_each(|frame| pool.put(frame));
    }
    all
}

#[test]
fn a_sleeping_worker_is_woken_by_the_first_frame() {
    lab::run(|| {
        for wish in [Wish::Xdp, Wish::Packet] {
            let host = host("lan");
            let mut pool = Pool::new(512, 2048).unwrap();
            let mut opened = open("lan", wish, &pool);
            let line = &mut *opened.lines[0];
            lend(line, &mut pool);
            assert!(!wait(line.fd(), Duration::from_millis(50)), "{wish:?}: nothing to wake for");
            host.run(|| Raw::open("eth")).send(&datagram(FAR, NEAR, &[], 60, 1));
            assert!(wait(line.fd(), Duration::from_secs(1)));
            assert_eq!(receive(line, &mut pool, 1).len(), 1);
            assert!(!wait(line.fd(), Duration::from_millis(50)), "{wish:?}: all is taken");
            ip("link del lan");
        }
    });
}

#[test]
fn a_soft_interface_is_one_of_linux_s_own() {
    lab::run(|| {
        let host = host("lan");
        host.run(|| ip("addr add 10.0.0.2/24 dev eth"));
        let pool = Pool::new(4096, 2048).unwrap();
        let mut lan = open("lan", Wish::Packet, &pool);
        let Opened { driver, mut lines, .. } =
            ports::open(&Spec { mac: Some(NEAR), ..spec("soft", Wish::Tap) }, &[pool.memory()]).unwrap();
        assert_eq!(driver, Driver::Tap);
        assert!(command("ip", "link show soft").contains(&NEAR.to_string()));
        ip("addr add 10.0.0.1/24 dev soft");
        let wire = Wire::new(lines.remove(0), lan.lines.remove(0), pool);
        assert!(answers("10.0.0.2"));
        let there = "10.0.0.2".parse().unwrap();
        let echoed = host.start(move || echo(there, 7000));
        converse(there, 7000, 1_000_000);
        echoed();
        let (soft, _, longest) = wire.stop();
        assert!(soft.segmented > 10, "Linux leaves it to us to cut what it sends: {soft:?}");
        assert!(longest <= 1514);
        assert!(!command("ip", "link").contains("soft"), "it goes with its lines");
    });
}

#[test]
fn what_a_tap_has_no_room_for_is_counted() {
    lab::run(|| {
        let mut tap = Tap::open("soft", 1500, None, 2).unwrap();
        ip("addr add 10.0.0.1/24 dev soft");
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev soft nud permanent");
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..3000 {
            socket.send_to(b"one of many", "10.0.0.2:9").unwrap();
        }
        let mut pool = Pool::new(4096, 2048).unwrap();
        let received: usize = tap.lines.iter_mut().map(|line| receive_all(line, &mut pool).len()).sum();
        let lost: u64 = tap.lines.iter_mut().map(|line| line.statistics().lost).sum();
        assert!(received >= 500 && lost > 0, "{received} received, {lost} lost");
        // Linux may say a thing or two of its own on a new interface.
        assert!(received as u64 + lost >= 3000);
    });
}

#[test]
fn what_is_too_long_or_of_another_pool_harms_nothing() {
    lab::run(|| {
        let host = host("lan");
        for wish in [Wish::Xdp, Wish::Packet] {
            let mut pool = Pool::new(512, 4096).unwrap();
            let mut foreign = Pool::new(8, 2048).unwrap();
            let mut opened = open("lan", wish, &pool);
            let line = &mut *opened.lines[0];
            let raw = host.run(|| Raw::open("eth"));
            let mut batch = Batch::new();
            let good = datagram(NEAR, FAR, &[], 100, 1);
            let long = vec![1; 1900];
            for bytes in [&good, &long, &vec![1; 9], &good] {
                assert!(batch.extend_from(&mut pool).unwrap().fill(bytes));
            }
            let mut frame: Frame = foreign.take().unwrap();
            assert!(frame.fill(&good));
            batch.push(frame).unwrap();
            line.transmit(&mut batch, &mut pool).unwrap();
            assert!(batch.is_empty());
            for _ in 0..3 {
                assert_eq!(raw.receive().as_ref(), Some(&good), "{wish:?}");
            }
            let counted = line.statistics();
            assert_eq!((counted.sent, counted.unsendable), (3, 2), "{wish:?}");
            drop(opened);
            assert_eq!((at_home(&mut pool), at_home(&mut foreign)), (512, 8));
        }
    });
}

#[test]
fn what_cannot_be_opened_says_why_and_auto_takes_the_next() {
    lab::run(|| {
        let _host = host("lan");
        let (small, large) = (Pool::new(64, 2048).unwrap(), Pool::new(64, 16384).unwrap());
        let why = |spec: &Spec, memories: &[PoolMemory]| ports::open(spec, memories).unwrap_err().to_string();
        let (one, two, big) =
            (&[small.memory()][..], &[small.memory(), small.memory()][..], &[large.memory()][..]);

        assert_eq!(
            why(&spec("nowhere", Wish::Auto), one),
            "nowhere: cannot be opened: AF_XDP: could not find the interface: No such device (os error 19); \
             AF_PACKET: could not find the interface: No such device (os error 19)"
        );
        assert_eq!(
            why(&spec("lo", Wish::Packet), one),
            "lo: cannot be opened: AF_PACKET: it carries neither Ethernet nor bare IP packets (Linux's hardware type 772)"
        );
        assert_eq!(
            why(&Spec { mtu: 1800, ..spec("lan", Wish::Packet) }, one),
            "lan: cannot be opened: AF_PACKET: its frames have up to 1822 bytes, and slots have room for 1792: \
             lower its MTU, or choose larger slots"
        );
        assert_eq!(
            why(&spec("lan", Wish::Tap), one),
            "lan: cannot be opened: TAP: there is an interface of that name already"
        );
        let opened = ports::open(&spec("lan", Wish::Auto), one).unwrap();
        assert_eq!((opened.driver, opened.copying), (Driver::Packet, Copying::Copy));
        let [refused] = &opened.refused[..] else { panic!("{:?}", opened.refused) };
        assert_eq!(
            refused.to_string(),
            "AF_XDP: on an interface without hardware AF_PACKET is faster; `driver = \"xdp\"` has it all the same"
        );
        drop(opened);
        let opened = ports::open(&spec("lan", Wish::Xdp), big).unwrap();
        assert_eq!((opened.driver, opened.copying), (Driver::Xdp, Copying::Copy));
        drop(opened);
        assert_eq!(
            why(&spec("lan", Wish::Xdp), two),
            "lan: cannot be opened: AF_XDP: it has 1 queues for 2 workers: give it as many (ethtool -L), or take fewer workers"
        );
        assert!(why(&Spec { tagged: Tagged::Yes, ..spec("lan", Wish::Xdp) }, one).contains("VLAN tags"));
        ip("link add bridge type bridge");
        ip("link set bridge up");
        assert_eq!(
            why(&spec("bridge", Wish::Xdp), one),
            "bridge: cannot be opened: AF_XDP: could not attach the XDP program to its driver: Operation not supported (os error 95) \
             (its driver has no XDP)"
        );
        let held = ports::open(&spec("lan", Wish::Xdp), one).unwrap();
        assert_eq!(held.driver, Driver::Xdp);
        assert_eq!(
            why(&spec("lan", Wish::Xdp), one),
            "lan: cannot be opened: AF_XDP: could not attach the XDP program to its driver: Device or resource busy (os error 16) \
             (another program is there already)"
        );
        let _punt = Punt::open("lan", MARK, 1).unwrap();
        assert!(Punt::open("lan", MARK, 1).unwrap_err().to_string().contains("already"));
    });
}
