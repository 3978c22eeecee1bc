//! Messages, read back by a decoder that knows RFC 7011 alone: headers, sets, templates by what the messages say.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use dataplane::accounting::{Lost, Session};
use dataplane::flow::{Direction, Ends};
use dataplane::nat::{BlockChange, BlockEvent, PortBlock, PortRange};
use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use policy::model::{Collector, Ipfix, IpfixRecord};
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use wire::ethernet::Mac;
use wire::{Nanos, PortId, build};

use super::data::{Block, Data, Epoch, Event, Exhausted, Flow, Interface, Pool, Statistics, icmp};
use super::exporter::Exporter;
use super::message::{Message, Messages};
use super::template;
use super::transport::{SendError, Transport};
use crate::clock::Clock;

/// Lengths of IANA's registry of IPFIX entities, from its data types; 0 for a string. TCP flags are shortened, as RFC 7125 has it.
const REGISTRY: [(u16, &str, usize); 38] = [
    (1, "octetDeltaCount", 8),
    (2, "packetDeltaCount", 8),
    (4, "protocolIdentifier", 1),
    (5, "ipClassOfService", 1),
    (6, "tcpControlBits", 1),
    (7, "sourceTransportPort", 2),
    (8, "sourceIPv4Address", 4),
    (10, "ingressInterface", 4),
    (11, "destinationTransportPort", 2),
    (12, "destinationIPv4Address", 4),
    (14, "egressInterface", 4),
    (27, "sourceIPv6Address", 16),
    (28, "destinationIPv6Address", 16),
    (32, "icmpTypeCodeIPv4", 2),
    (40, "exportedOctetTotalCount", 8),
    (41, "exportedMessageTotalCount", 8),
    (42, "exportedFlowRecordTotalCount", 8),
    (82, "interfaceName", 0),
    (136, "flowEndReason", 1),
    (139, "icmpTypeCodeIPv6", 2),
    (149, "observationDomainId", 4),
    (152, "flowStartMilliseconds", 8),
    (153, "flowEndMilliseconds", 8),
    (166, "notSentFlowTotalCount", 8),
    (225, "postNATSourceIPv4Address", 4),
    (226, "postNATDestinationIPv4Address", 4),
    (227, "postNAPTSourceTransportPort", 2),
    (228, "postNAPTDestinationTransportPort", 2),
    (230, "natEvent", 1),
    (281, "postNATSourceIPv6Address", 16),
    (282, "postNATDestinationIPv6Address", 16),
    (283, "natPoolId", 4),
    (284, "natPoolName", 0),
    (323, "observationTimeMilliseconds", 8),
    (361, "portRangeStart", 2),
    (362, "portRangeEnd", 2),
    (363, "portRangeStepSize", 2),
    (364, "portRangeNumPorts", 2),
];

/// A data record: values by names of elements.
type Decoded = HashMap<&'static str, Vec<u8>>;

/// A collecting process.
#[derive(Default)]
struct Decoder {
    /// Elements and lengths of each template.
    templates: HashMap<u16, Vec<(&'static str, usize)>>,
    records: Vec<Decoded>,
    /// Sequence number that the next message must have.
    sequence: u32,
}

impl Decoder {
    fn read(&mut self, message: &Message, domain: u32) {
        let bytes = &message.bytes[..];
        assert_eq!(u16_at(bytes, 0), 10);
        assert_eq!(usize::from(u16_at(bytes, 2)), bytes.len());
        assert_eq!(u32_at(bytes, 4), NOW);
        assert_eq!(u32_at(bytes, 8), self.sequence, "sequence number");
        assert_eq!(u32_at(bytes, 12), domain);
        let (mut at, before) = (16, self.records.len());
        while at < bytes.len() {
            let (id, len) = (u16_at(bytes, at), usize::from(u16_at(bytes, at + 2)));
            assert!(len > 4 && at + len <= bytes.len(), "set {id} of {len} bytes at {at}");
            self.read_set(id, &bytes[at + 4..at + len]);
            at += len;
        }
        assert_eq!(message.records as usize, self.records.len() - before);
        self.sequence = self.sequence.wrapping_add(message.records);
    }

    fn read_set(&mut self, id: u16, mut rest: &[u8]) {
        while !rest.is_empty() {
            let taken = match id {
                2 | 3 => self.read_template(id, rest),
                _ => self.read_record(id, rest),
            };
            rest = &rest[taken..];
        }
    }

    fn read_template(&mut self, set: u16, bytes: &[u8]) -> usize {
        let (id, count) = (u16_at(bytes, 0), usize::from(u16_at(bytes, 2)));
        assert!(id >= 256);
        let begin = if set == 3 {
            assert!((1..=count).contains(&usize::from(u16_at(bytes, 4))), "scope fields");
            6
        } else {
            4
        };
        let mut elements = Vec::new();
        for at in (begin..).step_by(4).take(count) {
            let (element, len) = (u16_at(bytes, at), usize::from(u16_at(bytes, at + 2)));
            let (_, name, known) =
                REGISTRY.into_iter().find(|known| known.0 == element).expect("a known element");
            assert_eq!(len, if known == 0 { 65_535 } else { known }, "{name}");
            elements.push((name, len));
        }
        self.templates.insert(id, elements);
        begin + 4 * count
    }

    fn read_record(&mut self, id: u16, bytes: &[u8]) -> usize {
        let template = self.templates.get(&id).unwrap_or_else(|| panic!("no template {id}"));
        let (mut at, mut record) = (0, Decoded::new());
        for (name, len) in template {
            let len = if *len == 65_535 {
                at += 1;
                usize::from(bytes[at - 1])
            } else {
                *len
            };
            assert!(record.insert(*name, bytes[at..at + len].to_vec()).is_none(), "{name} twice");
            at += len;
        }
        self.records.push(record);
        at
    }
}

const NOW: u32 = 1_700_000_000;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn number(record: &Decoded, name: &str) -> u64 {
    record[name].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn ip(record: &Decoded, v4: &str, v6: &str) -> IpAddr {
    match record.get(v4) {
        Some(bytes) => Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..]).unwrap()).into(),
        None => Ipv6Addr::from(<[u8; 16]>::try_from(&record[v6][..]).unwrap()).into(),
    }
}

/// Checks a decoded record against the one that was sent.
fn check(sent: &Data<'_>, record: &Decoded) {
    match sent {
        Data::Flow(flow) => {
            check_ends(&flow.arrives, &flow.leaves, record, flow.icmp);
            for (name, value) in [
                ("flowStartMilliseconds", flow.first),
                ("flowEndMilliseconds", flow.last),
                ("octetDeltaCount", flow.octets),
                ("packetDeltaCount", flow.packets),
                ("ingressInterface", flow.ingress.into()),
                ("egressInterface", flow.egress.into()),
                ("flowEndReason", flow.end.into()),
                ("tcpControlBits", flow.tcp_flags.into()),
                ("ipClassOfService", flow.ds_field.into()),
            ] {
                assert_eq!(number(record, name), value, "{name}");
            }
        }
        Data::Session(event) => {
            check_ends(&event.arrives, &event.leaves, record, None);
            let is_created = event.session == Session::Created;
            let expected = match (event.arrives.source, event.leaves.source, is_created) {
                (IpAddr::V4(_), IpAddr::V4(_), true) => 4,
                (IpAddr::V4(_), IpAddr::V4(_), false) => 5,
                (IpAddr::V6(_), IpAddr::V6(_), true) => 1,
                (IpAddr::V6(_), IpAddr::V6(_), false) => 2,
                (_, _, true) => 6,
                (_, _, false) => 7,
            };
            assert_eq!(number(record, "natEvent"), expected);
            assert_eq!(number(record, "observationTimeMilliseconds"), event.at);
        }
        Data::Block(Block { at, pool, event }) => {
            assert_eq!(number(record, "observationTimeMilliseconds"), *at);
            assert_eq!(number(record, "natPoolId"), u64::from(*pool));
            // RFC 8158, table 3.
            let expected = if event.change == BlockChange::Allocated { 16 } else { 17 };
            assert_eq!(number(record, "natEvent"), expected);
            assert_eq!(ip(record, "sourceIPv4Address", "sourceIPv6Address"), event.block.inside);
            assert_eq!(
                ip(record, "postNATSourceIPv4Address", "postNATSourceIPv6Address"),
                event.block.outside
            );
            let (first, last) = (number(record, "portRangeStart"), number(record, "portRangeEnd"));
            assert_eq!((first, last), (event.block.ports.first.into(), event.block.ports.last.into()));
            assert_eq!(number(record, "portRangeStepSize"), 1);
            assert_eq!(number(record, "portRangeNumPorts"), last - first + 1);
        }
        Data::Statistics(sums) => {
            assert_eq!(number(record, "observationDomainId"), u64::from(sums.domain));
            assert_eq!(number(record, "exportedOctetTotalCount"), sums.octets);
            assert_eq!(number(record, "exportedMessageTotalCount"), sums.messages);
            assert_eq!(number(record, "exportedFlowRecordTotalCount"), sums.records);
            assert_eq!(number(record, "notSentFlowTotalCount"), sums.lost);
        }
        Data::Interface(interface) => {
            assert_eq!(number(record, "ingressInterface"), u64::from(interface.index));
            assert_eq!(record["interfaceName"], interface.name.as_bytes());
        }
        Data::Exhausted(event) => {
            assert_eq!(number(record, "natEvent"), 12);
            assert_eq!(number(record, "natPoolId"), u64::from(event.pool));
            assert_eq!(number(record, "observationTimeMilliseconds"), event.at);
        }
        Data::Pool(pool) => {
            assert_eq!(number(record, "natPoolId"), u64::from(pool.number));
            assert_eq!(record["natPoolName"], pool.name.as_bytes());
        }
    }
}

fn check_ends(arrives: &Ends, leaves: &Ends, record: &Decoded, icmp: Option<u16>) {
    assert_eq!(ip(record, "sourceIPv4Address", "sourceIPv6Address"), arrives.source);
    assert_eq!(ip(record, "destinationIPv4Address", "destinationIPv6Address"), arrives.destination);
    assert_eq!(number(record, "protocolIdentifier"), u64::from(arrives.protocol));
    let has_ports = matches!(arrives.protocol, 6 | 17 | 132);
    match icmp {
        Some(icmp) => {
            let name = if arrives.source.is_ipv4() { "icmpTypeCodeIPv4" } else { "icmpTypeCodeIPv6" };
            assert_eq!(number(record, name), u64::from(icmp));
        }
        None if has_ports => {
            assert_eq!(number(record, "sourceTransportPort"), u64::from(arrives.sport));
            assert_eq!(number(record, "destinationTransportPort"), u64::from(arrives.dport));
        }
        None => {}
    }
    let is_same = (arrives.source, arrives.destination) == (leaves.source, leaves.destination)
        && (!has_ports || (arrives.sport, arrives.dport) == (leaves.sport, leaves.dport));
    if is_same && !record.contains_key("natEvent") {
        assert!(record.keys().all(|name| !name.starts_with("postNA")), "{record:?}");
        return;
    }
    assert_eq!(ip(record, "postNATSourceIPv4Address", "postNATSourceIPv6Address"), leaves.source);
    assert_eq!(
        ip(record, "postNATDestinationIPv4Address", "postNATDestinationIPv6Address"),
        leaves.destination
    );
    if icmp.is_none() && has_ports {
        assert_eq!(number(record, "postNAPTSourceTransportPort"), u64::from(leaves.sport));
        assert_eq!(number(record, "postNAPTDestinationTransportPort"), u64::from(leaves.dport));
    }
}

fn ends(is_v4: bool) -> impl Strategy<Value = Ends> {
    let address = move || {
        any::<u128>().prop_map(move |bits| match is_v4 {
            true => IpAddr::from(Ipv4Addr::from(bits as u32)),
            false => IpAddr::from(Ipv6Addr::from(bits)),
        })
    };
    let protocol = prop_oneof![Just(6), Just(17), Just(if is_v4 { 1 } else { 58 }), Just(47)];
    (address(), address(), any::<u16>(), any::<u16>(), protocol).prop_map(
        |(source, destination, sport, dport, protocol)| Ends { source, destination, sport, dport, protocol },
    )
}

/// Ends as packets arrive and leave, translated or not.
fn translation() -> impl Strategy<Value = (Ends, Ends)> {
    let of = |(is_v4, leaves_as_v4): (bool, bool)| {
        let kinds = (ends(is_v4), ends(leaves_as_v4), any::<bool>());
        kinds.prop_map(move |(arrives, other, is_translated)| {
            let is_translated = is_translated || is_v4 != leaves_as_v4;
            let leaves = if is_translated { Ends { protocol: arrives.protocol, ..other } } else { arrives };
            (arrives, leaves)
        })
    };
    any::<(bool, bool)>().prop_flat_map(of)
}

fn data() -> impl Strategy<Value = Data<'static>> {
    let counts = (any::<[u64; 4]>(), any::<[u32; 2]>(), any::<[u8; 3]>(), any::<u16>());
    let flow = (translation(), counts).prop_map(|((arrives, leaves), (counts, links, bytes, kind))| {
        let is_icmp = matches!(arrives.protocol, 1 | 58);
        let [octets, packets, first, last] = counts;
        Data::Flow(Flow {
            arrives,
            leaves,
            icmp: is_icmp.then_some(kind),
            ingress: links[0],
            egress: links[1],
            end: bytes[0],
            octets,
            packets,
            first,
            last,
            tcp_flags: bytes[1],
            ds_field: bytes[2],
        })
    });
    let session =
        (translation(), any::<u64>(), any::<bool>()).prop_map(|((arrives, leaves), at, created)| {
            let session = if created { Session::Created } else { Session::Deleted };
            Data::Session(Event { at, session, arrives, leaves })
        });
    let families = prop_oneof![Just([true, true]), Just([false, true]), Just([false, false])];
    let block = (families, any::<[u128; 2]>(), 16..512_u16, 1..100_u16, any::<(u64, u32, bool)>()).prop_map(
        |(is_v4, bits, size, number, (at, pool, is_new))| {
            let ip = |side: usize| match is_v4[side] {
                true => IpAddr::from(Ipv4Addr::from(bits[side] as u32)),
                false => IpAddr::from(Ipv6Addr::from(bits[side])),
            };
            let ports = PortRange { first: number * size, last: number * size + (size - 1) };
            let block = PortBlock { inside: ip(0), outside: ip(1), ports, pool: None };
            let change = if is_new { BlockChange::Allocated } else { BlockChange::Freed };
            Data::Block(Block { at, pool, event: BlockEvent { change, block } })
        },
    );
    let sums = any::<[u64; 4]>().prop_map(|[octets, messages, records, lost]| {
        Data::Statistics(Statistics { domain: 7, octets, messages, records, lost })
    });
    let interface = (any::<u32>(), prop_oneof![Just("lan"), Just("wan.20"), Just("a-name-of-15-ch")])
        .prop_map(|(index, name)| Data::Interface(Interface { index, name }));
    let exhausted =
        (any::<u64>(), any::<u32>()).prop_map(|(at, pool)| Data::Exhausted(Exhausted { at, pool }));
    let pool = any::<u32>().prop_map(|number| Data::Pool(Pool { number, name: "house" }));
    prop_oneof![6 => flow, 2 => session, 2 => block, 1 => sums, 1 => interface, 1 => exhausted, 1 => pool]
}

proptest! {
    /// Records come out as they went in, in messages within the bound, with the sequence numbers of RFC 7011, section 3.1.
    #[test]
    fn what_is_sent_can_be_read(records in vec(data(), 0..200), most in prop_oneof![Just(700_usize), Just(1_400), Just(65_535)]) {
        let mut messages = Messages::new(7, most);
        let mut sent = messages.add_templates(NOW);
        for record in &records {
            sent.extend(messages.add(record, NOW));
        }
        sent.extend(messages.finish(NOW));
        prop_assert!(messages.finish(NOW).is_none());
        let mut decoder = Decoder::default();
        for message in &sent {
            prop_assert!(message.bytes.len() <= most);
            decoder.read(message, 7);
        }
        prop_assert_eq!(decoder.templates.len(), template::ALL.len());
        prop_assert_eq!(decoder.records.len(), records.len());
        for (sent, read) in records.iter().zip(&decoder.records) {
            check(sent, read);
        }
        if records.len() > 100 && most == 1_400 {
            // No message is left half empty.
            let full: Vec<_> = sent.iter().rev().skip(1).map(|message| message.bytes.len()).collect();
            prop_assert!(full.iter().all(|len| *len > most - 200), "{:?}", full);
        }
    }
}

/// An echo request and its reply have types of their own IP version, whichever the question had (RFC 792, RFC 4443).
#[test]
fn an_answer_has_the_type_of_its_own_ip_version() {
    let (v4, v6) = (IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::LOCALHOST));
    for (question, source, protocol, answer) in
        [(8, v4, 1, 0), (8, v6, 58, 129), (128, v4, 1, 0), (128, v6, 58, 129)]
    {
        let ends = Ends { source, destination: source, sport: 7, dport: 0, protocol };
        assert_eq!(icmp(&ends, question << 8, Direction::Reply), Some(answer << 8));
    }
}

#[test]
fn templates_have_identifiers_of_their_own() {
    let mut ids: Vec<_> = template::ALL.iter().map(|template| template.id).collect();
    ids.dedup();
    assert_eq!(ids, (256..256 + template::ALL.len() as u16).collect::<Vec<_>>());
}

#[test]
fn times_are_milliseconds_of_the_day() {
    let epoch = Epoch { zero: 1_700_000_000_000_000_000 };
    assert_eq!(epoch.milliseconds(Nanos(1_999_999)), 1_700_000_000_001);
}

/// Bytes that the other end has acknowledged are there to be read, and no others, also where a message was sent in part.
#[test]
fn of_a_connection_that_is_given_up_what_was_not_acknowledged_is_known() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    set_socket_recv_buffer_size(&listener, 8_192).unwrap();
    let mut transport = Transport::open(&Collector::Tcp(listener.local_addr().unwrap())).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let message = Message { bytes: vec![7; 10_000], records: 11, flow_records: 10 };
    let mut taken = 0;
    loop {
        match transport.send(&message) {
            Ok(()) => taken += 1,
            Err(SendError::Over(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    let lost = transport.abort();
    let (mut bytes, mut heard) = ([0; 4_096], 0);
    let end = loop {
        match peer.read(&mut bytes) {
            Ok(0) => break ErrorKind::UnexpectedEof,
            Ok(len) => heard += len,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset, "what is left is not sent after all");
    assert!(lost > 0 && heard > 0, "{taken} messages taken, {lost} records lost, {heard} bytes heard");
    assert_eq!(10 * taken - lost, 10 * (heard / 10_000) as u64);
}

/// Flows are looked for that have ended as each packet comes, so that all that end in an eighth of a second may end in one batch.
#[test]
fn a_buffer_has_room_for_50_000_translated_flows_a_second_that_end_in_one_batch() {
    const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/8"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
[default]
"lan > wan" = "accept"
[timeout]
udp-unanswered = "2s"
"#;
    let ipfix = Ipfix {
        collector: Some(Collector::Udp((Ipv4Addr::LOCALHOST, 4739).into())),
        records: Some(vec![IpfixRecord::Flow, IpfixRecord::Nat]),
        ..Ipfix::default()
    };
    let exporter = Exporter::start(&Ipfix::default(), Clock::start()).unwrap();
    let mut feed = exporter.feed();
    let mut tables = Tables::compile(&policy::parse(POLICY, "policy").policy.unwrap(), 1).unwrap();
    tables.ipfix = ipfix;
    let mut replay = Replay::new(tables, Nanos(0), Way::Run).unwrap();
    replay.shard.keep_accounts(&replay.tables).unwrap();
    let send = |replay: &mut Replay, at: Nanos, flow: u32| {
        let (source, far) = (Ipv4Addr::from(0x0a00_0100 + flow), Ipv4Addr::new(198, 51, 100, 7));
        let mut bytes = [0; 64];
        let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1])).ipv4(source, far);
        let len = packet.udp(5_000, 53).write(&mut bytes).unwrap();
        replay.receive(PortId(0), at, flow, &bytes[..len], &mut ());
    };
    let flows = 50_000 / 8;
    replay.shard.accounting.exchange(feed.buffer().unwrap());
    (0..flows).for_each(|flow| send(&mut replay, Nanos(u64::from(flow)), flow));
    replay.pass(&mut ());
    let begun = replay.shard.accounting.exchange(feed.buffer().unwrap());
    assert_eq!((begun.len(), replay.shard.accounting.take_lost()), (flows as usize, Lost::default()));
    (0..64).for_each(|_| send(&mut replay, Nanos::from_millis(2_500), flows));
    replay.pass(&mut ());
    let ended = replay.shard.accounting.exchange(Vec::new());
    // Of each flow what was counted of it, and the end of its translation; and the beginning of another.
    assert_eq!((ended.len(), replay.shard.accounting.take_lost()), (2 * flows as usize + 1, Lost::default()));
    drop(feed);
    exporter.finish();
}
