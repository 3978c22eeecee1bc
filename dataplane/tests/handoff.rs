//! Several shards that hand frames off to one another equal one shard, whichever of them a frame comes to.
//!
//! Exact, if no frame is lost on the way and each ends before the next one: the verdict of each frame, and the bytes of
//! packets without port translation. Ports of source NAT differ, as each shard has its own; answers to these ports verify
//! that mappings are endpoint-independent, and whose they are. Bounds per source are exact, except for sources that come
//! in by mappings; bounds of all together (flows, rates and connections of a rule as a whole, errors a second) hold for
//! each shard, so the scenes here stay below them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dataplane::flow::{Member, SteeringTable};
use dataplane::replay::Way;
use dataplane::tables::LOCAL;
use dataplane::{Reason, Verdict};
use wire::build::{self, Packet, Tcp};
use wire::ethernet::Mac;
use wire::header::{Fragment, Ports, Protocol};
use wire::random::Random;
use wire::tcp::Flags;
use wire::{Nanos, PortId, ipv4};

use crate::scene::packet::Packets;
use crate::scene::policy::{LAN, Translation, WAN};
use crate::scene::{Arrival, Gateway, Out, START, check, packet, policy};

/// Shards that share their flows, with handoff of frames between them.
struct Crew {
    workers: Vec<Gateway>,
    steering: Arc<SteeringTable>,
    carried: u64,
    /// Of so many frames one is lost on the way; none where 0.
    loses: u64,
    random: Random,
}

impl Crew {
    fn new(text: &str, workers: u16) -> Crew {
        let steering = Arc::new(SteeringTable::new(workers, 1024).unwrap());
        let member = |worker| Gateway::member(text, Member { steering: steering.clone(), worker });
        Crew {
            workers: (0..workers).map(member).collect(),
            steering: steering.clone(),
            carried: 0,
            loses: 0,
            random: Random::new(77),
        }
    }

    /// Takes a frame in at one worker, and all that is handed off by it, until nothing is.
    fn receive(&mut self, worker: usize, arrival: &Arrival) -> Out {
        self.workers[worker].receive(std::slice::from_ref(arrival));
        self.carry();
        self.out()
    }

    fn carry(&mut self) {
        loop {
            let Crew { workers, random, loses, .. } = self;
            let mut is_lost = || *loses > 0 && random.next_u64() % *loses == 0;
            let given: Vec<_> = workers.iter_mut().flat_map(|worker| worker.given(&mut is_lost)).collect();
            if given.is_empty() {
                return;
            }
            for (worker, meta, bytes) in given {
                self.carried += 1;
                self.workers[usize::from(worker)].take(&meta, &bytes);
            }
        }
    }

    fn out(&mut self) -> Out {
        let mut out = Out::default();
        for worker in &mut self.workers {
            let mut own = worker.out(usize::MAX);
            check::gateway(worker);
            out.sent.append(&mut own.sent);
            out.ended.append(&mut own.ended);
            out.local.append(&mut own.local);
        }
        out
    }

    /// received = all fates, over all workers together.
    fn is_conserved(&self) -> bool {
        let sum = |of: fn(&dataplane::counter::Counters) -> u64| -> u64 {
            self.workers.iter().map(|worker| of(&worker.shard.counters)).sum()
        };
        sum(|of| of.given) == sum(|of| of.taken)
            && sum(|of| of.received.frames)
                == sum(|of| of.forwarded() + of.delivered() + of.answered() + of.dropped() + of.held)
    }
}

/// Returns the verdicts of each frame, by number.
fn fates(out: &Out) -> BTreeMap<u32, Vec<Verdict>> {
    let mut fates: BTreeMap<u32, Vec<Verdict>> = BTreeMap::new();
    let sent = out.sent.iter().filter_map(|sent| Some((sent.number, sent.verdict?)));
    for (number, verdict) in sent.chain(out.ended.iter().copied()) {
        fates.entry(number).or_default().push(verdict);
    }
    fates
}

/// The bytes that left or were delivered, in an order that does not depend on whose they were. Answers have numbers of
/// each worker's own.
fn bytes(out: &Out) -> Vec<(u32, u16, Vec<u8>)> {
    let sent = out.sent.iter().filter(|sent| !matches!(sent.verdict, Some(Verdict::Answered(_))));
    let local = out.local.iter().filter(|local| local.verdict == Verdict::Delivered);
    let mut all: Vec<_> = sent
        .map(|sent| (sent.number, sent.port, sent.bytes.clone()))
        .chain(local.map(|local| (local.number, LOCAL.0, local.bytes.clone())))
        .collect();
    all.sort();
    all
}

/// A policy in which nothing is bounded that all workers would have to share.
fn seed(random: &mut Random) -> [u8; policy::BYTES] {
    let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
    // Stateful; all ports, no quota; 1024 flows.
    seed[0] |= 1;
    // No tunnel: each worker would number its packets by itself.
    seed[0] &= !0x18;
    seed[1] &= !0x0c;
    seed[2] = seed[2] & 1 | 6 << 1;
    // No bound on a rule's connections as a whole, on errors, fragments or queues.
    if seed[6] >> 5 & 3 == 2 {
        seed[6] &= !0x60;
    }
    seed[7] &= !3;
    if matches!(seed[1] % 4, 1 | 2) {
        // Who is let in to mappings of several workers counts at each.
        seed[6] &= !0x68;
        seed[7] &= !32;
    }
    seed[9] |= 0x0f;
    // Workers that meter together divide a rate; of a flow there is one. Some meters, for each flow.
    seed[9] &= if seed[0] % 8 == 0 { 0x7f } else { 0x9f };
    seed[11] = 0;
    seed
}

fn packet(random: &mut Random) -> [u8; packet::BYTES] {
    let mut bytes: [u8; packet::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
    // A clock that is set back is another one for each worker.
    if bytes[12] >> 2 == 63 {
        bytes[12] = 0;
    }
    bytes
}

#[test]
fn several_shards_do_what_one_does() {
    let mut random = Random::new(21);
    let (mut carried, mut frames, mut clashes, mut met) = (0, 0, 0, BTreeMap::<String, u64>::new());
    let rounds = if cfg!(debug_assertions) { 600 } else { 3_000 };
    'scenes: for round in 0..rounds {
        let seed = seed(&mut random);
        let mut scene = policy::of(&seed);
        // Preserved ports are others where workers share them, and stray packets would guess the one or the other.
        for kind in ["masquerade", "source", "nat64", "clat"].map(|kind| format!("kind = \"{kind}\"\n")) {
            scene.text = scene.text.replace(&kind, &format!("{kind}random = true\n"));
        }
        scene.text = scene.text.replace("instances = 2\n", "");
        let hides = matches!(scene.translation, Translation::Masquerade | Translation::Pool);
        if !hides {
            scene.text = scene.text.replace("hairpin = false\n", "");
            // Nor are sources translated that are turned back, by ports that others may have here or there.
            for kind in ["kind = \"one-to-one\"\n", "kind = \"forward\"\n"] {
                scene.text = scene.text.replace(kind, &format!("{kind}hairpin = false\n"));
            }
        }
        let mut one = Gateway::new(&scene.text, Way::Run);
        let mut crew = Crew::new(&scene.text, 2 + round % 3);
        let mut worlds = [Packets::new(), Packets::new()];
        let (mut alone, mut together) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..100 {
            let packet = packet(&mut random);
            let arrivals = worlds.each_mut().map(|world| world.next(&packet));
            one.receive(&arrivals[..1]);
            let expected = one.out(usize::MAX);
            let clash = |(_, verdict): &(u32, Verdict)| verdict.reason() == Some(Reason::NatClash);
            if expected.ended.iter().any(clash) {
                // The flows that clash may be different workers'. Then both are there, and what answers both is one's.
                clashes += 1;
                continue 'scenes;
            }
            let worker = random.next_u64() as usize % crew.workers.len();
            let out = crew.receive(worker, &arrivals[1]);
            if !hides {
                assert_eq!(bytes(&out), bytes(&expected), "round {round} under\n{}", scene.text);
            }
            for (fates, out) in [(&mut alone, fates(&expected)), (&mut together, fates(&out))] {
                for (number, mut verdicts) in out {
                    fates.entry(number).or_insert_with(Vec::new).append(&mut verdicts);
                }
            }
            worlds[0].learn(&expected);
            worlds[1].learn(if hides { &out } else { &expected });
            frames += 1;
        }
        assert!(crew.is_conserved());
        // What waits in vain ends when time passes, which is not at one moment for all.
        let late = worlds[0].now() + Nanos::from_secs(1_000_000_000);
        for worker in std::iter::once(&mut one).chain(&mut crew.workers) {
            (0..3).for_each(|_| worker.tend(late));
        }
        crew.carry();
        for (fates, out) in [(&mut alone, fates(&one.out(usize::MAX))), (&mut together, fates(&crew.out()))] {
            for (number, mut verdicts) in out {
                fates.entry(number).or_insert_with(Vec::new).append(&mut verdicts);
            }
        }
        let differ: Vec<_> =
            alone.iter().filter(|(number, fate)| together.get(number) != Some(fate)).collect();
        assert!(
            differ.is_empty() && alone.len() == together.len(),
            "round {round}: alone {differ:?}, together {:?} under\n{}",
            differ.iter().map(|(number, _)| together.get(number)).collect::<Vec<_>>(),
            scene.text
        );
        assert!(crew.is_conserved());
        for verdict in together.values().flatten() {
            *met.entry(verdict.to_string()).or_default() += 1;
        }
        carried += crew.carried;
        assert_eq!(crew.steering.left_out(), 0);
        // With the flows go their entries: nobody is sent after what is not there.
        crew.workers.iter_mut().for_each(|worker| worker.shard.clear_flows());
        assert!(crew.steering.is_empty());
    }
    assert!(clashes < rounds / 10, "{clashes} scenes were left");
    assert!(carried > frames / 3, "only {carried} of {frames} were handed off");
    for what in ["forwarded", "delivered", "answered (route-missing)", "dropped (fragment-overlap)"] {
        assert!(met.get(what).is_some_and(|count| *count > 20), "{what}: {met:#?}");
    }
}

#[test]
fn what_is_lost_on_the_way_is_counted_once() {
    let mut random = Random::new(5);
    for _ in 0..100 {
        let scene = policy::of(&seed(&mut random));
        let (mut crew, mut world) = (Crew::new(&scene.text, 3), Packets::new());
        crew.loses = 3;
        let (mut ended, mut received) = (0, 0);
        for _ in 0..100 {
            let arrival = world.next(&packet(&mut random));
            let out = crew.receive(random.next_u64() as usize % 3, &arrival);
            ended += fates(&out).values().map(Vec::len).sum::<usize>();
            received += 1;
            world.learn(&out);
            assert!(crew.is_conserved());
        }
        let held: u64 = crew.workers.iter().map(|worker| worker.shard.counters.held).sum();
        assert_eq!(ended + held as usize, received);
        let lost: u64 =
            crew.workers.iter().map(|worker| worker.shard.counters.dropped_for(Reason::HandoffFull)).sum();
        assert!(lost > 0);
    }
}

/// A hint that leads astray costs a way, no more.
#[test]
fn wrong_hints_do_not_keep_a_flow_from_its_home() {
    let scene = policy::of(&[1, 0, 12, 0, 0, 2, 0, 0, 0, 15, 0, 0, 0, 0]);
    let syn = |sport, number| {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
        let packet = link.ipv4([192, 168, 1, 5].into(), [8, 8, 8, 8].into());
        let bytes = packet.tcp(Tcp { sport, dport: 443, flags: Flags::SYN, ..Tcp::default() }).to_vec();
        Arrival { port: PortId(LAN), at: START, number, bytes }
    };
    let mut crew = Crew::new(&scene.text, 4);
    // Whatever is asked for, everybody is said to have it.
    let hashes: Vec<u64> = {
        let mut one = Gateway::new(&scene.text, Way::Run);
        one.receive(&(1..20).map(|n| syn(n, u32::from(n))).collect::<Vec<_>>());
        one.out(usize::MAX);
        let flows = &one.shard.flows;
        flows.iter().map(|(_, flow)| flows.hash(flow.original(), &mut tally::NoTally)).collect()
    };
    assert_eq!(hashes.len(), 19);
    for (hash, worker) in hashes.iter().flat_map(|hash| (0..4).map(move |worker| (*hash, worker))) {
        crew.steering.publish(hash, worker);
    }
    for (n, worker) in (1..20).zip([0, 1, 2, 3].into_iter().cycle()) {
        let out = crew.receive(worker, &syn(n, u32::from(n)));
        assert_eq!(out.sent.len(), 1, "{out:?}");
        assert_eq!(out.sent[0].port, WAN);
    }
    let flows: Vec<u32> = crew.workers.iter().map(|worker| worker.shard.flows.len()).collect();
    assert_eq!(flows.iter().filter(|flows| **flows == 19).count(), 1, "{flows:?}");
}

/// Hosts behind an outside address, whoever they talk to, from whichever worker their packets and those to them come to.
const OFFICE: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[default]
"lan > wan" = "accept"
"wan > lan" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
[[nat]]
name = "web"
kind = "forward"
outside = "203.0.113.2"
protocol = "udp"
port = 8080
target = "192.168.1.10:80"
"#;
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];

/// An end of a UDP packet.
type End = ([u8; 4], u16);

/// A UDP packet, in one piece or in three.
fn pieces(from: End, to: End, id: u32, in_three: bool) -> Vec<Vec<u8>> {
    let start = || {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
        link.ipv4(from.0.into(), to.0.into())
    };
    let whole = start().udp(from.1, to.1).payload(&[7; 40]).to_vec();
    if !in_three {
        return vec![whole];
    }
    let datagram = &whole[34..];
    [(0, 16), (16, 32), (32, 48)]
        .map(|(begin, end)| {
            let fragment = Fragment { id, offset: begin as u16, more: end < datagram.len() };
            start().fragment(fragment).protocol(Protocol::UDP).payload(&datagram[begin..end]).to_vec()
        })
        .to_vec()
}

/// Returns the source and destination of a packet sent; ports are 0 in a later fragment.
fn ends(frame: &[u8]) -> (End, End) {
    let packet = ipv4::parse(&frame[14..]).unwrap();
    let is_first = packet.header.fragment().is_none_or(|fragment| fragment.is_first());
    let ports =
        if is_first { Ports::of(packet.payload).map(|ports| (ports.sport, ports.dport)) } else { None };
    let (sport, dport) = ports.unwrap_or((0, 0));
    ((packet.header.src().octets(), sport), (packet.header.dst().octets(), dport))
}

#[test]
fn mappings_are_endpoint_independent_whoever_has_them() {
    let by_blocks =
        OFFICE.replace("kind = \"masquerade\"\n", "kind = \"masquerade\"\nblock = 32\nblocks-per-host = 1\n");
    for (workers, text) in (2..=5).flat_map(|workers| [(workers, OFFICE), (workers, &by_blocks)]) {
        let (mut random, mut crew) = (Random::new(u64::from(workers)), Crew::new(text, workers));
        let mut mapped: BTreeMap<End, u16> = BTreeMap::new();
        let (mut number, mut at) = (0, START);
        let mut play = |crew: &mut Crew, port: PortId, random: &mut Random, frames: Vec<Vec<u8>>| {
            let mut frames = frames;
            // Any order, any worker.
            for last in (1..frames.len()).rev() {
                frames.swap(last, random.next_u64() as usize % (last + 1));
            }
            at += Nanos(1_000);
            let many = frames.len();
            let sent: Vec<_> = frames
                .into_iter()
                .flat_map(|bytes| {
                    number += 1;
                    let worker = random.next_u64() as usize % crew.workers.len();
                    crew.receive(worker, &Arrival { port, at, number, bytes }).sent
                })
                .collect();
            assert_eq!(sent.len(), many, "something did not get through");
            let mut seen: Vec<_> = sent.iter().map(|sent| (sent.port, ends(&sent.bytes))).collect();
            // Those without ports are behind the one that has them.
            seen.sort_by_key(|(_, (from, _))| std::cmp::Reverse(from.1));
            seen
        };
        for id in 0..1_200 {
            let roll = random.next_u64();
            let inside: End = ([192, 168, 1, 10 + (roll >> 8) as u8 % 6], 5_000 + (roll >> 16) as u16 % 8);
            let remote: End = ([198, 51, 100, (roll >> 24) as u8 % 9], 53 + (roll >> 32) as u16 % 3);
            let in_three = roll & 7 == 0;
            match roll >> 40 & 3 {
                // From outside: by who was called, or by a stranger; what is mapped is reached.
                0 | 1 => {
                    let Some(outside) = mapped.get(&inside) else { continue };
                    let frames = pieces(remote, (OUTSIDE, *outside), id, in_three);
                    let seen = play(&mut crew, PortId(1), &mut random, frames);
                    assert_eq!(seen[0], (0, (remote, inside)));
                    assert!(seen[1..].iter().all(|(_, (from, to))| (from.0, to.0) == (remote.0, inside.0)));
                }
                2 => {
                    let seen = play(&mut crew, PortId(0), &mut random, pieces(inside, remote, id, in_three));
                    let (_, (from, to)) = seen[0];
                    assert_eq!((from.0, to), (OUTSIDE, remote));
                    assert_eq!(*mapped.entry(inside).or_insert(from.1), from.1, "{inside:?} has two ports");
                    assert!(seen[1..].iter().all(|(_, (from, to))| (from.0, to.0) == (OUTSIDE, remote.0)));
                }
                _ => {
                    let stranger = ([198, 51, 100, 100 + (roll >> 24) as u8 % 50], remote.1);
                    let frames = pieces(stranger, (OUTSIDE, 8080), id, in_three);
                    let seen = play(&mut crew, PortId(1), &mut random, frames);
                    assert_eq!(seen[0].1, (stranger, ([192, 168, 1, 10], 80)));
                    let answer = pieces(([192, 168, 1, 10], 80), stranger, id + 10_000, in_three);
                    let seen = play(&mut crew, PortId(0), &mut random, answer);
                    assert_eq!(seen[0].1, ((OUTSIDE, 8080), stranger));
                }
            }
        }
        let ports: std::collections::BTreeSet<u16> = mapped.values().copied().collect();
        assert_eq!((ports.len(), mapped.len()), (48, 48));
        if text == by_blocks {
            // Each of the six has a block, of one worker, and nobody else has it.
            let blocks = crew.workers.iter().flat_map(|worker| worker.shard.mappings.blocks());
            let owners: BTreeMap<u16, _> = blocks.map(|block| (block.ports.first, block.inside)).collect();
            let hosts: std::collections::BTreeSet<_> = owners.values().collect();
            assert_eq!((owners.len(), hosts.len()), (6, 6));
            for (inside, port) in &mapped {
                assert_eq!(owners.get(&(port / 32 * 32)), Some(&inside.0.into()));
            }
        }
        // Nobody has all the work: hosts, and those who call one that is forwarded to, are spread.
        let flows: Vec<u32> = crew.workers.iter().map(|worker| worker.shard.flows.len()).collect();
        assert!(flows.iter().all(|count| *count > 0), "{flows:?}");
        assert!(crew.is_conserved());
    }
}

#[test]
fn every_worker_takes_the_cookies_of_all() {
    let server: End = ([192, 168, 1, 10], 80);
    for workers in 2..=4 {
        let mut crew = Crew::new(&policy::web("syn = \"proxy\""), workers);
        let (mut number, mut at) = (0, START);
        let mut play = |crew: &mut Crew, from: End, to: End, seq, ack, flags| {
            let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
            let segment = Tcp { sport: from.1, dport: to.1, seq, ack, flags, ..Tcp::default() };
            let bytes = link.ipv4(from.0.into(), to.0.into()).tcp(segment).to_vec();
            number += 1;
            at += Nanos(1_000);
            // Each packet to the next worker, whoever has the flow.
            let port = PortId(u16::from(from.0[0] != 192));
            let out =
                crew.receive(number as usize % crew.workers.len(), &Arrival { port, at, number, bytes });
            let mut sent: Vec<_> = out
                .sent
                .iter()
                .map(|sent| {
                    let packet = ipv4::parse(&sent.bytes[14..]).unwrap();
                    let header = wire::tcp::parse(packet.payload).unwrap().header;
                    (sent.port, header.flags(), header.seq(), header.ack())
                })
                .collect();
            sent.sort_by_key(|sent| sent.0);
            sent
        };
        for client in 0..20 {
            let client: End = ([198, 51, 100, client], 40_000);
            let [(1, Flags::SYN_ACK, cookie, 101)] = play(&mut crew, client, server, 100, 0, Flags::SYN)[..]
            else {
                panic!("no SYN-ACK")
            };
            let shown = cookie.wrapping_add(1);
            let syn = play(&mut crew, client, server, 101, shown, Flags::ACK);
            assert_eq!(syn, [(0, Flags::SYN, 100, 0)]);
            let both = play(&mut crew, server, client, 7_000, 101, Flags::SYN_ACK);
            assert_eq!(both, [(0, Flags::ACK, 101, 7_001), (1, Flags::ACK, shown, 101)]);
            assert_eq!(
                play(&mut crew, client, server, 101, shown, Flags::ACK),
                [(0, Flags::ACK, 101, 7_001)]
            );
            assert_eq!(
                play(&mut crew, server, client, 7_001, 101, Flags::ACK),
                [(1, Flags::ACK, shown, 101)]
            );
        }
        assert!(crew.carried > 0 && crew.is_conserved());
        let flows: u32 = crew.workers.iter().map(|worker| worker.shard.flows.len()).sum();
        assert_eq!(flows, 20);
    }
}

/// Workers of one end of a tunnel, with frames under way between them, which arrive in any order.
struct Site {
    crew: Crew,
    under_way: Vec<(u16, wire::Meta, Vec<u8>)>,
}

impl Site {
    /// An end whose workers share tables, as a host's do.
    fn new(text: &str, workers: u16) -> Site {
        let mut crew = Crew::new(text, workers);
        let tables = std::rc::Rc::new(crate::scene::tables(text));
        let member = |worker| Member { steering: crew.steering.clone(), worker };
        crew.workers =
            (0..workers).map(|worker| Gateway::member_of(tables.clone(), member(worker))).collect();
        Site { crew, under_way: Vec::new() }
    }

    /// Takes frames in, each at any of the workers, while some are under way between them.
    fn take(&mut self, port: u16, frames: &[Vec<u8>], random: &mut Random) -> Out {
        let workers = self.crew.workers.len() as u64;
        for (number, bytes) in frames.iter().enumerate() {
            let at = START;
            let arrival = Arrival { port: PortId(port), at, number: number as u32, bytes: bytes.clone() };
            let worker = random.below(workers) as usize;
            self.crew.workers[worker].receive(std::slice::from_ref(&arrival));
            self.under_way.append(&mut self.crew.workers[worker].given(|| false));
            while self.under_way.len() as u64 > random.below(12) {
                self.carry(random);
            }
        }
        while !self.under_way.is_empty() {
            self.carry(random);
        }
        self.crew.out()
    }

    fn carry(&mut self, random: &mut Random) {
        let next = random.below(self.under_way.len() as u64) as usize;
        let (worker, meta, bytes) = self.under_way.remove(next);
        let worker = &mut self.crew.workers[usize::from(worker)];
        worker.take(&meta, &bytes);
        self.under_way.append(&mut worker.given(|| false));
        self.crew.carried += 1;
    }
}

/// Numbers are everybody's, and windows are one's: of packets that come to any worker, some of them twice, each is taken once, and what
/// leaves is numbered without a gap.
#[test]
fn tunnels_of_several_workers_do_what_those_of_one_do() {
    use crate::esp::{LAN, Outer, WAN, packet, site};
    let mut random = Random::new(31);
    for round in 0..30 {
        let outer = if round % 2 == 0 { Outer::V4 } else { Outer::V6 };
        let texts = [site(1, 2, outer, ""), site(2, 1, outer, "")];
        let texts = texts.map(|text| {
            let mode = if round % 3 == 0 { "mode = \"stateless\"\n" } else { "" };
            format!("{mode}{text}")
        });
        let mut near = Site::new(&texts[0], 2 + round % 3);
        let mut far = Site::new(&texts[1], 2 + (round / 3) % 3);
        let mut one = Gateway::new(&texts[1], Way::Run);
        let frames: Vec<Vec<u8>> = (0..60).map(|_| packet(1, 2, 40, &mut random)).collect();
        let mut sealed: Vec<Vec<u8>> =
            near.take(LAN, &frames, &mut random).sent.into_iter().map(|sent| sent.bytes).collect();
        let number = |frame: &Vec<u8>| {
            let esp = 14 + if matches!(outer, Outer::V4) { 20 } else { 40 };
            u32::from_be_bytes(frame[esp + 4..esp + 8].try_into().unwrap())
        };
        let mut numbers: Vec<u32> = sealed.iter().map(number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=60).collect::<Vec<u32>>(), "round {round}");
        // Out of order, and a third of them twice.
        for place in 0..20 {
            sealed.insert(random.below(60) as usize, sealed[place * 3].clone());
        }
        let opened = far.take(WAN, &sealed, &mut random);
        let replayed = Verdict::Dropped(Reason::Replayed);
        assert_eq!(
            opened.ended.iter().filter(|(_, verdict)| *verdict == replayed).count(),
            20,
            "round {round}"
        );
        let alone = {
            for (number, bytes) in sealed.iter().enumerate() {
                let (port, number, bytes) = (PortId(WAN), number as u32, bytes.clone());
                one.receive(&[Arrival { port, at: START, number, bytes }]);
            }
            one.out(usize::MAX)
        };
        let inner = |out: &Out| {
            let mut all: Vec<Vec<u8>> = out.sent.iter().map(|sent| sent.bytes.clone()).collect();
            all.sort();
            all
        };
        assert_eq!(inner(&opened).len(), 60, "round {round}");
        assert_eq!(inner(&opened), inner(&alone), "round {round}");
        assert!(near.crew.is_conserved() && far.crew.is_conserved());
        assert!(far.crew.carried > 20, "round {round}: {}", far.crew.carried);
    }
}

#[test]
fn an_expected_connection_finds_the_worker_that_expects_it() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[interface.wan]\nzone = \"wan\"\n\
                addresses = [\"203.0.113.2/24\"]\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[[rule]]\nname = \"ftp\"\n\
                from = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\ndport = 21\nhelper = \"ftp\"\naction = \"accept\"\n";
    let masquerade = "[[nat]]\nname = \"office\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n";
    let (client, server) = ([192, 168, 1, 10], [198, 51, 100, 7]);
    for workers in 2..=4 {
        for (more, outside) in [("", client), (masquerade, [203, 0, 113, 2])] {
            for host in 0..workers {
                let mut crew = Crew::new(&(text.to_owned() + more), workers);
                let mut number = 0;
                let mut send = |port, worker: u16, from: [u8; 4], to: [u8; 4], tcp: Tcp<'_>, data: &[u8]| {
                    number += 1;
                    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
                    let bytes = link.ipv4(from.into(), to.into()).tcp(tcp).payload(data).to_vec();
                    let at = START + Nanos(u64::from(number));
                    let out = crew.receive(worker.into(), &Arrival { port: PortId(port), at, number, bytes });
                    let sent = out
                        .sent
                        .first()
                        .unwrap_or_else(|| panic!("{workers} {more} {host}: {out:?}"))
                        .clone();
                    assert_eq!(sent.verdict, Some(Verdict::Forwarded));
                    sent.bytes
                };
                let ends = Tcp { sport: 50_000, dport: 21, ..Tcp::default() };
                let syn = send(0, host, client, server, Tcp { seq: 9, flags: Flags::SYN, ..ends }, &[]);
                let shown = Ports::of(ipv4::parse(&syn[14..]).unwrap().payload).unwrap().sport;
                let back = Tcp { sport: 21, dport: shown, seq: 99, ack: 10, ..Tcp::default() };
                send(1, 0, server, outside, Tcp { flags: Flags::SYN_ACK, ..back }, &[]);
                let data = b"PORT 192,168,1,10,200,1\r\n";
                let said = Tcp { seq: 10, ack: 100, flags: Flags::ACK, ..ends };
                let told = send(0, (host + 1) % workers, client, server, said, data);
                let payload = &told[14 + 20 + 20..];
                let words: Vec<u16> = String::from_utf8_lossy(payload)
                    .trim_end()
                    .rsplit(',')
                    .take(2)
                    .map(|word| word.parse().unwrap())
                    .collect();
                let port = words[1] * 256 + words[0];
                for worker in 0..workers {
                    // Once each: the SYN is repeated.
                    let call = Tcp { sport: 20, dport: port, seq: 7, flags: Flags::SYN, ..Tcp::default() };
                    send(1, worker, server, outside, call, &[]);
                }
            }
        }
    }
}

/// GRE of a PPTP call comes to any worker, in either direction, and so does an error about it.
#[test]
fn a_call_finds_the_worker_that_expects_it() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[interface.wan]\nzone = \"wan\"\n\
                addresses = [\"203.0.113.2/24\"]\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[[rule]]\nname = \"pptp\"\n\
                from = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\ndport = 1723\nhelper = \"pptp\"\naction = \"accept\"\n\
                [[nat]]\nname = \"office\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n";
    let (server, outside) = ([198, 51, 100, 7], [203, 0, 113, 2]);
    let message = |kind: u8, len: u8, ids: [u16; 3]| {
        let mut bytes = vec![0; usize::from(len)];
        bytes[..12].copy_from_slice(&[0, len, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0]);
        for (at, id) in (12..usize::from(len)).step_by(2).zip(ids) {
            bytes[at..at + 2].copy_from_slice(&id.to_be_bytes());
        }
        bytes
    };
    let gre_of = |call: u16| [&[0x20, 1, 0x88, 0x0b, 0, 0][..], &call.to_be_bytes(), &[7; 8]].concat();
    for workers in 2..=4_u16 {
        let mut crew = Crew::new(text, workers);
        let mut number = 0;
        let mut send = |port, worker: u16, packet: Packet<'_>| {
            number += 1;
            let at = START + Nanos(u64::from(number));
            let arrival = Arrival { port: PortId(port), at, number, bytes: packet.to_vec() };
            let out = crew.receive(worker.into(), &arrival);
            let sent = out.sent.first().unwrap_or_else(|| panic!("{workers}: {number}: {out:?}")).clone();
            assert_eq!(sent.verdict, Some(Verdict::Forwarded));
            sent.bytes
        };
        let link = || build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
        let mut known = Vec::new();
        // Clients of different workers that have chosen the same call ID.
        for host in 0..6_u8 {
            let client = [192, 168, 1, 10 + host];
            let there = || link().ipv4(client.into(), server.into());
            let back = || link().ipv4(server.into(), outside.into());
            let ends = Tcp { sport: 50_000, dport: 1723, ..Tcp::default() };
            let syn = send(0, 0, there().tcp(Tcp { seq: 9, flags: Flags::SYN, ..ends }));
            let shown = Ports::of(ipv4::parse(&syn[14..]).unwrap().payload).unwrap().sport;
            let answer = Tcp { sport: 1723, dport: shown, seq: 99, ack: 10, ..Tcp::default() };
            send(1, 0, back().tcp(Tcp { flags: Flags::SYN_ACK, ..answer }));
            let request = message(7, 168, [4_000, 0, 0]);
            let told = send(
                0,
                1,
                there().tcp(Tcp { seq: 10, ack: 100, flags: Flags::ACK, ..ends }).payload(&request),
            );
            let call = u16::from_be_bytes([told[14 + 20 + 20 + 12], told[14 + 20 + 20 + 13]]);
            let reply = message(8, 32, [700 + u16::from(host), call, 0x0100]);
            let packet = back().tcp(Tcp { seq: 100, ack: 178, flags: Flags::ACK, ..answer });
            send(1, 1, packet.payload(&reply));
            known.push((client, 700 + u16::from(host), call));
        }
        let mut calls: Vec<u16> = known.iter().map(|(.., call)| *call).collect();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), known.len(), "each has one of its own");
        for (client, peer, call) in known {
            for worker in 0..workers {
                let there = link().ipv4(client.into(), server.into()).protocol(Protocol::GRE);
                let left = send(0, worker, there.payload(&gre_of(peer)));
                assert_eq!(&left[26..34], [outside, server].concat());
                let back = link().ipv4(server.into(), outside.into()).protocol(Protocol::GRE);
                let came = send(1, worker, back.payload(&gre_of(call)));
                assert_eq!((&came[30..34], &came[34..]), (&client[..], &gre_of(4_000)[..]));
                let error = link().ipv4([203, 0, 113, 1].into(), outside.into());
                let kind = build::Icmp { kind: 11, code: 0, ..build::Icmp::default() };
                let told = send(1, worker, error.icmpv4(kind).payload(&left[14..]));
                assert_eq!((&told[30..34], &told[54..58]), (&client[..], &client[..]));
            }
        }
    }
}
