//! DualPI2 beside the pseudo-code of RFC 9332, appendix A, transcribed in floating point.

use std::collections::VecDeque;

use policy::model::{Dropper, Overhead, RedThreshold};
use proptest::prelude::*;
use wire::{Bytes, Family, Nanos, Pool, build};

use super::super::dropper::{Decision, Random};
use super::super::kind::Kind;
use super::super::packets::{Packets, Waiting};
use super::{Controller, Dual, WHOLE};
use crate::tables::LeafSettings;

fn settings(coupling: u32) -> LeafSettings {
    LeafSettings {
        fq: None,
        limit: 10_000,
        limit_bytes: u64::MAX,
        drop: Dropper::DualPi2,
        red: [RedThreshold { min: 1, max: 2, per_mille: 1 }; 3],
        idle: Nanos(1),
        target: Nanos::from_millis(15),
        interval: Nanos::from_millis(100),
        step: Nanos::from_millis(1),
        coupling,
        ecn: true,
        longest: Bytes(1_500),
    }
}

/// A packet that comes: moment, ECN field, length.
#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u32,
    at: u64,
    ecn: u8,
    bytes: u32,
}

/// Figures 2 to 9 of RFC 9332 with its defaults; the ramp is a step, and the scheduler weighted round robin.
struct Oracle {
    lq: VecDeque<Packet>,
    cq: VecDeque<Packet>,
    k: f64,
    p: f64,
    prevq: f64,
    next_update: Option<u64>,
    /// Bytes of low latency and classic sent while both had packets.
    sent: [u64; 2],
}

/// Outcome of a packet for the oracle: with that probability it is dropped, and if it is not, with that one marked.
#[derive(Clone, Copy, Debug)]
struct Odds {
    drop: f64,
    mark: f64,
}

impl Oracle {
    fn new(k: u32) -> Oracle {
        let (lq, cq) = (VecDeque::new(), VecDeque::new());
        Oracle { lq, cq, k: k.into(), p: 0.0, prevq: 0.0, next_update: None, sent: [0, 0] }
    }

    fn dualpi2_update(&mut self, now: u64) {
        const RTT_MAX: f64 = 0.1;
        const TARGET: f64 = 0.015;
        const TUPDATE: f64 = 0.015;
        const ALPHA: f64 = 0.1 * TUPDATE / (RTT_MAX * RTT_MAX);
        const BETA: f64 = 0.3 / RTT_MAX;
        let time = |q: &VecDeque<Packet>| q.front().map_or(0.0, |head| (now - head.at) as f64 / 1e9);
        let curq = f64::max(time(&self.cq), time(&self.lq));
        self.p = (self.p + ALPHA * (curq - TARGET) + BETA * (curq - self.prevq)).clamp(0.0, 1.0);
        self.prevq = curq;
    }

    fn pass(&mut self, now: u64) {
        let mut next = self.next_update.unwrap_or(now + 15_000_000);
        while next <= now {
            self.dualpi2_update(next);
            next += 15_000_000;
        }
        self.next_update = Some(next);
    }

    fn enqueue(&mut self, packet: Packet) {
        self.pass(packet.at);
        if packet.ecn % 2 == 1 { self.lq.push_back(packet) } else { self.cq.push_back(packet) }
    }

    fn dequeue(&mut self, now: u64) -> Option<(Packet, Odds)> {
        self.pass(now);
        let (p_cl, p_c) = (self.k * self.p, self.p * self.p);
        let p_cmax = f64::min(1.0 / (self.k * self.k), 1.0);
        let is_saturated = p_cl >= 1.0;
        let both = !self.lq.is_empty() && !self.cq.is_empty();
        // At first low latency may be eight packets of the MTU in advance.
        let is_low = if both { self.sent[0] <= 9 * self.sent[1] + 8 * 1_500 } else { self.cq.is_empty() };
        if self.lq.is_empty() && self.cq.is_empty() {
            self.sent = [0, 0];
            return None;
        }
        let (packet, odds) = if is_low {
            let packet = self.lq.pop_front()?;
            let native = !self.lq.is_empty() && now - packet.at > 1_000_000;
            let odds = match is_saturated {
                true => Odds { drop: p_c, mark: 1.0 },
                false => Odds { drop: 0.0, mark: if native { 1.0 } else { p_cl } },
            };
            (packet, odds)
        } else {
            let packet = self.cq.pop_front()?;
            let odds = match packet.ecn == 0 || p_c >= p_cmax {
                true => Odds { drop: p_c, mark: 0.0 },
                false => Odds { drop: 0.0, mark: p_c },
            };
            (packet, odds)
        };
        Some((packet, odds)).inspect(|_| {
            if both {
                self.sent[usize::from(!is_low)] += u64::from(packet.bytes);
            }
        })
    }

    /// A packet that is dropped takes no turn.
    fn dropped(&mut self, packet: &Packet, sent: [u64; 2]) {
        let _ = packet;
        self.sent = sent;
    }
}

/// Offers packets to queues before a link of 8 Mbit/s, a microsecond for each byte, beside the oracle.
struct Scene {
    dual: Dual,
    oracle: Oracle,
    settings: LeafSettings,
    kind: Kind,
    packets: Packets,
    pool: Pool,
    random: Random,
    /// Of low latency and classic: packets sent, marked, dropped.
    counts: [[u64; 3]; 2],
    last: [Option<u32>; 2],
}

impl Scene {
    fn new(coupling: u32, seed: u64) -> Scene {
        let settings = settings(coupling);
        Scene {
            dual: Dual::new(&settings),
            oracle: Oracle::new(coupling),
            settings,
            kind: Kind::counting(Overhead::Fixed(Bytes(0))),
            packets: Packets::new(20_000).unwrap(),
            pool: Pool::new(20_000, 2_048).unwrap(),
            random: Random(seed),
            counts: [[0; 3]; 2],
            last: [None; 2],
        }
    }

    fn push(&mut self, packet: Packet) {
        let mut frame = self.pool.take().unwrap();
        let bytes = build::ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into()).ds_field(packet.ecn).to_vec();
        assert!(frame.fill(&bytes));
        (frame.meta.network, frame.meta.family, frame.meta.number) = (0, Family::V4, packet.number);
        let waiting = Waiting { frame, length: packet.bytes, since: Nanos(packet.at) };
        assert!(self.dual.push(waiting, &mut self.packets).is_ok());
        self.oracle.enqueue(packet);
    }

    /// Takes the next packet; returns the bytes that it takes on the link, none for one that is dropped.
    fn pop(&mut self, now: u64) -> Result<Option<u32>, TestCaseError> {
        let sent = self.oracle.sent;
        let due = self.oracle.dequeue(now);
        let before = self.random;
        let found =
            self.dual.pop(&self.kind, &self.settings, Nanos(now), &mut self.packets, &mut self.random);
        prop_assert_eq!(due.is_some(), found.is_some());
        let (Some((due, odds)), Some((packet, decision))) = (due, found) else { return Ok(None) };
        prop_assert_eq!(due.number, packet.frame.meta.number);
        let found = self.dual.controller.probability as f64 / WHOLE as f64;
        prop_assert!((found - self.oracle.p).abs() < 1e-6, "{found}, due {}", self.oracle.p);
        self.pool.put(packet.frame);
        let is_capable = due.ecn != 0;
        let is_drop = decision == Decision::Drop || decision == Decision::Signal && !is_capable;
        let is_mark = decision == Decision::Signal && is_capable;
        // One number is drawn, for the drop, or the mark.
        let share = (before.clone().next() >> 32) as f64 / WHOLE as f64;
        for (is_true, odds) in [(is_drop, odds.drop), (is_mark, odds.mark)] {
            let is_open = odds > 0.0 && odds < 1.0;
            let is_right =
                if is_open { is_true == (share < odds) } else { is_true == (odds >= 1.0) || is_drop };
            let is_near = (share - odds).abs() < 1e-5 || (self.oracle.k * self.oracle.p - 1.0).abs() < 1e-5;
            prop_assert!(is_right || is_near, "{decision:?} of {due:?}: {share} of {odds}");
        }
        let kind = usize::from(due.ecn % 2 == 0);
        // Neither queue is reordered.
        prop_assert!(self.last[kind].is_none_or(|last| last < due.number));
        self.last[kind] = Some(due.number);
        self.counts[kind][0] += u64::from(!is_drop);
        self.counts[kind][1] += u64::from(is_mark);
        self.counts[kind][2] += u64::from(is_drop);
        if is_drop {
            self.oracle.dropped(&due, sent);
            return Ok(Some(0));
        }
        Ok(Some(due.bytes))
    }

    fn play(&mut self, arrivals: &[Packet]) -> Result<(), TestCaseError> {
        let (mut free, mut waiting) = (0, 0_usize);
        let mut arrivals = arrivals.iter().peekable();
        loop {
            match arrivals.peek() {
                None if waiting == 0 => return Ok(()),
                Some(packet) if waiting == 0 || packet.at <= free => {
                    free = free.max(packet.at);
                    self.push(**packet);
                    waiting += 1;
                    arrivals.next();
                }
                _ => {
                    let bytes = self.pop(free)?;
                    waiting -= 1;
                    free += u64::from(bytes.unwrap_or(0)) * 1_000;
                }
            }
        }
    }
}

/// Phases of load, from a third of the link to twice as much, each with its share of packets of low latency; and pauses.
fn traffic() -> impl Strategy<Value = Vec<Packet>> {
    let phase =
        (250_u64..3_000, 1_usize..600, 0_u64..101, prop_oneof![2 => Just(0), 1 => 1_u64..5_000_000_000]);
    prop::collection::vec((phase, any::<u64>()), 1..8).prop_map(|phases| {
        let (mut packets, mut now) = (Vec::new(), 1_000);
        for ((gap, count, low, pause), seed) in phases {
            let mut random = Random(seed);
            for _ in 0..count {
                now += random.next() % (gap * 1_000);
                let ecn = match random.next() % 100 < low {
                    true => [1, 3][(random.next() % 2) as usize],
                    false => [0, 2][(random.next() % 2) as usize],
                };
                let bytes = 40 + (random.next() % 1_461) as u32;
                packets.push(Packet { number: packets.len() as u32, at: now, ecn, bytes });
            }
            now += pause;
        }
        packets
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Order, probabilities and decisions are those of the RFC.
    #[test]
    fn dualpi2_does_what_the_pseudo_code_does(packets in traffic(), coupling in 1_u32..5, seed: u64) {
        Scene::new(coupling, seed).play(&packets)?;
    }

    /// The integer controller follows one in floating point, whatever its parameters.
    #[test]
    fn the_controller_follows_its_law(
        target in 1_u64..100_000_000,
        round_trip in 3_000_000_u64..2_000_000_000,
        delays in prop::collection::vec(0_u64..200_000_000, 1..300),
    ) {
        let mut found = Controller::new(Nanos(target), Nanos(round_trip));
        let (r, target) = (round_trip as f64 / 1e9, target as f64 / 1e9);
        // In whole nanoseconds: of a period of a millisecond that is a millionth.
        let tupdate = found.period.0 as f64 / 1e9;
        prop_assert!((target.min(r / 3.0).max(0.001) - tupdate).abs() < 2e-9);
        let (alpha, beta) = (0.1 * tupdate / (r * r), 0.3 / r);
        let (mut p, mut prevq) = (0.0, 0.0);
        for delay in delays {
            found.update(Nanos(delay));
            let curq = delay as f64 / 1e9;
            p = f64::clamp(p + alpha * (curq - target) + beta * (curq - prevq), 0.0, 1.0);
            prevq = curq;
            let found = found.probability as f64 / WHOLE as f64;
            prop_assert!((found - p).abs() < 1e-6, "{found}, due {p}");
        }
    }
}

/// At any base probability classic packets are signalled with its square, and those of low latency with k times it.
#[test]
fn probabilities_are_coupled_by_a_square() {
    for coupling in [1, 2, 4] {
        for p in [0.02, 0.05, 0.1, 0.2] {
            let mut dual = Dual::new(&settings(coupling));
            dual.controller.probability = (p * WHOLE as f64) as u64;
            let (settings, mut random) = (settings(coupling), Random(9));
            let count = 200_000;
            let mut share = |decide: fn(&Dual, &LeafSettings, &mut Random) -> Decision| {
                let signals = (0..count).filter(|_| decide(&dual, &settings, &mut random) != Decision::Keep);
                signals.count() as f64 / f64::from(count)
            };
            let low = share(|dual, settings, random| dual.decide_low(settings, Nanos(0), random));
            let classic = share(Dual::decide_classic);
            // The square law: p_C = (p_L / k)^2.
            let due = (low / f64::from(coupling)).powi(2);
            assert!((low / (f64::from(coupling) * p) - 1.0).abs() < 0.1, "{low}");
            assert!((classic / due - 1.0).abs() < 0.2, "{classic} {due}");
            assert!((classic / (p * p) - 1.0).abs() < 0.2, "{classic} {p}");
        }
    }
}

/// A flood of low latency leaves classic packets a tenth of the link, and takes no more than nine.
#[test]
fn classic_packets_are_protected() {
    let mut scene = Scene::new(2, 1);
    let packets: Vec<Packet> = (0..10_000)
        .map(|n| Packet { number: n, at: 1_000, ecn: if n % 2 == 0 { 1 } else { 0 }, bytes: 1_000 })
        .collect();
    packets.iter().for_each(|packet| scene.push(*packet));
    let (mut low, mut classic) = (0_u64, 0_u64);
    // Within the first update.
    for _ in 0..1_000 {
        let before = scene.counts;
        scene.pop(2_000).unwrap();
        low += scene.counts[0][0] - before[0][0];
        classic += scene.counts[1][0] - before[1][0];
    }
    // Thirteen use up the head start; then there are nine for each classic one.
    assert_eq!((low, classic), (901, 99));
}

/// Senders that do not slow down have their packets dropped, marked or not, until the rest fits the link (section 4.2.3).
#[test]
fn overload_is_dropped_from_both_queues() {
    let mut scene = Scene::new(2, 5);
    // 8 Mbit/s carry 1,000 packets a second: 800 of low latency, 1,200 classic come, all of them ECN-capable.
    let packets: Vec<Packet> = (0..40_000_u32)
        .map(|n| {
            let ecn = if n % 5 < 2 { 1 } else { 2 };
            Packet { number: n, at: 1_000 + u64::from(n) * 500_000, ecn, bytes: 1_000 }
        })
        .collect();
    scene.play(&packets).unwrap();
    let [low, classic] = scene.counts;
    let share = |[sent, _, dropped]: [u64; 3]| dropped as f64 / (sent + dropped) as f64;
    assert!((share(low) - 0.5).abs() < 0.07, "{low:?}");
    assert!((share(classic) - 0.5).abs() < 0.07, "{classic:?}");
    // The rest is of low latency and marked, or classic and not.
    assert!(low[1] as f64 > 0.9 * low[0] as f64, "{low:?}");
}

/// Idle time has the effect of its updates one by one.
#[test]
fn rest_equals_its_updates() {
    for updates in [1, 2, 10, 443, 444, 10_000] {
        let mut found = Controller::new(Nanos::from_millis(15), Nanos::from_millis(100));
        (0..60).for_each(|_| found.update(Nanos::from_millis(25)));
        let mut due = found;
        assert!(due.probability > 0);
        found.rest(updates);
        (0..updates).for_each(|_| due.update(Nanos(0)));
        assert_eq!((found.probability, found.old_delay), (due.probability, due.old_delay), "{updates}");
    }
}
