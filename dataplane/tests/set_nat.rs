//! Dynamic sets in translations and policy routes: the first packet of each flow has what a naive search in lists gives, and the flow keeps it, whatever
//! the sets become meanwhile, and whichever way packets go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use dataplane::replay::Way;
use dataplane::set::{Element, SetChange};
use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId, ipv4};

use crate::scene::{Arrival, Gateway, START};

const INTERFACES: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
    [interface.dmz]\nzone = \"dmz\"\naddresses = [\"192.168.2.1/24\"]\n\
    [interface.fib]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
    [interface.lte]\nzone = \"wan\"\naddresses = [\"203.0.114.2/24\"]\n\
    [wan.fib]\ninterface = \"fib\"\ngateway = \"203.0.113.1\"\n\
    [wan.lte]\ninterface = \"lte\"\ngateway = \"203.0.114.1\"\ntier = 2\n\
    [timeout]\nudp = \"1h\"\nudp-unanswered = \"1h\"\n\
    [dynamic-set.a]\nsize = 8\n[dynamic-set.b]\nsize = 8\n\
    [[rule]]\nname = \"trap\"\nprotocol = \"udp\"\ndport = 24\nadd-source = \"@a\"\nfor = \"3s\"\naction = \"accept\"\n\
    [[rule]]\nname = \"rest\"\naction = \"accept\"\n";

const LAN: u16 = 0;
const FIB: u16 = 2;
const LTE: u16 = 3;

/// Ends of packets: hosts inside and outside, an address of the gateway, and targets of forwards.
const ADDRESSES: [[u8; 4]; 6] = [
    [192, 168, 1, 10],
    [192, 168, 1, 11],
    [198, 51, 100, 1],
    [198, 51, 100, 2],
    [203, 0, 113, 2],
    [192, 168, 2, 20],
];

/// Elements of sets.
const ELEMENTS: [&str; 8] = [
    "192.168.1.10/32",
    "192.168.1.11/32",
    "198.51.100.1/32",
    "198.51.100.2/32",
    "198.51.100.0/24",
    "203.0.113.2/32",
    "192.168.2.20/32",
    "192.168.2.0/24",
];

/// Condition on an address.
#[derive(Clone, Copy, Debug)]
enum End {
    Any,
    In(usize),
    NotIn(usize),
    /// In the set, or the address itself.
    InOr(usize, usize),
    /// Neither in one of both sets nor the address itself.
    Neither(usize),
}

const SETS: [&str; 2] = ["a", "b"];

impl End {
    fn text(self, key: &str) -> String {
        let address = |at: usize| Ipv4Addr::from(ADDRESSES[at]);
        match self {
            End::Any => String::new(),
            End::In(set) => format!("{key} = \"@{}\"\n", SETS[set]),
            End::NotIn(set) => format!("{key} = {{ except = [\"@{}\"] }}\n", SETS[set]),
            End::InOr(set, at) => format!("{key} = [\"@{}\", \"{}\"]\n", SETS[set], address(at)),
            End::Neither(at) => format!("{key} = {{ except = [\"@a\", \"@b\", \"{}\"] }}\n", address(at)),
        }
    }

    fn holds(self, address: [u8; 4], model: &Model, now: Nanos) -> bool {
        match self {
            End::Any => true,
            End::In(set) => model.has(set, address, now),
            End::NotIn(set) => !model.has(set, address, now),
            End::InOr(set, at) => model.has(set, address, now) || address == ADDRESSES[at],
            End::Neither(at) => {
                !model.has(0, address, now) && !model.has(1, address, now) && address != ADDRESSES[at]
            }
        }
    }
}

/// Conditions on both ends.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source: End,
    destination: End,
}

impl Ends {
    fn text(self) -> String {
        self.source.text("source") + &self.destination.text("destination")
    }

    fn holds(self, [source, destination]: [[u8; 4]; 2], model: &Model, now: Nanos) -> bool {
        self.source.holds(source, model, now) && self.destination.holds(destination, model, now)
    }
}

/// Policy of forwards and redirects, source translations, and policy routes, each by its conditions.
#[derive(Clone, Debug)]
struct Plan {
    forwards: Vec<Ends>,
    sources: Vec<(Ends, bool)>,
    routes: Vec<Ends>,
}

impl Plan {
    fn text(&self) -> String {
        let mut text = INTERFACES.to_owned();
        for (place, ends) in self.forwards.iter().enumerate() {
            text += &format!(
                "[[nat]]\nname = \"forward-{place}\"\nkind = \"forward\"\nfrom = \"wan\"\nprotocol = \"udp\"\ntarget = \"192.168.2.{}\"\n{}",
                20 + place,
                ends.text()
            );
        }
        for (place, (ends, is_exempt)) in self.sources.iter().enumerate() {
            let kind = match is_exempt {
                true => "kind = \"exempt\"\n".to_owned(),
                false => format!("kind = \"source\"\npool = \"10.9.9.{}\"\n", place + 1),
            };
            text += &format!("[[nat]]\nname = \"source-{place}\"\n{kind}{}", ends.text());
        }
        for (place, ends) in self.routes.iter().enumerate() {
            text += &format!("[[policy-route]]\nname = \"route-{place}\"\nvia = \"lte\"\n{}", ends.text());
        }
        text
    }
}

/// Fate of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sees {
    port: u16,
    source: [u8; 4],
    destination: [u8; 4],
}

#[derive(Default)]
struct Model {
    elements: Vec<(usize, IpNet, Option<Nanos>)>,
    flows: BTreeMap<([u8; 4], [u8; 4], u16, u16), Sees>,
}

impl Model {
    fn has(&self, set: usize, address: [u8; 4], now: Nanos) -> bool {
        let address = IpAddr::from(address);
        let is_live = |until: &Option<Nanos>| until.is_none_or(|until| now < until);
        self.elements.iter().any(|(of, net, until)| *of == set && is_live(until) && net.contains(&address))
    }

    fn add(&mut self, set: usize, net: IpNet, until: Option<Nanos>, now: Nanos) {
        self.elements.retain(|(_, _, until)| until.is_none_or(|until| now < until));
        match self.elements.iter_mut().find(|(of, known, _)| (*of, *known) == (set, net)) {
            Some((_, _, known)) => *known = known.zip(until).map(|(one, other)| one.max(other)),
            None => self.elements.push((set, net, until)),
        }
    }

    /// Port that a packet leaves by, and its addresses then.
    fn packet(&mut self, plan: &Plan, act: Packet, now: Nanos) -> Sees {
        let Packet { source, destination, sport, dport } = act;
        let key = (source, destination, sport, dport);
        if let Some(sees) = self.flows.get(&key) {
            return *sees;
        }
        let comes_from_wan = source[0] == 198;
        let mut to = destination;
        if comes_from_wan && destination == [203, 0, 113, 2] {
            let hit = plan.forwards.iter().position(|ends| ends.holds([source, destination], self, now));
            to = hit.map_or(destination, |place| [192, 168, 2, 20 + place as u8]);
        }
        let is_own = to == [203, 0, 113, 2];
        let by_lte = plan.routes.iter().any(|ends| ends.holds([source, to], self, now));
        let port = match to {
            _ if is_own => u16::MAX,
            [192, 168, 2, _] => 1,
            [192, 168, 1, _] => LAN,
            _ if by_lte => LTE,
            _ => FIB,
        };
        // The rule comes behind routes and in front of source translation.
        if dport == 24 {
            self.add(0, IpAddr::from(source).into(), Some(now + Nanos::from_secs(3)), now);
        }
        let hit = plan.sources.iter().position(|(ends, _)| ends.holds([source, to], self, now));
        let shown = hit.filter(|place| !is_own && !plan.sources[*place].1);
        let source = shown.map_or(source, |place| [10, 9, 9, place as u8 + 1]);
        let sees = Sees { port, source, destination: to };
        self.flows.insert(key, sees);
        sees
    }
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    source: [u8; 4],
    destination: [u8; 4],
    sport: u16,
    dport: u16,
}

#[derive(Clone, Debug)]
enum Act {
    /// A datagram, between hosts of [`ADDRESSES`].
    Packet(Packet),
    Add {
        set: usize,
        element: usize,
        lasts: Option<u64>,
    },
    Remove {
        set: usize,
        element: usize,
    },
    /// Quarters of a second pass.
    Pass(u64),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Any),
        3 => (0..2usize).prop_map(End::In),
        2 => (0..2usize).prop_map(End::NotIn),
        1 => (0..2usize, 0..6usize).prop_map(|(set, at)| End::InOr(set, at)),
        1 => (0..6usize).prop_map(End::Neither),
    ]
}

fn ends() -> impl Strategy<Value = Ends> {
    (end(), end()).prop_map(|(source, destination)| Ends { source, destination })
}

fn plan() -> impl Strategy<Value = Plan> {
    (vec(ends(), 0..3), vec((ends(), prop::bool::weighted(0.2)), 0..4), vec(ends(), 0..3))
        .prop_map(|(forwards, sources, routes)| Plan { forwards, sources, routes })
}

fn act() -> impl Strategy<Value = Act> {
    let packet = (0..4usize, 0..6usize, 1000..1003u16, prop_oneof![4 => Just(80u16), 1 => Just(24)]);
    let packet = packet.prop_filter_map("one end inside, one outside", |(from, to, sport, dport)| {
        let inward = from >= 2;
        let is_outside = (2..4).contains(&to);
        let fits = is_outside != inward;
        let (source, destination) = (ADDRESSES[from], ADDRESSES[to]);
        fits.then_some(Act::Packet(Packet { source, destination, sport, dport }))
    });
    prop_oneof![
        10 => packet,
        3 => (0..2usize, 0..8usize, prop::option::of(1..20u64)).prop_map(|(set, element, lasts)| Act::Add { set, element, lasts }),
        2 => (0..2usize, 0..8usize).prop_map(|(set, element)| Act::Remove { set, element }),
        2 => (1..9u64).prop_map(Act::Pass),
    ]
}

fn datagram(packet: Packet) -> Vec<u8> {
    let Packet { source, destination, sport, dport } = packet;
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
    link.ipv4(source.into(), destination.into()).udp(sport, dport).payload(&[7; 8]).to_vec()
}

/// Receives packets that came together, and compares what becomes of them with the model.
fn receive(gateways: &mut [Gateway; 2], waiting: &mut Vec<(Arrival, Sees)>) {
    let arrivals: Vec<Arrival> = waiting.iter().map(|(arrival, _)| arrival.clone()).collect();
    let outs = gateways.each_mut().map(|gateway| {
        gateway.receive(&arrivals);
        gateway.out(usize::MAX)
    });
    assert_eq!(outs[0], outs[1], "run and step");
    let of = |bytes: &[u8], port| {
        let header = ipv4::Header::of(&bytes[14..]).unwrap();
        Sees { port, source: header.src().octets(), destination: header.dst().octets() }
    };
    for (arrival, sees) in waiting.drain(..) {
        let sent = outs[0].sent.iter().find(|sent| sent.number == arrival.number);
        let local = outs[0].local.iter().find(|local| local.number == arrival.number);
        let found = sent
            .map(|sent| of(&sent.bytes, sent.port))
            .or_else(|| local.map(|local| of(&local.bytes, u16::MAX)));
        assert_eq!(found, Some(sees), "packet {}, {:?}", arrival.number, outs[0].ended);
    }
}

fn play(plan: &Plan, acts: &[Act]) {
    let text = plan.text();
    let mut gateways = [Way::Run, Way::Step].map(|way| Gateway::new(&text, way));
    let mut model = Model::default();
    let (mut now, mut number) = (START, 0);
    let mut waiting: Vec<(Arrival, Sees)> = Vec::new();
    let quarters = |many: u64| Nanos::from_millis(250 * many);
    for act in acts {
        let change = match *act {
            Act::Packet(packet) => {
                let sees = model.packet(plan, packet, now);
                let port = PortId(if packet.source[0] == 192 { LAN } else { FIB });
                let arrival = Arrival { port, at: now, number, bytes: datagram(packet) };
                waiting.push((arrival, sees));
                number += 1;
                if waiting.len() == 40 {
                    receive(&mut gateways, &mut waiting);
                }
                continue;
            }
            Act::Pass(many) => {
                now += quarters(many);
                continue;
            }
            Act::Add { set, element, lasts } => {
                let prefix: IpNet = ELEMENTS[element].parse().unwrap();
                let until = lasts.map(|lasts| now + quarters(lasts));
                model.add(set, prefix, until, now);
                SetChange::Add(Element { set: set as u16, prefix, until })
            }
            Act::Remove { set, element } => {
                let prefix: IpNet = ELEMENTS[element].parse().unwrap();
                model.elements.retain(|(of, known, _)| (*of, *known) != (set, prefix));
                SetChange::Remove { set: set as u16, prefix }
            }
        };
        receive(&mut gateways, &mut waiting);
        for gateway in &mut gateways {
            gateway.shard.change_set(&gateway.tables, &change, now);
        }
    }
    receive(&mut gateways, &mut waiting);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn first_packets_meet_the_sets_as_they_are(plan in plan(), acts in vec(act(), 1..120)) {
        play(&plan, &acts);
    }
}
