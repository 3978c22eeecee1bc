//! Cost of each stage per frame, as tallied and as executed by the processor: for `bench/tally`.
//!
//! `stages KIND PACKETS` takes that many frames of a kind of traffic through a gateway, once with a tally and once without, and prints, as
//! JSON, the sums of each stage: instructions and references tallied, instructions executed. Without arguments, the kinds are listed.
#![allow(missing_docs, clippy::unwrap_used)] // A failure here is the programmer's.

use std::collections::BTreeMap;
use std::env;
use std::hint::black_box;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::panic::Location;

use dataplane::egress::Next;
use dataplane::flow::{FlowTable, Key, Timeouts};
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::pipeline::Watch;
use dataplane::replay::SEED;
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::{Pipeline, Shard, Tables};
use tally::{NoTally, Op, Region, Tally};
use wire::aal5::Segmentation;
use wire::atm::{self, Vc};
use wire::build::{self, Icmp, Packet, Tcp};
use wire::ethernet::{EtherType, Mac};
use wire::header::Protocol;
use wire::link_kind::{LinkKind, STAND_IN};
use wire::rfc2684::{Encapsulation, Head};
use wire::tcp::Flags;
use wire::{Batch, Frame, Nanos, Pool, PortId};

mod machine;

use machine::Counters;

/// Name of an opportunity to send among the stages.
const SCHEDULE: &str = "schedule";

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.as_slice() {
        [] => KINDS.iter().for_each(|kind| println!("{}", kind.name)),
        [name, packets] => {
            let kind = KINDS.iter().find(|kind| kind.name == name).expect("no such kind");
            measure(*kind, packets.parse().unwrap());
        }
        _ => eprintln!("usage: stages [KIND PACKETS]"),
    }
}

/// A kind of traffic.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    protocol: Protocol,
    v6: bool,
    policy: Policy,
    shape: Shape,
}

/// Kind of gateway.
#[derive(Clone, Copy, PartialEq)]
enum Policy {
    /// Routes only, whose sources are at home behind the interface that they come by.
    Stateless,
    /// Routes only.
    Unchecked,
    /// Rules that every packet meets, and routes.
    Ruled,
    /// A stateful firewall.
    Firewall,
    /// A stateful firewall that translates source address and port.
    Napt,
    /// A stateful firewall that meters and marks.
    DiffServ,
    /// The same, by a bucket of one rate.
    Policed,
    /// A stateful firewall before a tree of queues: shaped subscribers, each of four queues.
    Scheduled,
    /// Routes only, with an ATM channel (routed, LLC) towards the internet.
    Channel,
    /// A stateful firewall before a tree of the six queues of DiffServ, not shaped.
    Queued,
}

/// Packets of a flow to measure.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Each opens a flow, or is one where nothing is tracked.
    First,
    /// Both directions of flows that have been decided, in turn.
    Established,
    /// First ones that a rule drops.
    Refused,
    /// TCP beyond the window of an established connection.
    OutOfWindow,
    /// TCP of a connection that was never opened.
    NotOpen,
    /// First packets of flows, whose time to live expires.
    Expired,
    /// Cells of packets from the outside, two of each.
    Cells,
}

const fn kind(name: &'static str, protocol: Protocol, v6: bool, policy: Policy, shape: Shape) -> Kind {
    Kind { name, protocol, v6, policy, shape }
}

const KINDS: &[Kind] = &[
    kind("stateless", Protocol::UDP, false, Policy::Stateless, Shape::First),
    kind("unchecked", Protocol::UDP, false, Policy::Unchecked, Shape::First),
    kind("ruled", Protocol::UDP, false, Policy::Ruled, Shape::First),
    kind("udp", Protocol::UDP, false, Policy::Firewall, Shape::Established),
    kind("tcp", Protocol::TCP, false, Policy::Firewall, Shape::Established),
    kind("icmp", Protocol::ICMP, false, Policy::Firewall, Shape::Established),
    kind("udp-napt", Protocol::UDP, false, Policy::Napt, Shape::Established),
    kind("tcp-napt", Protocol::TCP, false, Policy::Napt, Shape::Established),
    kind("icmp-napt", Protocol::ICMP, false, Policy::Napt, Shape::Established),
    kind("udp-metered", Protocol::UDP, false, Policy::DiffServ, Shape::Established),
    kind("udp-policed", Protocol::UDP, false, Policy::Policed, Shape::Established),
    kind("udp-scheduled", Protocol::UDP, false, Policy::Scheduled, Shape::Established),
    kind("udp-queued", Protocol::UDP, false, Policy::Queued, Shape::Established),
    kind("udp-metered-first", Protocol::UDP, false, Policy::DiffServ, Shape::First),
    kind("udp-first", Protocol::UDP, false, Policy::Firewall, Shape::First),
    kind("tcp-first", Protocol::TCP, false, Policy::Firewall, Shape::First),
    kind("udp-napt-first", Protocol::UDP, false, Policy::Napt, Shape::First),
    kind("tcp-napt-first", Protocol::TCP, false, Policy::Napt, Shape::First),
    kind("udp-refused", Protocol::UDP, false, Policy::Firewall, Shape::Refused),
    kind("tcp-refused", Protocol::TCP, false, Policy::Firewall, Shape::Refused),
    kind("tcp-out-of-window", Protocol::TCP, false, Policy::Firewall, Shape::OutOfWindow),
    kind("tcp-not-open", Protocol::TCP, false, Policy::Firewall, Shape::NotOpen),
    kind("udp-expired", Protocol::UDP, false, Policy::Firewall, Shape::Expired),
    kind("cells", Protocol::UDP, false, Policy::Channel, Shape::Cells),
    kind("udp6-stateless", Protocol::UDP, true, Policy::Stateless, Shape::First),
    kind("udp6", Protocol::UDP, true, Policy::Firewall, Shape::Established),
    kind("tcp6", Protocol::TCP, true, Policy::Firewall, Shape::Established),
    kind("udp6-first", Protocol::UDP, true, Policy::Firewall, Shape::First),
];

/// Nanoseconds from one frame to the next.
const PERIOD: u64 = 100;

/// Flows that have been decided before established ones are measured.
const FLOWS: u32 = 64;

/// The port that a rule refuses.
const REFUSED: u16 = 9;

impl Kind {
    /// Policy of an edge gateway: zones, a route to the internet, and ten rules before the two that decide.
    fn text(self) -> String {
        let mut text = String::new();
        let is_plain = matches!(self.policy, Policy::Stateless | Policy::Unchecked | Policy::Channel);
        if is_plain || self.policy == Policy::Ruled {
            text.push_str("mode = \"stateless\"\n");
        }
        text.push_str(
            r#"
            [interface.lan]
            zone = "lan"
            addresses = ["10.0.0.1/24", "2001:db8:1::1/64"]
            mac = "02:00:00:00:00:01"
            [interface.wan]
            zone = "wan"
            addresses = ["203.0.113.2/24", "2001:db8:2::2/64"]
            mac = "02:00:00:00:00:02"
            [[route]]
            to = "0.0.0.0/0"
            via = "203.0.113.1"
            [[route]]
            to = "10.0.0.0/8"
            via = "10.0.0.2"
            [[route]]
            to = "::/0"
            via = "2001:db8:2::1"
            [[route]]
            to = "2001:db8:a::/48"
            via = "2001:db8:1::2"
            "#,
        );
        if self.policy == Policy::Channel {
            text = text.replace("mac = \"02:00:00:00:00:02\"", "link = \"ip\"\natm = { vc = \"8/35\" }");
        }
        if self.policy == Policy::Unchecked {
            text = text.replace("addresses = ", "source-check = \"off\"\naddresses = ");
        }
        if is_plain {
            text.push_str("[default]\n\"any > any\" = \"accept\"\n");
            return text;
        }
        // Every packet that asks for an answer gets one.
        if self.policy != Policy::Ruled {
            text.push_str("[limit]\nflows = 65536\nerrors-per-second = 1000000\n");
        }
        for rule in 0..10 {
            text.push_str(&format!(
                "[[rule]]\nname = \"service-{rule}\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\n\
                 destination = \"198.51.{rule}.0/24\"\ndport = {}\naction = \"accept\"\n",
                1000 + rule
            ));
        }
        for protocol in ["tcp", "udp"] {
            text.push_str(&format!(
                "[[rule]]\nname = \"discard-{protocol}\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"{protocol}\"\n\
                 dport = {REFUSED}\naction = \"drop\"\n"
            ));
        }
        text.push_str("[[rule]]\nname = \"out\"\nfrom = \"lan\"\nto = \"wan\"\naction = \"accept\"\n");
        if self.policy == Policy::DiffServ {
            text.push_str(
                "[[class]]\nname = \"gold\"\nprotocol = \"udp\"\nmeter = \"gold\"\n\
                 [[meter]]\nname = \"gold\"\nkind = \"trtcm\"\nrate = \"1 Gbit/s\"\nburst = 100000000\n\
                 peak-rate = \"2 Gbit/s\"\npeak-burst = 100000000\ngreen = \"af11\"\nyellow = \"af12\"\n",
            );
        }
        if self.policy == Policy::Policed {
            text.push_str(
                "[[class]]\nname = \"gold\"\nprotocol = \"udp\"\nmeter = \"gold\"\nmark = \"af11\"\n\
                 [[meter]]\nname = \"gold\"\nkind = \"leaky-bucket\"\nrate = \"1 Gbit/s\"\nburst = 100000000\n",
            );
        }
        if self.policy == Policy::Scheduled {
            text.push_str(
                "[[queue]]\nname = \"root\"\non = [\"lan\", \"wan\"]\nrate = \"10 Gbit/s\"\n\
                 [[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\nrate = \"10 Gbit/s\"\n",
            );
            for (leaf, phb) in ["phb = \"ef\"", "phb = \"af1\"", "phb = \"af2\"", ""].iter().enumerate() {
                text.push_str(&format!("[[queue]]\nname = \"{leaf}\"\nin = \"subscriber\"\n{phb}\n"));
            }
        }
        if self.policy == Policy::Queued {
            text.push_str("[[queue]]\nname = \"edge\"\non = [\"lan\", \"wan\"]\ntemplate = \"diffserv\"\n");
        }
        if self.policy == Policy::Napt {
            text.push_str(
                "[[nat]]\nname = \"napt\"\nkind = \"source\"\nfrom = \"lan\"\nto = \"wan\"\n\
                 source = \"10.0.0.0/8\"\npool = [\"203.0.113.100-203.0.113.131\"]\n",
            );
        }
        text
    }

    /// The ends of a flow as its inside host has them.
    fn ends(self, flow: u32) -> Ends {
        let sport = 10_000 + (flow % 16) as u16;
        let dport = if self.shape == Shape::Refused { REFUSED } else { 443 };
        let host = flow / 16;
        let (inside, outside): (IpAddr, IpAddr) = if self.v6 {
            let net = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 0).to_bits();
            (
                Ipv6Addr::from_bits(net | u128::from(host + 1)).into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, (flow % 251) as u16 + 1).into(),
            )
        } else {
            (
                Ipv4Addr::from_bits(0x0a01_0001 + host).into(),
                Ipv4Addr::from_bits(0xc633_6400 + flow % 251 + 1).into(),
            )
        };
        Ends { from: inside, to: outside, sport, dport }
    }

    /// A packet in the role `what`, from the inside or towards it.
    fn packet(self, ends: Ends, what: Saying, outward: bool) -> Load {
        let mac = |last| Mac([2, 0, 0, 0, 0, last]);
        let (ends, link, ingress) = if outward {
            (ends, build::ethernet(mac(9), mac(1)), PortId(0))
        } else {
            (ends.turned(), build::ethernet(mac(8), mac(2)), PortId(1))
        };
        let ip = match (ends.from, ends.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from, to),
            _ => panic!("ends of one family"),
        };
        let ip = ip.ttl(if self.shape == Shape::Expired { 1 } else { 64 });
        Load { bytes: self.transport(ip, ends, what, outward).to_vec(), ingress }
    }

    /// The two cells of a packet from the outside.
    fn cells(self, ends: Ends) -> [Load; 2] {
        let Load { bytes, ingress } = self.packet(ends, Saying::Opens, false);
        let vc = Vc { vpi: 8, vci: 35 };
        let head = Head::new(Encapsulation::Llc, LinkKind::Ip, EtherType::IPV4);
        let mut cells = Segmentation::new(vc, head.bytes(), &bytes[STAND_IN..]).unwrap();
        [(); 2].map(|()| Load { bytes: atm::stand_in(&cells.next().unwrap()).to_vec(), ingress })
    }

    fn transport<'a>(self, ip: Packet<'a>, ends: Ends, what: Saying, outward: bool) -> Packet<'a> {
        const DATA: &[u8] = &[0x5a; 20];
        match self.protocol {
            Protocol::UDP => ip.udp(ends.sport, ends.dport).payload(DATA),
            Protocol::ICMP => {
                let (kind, id) = if outward { (8, ends.sport) } else { (0, ends.dport) };
                ip.icmpv4(Icmp::echo(kind, id, 1)).payload(DATA)
            }
            _ => {
                let (flags, seq, ack) = match what {
                    Saying::Opens => (Flags::SYN, 0, 0),
                    Saying::Accepts => (Flags(Flags::SYN.0 | Flags::ACK.0), 0, 1),
                    Saying::Goes => (Flags::ACK, 1, 1),
                    Saying::GoesAstray => (Flags::ACK, 0x7000_0000, 1),
                };
                let data = if matches!(what, Saying::Goes | Saying::GoesAstray) { DATA } else { &[] };
                let header = Tcp { sport: ends.sport, dport: ends.dport, seq, ack, flags, ..Tcp::default() };
                ip.tcp(header).payload(data)
            }
        }
    }
}

/// Role of a packet in its connection.
#[derive(Clone, Copy)]
enum Saying {
    Opens,
    Accepts,
    Goes,
    GoesAstray,
}

/// Ends of a packet.
#[derive(Clone, Copy)]
struct Ends {
    from: IpAddr,
    to: IpAddr,
    sport: u16,
    dport: u16,
}

impl Ends {
    fn turned(self) -> Ends {
        Ends { from: self.to, to: self.from, sport: self.dport, dport: self.sport }
    }
}

/// A frame, and the port it comes in by.
struct Load {
    bytes: Vec<u8>,
    ingress: PortId,
}

/// A gateway and time.
struct Gateway {
    tables: Tables,
    shard: Shard,
    pipeline: Pipeline,
    pool: Pool,
    batch: Batch,
    ended: Vec<Frame>,
    now: Nanos,
}

impl Gateway {
    fn new(kind: Kind) -> Gateway {
        let checked = policy::check(&kind.text(), "stages");
        let errors: Vec<_> = checked.errors().map(|error| error.message.clone()).collect();
        let policy = checked.policy.unwrap_or_else(|| panic!("{errors:?}"));
        let tables = Tables::compile(&policy, 1).unwrap();
        let now = Nanos::from_secs(1_000);
        let shard =
            Shard::new(&tables, Setup { seed: SEED, now, resolve: Resolve::Assume, share: Share::WHOLE })
                .unwrap();
        Gateway {
            tables,
            shard,
            pipeline: Pipeline::default(),
            pool: Pool::new(128, 2_048).unwrap(),
            batch: Batch::new(),
            ended: Vec::new(),
            now,
        }
    }

    /// Takes one frame through, stage by stage, and returns the frame sent; `next` is its opportunity to be sent.
    #[inline(always)]
    fn pass<T: Tally + 'static>(
        &mut self,
        load: &Load,
        tally: &mut T,
        watch: &mut impl Watch<T>,
        next: &mut impl FnMut(&mut Shard, PortId, Nanos) -> Next,
    ) -> Option<Vec<u8>> {
        self.now += Nanos(PERIOD);
        let frame = self.batch.extend_from(&mut self.pool).unwrap();
        assert!(frame.fill(&load.bytes));
        frame.meta.ingress = load.ingress;
        frame.meta.received = self.now;
        let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally };
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, watch);
        for frame in self.ended.drain(..) {
            self.pool.put(frame);
        }
        let waits: Option<usize> = self.shard.egress.lengths().position(|length| length > 0);
        let port = PortId(waits? as u16);
        // A shaper lets a frame go in its time, which is over before the next frame comes.
        let until = self.now + Nanos(PERIOD - 1);
        match next(&mut self.shard, port, until) {
            Next::Frame(frame, _) => {
                let sent = frame.bytes().to_vec();
                self.pool.put(frame);
                Some(sent)
            }
            _ => panic!("it departs"),
        }
    }

    /// Sets a connection up, and gives its ends as the outside has them.
    fn open(&mut self, kind: Kind, flow: u32) -> Ends {
        let inside = kind.ends(flow);
        let mut next = |shard: &mut Shard, port, now| schedule_one(shard, port, now, &mut NoTally);
        let mut pass = |load: Load| self.pass(&load, &mut NoTally, &mut (), &mut next).expect("it passes");
        let sent = pass(kind.packet(inside, Saying::Opens, true));
        let outside = seen_outside(inside, &sent, kind.protocol);
        if kind.protocol == Protocol::TCP {
            pass(kind.packet(outside, Saying::Accepts, false));
        }
        pass(kind.packet(inside, Saying::Goes, true));
        pass(kind.packet(outside, Saying::Goes, false));
        outside
    }
}

/// An opportunity to send. Of a port with a tree it is the scheduler's: the frame is queued in it, and its turn found.
#[inline(never)]
fn schedule_one<T: Tally>(shard: &mut Shard, port: PortId, now: Nanos, tally: &mut T) -> Next {
    shard.next_tallied(port, now, tally)
}

/// A flow's ends after translation, read off a frame that was sent.
fn seen_outside(inside: Ends, sent: &[u8], protocol: Protocol) -> Ends {
    if inside.from.is_ipv6() {
        return inside;
    }
    let word = |at: usize| u16::from_be_bytes([sent[at], sent[at + 1]]);
    let from = Ipv4Addr::from_bits(u32::from(word(26)) << 16 | u32::from(word(28)));
    // An echo's identifier is where it stands for a port.
    let sport = word(if protocol == Protocol::ICMP { 38 } else { 34 });
    Ends { from: from.into(), sport, ..inside }
}

/// A gateway that is ready, and the load to measure.
fn prepare(kind: Kind, packets: u32) -> (Gateway, Vec<Load>) {
    let mut gateway = Gateway::new(kind);
    let opens = matches!(kind.shape, Shape::Established | Shape::OutOfWindow);
    let outside: Vec<Ends> =
        if opens { (0..FLOWS).map(|flow| gateway.open(kind, flow)).collect() } else { Vec::new() };
    if kind.shape == Shape::Cells {
        return (gateway, (0..packets / 2).flat_map(|flow| kind.cells(kind.ends(flow))).collect());
    }
    let load = (0..packets).map(|number| {
        let flow = if opens { number / 2 % FLOWS } else { number };
        match kind.shape {
            Shape::Established if number % 2 == 1 => kind.packet(outside[flow as usize], Saying::Goes, false),
            Shape::Established | Shape::NotOpen => kind.packet(kind.ends(flow), Saying::Goes, true),
            Shape::OutOfWindow => kind.packet(kind.ends(flow), Saying::GoesAstray, true),
            Shape::First | Shape::Refused | Shape::Expired | Shape::Cells => {
                kind.packet(kind.ends(flow), Saying::Opens, true)
            }
        }
    });
    let load = load.collect();
    (gateway, load)
}

/// Tallies of a stage.
#[derive(Clone, Default)]
struct Sum {
    frames: u64,
    ops: [u64; Op::ALL.len()],
    references: u64,
    /// Words of 32 bits that these move: loads and stores of a processor.
    words: u64,
    hashes: u64,
    /// All of these, by the file and line that told them.
    places: BTreeMap<(&'static str, u32), u64>,
}

impl Sum {
    fn told(&mut self, from: &'static Location<'static>, count: u64) {
        *self.places.entry((from.file(), from.line())).or_default() += count;
    }

    #[track_caller]
    fn referred(&mut self, bytes: u32) {
        self.references += 1;
        self.words += u64::from(bytes.div_ceil(4));
        self.told(Location::caller(), 1);
    }
}

impl Tally for Sum {
    #[track_caller]
    fn execute(&mut self, op: Op, count: u32) {
        self.ops[op as usize] += u64::from(count);
        self.told(Location::caller(), u64::from(count));
    }
    #[track_caller]
    fn read(&mut self, _: Region, _: usize, bytes: u32) {
        self.referred(bytes);
    }
    #[track_caller]
    fn write(&mut self, _: Region, _: usize, bytes: u32) {
        self.referred(bytes);
    }
    #[track_caller]
    fn atomic(&mut self, _: Region, _: usize, bytes: u32) {
        // Read and written.
        self.referred(2 * bytes);
    }
    #[track_caller]
    fn hash(&mut self, _: u32) {
        self.hashes += 1;
        self.told(Location::caller(), 1);
    }
}

/// Sums what each stage tallies.
#[derive(Default)]
struct Sums {
    stages: BTreeMap<&'static str, Sum>,
}

impl Watch<Sum> for Sums {
    fn before(&mut self, stage: &'static str, _: &Frame, cx: &mut Cx<'_, Sum>) {
        *cx.tally = self.stages.remove(stage).unwrap_or_default();
    }

    fn after(&mut self, stage: &'static str, _: &Frame, cx: &mut Cx<'_, Sum>) {
        cx.tally.frames += 1;
        self.stages.insert(stage, mem::take(cx.tally));
    }
}

/// Sums the instructions that each stage executes.
#[derive(Default)]
struct Counter {
    stages: BTreeMap<&'static str, u64>,
    /// Counters before the stage.
    began: Counters,
    /// Instructions that a stage takes that does nothing: those of the call, and of the counting.
    nothing: u32,
}

impl Watch<NoTally> for Counter {
    #[inline(always)]
    fn before(&mut self, _: &'static str, _: &Frame, _: &mut Cx<'_, NoTally>) {
        self.began = Counters::read();
    }

    #[inline(always)]
    fn after(&mut self, stage: &'static str, _: &Frame, _: &mut Cx<'_, NoTally>) {
        let ended = Counters::read();
        self.count(stage, ended);
    }
}

impl Counter {
    #[inline(never)]
    fn count(&mut self, stage: &'static str, ended: Counters) {
        *self.stages.entry(stage).or_default() += u64::from(ended.since(self.began) - self.nothing);
    }
}

/// Takes frames through with a tally and, in a gateway of its own, without, and prints both sums.
fn measure(kind: Kind, packets: u32) {
    let (mut gateway, load) = prepare(kind, packets);
    let (mut sums, mut sent) = (Sums::default(), 0);
    let mut scheduler = Sum::default();
    let mut next = |shard: &mut Shard, port, now| schedule_one(shard, port, now, &mut scheduler);
    for load in &load {
        sent += u64::from(gateway.pass(load, &mut Sum::default(), &mut sums, &mut next).is_some());
    }
    let (mut gateway, load) = prepare(kind, packets);
    let mut counter = Counter::default();
    counter.nothing = nothing(&mut gateway, &mut counter);
    let mut scheduled = 0;
    let mut next = |shard: &mut Shard, port, now| {
        let began = Counters::read();
        let next = schedule_one(shard, port, now, &mut NoTally);
        scheduled += u64::from(Counters::read().since(began));
        next
    };
    for load in &load {
        gateway.pass(load, &mut NoTally, &mut counter, &mut next);
    }
    counter.stages.insert(SCHEDULE, scheduled);
    if matches!(kind.policy, Policy::Scheduled | Policy::Queued) {
        scheduler.frames = sent;
        sums.stages.insert(SCHEDULE, scheduler);
    }
    let executed = |stage| counter.stages.get(stage).copied().unwrap_or(0);
    let stages: Vec<String> =
        sums.stages.iter().map(|(stage, sum)| sum.json(stage, executed(stage))).collect();
    println!(
        "{{\"kind\":\"{}\",\"packets\":{packets},\"sent\":{sent},\"hash\":{},\"stages\":[{}]}}",
        kind.name,
        hash(kind.v6),
        stages.join(",")
    );
}

/// Instructions counted of a stage that does nothing.
fn nothing(gateway: &mut Gateway, counter: &mut Counter) -> u32 {
    let stage: fn(&mut Frame, &mut Cx<'_, NoTally>) = black_box(|_, _| {});
    let mut frame = gateway.pool.take().unwrap();
    let mut cx = Cx {
        tables: &gateway.tables,
        shard: &mut gateway.shard,
        pool: &mut gateway.pool,
        tally: &mut NoTally,
    };
    counter.before("", &frame, &mut cx);
    stage(&mut frame, &mut cx);
    let nothing = Counters::read().since(counter.began);
    gateway.pool.put(frame);
    nothing
}

impl Sum {
    fn json(&self, stage: &str, executed: u64) -> String {
        let ops: Vec<String> =
            Op::ALL.iter().zip(self.ops).map(|(op, count)| format!("\"{}\":{count}", op.name())).collect();
        let places: Vec<String> =
            self.places.iter().map(|((file, line), count)| format!("[\"{file}\",{line},{count}]")).collect();
        format!(
            "{{\"stage\":\"{stage}\",\"frames\":{},{},\"references\":{},\"words\":{},\"hashes\":{},\"executed\":{executed},\"places\":[{}]}}",
            self.frames,
            ops.join(","),
            self.references,
            self.words,
            self.hashes,
            places.join(",")
        )
    }
}

/// Instructions of a hash of a key: the work that a hash unit would take off the processor.
fn hash(v6: bool) -> u32 {
    let table = FlowTable::new(1, SEED, Timeouts::new(|_| Nanos::from_secs(1)), Nanos(0)).unwrap();
    let key = match v6 {
        false => Key::v4(0x0a00_0001, 0xc633_6401, 10_000, 443, 17),
        true => Key::v6(1 << 64, 2 << 64, 10_000, 443, 17),
    };
    let key = black_box(&key);
    let began = Counters::read();
    let hash = table.hash(key, &mut NoTally);
    let ended = Counters::read();
    black_box(hash);
    ended.since(began)
}
