//! Trees of queues that one of several workers serves: departures are those of a replay, to the nanosecond, whichever worker a
//! packet comes to, and in whatever order the workers hand packets off.
//!
//! Exact where the order of arrivals is determined, that is where no two packets come at one moment, and where what is handed off
//! arrives before the scheduler's time has passed it. A live gateway is late by the time of a handoff.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use dataplane::egress::{Handoff, Next};
use dataplane::flow::{Member, SteeringTable};
use dataplane::handoff::{arrived, decided, receiver};
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::reload::ReloadPlan;
use dataplane::replay::{SEED, Way, Witness};
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::tables::LOCAL;
use dataplane::{Pipeline, Reason, Replay, Shard, Tables, Verdict};
use tally::NoTally;
use wire::build;
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{Batch, Frame, Nanos, Pool, PortId};

const START: u64 = 1_700_000_000_000_000_000;

const LAN: u16 = 0;
const DMZ: u16 = 1;

/// Packet: time since the start, ingress, source and destination, source port, DS field, bytes of the IP packet.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at: u64,
    ingress: u16,
    source: [u8; 4],
    destination: [u8; 4],
    sport: u16,
    field: u8,
    bytes: usize,
}

impl Packet {
    fn frame(&self) -> Vec<u8> {
        build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, self.ingress as u8]))
            .ipv4(self.source.into(), self.destination.into())
            .ds_field(self.field)
            .udp(self.sport, 4_000)
            .payload(&vec![0; self.bytes - 28])
            .to_vec()
    }
}

/// Departures by port, and drops, by number of the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Port, and moment since the start; the bytes.
    departed: BTreeMap<u32, (u16, u64, Vec<u8>)>,
    dropped: BTreeMap<u32, Reason>,
}

impl Outcome {
    fn forget_bytes(&mut self) {
        self.departed.values_mut().for_each(|(_, _, bytes)| bytes.clear());
    }
}

impl Witness for Outcome {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        let before = self.departed.insert(frame.meta.number, (port.0, at.0 - START, frame.bytes().to_vec()));
        assert_eq!(before, None, "twice");
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        let Verdict::Dropped(reason) = verdict else { panic!("{verdict}") };
        assert_eq!(self.dropped.insert(frame.meta.number, reason), None, "twice");
    }
}

fn tables(queues: &str) -> Tables {
    let interface =
        |name: &str, net: &str| format!("[interface.{name}]\nzone = \"{name}\"\naddresses = [\"{net}\"]\n");
    let text = format!(
        "{}{}{}[default]\n\"lan > wan\" = \"accept\"\n\"lan > dmz\" = \"accept\"\n\"dmz > wan\" = \"accept\"\n\
         [limit]\nqueue = 512\nflows = 1024\n{queues}",
        interface("lan", "192.168.1.1/24"),
        interface("dmz", "192.168.2.1/24"),
        interface("wan", "203.0.113.2/24"),
    );
    let checked = policy::check(&text, "queues.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}\n{text}", checked.diagnostics));
    Tables::compile(&policy, 1).expect("tables")
}

struct Worker {
    shard: Shard,
    pipeline: Pipeline,
    batch: Batch,
    ended: Vec<Frame>,
    tables: Rc<Tables>,
    setup: Setup,
    // Dropped after the frames.
    pool: Pool,
}

/// Packet on its way to the worker that serves its queues.
struct Carried {
    packet: Handoff,
    epoch: u16,
}

/// Workers, and the packets that they hand off to one another.
struct Crew {
    /// By giver and receiver.
    rings: BTreeMap<(usize, u16), Vec<Carried>>,
    workers: Vec<Worker>,
    /// Room of a ring.
    depth: usize,
    random: Random,
    handed_off: usize,
}

impl Crew {
    fn new(text: &str, workers: u16, seed: u64) -> Crew {
        let tables = Rc::new(tables(text));
        let steering = Arc::new(SteeringTable::new(workers, 1_024).expect("memory"));
        let worker = |number| {
            let share = Share::new(number, workers).expect("a worker");
            let setup = Setup { seed: SEED, now: Nanos(START), resolve: Resolve::Assume, share };
            let mut shard = Shard::new(&tables, setup).expect("memory");
            shard.join(Member { steering: steering.clone(), worker: number });
            let pool = Pool::new(6_000, 2_048).expect("memory");
            let (pipeline, batch, tables) = (Pipeline::default(), Batch::new(), tables.clone());
            Worker { shard, pipeline, batch, ended: Vec::new(), tables, setup, pool }
        };
        let workers = (0..workers).map(worker).collect();
        Crew { workers, rings: BTreeMap::new(), depth: 2_048, random: Random::new(seed), handed_off: 0 }
    }

    fn drawn(&mut self, below: usize) -> usize {
        self.random.next_u64() as usize % below
    }

    /// Receives a packet at any worker.
    fn receive(&mut self, number: u32, packet: &Packet, outcome: &mut Outcome) {
        let first = self.drawn(self.workers.len());
        let worker = &mut self.workers[first];
        let mut frame = worker.pool.take().expect("a slot");
        assert!(frame.fill(&packet.frame()));
        frame.meta.ingress = PortId(packet.ingress);
        frame.meta.received = Nanos(START + packet.at);
        frame.meta.number = number;
        assert!(worker.batch.push(frame).is_ok());
        worker.run(|pipeline, batch, ended, cx| pipeline.run(batch, ended, cx));
        self.settle(first, outcome);
    }

    /// Carries frames of others' flows at once.
    fn settle(&mut self, from: usize, outcome: &mut Outcome) {
        for frame in std::mem::take(&mut self.workers[from].ended) {
            let Some(to) = receiver(&frame.meta) else {
                outcome.ended(&frame, Verdict::of_fate(frame.meta.fate).expect("a verdict"));
                self.workers[from].pool.put(frame);
                continue;
            };
            let worker = &mut self.workers[usize::from(to)];
            let mut copy = worker.pool.take().expect("a slot");
            assert!(copy.fill(frame.bytes()));
            copy.meta = arrived(&frame.meta, frame.meta.ingress, frame.meta.received);
            assert!(worker.batch.push(copy).is_ok());
            self.workers[from].pool.put(frame);
            self.workers[usize::from(to)]
                .run(|pipeline, batch, ended, cx| pipeline.run_taken(batch, ended, cx));
            self.settle(to.into(), outcome);
        }
    }

    /// Puts what is for other workers' schedulers into the rings.
    fn give(&mut self) {
        let Crew { workers, rings, depth, .. } = self;
        for (from, worker) in workers.iter_mut().enumerate() {
            let epoch = worker.tables.epoch;
            worker.shard.hand_off(|packet, _| {
                let ring = rings.entry((from, packet.worker)).or_default();
                if ring.len() >= *depth || usize::from(packet.worker) == from {
                    return Err(packet);
                }
                ring.push(Carried { packet, epoch });
                Ok(())
            });
        }
    }

    /// Takes out of the rings, some of one and then of another.
    fn take(&mut self, outcome: &mut Outcome) {
        while !self.rings.is_empty() {
            let place = self.drawn(self.rings.len());
            let (&(from, to), ring) = self.rings.iter_mut().nth(place).expect("a ring");
            let many = (self.random.next_u64() as usize % 8 + 1).min(ring.len());
            let taken: Vec<Carried> = ring.drain(..many).collect();
            if ring.is_empty() {
                self.rings.remove(&(from, to));
            }
            for Carried { packet: Handoff { frame, ends, ingress, .. }, epoch } in taken {
                self.handed_off += 1;
                let worker = &mut self.workers[usize::from(to)];
                let mut copy = worker.pool.take().expect("a slot");
                assert!(copy.fill(frame.bytes()));
                copy.meta = decided(&frame.meta, frame.meta.ingress, frame.meta.egress);
                if let Err(dropped) = worker.shard.take_handed_off(copy, ingress, ends, epoch) {
                    let verdict = Verdict::of_fate(dropped.meta.fate).expect("a verdict");
                    outcome.ended(&dropped, verdict);
                    worker.pool.put(dropped);
                }
                self.workers[from].pool.put(frame);
            }
        }
    }

    /// Sends all that is due by `now`.
    fn depart(&mut self, now: u64, outcome: &mut Outcome) {
        let mut ports = vec![LOCAL];
        ports.extend((0..3).map(PortId));
        for port in ports {
            // What has passed a tree of incoming packets may be for another worker's. The gateway's own port has nothing else.
            self.give();
            self.take(outcome);
            for worker in &mut self.workers {
                worker.depart(port, now, outcome);
            }
        }
        assert!(self.is_conserved());
    }

    fn reload(&mut self, which: usize, text: &str, now: u64, outcome: &mut Outcome) {
        let worker = &mut self.workers[which];
        let now = Nanos(START + now);
        let new = tables(text).after(&worker.tables);
        let plan = ReloadPlan::prepare(&worker.tables, &new, Setup { now, ..worker.setup }).expect("a plan");
        worker.shard.apply(plan, &new, now, &mut worker.ended).expect("its turn");
        worker.tables = Rc::new(new);
        self.settle(which, outcome);
    }

    /// For each worker, and for all together but for what is in the rings.
    fn is_conserved(&self) -> bool {
        let counters = || self.workers.iter().map(|worker| &worker.shard.counters);
        let given: u64 = counters().map(|counters| counters.given).sum();
        let taken: u64 = counters().map(|counters| counters.taken).sum();
        let carried: usize = self.rings.values().map(Vec::len).sum();
        given == taken + carried as u64 && counters().all(|counters| counters.are_conserved())
    }

    /// True if all frames are back in their pools.
    fn is_at_rest(&self) -> bool {
        let queued: u64 = self.workers.iter().map(|worker| worker.shard.counters.queued()).sum();
        queued == 0 && self.workers.iter().all(|worker| worker.pool.available() == worker.pool.capacity())
    }
}

impl Worker {
    fn run(&mut self, run: impl FnOnce(&mut Pipeline, &mut Batch, &mut Vec<Frame>, &mut Cx<'_, NoTally>)) {
        let Worker { shard, pool, tables, pipeline, batch, ended, .. } = self;
        run(pipeline, batch, ended, &mut Cx { tables, shard, pool, tally: &mut NoTally });
    }

    fn depart(&mut self, port: PortId, now: u64, outcome: &mut Outcome) {
        loop {
            match self.shard.next(port, Nanos(START.saturating_add(now))) {
                Next::Frame(frame, at) => {
                    outcome.sent(port, at, &frame, None);
                    self.pool.put(frame);
                }
                Next::Dropped(frame, reason, _) => {
                    outcome.ended(&frame, Verdict::Dropped(reason));
                    self.pool.put(frame);
                }
                Next::Wait(_) | Next::Empty => return,
            }
        }
    }
}

/// Trees before two interfaces and behind the third: three owners, where there are as many workers.
const CHAINED: &str = r#"
[[queue]]
name = "down"
from = "lan"
rate = "9 Mbit/s"
scheduler = "fq"
drop = "codel"
limit = 300

[[queue]]
name = "servers"
on = "dmz"
rate = "4 Mbit/s"
limit = 40

[[queue]]
name = "uplink"
on = "wan"
rate = "8 Mbit/s"
[[queue]]
name = "voice"
in = "uplink"
phb = "ef"
rate = "1 Mbit/s"
limit = 20
[[queue]]
name = "assured"
in = "uplink"
phb = "af1"
priority = 1
guarantee = "2 Mbit/s"
drop = "red"
red = "10-30 10%"
[[queue]]
name = "rest"
in = "uplink"
priority = 1
scheduler = "fq"
isolate = "source"
drop = "codel"
"#;

const SUBSCRIBERS: &str = r#"
[[queue]]
name = "uplink"
on = ["wan", "dmz"]
[[queue]]
name = "subscriber"
in = "uplink"
per = "destination"
instances = 8
rate = "1 Mbit/s"
scheduler = "strict"
[[queue]]
name = "voice"
in = "subscriber"
phb = "ef"
[[queue]]
name = "data"
in = "subscriber"
drop = "pie"
limit = 64
"#;

/// Packets that have come by the LAN wait in one tree, and then, behind the masquerade, in another, where each host inside has a queue.
const TRANSLATED: &str = r#"
[[nat]]
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"

[[queue]]
name = "inside"
from = "lan"
rate = "12 Mbit/s"
limit = 200

[[queue]]
name = "elsewhere"
on = "dmz"

[[queue]]
name = "uplink"
on = "wan"
rate = "8 Mbit/s"
[[queue]]
name = "host"
in = "uplink"
per = "source"
instances = 16
scheduler = "fq"
limit = 20
"#;

/// Packets at distinct moments, some close together and some with a pause before.
fn traffic(random: &mut Random, count: usize) -> Vec<Packet> {
    let mut at = 0;
    let packet = |_| {
        let drawn = random.next_u64();
        at += 1 + match drawn % 64 {
            0 => 10_000_000,
            1..=30 => drawn >> 8 & 0xffff,
            _ => (drawn >> 8 & 0xfff_ffff) / 600,
        };
        let (ingress, source, to_wan) = match drawn >> 40 & 3 {
            0 => (DMZ, [192, 168, 2, 10 + (drawn >> 42) as u8 % 4], true),
            way => (LAN, [192, 168, 1, 10 + (drawn >> 42) as u8 % 6], way != 1),
        };
        let last = 20 + (drawn >> 46) as u8 % 5;
        let destination = if to_wan { [203, 0, 113, last] } else { [192, 168, 2, last] };
        let field = [0, 2, 184, 40, 48][(drawn >> 50) as usize % 5];
        let bytes = 28 + (drawn >> 54) as usize * 1_400 / 1_024;
        Packet { at, ingress, source, destination, sport: 1_000 + (drawn >> 32) as u16 % 4, field, bytes }
    };
    (0..count).map(packet).collect()
}

fn alone(text: &str, packets: &[Packet]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut replay = Replay::new(tables(text), Nanos(START), Way::Run).expect("memory");
    for (number, packet) in (0..).zip(packets) {
        replay.receive(
            PortId(packet.ingress),
            Nanos(START + packet.at),
            number,
            &packet.frame(),
            &mut outcome,
        );
    }
    replay.finish(&mut outcome);
    outcome
}

#[test]
fn one_worker_s_scheduler_sends_as_a_replay_does() {
    let mut random = Random::new(3);
    let (mut handed_off, mut dropped) = (0, 0);
    for round in 0..60 {
        let text = [CHAINED, SUBSCRIBERS, TRANSLATED][usize::from(round) % 3];
        let packets = traffic(&mut random, 700);
        let mut expected = alone(text, &packets);
        let mut crew = Crew::new(text, 2 + round / 3 % 3, round.into());
        let mut outcome = Outcome::default();
        for (number, packet) in (0..).zip(&packets) {
            // Whenever a host asks: all that has come by then is on its way, or there.
            if crew.drawn(12) == 0 {
                crew.depart(packet.at - 1, &mut outcome);
            }
            crew.receive(number, packet, &mut outcome);
        }
        crew.depart(1 << 50, &mut outcome);
        if text == TRANSLATED {
            // Workers choose other ports.
            expected.forget_bytes();
            outcome.forget_bytes();
        }
        assert_eq!(outcome, expected, "round {round}");
        assert!(crew.is_at_rest());
        handed_off += crew.handed_off;
        dropped += outcome.dropped.len();
        // A worker has the trees that it serves, and no others.
        let trees: Vec<usize> =
            crew.workers.iter().map(|worker| worker.shard.egress.trees().count()).collect();
        assert_eq!(
            trees.iter().sum::<usize>(),
            tables(text).queues.on.iter().flatten().count()
                + tables(text).queues.from.iter().flatten().count()
        );
        assert!(trees.iter().filter(|count| **count > 0).count() > 1, "{trees:?}");
    }
    assert!(handed_off > 10_000 && dropped > 1_000, "{handed_off} {dropped}");
}

/// Divided, each worker has its part of the rate, whatever the others do.
#[test]
fn a_divided_tree_has_a_part_at_each_worker() {
    let one =
        "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"8 Mbit/s\"\noverhead = \"ip\"\nlimit = 400\n";
    let divided = format!("{one}workers = \"divided\"\n");
    let packet = |n: u64| Packet {
        at: n,
        ingress: LAN,
        source: [192, 168, 1, 10],
        destination: [203, 0, 113, 9],
        sport: 1_000,
        field: 0,
        bytes: 1_000,
    };
    for (text, step) in [(one, 1_000_000), (divided.as_str(), 2_000_000)] {
        let (mut crew, mut outcome) = (Crew::new(text, 2, 1), Outcome::default());
        for n in 0..100 {
            crew.receive(n, &packet(n.into()), &mut outcome);
        }
        crew.depart(1 << 50, &mut outcome);
        for (n, (_, at, _)) in &outcome.departed {
            assert_eq!(*at, u64::from(*n) * step);
        }
        assert_eq!(outcome.departed.len(), 100);
    }
}

/// A ring that is full holds packets back, up to a bound; then they are dropped, and counted.
#[test]
fn a_full_ring_drops_what_there_is_no_room_for() {
    let text = "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"8 Mbit/s\"\nlimit = 5000\n";
    let (mut crew, mut outcome) = (Crew::new(text, 2, 5), Outcome::default());
    crew.depth = 10;
    let mut random = Random::new(8);
    for (number, packet) in (0..).zip(traffic(&mut random, 3_000)) {
        crew.receive(number, &packet, &mut outcome);
        crew.give();
        assert!(crew.is_conserved());
    }
    let full = outcome.dropped.values().filter(|reason| **reason == Reason::HandoffFull).count();
    assert!(full > 100, "{full}");
    // What was held back is not lost.
    for _ in 0..200 {
        crew.depart(1 << 50, &mut outcome);
    }
    assert_eq!(outcome.departed.len() + outcome.dropped.len(), 3_000);
    assert!(crew.is_at_rest());
}

/// From one worker's scheduler to one of each and back, with other owners, and to none, worker by worker, while packets wait in
/// trees and rings: each has one fate.
#[test]
fn reloads_between_owners_lose_nothing() {
    let divided = CHAINED.replace("limit = 300\n", "limit = 300\nworkers = \"divided\"\n");
    let divided = divided.replace("rate = \"8 Mbit/s\"\n", "rate = \"8 Mbit/s\"\nworkers = \"divided\"\n");
    let fewer = CHAINED.replace("from = \"lan\"", "from = \"dmz\"");
    // Behind the same tree of incoming packets one that does not ask for their ends.
    let plain = CHAINED.replace("scheduler = \"fq\"\nisolate = \"source\"\n", "");
    let (divided, fewer, plain) = (divided.as_str(), fewer.as_str(), plain.as_str());
    let policies = [CHAINED, divided, CHAINED, fewer, "", plain, CHAINED, plain, SUBSCRIBERS, divided];
    let mut handed_off = 0;
    for round in 0..30 {
        let mut random = Random::new(round);
        let packets = traffic(&mut random, 900);
        let (mut crew, mut outcome) =
            (Crew::new(policies[0], 2 + round as u16 % 3, round), Outcome::default());
        let mut swaps: Vec<usize> = vec![0; crew.workers.len()];
        for (number, packet) in (0..).zip(&packets) {
            crew.receive(number, packet, &mut outcome);
            let due = number as usize / 100;
            if crew.drawn(10) == 0 {
                crew.depart(packet.at, &mut outcome);
            }
            // One after the other, with packets between.
            let which = crew.drawn(crew.workers.len());
            let least = *swaps.iter().min().expect("workers");
            if swaps[which] < due.min(policies.len() - 1) && swaps[which] == least {
                swaps[which] += 1;
                crew.give();
                crew.reload(which, policies[swaps[which]], packet.at, &mut outcome);
                assert!(crew.is_conserved());
            }
        }
        for (which, swapped) in swaps.into_iter().enumerate() {
            for text in &policies[swapped + 1..] {
                crew.reload(which, text, packets[899].at, &mut outcome);
            }
        }
        (0..5).for_each(|_| crew.depart(1 << 50, &mut outcome));
        assert_eq!(outcome.departed.len() + outcome.dropped.len(), packets.len(), "round {round}");
        assert!(crew.is_at_rest(), "round {round}");
        assert!(!outcome.dropped.values().any(|reason| *reason == Reason::HandoffFull));
        handed_off += crew.handed_off;
    }
    assert!(handed_off > 3_000, "{handed_off}");
}
