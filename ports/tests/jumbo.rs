//! Links of 9,000 bytes between real hosts, by each driver: frames of several buffers come and go in one piece.
#![allow(clippy::unwrap_used)]

mod lab;

use lab::line::{FAR, NEAR, at_home, datagram, lend, receive, spec, transmit};
use lab::{Host, Raw, ip};
use ports::{Driver, Opened, Spec, Statistics, Wish};
use wire::{Batch, Pool};

const MTU: u16 = 9_000;
/// Bytes of the longest frame, without tags.
const LONGEST: usize = 9_014;

/// A host by a link of 9,000 bytes, and this end of the link, opened for packets of `mtu` bytes.
fn opened(wish: Wish, mtu: u16, pool: &Pool) -> (Host, Opened) {
    let host = Host::new();
    host.connect("lan", "eth", 1);
    ip(&format!("link set lan mtu {MTU}"));
    host.run(|| ip(&format!("link set eth mtu {MTU}")));
    let spec = Spec { mtu, ..spec("lan", wish) };
    let opened = ports::open(&spec, &[pool.memory()]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(opened.driver == Driver::Xdp, wish == Wish::Xdp);
    (host, opened)
}

/// A buffer of AF_XDP takes 3,840 bytes of a frame, one of veth 3,520.
fn frames_of_all_sizes_go_both_ways(wish: Wish) {
    lab::run(move || {
        let mut pool = Pool::new(1024, 16_384).unwrap();
        let (host, Opened { mut lines, held: _held, .. }) = opened(wish, MTU, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        let sizes = [
            60, 1_514, 3_519, 3_520, 3_521, 3_839, 3_840, 3_841, 4_096, 64, 7_679, 7_680, 7_681, 8_999,
            LONGEST, 61,
        ];
        let frames: Vec<_> =
            (1_000..).zip(sizes).map(|(sport, size)| datagram(FAR, NEAR, &[], size, sport)).collect();
        frames.iter().for_each(|frame| raw.send(frame));
        let received = receive(line, &mut pool, frames.len());
        let lengths: Vec<_> = received.iter().map(Vec::len).collect();
        assert!(received == frames, "{lengths:?}");

        let frames: Vec<_> =
            frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
        transmit(line, &mut pool, &frames);
        for (number, frame) in frames.iter().enumerate() {
            let received = raw.receive();
            assert!(
                received.as_ref() == Some(frame),
                "frame {number}: {:?}",
                received.map(|bytes| bytes.len())
            );
        }
        let bytes = frames.iter().map(Vec::len).sum::<usize>() as u64;
        let frames = frames.len() as u64;
        let expected = Statistics {
            received: frames,
            received_bytes: bytes,
            sent: frames,
            sent_bytes: bytes,
            ..Statistics::default()
        };
        assert_eq!(line.statistics(), expected);
        drop(lines);
        assert_eq!(at_home(&mut pool), 1024);
    });
}

#[test]
fn frames_of_all_sizes_go_both_ways_by_af_xdp() {
    frames_of_all_sizes_go_both_ways(Wish::Xdp);
}

#[test]
fn frames_of_all_sizes_go_both_ways_by_af_packet() {
    frames_of_all_sizes_go_both_ways(Wish::Packet);
}

fn frame(number: usize) -> Vec<u8> {
    datagram(FAR, NEAR, &[], 60 + number * 977 % (LONGEST - 60), number as u16)
}

/// More frames than there are buffers, and all of them come home.
#[test]
fn many_frames_go_in_order() {
    lab::run(|| {
        let mut pool = Pool::new(512, 16_384).unwrap();
        let (host, Opened { mut lines, held: _held, .. }) = opened(Wish::Xdp, MTU, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        for round in 0..200 {
            let frames: Vec<_> = (0..12).map(|number| frame(round * 12 + number)).collect();
            frames.iter().for_each(|frame| raw.send(frame));
            let received = receive(line, &mut pool, frames.len());
            assert!(received == frames, "round {round}: {:?}", line.statistics());
        }
        for round in 0..200 {
            // More have no room in the host's socket.
            let frames: Vec<_> = (0..12).map(|number| frame(round * 12 + number)).collect();
            transmit(line, &mut pool, &frames);
            assert!(frames.iter().all(|frame| raw.receive().as_ref() == Some(frame)), "round {round}");
            line.reclaim(&mut pool);
        }
        drop(lines);
        assert_eq!(at_home(&mut pool), 512);
    });
}

/// Frames that nobody receives fill the buffers; those beyond are counted, and behind them frames are whole again.
#[test]
fn frames_beyond_the_buffers_are_counted() {
    lab::run(|| {
        let mut pool = Pool::new(512, 16_384).unwrap();
        let (host, Opened { mut lines, held: _held, .. }) = opened(Wish::Xdp, MTU, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        let flood = 1_000;
        (0..flood).for_each(|number| raw.send(&frame(number)));
        let received = receive(line, &mut pool, flood);
        let lost = line.statistics().lost;
        assert!(lost > 0 && !received.is_empty());
        assert_eq!(received.len() as u64 + lost, flood as u64);
        let mut expected = (0..flood).map(frame);
        assert!(received.iter().all(|bytes| expected.any(|frame| frame == *bytes)), "whole, and in order");
        raw.send(&frame(3));
        assert!(receive(line, &mut pool, 1) == [frame(3)]);
    });
}

/// Frames stay in the ring while the worker has no slot.
#[test]
fn frames_wait_for_slots() {
    lab::run(|| {
        let mut pool = Pool::new(512, 16_384).unwrap();
        let (host, Opened { mut lines, held: _held, .. }) = opened(Wish::Xdp, MTU, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        (0..5).for_each(|number| raw.send(&frame(number)));
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let mut batch = Batch::new();
        line.receive(&mut batch, &mut pool).unwrap();
        assert!(batch.is_empty());
        taken.into_iter().for_each(|frame| pool.put(frame));
        assert!(receive(line, &mut pool, 5) == (0..5).map(frame).collect::<Vec<_>>());
        assert_eq!(line.statistics().lost, 0);
    });
}

/// The link takes longer frames than the policy has slots for.
#[test]
fn frames_longer_than_a_slot_are_counted() {
    lab::run(|| {
        let mut pool = Pool::new(512, 8_192).unwrap();
        let (host, Opened { mut lines, held: _held, .. }) = opened(Wish::Xdp, 7_000, &pool);
        let line = &mut *lines[0];
        lend(line, &mut pool);
        let raw = host.run(|| Raw::open("eth"));
        let [short, long] = [7_014, LONGEST].map(|bytes| datagram(FAR, NEAR, &[], bytes, 1));
        for frame in [&short, &long, &long, &short] {
            raw.send(frame);
        }
        assert!(receive(line, &mut pool, 2) == [short.clone(), short]);
        assert_eq!(line.statistics().unusable, 2);
        drop(lines);
        assert_eq!(at_home(&mut pool), 512);
    });
}
