//! Fair queueing by flow and by host: shares, whatever the numbers of flows, and the place of thin flows.

use std::collections::HashSet;

use policy::model::{Dropper, Isolation, Overhead, RedThreshold};
use proptest::prelude::*;
use wire::{Bytes, Nanos, Pool};

use super::super::dropper::{Decision, Random};
use super::super::kind::Kind;
use super::super::packets::{Packets, Waiting};
use super::{AHEAD, FlowHash, Fq, WAYS};
use crate::tables::{FqSettings, LeafSettings};

const QUANTUM: u32 = 1_514;
const LONGEST: u32 = 1_500;

/// A leaf without a dropper, and the packets of its flows: each packet bears the number of its flow.
struct Leaf {
    fq: Fq,
    settings: FqSettings,
    kind: Kind,
    leaf: LeafSettings,
    packets: Packets,
    pool: Pool,
    hashes: Vec<FlowHash>,
}

impl Leaf {
    fn new(isolate: Isolation, flows: u32, hashes: Vec<FlowHash>) -> Leaf {
        let settings = FqSettings { flows, isolate, quantum: QUANTUM };
        let leaf = LeafSettings {
            fq: Some(settings),
            limit: 10_000,
            limit_bytes: u64::MAX,
            drop: Dropper::Tail,
            red: [RedThreshold { min: 1, max: 2, per_mille: 1 }; 3],
            idle: Nanos(1),
            target: Nanos(1),
            interval: Nanos(1),
            step: Nanos(1),
            coupling: 2,
            ecn: false,
            longest: Bytes(LONGEST.into()),
        };
        let room = 2 * hashes.len() as u32 + 2;
        let (packets, pool) = (Packets::new(room).unwrap(), Pool::new(room, 2_048).unwrap());
        let kind = Kind::counting(Overhead::Fixed(Bytes(0)));
        Leaf { fq: Fq::new(&settings, &leaf).unwrap(), settings, kind, leaf, packets, pool, hashes }
    }

    fn push(&mut self, flow: usize, length: u32) {
        let mut frame = self.pool.take().unwrap();
        frame.meta.number = flow as u32;
        let packet = Waiting { frame, length, since: Nanos(0) };
        assert!(self.fq.push(&self.settings, self.hashes[flow], packet, &mut self.packets).is_ok());
    }

    /// Flow and length of the next packet.
    fn pop(&mut self) -> Option<(usize, u32)> {
        let (packet, decision) =
            self.fq.pop(&self.settings, &self.kind, &self.leaf, Nanos(0), &mut self.packets)?;
        assert_eq!(decision, Decision::Keep);
        let flow = packet.frame.meta.number as usize;
        self.pool.put(packet.frame);
        Some((flow, packet.length))
    }
}

/// Hashes of flows of hosts, each of so many, and the host of each. No two flows have the same, and no more are of one set of `queues` than
/// it has room for: those would share one.
fn hashes(counts: &[usize], queues: usize, seed: u64) -> (Vec<FlowHash>, Vec<usize>) {
    let mut random = Random(seed);
    let mut all = (Vec::new(), Vec::new());
    let mut taken = vec![0; queues / WAYS];
    let mut known = HashSet::new();
    for (number, count) in counts.iter().enumerate() {
        let host = random.next() as u32;
        for _ in 0..*count {
            let flow = loop {
                let flow = random.next() as u32;
                let set = flow as usize % queues / WAYS;
                if taken[set] < WAYS && known.insert(flow) {
                    taken[set] += 1;
                    break flow;
                }
            };
            all.0.push(FlowHash { flow, host });
            all.1.push(number);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Hosts whose flows all have packets share evenly, whatever the numbers of their flows and the sizes of packets, and so do the
    /// flows of each: no two differ by more than the turns that deficit round robin allows.
    #[test]
    fn hosts_share_evenly_whatever_their_flows(
        counts in prop::collection::vec(prop_oneof![3 => 1_usize..10, 1 => 50_usize..300], 1..24),
        seed: u64,
    ) {
        let (all, hosts) = hashes(&counts, 16_384, seed);
        let mut leaf = Leaf::new(Isolation::Source, 16_384, all);
        let mut random = Random(!seed);
        let mut length = || 40 + (random.next() % u64::from(LONGEST - 39)) as u32;
        (0..hosts.len()).for_each(|flow| leaf.push(flow, length()));
        let (mut by_host, mut by_flow) = (vec![0_i64; counts.len()], vec![0_i64; hosts.len()]);
        for _ in 0..10_000 {
            let (flow, bytes) = leaf.pop().unwrap();
            by_host[hosts[flow]] += i64::from(bytes);
            by_flow[flow] += i64::from(bytes);
            leaf.push(flow, length());
        }
        let spread = |sums: &[i64]| sums.iter().max().unwrap() - sums.iter().min().unwrap();
        let turn = i64::from(QUANTUM + LONGEST);
        prop_assert!(spread(&by_host) <= (AHEAD + 2) * turn, "{by_host:?}");
        for host in 0..counts.len() {
            let flows: Vec<i64> =
                by_flow.iter().zip(&hosts).filter(|(_, of)| **of == host).map(|(sum, _)| *sum).collect();
            prop_assert!(spread(&flows) <= 2 * turn, "{flows:?}");
        }
    }

    /// Flows that share by themselves do so whatever their hosts.
    #[test]
    fn flows_share_evenly_without_hosts(count in 1_usize..600, seed: u64) {
        let (all, _) = hashes(&[count], 4_096, seed);
        let mut leaf = Leaf::new(Isolation::Flow, 4_096, all);
        let mut random = Random(!seed);
        let mut length = || 40 + (random.next() % u64::from(LONGEST - 39)) as u32;
        (0..count).for_each(|flow| leaf.push(flow, length()));
        let mut sums = vec![0_i64; count];
        for _ in 0..10_000 {
            let (flow, bytes) = leaf.pop().unwrap();
            sums[flow] += i64::from(bytes);
            leaf.push(flow, length());
        }
        let spread = sums.iter().max().unwrap() - sums.iter().min().unwrap();
        prop_assert!(spread <= 2 * i64::from(QUANTUM + LONGEST), "{sums:?}");
    }

    /// Shares are of bytes as the leaf counts them: a flow of short packets gets fewer of its own than one of long ones.
    #[test]
    fn flows_share_what_their_overhead_makes_of_them(kind in 0_usize..3, short in 20_u32..200, seed: u64) {
        let overhead = [Overhead::ETHERNET, Overhead::Atm(Bytes(44)), Overhead::Fixed(Bytes(100))][kind];
        let (all, _) = hashes(&[1, 1], 64, seed);
        let mut leaf = Leaf::new(Isolation::Source, 64, all);
        leaf.kind = Kind::counting(overhead);
        let lengths = [short, LONGEST];
        let mut counted = [0_u64; 2];
        (0..2).for_each(|flow| leaf.push(flow, lengths[flow]));
        for _ in 0..10_000 {
            let (flow, length) = leaf.pop().unwrap();
            counted[flow] += overhead.count(length.into());
            leaf.push(flow, lengths[flow]);
        }
        let turn = 2 * (u64::from(QUANTUM) + overhead.count(LONGEST.into()));
        prop_assert!(counted[0].abs_diff(counted[1]) <= turn, "{counted:?}");
    }

    /// Packets of a flow keep their order, and all come out.
    #[test]
    fn nothing_is_lost_or_reordered(
        steps in prop::collection::vec((0_usize..40, 40_u32..1_500, any::<bool>()), 1..800),
        seed: u64,
    ) {
        let (all, _) = hashes(&[1, 3, 36], 1 << 16, seed);
        // Fewer queues than flows.
        let mut leaf = Leaf::new(if seed % 2 == 0 { Isolation::Source } else { Isolation::Flow }, 16, all);
        let mut due = vec![std::collections::VecDeque::new(); 40];
        let mut waiting = 0;
        for (flow, length, is_pop) in steps {
            if is_pop || waiting == 80 {
                let found = leaf.pop();
                prop_assert_eq!(found.is_some(), waiting > 0);
                if let Some((flow, length)) = found {
                    prop_assert_eq!(due[flow].pop_front(), Some(length));
                    waiting -= 1;
                }
                continue;
            }
            leaf.push(flow, length);
            due[flow].push_back(length);
            waiting += 1;
        }
        while let Some((flow, length)) = leaf.pop() {
            prop_assert_eq!(due[flow].pop_front(), Some(length));
            waiting -= 1;
        }
        prop_assert_eq!(waiting, 0);
    }
}

/// A thin flow passes at once, even that of a host with a hundred thick ones; but no host gains by starting flows all the time.
#[test]
fn thin_flows_pass_and_floods_of_new_flows_do_not() {
    let (mut all, mut hosts) = hashes(&[100, 1, 1], 1 << 16, 7);
    // Host 0 has a thin flow, too.
    all.push(FlowHash { flow: 12_345, host: all[0].host });
    hosts.push(0);
    let thin = all.len() - 1;
    let mut leaf = Leaf::new(Isolation::Source, 4_096, all.clone());
    (0..102).for_each(|flow| leaf.push(flow, 1_000));
    for n in 0..5_000 {
        let (flow, _) = leaf.pop().unwrap();
        leaf.push(flow, 1_000);
        // It has been idle for a turn of its host's flows: some 150 packets, and as many of each of the other hosts.
        if n > 500 && n % 800 == 0 {
            leaf.push(thin, 100);
            assert_eq!(leaf.pop(), Some((thin, 100)), "at once");
        }
    }
    // Host 0 starts another flow for each packet; host 1 has one thick flow.
    let mut random = Random(3);
    let (mut of_flood, mut of_thick) = (0_u64, 0);
    let mut leaf = Leaf::new(Isolation::Source, 4_096, all);
    leaf.push(100, 1_000);
    for _ in 0..10 {
        leaf.hashes[0].flow = random.next() as u32;
        leaf.push(0, 1_000);
    }
    for _ in 0..5_000 {
        let (flow, bytes) = leaf.pop().unwrap();
        if flow == 100 {
            of_thick += u64::from(bytes);
        } else {
            of_flood += u64::from(bytes);
            leaf.hashes[0].flow = random.next() as u32;
        }
        leaf.push(flow, 1_000);
    }
    assert!(of_flood.abs_diff(of_thick) < 20_000, "{of_flood} {of_thick}");
}

/// As long as a set has room no two flows share a queue: as many flows as an eighth of the queues, by their hashes all in few sets.
#[test]
fn flows_and_hosts_of_one_hash_have_queues_of_their_own() {
    let all: Vec<FlowHash> =
        (0..WAYS as u32).map(|n| FlowHash { flow: 64 | n << 10, host: 128 | n << 10 }).collect();
    let mut leaf = Leaf::new(Isolation::Source, 1_024, all);
    (0..WAYS).for_each(|flow| leaf.push(flow, 1_000));
    let mut counts = [0; WAYS];
    for _ in 0..800 {
        let (flow, bytes) = leaf.pop().unwrap();
        counts[flow] += 1;
        leaf.push(flow, bytes);
    }
    assert!(counts.iter().all(|count| (96..=104).contains(count)), "{counts:?}");
}
