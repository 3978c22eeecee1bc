//! Two gateways that keep the same flows: whatever is told to the other, the other goes on with established flows as the first would.

use std::net::Ipv6Addr;

use dataplane::flow::{FlowId, Life};
use dataplane::import::Refused;
use dataplane::replay::Way;
use dataplane::shard::Setup;
use dataplane::state::{Ended, FlowRecord, Item, Names};
use dataplane::sync::{CopySweep, EndCause, Synced, Taken};
use dataplane::{Reason, Shard, Verdict};
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;
use wire::build::Packet;
use wire::tcp::Flags;
use wire::{Nanos, PortId, ipv4, ipv6};

use crate::scene::pair::{tcp, v4, v6};
use crate::scene::{Arrival, Gateway, START, setup};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const FAR: [u8; 4] = [8, 8, 8, 8];
const MOVED: [u8; 4] = [203, 0, 113, 10];

static DATA: [u8; 1400] = [7; 1400];

/// Policy of one of two gateways, which differ in their own addresses. Ports are chosen at random, so that those of a copy are no accident.
pub(crate) fn policy(own: u8, more: &str) -> String {
    format!(
        r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.{own}/24"]
virtual-addresses = ["192.168.1.1"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.{own}/24"]
virtual-addresses = ["203.0.113.10"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
random = true
[default]
"lan > wan" = "accept"
[gateway]
sync = "listen:192.0.2.1:9480"
sync-certificate = "crt"
sync-key = "key"
sync-ca = "ca"
[timeout]
tcp-closing = "60s"
udp = "120s"
udp-unanswered = "120s"
{more}
"#
    )
}

/// One of two gateways.
struct Box {
    gateway: Gateway,
    number: u32,
}

impl Box {
    fn new(own: u8, more: &str) -> Box {
        Box::of(own, &policy(own, more))
    }

    fn of(own: u8, policy: &str) -> Box {
        let mut gateway = Gateway::new(policy, Way::Run);
        let seed = [u64::from(own), 99];
        gateway.shard = Shard::new(&gateway.tables, Setup { seed, ..setup(START) }).unwrap();
        gateway.shard.keep_changes(&gateway.tables).unwrap();
        Box { gateway, number: 0 }
    }

    fn receive(&mut self, port: PortId, at: Nanos, packet: &Packet<'_>) -> Result<Vec<u8>, Verdict> {
        self.number += 1;
        let (at, number) = (START + at, self.number);
        self.gateway.receive(&[Arrival { port, at, number, bytes: packet.to_vec() }]);
        let out = self.gateway.out(usize::MAX);
        match (out.sent.as_slice(), out.ended.as_slice()) {
            // The link-layer addresses are each gateway's own.
            ([sent], []) => Ok(sent.bytes[14..].to_vec()),
            (_, [(_, verdict)]) => Err(*verdict),
            _ => panic!("{out:?}"),
        }
    }

    fn take(&mut self, at: Nanos, most: usize) -> Taken {
        let mut taken = Taken::default();
        let Gateway { shard, tables, .. } = &mut self.gateway;
        shard.take_changes(tables, START + at, most, &mut taken);
        taken
    }

    fn take_all(&mut self, at: Nanos) -> Taken {
        let mut taken = Taken::default();
        let mut next = Some(FlowId(0));
        while let Some(first) = next {
            let Gateway { shard, tables, .. } = &mut self.gateway;
            next = shard.take_all(tables, START + at, first, 2, &mut taken);
        }
        taken
    }

    /// Takes in what the other has told, with a round of 1.
    fn hear(&mut self, from: &Box, told: &Taken, at: Nanos) -> Vec<Result<Synced, Refused>> {
        let places = Names::of(&from.gateway.tables).places_in(&self.gateway.tables);
        let Gateway { shard, tables, .. } = &mut self.gateway;
        told.ended.iter().for_each(|ended| {
            let _ = shard.end_synced(tables, ended);
        });
        let flows = told.flows.iter().map(|item| match places.moved(item) {
            Item::Flow(flow) => flow,
            other => panic!("{other:?}"),
        });
        flows.map(|flow| shard.take_in_synced(tables, &flow, START + at, 1)).collect()
    }

    fn sweep(&mut self, at: Nanos) {
        self.gateway.shard.list_refreshes(u32::MAX, START + at);
    }

    fn flows(&self) -> u32 {
        self.gateway.shard.flows.len()
    }
}

fn boxes(more: &str) -> [Box; 2] {
    [2, 3].map(|own| Box::new(own, more))
}

fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn host(number: u8) -> [u8; 4] {
    [192, 168, 1, 100 + number]
}

/// The outside port in a forwarded packet.
fn shown(bytes: &[u8]) -> u16 {
    let packet = ipv4::parse(bytes).unwrap();
    assert_eq!(
        packet.header.src().octets(),
        MOVED,
        "the virtual address is shown, which no policy has of its own"
    );
    u16::from_be_bytes([packet.payload[0], packet.payload[1]])
}

/// Opens a connection through a gateway; returns its outside port.
fn open(one: &mut Box, number: u8, at: Nanos) -> u16 {
    let (inside, ports) = (host(number), [5000, 443]);
    let syn = tcp(v4(inside, FAR), ports, 1000, 0, Flags::SYN);
    let outside = shown(&one.receive(LAN, at, &syn).unwrap());
    let answer = tcp(v4(FAR, MOVED), [443, outside], 9000, 1001, Flags::SYN_ACK);
    one.receive(WAN, at, &answer).unwrap();
    one.receive(LAN, at, &tcp(v4(inside, FAR), ports, 1001, 9001, Flags::ACK)).unwrap();
    outside
}

fn record(told: &Taken) -> FlowRecord {
    match told.flows.as_slice() {
        [Item::Flow(flow)] => *flow,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_goes_on_with_its_port_though_its_windows_have_moved_far_since() {
    let [mut one, mut two] = boxes("");
    let outside = open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    assert_eq!(record(&told).state.life(), Life::TcpEstablished);
    assert_eq!(two.hear(&one, &told, millis(2)), [Ok(Synced::Created)]);
    // 100 MB go by, of which the other hears nothing, and one acknowledgement is older than the last one.
    let (ours, theirs) = (1001_u32.wrapping_add(100_000_000), 9001_u32.wrapping_add(70_000_000));
    let data = tcp(v4(host(1), FAR), [5000, 443], ours, theirs, Flags::ACK).payload(&DATA);
    assert_eq!(shown(&two.receive(LAN, millis(500), &data).unwrap()), outside);
    // Its receiver had more of it already, out of order.
    let back = tcp(v4(FAR, MOVED), [443, outside], theirs - 1400, ours + 4200, Flags::ACK).payload(&DATA);
    two.receive(WAN, millis(501), &back).unwrap();
    let further = tcp(v4(FAR, MOVED), [443, outside], theirs, ours + 4200, Flags::ACK).payload(&DATA);
    two.receive(WAN, millis(502), &further).unwrap();
    // What is far outside of the windows learnt is refused as ever.
    let forged = tcp(v4(FAR, MOVED), [443, outside], theirs + (1 << 30), ours, Flags::ACK).payload(&DATA);
    assert!(two.receive(WAN, millis(503), &forged).is_err());
    // And a reset ends it by its exact number alone.
    let blind = tcp(v4(FAR, MOVED), [443, outside], theirs + 2000, ours, Flags::RST);
    let _ = two.receive(WAN, millis(504), &blind);
    let fin = tcp(v4(host(1), FAR), [5000, 443], ours + 4200, theirs + 1400, Flags::FIN.and(Flags::ACK));
    two.receive(LAN, millis(505), &fin).unwrap();
}

#[test]
fn a_reset_before_any_segment_is_the_receiver_s_to_judge() {
    let [mut one, mut two] = boxes("");
    let outside = open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    let reset = tcp(v4(FAR, MOVED), [443, outside], 1 << 31, 0, Flags::RST);
    two.receive(WAN, millis(3), &reset).unwrap();
    let data = tcp(v4(host(1), FAR), [5000, 443], 500_000, 900_000, Flags::ACK).payload(&DATA);
    two.receive(LAN, millis(4), &data).unwrap();
}

#[test]
fn half_open_connections_are_not_told_of_and_each_change_is_told_once() {
    let [mut one, _] = boxes("");
    one.receive(LAN, millis(1), &tcp(v4(host(1), FAR), [5000, 443], 1, 0, Flags::SYN)).unwrap();
    assert!(one.take(millis(2), 100).flows.is_empty());
    open(&mut one, 2, millis(3));
    one.receive(LAN, millis(4), &v4(host(3), FAR).udp(7000, 53)).unwrap();
    assert_eq!(one.take(millis(5), 1).flows.len() + one.take(millis(5), 100).flows.len(), 2);
    assert!(one.gateway.shard.changes.is_empty());
    // What a full synchronisation has told of is not told again.
    one.receive(LAN, millis(5), &v4(host(4), FAR).udp(7000, 53)).unwrap();
    assert_eq!(one.take_all(millis(5)).flows.len(), 3);
    assert!(one.take(millis(6), 100).flows.is_empty());
}

#[test]
fn what_the_peer_told_is_not_sent_back_until_a_packet_comes_here() {
    let [mut one, mut two] = boxes("");
    let outside = open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    two.sweep(Nanos::from_secs(1000));
    assert!(two.take(Nanos::from_secs(1000), 100).flows.is_empty());
    assert!(two.take_all(Nanos::from_secs(1000)).flows.is_empty());
    let back = tcp(v4(FAR, MOVED), [443, outside], 9001, 1001, Flags::ACK).payload(&DATA);
    two.receive(WAN, Nanos::from_secs(1001), &back).unwrap();
    two.sweep(Nanos::from_secs(1002));
    let told = two.take(Nanos::from_secs(1002), 100);
    assert_eq!(one.hear(&two, &told, Nanos::from_secs(1002)), [Ok(Synced::Updated)]);
    // Now it is the other's, which has seen it last.
    one.sweep(Nanos::from_secs(2000));
    assert!(one.take_all(Nanos::from_secs(2000)).flows.is_empty());
}

#[test]
fn an_older_word_changes_nothing_and_both_at_once_is_a_conflict() {
    let [mut one, mut two] = boxes("");
    let outside = open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    let data = |seq| tcp(v4(host(1), FAR), [5000, 443], seq, 9001, Flags::ACK).payload(&DATA);
    // Both see packets; the first then closes.
    two.receive(LAN, millis(5_000), &data(1001)).unwrap();
    let fin = tcp(v4(FAR, MOVED), [443, outside], 9001, 1001, Flags::FIN.and(Flags::ACK));
    one.receive(WAN, millis(4_500), &fin).unwrap();
    let told = one.take(millis(5_100), 100);
    assert_eq!(two.hear(&one, &told, millis(5_100)), [Ok(Synced::Conflict)]);
    two.receive(LAN, millis(5_200), &data(1001)).unwrap();
    let told = one.take_all(millis(60_000));
    assert_eq!(two.hear(&one, &told, millis(7_000)), [Ok(Synced::Older)]);
    assert_eq!(two.gateway.shard.flows.flow(FlowId(0)).unwrap().state().life(), Life::TcpEstablished);
}

#[test]
fn ends_are_told_and_the_port_is_free_again() {
    let [mut one, mut two] = boxes("");
    open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    assert_eq!((two.flows(), two.gateway.shard.mappings.len()), (1, 1));
    let original = record(&told).original;
    assert_eq!(one.gateway.shard.end_flow_of(FlowId(0), &original), Ended::Now);
    let told = one.take(millis(3), 100);
    assert_eq!(told.ended.iter().map(|ended| ended.cause).collect::<Vec<_>>(), [EndCause::Killed]);
    two.hear(&one, &told, millis(3));
    assert_eq!((two.flows(), two.gateway.shard.mappings.len()), (0, 0));
    // That end is no news for the one that told of it.
    assert!(two.take(millis(4), 100).ended.is_empty());
}

#[test]
fn an_end_elsewhere_does_not_end_a_flow_that_goes_on_here_unless_it_was_killed() {
    let [mut one, mut two] = boxes("");
    open(&mut one, 1, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    let data = tcp(v4(host(1), FAR), [5000, 443], 1001, 9001, Flags::ACK).payload(&DATA);
    two.receive(LAN, millis(5_000), &data).unwrap();
    // The first one forgets it, as it comes to know another policy.
    one.gateway.shard.clear_flows();
    let told = one.take(millis(5_001), 100);
    assert_eq!((told.ended.len(), told.ended[0].cause), (1, EndCause::Other));
    two.hear(&one, &told, millis(5_001));
    assert_eq!(two.flows(), 1);
}

#[test]
fn outside_ports_of_copies_are_not_given_to_others() {
    // 10 ports: what one gives, the other must not.
    let few = "ports = \"4000-4009\"\nrandom = true\n";
    let of = |own: u8| policy(own, "").replace("random = true\n", few);
    let mut both = [2, 3].map(|own| {
        let mut one = Box::new(own, "");
        one.gateway = Gateway::new(&of(own), Way::Run);
        one.gateway.shard.keep_changes(&one.gateway.tables).unwrap();
        one
    });
    let mut ports = std::collections::BTreeSet::new();
    for number in 0..10 {
        let [one, two] = &mut both;
        let (one, two) = if number % 2 == 0 { (one, two) } else { (two, one) };
        assert!(ports.insert(open(one, number, millis(1))), "given twice");
        let told = one.take(millis(2), 100);
        assert_eq!(two.hear(one, &told, millis(2)), [Ok(Synced::Created)]);
    }
    for one in &mut both {
        let syn = tcp(v4(host(20), FAR), [5000, 443], 1000, 0, Flags::SYN);
        assert!(one.receive(LAN, millis(3), &syn).is_err());
    }
}

#[test]
fn a_peer_that_begins_anew_leaves_its_flows_and_one_that_has_been_away_takes_the_ended_ones_along() {
    let [mut one, mut two] = boxes("");
    open(&mut one, 1, millis(1));
    open(&mut one, 2, millis(1));
    let told = one.take(millis(2), 100);
    two.hear(&one, &told, millis(2));
    // Away for a while, in which one has ended: the next round is without it.
    let Item::Flow(first) = told.flows[0] else { panic!() };
    one.gateway.shard.end_flow_of(first.id, &first.original);
    let all = one.take_all(millis(9));
    assert_eq!(all.flows.len(), 1);
    let places = Names::of(&one.gateway.tables).places_in(&two.gateway.tables);
    let Gateway { shard, tables, .. } = &mut two.gateway;
    let Item::Flow(left) = places.moved(&all.flows[0]) else { panic!() };
    assert_eq!(shard.take_in_synced(tables, &left, START + millis(9), 2), Ok(Synced::Updated));
    assert_eq!(shard.sweep_copies(CopySweep::Purge { round: 2 }, FlowId(0), 1), Some(FlowId(1)));
    assert_eq!(shard.sweep_copies(CopySweep::Purge { round: 2 }, FlowId(1), 100), None);
    assert_eq!(two.flows(), 1);
    // Begun anew: what it had is told to it.
    two.gateway.shard.sweep_copies(CopySweep::Adopt, FlowId(0), 100);
    let told = two.take_all(millis(20));
    let [mut anew, _] = boxes("");
    assert_eq!(anew.hear(&two, &told, millis(20)), [Ok(Synced::Created)]);
}

#[test]
fn items_that_do_not_fit_are_refused_and_leave_nothing() {
    let [mut one, mut two] = boxes("");
    open(&mut one, 1, millis(1));
    let good = record(&one.take(millis(2), 100));
    let Gateway { shard, tables, .. } = &mut two.gateway;
    let tries = [
        (FlowRecord { ingress: None, ..good }, Refused::InterfaceGone),
        (FlowRecord { state: dataplane::flow::State::SynSent, ..good }, Refused::Malformed),
        (FlowRecord { state: dataplane::flow::State::Udp, ..good }, Refused::Malformed),
        (
            FlowRecord {
                mapping: good.mapping.map(|of| dataplane::state::MappingRecord { nat: None, ..of }),
                ..good
            },
            Refused::NameGone,
        ),
    ];
    for (bad, reason) in tries {
        assert_eq!(shard.take_in_synced(tables, &bad, START + millis(3), 1), Err(reason), "{bad:?}");
        assert_eq!((shard.flows.len(), shard.mappings.len()), (0, 0));
    }
}

#[test]
fn other_memory_for_flows_asks_for_a_full_synchronisation() {
    let [mut one, mut two] = boxes("");
    let outside = open(&mut one, 1, millis(1));
    one.gateway.reload(&policy(2, "[limit]\nflows = 500\n"), START + millis(2));
    assert_ne!(one.take(millis(3), 100).lost, 0);
    let told = one.take_all(millis(4));
    assert_eq!(two.hear(&one, &told, millis(4)), [Ok(Synced::Created)]);
    let back = tcp(v4(FAR, MOVED), [443, outside], 9001, 1001, Flags::ACK).payload(&DATA);
    two.receive(WAN, millis(5), &back).unwrap();
}

#[test]
fn long_lived_flows_are_told_of_before_the_peer_would_end_them() {
    let [mut one, mut two] = boxes("");
    let inside = v4(host(1), FAR).udp(7000, 53);
    let outside = shown(&one.receive(LAN, millis(0), &inside).unwrap());
    let answer = v4(FAR, MOVED).udp(53, outside);
    // 120 s without a packet end it; for 20 minutes there is one each 20 s.
    for step in 0..60 {
        let at = Nanos::from_secs(20 * step);
        one.receive(LAN, at, &inside).unwrap();
        one.receive(WAN, at, &answer).unwrap();
        one.sweep(at);
        let told = one.take(at, 100);
        two.hear(&one, &told, at);
        two.gateway.tend(START + at);
        assert_eq!(two.flows(), 1, "{step}");
    }
    let at = Nanos::from_secs(20 * 59 + 115);
    two.receive(WAN, at, &answer).unwrap();
}

/// A step of the first gateway's life.
#[derive(Clone, Debug)]
enum Step {
    /// A packet of a conversation, inwards or outwards, of so many bytes.
    Packet { of: u8, is_back: bool, bytes: u16 },
    /// The peer is told of up to so many changes.
    Tell { most: usize },
    /// A conversation ends by request.
    Kill { of: u8 },
    /// Milliseconds go by, and the sweep.
    Pass { millis: u16 },
    /// Full synchronisation.
    All,
}

fn step() -> impl Strategy<Value = Step> {
    let packet = (0..6_u8, any::<bool>(), 0..1400_u16).prop_map(|(of, is_back, bytes)| Step::Packet {
        of,
        is_back,
        bytes,
    });
    prop_oneof![
        12 => packet,
        3 => (1..4_usize).prop_map(|most| Step::Tell { most }),
        1 => (0..6_u8).prop_map(|of| Step::Kill { of }),
        2 => any::<u16>().prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::All),
    ]
}

/// A conversation: TCP of even numbers, UDP of odd ones.
#[derive(Clone, Copy, Default)]
struct Talk {
    outside: Option<u16>,
    /// Segments of the handshake that have gone by.
    handshake: u8,
    sent: [u32; 2],
    /// Time of the last packet.
    last: Nanos,
}

impl Talk {
    /// The next packet, and where it comes in.
    fn packet(&mut self, of: u8, is_back: bool, bytes: u16) -> Option<(PortId, Packet<'static>)> {
        let data = &DATA[..usize::from(bytes)];
        if of % 2 == 1 {
            return match (is_back, self.outside) {
                (false, _) => Some((LAN, v4(host(of), FAR).udp(6000, 53).payload(data))),
                (true, Some(outside)) => Some((WAN, v4(FAR, MOVED).udp(53, outside).payload(data))),
                (true, None) => None,
            };
        }
        let there = |seq, ack, flags| tcp(v4(host(of), FAR), [5000, 443], seq, ack, flags);
        let [ours, theirs] = self.sent;
        self.handshake = (self.handshake + 1).min(4);
        match (self.handshake, self.outside) {
            (1, _) => Some((LAN, there(1000, 0, Flags::SYN))),
            (2, Some(outside)) => {
                Some((WAN, tcp(v4(FAR, MOVED), [443, outside], 9000, 1001, Flags::SYN_ACK)))
            }
            (3, _) => {
                self.sent = [1001, 9001];
                Some((LAN, there(1001, 9001, Flags::ACK)))
            }
            (_, Some(outside)) if is_back => {
                self.sent[1] = theirs.wrapping_add(bytes.into());
                let packet = tcp(v4(FAR, MOVED), [443, outside], theirs, ours, Flags::ACK);
                Some((WAN, packet.payload(data)))
            }
            _ => {
                self.sent[0] = ours.wrapping_add(bytes.into());
                Some((LAN, there(ours, theirs, Flags::ACK).payload(data)))
            }
        }
    }

    fn is_established(&self, of: u8) -> bool {
        self.outside.is_some() && (of % 2 == 1 || self.handshake >= 3)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 256 }))]

    /// After any life of the first gateway, told in any pieces, the second forwards the same bytes as the first.
    #[test]
    fn the_other_goes_on_as_this_one_would(
        steps in prop::collection::vec(step(), 1..80),
        later in prop::collection::vec((0..6_u8, any::<bool>(), 0..1400_u16), 1..30),
    ) {
        let [mut one, mut two] = boxes("");
        let mut talks = [Talk::default(); 6];
        let mut at = millis(0);
        for step in steps {
            at += millis(1);
            match step {
                Step::Packet { of, is_back, bytes } => {
                    let talk = &mut talks[usize::from(of)];
                    let before = *talk;
                    let Some((port, packet)) = talk.packet(of, is_back, bytes) else { continue };
                    talk.last = at;
                    match one.receive(port, at, &packet) {
                        Ok(sent) if port == LAN => talk.outside = Some(shown(&sent)),
                        Ok(_) => {}
                        // A host sends no more than the other's window lets it: it waits.
                        Err(Verdict::Dropped(Reason::TcpWindow)) => *talk = before,
                        // It has been idle for its timeout, or begins anew after a request.
                        Err(_) => *talk = Talk::default(),
                    }
                }
                Step::Tell { most } => {
                    let told = one.take(at, most);
                    two.hear(&one, &told, at);
                }
                Step::Kill { of } => {
                    let inside = host(of);
                    let found = one.gateway.shard.flows.iter().find(|(_, flow)| flow.original().source() == std::net::IpAddr::from(inside));
                    if let Some((id, original)) = found.map(|(id, flow)| (id, dataplane::flow::Ends::of(flow.original()))) {
                        one.gateway.shard.end_flow_of(id, &original);
                    }
                    talks[usize::from(of)] = Talk::default();
                }
                Step::Pass { millis: more } => {
                    at += millis(more.into());
                    one.sweep(at);
                    one.gateway.tend(START + at);
                    two.gateway.tend(START + at);
                }
                Step::All => {
                    let told = one.take_all(at);
                    two.hear(&one, &told, at);
                }
            }
        }
        let told = one.take(at, usize::MAX);
        two.hear(&one, &told, at);
        for (of, is_back, bytes) in later {
            at += millis(1);
            let talk = &mut talks[usize::from(of)];
            // To a tick, nobody can tell whether it has been idle for too long.
            let is_late = of % 2 == 1 && at.since(talk.last) > Nanos::from_secs(119);
            if !talk.is_established(of) || is_late {
                continue;
            }
            let before = *talk;
            talk.last = at;
            let Some((port, packet)) = talk.packet(of, is_back, bytes) else { continue };
            match one.receive(port, at, &packet) {
                Ok(sent) => prop_assert_eq!(two.receive(port, at, &packet), Ok(sent)),
                Err(_) => *talk = before,
            }
        }
    }
}

/// CLAT: a flow with keys of two IP versions, and its mapping, go over as others do.
#[test]
fn an_ipv4_host_s_connection_by_way_of_ipv6_goes_on() {
    const ACROSS: &str = "[[route]]\nto = \"::/0\"\nvia = \"fe80::1\"\ninterface = \"wan\"\n[[nat]]\nname = \"four\"\n\
                          kind = \"clat\"\npool = [\"2001:db8:2::464\"]\nrandom = true\n";
    let of = |own| Box::of(own, &policy(own, ACROSS).replace("0.0.0.0/0", "128.0.0.0/1"));
    let [mut one, mut two] = [2, 3].map(of);
    let (outside, server) = ("2001:db8:2::464", "64:ff9b::8.8.8.8");
    let (question, ping) = (v4(host(1), FAR).udp(5000, 53), v4(host(1), FAR).echo_request(7, 1));
    let shown = |bytes: &[u8], at: usize| {
        let packet = ipv6::parse(bytes).unwrap();
        let ends = [outside, server].map(|text| text.parse::<Ipv6Addr>().unwrap());
        assert_eq!([packet.header.src(), packet.header.dst()], ends);
        u16::from_be_bytes([packet.payload[at], packet.payload[at + 1]])
    };
    let port = shown(&one.receive(LAN, millis(1), &question).unwrap(), 0);
    let id = shown(&one.receive(LAN, millis(1), &ping).unwrap(), 4);
    let told = one.take(millis(2), 100);
    assert_eq!(two.hear(&one, &told, millis(2)), [Ok(Synced::Created), Ok(Synced::Created)]);
    let answers = [v6(server, outside).udp(53, port), v6(server, outside).echo_reply(id, 1)];
    for answer in answers {
        let back = two.receive(WAN, millis(3), &answer).unwrap();
        let packet = ipv4::parse(&back).unwrap();
        assert_eq!([packet.header.src().octets(), packet.header.dst().octets()], [FAR, host(1)]);
        let end = if packet.payload[0] == 0 && packet.payload[1] == 53 { [19, 136] } else { [0, 7] };
        let at = if end == [0, 7] { 4 } else { 2 };
        assert_eq!(packet.payload[at..at + 2], end);
    }
    assert_eq!(shown(&two.receive(LAN, millis(4), &question).unwrap(), 0), port);
    assert_eq!(shown(&two.receive(LAN, millis(4), &ping).unwrap(), 4), id);
}

/// NAT64: a flow with keys of two IP versions, and its mapping, go over as others do.
#[test]
fn an_ipv6_host_s_connection_to_an_ipv4_host_goes_on() {
    const ACROSS: &str = "[[route]]\nto = \"2001:db8:1::/64\"\ninterface = \"lan\"\n\
                          [[nat]]\nname = \"six\"\nkind = \"nat64\"\nrandom = true\n";
    let [mut one, mut two] = boxes(ACROSS);
    let (client, server) = ("2001:db8:1::10", "64:ff9b::8.8.8.8");
    let question = v6(client, server).udp(5000, 53).payload(&[1]);
    let outside = shown(&one.receive(LAN, millis(1), &question).unwrap());
    let told = one.take(millis(2), 100);
    assert_eq!(two.hear(&one, &told, millis(2)), [Ok(Synced::Created)]);
    let back = two.receive(WAN, millis(3), &v4(FAR, MOVED).udp(53, outside).payload(&[2])).unwrap();
    let packet = ipv6::parse(&back).unwrap();
    let ends = [server, client].map(|text| text.parse::<Ipv6Addr>().unwrap());
    assert_eq!([packet.header.src(), packet.header.dst()], ends);
    assert_eq!(packet.payload[..4], [0, 53, 19, 136], "from port 53 to 5000");
    assert_eq!(shown(&two.receive(LAN, millis(4), &question).unwrap()), outside);
    // To another server by the same mapping.
    let other = v6(client, "64:ff9b::9.9.9.9").udp(5000, 53);
    assert_eq!(shown(&two.receive(LAN, millis(5), &other).unwrap()), outside);
}

/// A flow that full synchronisation has told of before the list was: its later packets are heard of as those of any other.
#[test]
fn a_flow_is_refreshed_though_it_is_still_listed() {
    let [mut one, mut two] = boxes("");
    let question = v4(host(1), FAR).udp(6000, 53);
    let sent = one.receive(LAN, millis(1), &question);
    let told = one.take_all(millis(2));
    assert_eq!(two.hear(&one, &told, millis(2)), [Ok(Synced::Created)]);
    let seconds = Nanos::from_secs;
    one.receive(LAN, seconds(70), &question).unwrap();
    one.sweep(seconds(119));
    let told = one.take(seconds(119), usize::MAX);
    assert_eq!(two.hear(&one, &told, seconds(119)), [Ok(Synced::Updated)]);
    two.gateway.tend(START + seconds(180));
    assert_eq!(two.receive(LAN, seconds(180), &question), sent);
}

#[test]
fn a_control_connection_of_ftp_goes_on_with_its_numbers() {
    let rule = "[[rule]]\nname = \"ftp\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\ndport = 21\nhelper = \"ftp\"\n\
                action = \"accept\"\n";
    let [mut one, mut two] = boxes(rule);
    let client = |seq, ack, flags, data: &'static [u8]| {
        (LAN, tcp(v4(host(5), FAR), [4_000, 21], seq, ack, flags).payload(data))
    };
    let numbers = |bytes: &[u8]| {
        let segment = wire::tcp::parse(ipv4::parse(bytes).unwrap().payload).unwrap();
        (segment.header.seq(), segment.header.ack(), segment.payload.to_vec())
    };
    let (port, syn) = client(100, 0, Flags::SYN, b"");
    let outside = shown(&one.receive(port, millis(1), &syn).unwrap());
    let server = |ack, flags, seq| (WAN, tcp(v4(FAR, MOVED), [21, outside], seq, ack, flags));
    let (port, packet) = server(101, Flags::SYN_ACK, 900);
    one.receive(port, millis(2), &packet).unwrap();
    let (port, packet) = client(101, 901, Flags::ACK, b"");
    one.receive(port, millis(3), &packet).unwrap();
    let told = one.take(millis(4), 100);
    assert_eq!(two.hear(&one, &told, millis(4)), [Ok(Synced::Created)]);
    let old = b"PORT 192,168,1,105,200,1\r\n";
    let (port, announcement) = client(101, 901, Flags::ACK, old);
    let (_, _, new) = numbers(&one.receive(port, millis(5), &announcement).unwrap());
    assert!(new.starts_with(b"PORT 203,0,113,10,"), "{new:?}");
    let told = one.take(millis(6), 100);
    assert_eq!(two.hear(&one, &told, millis(6)), [Ok(Synced::Updated)]);
    // From here on the other has it.
    let [old_end, new_end] = [old.len(), new.len()].map(|len| 101 + len as u32);
    let (port, packet) = server(new_end, Flags::ACK, 901);
    assert_eq!(numbers(&two.receive(port, millis(7), &packet).unwrap()), (901, old_end, Vec::new()));
    let (port, packet) = client(old_end, 901, Flags::ACK, b"NOOP\r\n");
    assert_eq!(
        numbers(&two.receive(port, millis(8), &packet).unwrap()),
        (new_end, 901, b"NOOP\r\n".to_vec())
    );
    assert_eq!(numbers(&two.receive(LAN, millis(9), &announcement).unwrap()), (101, 901, new), "sent again");
}
