//! Two gateways that both forward, and hand packets of unknown flows over to one another: whichever of them a packet comes to, each flow is set
//! up once, and its packets go on, with or without the news of each other's flows.

use std::collections::{BTreeMap, BTreeSet};

use dataplane::nat::Share;
use dataplane::peer::Handover;
use dataplane::replay::Way;
use dataplane::shard::Setup;
use dataplane::state::{Item, Names};
use dataplane::sync::{Synced, Taken};
use dataplane::tables::Pair;
use dataplane::{Reason, Shard, Verdict};
use policy::model::Half;
use wire::build::{Icmp, Packet};
use wire::header::{Fragment, Ports, Protocol};
use wire::random::Random;
use wire::tcp::Flags;
use wire::{Nanos, PortId, ipv4};

use crate::scene::pair::{link, tcp, v4};
use crate::scene::{Arrival, Gateway, START, check, setup};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const SHARED: [u8; 4] = [203, 0, 113, 10];

fn policy(side: &str, own: u8, more: &str) -> String {
    format!(
        r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.{own}/24"]
[interface.wan]
zone = "wan"
addresses = ["172.16.0.{own}/24"]
virtual-addresses = ["203.0.113.10"]
[[route]]
to = "0.0.0.0/0"
via = "172.16.0.254"
[[route]]
to = "192.168.0.0/16"
via = "10.0.0.254"
[[nat]]
name = "out"
kind = "source"
to = "wan"
source = "192.168.1.0/24"
pool = ["203.0.113.10"]
{more}
[[nat]]
name = "web"
kind = "forward"
from = "wan"
outside = "203.0.113.10"
protocol = ["tcp", "udp"]
port = 8080
target = "192.168.1.80:80"
[[nat]]
name = "fixed"
kind = "one-to-one"
outside = "198.18.0.0/24"
inside = "192.168.3.0/24"
[[rule]]
name = "in"
from = "wan"
destination = ["192.168.1.80", "192.168.3.0/24"]
action = "accept"
[[rule]]
name = "ftp"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 21
helper = "ftp"
action = "accept"
[default]
"lan > wan" = "accept"
[gateway]
sync = "{side}:192.0.2.1:9480"
sync-certificate = "crt"
sync-key = "key"
sync-ca = "ca"
sync-owner = "hash"
[limit]
flows = 256
"#
    )
}

/// Two gateways, with the link between them.
struct Two {
    boxes: [Gateway; 2],
    at: Nanos,
    number: u32,
    over: u64,
    /// Flows that one has made because the other has told of them.
    told: u64,
}

/// Effect of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// Departure by that port, with those bytes of IP.
    Sent(PortId, Vec<u8>),
    Ended(Verdict),
}

impl Two {
    fn new(more: &str) -> Two {
        let boxes =
            [("listen", 2, Half::Listens), ("connect", 3, Half::Connects)].map(|(side, own, half)| {
                let mut gateway = Gateway::new(&policy(side, own, more), Way::Run);
                let share = Share::WHOLE.of_half(Some(half));
                let setup = Setup { seed: [own.into(), 99], share, ..setup(START) };
                gateway.shard = Shard::new(&gateway.tables, setup).unwrap();
                gateway.shard.keep_changes(&gateway.tables).unwrap();
                gateway.shard.handover = Handover::Owned;
                assert_eq!(gateway.tables.pair.as_ref().unwrap().half, half);
                gateway
            });
        Two { boxes, at: START, number: 0, over: 0, told: 0 }
    }

    /// A packet comes to one of the two, a millisecond after the one before.
    fn receive(&mut self, to: usize, port: PortId, packet: &Packet<'_>) -> Effect {
        let effects = self.receive_all(to, port, &[packet.to_vec()]);
        assert_eq!(effects.len(), 1, "{effects:?}");
        effects.into_iter().next().unwrap()
    }

    fn receive_all(&mut self, to: usize, port: PortId, packets: &[Vec<u8>]) -> Vec<Effect> {
        self.at += Nanos::from_millis(1);
        for bytes in packets {
            self.number += 1;
            let arrival = Arrival { port, at: self.at, number: self.number, bytes: bytes.clone() };
            self.boxes[to].receive(&[arrival]);
        }
        for (port, bytes) in self.boxes[to].handed_over() {
            self.over += 1;
            assert!(packets.contains(&bytes), "as it was received");
            let arrival = Arrival { port, at: self.at, number: self.number, bytes };
            self.boxes[1 - to].take_over(&arrival);
        }
        assert_eq!(self.boxes[1 - to].handed_over(), [], "never twice");
        let mut effects = Vec::new();
        for gateway in &mut self.boxes {
            let out = gateway.out(usize::MAX);
            check::gateway(gateway);
            effects.extend(
                out.sent.iter().map(|sent| Effect::Sent(PortId(sent.port), sent.bytes[14..].to_vec())),
            );
            effects.extend(out.ended.iter().map(|(_, verdict)| Effect::Ended(*verdict)));
        }
        effects
    }

    /// One tells the other what has changed.
    fn tell(&mut self, from: usize) {
        let mut told = Taken::default();
        let Gateway { shard, tables, .. } = &mut self.boxes[from];
        shard.take_changes(tables, self.at, usize::MAX, &mut told);
        let places = Names::of(&self.boxes[from].tables).places_in(&self.boxes[1 - from].tables);
        let Gateway { shard, tables, .. } = &mut self.boxes[1 - from];
        for ended in &told.ended {
            let _ = shard.end_synced(tables, ended);
        }
        for item in &told.flows {
            let Item::Flow(flow) = places.moved(item) else { panic!("{item:?}") };
            let outcome = shard
                .take_in_synced(tables, &flow, self.at, 1)
                .unwrap_or_else(|refused| panic!("{refused}: {flow:?}"));
            self.told += u64::from(outcome == Synced::Created);
        }
    }

    /// Flows that packets have set up.
    fn begun(&self) -> u64 {
        self.boxes.iter().map(|gateway| gateway.shard.flows.created()).sum::<u64>() - self.told
    }
}

/// Kinds of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Masqueraded,
    Plain,
    Forwarded,
    OneToOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Tcp,
    Udp,
    Ping,
    /// Without ports: RFC 3692's experimental protocol.
    Other,
}

type End = ([u8; 4], u16);

/// A flow from the side of its first packet.
struct Talk {
    kind: Kind,
    over: Over,
    /// Ends as the first packet has them.
    from: End,
    to: End,
    /// Ends as the first packet leaves with, once it has.
    seen: Option<(End, End)>,
    step: u32,
}

impl Talk {
    fn new(kind: Kind, over: Over, number: u16) -> Talk {
        let (host, far) = (number as u8 % 40 + 10, [8, 8, number as u8 % 8, 8]);
        let port = 2000 + number;
        let (from, to) = match kind {
            Kind::Masqueraded => (([192, 168, 1, host], port), (far, 443)),
            Kind::Plain => (([192, 168, 2, host], port), (far, 443)),
            Kind::Forwarded => ((far, port), (SHARED, 8080)),
            Kind::OneToOne if number % 2 == 0 => (([192, 168, 3, host], port), (far, 443)),
            Kind::OneToOne => ((far, port), ([198, 18, 0, host], 443)),
        };
        Talk { kind, over, from, to, seen: None, step: 0 }
    }

    fn is_inbound(&self) -> bool {
        self.from.0[0] == 8
    }

    /// The next packet: there and back by turns. Interface, and bytes.
    fn packet(&self) -> (PortId, Packet<'static>) {
        let is_back = self.step % 2 == 1;
        let (from, to) = match self.seen {
            Some((from, to)) if is_back => (to, from),
            _ => (self.from, self.to),
        };
        let port = if is_back == self.is_inbound() { LAN } else { WAN };
        let ports = [from.1, to.1];
        let step = self.step;
        let packet = match self.over {
            Over::Udp => v4(from.0, to.0).udp(ports[0], ports[1]).payload(b"data"),
            Over::Other => v4(from.0, to.0).protocol(Protocol(253)).payload(b"data"),
            Over::Ping if is_back => v4(from.0, to.0).echo_reply(to.1, 1).payload(b"data"),
            Over::Ping => v4(from.0, to.0).echo_request(from.1, 1).payload(b"data"),
            Over::Tcp => {
                // Each side sends ten bytes a turn once both have sent SYN: there SYN, back SYN-ACK, and from there on data.
                let sent = |turns: u32| 1001 + turns.saturating_sub(1) * 10;
                let (there, back) = (step.div_ceil(2), step / 2);
                match step {
                    0 => tcp(v4(from.0, to.0), ports, 1000, 0, Flags::SYN),
                    1 => tcp(v4(from.0, to.0), ports, 1000, 1001, Flags::SYN_ACK),
                    _ if is_back => data(v4(from.0, to.0), ports, sent(back), sent(there)),
                    _ => data(v4(from.0, to.0), ports, sent(there), sent(back)),
                }
            }
        };
        (port, packet)
    }

    /// The packet has left, with these bytes.
    fn note(&mut self, out: PortId, bytes: &[u8], came: PortId) {
        assert_ne!(out, came);
        let packet = ipv4::parse(bytes).unwrap();
        let header = packet.header;
        let ends = match self.over {
            Over::Tcp | Over::Udp => {
                let ports = Ports::of(packet.payload).unwrap();
                [ports.sport, ports.dport]
            }
            Over::Ping => [u16::from_be_bytes([packet.payload[4], packet.payload[5]]); 2],
            Over::Other => [self.from.1, self.to.1],
        };
        let (from, to) = ((header.src().octets(), ends[0]), (header.dst().octets(), ends[1]));
        if self.step % 2 == 0 {
            assert_eq!(*self.seen.get_or_insert((from, to)), (from, to), "{:?}", self.kind);
            match self.kind {
                Kind::Masqueraded => assert_eq!(from.0, SHARED),
                Kind::Plain => assert_eq!(from.0, self.from.0),
                Kind::Forwarded => assert_eq!(to.0, [192, 168, 1, 80]),
                Kind::OneToOne if self.is_inbound() => assert_eq!(to.0[..3], [192, 168, 3]),
                Kind::OneToOne => assert_eq!(from.0[..3], [198, 18, 0]),
            }
        } else {
            assert_eq!((from.0, to.0), (self.to.0, self.from.0), "{:?}", self.kind);
            if matches!(self.over, Over::Tcp | Over::Udp) {
                assert_eq!((from.1, to.1), (self.to.1, self.from.1));
            }
        }
        self.step += 1;
    }
}

fn data(packet: Packet<'static>, ports: [u16; 2], seq: u32, ack: u32) -> Packet<'static> {
    use wire::build::Tcp;
    let flags = Flags::ACK.and(Flags::PSH);
    packet
        .tcp(Tcp { sport: ports[0], dport: ports[1], seq, ack, flags, window: 1_000, ..Tcp::default() })
        .payload(b"ten bytes.")
}

/// With news of flows that come late, seldom or never.
#[test]
fn whichever_gateway_a_packet_comes_to_flows_are_set_up_once_and_go_on() {
    let mut random = Random::new(58);
    let (mut over, mut received) = (0, 0);
    for round in 0..48 {
        let mut two = Two::new(if round % 2 == 0 { "random = true" } else { "" });
        // None, one of many, or all news come.
        let news = [0, 1, 8, 64][round % 4];
        let mut talks: Vec<Talk> = Vec::new();
        for number in 0..40 {
            let kind = [Kind::Masqueraded, Kind::Plain, Kind::Forwarded, Kind::OneToOne]
                [random.next_u64() as usize % 4];
            let overs = [Over::Tcp, Over::Udp, Over::Ping, Over::Other];
            let over = overs[random.next_u64() as usize % if kind == Kind::Forwarded { 2 } else { 3 }];
            talks.push(Talk::new(kind, over, number));
        }
        for _ in 0..600 {
            let count = talks.len();
            let talk = &mut talks[random.next_u64() as usize % count];
            if talk.step == 14 {
                continue;
            }
            let (port, packet) = talk.packet();
            let side = random.next_u64() as usize % 2;
            match two.receive(side, port, &packet) {
                Effect::Sent(out, bytes) => talk.note(out, &bytes, port),
                Effect::Ended(verdict) => {
                    panic!("round {round}: {verdict}: step {} of {:?} {:?}", talk.step, talk.kind, talk.over)
                }
            }
            received += 1;
            if news > 0 && random.next_u64() % 64 < news {
                two.tell(random.next_u64() as usize % 2);
            }
        }
        let begun = talks.iter().filter(|talk| talk.step > 0).count();
        assert_eq!(two.begun(), begun as u64, "round {round}");
        let mut shown = BTreeSet::new();
        for talk in talks.iter().filter(|talk| talk.kind == Kind::Masqueraded) {
            if let Some((from, _)) = talk.seen {
                assert!(shown.insert((talk.over as u8, from)), "{from:?} twice");
            }
        }
        let counted: u64 = two.boxes.iter().map(|gateway| gateway.shard.counters.handed_over).sum();
        assert_eq!(counted, two.over);
        over += two.over;
    }
    assert!(over > received / 10, "{over} of {received}");
}

#[test]
fn mappings_of_a_host_are_one_gateway_s_and_ports_of_its_half() {
    let mut two = Two::new("random = true");
    let mut shown: BTreeMap<[u8; 4], BTreeSet<u16>> = BTreeMap::new();
    for number in 0..400_u16 {
        let host = [192, 168, 1, number as u8 % 20 + 10];
        // One socket to many: one mapping (RFC 4787, REQ-1), whichever gateway a packet comes to.
        let packet = v4(host, [8, 8, (number / 20) as u8, 8]).udp(5000, 53).payload(b"data");
        let Effect::Sent(WAN, bytes) = two.receive(usize::from(number % 2), LAN, &packet) else {
            panic!("{number}")
        };
        let port = Ports::of(ipv4::parse(&bytes).unwrap().payload).unwrap().sport;
        let half = Pair::half_of(dataplane::tables::Address::from(std::net::IpAddr::from(host)));
        assert_eq!(port / 2 % 2, half.number());
        shown.entry(host).or_default().insert(port);
    }
    assert!(shown.len() == 20 && shown.values().all(|ports| ports.len() == 1), "{shown:?}");
    assert!(two.boxes.iter().all(|gateway| gateway.shard.flows.len() > 50));
}

#[test]
fn errors_about_a_flow_of_the_other_go_there_and_strays_are_dropped_once() {
    let mut two = Two::new("");
    for number in 0..20 {
        let host = [192, 168, 1, 10 + number];
        let Effect::Sent(WAN, quoted) =
            two.receive(0, LAN, &v4(host, [8, 8, 8, 8]).udp(5000, 53).payload(b"data"))
        else {
            panic!("{number}")
        };
        for side in 0..2 {
            // Unreachable, by a router on the way.
            let error =
                v4([9, 9, 9, 9], SHARED).icmpv4(Icmp { kind: 3, code: 1, rest: [0; 4] }).payload(&quoted);
            let Effect::Sent(LAN, bytes) = two.receive(side, WAN, &error) else { panic!("{number}") };
            assert_eq!(ipv4::parse(&bytes).unwrap().header.dst().octets(), host);
        }
    }
    // Of no flow, at either: handed over once, and dropped there.
    let over = two.over;
    let stray = tcp(v4([8, 8, 8, 8], SHARED), [443, 5000], 7, 9, Flags::ACK);
    for side in 0..2 {
        assert_eq!(two.receive(side, WAN, &stray), Effect::Ended(Verdict::Dropped(Reason::FlowNotOpen)));
    }
    assert_eq!(two.over, over + 2);
}

#[test]
fn a_control_connection_is_its_owner_s_and_what_it_announces_comes_in() {
    use wire::build::Tcp;
    let mut random = Random::new(21);
    for round in 0..60_u8 {
        let mut two = Two::new(if round % 2 == 0 { "random = true" } else { "" });
        let news = u64::from(round % 3) * 20;
        let host = [192, 168, round % 2 + 1, 10 + round];
        let server = [8, 8, round, 8];
        let mut go = |port: PortId,
                      from: End,
                      to: End,
                      (seq, ack): (u32, u32),
                      flags: Flags,
                      payload: &'static [u8]| {
            let header = Tcp { sport: from.1, dport: to.1, seq, ack, flags, window: 1000, ..Tcp::default() };
            let packet = v4(from.0, to.0).tcp(header).payload(payload);
            let effect = two.receive(random.next_u64() as usize % 2, port, &packet);
            let Effect::Sent(out, bytes) = effect else {
                panic!("round {round}: {effect:?} of {payload:?} from {from:?}")
            };
            assert_ne!(out, port);
            if random.next_u64() % 40 < news {
                two.tell(random.next_u64() as usize % 2);
            }
            let packet = ipv4::parse(&bytes).unwrap();
            let ports = Ports::of(packet.payload).unwrap();
            let segment = wire::tcp::parse(packet.payload).unwrap();
            let ends =
                [(packet.header.src().octets(), ports.sport), (packet.header.dst().octets(), ports.dport)];
            (ends, segment.header.ack(), segment.payload.to_vec())
        };
        let (client, control) = ((host, 4000), (server, 21));
        let push = Flags::ACK.and(Flags::PSH);
        let ([shown, _], ..) = go(LAN, client, control, (1000, 0), Flags::SYN, b"");
        go(WAN, control, shown, (2000, 1001), Flags::SYN_ACK, b"");
        go(LAN, client, control, (1001, 2001), Flags::ACK, b"");
        let text: &'static [u8] =
            format!("PORT 192,168,{},{},19,136\r\n", host[2], host[3]).leak().as_bytes();
        let (_, _, told) = go(LAN, client, control, (1001, 2001), push, text);
        let said = String::from_utf8(told.clone()).unwrap();
        let numbers: Vec<u16> = said.trim()[5..].split(',').map(|number| number.parse().unwrap()).collect();
        let announced = numbers[4] << 8 | numbers[5];
        let data: End = if host[2] == 1 { (SHARED, announced) } else { (host, announced) };
        if host[2] == 1 {
            assert_eq!(numbers[..4], SHARED.map(u16::from));
            assert_eq!(announced / 2 % 2, shown.1 / 2 % 2, "of the control connection's owner");
        }
        let (_, ack, _) = go(WAN, control, shown, (2001, 1001 + told.len() as u32), push, b"200 ok\r\n");
        assert_eq!(ack, 1001 + text.len() as u32, "as the client has sent it");
        let ([_, to], ..) = go(WAN, (server, 20), data, (7000, 0), Flags::SYN, b"");
        assert_eq!(to, (host, 5000));
        go(LAN, (host, 5000), (server, 20), (8000, 7001), Flags::SYN_ACK, b"");
    }
}

#[test]
fn fragments_of_a_datagram_have_one_owner() {
    let mut two = Two::new("");
    for number in 0..20_u8 {
        let host = [192, 168, 1, 10 + number];
        let Effect::Sent(WAN, bytes) =
            two.receive(0, LAN, &v4(host, [8, 8, 8, 8]).udp(5000, 53).payload(b"data"))
        else {
            panic!("{number}")
        };
        let port = Ports::of(ipv4::parse(&bytes).unwrap().payload).unwrap().sport;
        let whole =
            link().ipv4([8, 8, 8, 8].into(), SHARED.into()).udp(53, port).payload(&[7; 1000]).to_vec();
        let datagram = &whole[34..];
        for side in 0..2 {
            let piece = |from: usize, to: usize, more| {
                let fragment = Fragment { id: 700 + u32::from(number), offset: from as u16, more };
                let packet = link().ipv4([8, 8, 8, 8].into(), SHARED.into()).fragment(fragment);
                packet.protocol(Protocol::UDP).payload(&datagram[from..to]).to_vec()
            };
            // The last one first: it waits for the first.
            let effects =
                two.receive_all(side, WAN, &[piece(504, datagram.len(), false), piece(0, 504, true)]);
            let sent = effects.iter().filter(|effect| matches!(effect, Effect::Sent(LAN, _))).count();
            assert_eq!(sent, 2, "{effects:?}");
        }
    }
}

#[test]
fn who_has_not_all_flows_hands_over_all_and_who_is_alone_nothing() {
    let mut two = Two::new("");
    two.boxes[0].shard.handover = Handover::All;
    two.boxes[1].shard.handover = Handover::None;
    for number in 0..40 {
        for side in 0..2 {
            let host = [192, 168, 1 + side as u8, 10 + number];
            let packet = v4(host, [8, 8, 8, 8]).udp(5000 + side as u16, 53).payload(b"data");
            assert!(matches!(two.receive(side, LAN, &packet), Effect::Sent(WAN, _)));
        }
    }
    assert_eq!(two.boxes.each_ref().map(|gateway| gateway.shard.flows.len()), [0, 80]);
    // For itself, to a group, and out of the gateway's own address.
    for packet in
        [v4([192, 168, 1, 10], [10, 0, 0, 2]).udp(7, 7), v4([192, 168, 1, 10], [224, 0, 1, 1]).udp(7, 7)]
    {
        let over = two.over;
        two.receive(0, LAN, &packet);
        assert_eq!(two.over, over);
    }
    // What the link does not take is counted as dropped.
    let Two { boxes: [one, _], at, .. } = &mut two;
    let bytes = v4([192, 168, 1, 99], [8, 8, 8, 8]).udp(7, 7).to_vec();
    one.receive(&[Arrival { port: LAN, at: *at, number: 1, bytes }]);
    one.lose_handed_over();
    one.out(usize::MAX);
    assert_eq!(one.shard.counters.dropped_for(Reason::PeerLinkFull), 1);
    check::gateway(one);
}
