//! Control connections that a helper reads: their text, however it is cut, lost and sent again; and where their memory changes.

use std::collections::BTreeMap;

use dataplane::flow::Handshake;
use dataplane::replay::Way;
use dataplane::state::{Cursor, Item};
use dataplane::{Reason, Verdict};
use wire::build::{Icmp, Tcp};
use wire::random::Random;
use wire::tcp::{self, Flags};
use wire::{PortId, ipv4};

use crate::scene::Gateway;
use crate::scene::pair::{Pair, v4};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const CLIENT: [u8; 4] = [192, 168, 1, 10];
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];
const SERVER: [u8; 4] = [198, 51, 100, 7];
/// Initial sequence numbers: soon past the end of them all.
const ISN: u32 = u32::MAX - 100;
const SERVERS: u32 = 7_000;

fn policy(helper: &str) -> String {
    policy_of(SHORTER, helper)
}

fn policy_of(ends: Addresses, helper: &str) -> String {
    let [a, b, c, _] = ends.own;
    let (lan, wan) =
        (format!("{a}.{b}.{c}.1/24"), ends.outside.map(|octet| octet.to_string()).join(".") + "/24");
    format!(
        r#"
[interface.lan]
zone = "lan"
addresses = ["{lan}"]
[interface.wan]
zone = "wan"
addresses = ["{wan}"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"
[[rule]]
name = "ftp"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 21
{helper}
action = "accept"
"#
    )
}

/// Segment: sequence and acknowledgement number, and data.
#[derive(Clone, Debug)]
struct Seen {
    seq: u32,
    ack: u32,
    data: Vec<u8>,
}

fn seen(frame: &[u8]) -> Seen {
    let packet = ipv4::parse(&frame[14..]).unwrap();
    let segment = tcp::parse(packet.payload).unwrap();
    Seen { seq: segment.header.seq(), ack: segment.header.ack(), data: segment.payload.to_vec() }
}

/// Sends by the client, and returns what the server gets.
fn by_client(pair: &mut Pair, ends: Addresses, at: u32, ack: u32, data: &[u8], flags: Flags) -> Vec<Seen> {
    let tcp = Tcp { sport: 50_000, dport: 21, seq: ISN.wrapping_add(at), ack, flags, ..Tcp::default() };
    let out = pair.receive(LAN, &v4(ends.own, SERVER).tcp(tcp).payload(data));
    out.sent.iter().map(|sent| seen(&sent.bytes)).collect()
}

/// Acknowledges by the server, and returns what the client gets.
fn by_server(pair: &mut Pair, ends: Addresses, ack: u32, flags: Flags, seq: u32) -> Vec<Seen> {
    let tcp = Tcp { sport: 21, dport: 50_000, seq, ack: ISN.wrapping_add(ack), flags, ..Tcp::default() };
    let out = pair.receive(WAN, &v4(SERVER, ends.outside).tcp(tcp));
    out.sent.iter().map(|sent| seen(&sent.bytes)).collect()
}

fn open(pair: &mut Pair, ends: Addresses) {
    assert_eq!(by_client(pair, ends, 0, 0, &[], Flags::SYN).len(), 1);
    assert_eq!(by_server(pair, ends, 1, Flags::SYN_ACK, SERVERS).len(), 1);
    assert_eq!(by_client(pair, ends, 1, SERVERS + 1, &[], Flags::ACK).len(), 1);
}

/// Addresses of a client: its own, and that by which it is known outside.
#[derive(Clone, Copy)]
struct Addresses {
    own: [u8; 4],
    outside: [u8; 4],
}

/// The text becomes shorter.
const SHORTER: Addresses = Addresses { own: CLIENT, outside: OUTSIDE };
/// The text becomes longer.
const LONGER: Addresses = Addresses { own: [10, 0, 0, 9], outside: [203, 0, 113, 200] };

/// Lines of a client, and the same with its own address replaced.
fn lines(random: &mut Random, many: usize, ends: Addresses) -> (Vec<u8>, Vec<u8>) {
    let [own, outside] = [ends.own, ends.outside].map(|octets| octets.map(|octet| octet.to_string()));
    let (mut said, mut shown) = (String::new(), String::new());
    for _ in 0..many {
        let port = 1024 + random.next_u64() % 60_000;
        let (high, low) = (port / 256, port % 256);
        let lines = [&own, &outside].map(|host| match random.clone().next_u64() % 8 {
            0 | 1 => format!("PORT {},{high},{low}\r\n", host.join(",")),
            2 => format!("EPRT |1|{}|{port}|\r\n", host.join(".")),
            3 => format!("PORT 192,168,1,11,{high},{low}\r\n"),
            4 => format!("PORT {},1,1\r\n", own.join(",")),
            5 => "P".repeat(1 + port as usize % 40) + "\n",
            6 => format!("STOR {port}\r\n"),
            _ => "x".repeat(port as usize % 2_000) + "\r\n",
        });
        random.next_u64();
        said.push_str(&lines[0]);
        shown.push_str(&lines[1]);
    }
    (said.into_bytes(), shown.into_bytes())
}

/// Whatever is lost, sent twice, cut otherwise or comes too early, the server has what the client said with its address replaced, and the client
/// is told of no more than that.
#[test]
fn a_stream_is_the_stream_with_its_addresses_replaced() {
    let mut random = Random::new(11);
    let (mut dropped, mut in_two) = (0, [0; 2]);
    for round in 0..if cfg!(debug_assertions) { 80 } else { 300 } {
        let kind = round % 2;
        let ends = [SHORTER, LONGER][kind];
        let mut pair = Pair::assumed(&policy_of(ends, "helper = \"ftp\""));
        open(&mut pair, ends);
        let (said, shown) = lines(&mut random, 12, ends);
        let (mut una, mut sent, mut had) = (0, 0, 0);
        let mut received: BTreeMap<usize, u8> = BTreeMap::new();
        let mut steps = 0;
        while una < said.len() {
            steps += 1;
            assert!(steps < 20_000, "round {round}: no progress at {una} of {}", said.len());
            if random.next_u64() % 4 == 0 {
                // What the server has without a gap it acknowledges, or less, that of a segment long ago.
                let ack =
                    if random.next_u64() % 4 == 0 { random.next_u64() as usize % (had + 1) } else { had };
                let told = by_server(&mut pair, ends, 1 + ack as u32, Flags::ACK, SERVERS + 1);
                let [told] = told.as_slice() else { panic!("{told:?}") };
                // One from long ago may be a few bytes off, and before all text.
                let told = told.ack.wrapping_sub(ISN.wrapping_add(1)) as i32;
                assert!(told <= sent as i32, "round {round}: {told} of {sent} sent is acknowledged");
                una = una.max(usize::try_from(told).unwrap_or(0));
                continue;
            }
            // From what is not acknowledged on, or further on, as much as there is by then.
            let from = match random.next_u64() % 4 {
                0 => una + random.next_u64() as usize % 60,
                1 => sent.max(una),
                _ => una,
            };
            if from >= said.len() {
                continue;
            }
            let most = if random.next_u64() % 3 == 0 { 20 } else { 1_460 };
            let len = if random.next_u64() % 3 == 0 { most } else { 1 + random.next_u64() as usize % most };
            let end = (from + len).min(said.len());
            sent = sent.max(end);
            let at = 1 + from as u32;
            let segments = by_client(&mut pair, ends, at, SERVERS + 1, &said[from..end], Flags::ACK);
            dropped += usize::from(segments.is_empty());
            in_two[kind] += usize::from(segments.len() == 2);
            assert!(segments.iter().all(|segment| segment.data.len() <= 1_460), "round {round}");
            if random.next_u64() % 6 == 0 {
                continue;
            }
            for segment in segments {
                let at = segment.seq.wrapping_sub(ISN.wrapping_add(1)) as usize;
                for (place, byte) in (at..).zip(segment.data) {
                    assert_eq!(shown.get(place), Some(&byte), "round {round}: byte {place}");
                    received.insert(place, byte);
                }
            }
            while received.contains_key(&had) {
                had += 1;
            }
        }
        assert_eq!(had, shown.len(), "round {round}");
    }
    assert!(dropped > 100, "{dropped} dropped");
    assert!(in_two[0] == 0 && in_two[1] > 10, "{in_two:?} cut in two");
}

const PORT: &[u8] = b"PORT 192,168,1,10,200,1\r\n";
const SHOWN: &[u8] = b"PORT 203,0,113,2,200,1\r\n";

fn announce(pair: &mut Pair) {
    let [seen] = &by_client(pair, SHORTER, 1, SERVERS + 1, PORT, Flags::ACK)[..] else { panic!() };
    assert_eq!(seen.data, SHOWN);
}

/// The server's next acknowledgement, and the client's next segment.
fn goes_on(pair: &mut Pair) {
    let told = &by_server(pair, SHORTER, 1 + SHOWN.len() as u32, Flags::ACK, SERVERS + 1)[0];
    assert_eq!(told.ack, ISN.wrapping_add(1 + PORT.len() as u32));
    let next = &by_client(pair, SHORTER, 1 + PORT.len() as u32, SERVERS + 1, b"NOOP\r\n", Flags::ACK)[0];
    assert_eq!(
        (next.seq, next.data.as_slice()),
        (ISN.wrapping_add(1 + SHOWN.len() as u32), &b"NOOP\r\n"[..])
    );
    let again = &by_client(pair, SHORTER, 1, SERVERS + 1, PORT, Flags::ACK)[0];
    assert_eq!((again.seq, again.data.as_slice()), (ISN.wrapping_add(1), SHOWN));
}

/// An error about a segment behind replaced text quotes the number that the sender knows.
#[test]
fn an_error_quotes_the_number_of_the_sender() {
    let mut pair = Pair::assumed(&policy("helper = \"ftp\""));
    open(&mut pair, SHORTER);
    announce(&mut pair);
    let at = ISN.wrapping_add(1 + PORT.len() as u32);
    let tcp =
        Tcp { sport: 50_000, dport: 21, seq: at, ack: SERVERS + 1, flags: Flags::ACK, ..Tcp::default() };
    let left = pair.forwarded(LAN, &v4(CLIENT, SERVER).tcp(tcp).payload(b"NOOP\r\n"));
    assert_eq!(seen(&left).seq, ISN.wrapping_add(1 + SHOWN.len() as u32));
    let error = Icmp { kind: 11, code: 0, ..Icmp::default() };
    let told = pair.forwarded(WAN, &v4([203, 0, 113, 1], OUTSIDE).icmpv4(error).payload(&left[14..]));
    let quote = &ipv4::parse(&told[14..]).unwrap().payload[8..];
    assert_eq!(tcp::Header::of(ipv4::parse_prefix(quote).unwrap().payload).unwrap().seq(), at);
    assert!(wire::checksum::verifies(ipv4::parse(&told[14..]).unwrap().payload));
}

fn calls(pair: &mut Pair, port: u16) -> Vec<Verdict> {
    let tcp = Tcp { sport: 20, dport: port, seq: 1, flags: Flags::SYN, ..Tcp::default() };
    let out = pair.receive(WAN, &v4(SERVER, OUTSIDE).tcp(tcp));
    let sent = out.sent.iter().filter_map(|sent| sent.verdict);
    sent.chain(out.ended.iter().map(|(_, verdict)| *verdict)).collect()
}

#[test]
fn numbers_outlive_reloads_into_other_memory() {
    let mut pair = Pair::assumed(&policy("helper = \"ftp\""));
    open(&mut pair, SHORTER);
    announce(&mut pair);
    for text in [
        policy("helper = \"ftp\""),
        policy(""),
        policy("") + "[limit]\nflows = 3000\n",
        policy("helper = \"ftp\"") + "[limit]\nflows = 3000\n",
        policy("helper = \"ftp\"") + "[limit]\nflows = 4000\n",
    ] {
        let at = pair.at();
        pair.do_both(|gateway| {
            gateway.reload(&text, at);
        });
        goes_on(&mut pair);
    }
}

#[test]
fn a_rule_that_a_reload_adds_has_its_memory() {
    let mut pair = Pair::assumed(&policy(""));
    let at = pair.at();
    pair.do_both(|gateway| {
        gateway.reload(&policy("helper = \"ftp\""), at);
    });
    open(&mut pair, SHORTER);
    announce(&mut pair);
    assert_eq!(calls(&mut pair, 51_202), [Verdict::Dropped(Reason::DefaultDrop)]);
    assert_eq!(calls(&mut pair, 51_201), [Verdict::Forwarded]);
    assert_eq!(pair.shard().mappings.len(), 2, "the control connection's, and the announced port's");
}

#[test]
fn an_announced_port_is_free_again() {
    let mut pair = Pair::assumed(&policy("helper = \"ftp\""));
    open(&mut pair, SHORTER);
    announce(&mut pair);
    assert_eq!(pair.shard().mappings.len(), 2);
    pair.tend(301_000);
    assert_eq!(pair.shard().mappings.len(), 1, "nobody has called");
    let second = b"PORT 192,168,1,10,200,2\r\n";
    by_client(&mut pair, SHORTER, 1 + PORT.len() as u32, SERVERS + 1, second, Flags::ACK);
    assert_eq!(pair.shard().mappings.len(), 2);
    pair.do_both(|gateway| gateway.shard.clear_flows());
    assert_eq!((pair.shard().mappings.len(), pair.shard().flows.len()), (0, 0));
}

#[test]
fn numbers_are_exported_and_imported() {
    let text = policy("helper = \"ftp\"");
    let mut pair = Pair::assumed(&text);
    open(&mut pair, SHORTER);
    announce(&mut pair);
    assert_eq!(calls(&mut pair, 51_201), [Verdict::Forwarded]);
    let now = pair.at();
    let mut items = Vec::new();
    let Gateway { shard, tables, .. } = pair.run();
    shard.export(tables, now, Cursor::default(), u32::MAX, |item| items.push(item));
    let parties = items.iter().filter_map(|item| match item {
        Item::Flow(flow) => Some((flow.original.ports().unwrap().dport, flow.handshake, flow.rule)),
        _ => None,
    });
    let parties: Vec<_> = parties.collect();
    assert!(matches!(parties[0], (21, Handshake::Helped(_), Some(0))), "{parties:?}");
    assert_eq!(parties[1], (51_201, Handshake::Related, Some(0)));
    let mut other = Pair::of([Way::Run, Way::Step].map(|way| Gateway::new(&text, way)));
    other.now = pair.now;
    other.do_both(|gateway| {
        let Gateway { shard, tables, .. } = gateway;
        for item in &items {
            shard.import(tables, item, now).unwrap();
        }
    });
    goes_on(&mut other);
    let syn_ack = Tcp { sport: 51_201, dport: 20, seq: 9, ack: 2, flags: Flags::SYN_ACK, ..Tcp::default() };
    let out = other.receive(LAN, &v4(CLIENT, SERVER).tcp(syn_ack));
    assert_eq!(
        out.sent[0].verdict,
        Some(Verdict::Forwarded),
        "no rule but the control connection's accepts it"
    );
}
