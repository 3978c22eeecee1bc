//! Log records: what is recorded of packets, connections and mappings, the same by both ways through the stages; and that
//! what finds no room is counted.

use dataplane::log::{Cause, Lost, Record, RuleHit};
use dataplane::nat::{BlockChange, BlockEvent};
use dataplane::verdict::{Reason, Verdict};
use wire::PortId;
use wire::tcp::Flags;

use crate::scene::pair::{Pair, tcp, v4};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

const HOST: [u8; 4] = [192, 168, 1, 5];
const FAR: [u8; 4] = [8, 8, 8, 8];

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
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
[[rule]]
name = "quiet"
protocol = "udp"
dport = 53
action = "accept"
[[rule]]
name = "let"
from = "lan"
protocol = "tcp"
dport = 80
log = true
action = "accept"
[[rule]]
name = "seldom"
from = "lan"
protocol = "tcp"
dport = 81
rate = "1/hour"
log = true
action = "accept"
[[rule]]
name = "stop"
protocol = "udp"
log = true
action = "drop"
"#;

/// Gateways that keep records of these kinds.
fn keeping(text: &str, events: &str, room: usize) -> Pair {
    let mut pair = Pair::assumed(&format!("{text}[gateway]\nlog-events = [{events}]\n"));
    pair.do_both(|gateway| gateway.shard.log.keep(room, &gateway.tables));
    pair
}

/// Returns the records since the last call; both ways record the same.
fn records(pair: &mut Pair) -> Vec<Record> {
    let mut both = Vec::new();
    pair.do_both(|gateway| {
        both.push(gateway.shard.log.records().to_vec());
        gateway.shard.log.clear();
    });
    assert_eq!(both[0], both[1]);
    both.swap_remove(0)
}

fn hits(pair: &mut Pair) -> Vec<RuleHit> {
    let hit = |record| match record {
        Record::Rule(hit) => hit,
        other => panic!("{other:?}"),
    };
    records(pair).into_iter().map(hit).collect()
}

#[test]
fn a_packet_that_meets_a_rule_is_recorded_once_a_flow() {
    let mut pair = keeping(POLICY, "\"rule\"", 64);
    let syn = tcp(v4(HOST, FAR), [5_000, 80], 1, 0, Flags::SYN);
    pair.forwarded(LAN, &syn);
    pair.forwarded(LAN, &syn);
    let [hit] = hits(&mut pair)[..] else { panic!("once") };
    assert_eq!((hit.rule, hit.fate, hit.ingress, hit.egress), (1, 0, LAN, WAN));
    assert_eq!((hit.ends.source, hit.ends.sport), (HOST.into(), 5_000));
    assert_eq!((hit.ends.destination, hit.ends.dport, hit.ends.protocol), (FAR.into(), 80, 6));
    assert_eq!((hit.bytes, hit.tcp_flags), (40, Flags::SYN.0));
    // A rule without `log`, and what no rule decides.
    pair.forwarded(LAN, &v4(HOST, FAR).udp(5_000, 53));
    assert_eq!(pair.fate(LAN, &v4(HOST, FAR).echo_request(1, 1)), Verdict::Dropped(Reason::DefaultDrop));
    assert_eq!(hits(&mut pair), []);
}

#[test]
fn every_packet_that_is_refused_is_recorded_with_its_reason() {
    let mut pair = keeping(POLICY, "\"rule\"", 64);
    for sport in [5_000, 5_001, 5_001] {
        let fate = pair.fate(LAN, &v4(HOST, FAR).udp(sport, 99));
        assert_eq!(fate, Verdict::Dropped(Reason::RuleDrop));
    }
    let fates = |pair: &mut Pair| -> Vec<Option<Verdict>> {
        hits(pair).iter().map(|hit| Verdict::of_fate(hit.fate)).collect()
    };
    assert_eq!(fates(&mut pair), [Some(Verdict::Dropped(Reason::RuleDrop)); 3]);
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), [5_000, 81], 1, 0, Flags::SYN));
    let late = pair.fate(LAN, &tcp(v4(HOST, FAR), [5_001, 81], 1, 0, Flags::SYN));
    assert_eq!(late, Verdict::Dropped(Reason::RateLimit));
    assert_eq!(fates(&mut pair), [None, Some(Verdict::Dropped(Reason::RateLimit))]);
}

/// Without connections every packet meets its rule, in bulk.
#[test]
fn without_connections_every_packet_is_recorded() {
    let text = format!("mode = \"stateless\"\n{}", POLICY.split("[[nat]]").next().unwrap());
    let rule = "[[rule]]\nname = \"all\"\nprotocol = \"udp\"\nlog = true\naction = \"accept\"\n";
    let mut pair = keeping(&(text + rule), "\"rule\"", 64);
    let packets: Vec<_> = (0..20).map(|n| (LAN, v4(HOST, FAR).udp(n, 99))).collect();
    assert_eq!(pair.receive_all(&packets).sent.len(), 20);
    let sports: Vec<u16> = hits(&mut pair).iter().map(|hit| hit.ends.sport).collect();
    assert_eq!(sports, (0..20).collect::<Vec<_>>());
}

/// A flow that another policy lets in no more: the rule that refuses it is recorded, and that the flow has ended.
#[test]
fn what_another_policy_ends_is_recorded() {
    let mut pair = keeping(POLICY, "\"rule\", \"connection\"", 64);
    let packet = v4(HOST, FAR).udp(5_000, 53);
    pair.forwarded(LAN, &packet);
    assert!(matches!(records(&mut pair)[..], [Record::Opened(_)]));
    let at = pair.at();
    let text =
        POLICY.replace("dport = 53", "dport = 54") + "[gateway]\nlog-events = [\"rule\", \"connection\"]\n";
    pair.do_both(|gateway| {
        gateway.reload(&text, at);
        gateway.shard.log.follow(&gateway.tables);
    });
    assert_eq!(pair.fate(LAN, &packet), Verdict::Dropped(Reason::FlowRevoked));
    let [Record::Closed(closed), Record::Rule(hit)] = records(&mut pair)[..] else { panic!("two") };
    assert_eq!(closed.cause, Cause::Revoked);
    assert_eq!((hit.rule, Verdict::of_fate(hit.fate)), (3, Some(Verdict::Dropped(Reason::FlowRevoked))));
}

#[test]
fn connections_and_mappings_begin_and_end_in_pairs() {
    let mut pair = keeping(POLICY, "\"connection\", \"nat\"", 64);
    // Two flows by one mapping.
    pair.forwarded(LAN, &v4(HOST, FAR).udp(5_000, 53));
    pair.forwarded(LAN, &v4(HOST, [9, 9, 9, 9]).udp(5_000, 53));
    let [Record::Mapped(made), Record::Opened(first), Record::Opened(second)] = records(&mut pair)[..] else {
        panic!("one mapping, two flows")
    };
    assert_eq!((made.inside.ip(), made.inside.port), (std::net::IpAddr::from(HOST), 5_000));
    assert_eq!(made.outside.ip().to_string(), "203.0.113.2");
    assert_eq!((first.rule, first.egress), (0, WAN));
    assert_eq!(first.connection.reply.dport, made.outside.port);
    pair.tend(400_000);
    let ended = records(&mut pair);
    let [Record::Closed(one), Record::Closed(other), Record::Unmapped(gone)] = ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(gone, made);
    // Those that are over at one time end in no particular order.
    assert!(one.connection != other.connection);
    for closed in [one, other] {
        assert!([first.connection, second.connection].contains(&closed.connection), "{closed:?}");
    }
    assert_eq!((one.cause, one.began <= pair.at()), (Cause::Timeout, true));
}

/// Ports by blocks: a record when a host takes one, and when its last flow has ended; none of the flows.
#[test]
fn a_block_of_ports_is_recorded_as_it_comes_and_goes() {
    let text = POLICY.replace("[[nat]]", "[[nat]]\nblock = 64\nblocks-per-host = 2");
    let mut pair = keeping(&text, "\"nat-block\"", 64);
    for sport in 5_000..5_070 {
        pair.forwarded(LAN, &v4(HOST, FAR).udp(sport, 53));
    }
    let [Record::Block(first), Record::Block(second)] = records(&mut pair)[..] else { panic!("two blocks") };
    for event in [first, second] {
        assert_eq!(event.change, BlockChange::Allocated);
        assert_eq!(
            (event.block.inside, event.block.outside.to_string()),
            (HOST.into(), "203.0.113.2".to_owned())
        );
        assert_eq!((event.block.ports.first % 64, event.block.ports.last - event.block.ports.first), (0, 63));
        assert!(event.block.pool.is_some());
    }
    assert_ne!(first.block.ports, second.block.ports);
    pair.tend(400_000);
    let ended = records(&mut pair);
    let freed = |of: BlockEvent| Record::Block(BlockEvent { change: BlockChange::Freed, ..of });
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.contains(&freed(first)) && ended.contains(&freed(second)));
    // The next flow makes a record again.
    pair.forwarded(LAN, &v4(HOST, FAR).udp(5_000, 53));
    assert!(matches!(records(&mut pair)[..], [Record::Block(_)]));
}

/// A flow that does not come to be leaves no mapping behind, and the records say so.
#[test]
fn a_mapping_of_no_flow_is_given_back() {
    let text = POLICY.replace("[[nat]]", "[limit]\nflows = 1\nwhen-full = \"refuse\"\n[[nat]]");
    let mut pair = keeping(&text, "\"nat\"", 64);
    pair.forwarded(LAN, &v4(HOST, FAR).udp(5_000, 53));
    let refused = pair.fate(LAN, &v4(HOST, FAR).udp(5_001, 53));
    assert_eq!(refused, Verdict::Dropped(Reason::FlowTableFull));
    let all = records(&mut pair);
    let made = all.iter().filter(|record| matches!(record, Record::Mapped(_))).count();
    let gone = all.iter().filter(|record| matches!(record, Record::Unmapped(_))).count();
    assert_eq!((made - gone, pair.shard().mappings.len()), (1, 1));
}

#[test]
fn what_finds_no_room_is_counted() {
    let mut pair = keeping(POLICY, "\"rule\", \"connection\", \"nat\"", 3);
    for sport in 0..5 {
        pair.fate(LAN, &v4(HOST, FAR).udp(sport, 99));
    }
    pair.forwarded(LAN, &v4(HOST, FAR).udp(5_000, 53));
    assert_eq!(records(&mut pair).len(), 3);
    let lost = pair.run().shard.log.take_lost();
    assert_eq!(lost, Lost { rules: 2, connections: 1, mappings: 1 });
    assert_eq!(pair.run().shard.log.take_lost(), Lost::default());
}

#[test]
fn who_keeps_none_has_none() {
    let mut pair =
        Pair::assumed(&format!("{POLICY}[gateway]\nlog-events = [\"rule\", \"connection\", \"nat\"]\n"));
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), [5_000, 80], 1, 0, Flags::SYN));
    assert_eq!(records(&mut pair), []);
    assert_eq!(pair.run().shard.log.take_lost(), Lost::default());
}
