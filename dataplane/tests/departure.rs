//! Moments of departure, against a model of a queue and a link that shares no code with them: exact fractions, frame by frame.
//!
//! Frames come in bursts of one moment, a nanosecond apart, and with gaps; queues hold 1 to 1,024 of them; links have any rate, and
//! none. What departs, when, and what is dropped must be what the model says, however the host puts frames into batches, and whichever
//! way they go through the pipeline.

use std::collections::VecDeque;

use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Tables, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{BATCH, Frame, Nanos, PortId};

const START: u64 = 1_700_000_000_000_000_000;

/// Bytes in front of the payload: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Preamble, frame check sequence and gap.
const OVERHEAD: usize = 24;

/// A frame that comes in: so long after the one before, with a payload of so many bytes.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    gap: u64,
    payload: usize,
}

/// Outcome of the frames: departures with their times, in order, and drops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    departed: Vec<(u32, u64)>,
    dropped: Vec<u32>,
}

impl Witness for Outcome {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        assert_eq!((port, verdict), (PortId(1), Some(Verdict::Forwarded)));
        self.departed.push((frame.meta.number, at.0));
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        assert_eq!(verdict, Verdict::Dropped(Reason::QueueFull));
        self.dropped.push(frame.meta.number);
    }

    fn refused(&mut self, number: u32, _: PortId, reason: Reason) {
        assert_eq!(reason, Reason::FramePoolEmpty);
        self.dropped.push(number);
    }
}

/// The model. A port without a rate takes what waits after 64 frames of one moment. Moments are fractions whose denominator is the rate: `free` is such a numerator.
fn model(rate: Option<u64>, limit: usize, arrivals: &[Arrival]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut queue: VecDeque<(u32, u64, usize)> = VecDeque::new();
    let mut free: u128 = 0;
    let (mut now, mut of_moment) = (START, 0);
    let mut depart = |queue: &mut VecDeque<(u32, u64, usize)>, before: u64, outcome: &mut Outcome| {
        while let Some((number, ready, bytes)) = queue.front().copied() {
            let at = match rate {
                None => ready,
                Some(rate) => {
                    let begins = free.max(u128::from(ready) * u128::from(rate));
                    let at = (begins / u128::from(rate)) as u64;
                    if at < before {
                        free = begins + (bytes.max(60) + OVERHEAD) as u128 * 8 * 1_000_000_000;
                    }
                    at
                }
            };
            if at >= before {
                break;
            }
            outcome.departed.push((number, at));
            queue.pop_front();
        }
    };
    for (number, arrival) in (0..).zip(arrivals) {
        now += arrival.gap;
        depart(&mut queue, now, &mut outcome);
        of_moment = if arrival.gap > 0 { 0 } else { of_moment };
        if of_moment == BATCH {
            if rate.is_none() {
                depart(&mut queue, now + 1, &mut outcome);
            }
            of_moment = 0;
        }
        of_moment += 1;
        if queue.len() < limit {
            queue.push_back((number, now, HEADERS + arrival.payload));
        } else {
            outcome.dropped.push(number);
        }
    }
    depart(&mut queue, u64::MAX, &mut outcome);
    outcome
}

fn tables(rate: Option<u64>, limit: usize) -> Tables {
    let rate = rate.map_or(String::new(), |rate| format!("rate = \"{rate} bit/s\"\n"));
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n{rate}\
         [default]\n\"lan > wan\" = \"accept\"\n[limit]\nflows = 64\nqueue = {limit}\n"
    );
    let policy = policy::check(&text, "departure.toml").policy.expect("a sound policy");
    Tables::compile(&policy, 1).expect("tables")
}

/// Batching of frames by a host.
#[derive(Clone, Copy, Debug)]
enum Batching {
    /// Batches of the host's choice.
    Free,
    /// At most so many frames.
    Most(usize),
    /// Time advances before each frame.
    Advance,
}

fn replayed(tables: Tables, way: Way, batching: Batching, arrivals: &[Arrival]) -> Outcome {
    let mut replay = Replay::new(tables, Nanos(START), way).expect("memory");
    let mut outcome = Outcome::default();
    let mut now = START;
    for (number, arrival) in (0..).zip(arrivals) {
        now += arrival.gap;
        match batching {
            Batching::Free => {}
            Batching::Most(most) if number as usize % most > 0 => {}
            Batching::Most(_) => replay.pass(&mut outcome),
            Batching::Advance => replay.advance(Nanos(now), &mut outcome),
        }
        let bytes = frame(arrival.payload);
        replay.receive(PortId(0), Nanos(now), number, &bytes, &mut outcome);
        assert!(replay.shard.counters.are_conserved());
    }
    replay.finish(&mut outcome);
    let counters = &replay.shard.counters;
    assert!(counters.are_conserved() && counters.queued() == 0);
    assert_eq!(counters.forwarded(), outcome.departed.len() as u64);
    assert_eq!(counters.dropped_for(Reason::QueueFull), outcome.dropped.len() as u64);
    outcome
}

fn frame(payload: usize) -> Vec<u8> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0x57, 0x52, 0, 0, 0]))
        .ipv4([192, 168, 1, 10].into(), [203, 0, 113, 7].into())
        .udp(4_000, 53)
        .payload(&vec![0x55; payload])
        .to_vec()
}

/// Bursts of one moment, the shortest and any gaps; now and then an hour.
fn arrivals(most: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![
        6 => Just(0),
        2 => Just(1),
        4 => 1..100_000_u64,
        1 => 100_000..10_000_000_u64,
        1 => Just(3_600_000_000_000),
    ];
    vec((gap, 0..1_400_usize).prop_map(|(gap, payload)| Arrival { gap, payload }), 1..most)
}

fn rate() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        1 => Just(None),
        1 => (1..64_u64).prop_map(Some),
        4 => (64_000..1_000_000_000_u64).prop_map(Some),
        1 => Just(Some(10_000_000_000)),
        1 => Just(Some(10_000_000_000_000)),
    ]
}

fn limit() -> impl Strategy<Value = usize> {
    prop_oneof![1..8_usize, 8..200_usize, Just(1_024)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn frames_depart_when_the_model_says(
        rate in rate(),
        limit in limit(),
        most in 2..64_usize,
        arrivals in arrivals(400),
    ) {
        let expected = model(rate, limit, &arrivals);
        for way in [Way::Run, Way::Step] {
            for batching in [Batching::Free, Batching::Most(most), Batching::Advance] {
                let got = replayed(tables(rate, limit), way, batching, &arrivals);
                prop_assert_eq!(&got, &expected, "{:?} {:?}", way, batching);
            }
        }
    }
}

/// Long backlogs, with a queue as long as they come by default.
#[test]
fn a_long_queue_fills_and_empties_as_the_model_says() {
    let arrivals: Vec<Arrival> = (0..6_000)
        .map(|n| Arrival { gap: if n % 3_000 < 2_500 { 1_000 } else { 4_000_000 }, payload: n % 1_000 })
        .collect();
    for limit in [1, 31, 255, 1_024] {
        let rate = Some(50_000_000);
        let expected = model(rate, limit, &arrivals);
        assert!(!expected.dropped.is_empty());
        for way in [Way::Run, Way::Step] {
            assert_eq!(
                replayed(tables(rate, limit), way, Batching::Free, &arrivals),
                expected,
                "{limit} {way:?}"
            );
        }
    }
}

/// A clock that is set back: what waits has waited as long as before, nothing is lost, and what comes then is queued behind it.
#[test]
fn a_clock_that_is_set_back_loses_nothing() {
    let tables = tables(Some(1_000_000), 1_024);
    let mut replay = Replay::new(tables, Nanos(START), Way::Run).expect("memory");
    let mut outcome = Outcome::default();
    // 58 bytes of payload, 124 bytes on the wire: 992 us each.
    let mut receive = |at: u64, number: u32, outcome: &mut Outcome| {
        replay.receive(PortId(0), Nanos(at), number, &frame(58), outcome);
        assert!(replay.shard.counters.are_conserved());
    };
    for number in 0..4 {
        receive(START, number, &mut outcome);
    }
    const HOUR: u64 = 3_600_000_000_000;
    // The first has departed; the link is free 992 us from then on.
    receive(START - HOUR, 4, &mut outcome);
    receive(START - HOUR, 5, &mut outcome);
    receive(START + HOUR, 6, &mut outcome);
    replay.finish(&mut outcome);
    let departed = |n: u64| START - HOUR + n * 992_000;
    let expected = [
        (0, START),
        (1, departed(1)),
        (2, departed(2)),
        (3, departed(3)),
        (4, departed(4)),
        (5, departed(5)),
        (6, START + HOUR),
    ];
    assert_eq!(outcome, Outcome { departed: expected.to_vec(), dropped: Vec::new() });
}

/// More frames wait than there is memory for: what comes then is refused, with a reason, and counted.
#[test]
fn frames_without_a_slot_are_refused() {
    let mut replay = Replay::new(tables(Some(1), 1_000_000), Nanos(START), Way::Run).expect("memory");
    let mut outcome = Outcome::default();
    let bytes = frame(1);
    const COUNT: u32 = 70_000;
    for number in 0..COUNT {
        replay.receive(PortId(0), Nanos(START), number, &bytes, &mut outcome);
    }
    replay.pass(&mut outcome);
    let counters = &replay.shard.counters;
    assert!(
        counters.queued() >= 65_536 && counters.queued() < COUNT.into(),
        "{} frames wait",
        counters.queued()
    );
    assert_eq!(counters.dropped_for(Reason::FramePoolEmpty), u64::from(COUNT) - counters.queued());
    assert!(counters.are_conserved());
    replay.finish(&mut outcome);
    assert_eq!(outcome.departed.len() as u64, replay.shard.counters.forwarded());
    assert_eq!(outcome.departed.len() + outcome.dropped.len(), COUNT as usize);
}

/// A reload makes queues longer, and there are slots for what waits in them.
#[test]
fn queues_that_become_longer_have_slots() {
    let mut replay = Replay::new(tables(Some(1_000), 2), Nanos(START), Way::Run).expect("memory");
    let mut outcome = Outcome::default();
    let bytes = frame(1);
    replay.receive(PortId(0), Nanos(START), 0, &bytes, &mut outcome);
    replay.reload(tables(Some(1_000), 5_000), Nanos(START), &mut outcome).expect("memory");
    for number in 1..5_000 {
        replay.receive(PortId(0), Nanos(START), number, &bytes, &mut outcome);
    }
    replay.finish(&mut outcome);
    assert_eq!((outcome.departed.len(), outcome.dropped.len()), (5_000, 0));
    assert!(replay.shard.counters.are_conserved());
}
