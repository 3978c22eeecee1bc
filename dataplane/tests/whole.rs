//! Packets of many segments that go through the stages whole, against their segments one after the other: the same frames leave, the same
//! counters, records, flows and tokens are left behind.

use std::collections::BTreeMap;

use dataplane::egress::Next;
use dataplane::replay::Way;
use dataplane::state::{Cursor, Item};
use proptest::prelude::*;
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::random::Random;
use wire::{Nanos, PortId, ipv4, ipv6, udp};

use crate::accounting::{exporting, reports};
use crate::scene::packet::Packets;
use crate::scene::talk::{OFFICE, Side, Talk};
use crate::scene::{Arrival, Gateway, START, packet, policy, segments};

/// Numbers of packets of many segments.
#[derive(Clone, Copy, Debug, Default)]
struct Went {
    /// Packets that went whole.
    whole: u64,
    /// Of these, those that were dropped so.
    dropped: u64,
    /// Packets that were cut.
    cut: u64,
}

impl Went {
    fn and(self, other: Went) -> Went {
        Went {
            whole: self.whole + other.whole,
            dropped: self.dropped + other.dropped,
            cut: self.cut + other.cut,
        }
    }
}

/// Two gateways, of which one takes whole what it can.
struct Pair {
    whole: Gateway,
    cut: Gateway,
    went: Went,
    /// Time of the last frame.
    last: Nanos,
}

impl Pair {
    fn new(text: &str) -> Pair {
        let [whole, cut] = [(); 2].map(|()| {
            let mut gateway = Gateway::new(text, Way::Run);
            gateway.shard.log.keep(10_000, &gateway.tables);
            exporting(&mut gateway, 10_000);
            gateway
        });
        Pair { whole, cut, went: Went::default(), last: START }
    }

    /// Both receive a frame, or a packet of many segments of `size`.
    fn receive(&mut self, arrival: &Arrival, size: Option<u16>) {
        let parts = size.and_then(|size| segments(&arrival.bytes, size));
        let parts: Vec<_> = match parts {
            Some(parts) => parts.into_iter().map(|bytes| Arrival { bytes, ..arrival.clone() }).collect(),
            None => vec![arrival.clone()],
        };
        self.last = arrival.at;
        let is_many = parts.len() > 1;
        let dropped = self.whole.shard.counters.dropped();
        let goes = is_many && self.whole.receive_whole(arrival, size.unwrap_or_default());
        if is_many {
            let is_dropped = goes && self.whole.shard.counters.dropped() > dropped;
            let went = Went { whole: goes.into(), dropped: is_dropped.into(), cut: u64::from(!goes) };
            self.went = self.went.and(went);
        }
        for batch in parts.chunks(64) {
            self.cut.receive(batch);
            if !goes {
                self.whole.receive(batch);
            }
        }
    }

    /// Drains and compares both.
    fn compare(&mut self, text: &str) -> crate::scene::Out {
        let (whole, cut) = (self.whole.out(usize::MAX), self.cut.out(usize::MAX));
        assert_eq!(whole, cut, "whole and cut differ under\n{text}");
        assert_eq!(self.whole.shard.counters, self.cut.shard.counters, "under\n{text}");
        assert!(self.whole.shard.counters.are_conserved());
        let flows = |gateway: &Gateway| {
            let flows = gateway.shard.flows.iter().map(|(id, flow)| (id.0, format!("{flow:?}")));
            flows.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(flows(&self.whole), flows(&self.cut), "flows differ under\n{text}");
        let [whole, other] = [&self.whole, &self.cut].map(|gateway| items(gateway, self.last));
        assert_eq!(whole, other, "tokens differ under\n{text}");
        let [whole, other] = [&mut self.whole, &mut self.cut].map(|gateway| {
            let records = gateway.shard.log.records().to_vec();
            gateway.shard.log.clear();
            records
        });
        assert_eq!(whole, other, "records differ under\n{text}");
        let [whole, other] = [&mut self.whole, &mut self.cut].map(reports);
        assert_eq!(whole, other, "counts of flows differ under\n{text}");
        cut
    }
}

/// All that a gateway would go on from after a restart: flows, and what is missing in buckets.
fn items(gateway: &Gateway, now: Nanos) -> Vec<Item> {
    let mut items = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        next = gateway.shard.export(&gateway.tables, now, from, u32::MAX, |item| items.push(item));
    }
    items
}

/// Adds payload to a TCP or UDP packet; `None` for others.
fn grown(frame: &[u8], by: usize) -> Option<Vec<u8>> {
    let layer = ethernet::parse(frame).ok()?;
    let at = layer.payload_at;
    let mut grown = frame.to_vec();
    let (protocol, transport, end) = if layer.ethertype == EtherType::IPV4 {
        let ip = ipv4::parse(layer.payload).ok()?;
        (ip.header.protocol(), at + ip.header.header_len(), at + usize::from(ip.header.total_len()))
    } else {
        let ip = ipv6::parse(layer.payload).ok().filter(|_| layer.ethertype == EtherType::IPV6)?;
        (ip.protocol(), at + ip.payload_at(), at + 40 + usize::from(ip.header.payload_len()))
    };
    if ![Protocol::TCP, Protocol::UDP].contains(&protocol) {
        return None;
    }
    grown.truncate(end);
    grown.extend((0..by).map(|byte| (byte * 7) as u8));
    let packet = grown.get_mut(at..)?;
    let length = packet.len() as u16;
    if layer.ethertype == EtherType::IPV4 {
        ipv4::HeaderMut::of(packet)?.set_total_len(length);
        ipv4::fill_checksum(packet);
    } else {
        ipv6::HeaderMut::of(packet)?.set_payload_len(length - 40);
    }
    if protocol == Protocol::UDP {
        let datagram = grown.get_mut(transport..)?;
        let length = datagram.len() as u16;
        udp::HeaderMut::of(datagram)?.set_length(length);
    }
    Some(grown)
}

/// Packets of any kind under any policy, some of them grown to many segments.
fn play(seed: &[u8; policy::BYTES], packets: &[[u8; packet::BYTES]], growths: &[(u16, u16)]) -> Went {
    let scene = policy::of(seed);
    let mut pair = Pair::new(&scene.text);
    let mut world = Packets::of(&scene);
    let mut growths = growths.iter().cycle();
    for bytes in packets {
        let mut arrival = world.next(bytes);
        let mut size = None;
        if let Some((by, of)) = growths.next().filter(|(by, _)| by % 3 > 0) {
            // Not more segments than the gateways have slots.
            let (by, of) = (usize::from(*by) % 20_000, *of % 1400 + 300);
            if let Some(bytes) = grown(&arrival.bytes, by) {
                (arrival.bytes, size) = (bytes, Some(of));
            }
        }
        if size.is_some_and(|size| segments(&arrival.bytes, size).is_none()) {
            continue;
        }
        pair.receive(&arrival, size);
        let out = pair.compare(&scene.text);
        world.learn(&out);
    }
    pair.went
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whole_equals_cut(
        seed in any::<[u8; policy::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; packet::BYTES]>(), 1..80),
        growths in prop::collection::vec(any::<(u16, u16)>(), 1..8),
    ) {
        play(&seed, &packets, &growths);
    }
}

/// Generated packets under generated policies without flows, with meters and without.
#[test]
fn generated_packets_go_whole_without_flows() {
    for which in [0, 4 << 5 | 1 << 5, 4 << 5 | 2 << 5, 7 << 5] {
        let mut random = Random::new(u64::from(which));
        let mut went = Went::default();
        for _ in 0..100 {
            let mut bytes = || random.next_u64() as u8;
            let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| bytes());
            (seed[0], seed[9]) = (0, seed[9] & 0x1f | which);
            let packets: Vec<[u8; packet::BYTES]> =
                (0..60).map(|_| std::array::from_fn(|_| bytes())).collect();
            let growths: Vec<_> =
                (0..8).map(|_| (random.next_u64() as u16, random.next_u64() as u16)).collect();
            went = went.and(play(&seed, &packets, &growths));
        }
        assert!(went.whole > 40 + went.dropped && went.dropped > 50 && went.cut > 500, "{which}: {went:?}");
    }
}

/// Ways of a policy to treat a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Flows, masquerade over IPv4.
    Stateful,
    /// Each packet by itself.
    Stateless,
}

/// A policy for a conversation: every fourth one without windows, and the metered ones by a meter of any kind.
fn conversation(kind: Kind, is_metered: bool, round: u32, random: &mut Random) -> String {
    let window = if round % 4 == 3 { "tcp-window = \"off\"\n" } else { "" };
    let mut text = format!("{OFFICE}[limit]\nflows = 64\n{window}");
    if kind == Kind::Stateless {
        let (policy, _) = OFFICE.split_once("[[nat]]").unwrap();
        let both = "\"outside > inside\" = \"accept\"\n\"inside > outside\" = \"accept\"";
        text =
            format!("mode = \"stateless\"\n{policy}").replacen("\"inside > outside\" = \"accept\"", both, 1);
        // Some drop, some count or log each packet, one asks for what the last segment alone has.
        text = text.replacen("[[rule]]", STATELESS_RULES, 1);
    }
    if is_metered {
        text = text.replacen("mark = \"af11\"", "mark = \"af11\"\nmeter = \"any\"", 1);
        text = text.replacen("name = \"bulk\"\nprotocol = \"tcp\"", "name = \"bulk\"\nmeter = \"any\"", 1);
        text.push_str(&meter(kind, random));
    }
    text
}

/// Rules before that of the office.
const STATELESS_RULES: &str = r#"[[rule]]
name = "refused"
dscp = "le"
action = "drop"

[[rule]]
name = "answered"
dscp = "cs2"
action = "reject"

[[rule]]
name = "counted"
dscp = "cs3"
rate = "50/second burst 60"
action = "accept"

[[rule]]
name = "logged"
dscp = "cs4"
log = true
action = "accept"

[[rule]]
name = "pushed"
protocol = "tcp"
tcp-flags = "psh,ack"
dscp = "cs5"
action = "accept"

[[rule]]"#;

/// A meter of any kind, by which some packets pass whole, some are refused whole, and some have segments of several colours.
fn meter(mode: Kind, random: &mut Random) -> String {
    let mut draw = |many: u64| random.next_u64() % many;
    let (unit, rate, burst) = match draw(2) {
        0 => ("Mbit/s", 10 + draw(500), 2_000 + draw(300_000)),
        _ => ("packets/s", 500 + draw(80_000), 2 + draw(300)),
    };
    let (more, further) = (rate + draw(rate), burst + draw(burst));
    let kind = match draw(4) {
        0 => "kind = \"token-bucket\"".to_owned(),
        1 => format!("kind = \"srtcm\"\nexcess-burst = {further}"),
        2 => format!("kind = \"trtcm\"\npeak-rate = \"{more} {unit}\"\npeak-burst = {further}"),
        _ => format!("kind = \"rfc4115\"\nexcess-rate = \"{more} {unit}\"\nexcess-burst = {further}"),
    };
    let yellow = if kind.contains("token") {
        ""
    } else {
        ["yellow = \"af12\"\n", "yellow = \"ecn\"\n"][draw(2) as usize]
    };
    let per = ["all", "source", "destination/16/64", "flow"]
        [draw(if mode == Kind::Stateful { 4 } else { 3 }) as usize];
    let colours = ["blind", "aware"][draw(2) as usize];
    let red = ["drop", "cs1", "ecn-or-drop"][draw(3) as usize];
    let overhead = ["\"ip\"", "\"ethernet\"", "\"atm\"", "20"][draw(4) as usize];
    let full = ["red", "share"][draw(2) as usize];
    let by_instance =
        if per == "all" { String::new() } else { format!("instances = 8\nwhen-full = \"{full}\"\n") };
    let overhead = if unit == "Mbit/s" { format!("overhead = {overhead}\n") } else { String::new() };
    format!(
        "[[meter]]\nname = \"any\"\n{kind}\nrate = \"{rate} {unit}\"\nburst = {burst}\ncolours = \"{colours}\"\n\
         per = \"{per}\"\n{overhead}{by_instance}{yellow}red = \"{red}\"\n"
    )
}

/// Holds conversations of many kinds under policies of a kind.
fn converse(rounds: u32, kind: Kind, is_metered: bool) -> Went {
    let mut random = Random::new(11);
    let mut went = Went::default();
    for round in 0..rounds {
        let text = conversation(kind, is_metered, round, &mut random);
        let mut pair = Pair::new(&text);
        let mut number = 0;
        let mut now = START;
        let mut step = |pair: &mut Pair, (port, bytes): (PortId, Vec<u8>), size| {
            number += 1;
            now += Nanos(1_000_000);
            pair.receive(&Arrival { port, at: now, number, bytes }, size);
            pair.compare(&text)
        };
        let mut talk = Talk { is_translated: kind == Kind::Stateful, ..Talk::of_round(round) };
        talk.open(|frame| step(&mut pair, frame, None));
        for _ in 0..60 {
            let mut draw = |many: u64| random.next_u64() % many;
            let from = draw(2) as usize;
            let length = 1 + draw(60_000) as usize;
            let size = [1, 200, 536, 1280, 1340, 1448, 20_000][draw(7) as usize].max(length as u16 / 100 + 1);
            let flags = match draw(12) {
                0 => draw(256) as u8 & !0x06,
                1..4 => 0x18,
                _ => 0x10,
            };
            let ttl = if draw(12) == 0 { 1 } else { 64 };
            // Of each kind that classes and rules ask for, AF for colours, and capable of ECN.
            let ds_field = [0, 0xb8, 1, 0, 2, 4, 0x30, 0x38, 0x40, 0x60, 0x80, 0xa0][draw(12) as usize];
            let before = talk.sides[from];
            match draw(12) {
                0 => talk.sides[from].seq = before.seq.wrapping_sub(draw(200_000) as u32),
                1 => talk.sides[from].seq = before.seq.wrapping_add(draw(200_000) as u32),
                _ => {}
            }
            let frame = talk.frame(from, flags, ds_field, ttl, &vec![7; length]);
            let out = step(&mut pair, frame, Some(size));
            talk.sides[from] = before;
            if out.sent.iter().any(|sent| sent.port != from as u16) && flags & !8 == 0x10 && talk.is_tcp {
                talk.sides[from].seq = before.seq.wrapping_add(length as u32);
            }
        }
        went = went.and(pair.went);
    }
    went
}

/// Conversations through masquerade and without, both ways: most of what is long goes whole, and what is not in the window, has its last
/// hop behind it, or says more than data, does as its segments would.
#[test]
fn conversations_go_whole() {
    let went = converse(60, Kind::Stateful, false);
    assert!(went.whole > 800 && went.cut > 500, "{went:?}");
}

/// Without flows, what all segments meet alike goes whole; what is answered, counted or logged by itself does not.
#[test]
fn what_is_not_tracked_goes_whole() {
    let went = converse(60, Kind::Stateless, false);
    assert!(went.whole > 800 && went.dropped > 100 && went.cut > 500, "{went:?}");
}

/// Meters of all kinds give all segments one colour, or have them cut, and hold the same tokens afterwards.
#[test]
fn metered_packets_go_whole() {
    for kind in [Kind::Stateful, Kind::Stateless] {
        let went = converse(200, kind, true);
        assert!(went.whole > 2_000 && went.dropped > 80 && went.cut > 2_000, "{kind:?}: {went:?}");
    }
}

/// Segments have a moment of their own each at a rate of the policy.
#[test]
fn segments_depart_one_by_one_at_a_rate_of_the_policy() {
    let text = OFFICE.replacen("mtu = 1400", "mtu = 1400\nrate = \"10 Mbit/s\"", 1);
    let mut pair = Pair::new(&text);
    let talk = Talk { sides: [Side { seq: 0, window: 0 }; 2], ..Talk::of_round(2) };
    for (number, length, size) in [(1, 100, None), (2, 20_000, Some(1_000))] {
        let (port, bytes) = talk.frame(0, 0, 0, 64, &vec![number as u8; length]);
        pair.receive(&Arrival { port, at: START + Nanos(u64::from(number)), number, bytes }, size);
    }
    let moments = |gateway: &mut Gateway| {
        let mut moments = Vec::new();
        gateway.depart(Nanos::MAX, |next| {
            if let Next::Frame(frame, at) = next {
                moments.push((*at, frame.bytes().to_vec()));
            }
        });
        moments
    };
    let (whole, cut) = (moments(&mut pair.whole), moments(&mut pair.cut));
    assert_eq!(cut.len(), 21);
    assert_eq!(whole, cut);
    assert!(cut.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= Nanos(80_000)));
}
