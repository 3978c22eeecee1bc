//! Dynamic sets: shards do as a naive model does, whatever is added, removed, over or flushed meanwhile, and whichever way packets go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use dataplane::replay::Way;
use dataplane::set::{Element, SetChange, SetOutcome};
use dataplane::state::{Cursor, Item, Names};
use dataplane::{Reason, Tables, Verdict};
use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START};

const BANNED: u16 = 0;
const SEEN: u16 = 1;

/// Sizes of the two sets.
const SIZES: [usize; 2] = [3, 2];

const RULES: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
    [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
    [dynamic-set.banned]\nsize = 3\n[dynamic-set.seen]\nsize = 2\ntimeout = \"5s\"\n\
    [[rule]]\nname = \"banned\"\nsource = \"@banned\"\naction = \"drop\"\n\
    [[rule]]\nname = \"to-banned\"\ndestination = \"@banned\"\naction = \"drop\"\n\
    [[rule]]\nname = \"trap\"\nprotocol = \"udp\"\ndport = 23\nadd-source = \"@banned\"\nfor = \"3s\"\naction = \"drop\"\n\
    [[rule]]\nname = \"learn\"\nprotocol = \"udp\"\ndport = 24\nadd-source = \"@seen\"\naction = \"accept\"\n\
    [[rule]]\nname = \"unseen\"\nprotocol = \"udp\"\ndport = 25\nsource = { except = [\"@seen\"] }\naction = \"drop\"\n\
    [[rule]]\nname = \"rest\"\naction = \"accept\"\n";

/// Hosts behind `lan` and `wan`.
const INSIDE: [[u8; 4]; 2] = [[192, 168, 1, 10], [192, 168, 1, 11]];
const OUTSIDE: [[u8; 4]; 4] = [[198, 51, 100, 1], [198, 51, 100, 2], [198, 51, 101, 3], [8, 8, 8, 8]];

fn rules(mode: &str) -> String {
    let timeouts = if mode == "stateful" { "[timeout]\nudp = \"1h\"\nudp-unanswered = \"1h\"\n" } else { "" };
    format!("mode = \"{mode}\"\n{RULES}{timeouts}")
}

/// A step of a scene.
#[derive(Clone, Debug)]
enum Act {
    /// A datagram from outside, to a port of a host inside.
    Inward {
        from: usize,
        to: usize,
        sport: u16,
        dport: u16,
    },
    /// One to outside.
    Outward {
        from: usize,
        to: usize,
        sport: u16,
        dport: u16,
    },
    /// An element is added by request, for so many quarters of a second.
    Add {
        set: u16,
        prefix: usize,
        lasts: Option<u64>,
    },
    Remove {
        set: u16,
        prefix: usize,
    },
    Flush {
        set: u16,
    },
    /// Quarters of a second pass.
    Pass(u64),
}

fn prefixes() -> Vec<IpNet> {
    [
        "198.51.100.1/32",
        "198.51.100.2/32",
        "198.51.101.3/32",
        "198.51.100.0/24",
        "192.168.1.11/32",
        "0.0.0.0/0",
    ]
    .map(|text| text.parse().unwrap())
    .to_vec()
}

fn act() -> impl Strategy<Value = Act> {
    let port = || prop_oneof![3 => Just(80u16), 1 => Just(23), 2 => Just(24), 2 => Just(25)];
    let sport = || prop_oneof![3 => Just(1000u16), 1 => Just(1001)];
    let prefix = || prop_oneof![8 => 0..4usize, 1 => 4..6usize];
    prop_oneof![
        8 => (0..4usize, 0..2usize, sport(), port()).prop_map(|(from, to, sport, dport)| Act::Inward { from, to, sport, dport }),
        2 => (0..2usize, 0..4usize, sport(), port()).prop_map(|(from, to, sport, dport)| Act::Outward { from, to, sport, dport }),
        2 => (0..2u16, prefix(), prop::option::of(1..20u64)).prop_map(|(set, prefix, lasts)| Act::Add { set, prefix, lasts }),
        2 => (0..2u16, prefix()).prop_map(|(set, prefix)| Act::Remove { set, prefix }),
        1 => (0..2u16).prop_map(|set| Act::Flush { set }),
        3 => (1..9u64).prop_map(Act::Pass),
    ]
}

/// Connection of a model: its first packet's ends.
type Ends = (IpAddr, IpAddr, u16, u16);

/// Knowledge of a flow about the sets: the number of the last change, and its memberships.
#[derive(Clone, Copy)]
struct Seen {
    change: u64,
    bits: [bool; 3],
}

/// The gateway, with lists.
#[derive(Default)]
struct Model {
    is_stateful: bool,
    elements: [Vec<(IpNet, Option<Nanos>)>; 2],
    refused: [u64; 2],
    flows: BTreeMap<Ends, Seen>,
    /// Numbers of the last changes: of an address, of anything wider, and of removals from each set.
    change: u64,
    hosts: BTreeMap<IpAddr, u64>,
    wide: u64,
    removed: [u64; 2],
}

impl Model {
    fn has(&self, set: u16, address: IpAddr, now: Nanos) -> bool {
        let is_live = |until: &Option<Nanos>| until.is_none_or(|until| now < until);
        self.elements[usize::from(set)].iter().any(|(net, until)| is_live(until) && net.contains(&address))
    }

    /// Source banned, destination banned, source seen.
    fn bits(&self, source: IpAddr, destination: IpAddr, now: Nanos) -> [bool; 3] {
        [self.has(BANNED, source, now), self.has(BANNED, destination, now), self.has(SEEN, source, now)]
    }

    fn stamp(&mut self, prefix: IpNet) {
        self.change += 1;
        if prefix.prefix_len() == prefix.max_prefix_len() {
            self.hosts.insert(prefix.addr(), self.change);
        } else {
            self.wide = self.change;
        }
    }

    fn add(&mut self, set: u16, prefix: IpNet, until: Option<Nanos>, now: Nanos) -> SetOutcome {
        let place = usize::from(set);
        let list = &mut self.elements[place];
        list.retain(|(_, until)| until.is_none_or(|until| now < until));
        if let Some((_, known)) = list.iter_mut().find(|(net, _)| *net == prefix) {
            *known = known.zip(until).map(|(one, other)| one.max(other));
            return SetOutcome::Refreshed;
        }
        if list.len() >= SIZES[place] {
            self.refused[place] += 1;
            return SetOutcome::Full;
        }
        list.push((prefix, until));
        self.stamp(prefix);
        SetOutcome::Added
    }

    fn remove(&mut self, set: u16, prefix: IpNet, now: Nanos) -> SetOutcome {
        let list = &mut self.elements[usize::from(set)];
        list.retain(|(_, until)| until.is_none_or(|until| now < until));
        let Some(at) = list.iter().position(|(net, _)| *net == prefix) else { return SetOutcome::Absent };
        list.remove(at);
        self.stamp(prefix);
        self.removed[usize::from(set)] = self.change;
        SetOutcome::Removed
    }

    fn flush(&mut self, set: u16) {
        self.elements[usize::from(set)].clear();
        self.change += 1;
        self.wide = self.change;
        self.removed[usize::from(set)] = self.change;
    }

    /// Fate of a packet that no flow has.
    fn first(&mut self, ends: Ends, dport: u16, now: Nanos) -> Verdict {
        let (source, destination, ..) = ends;
        let [banned, to_banned, seen] = self.bits(source, destination, now);
        let is_dropped = banned || to_banned || dport == 23 || dport == 25 && !seen;
        if !banned && !to_banned {
            match dport {
                23 => drop(self.add(BANNED, source.into(), Some(now + Nanos::from_secs(3)), now)),
                24 => drop(self.add(SEEN, source.into(), Some(now + Nanos::from_secs(5)), now)),
                _ => {}
            }
        }
        if is_dropped {
            return Verdict::Dropped(Reason::RuleDrop);
        }
        if self.is_stateful {
            let bits = self.bits(source, destination, now);
            self.flows.insert(ends, Seen { change: self.change, bits });
        }
        Verdict::Forwarded
    }

    fn packet(&mut self, from: IpAddr, to: IpAddr, sport: u16, dport: u16, now: Nanos) -> Verdict {
        let (there, back) = ((from, to, sport, dport), (to, from, dport, sport));
        let Some(ends) = [there, back].into_iter().find(|ends| self.flows.contains_key(ends)) else {
            return self.first(there, dport, now);
        };
        let seen = self.flows[&ends];
        let (source, destination, _, dport) = ends;
        let stamp = |address: &IpAddr| self.hosts.get(address).copied().unwrap_or(0);
        if self.wide.max(stamp(&source)).max(stamp(&destination)) <= seen.change {
            return Verdict::Forwarded;
        }
        let bits = self.bits(source, destination, now);
        let gained = (0..3).any(|at| bits[at] && !seen.bits[at]);
        let of_set = [BANNED, BANNED, SEEN].map(usize::from);
        let lost = (0..3).any(|at| !bits[at] && seen.bits[at] && self.removed[of_set[at]] > seen.change);
        let [banned, to_banned, is_seen] = bits;
        let is_refused = banned || to_banned || dport == 23 || dport == 25 && !is_seen;
        if (gained || lost) && is_refused {
            self.flows.remove(&ends);
            return Verdict::Dropped(Reason::FlowRevoked);
        }
        self.flows.insert(ends, Seen { change: self.change, bits });
        Verdict::Forwarded
    }
}

fn datagram(from: [u8; 4], to: [u8; 4], sport: u16, dport: u16) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
    link.ipv4(from.into(), to.into()).udp(sport, dport).payload(&[7; 8]).to_vec()
}

/// Receives packets that came together, and compares their fates with the model's.
fn receive(gateways: &mut [Gateway; 2], waiting: &mut Vec<(Arrival, Verdict)>) {
    let arrivals: Vec<Arrival> = waiting.iter().map(|(arrival, _)| arrival.clone()).collect();
    let outs = gateways.each_mut().map(|gateway| {
        gateway.receive(&arrivals);
        gateway.out(usize::MAX)
    });
    assert_eq!(outs[0], outs[1], "run and step");
    let fate = |number: u32| {
        let sent = outs[0].sent.iter().find(|sent| sent.number == number).and_then(|sent| sent.verdict);
        sent.or_else(|| outs[0].ended.iter().find(|(of, _)| *of == number).map(|(_, verdict)| *verdict))
    };
    for (arrival, verdict) in waiting.drain(..) {
        assert_eq!(fate(arrival.number), Some(verdict), "packet {}", arrival.number);
    }
}

fn play(mode: &str, acts: &[Act]) {
    let mut gateways = [Way::Run, Way::Step].map(|way| Gateway::new(&rules(mode), way));
    let mut model = Model { is_stateful: mode == "stateful", ..Model::default() };
    let (mut now, mut number) = (START, 0);
    let mut waiting: Vec<(Arrival, Verdict)> = Vec::new();
    let prefixes = prefixes();
    for act in acts {
        let quarters = |many: u64| Nanos::from_millis(250 * many);
        let (port, from, to, sport, dport) = match *act {
            Act::Inward { from, to, sport, dport } => (1, OUTSIDE[from], INSIDE[to], sport, dport),
            Act::Outward { from, to, sport, dport } => (0, INSIDE[from], OUTSIDE[to], sport, dport),
            Act::Pass(many) => {
                now += quarters(many);
                continue;
            }
            Act::Add { set, prefix, lasts } => {
                receive(&mut gateways, &mut waiting);
                let until = lasts.map(|lasts| now + quarters(lasts));
                let wanted = model.add(set, prefixes[prefix], until, now);
                let change = SetChange::Add(Element { set, prefix: prefixes[prefix], until });
                for gateway in &mut gateways {
                    assert_eq!(gateway.shard.change_set(&gateway.tables, &change, now), wanted);
                }
                continue;
            }
            Act::Remove { set, prefix } => {
                receive(&mut gateways, &mut waiting);
                let wanted = model.remove(set, prefixes[prefix], now);
                let change = SetChange::Remove { set, prefix: prefixes[prefix] };
                for gateway in &mut gateways {
                    assert_eq!(gateway.shard.change_set(&gateway.tables, &change, now), wanted);
                }
                continue;
            }
            Act::Flush { set } => {
                receive(&mut gateways, &mut waiting);
                let outcomes = gateways
                    .each_mut()
                    .map(|gateway| gateway.shard.change_set(&gateway.tables, &SetChange::Flush { set }, now));
                assert_eq!(outcomes[0], outcomes[1]);
                // One that has nothing but what is over may know of that already.
                if outcomes[0] == SetOutcome::Removed {
                    model.flush(set);
                } else {
                    assert!(
                        model.elements[usize::from(set)]
                            .iter()
                            .all(|(_, until)| until.is_some_and(|until| until <= now))
                    );
                }
                continue;
            }
        };
        let bytes = datagram(from, to, sport, dport);
        let verdict = model.packet(Ipv4Addr::from(from).into(), Ipv4Addr::from(to).into(), sport, dport, now);
        waiting.push((Arrival { port: PortId(port), at: now, number, bytes }, verdict));
        number += 1;
        if waiting.len() == 40 {
            receive(&mut gateways, &mut waiting);
        }
    }
    receive(&mut gateways, &mut waiting);
    for set in [BANNED, SEEN] {
        let place = usize::from(set);
        let mut wanted: Vec<_> = model.elements[place].clone();
        wanted.retain(|(_, until)| until.is_none_or(|until| now < until));
        wanted.sort_unstable();
        for gateway in &gateways {
            assert_eq!(elements(gateway, set, now), wanted);
            assert_eq!(gateway.shard.set_report(set).refused, model.refused[place]);
        }
    }
}

fn elements(gateway: &Gateway, set: u16, now: Nanos) -> Vec<(IpNet, Option<Nanos>)> {
    let mut found = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let give = |element: Element| found.push((element.prefix, element.until));
        next = gateway.shard.set_elements(&gateway.tables, set, from, 2, now, give);
    }
    found.sort_unstable();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flows_and_sets_are_as_in_a_model(acts in vec(act(), 1..120)) {
        play("stateful", &acts);
    }

    #[test]
    fn without_flows_every_packet_meets_the_sets(acts in vec(act(), 1..120)) {
        play("stateless", &acts);
    }
}

/// Sets of so many elements, each filled by requests.
fn store(sizes: &[u32]) -> Gateway {
    let mut text = RULES.split("[dynamic-set").next().unwrap_or_default().to_owned();
    for (place, size) in sizes.iter().enumerate() {
        text += &format!("[dynamic-set.s{place}]\nsize = {size}\n");
    }
    for place in 0..sizes.len() {
        text += &format!("[[rule]]\nname = \"r{place}\"\nsource = \"@s{place}\"\naction = \"drop\"\n");
    }
    Gateway::new(&text, Way::Run)
}

/// An element of a model of the store: its set, prefix and moment.
type Known = BTreeMap<(u16, IpNet), Option<Nanos>>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Prefixes that several sets share, moments in any order, flushes of sets that are used on, and memory that is just enough.
    #[test]
    fn stores_are_as_lists(
        sizes in vec(1..30u32, 1..5),
        changes in vec((any::<u16>(), 0..40u8, prop::option::weighted(0.7, 1..40u64), 0..20u8, 0..6u64), 1..400),
    ) {
        let mut gateway = store(&sizes);
        let mut known = Known::new();
        let mut now = START;
        for (set, prefix, lasts, kind, passes) in changes {
            let set = set % sizes.len() as u16;
            let address = match prefix % 2 {
                0 => IpAddr::from([10, 0, 0, prefix]),
                _ => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(prefix)]),
            };
            let length = if prefix % 5 == 0 { 24 } else if address.is_ipv4() { 32 } else { 128 };
            let prefix = IpNet::new(address, length).unwrap().trunc();
            now += Nanos::from_millis(100 * passes);
            known.retain(|_, until| until.is_none_or(|until| now < until));
            let many = |known: &Known| known.keys().filter(|(of, _)| *of == set).count() as u32;
            match kind {
                0 => {
                    let change = SetChange::Flush { set };
                    gateway.shard.change_set(&gateway.tables, &change, now);
                    known.retain(|(of, _), _| *of != set);
                }
                1..5 => {
                    let change = SetChange::Remove { set, prefix };
                    let was = known.remove(&(set, prefix)).is_some();
                    let wanted = if was { SetOutcome::Removed } else { SetOutcome::Absent };
                    prop_assert_eq!(gateway.shard.change_set(&gateway.tables, &change, now), wanted);
                }
                5 => gateway.tend(now),
                _ => {
                    let until = lasts.map(|lasts| now + Nanos::from_millis(100 * lasts));
                    let change = SetChange::Add(Element { set, prefix, until });
                    let wanted = match known.get(&(set, prefix)) {
                        Some(_) => SetOutcome::Refreshed,
                        None if many(&known) < sizes[usize::from(set)] => SetOutcome::Added,
                        None => SetOutcome::Full,
                    };
                    prop_assert_eq!(gateway.shard.change_set(&gateway.tables, &change, now), wanted);
                    if wanted != SetOutcome::Full {
                        let moment = known.entry((set, prefix)).or_insert(until);
                        *moment = moment.zip(until).map(|(one, other)| one.max(other));
                    }
                }
            }
        }
        for set in 0..sizes.len() as u16 {
            let own = known.iter().filter(|((of, _), until)| *of == set && until.is_none_or(|until| now < until));
            let wanted: Vec<_> = own.map(|((_, prefix), until)| (*prefix, *until)).collect();
            prop_assert_eq!(elements(&gateway, set, now), wanted);
        }
        // All that is over gives its memory back.
        let end = now + Nanos::from_secs(100);
        known.retain(|_, until| until.is_none());
        gateway.tend(end);
        for set in 0..sizes.len() as u16 {
            let many = known.keys().filter(|(of, _)| *of == set).count() as u32;
            prop_assert_eq!(gateway.shard.set_report(set).elements, many);
        }
    }
}

#[test]
fn what_rules_add_is_told_once_and_other_workers_do_the_same() {
    let text = rules("stateful");
    let [mut one, mut other] = [Way::Run, Way::Run].map(|way| Gateway::new(&text, way));
    let trap = |number, at| {
        let bytes = datagram(OUTSIDE[0], INSIDE[0], 1000 + number as u16, 23);
        Arrival { port: PortId(1), at, number, bytes }
    };
    let open =
        Arrival { port: PortId(1), at: START, number: 0, bytes: datagram(OUTSIDE[0], INSIDE[0], 7, 80) };
    other.receive(std::slice::from_ref(&open));
    assert_eq!(other.out(usize::MAX).sent.len(), 1);
    one.receive(&[trap(1, START), trap(2, START)]);
    let mut told = Vec::new();
    one.shard.take_set_additions(|element| told.push(element));
    let until = Some(START + Nanos::from_secs(3));
    assert_eq!(told, [Element { set: BANNED, prefix: "198.51.100.1/32".parse().unwrap(), until }]);
    one.shard.take_set_additions(|element| panic!("{element:?} again"));
    for element in told {
        assert_eq!(other.shard.change_set(&other.tables, &SetChange::Add(element), START), SetOutcome::Added);
    }
    other.receive(&[Arrival { number: 3, ..open }]);
    assert_eq!(other.out(usize::MAX).ended, [(3, Verdict::Dropped(Reason::FlowRevoked))]);
    assert_eq!(elements(&one, BANNED, START), elements(&other, BANNED, START));
}

#[test]
fn more_than_can_be_told_is_counted() {
    let text = rules("stateless").replace("size = 3", "size = 40000");
    let mut gateway = Gateway::new(&text, Way::Run);
    let batches: Vec<Vec<Arrival>> = (0..20_000u32)
        .collect::<Vec<_>>()
        .chunks(50)
        .map(|numbers| {
            let one = |number: &u32| {
                let from = Ipv4Addr::from_bits(0x0b00_0000 + number).octets();
                let bytes = datagram(from, INSIDE[0], 1, 23);
                Arrival { port: PortId(1), at: START, number: *number, bytes }
            };
            numbers.iter().map(one).collect()
        })
        .collect();
    for batch in &batches {
        gateway.receive(batch);
        gateway.out(usize::MAX);
    }
    let mut told = 0;
    gateway.shard.take_set_additions(|_| told += 1);
    let report = gateway.shard.set_report(BANNED);
    assert_eq!((told, report.elements), (16_384, 20_000));
    assert_eq!(report.untold, 20_000 - 16_384);
}

#[test]
fn elements_of_rules_and_requests_outlive_a_process_and_those_of_files_do_not() {
    let sets = "[dynamic-set.file]\nfile = \"/etc/hosts\"\n[dynamic-set.kept]\n[dynamic-set.gone]\n";
    let head = RULES.split("[dynamic-set").next().unwrap_or_default();
    let mut before = Gateway::new(&format!("{head}{sets}"), Way::Run);
    let later = |seconds| START + Nanos::from_secs(seconds);
    let mut add = |set, prefix: &str, until: Option<Nanos>| {
        let change = SetChange::Add(Element { set, prefix: prefix.parse().unwrap(), until });
        assert_eq!(before.shard.change_set(&before.tables, &change, START), SetOutcome::Added);
    };
    add(0, "10.0.0.0/8", None);
    add(1, "192.0.2.1/32", Some(later(10)));
    add(1, "192.0.2.2/32", Some(later(3)));
    add(1, "192.0.2.3/32", Some(later(1)));
    add(1, "2001:db8::/32", None);
    add(2, "192.0.2.4/32", None);
    let mut items = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = before.shard.export(&before.tables, later(2), from, 3, |item| items.push(item));
    }
    items.retain(|item| matches!(item, Item::Element(_)));
    assert_eq!(items.len(), 4, "{items:?}");

    let sets = "[dynamic-set.new]\n[dynamic-set.kept]\nsize = 10\n[dynamic-set.file]\n";
    let mut after = Gateway::new(&format!("{head}{sets}"), Way::Run);
    let places = Names::of(&before.tables).places_in(&after.tables);
    let then = later(5_000);
    let away = Nanos::from_secs(1);
    let refused: Vec<_> = items
        .iter()
        .filter_map(|item| after.shard.import(&after.tables, &places.moved(item).aged(away), then).err())
        .collect();
    assert_eq!(refused.len(), 1, "one set is gone: {refused:?}");
    let wanted: [(IpNet, Option<Nanos>); 2] = [
        ("192.0.2.1/32".parse().unwrap(), Some(then + Nanos::from_secs(7))),
        ("2001:db8::/32".parse().unwrap(), None),
    ];
    assert_eq!(elements(&after, 1, then), wanted);
    assert!(elements(&after, 0, then).is_empty() && elements(&after, 2, then).is_empty());
}

/// Tables whose sets are the same keep their elements where they are; others move them, and what follows in time is the same.
#[test]
fn a_reload_keeps_elements_and_their_moments() {
    let mut gateway = Gateway::new(&rules("stateful"), Way::Run);
    let until = Some(START + Nanos::from_secs(20));
    let prefix: IpNet = "198.51.100.1/32".parse().unwrap();
    let change = SetChange::Add(Element { set: BANNED, prefix, until });
    gateway.shard.change_set(&gateway.tables, &change, START);
    let fates = |gateway: &mut Gateway, at: Nanos, number| {
        let bytes = datagram(OUTSIDE[0], INSIDE[0], number as u16, 80);
        gateway.receive(&[Arrival { port: PortId(1), at, number, bytes }]);
        gateway.out(usize::MAX).ended
    };
    let dropped = |number| vec![(number, Verdict::Dropped(Reason::RuleDrop))];
    let later = |seconds| START + Nanos::from_secs(seconds);
    assert_eq!(fates(&mut gateway, later(1), 1), dropped(1));
    let same = rules("stateful").replace("name = \"rest\"", "name = \"others\"");
    gateway.reload(&same, later(2));
    assert_eq!(fates(&mut gateway, later(3), 2), dropped(2));
    let moved = same
        .replace("[dynamic-set.banned]\nsize = 3\n", "")
        .replace("timeout = \"5s\"\n", "timeout = \"5s\"\n[dynamic-set.banned]\nsize = 1000\n");
    gateway.reload(&moved, later(4));
    assert_eq!(fates(&mut gateway, later(19), 3), dropped(3));
    assert_eq!(elements(&gateway, 1, later(19)), [(prefix, until)]);
    assert_eq!(fates(&mut gateway, later(20), 4), []);
    let tables: &Tables = &gateway.tables;
    assert_eq!(tables.sets[1].name, "banned");
}
