//! Each dropper beside its published pseudo-code, transcribed in floating point.

use std::collections::VecDeque;

use policy::model::{Dropper, RedThreshold};
use proptest::prelude::*;
use wire::{Bytes, Nanos};

use super::{Aqm, Codel, Decision, Pie, Random, Red};
use crate::egress::packets::List;
use crate::tables::LeafSettings;

const MTU: u64 = 1_500;

/// Time of a full packet.
const IDLE: u64 = 1_230_000;

fn settings(drop: Dropper) -> LeafSettings {
    LeafSettings {
        fq: None,
        limit: 10_000,
        limit_bytes: u64::MAX,
        drop,
        red: [RedThreshold { min: 5, max: 15, per_mille: 100 }; 3],
        idle: Nanos(IDLE),
        target: if drop == Dropper::Pie { Nanos::from_millis(15) } else { Nanos::from_millis(5) },
        interval: Nanos::from_millis(100),
        step: Nanos::from_millis(1),
        coupling: 2,
        ecn: false,
        longest: Bytes(MTU),
    }
}

/// A queue's size, as droppers see it.
fn list(queue: &VecDeque<Packet>) -> List {
    let mut list = List::EMPTY;
    list.packets = queue.len() as u32;
    list.bytes = queue.iter().map(|packet| packet.bytes).sum();
    list
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    number: usize,
    at: u64,
    bytes: u64,
}

/// Packets of overloads, pauses and idle times, for a link of 8 Mbit/s: a microsecond for each byte.
fn traffic() -> impl Strategy<Value = Vec<Packet>> {
    let phase = (200_u64..4_000, 1_usize..400, prop_oneof![Just(0_u64), 1_u64..3_000_000_000]);
    prop::collection::vec((phase, any::<u64>()), 1..8).prop_map(|phases| {
        let (mut packets, mut now) = (Vec::new(), 0);
        for ((gap, count, pause), seed) in phases {
            let mut random = Random(seed);
            for _ in 0..count {
                now += random.next() % (gap * 1_000);
                packets.push(Packet { number: packets.len(), at: now, bytes: 40 + random.next() % 1_461 });
            }
            now += pause;
        }
        packets
    })
}

/// Plays packets on a link: `arrives` says whether one is queued, with those before it; `departs` takes the next to be sent.
fn play<S>(
    packets: &[Packet],
    state: &mut S,
    mut arrives: impl FnMut(&mut S, &Packet, &VecDeque<Packet>) -> bool,
    mut departs: impl FnMut(&mut S, &mut VecDeque<Packet>, u64) -> Option<Packet>,
) -> Vec<usize> {
    let (mut queue, mut free, mut sent) = (VecDeque::new(), 0, Vec::new());
    let mut arrivals = packets.iter().peekable();
    loop {
        let next = if queue.is_empty() { None } else { Some(free) };
        match (arrivals.peek().map(|packet| packet.at), next) {
            (None, None) => return sent,
            (Some(at), next) if next.is_none_or(|next| at <= next) => {
                let packet = arrivals.next().unwrap();
                free = free.max(at);
                if arrives(state, packet, &queue) {
                    queue.push_back(*packet);
                }
            }
            _ => {
                if let Some(packet) = departs(state, &mut queue, free) {
                    free += packet.bytes * 1_000;
                    sent.push(packet.number);
                }
            }
        }
    }
}

/// `codel_queue_t::deque` of RFC 8289, sections 5.4 to 5.6.
#[derive(Default)]
struct CodelOracle {
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

const INTERVAL: u64 = 100_000_000;

impl CodelOracle {
    fn dodequeue(&mut self, queue: &mut VecDeque<Packet>, now: u64) -> (Option<Packet>, bool) {
        let Some(packet) = queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let bytes: u64 = queue.iter().map(|packet| packet.bytes).sum();
        if now - packet.at < 5_000_000 || bytes <= MTU {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            return (Some(packet), true);
        }
        (Some(packet), false)
    }

    fn deque(&mut self, queue: &mut VecDeque<Packet>, now: u64) -> Option<Packet> {
        let control_law = |t: u64, count: u32| t + (INTERVAL as f64 / f64::from(count).sqrt()) as u64;
        let (mut packet, mut ok_to_drop) = self.dodequeue(queue, now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(queue, now);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            (packet, _) = self.dodequeue(queue, now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now as i64 - (self.drop_next as i64) < 16 * INTERVAL as i64 {
                self.count = delta;
            }
            self.drop_next = control_law(now, self.count);
            self.lastcount = self.count;
        }
        packet
    }
}

/// The drop law of RFC 8033, appendix A, with its updates at their moments. Probabilities are whole numbers of 2^-32: a
/// rounding that is not the same is another divisor soon.
#[derive(Default)]
struct PieOracle {
    drop_prob: f64,
    current_qdelay: f64,
    qdelay_old: f64,
    accu_prob: f64,
    burst_allowance: f64,
    /// Moment of the next update.
    timer: Option<u64>,
}

const CERTAIN: f64 = 4_294_967_296.0;

impl PieOracle {
    fn calculate_drop_prob(&mut self) {
        const QDELAY_REF: f64 = 0.015;
        let mut p =
            0.125 * (self.current_qdelay - QDELAY_REF) + 1.25 * (self.current_qdelay - self.qdelay_old);
        let drop_prob = self.drop_prob / CERTAIN;
        if drop_prob < 0.000001 {
            p /= 2048.0;
        } else if drop_prob < 0.00001 {
            p /= 512.0;
        } else if drop_prob < 0.0001 {
            p /= 128.0;
        } else if drop_prob < 0.001 {
            p /= 32.0;
        } else if drop_prob < 0.01 {
            p /= 8.0;
        } else if drop_prob < 0.1 {
            p /= 2.0;
        } else if p > 0.02 {
            p = 0.02;
        }
        self.drop_prob = (self.drop_prob + (p * CERTAIN).trunc()).clamp(0.0, CERTAIN);
        if self.current_qdelay == 0.0 && self.qdelay_old == 0.0 {
            // Times 0.98.
            self.drop_prob -= (self.drop_prob / 50.0).trunc();
        }
        self.burst_allowance = f64::max(0.0, self.burst_allowance - 0.015);
        let is_short = self.current_qdelay < QDELAY_REF / 2.0 && self.qdelay_old < QDELAY_REF / 2.0;
        if self.drop_prob == 0.0 && is_short {
            self.burst_allowance = 0.150;
        }
        self.qdelay_old = self.current_qdelay;
    }

    fn pass(&mut self, now: u64) {
        while let Some(at) = self.timer.filter(|at| *at <= now) {
            self.calculate_drop_prob();
            self.timer = Some(at + 15_000_000);
        }
    }

    /// Probability that the packet is dropped, if it is not certain.
    fn drop_early(&mut self, now: u64, queue_bytes: u64) -> Option<f64> {
        if self.timer.is_none() {
            self.timer = Some(now + 15_000_000);
            self.burst_allowance = 0.150;
        }
        self.pass(now);
        if self.burst_allowance > 1e-12 {
            return Some(0.0);
        }
        if self.qdelay_old < 0.0075 && self.drop_prob < 0.2 * CERTAIN || queue_bytes <= 2 * MTU {
            return Some(0.0);
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        if self.accu_prob < 0.85 * CERTAIN {
            Some(0.0)
        } else if self.accu_prob >= 8.5 * CERTAIN {
            None
        } else {
            Some(self.drop_prob / CERTAIN)
        }
    }
}

/// The algorithm of Floyd and Jacobson 1993, figure 2.
struct RedOracle {
    avg: f64,
    count: f64,
    q_time: Option<u64>,
}

impl RedOracle {
    /// Average when a packet comes.
    fn average(&mut self, now: u64, q: usize) {
        const WQ: f64 = 1.0 / 512.0;
        match self.q_time.take().filter(|_| q == 0) {
            Some(since) => self.avg *= (1.0 - WQ).powf(((now - since) / IDLE) as f64),
            None => self.avg += WQ * (q as f64 - self.avg),
        }
    }

    /// Probability that the packet is marked, between two for the fraction that is lost of `pb`: none above the upper threshold.
    fn probability(&mut self, threshold: &RedThreshold) -> Option<[f64; 2]> {
        let (min, max) = (f64::from(threshold.min), f64::from(threshold.max));
        self.count = if self.avg < min { -1.0 } else { self.count + 1.0 };
        if self.avg < min {
            return Some([0.0, 0.0]);
        }
        let pb = f64::from(threshold.per_mille) / 1_000.0 * (self.avg - min) / (max - min);
        (self.avg < max).then(|| {
            [pb - 2e-6, pb + 2e-6]
                .map(|pb| if self.count * pb >= 1.0 { 1.0 } else { pb / (1.0 - self.count * pb) })
        })
    }
}

/// Says what is wrong with a decision by the random number that comes next: it disagrees with all probabilities between two.
fn disagreement(is_signal: bool, mut random: Random, [low, high]: [f64; 2]) -> Option<String> {
    let share = (random.next() >> 32) as f64 / (1_u64 << 32) as f64;
    let is_right = if is_signal { share < high } else { share >= low };
    (!is_right).then(|| format!("{is_signal}, {share} of {low} to {high}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn codel_drops_what_its_pseudo_code_drops(packets in traffic()) {
        let settings = settings(Dropper::Codel);
        let all = |_: &mut _, _: &Packet, _: &VecDeque<Packet>| true;
        let due = play(&packets, &mut CodelOracle::default(), all, CodelOracle::deque);
        let found = play(&packets, &mut Codel::default(), |_, _, _| true, |codel, queue, now| {
            loop {
                let packet = queue.pop_front()?;
                let delay = Nanos(now - packet.at);
                if codel.departs(&settings, delay, &list(queue), Nanos(now)) == Decision::Keep {
                    return Some(packet);
                }
            }
        });
        prop_assert_eq!(due, found);
    }

    #[test]
    fn pie_drops_with_the_probability_of_its_pseudo_code(packets in traffic(), seed: u64) {
        let settings = settings(Dropper::Pie);
        let (mut random, mut wrong) = (Random(seed), None);
        play(&packets, &mut (PieOracle::default(), Pie::default()), |(oracle, pie), packet, queue| {
            let bytes = queue.iter().map(|packet| packet.bytes).sum();
            let due = oracle.drop_early(packet.at, bytes);
            let before = random;
            let decision = pie.arrives(&settings, &list(queue), Nanos(packet.at), &mut random);
            // Where the sum is a whole number, floating point may come out below it.
            if (pie.probability as f64 - oracle.drop_prob).abs() > 1.0 {
                wrong = Some(format!("{}, due {}", pie.probability, oracle.drop_prob));
            }
            oracle.drop_prob = pie.probability as f64;
            let is_signal = decision != Decision::Keep;
            // A number is drawn where the outcome is open.
            if before.0 != random.0 {
                let due = due.unwrap_or(1.0);
                wrong = wrong.take().or(disagreement(is_signal, before, [due - 1e-9, due + 1e-9]));
            } else if is_signal != due.is_none() {
                wrong = Some(format!("{decision:?} at {}, due {due:?}", packet.number));
            }
            if is_signal {
                oracle.accu_prob = 0.0;
            }
            !is_signal
        }, |(oracle, pie), queue, now| {
            let packet = queue.pop_front()?;
            oracle.pass(now);
            oracle.current_qdelay = if queue.is_empty() { 0.0 } else { (now - packet.at) as f64 / 1e9 };
            pie.departs(&settings, Nanos(now - packet.at), &list(queue), Nanos(now));
            Some(packet)
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn red_drops_with_the_probability_of_its_figure(packets in traffic(), seed: u64, min in 0_u32..20, width in 1_u32..40) {
        let threshold = RedThreshold { min, max: min + width, per_mille: 100 };
        let oracle = RedOracle { avg: 0.0, count: -1.0, q_time: None };
        let (mut random, mut wrong) = (Random(seed), None);
        play(&packets, &mut (oracle, Red::default()), |(oracle, red), packet, queue| {
            oracle.average(packet.at, queue.len());
            let before = random;
            let decision = red.arrives(&threshold, Nanos(IDLE), queue.len() as u32, Nanos(packet.at), &mut random);
            let found = red.average as f64 / 65_536.0;
            // A step loses a unit of the fraction or two. Which side of a threshold they leave it on is for them to say.
            if (found - oracle.avg).abs() > 4.0 / 65_536.0 {
                wrong = Some(format!("average {found}, due {}", oracle.avg));
            }
            oracle.avg = found;
            let due = oracle.probability(&threshold);
            let is_signal = decision != Decision::Keep;
            let outcome = match due {
                Some([0.0, 0.0]) | None => (before.0 != random.0 || is_signal != due.is_none())
                    .then(|| format!("{decision:?}, due {due:?}")),
                Some(due) => disagreement(is_signal, before, due),
            };
            wrong = wrong.take().or(outcome);
            if is_signal {
                oracle.count = 0.0;
            }
            !is_signal
        }, |(oracle, red), queue, now| {
            let packet = queue.pop_front()?;
            if queue.is_empty() {
                oracle.q_time = Some(now);
            }
            red.departs(&list(queue), Nanos(now));
            Some(packet)
        });
        prop_assert_eq!(wrong, None);
    }
}

/// The distance of drops at a constant average is uniform between 1 and 1/p, in the mean half of that (section 5 of the paper).
#[test]
fn red_spreads_its_drops() {
    let threshold = RedThreshold { min: 10, max: 30, per_mille: 100 };
    let (mut red, mut random) = (Red::default(), Random(1));
    let signals: Vec<usize> = (0..200_000)
        .filter(|_| {
            red.average = 20 << 16;
            red.arrives(&threshold, Nanos(IDLE), 20, Nanos(0), &mut random) == Decision::Signal
        })
        .collect();
    // One in twenty by itself.
    let distances: Vec<usize> = signals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(distances.iter().all(|distance| (1..=20).contains(distance)));
    let mean = distances.iter().sum::<usize>() as f64 / distances.len() as f64;
    assert!((9.5..10.6).contains(&mean), "{mean}");
}

/// A queue below its thresholds, or whose delay is below its target, loses nothing, whatever comes.
#[test]
fn short_queues_lose_nothing() {
    for drop in [Dropper::Tail, Dropper::Red, Dropper::Codel, Dropper::Pie] {
        let settings = settings(drop);
        let (mut aqm, mut random) = (Aqm::new(&settings), Random(3));
        for n in 0..100_000_u64 {
            let now = Nanos(n * 1_000_000);
            let mut list = List::EMPTY;
            let kept = aqm.arrives(&settings, &list, policy::model::Colour::Red, now, &mut random);
            list.packets = 2;
            list.bytes = 2_000;
            let sent = aqm.departs(&settings, now, &list, now + Nanos(4_999_999));
            assert_eq!((kept, sent), (Decision::Keep, Decision::Keep), "{drop:?}");
        }
    }
}
