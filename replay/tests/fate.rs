//! Rows of packets say what a plain witness of the same replay has seen, for policies and packets made of random bytes.

use std::collections::{BTreeMap, BTreeSet};

use dataplane::accounting::Record;
use dataplane::flow::{Direction, FlowId};
use dataplane::replay::Witness;
use dataplane::{Reason, Verdict, flag};
use policy::model::{Collector, Ipfix, IpfixRecord};
use proptest::prelude::*;
use replay::fate::{Fate, Fates};
use replay::{Observer, Player};
use wire::build::{self, Tcp};
use wire::ethernet::Mac;
use wire::header::{Fragment, Ports, Protocol};
use wire::vlan::Tag;
use wire::{Frame, Nanos, PortId};

use crate::scene::packet::BYTES;
use crate::scene::{Arrival, START, policy as policies};
use crate::trial::{Event, Story, Trial, arrivals};

/// Both witnesses of one replay.
struct Both {
    fates: Fates,
    story: Story,
    /// ICMP errors about flows, which are in none of these flows' counts.
    errors: BTreeSet<u64>,
}

impl Both {
    fn note(&mut self, frame: &Frame) {
        if frame.meta.flags & flag::RELATED != 0 {
            self.errors.insert(frame.meta.number.into());
        }
    }
}

impl Witness for Both {
    fn queued(&mut self, port: PortId, frame: &Frame) {
        self.fates.queued(port, frame);
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.note(frame);
        self.fates.sent(port, at, frame, verdict);
        self.story.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.note(frame);
        self.fates.ended(frame, verdict);
        self.story.ended(frame, verdict);
    }

    fn ended_at(&mut self, at: Nanos, frame: &Frame, verdict: Verdict) {
        self.note(frame);
        self.fates.ended_at(at, frame, verdict);
        self.story.ended_at(at, frame, verdict);
    }

    fn released(&mut self, number: u32, first: u32) {
        self.fates.released(number, first);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        self.fates.refused(number, ingress, reason);
        self.story.refused(number, ingress, reason);
    }
}

/// Rows of all packets by their numbers, and what a plain witness saw.
fn play(trial: &Trial) -> (BTreeMap<u64, Fate>, Story) {
    let mut tables = trial.tables();
    tables.ipfix = Ipfix {
        collector: Some(Collector::Udp(([127, 0, 0, 1], 4739).into())),
        records: Some(vec![IpfixRecord::Flow]),
        active_timeout: Some(Nanos::MAX),
        ..Ipfix::default()
    };
    let captures = trial.captures(&tables);
    let both = Both { fates: Fates::new(&tables), story: Story::default(), errors: BTreeSet::new() };
    let mut observer = Observer::new(both, &tables, captures.start());
    let mut player = Player::new(tables, captures).expect("memory");
    player.replay.shard.keep_accounts(&player.replay.tables).expect("memory");
    player.replay.shard.accounting.exchange(Vec::with_capacity(65_536));
    let mut rows = Vec::new();
    while player
        .step(&mut observer, |number, packet, both: &mut Both| both.fates.arrives(number, packet))
        .is_some()
    {
        observer.outputs.fates.settle();
        rows.extend(observer.outputs.fates.take());
    }
    player.finish(&mut observer);
    observer.outputs.fates.finish();
    rows.extend(observer.outputs.fates.take());
    let count = rows.len();
    let rows: BTreeMap<u64, Fate> = rows.into_iter().map(|row| (row.number, row)).collect();
    assert_eq!(rows.len(), count, "a packet has two rows");
    while player.replay.shard.report_rest(FlowId(0)).is_some() {}
    let mut flows: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows.values().filter(|row| !observer.outputs.errors.contains(&row.number)) {
        *flows.entry(row.flow.unwrap_or(NONE)).or_default() += 1;
    }
    flows.remove(&NONE);
    assert_eq!(flows, counted(player.replay.shard.accounting.exchange(Vec::new())));
    (rows, observer.outputs.story)
}

const NONE: u64 = u64::MAX;

/// Packets of each flow as the data plane counts them, by the number of the packet that opened the flow.
fn counted(records: Vec<Record>) -> BTreeMap<u64, u64> {
    let mut flows = BTreeMap::new();
    for record in records {
        let Record::Flow(report) = record else { panic!("no other records are made") };
        let both = [Direction::Original, Direction::Reply].map(|way| report.counts.of(way).packets);
        *flows.entry(report.counts.opener().into()).or_default() += both.iter().sum::<u64>();
    }
    flows
}

/// The final verdict of a packet, with the port and time of its departure.
fn last(events: &[Event]) -> (Verdict, Option<(PortId, Nanos)>) {
    let verdict = events.iter().find_map(|event| match event {
        Event::Sent(port, at, Some(verdict), _) => Some((*verdict, Some((*port, *at)))),
        Event::Sent(_, _, None, _) => None,
        Event::Ended(verdict) => Some((*verdict, None)),
        Event::Refused(reason) => Some((Verdict::Dropped(*reason), None)),
    });
    verdict.expect("each packet of which anything was told has a verdict")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_is_what_became_of_its_packet(
        mut seed in any::<[u8; policies::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; BYTES]>(), 1..120),
    ) {
        // A tunnel's outer packets have the numbers of inner ones.
        seed[0] &= !0x18;
        // Copies to groups, too.
        seed[3] &= !0x20;
        let scene = policies::of(&seed);
        let arrivals = arrivals(&scene, &packets);
        let trial = Trial::new(&scene.text, &arrivals, "fate");
        let (rows, story) = play(&trial);
        let numbers: Vec<u64> = rows.keys().copied().collect();
        prop_assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
        for (number, row) in &rows {
            match story.0.get(&(*number as u32)) {
                None => prop_assert_eq!((row.verdict, row.departure, row.egress), (None, None, None)),
                Some(events) => {
                    let (verdict, departed) = last(events);
                    prop_assert_eq!(row.verdict, Some(verdict));
                    prop_assert_eq!(row.departure, departed.map(|(_, at)| at));
                    prop_assert_eq!(row.egress.is_some(), departed.is_some());
                }
            }
            if let Some(departure) = row.departure {
                prop_assert!(departure >= row.at);
            }
        }
        // A flow is a packet of the replay.
        prop_assert!(rows.values().filter_map(|row| row.flow).all(|flow| rows.contains_key(&flow)));
    }
}

const GUESTS: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.guest]
zone = "guest"
parent = "lan"
vlan = 20
addresses = ["192.168.20.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
rate = "1 Mbit/s"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[default]
"lan > wan" = "accept"
"guest > wan" = "accept"
[[rule]]
name = "no-mail"
to = "wan"
protocol = "tcp"
dport = 25
action = "drop"
[limit]
queue = 3
"#;

fn packet(host: [u8; 4], number: u32) -> build::Packet<'static> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 0x77]), Mac([2, 0, 0, 0, 0, 0x0a]));
    let link = if host[2] == 20 { link.vlan(Tag::customer(20)) } else { link };
    link.ipv4(host.into(), [198, 51, 100, number as u8].into())
}

fn at(number: u32, bytes: Vec<u8>) -> Arrival {
    Arrival { port: PortId(0), at: START + Nanos(number.into()), number, bytes }
}

#[test]
fn a_row_has_interfaces_rule_and_flow() {
    let lan = [192, 168, 1, 5];
    let mail = Tcp { sport: 4_000, dport: 25, flags: wire::tcp::Flags::SYN, ..Tcp::default() };
    let waits = Fragment { id: 7, offset: 64, more: false };
    let arrivals = [
        at(0, packet([192, 168, 20, 5], 1).udp(4_000, 53).payload(&[0; 100]).to_vec()),
        at(1, packet(lan, 2).tcp(mail).to_vec()),
        at(2, packet([192, 168, 20, 5], 1).udp(4_000, 53).payload(&[0; 100]).to_vec()),
        at(3, packet(lan, 3).fragment(waits).protocol(Protocol::UDP).payload(&[0; 8]).to_vec()),
    ];
    let (rows, _) = play(&Trial::new(GUESTS, &arrivals, "interfaces"));
    let [guest, mail, again, held] = [0, 1, 2, 3].map(|number| rows[&number]);
    assert_eq!((guest.ingress, guest.egress, guest.flow), (PortId(1), Some(PortId(2)), Some(0)));
    assert_eq!((guest.verdict, guest.rule, guest.length), (Some(Verdict::Forwarded), None, 18 + 28 + 100));
    let ends = guest.ends.unwrap();
    assert_eq!(
        (ends.source, ends.ports),
        ([192, 168, 20, 5].into(), Some(Ports { sport: 4_000, dport: 53 }))
    );
    assert_eq!((mail.verdict, mail.rule), (Some(Verdict::Dropped(Reason::RuleDrop)), Some(0)));
    assert_eq!((mail.ingress, mail.egress, mail.flow, mail.departure), (PortId(0), None, None, None));
    // 128 bytes and what they take beside, at 1 Mbit/s.
    assert_eq!(again.flow, Some(0));
    let sent = again.departure.unwrap().since(guest.departure.unwrap());
    assert_eq!(sent, Nanos((14 + 128 + 24) * 8_000));
    // A later fragment has no ports, and waits for its first: held, or given up at the end.
    assert_eq!((held.ends.unwrap().ports, held.departure), (None, None));
    assert_eq!(held.verdict, None);
}

#[test]
fn packets_lost_in_a_queue_have_rows_of_their_own() {
    let arrivals: Vec<Arrival> = (0..10)
        .map(|number| at(number, packet([192, 168, 1, 5], 1).udp(4_000, 53).payload(&[0; 900]).to_vec()))
        .collect();
    let (rows, _) = play(&Trial::new(GUESTS, &arrivals, "lost"));
    let count = |verdict| rows.values().filter(|row| row.verdict == Some(verdict)).count();
    let (sent, lost) = (count(Verdict::Forwarded), count(Verdict::Dropped(Reason::QueueFull)));
    assert_eq!(sent + lost, 10);
    assert!((3..=4).contains(&sent), "{sent} of a queue of 3");
    assert!(rows.values().all(|row| row.flow == Some(0)));
}

/// Flows of packets to hosts outside that all share one place of the flow table.
const ONE: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[default]
"lan > wan" = "accept"
[limit]
flows = 1
"#;

#[test]
fn a_row_has_its_own_flow_where_another_took_the_place() {
    let lan = [192, 168, 1, 5];
    let whole = |host| packet(lan, host).udp(4_000, 53).payload(&[0; 8]).to_vec();
    let part = |offset, more| packet(lan, 1).fragment(Fragment { id: 7, offset, more });
    let first = part(0, true).udp(4_000, 53).payload(&[0; 8]).to_vec();
    let later = part(16, false).protocol(Protocol::UDP).payload(&[0; 8]).to_vec();
    // A fragment waits while two flows come and go, and goes on in the flow that the first of its datagram opens.
    let bytes =
        [whole(2), whole(2), later, whole(3), whole(3), first, whole(1), whole(3), whole(2), whole(2)];
    let arrivals: Vec<Arrival> = (0..).zip(bytes).map(|(number, bytes)| at(number, bytes)).collect();
    let (rows, _) = play(&Trial::new(ONE, &arrivals, "one"));
    let flows: Vec<Option<u64>> = rows.values().map(|row| row.flow).collect();
    assert_eq!(flows, [0, 0, 5, 3, 3, 5, 5, 7, 8, 8].map(Some));
}
