//! Packets through a gateway with queues: what tests of schedulers have in common.
// Not every test needs all of it, and nobody else can use it.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};

use dataplane::egress::TreeSide;
use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Tables, Verdict};
use policy::Diagnostic;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

pub const START: u64 = 1_700_000_000_000_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// Departures and drops, by number of the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number, moment since the start, DS field, bytes of the IP packet.
    pub departed: Vec<(u32, u64, u8, usize)>,
    pub dropped: Vec<(u32, Reason)>,
}

impl Witness for Outcome {
    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        assert_eq!(verdict, Some(Verdict::Forwarded));
        self.departed.push((frame.meta.number, at.0 - START, frame.bytes()[15], frame.len() - 14));
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        let Verdict::Dropped(reason) = verdict else { panic!("{verdict}") };
        self.dropped.push((frame.meta.number, reason));
    }
}

/// Packet to send: time since the start, host, source port, DS field, bytes of the IP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub at: u64,
    pub host: u8,
    pub sport: u16,
    pub field: u8,
    pub bytes: usize,
}

impl Packet {
    pub fn of(at: u64, dscp: u8, bytes: usize) -> Packet {
        Packet { at, host: 10, sport: 1_000, field: dscp << 2, bytes }
    }

    pub fn frame(&self) -> Vec<u8> {
        build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
            .ipv4([192, 168, 1, self.host].into(), [203, 0, 113, 9].into())
            .ds_field(self.field)
            .udp(self.sport, 4_000)
            .payload(&vec![0; self.bytes - 28])
            .to_vec()
    }
}

pub fn tables(queues: &str) -> Tables {
    compiled(queues).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}

/// The tables of a policy with these queues, if it is one.
pub fn compiled(queues: &str) -> Result<Tables, Vec<Diagnostic>> {
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
         [default]\n\"lan > wan\" = \"accept\"\n{queues}"
    );
    let checked = policy::check(&text, "queues.toml");
    let policy = checked.policy.ok_or(checked.diagnostics)?;
    Ok(Tables::compile(&policy, 1).expect("tables"))
}

pub fn play(tables: Tables, way: Way, packets: &[Packet], breaks: &[u64]) -> (Outcome, Replay) {
    let mut replay = Replay::new(tables, Nanos(START), way).expect("memory");
    let mut outcome = Outcome::default();
    let mut breaks = breaks.iter().peekable();
    for (number, packet) in (0..).zip(packets) {
        while let Some(at) = breaks.next_if(|at| **at <= packet.at) {
            replay.advance(Nanos(START + at), &mut outcome);
            assert_waiting(&replay, &outcome, &packets[..number as usize]);
        }
        replay.receive(PortId(0), Nanos(START + packet.at), number, &packet.frame(), &mut outcome);
    }
    replay.finish(&mut outcome);
    let counters = &replay.shard.counters;
    assert!(counters.are_conserved() && counters.queued() == 0, "{counters:?}");
    for tree in replay.shard.egress.trees() {
        for (name, counts) in tree.leaves() {
            assert_eq!((counts.packets, counts.bytes), (0, 0), "{name} is empty");
        }
    }
    assert_eq!(outcome.departed.len() + outcome.dropped.len(), packets.len());
    (outcome, replay)
}

/// Checks what a tree counts as waiting against packets that have come and not gone. Behind a tree of incoming packets others may wait.
fn assert_waiting(replay: &Replay, outcome: &Outcome, packets: &[Packet]) {
    let departed = outcome.departed.iter().map(|(number, ..)| *number);
    let gone: HashSet<u32> = departed.chain(outcome.dropped.iter().map(|(number, _)| *number)).collect();
    let stays = (0..).zip(packets).filter(|(number, _)| !gone.contains(number)).map(|(_, packet)| packet);
    let due = stays.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + packet.bytes as u64));
    for tree in replay.shard.egress.trees() {
        let counted = tree
            .leaves()
            .fold((0, 0), |(packets, bytes), (_, counts)| (packets + counts.packets, bytes + counts.bytes));
        match tree.side {
            TreeSide::On => assert_eq!(counted, due),
            TreeSide::From => assert!(counted <= due, "{counted:?} of {due:?}"),
        }
    }
}

pub fn departures(queues: &str, packets: &[Packet]) -> Outcome {
    play(tables(queues), Way::Run, packets, &[]).0
}

/// As many packets of each code point at the start, by turns, as there are; `bytes` gives the length of each.
pub fn backlog(points: &[u8], count: usize, bytes: impl Fn(usize, u8) -> usize) -> Vec<Packet> {
    (0..count)
        .flat_map(|n| points.iter().map(move |point| (n, *point)))
        .map(|(n, point)| Packet::of(0, point, bytes(n, point)))
        .collect()
}

/// Bytes sent by code point until a moment.
pub fn sent_until(outcome: &Outcome, until: u64) -> BTreeMap<u8, u64> {
    let mut sums = BTreeMap::new();
    for (_, at, field, bytes) in &outcome.departed {
        if *at < until {
            *sums.entry(field >> 2).or_insert(0) += *bytes as u64;
        }
    }
    sums
}

/// Text of a random tree.
pub fn trees() -> impl Strategy<Value = String> {
    let scheduler = prop::sample::select(vec!["drr", "wfq", "strict"]);
    let drop = prop::sample::select(vec!["tail", "red", "codel", "pie", "dualpi2"]);
    let leaf = (prop::option::of(100_u64..20_000), any::<bool>(), drop, 1_u32..300, 1_u8..8, 0_u8..3);
    let rate = prop::option::of(1_000_u64..50_000);
    (rate, prop::collection::vec(leaf, 3), scheduler, prop::option::of(1_000_u64..40_000), any::<bool>(), any::<bool>()).prop_map(
        |(rate, leaves, scheduler, port, has_subscribers, is_incoming)| {
            let rated = |rate: Option<u64>| rate.map_or(String::new(), |rate| format!("rate = \"{rate} kbit/s\"\n"));
            let side = if is_incoming { "from = \"lan\"" } else { "on = \"wan\"" };
            let mut text = format!("[[queue]]\nname = \"root\"\n{side}\n{}", rated(rate));
            let mut parent = "root";
            if has_subscribers {
                text += "[[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = 2\n";
                parent = "subscriber";
            }
            text += &format!("[[queue]]\nname = \"inner\"\nin = \"{parent}\"\nscheduler = \"{scheduler}\"\n{}", rated(port));
            let most = rate.unwrap_or(u64::MAX).min(port.unwrap_or(u64::MAX));
            for ((name, phb), (rate, is_fair, drop, limit, weight, priority)) in [("a", "phb = \"ef\"\n"), ("b", "phb = \"af1\"\n"), ("c", "")].into_iter().zip(leaves) {
                text += &format!("[[queue]]\nname = \"{name}\"\nin = \"inner\"\n{phb}limit = {limit}\ndrop = \"{drop}\"\n{}", rated(rate.filter(|rate| *rate <= most)));
                if scheduler != "strict" {
                    text += &format!("weight = {weight}\npriority = {priority}\n");
                }
                if scheduler == "drr" && most > 1_000 {
                    text += &format!("guarantee = \"{} kbit/s\"\n", (most / 4).min(rate.unwrap_or(u64::MAX)).min(5_000));
                }
                if drop == "red" {
                    text += "red = [\"20-60 10%\", \"10-30 30%\", \"1-20 100%\"]\n";
                }
                if is_fair && drop != "dualpi2" {
                    text += "scheduler = \"fq\"\nflows = 16\n";
                }
            }
            text
        },
    )
}

pub fn traffic() -> impl Strategy<Value = Vec<Packet>> {
    let gap = prop_oneof![3 => Just(0_u64), 5 => 1_u64..200_000, 1 => 1_000_000_u64..500_000_000];
    let packet =
        (gap, 0_u8..4, 0_u16..5, prop::sample::select(vec![0_u8, 2, 184, 40, 48, 57]), 28_usize..1_500);
    prop::collection::vec(packet, 1..400).prop_map(|packets| {
        let mut now = 0;
        packets
            .into_iter()
            .map(|(gap, host, sport, field, bytes)| {
                now += gap;
                Packet { at: now, host: 10 + host, sport, field, bytes }
            })
            .collect()
    })
}
