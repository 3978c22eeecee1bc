//! Real ports between real hosts: each driver receives and sends the right frames.
#![allow(clippy::unwrap_used)]

mod lab;

use std::net::{IpAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lab::line::{FAR, NEAR, Wire, at_home, datagram, guarded, host, lend, open, receive, transmit};
use lab::{Raw, answers, converse, echo, ip, pattern, pings, segment_udp};
use ports::{MARK, Opened, Punt, Statistics, Wish};
use wire::ethernet::EtherType;
use wire::vlan::Tag;
use wire::{Batch, Nanos, Pool, build};

mod xdp {
    use super::*;

    #[test]
    fn frames_of_all_sizes_go_both_ways() {
        super::frames_of_all_sizes_go_both_ways(Wish::Xdp);
    }

    #[test]
    fn many_frames_go_in_order_and_slots_come_home() {
        super::many_frames_go_in_order_and_slots_come_home(Wish::Xdp);
    }

    #[test]
    fn streams_between_hosts_arrive_whole() {
        let (near, _, _) = super::streams_between_hosts_arrive_whole(Wish::Xdp);
        if let Some(near) = near {
            assert!(near.completed > 1000, "checksums were left to us: {near:?}");
        }
    }

    #[test]
    fn linux_is_reached_through_its_punt_and_not_beside_it() {
        super::linux_is_reached_through_its_punt_and_not_beside_it(Wish::Xdp);
    }
}

mod packet {
    use super::*;

    #[test]
    fn frames_of_all_sizes_go_both_ways() {
        super::frames_of_all_sizes_go_both_ways(Wish::Packet);
    }

    #[test]
    fn many_frames_go_in_order_and_slots_come_home() {
        super::many_frames_go_in_order_and_slots_come_home(Wish::Packet);
    }

    #[test]
    fn streams_between_hosts_arrive_whole() {
        let (near, _, _) = super::streams_between_hosts_arrive_whole(Wish::Packet);
        if let Some(near) = near {
            assert!(near.segmented > 20 && near.completed > 20, "offloads were left to us: {near:?}");
        }
    }

    #[test]
    fn linux_is_reached_through_its_punt_and_not_beside_it() {
        super::linux_is_reached_through_its_punt_and_not_beside_it(Wish::Packet);
    }
}

fn frames_of_all_sizes_go_both_ways(wish: Wish) {
    lab::run(move || {
        let host = host("lan");
        let mut pool = Pool::new(1024, 2048).unwrap();
        let Opened { mut lines, held: _held, .. } = open("lan", wish, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));

        let tags: [&[Tag]; 3] =
            [&[], &[Tag { tci: 0x600a, ..Tag::customer(0) }], &[Tag::service(20), Tag::customer(7)]];
        let mut frames = Vec::new();
        for tags in tags {
            // Linux gives a packet socket room for a customer's tag beside the MTU, and no more.
            for size in [60, 61, 64, 128, 513, 1000, 1513, 1514 + 4 * usize::from(tags.len() == 1)] {
                frames.push(datagram(FAR, NEAR, tags, size, 4000));
            }
        }
        frames.push(build::ethernet(FAR, NEAR).of_its_own());
        for frame in &frames {
            raw.send(frame);
        }
        let received = receive(line, &mut pool, frames.len());
        assert!(received == frames, "{} of {}", received.len(), frames.len());

        let frames: Vec<_> =
            frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
        transmit(line, &mut pool, &frames);
        for (number, frame) in frames.iter().enumerate() {
            let received = raw.receive();
            assert!(received.as_ref() == Some(frame), "frame {number}: {received:x?}");
        }
        let counted = line.statistics();
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let expected = Statistics {
            received: frames.len() as u64,
            received_bytes: bytes as u64,
            sent: frames.len() as u64,
            sent_bytes: bytes as u64,
            ..Statistics::default()
        };
        assert_eq!(counted, expected);
        drop(lines);
        assert_eq!(at_home(&mut pool), 1024);
    });
}

/// A packet of a protocol that nothing here handles (Ethernet type 0x88b5).
trait OfItsOwn {
    fn of_its_own(self) -> Vec<u8>;
}

impl OfItsOwn for build::Packet<'_> {
    fn of_its_own(self) -> Vec<u8> {
        self.ethertype(EtherType(0x88b5)).payload(&pattern(100)).to_vec()
    }
}

fn many_frames_go_in_order_and_slots_come_home(wish: Wish) {
    lab::run(move || {
        let host = host("lan");
        let mut pool = Pool::new(256, 2048).unwrap();
        let Opened { mut lines, held: _held, .. } = open("lan", wish, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        let frame = |number: usize| datagram(FAR, NEAR, &[], 60 + number % 1000, number as u16);
        let mut received = Vec::new();
        for round in 0..200 {
            let frames: Vec<_> = (0..20).map(|number| frame(round * 20 + number)).collect();
            for frame in &frames {
                raw.send(frame);
            }
            let some = receive(line, &mut pool, frames.len());
            assert_eq!(some.len(), frames.len(), "round {round}: {:?}", line.statistics());
            received.extend(some);
        }
        assert!(received.iter().enumerate().all(|(number, bytes)| *bytes == frame(number)));
        for round in 0..40 {
            let frames: Vec<_> = (0..50).map(|number| frame(round * 50 + number)).collect();
            transmit(line, &mut pool, &frames);
            for frame in &frames {
                assert!(raw.receive().as_ref() == Some(frame));
            }
            line.reclaim(&mut pool);
        }
        drop(lines);
        assert_eq!(at_home(&mut pool), 256);
    });
}

/// Taken out of the ring together, each has the moment at which Linux received it.
#[test]
fn frames_have_their_own_times_of_arrival() {
    lab::run(|| {
        let host = host("lan");
        let mut pool = Pool::new(64, 2048).unwrap();
        let Opened { mut lines, held: _held, .. } = open("lan", Wish::Packet, &pool);
        let raw = host.run(|| Raw::open("eth"));
        let before = ports::now();
        let sent: Vec<_> = (4000..4003).map(|sport| datagram(FAR, NEAR, &[], 100, sport)).collect();
        for frame in &sent {
            raw.send(frame);
            thread::sleep(Duration::from_millis(50));
        }
        let mut batch = Batch::new();
        lines[0].receive(&mut batch, &mut pool).unwrap();
        let received: Vec<Nanos> = sent
            .iter()
            .filter_map(|sent| batch.iter().find(|frame| frame.bytes() == sent))
            .map(|frame| frame.meta.received)
            .collect();
        assert_eq!(received.len(), sent.len());
        // The wall clock may be slewed meanwhile, and the two clocks are read one after the other.
        let [gap, slack] = [40, 10].map(Nanos::from_millis);
        assert!(received[0] + slack >= before && received[2] <= ports::now(), "{before:?} {received:?}");
        assert!(received.windows(2).all(|pair| pair[1].since(pair[0]) >= gap), "{received:?}");
        batch.drain().for_each(|frame| pool.put(frame));
    });
}

/// A worker off its core for a while finds all frames that arrived meanwhile, in order; the overflow is counted.
#[test]
fn frames_wait_while_nobody_receives() {
    lab::run(|| {
        let host = host("lan");
        let mut pool = Pool::new(256, 2048).unwrap();
        let Opened { mut lines, held: _held, .. } = open("lan", Wish::Packet, &pool);
        let line = &mut *lines[0];
        let raw = host.run(|| Raw::open("eth"));
        let frame = |number: usize| datagram(FAR, NEAR, &[], 60, number as u16);
        for frames in [500, 1200, 13_000, 3, 13_000] {
            (0..frames).for_each(|number| raw.send(&frame(number)));
            let received = receive(line, &mut pool, frames);
            assert_eq!(received.len(), frames, "{:?}", line.statistics());
            assert!(received.iter().enumerate().all(|(number, bytes)| *bytes == frame(number)), "{frames}");
        }
        assert_eq!(line.statistics().lost, 0);
        let flood = 30_000;
        (0..flood).for_each(|number| raw.send(&frame(number)));
        let received = receive(line, &mut pool, flood).len();
        assert!(received > 13_000, "{received}");
        assert_eq!(received as u64 + line.statistics().lost, flood as u64);
    });
}

fn streams_between_hosts_arrive_whole(wish: Wish) -> (Option<Statistics>, Option<Statistics>, usize) {
    let (tell, told) = channel();
    lab::run(move || {
        let (one, other) = (host("lan"), host("wan"));
        one.run(|| {
            ip("addr add 10.0.0.1/24 dev eth");
            ip("addr add fd00::1/64 dev eth nodad");
        });
        other.run(|| {
            ip("addr add 10.0.0.2/24 dev eth");
            ip("addr add fd00::2/64 dev eth nodad");
        });
        let pool = Pool::new(4096, 2048).unwrap();
        let (mut lan, mut wan) = (open("lan", wish, &pool), open("wan", wish, &pool));
        let wire = Wire::new(lan.lines.remove(0), wan.lines.remove(0), pool);
        for (port, address) in [(7000, "10.0.0.2"), (7001, "fd00::2")] {
            let address: IpAddr = address.parse().unwrap();
            let echoed = other.start(move || echo(address, port));
            one.run(move || converse(address, port, 3_000_000));
            echoed();
        }
        // Datagrams of 1000 bytes, cut by a card, of which the last is shorter.
        let listening = other.run(|| UdpSocket::bind("10.0.0.2:9000").unwrap());
        one.run(|| {
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            segment_udp(&socket, 1000);
            socket.send_to(&pattern(20_500), "10.0.0.2:9000").unwrap();
        });
        listening.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let (mut all, mut sizes, mut buffer) = (Vec::new(), Vec::new(), [0; 2000]);
        while all.len() < 20_500 {
            let length = listening.recv(&mut buffer).unwrap();
            sizes.push(length);
            all.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(sizes, [vec![1000; 20], vec![500]].concat());
        assert!(all == pattern(20_500));
        let (near, far, longest) = wire.stop();
        println!("{near:?}\n{far:?}");
        assert_eq!((near.unusable, far.unusable, near.unsendable, far.unsendable), (0, 0, 0, 0));
        assert!(longest <= 1514, "a frame of {longest} bytes was received");
        tell.send((Some(near), Some(far), longest)).unwrap();
    });
    told.recv().unwrap_or_default()
}

fn linux_is_reached_through_its_punt_and_not_beside_it(wish: Wish) {
    lab::run(move || {
        let host = host("lan");
        ip("addr add 10.0.0.1/24 dev lan");
        ip("addr add fd00::1/64 dev lan nodad");
        host.run(|| {
            ip("addr add 10.0.0.2/24 dev eth");
            ip("addr add fd00::2/64 dev eth nodad");
        });
        assert!(host.run(|| answers("10.0.0.1")));
        let pool = Pool::new(4096, 2048).unwrap();
        let mut opened = open("lan", wish, &pool);
        let mut punt = Punt::open("lan", MARK, 1).unwrap();
        let guard = guarded("lan", &punt);
        assert!(!host.run(|| pings("10.0.0.1")), "Linux answered what nobody delivered to it");

        let wire = Wire::new(opened.lines.remove(0), Box::new(punt.lines.remove(0)), pool);
        for (port, theirs, ours) in [(7000, "10.0.0.2", "10.0.0.1"), (7001, "fd00::2", "fd00::1")] {
            let (theirs, ours): (IpAddr, IpAddr) = (theirs.parse().unwrap(), ours.parse().unwrap());
            assert!(host.run(move || answers(&ours.to_string())));
            assert!(answers(&theirs.to_string()));
            let echoed = host.start(move || echo(theirs, port));
            converse(theirs, port, 500_000);
            echoed();
            let here = thread::spawn(move || echo(ours, port));
            host.run(move || converse(ours, port, 500_000));
            here.join().unwrap();
        }
        let (port, punted, longest) = wire.stop();
        println!("{port:?}\n{punted:?}");
        assert!(longest <= 1514);
        assert!(punted.segmented > 10, "Linux leaves it to us to cut what it sends");
        assert_eq!((port.unusable, punted.unusable), (0, 0));

        drop((opened, punt));
        assert!(!host.run(|| pings("10.0.0.1")), "the guard stays");
        drop(guard);
        assert!(host.run(|| answers("10.0.0.1")), "Linux has its interface back");
    });
}
