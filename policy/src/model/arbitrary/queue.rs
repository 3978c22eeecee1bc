//! Random queues and shapes.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use wire::link::MOST_RATE;
use wire::{BitRate, Bytes, Nanos};

use super::{dscp, meter_scope, name, names, overhead};
use crate::model::{
    Dropper, Fairness, Isolation, Overhead, Phb, Queue, RedThreshold, Scheduler, Shape, Template, TreeWorkers,
};

/// Any queue.
pub(crate) fn queue() -> impl Strategy<Value = Queue> {
    let place = (names(), names(), option::of(name()), option::of(Just(Template::Diffserv)), workers());
    let packets = (names(), vec(phb(), 0..3), meter_scope(), 1..=Queue::MOST_INSTANCES);
    (name(), place, packets, turn(), shaper(), leaf()).prop_map(
        |(name, place, packets, turn, shaper, leaf)| {
            let (on, from, parent, template, workers) = place;
            let (classes, phbs, per, instances) = packets;
            let (scheduler, quantum, flows, isolate, priority, weight) = turn;
            let (guarantee, rate, burst, overhead) = shaper;
            let (limit, limit_bytes, drop, red, target, interval, (step, coupling, ecn)) = leaf;
            Queue {
                name,
                on,
                from,
                parent,
                template,
                workers,
                classes,
                phbs,
                per,
                instances,
                scheduler,
                quantum,
                flows: 1 << flows,
                isolate,
                priority,
                weight,
                guarantee,
                rate,
                burst,
                overhead,
                limit,
                limit_bytes,
                drop,
                red,
                target,
                interval,
                step,
                coupling,
                ecn,
            }
        },
    )
}

/// Keys of the turn that a node takes.
fn turn() -> impl Strategy<Value = (Option<Scheduler>, Option<Bytes>, u32, Isolation, u8, u32)> {
    let all = [Scheduler::Fifo, Scheduler::Fq, Scheduler::Strict, Scheduler::Drr, Scheduler::Wfq];
    let quantum = (Queue::LEAST_QUANTUM.0..=Queue::MOST_QUANTUM.0).prop_map(Bytes);
    let isolate = select(&[Isolation::Flow, Isolation::Source, Isolation::Destination][..]);
    let flows = 0..=Queue::MOST_FLOWS.ilog2();
    let share = (0..Queue::PRIORITIES, 1..=Queue::MOST_WEIGHT);
    (option::of(select(all.to_vec())), option::of(quantum), flows, isolate, share).prop_map(
        |(scheduler, quantum, flows, isolate, (priority, weight))| {
            (scheduler, quantum, flows, isolate, priority, weight)
        },
    )
}

/// Keys of shapers.
fn shaper() -> impl Strategy<Value = (Option<BitRate>, Option<BitRate>, Option<Bytes>, Option<Overhead>)> {
    (option::of(rate()), option::of(rate()), option::of(size()), option::of(overhead()))
}

type Leaf = (
    Option<u32>,
    Option<Bytes>,
    Dropper,
    Vec<RedThreshold>,
    Option<Nanos>,
    Option<Nanos>,
    (Option<Nanos>, u32, bool),
);

/// Keys of a leaf.
fn leaf() -> impl Strategy<Value = Leaf> {
    let limit = option::of(1..=Queue::MOST_LIMIT);
    let drop = select(&[Dropper::Tail, Dropper::Red, Dropper::Codel, Dropper::Pie, Dropper::DualPi2][..]);
    let red = (any::<u32>(), 1..u32::MAX, 1..=1_000_u16).prop_map(|(min, width, per_mille)| {
        let min = min.min(u32::MAX - width);
        RedThreshold { min, max: min + width, per_mille }
    });
    let delay = || option::of((1..=Queue::MOST_DELAY.0).prop_map(Nanos));
    let dual = (delay(), 1..=Queue::MOST_COUPLING, any::<bool>());
    (limit, option::of(size()), drop, vec(red, 0..4), delay(), delay(), dual)
}

/// Any shape.
pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    let rates = prop_oneof![
        rate().prop_map(|rate| (Some(rate), Some(rate))),
        (rate(), rate()).prop_map(|(down, up)| (Some(down), Some(up))),
        rate().prop_map(|down| (Some(down), None)),
        rate().prop_map(|up| (None, Some(up))),
    ];
    let per = select(&[Fairness::Host, Fairness::Flow][..]);
    (name(), rates, per, option::of(overhead()), workers()).prop_map(
        |(interface, (down, up), per, overhead, workers)| Shape {
            interface,
            down,
            up,
            per,
            overhead,
            workers,
        },
    )
}

fn workers() -> impl Strategy<Value = TreeWorkers> {
    select(&[TreeWorkers::One, TreeWorkers::Divided][..])
}

fn rate() -> impl Strategy<Value = BitRate> {
    (1..=MOST_RATE.0).prop_map(BitRate)
}

fn size() -> impl Strategy<Value = Bytes> {
    (0..i64::MAX as u64).prop_map(Bytes)
}

fn phb() -> impl Strategy<Value = Phb> {
    prop_oneof![(1..=4_u8).prop_map(Phb::Af), dscp().prop_map(Phb::of)]
}
