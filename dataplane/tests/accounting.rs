//! Flow records and NAT events, against what was sent: the same by both ways through the stages, and nothing is lost without being
//! counted.

use std::collections::BTreeMap;
use std::rc::Rc;

use dataplane::Tables;
use dataplane::accounting::{End, FlowReport, Lost, Record, Session};
use dataplane::flow::{Direction, Ends, FlowId};
use policy::model::{Collector, Ipfix, IpfixRecord};
use wire::build::Packet;
use wire::tcp::Flags;
use wire::{Nanos, PortId};

use crate::scene::pair::{Pair, tcp, v4, v6};
use crate::scene::{Gateway, tables};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

const HOST: [u8; 4] = [192, 168, 1, 5];
const FAR: [u8; 4] = [8, 8, 8, 8];
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];

static DATA: [u8; 200] = [7; 200];

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ffff::1"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
source = "192.168.1.0/24"
[default]
"lan > wan" = "accept"
[timeout]
udp = "30s"
udp-unanswered = "30s"
tcp-closing = "60s"
"#;

/// Tables whose host exports flows and NAT events.
pub(crate) fn exported_by(mut tables: Tables) -> Tables {
    tables.ipfix = Ipfix {
        collector: Some(Collector::Udp(([192, 0, 2, 9], 4739).into())),
        records: Some(vec![IpfixRecord::Flow, IpfixRecord::Nat]),
        ..Ipfix::default()
    };
    tables
}

/// Has a gateway make records.
pub(crate) fn exporting(gateway: &mut Gateway, room: usize) {
    let text = Rc::get_mut(&mut gateway.tables).unwrap();
    text.ipfix = exported_by(tables(POLICY)).ipfix;
    gateway.shard.keep_accounts(&gateway.tables).unwrap();
    gateway.shard.accounting.exchange(Vec::with_capacity(room));
}

/// Takes the records so far.
fn records(gateway: &mut Gateway) -> Vec<Record> {
    let room = gateway.shard.accounting.exchange(Vec::new());
    let empty = Vec::with_capacity(room.capacity());
    gateway.shard.accounting.exchange(empty);
    assert_eq!(gateway.shard.accounting.take_lost(), Lost::default());
    room
}

/// Takes the records so far, with those of flows that go on.
pub(crate) fn reports(gateway: &mut Gateway) -> Vec<Record> {
    let mut all = records(gateway);
    let mut next = Some(FlowId(0));
    while let Some(first) = next {
        next = gateway.shard.report_rest(first);
        all.extend(records(gateway));
    }
    all
}

/// Packets and bytes by ends, of flows ended or not.
pub(crate) fn sums(gateway: &mut Gateway) -> BTreeMap<(Ends, Ends), [(u64, u64); 2]> {
    let mut sums = BTreeMap::new();
    for record in reports(gateway) {
        if let Record::Flow(report) = record {
            let of = &report.connection;
            let sum: &mut [(u64, u64); 2] = sums.entry((of.original, of.reply)).or_default();
            for (sum, direction) in sum.iter_mut().zip([Direction::Original, Direction::Reply]) {
                sum.0 += report.counts.of(direction).packets;
                sum.1 += report.counts.of(direction).bytes;
            }
        }
    }
    sums
}

fn pair(room: usize) -> Pair {
    let mut pair = Pair::assumed(POLICY);
    pair.do_both(|gateway| exporting(gateway, room));
    pair
}

/// Takes the records of both ways, which must be the same.
fn taken(pair: &mut Pair, take: fn(&mut Gateway) -> Vec<Record>) -> Vec<Record> {
    let mut found = Vec::new();
    pair.do_both(|gateway| found.push(take(gateway)));
    assert_eq!(found[0], found[1]);
    found.remove(0)
}

fn flows(records: Vec<Record>) -> Vec<FlowReport> {
    let of = |record| match record {
        Record::Flow(report) => Some(report),
        Record::Nat(_) | Record::Block(_) => None,
    };
    records.into_iter().filter_map(of).collect()
}

fn there(sport: u16, data: usize) -> Packet<'static> {
    v4(HOST, FAR).udp(sport, 53).payload(&DATA[..data])
}

fn back(sport: u16, data: usize) -> Packet<'static> {
    v4(FAR, OUTSIDE).udp(53, sport).payload(&DATA[..data])
}

#[test]
fn a_record_has_what_was_sent() {
    let mut pair = pair(16);
    let begun = pair.at() + Nanos::from_millis(1);
    for data in [10, 20, 30] {
        pair.forwarded(LAN, &there(4000, data));
    }
    let last = pair.at();
    for _ in 0..2 {
        pair.forwarded(WAN, &back(4000, 100));
    }
    assert!(
        matches!(&taken(&mut pair, records)[..], [Record::Nat(event)] if event.session == Session::Created)
    );
    pair.tend(31_000);
    let found = taken(&mut pair, records);
    let [Record::Flow(report), Record::Nat(event)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(event.session, Session::Deleted);
    assert_eq!(event.connection, report.connection);
    assert_eq!(report.connection.original.source, std::net::IpAddr::from(HOST));
    assert_eq!(report.connection.reply.destination, std::net::IpAddr::from(OUTSIDE));
    assert_eq!((report.end, report.egress), (End::Idle, Some(WAN)));
    let [one, other] = [Direction::Original, Direction::Reply].map(|way| *report.counts.of(way));
    assert_eq!((one.packets, one.bytes), (3, 3 * 28 + 60));
    assert_eq!((other.packets, other.bytes), (2, 2 * 128));
    assert_eq!(one.first(), begun);
    assert!(last.0 - one.last().0 < 1_100_000, "{last:?} {:?}", one.last());
    // Not translated, and of IPv6: no event, and the flow has an end of its own.
    pair.forwarded(LAN, &v6("2001:db8:1::5", "2001:db8:2::1").udp(5, 53).payload(&DATA[..3]));
    pair.do_both(|gateway| {
        let (id, original) = {
            let (id, flow) = gateway.shard.flows.iter().next().unwrap();
            (id, Ends::of(flow.original()))
        };
        gateway.shard.end_flow_of(id, &original);
    });
    let found = flows(taken(&mut pair, records));
    assert_eq!((found[0].end, found[0].counts.of(Direction::Original).bytes), (End::Forced, 51));
}

#[test]
fn a_flow_that_goes_on_is_reported_and_counts_from_zero() {
    let mut pair = pair(16);
    for _ in 0..3 {
        pair.forwarded(LAN, &there(4000, 0));
    }
    taken(&mut pair, records);
    let sweep = |pair: &mut Pair| {
        let at = pair.at();
        pair.do_both(|gateway| gateway.shard.report_active(64, at));
        flows(taken(pair, records))
    };
    assert!(sweep(&mut pair).is_empty());
    pair.tend(29_000);
    pair.forwarded(LAN, &there(4000, 0));
    pair.tend(29_000);
    pair.forwarded(LAN, &there(4000, 0));
    assert!(sweep(&mut pair).is_empty(), "58 s are no minute");
    pair.tend(3_000);
    let found = sweep(&mut pair);
    assert_eq!(
        (found.len(), found[0].end, found[0].counts.of(Direction::Original).packets),
        (1, End::Active, 5)
    );
    pair.forwarded(LAN, &there(4000, 0));
    assert!(sweep(&mut pair).is_empty());
    pair.tend(31_000);
    let found = flows(taken(&mut pair, records));
    assert_eq!(
        (found.len(), found[0].end, found[0].counts.of(Direction::Original).packets),
        (1, End::Idle, 1)
    );
}

#[test]
fn a_connection_that_is_over_is_reported_before_its_flow_ends() {
    let mut pair = pair(16);
    let ports = [4001, 80];
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), ports, 100, 0, Flags::SYN));
    let back = |seq, ack, flags| tcp(v4(FAR, OUTSIDE), [80, 4001], seq, ack, flags);
    pair.forwarded(WAN, &back(500, 101, Flags::SYN.and(Flags::ACK)));
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), ports, 101, 501, Flags::ACK.and(Flags::FIN)));
    pair.forwarded(WAN, &back(501, 102, Flags::ACK.and(Flags::FIN)));
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), ports, 102, 502, Flags::ACK));
    taken(&mut pair, records);
    pair.tend(3_000);
    let at = pair.at();
    pair.do_both(|gateway| gateway.shard.report_active(64, at));
    let found = flows(taken(&mut pair, records));
    assert_eq!((found.len(), found[0].end), (1, End::Closed));
    let count = found[0].counts.of(Direction::Original);
    assert_eq!((count.packets, count.bytes, count.tcp_flags), (3, 120, 0x13));
    pair.tend(61_000);
    // Nothing was left to report but the end of the translation.
    assert!(matches!(&taken(&mut pair, records)[..], [Record::Nat(_)]));
}

#[test]
fn what_finds_no_room_is_counted() {
    let mut pair = pair(3);
    for sport in 4_001..=4_010 {
        pair.forwarded(LAN, &there(sport, 0));
    }
    pair.do_both(|gateway| assert_eq!(gateway.shard.accounting.take_lost(), Lost { flows: 0, events: 7 }));
    // Each direction has a record of its own.
    for sport in 4_001..=4_002 {
        pair.forwarded(WAN, &back(sport, 0));
    }
    pair.tend(31_000);
    pair.do_both(|gateway| assert_eq!(gateway.shard.accounting.take_lost(), Lost { flows: 12, events: 10 }));
    // The sweep waits for room, and what it waits for is counted by who ends it.
    for sport in 4_001..=4_010 {
        pair.forwarded(LAN, &there(sport, 0));
    }
    pair.do_both(|gateway| {
        gateway.shard.accounting.take_lost();
        gateway.shard.accounting.exchange(Vec::with_capacity(4));
        let next = gateway.shard.report_rest(FlowId(0));
        assert_eq!(gateway.shard.unreported(next), 10);
        gateway.shard.accounting.exchange(Vec::new());
        assert_eq!(gateway.shard.unreported(next), 6);
    });
}

/// A table of another size has the same counts; one that is smaller reports those that have found no place.
#[test]
fn a_reload_loses_no_count() {
    for size in [4_096, 3] {
        let mut pair = pair(64);
        for sport in 1..=10 {
            pair.forwarded(LAN, &there(sport, 0));
        }
        let at = pair.at();
        let text = format!("{POLICY}[limit]\nflows = {size}\n");
        pair.do_both(|gateway| {
            gateway.change(exported_by(tables(&text)), at);
        });
        if size > 10 {
            assert!(flows(taken(&mut pair, records)).is_empty());
        }
        let found = flows(taken(&mut pair, reports));
        assert_eq!(found.len(), 10, "{size}");
        assert!(found.iter().all(|report| report.counts.of(Direction::Original).packets == 1));
        let evicted = found.iter().filter(|report| report.end == End::Evicted).count();
        assert_eq!(evicted, if size > 10 { 0 } else { 7 });
    }
}

/// A policy that no longer exports, and one that does again: flows count from there on.
#[test]
fn counts_begin_with_the_policy() {
    let mut pair = pair(16);
    pair.forwarded(LAN, &there(4000, 0));
    let at = pair.at();
    for text in [tables(POLICY), exported_by(tables(POLICY))] {
        let text = Rc::new(text);
        let of = |gateway: &mut Gateway| {
            let mut own = tables(POLICY);
            own.ipfix = text.ipfix.clone();
            gateway.change(own, at);
            gateway.shard.accounting.follow(&gateway.tables);
        };
        pair.do_both(of);
        pair.forwarded(LAN, &there(4000, 0));
    }
    let found = flows(taken(&mut pair, reports));
    assert_eq!((found.len(), found[0].counts.of(Direction::Original).packets), (1, 1));
}

/// Without a host that exports, nothing is counted, and no memory taken.
#[test]
fn a_host_that_exports_nothing_pays_nothing() {
    let mut plain = Pair::assumed(POLICY);
    let mut pair = pair(16);
    let of = |pair: &Pair| pair.shard().memory().find(|(name, _)| *name == "flows").unwrap().1;
    assert!(of(&pair) > of(&plain) + 64 * 65_536 - 1, "{} {}", of(&pair), of(&plain));
    plain.forwarded(LAN, &there(4000, 0));
    pair.forwarded(LAN, &there(4000, 0));
    plain.do_both(|gateway| assert!(!gateway.shard.accounting.is_on()));
}
