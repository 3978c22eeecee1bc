//! Queues of a shape: three classes of traffic each way, after those of Linux's sch_cake with `diffserv3`.
//!
//! Voice may have a quarter of the rate before all others, and bulk a sixteenth, so that it does not starve. Past that they share
//! with best effort by weight, 4 to 16 to 1: who marks all his packets as voice gains little.

use wire::{BitRate, Bytes, Dscp, Nanos};

use crate::model::{Dropper, Fairness, Isolation, Overhead, Phb, Queue, Scheduler, Shape};

/// Times of CoDel, of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Target, if a packet does not take longer, in nanoseconds.
    pub(crate) target: u64,
    /// Interval, in nanoseconds.
    pub(crate) interval: u64,
}

impl Times {
    /// Values for most paths (RFC 8289, sections 4.2 and 4.3).
    pub(crate) const USUAL: Times = Times { target: 5_000_000, interval: 100_000_000 };
}

/// Bytes of a turn of weight 1. A turn of best effort, of 16 times as many, holds up the others by some three full frames.
pub(crate) const QUANTUM: Bytes = Bytes(256);

/// Class of traffic of a shape.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) phbs: &'static [Phb],
    pub(crate) weight: u32,
    /// Part of the rate that delays are computed for: the rate by this power of two.
    pub(crate) shift: u32,
    /// True if that part is guaranteed.
    pub(crate) is_guaranteed: bool,
}

pub(crate) const CLASSES: [Class; 3] = [
    Class {
        name: "voice",
        // 44 is voice-admit (RFC 5865), 4 the old "low delay" of the type of service (RFC 1349).
        phbs: &[Phb::Ef, point(44), Phb::Cs(6), Phb::Cs(7), point(4)],
        weight: 4,
        shift: 2,
        is_guaranteed: true,
    },
    Class { name: "best-effort", phbs: &[], weight: 16, shift: 0, is_guaranteed: false },
    Class { name: "bulk", phbs: &[Phb::Cs(1), Phb::Le], weight: 1, shift: 4, is_guaranteed: true },
];

/// Returns the trees of a shape whose interface has packets of `mtu` bytes at most.
pub(super) fn trees(shape: &Shape, mtu: u16) -> Vec<Queue> {
    let longest = shape.overhead.unwrap_or(Overhead::ETHERNET).count(mtu.into());
    let tree = |root: Queue, isolate: Isolation, rate: BitRate| {
        let isolate = if shape.per == Fairness::Host { isolate } else { Isolation::Flow };
        let leaves = CLASSES.iter().map(|class| leaf(&root.name, class, rate, longest, Times::USUAL));
        let leaves: Vec<Queue> = leaves.map(|leaf| Queue { isolate, ..leaf }).collect();
        let (overhead, workers) = (shape.overhead, shape.workers);
        let root = Queue { rate: Some(rate), overhead, quantum: Some(QUANTUM), workers, ..root };
        [vec![root], leaves].concat()
    };
    let interface = &shape.interface;
    let on = Queue { on: vec![interface.clone()], ..Queue::new(&format!("{interface}-up")) };
    let from = Queue { from: vec![interface.clone()], ..Queue::new(&format!("{interface}-down")) };
    let up = shape.up.map(|rate| tree(on, Isolation::Source, rate));
    let down = shape.down.map(|rate| tree(from, Isolation::Destination, rate));
    [up, down].into_iter().flatten().flatten().collect()
}

/// Returns the queue of a class in `root`, whose packets have `longest` bytes at most.
pub(crate) fn leaf(root: &str, class: &Class, BitRate(rate): BitRate, longest: u64, times: Times) -> Queue {
    let own = rate >> class.shift;
    let time = nanos(longest, own);
    // As in sch_cake: a packet and a half must not be a standing queue, and the interval grows with the target.
    let target = (time + time / 2).max(times.target).min(Queue::MOST_DELAY.0);
    let longer = target - times.target.min(target);
    let interval = times.interval.saturating_add(longer).max(2 * target).min(Queue::MOST_DELAY.0);
    // Four intervals, and room for the bursts of slow links.
    let packets =
        u128::from(rate) * u128::from(4 * Times::USUAL.interval) / (u128::from(longest) * 8 * 1_000_000_000);
    Queue {
        parent: Some(root.to_owned()),
        phbs: class.phbs.to_vec(),
        weight: class.weight,
        guarantee: Some(BitRate(own)).filter(|own| class.is_guaranteed && own.0 > 0),
        scheduler: Some(Scheduler::Fq),
        // At low rates short packets pass long ones of other flows.
        quantum: Some(Bytes((own >> 15).clamp(300, 1_514))),
        limit: Some(packets.clamp(1_024, 10_240) as u32),
        drop: Dropper::Codel,
        target: Some(Nanos(target)),
        interval: Some(Nanos(interval)),
        ecn: true,
        ..Queue::new(&format!("{root}-{}", class.name))
    }
}

/// Time that so many bytes take at a rate, in nanoseconds, or a time that is longer than any delay.
fn nanos(bytes: u64, rate: u64) -> u64 {
    let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
    nanos.min(Queue::MOST_DELAY.0.into()) as u64
}

const fn point(value: u8) -> Phb {
    match Dscp::new(value) {
        Some(dscp) => Phb::of(dscp),
        None => Phb::Cs(0),
    }
}

#[cfg(test)]
mod tests {
    use wire::{BitRate, Bytes, Nanos};

    use super::trees;
    use crate::expand::queues;
    use crate::model::{Fairness, Isolation, Queue, Shape};

    fn shape(down: u64, up: u64) -> Shape {
        Shape { down: Some(BitRate(down)), up: Some(BitRate(up)), ..Shape::new("wan") }
    }

    #[test]
    fn a_shape_has_three_queues_each_way() {
        let all = trees(&shape(100_000_000, 20_000_000), 1_500);
        let names: Vec<&str> = all.iter().map(|queue| queue.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "wan-up",
                "wan-up-voice",
                "wan-up-best-effort",
                "wan-up-bulk",
                "wan-down",
                "wan-down-voice",
                "wan-down-best-effort",
                "wan-down-bulk",
            ]
        );
        assert_eq!((&all[0].on[..], all[0].rate), (&["wan".to_owned()][..], Some(BitRate(20_000_000))));
        assert_eq!((&all[4].from[..], all[4].rate), (&["wan".to_owned()][..], Some(BitRate(100_000_000))));
        assert_eq!(all[1].guarantee, Some(BitRate(5_000_000)));
        assert_eq!(all[3].guarantee, Some(BitRate(1_250_000)));
        assert_eq!((all[2].isolate, all[6].isolate), (Isolation::Source, Isolation::Destination));
        let voice = all[1].phbs.iter().fold(0_u64, |points, phb| points | phb.code_points());
        assert_eq!(voice, 1 << 46 | 1 << 44 | 1 << 48 | 1 << 56 | 1 << 4);
        let flows = trees(&Shape { per: Fairness::Flow, ..shape(1, 1) }, 1_500);
        assert!(flows.iter().all(|queue| queue.isolate == Isolation::Flow));
    }

    /// Targets and intervals, in microseconds, of voice, best effort and bulk.
    fn delays(rate: u64) -> Vec<(u64, u64)> {
        let micros = |time: Option<Nanos>| time.map_or(0, |time| time.0 / 1_000);
        let leaves = trees(&shape(rate, rate), 1_476).into_iter().skip(1).take(3);
        leaves.map(|leaf| (micros(leaf.target), micros(leaf.interval))).collect()
    }

    /// Of packets of 1,514 bytes, as sch_cake computes them.
    #[test]
    fn targets_are_those_of_cake() {
        assert_eq!(delays(100_000_000), [(5_000, 100_000); 3]);
        assert_eq!(delays(20_000_000), [(5_000, 100_000), (5_000, 100_000), (14_534, 109_534)]);
        assert_eq!(delays(1_000_000), [(72_672, 167_672), (18_168, 113_168), (290_688, 581_376)]);
    }

    #[test]
    fn the_slowest_and_the_fastest_shapes_are_sound() {
        for rate in [1_u64, 15, 1_000, 10_000_000_000_000] {
            let text = format!(
                "[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[shape.wan]\nrate = \"{rate} bit/s\"\n"
            );
            let checked = crate::check(&text, "test");
            assert_eq!(checked.diagnostics, [], "{rate}");
            let all = queues(&checked.policy.expect("a sound policy"));
            // All can be written in a file.
            let written = crate::Policy { queues: all.clone(), ..crate::Policy::default() };
            assert_eq!(crate::parse(&written.to_string(), "test").policy, Some(written), "{rate}");
            assert!(
                all.iter()
                    .all(|queue| queue.quantum >= Some(Bytes(256)) && queue.limit <= Some(Queue::MOST_LIMIT))
            );
        }
    }
}
