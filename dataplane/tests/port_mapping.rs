//! Port mappings: connections from outside are accepted by them and by nothing else, no port has two owners, and what is there stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dataplane::nat::{Endpoint, Share};
use dataplane::port_mapping::{
    Holder, Label, MappedBy, MappingsByOrigin, PortMapping, PortMappingEvent, PortRefusal, PortRequest,
    PortWish,
};
use dataplane::replay::Way;
use dataplane::state::{Cursor, Item, Names};
use dataplane::{Reason, Shard, Tables, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START, setup};

const UDP: u8 = 17;
const SHOWN: [u8; 4] = [203, 0, 113, 2];
const PEER: [u8; 4] = [198, 51, 100, 7];

const OFFICE: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[interface.dmz]
zone = "dmz"
addresses = ["192.168.2.1/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[default]
"lan > wan" = "accept"
"dmz > wan" = "accept"
[[nat]]
name = "web"
kind = "forward"
from = "wan"
outside = "203.0.113.2"
protocol = "udp"
port = 5005
target = "192.168.1.20:80"
[[nat]]
name = "dmz"
kind = "masquerade"
from = "dmz"
to = "wan"
[[nat]]
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"
ports = "5000-5015"
"#;

/// The policy, whose hosts may ask for ports; `more` follows.
fn policy(mapping: &str, more: &str) -> String {
    format!("{OFFICE}[nat.port-mapping]\n{mapping}\n{more}")
}

fn gateway(mapping: &str) -> Gateway {
    Gateway::new(&policy(mapping, ""), Way::Run)
}

fn host(number: u8) -> [u8; 4] {
    [192, 168, 1, number]
}

fn inside(number: u8, port: u16) -> Endpoint {
    Endpoint::v4(u32::from_be_bytes(host(number)), port, UDP)
}

fn by(number: u8) -> Holder {
    Holder { by: MappedBy::Pcp, nonce: [number; 12], label: Label::default() }
}

fn request(number: u8, port: u16, wish: PortWish, seconds: u64) -> PortRequest {
    let lasts = Some(Nanos::from_secs(seconds));
    PortRequest { inside: inside(number, port), port: wish, lasts, holder: by(number) }
}

impl Gateway {
    fn map(&mut self, request: &PortRequest, at: Nanos) -> Result<PortMapping, PortRefusal> {
        self.shard.map_port(&self.tables.clone(), request, at)
    }

    /// A datagram, and where it left: port, destination port and source port.
    fn datagram(
        &mut self,
        port: u16,
        from: ([u8; 4], u16),
        to: ([u8; 4], u16),
        at: Nanos,
    ) -> Result<([u8; 4], u16, u16), Verdict> {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
        let bytes = link.ipv4(from.0.into(), to.0.into()).udp(from.1, to.1).payload(&[7; 8]).to_vec();
        self.receive(&[Arrival { port: PortId(port), at, number: 0, bytes }]);
        let out = self.out(usize::MAX);
        let Some(sent) = out.sent.first() else { return Err(out.ended[0].1) };
        let field = |at: usize| u16::from_be_bytes([sent.bytes[at], sent.bytes[at + 1]]);
        let mut destination = [0; 4];
        destination.copy_from_slice(&sent.bytes[30..34]);
        Ok((destination, field(34), field(36)))
    }

    /// One from outside to an outside port: the host and port that it comes to.
    fn inward(&mut self, sport: u16, port: u16, at: Nanos) -> Result<([u8; 4], u16), Verdict> {
        self.datagram(1, (PEER, sport), (SHOWN, port), at).map(|(to, _, port)| (to, port))
    }

    /// One to outside: the outside port.
    fn outward(&mut self, number: u8, sport: u16, dport: u16, at: Nanos) -> Result<u16, Verdict> {
        self.datagram(0, (host(number), sport), (PEER, dport), at).map(|(_, sport, _)| sport)
    }

    fn mapped(&self, at: Nanos) -> Vec<PortMapping> {
        self.shard.port_mappings(None, at).collect()
    }

    fn events(&mut self) -> Vec<PortMappingEvent> {
        self.shard.take_port_mapping_news().iter().map(|news| news.event).collect()
    }
}

const REFUSED: Result<([u8; 4], u16), Verdict> = Err(Verdict::Dropped(Reason::DefaultDrop));

#[test]
fn a_mapped_port_leads_inside_until_its_end_and_back_out_by_itself() {
    let mut gateway = gateway("");
    assert_eq!(gateway.inward(9, 5001, START), REFUSED);
    let mapping = gateway.map(&request(10, 80, PortWish::Suggested(5001), 60), START).unwrap();
    assert_eq!((mapping.outside.port, mapping.until), (5001, Some(START + Nanos::from_secs(60))));
    assert_eq!(gateway.inward(9, 5001, START), Ok((host(10), 80)));
    assert_eq!(gateway.outward(10, 80, 53, START), Ok(5001));
    // To the nanosecond.
    let end = START + Nanos::from_secs(60);
    assert_eq!(gateway.inward(10, 5001, Nanos(end.0 - 1)), Ok((host(10), 80)));
    assert_eq!(gateway.inward(11, 5001, end), REFUSED);
    assert_eq!(gateway.mapped(end), []);
    // A connection that it has let in goes on.
    assert_eq!(gateway.inward(10, 5001, end), Ok((host(10), 80)));
    gateway.shard.expire_port_mappings(end);
    assert_eq!(gateway.events(), [PortMappingEvent::Made, PortMappingEvent::Expired]);
}

#[test]
fn what_is_refused_is_refused_for_its_reason() {
    let mut gateway = gateway("per-host = 3\nsize = 4\nport = \"5000-5009\"");
    let now = START;
    let mut refusal = |request: PortRequest| gateway.map(&request, now).unwrap_err();
    let any = request(10, 80, PortWish::Any, 60);
    for end in [[192, 168, 2, 7], [203, 0, 113, 9], [192, 168, 1, 1], [192, 168, 1, 255], PEER] {
        let inside = Endpoint::v4(u32::from_be_bytes(end), 80, UDP);
        assert_eq!(refusal(PortRequest { inside, ..any }), PortRefusal::NotAllowed, "{end:?}");
    }
    let v6 = Endpoint::v6(1, 80, UDP);
    assert_eq!(refusal(PortRequest { inside: v6, ..any }), PortRefusal::NotAllowed);
    assert_eq!(
        refusal(PortRequest { inside: Endpoint { protocol: 47, ..any.inside }, ..any }),
        PortRefusal::Protocol
    );
    // A forward's, those of others, and those that may not be asked for.
    for port in [5005, 5010, 80, 4999] {
        assert_eq!(refusal(request(10, 80, PortWish::Only(port), 60)), PortRefusal::PortTaken, "{port}");
    }
    for port in 80..83 {
        gateway.map(&request(10, port, PortWish::Any, 60), now).unwrap();
    }
    assert_eq!(gateway.map(&request(10, 83, PortWish::Any, 60), now), Err(PortRefusal::HostFull));
    gateway.map(&request(11, 80, PortWish::Any, 60), now).unwrap();
    assert_eq!(gateway.map(&request(12, 80, PortWish::Any, 60), now), Err(PortRefusal::TableFull));
    // Another holder; an operator may.
    let stolen = PortRequest { holder: by(99), ..request(10, 80, PortWish::Any, 1) };
    assert_eq!(gateway.map(&stolen, now), Err(PortRefusal::NotHolder));
    assert_eq!(gateway.shard.unmap_port(&inside(10, 80), &by(99), now), Err(PortRefusal::NotHolder));
    let operator = Holder::operator(Label::of("kept"));
    let for_good = gateway.map(&PortRequest { holder: operator, lasts: None, ..any }, now).unwrap();
    assert_eq!((for_good.until, for_good.holder.label.text()), (None, "kept"));
    assert_eq!(gateway.map(&any, now), Err(PortRefusal::NotHolder));
    assert_eq!(gateway.shard.unmap_port(&inside(10, 0), &by(10), now), Ok(2), "those of the holder");
    assert_eq!(gateway.shard.unmap_port(&inside(10, 80), &operator, now), Ok(1));
}

#[test]
fn the_mapping_that_a_flow_has_is_the_one_that_is_asked_for() {
    let mut gateway = gateway("port = \"5000-5007\"");
    let shown = gateway.outward(10, 5003, 53, START).unwrap();
    assert_eq!(shown, 5003);
    let other = gateway.map(&request(10, 5003, PortWish::Only(5004), 60), START);
    assert_eq!(other, Err(PortRefusal::PortTaken));
    assert_eq!(
        gateway.map(&request(10, 5003, PortWish::Suggested(5004), 60), START).unwrap().outside.port,
        5003
    );
    assert_eq!(gateway.map(&request(11, 80, PortWish::Only(5003), 60), START), Err(PortRefusal::PortTaken));
    // Of a port that may not be asked for, the flow's own is none.
    assert_eq!(gateway.outward(12, 5012, 53, START), Ok(5012));
    assert_eq!(gateway.map(&request(12, 5012, PortWish::Any, 60), START), Err(PortRefusal::PortTaken));
}

#[test]
fn rules_in_front_and_accounts_of_revalidation_hold() {
    let mut gateway = gateway("");
    gateway.map(&request(10, 80, PortWish::Only(5001), 3600), START).unwrap();
    assert_eq!(gateway.inward(9, 5001, START), Ok((host(10), 80)));
    // Revalidated by tables that have the mapping, the flow goes on; rules decide first.
    gateway.reload(&policy("", "[[rule]]\nname = \"ssh\"\nprotocol = \"tcp\"\naction = \"accept\"\n"), START);
    assert_eq!(gateway.inward(9, 5001, START), Ok((host(10), 80)));
    let ban = "[[rule]]\nname = \"ban\"\nfrom = \"wan\"\nsource = \"198.51.100.0/24\"\naction = \"drop\"\n";
    gateway.reload(&policy("", ban), START);
    assert!(matches!(
        gateway.inward(9, 5001, START),
        Err(Verdict::Dropped(Reason::FlowRevoked | Reason::RuleDrop))
    ));
    assert_eq!(gateway.inward(10, 5001, START), Err(Verdict::Dropped(Reason::RuleDrop)));
}

#[test]
fn a_reload_keeps_what_the_policy_still_allows() {
    let mut gateway = gateway("");
    for port in 0..6 {
        gateway.map(&request(10, 80 + port, PortWish::Only(5000 + port + port / 5), 3600), START).unwrap();
    }
    gateway.events();
    let ports =
        |gateway: &Gateway| gateway.mapped(START).iter().map(|own| own.outside.port).collect::<BTreeSet<_>>();
    // Other memory for flows and mappings.
    gateway.reload(&policy("", "[limit]\nflows = 1000\n"), START);
    assert_eq!(ports(&gateway), BTreeSet::from([5000, 5001, 5002, 5003, 5004, 5006]));
    assert_eq!(gateway.inward(9, 5006, START), Ok((host(10), 85)));
    assert_eq!(gateway.outward(10, 85, 53, START), Ok(5006));
    gateway.reload(&policy("port = \"5002-5010\"", ""), START);
    assert_eq!(ports(&gateway), BTreeSet::from([5002, 5003, 5004, 5006]));
    gateway.reload(&policy("size = 2", ""), START);
    assert_eq!(ports(&gateway).len(), 2);
    gateway.reload(OFFICE, START);
    assert_eq!(ports(&gateway), BTreeSet::new());
    assert_eq!(gateway.events(), [PortMappingEvent::Gone; 6]);
    assert_eq!(gateway.shard.port_mappings.report().live, MappingsByOrigin::default());
    gateway.reload(&policy("", ""), START);
    assert_eq!(gateway.inward(10, 5003, START), REFUSED);
}

/// WANIPConnection:2, PortMappingLeaseDuration: a mapping that is asked for without an end lasts as long as one may.
#[test]
fn upnp_has_a_time_of_its_own_and_ends_where_the_policy_no_longer_has_it() {
    let asked = |port, seconds: Option<u64>| PortRequest {
        lasts: seconds.map(Nanos::from_secs),
        holder: Holder { by: MappedBy::Upnp, nonce: [0; 12], label: Label::default() },
        ..request(10, port, PortWish::Only(5000 + port), 0)
    };
    let left = |mapping: PortMapping| mapping.until.map(|until| until.since(START));
    let mut gateway = gateway("lifetime = \"1h\"");
    assert_eq!(gateway.map(&asked(1, Some(60)), START), Err(PortRefusal::NotAllowed));
    gateway.reload(&policy("lifetime = \"1h\"\nupnp = true\nupnp-lifetime = \"2d\"", ""), START);
    assert_eq!(gateway.map(&asked(1, Some(60)), START).map(left), Ok(Some(Nanos::from_secs(60))));
    for seconds in [None, Some(u64::from(u32::MAX))] {
        assert_eq!(gateway.map(&asked(1, seconds), START).map(left), Ok(Some(Nanos::from_secs(172_800))));
    }
    // Of PCP the other bound holds, and neither changes what the other has.
    let pcp = request(10, 2, PortWish::Only(5002), 90_000);
    assert_eq!(gateway.map(&pcp, START).map(left), Ok(Some(Nanos::from_secs(3600))));
    assert_eq!(gateway.map(&asked(2, None), START), Err(PortRefusal::NotHolder));
    assert_eq!(gateway.map(&request(10, 1, PortWish::Only(5001), 60), START), Err(PortRefusal::NotHolder));
    gateway.map(&PortRequest { inside: inside(11, 3), ..asked(3, None) }, START).unwrap();
    let ports = |number| {
        let own = gateway.shard.port_mappings(Some(IpAddr::from(host(number))), START);
        own.map(|own| own.inside.port).collect::<Vec<_>>()
    };
    assert_eq!([ports(10), ports(11), ports(12)], [vec![1, 2], vec![3], vec![]]);
    let live = MappingsByOrigin { pcp: 1, upnp: 2, ..MappingsByOrigin::default() };
    assert_eq!(gateway.shard.port_mappings.report().live, live);
    gateway.reload(&policy("lifetime = \"1h\"", ""), START);
    let live = MappingsByOrigin { pcp: 1, ..MappingsByOrigin::default() };
    assert_eq!(gateway.shard.port_mappings.report().live, live);
    assert_eq!(gateway.inward(9, 5001, START), REFUSED);
    assert_eq!(gateway.inward(9, 5002, START), Ok((host(10), 2)));
}

#[test]
fn another_outside_address_ends_mappings() {
    let mut gateway = gateway("");
    gateway.map(&request(10, 80, PortWish::Only(5001), 3600), START).unwrap();
    gateway.events();
    gateway.reload(&policy("", "").replace("203.0.113.2/24", "203.0.113.9/24"), START);
    assert_eq!(gateway.events(), [PortMappingEvent::Gone]);
    let again = gateway.map(&request(10, 80, PortWish::Only(5001), 3600), START).unwrap();
    assert_eq!(again.outside.ip().to_string(), "203.0.113.9");
}

#[test]
fn mappings_are_exported_with_the_rest_of_their_time() {
    let mut before = gateway("");
    before.map(&request(10, 80, PortWish::Only(5001), 60), START).unwrap();
    let kept = PortRequest {
        lasts: None,
        holder: Holder::operator(Label::of("kept")),
        ..request(11, 80, PortWish::Only(5002), 1)
    };
    before.map(&kept, START).unwrap();
    before.map(&request(12, 80, PortWish::Only(5003), 5), START).unwrap();
    before.inward(9, 5001, START).unwrap();
    let later = START + Nanos::from_secs(20);
    let mut items = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = before.shard.export(&before.tables, later, from, 3, |item| items.push(item));
    }
    let mapped = items.iter().filter(|item| matches!(item, Item::PortMapping(_))).count();
    assert_eq!(mapped, 2, "one is over");
    // Another gateway, ten seconds later, whose translations have other places.
    let mut after =
        Gateway::new(&policy("", "").replace("name = \"dmz\"\nkind", "name = \"other\"\nkind"), Way::Run);
    let places = Names::of(&before.tables).places_in(&after.tables);
    for item in &items {
        let item = places.moved(&item.aged(Nanos::from_secs(10)));
        after.shard.import(&after.tables, &item, START).unwrap();
    }
    let left: BTreeMap<u16, Option<u64>> = after
        .mapped(START)
        .iter()
        .map(|own| (own.outside.port, own.until.map(|until| until.since(START).0 / 1_000_000_000)))
        .collect();
    assert_eq!(left, BTreeMap::from([(5001, Some(30)), (5002, None)]));
    assert_eq!(after.inward(10, 5001, START), Ok((host(10), 80)));
    let refused = after.shard.import(&after.tables, &places.moved(&items[items.len() - 1]), START);
    assert!(refused.is_err(), "it is there already");
    // A policy without mappings takes none in.
    let tables: &Tables = &Gateway::new(OFFICE, Way::Run).tables.clone();
    let mut without = Shard::new(tables, setup(START)).unwrap();
    let places = Names::of(&before.tables).places_in(tables);
    let refused = items.iter().filter(|item| matches!(item, Item::PortMapping(_)));
    for item in refused {
        assert!(without.import(tables, &places.moved(item), START).is_err());
    }
    assert!(without.mappings.iter().all(|own| own.outside.port != 5002), "no port is held for nothing");
}

#[test]
fn a_worker_maps_ports_of_its_own_share() {
    let mut gateway = gateway("");
    gateway.begin_anew(Share::new(1, 2).unwrap());
    // 5000 and 5001 are the first worker's, 5002 and 5003 the second's.
    assert_eq!(gateway.map(&request(10, 80, PortWish::Only(5000), 60), START), Err(PortRefusal::PortTaken));
    assert_eq!(gateway.map(&request(10, 80, PortWish::Only(5002), 60), START).unwrap().outside.port, 5002);
    let any = gateway.map(&request(10, 81, PortWish::Suggested(5000), 60), START).unwrap();
    assert!(Share::new(1, 2).unwrap().owns(any.outside.port));
}

/// A step of a scene.
#[derive(Clone, Debug)]
enum Act {
    Map { number: u8, port: u16, wish: PortWish, seconds: u64 },
    Unmap { number: u8, port: u16 },
    Outward { number: u8, sport: u16, dport: u16 },
    Inward { sport: u16, port: u16 },
    Pass(u64),
    Reload(bool),
}

fn act() -> impl Strategy<Value = Act> {
    let number = || 10..13u8;
    let port = || 5000..5016u16;
    let wish = prop_oneof![
        Just(PortWish::Any),
        port().prop_map(PortWish::Suggested),
        port().prop_map(PortWish::Only),
    ];
    prop_oneof![
        4 => (number(), port(), wish, 1..20u64)
            .prop_map(|(number, port, wish, seconds)| Act::Map { number, port, wish, seconds }),
        1 => (number(), port()).prop_map(|(number, port)| Act::Unmap { number, port }),
        4 => (number(), port(), 53..56u16)
            .prop_map(|(number, sport, dport)| Act::Outward { number, sport, dport }),
        4 => (1..3u16, port()).prop_map(|(sport, port)| Act::Inward { sport, port }),
        2 => (1..15u64).prop_map(Act::Pass),
        1 => any::<bool>().prop_map(Act::Reload),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is asked for, opened and expires: an outside port is one inside endpoint's, a mapping leads to its own, and a
    /// connection that begins outside is let in by a mapping that is there.
    #[test]
    fn no_port_has_two_owners(acts in vec(act(), 1..150)) {
        let idle = "[timeout]\nudp = \"8s\"\nudp-unanswered = \"8s\"\n";
        let texts = [policy("", idle), policy("per-host = 5", &format!("[limit]\nflows = 900\n{idle}"))];
        let mut gateway = Gateway::new(&texts[0], Way::Run);
        let mut now = START;
        for act in acts {
            match act {
                Act::Map { number, port, wish, seconds } => {
                    let before = gateway.mapped(now).into_iter().find(|own| own.inside == inside(number, port));
                    if let Ok(mapping) = gateway.map(&request(number, port, wish, seconds), now) {
                        prop_assert_eq!(mapping.until, Some(now + Nanos::from_secs(seconds)));
                        prop_assert!(before.is_none_or(|before| before.outside == mapping.outside));
                        prop_assert!(mapping.outside.port != 5005 && (5000..=5015).contains(&mapping.outside.port));
                        if let PortWish::Only(only) = wish {
                            prop_assert_eq!(mapping.outside.port, only);
                        }
                    }
                }
                Act::Unmap { number, port } => {
                    let was = gateway.mapped(now).iter().any(|own| own.inside == inside(number, port));
                    let removed = gateway.shard.unmap_port(&inside(number, port), &by(number), now);
                    prop_assert_eq!(removed, Ok(u32::from(was)));
                }
                Act::Outward { number, sport, dport } => {
                    let own = gateway.mapped(now).into_iter().find(|own| own.inside == inside(number, sport));
                    if let Ok(shown) = gateway.outward(number, sport, dport, now) {
                        prop_assert!(own.is_none_or(|own| own.outside.port == shown));
                        let others = gateway.mapped(now).into_iter().filter(|of| of.inside != inside(number, sport));
                        prop_assert!(others.into_iter().all(|of| of.outside.port != shown));
                    }
                }
                Act::Inward { sport, port } => {
                    let flows = gateway.shard.flows.len();
                    let own = gateway.mapped(now).into_iter().find(|own| own.outside.port == port);
                    match (gateway.inward(sport, port, now), own) {
                        (Ok((to, inner)), Some(own)) => {
                            prop_assert_eq!(own.inside.address, u128::from(u32::from_be_bytes(to)));
                            prop_assert_eq!(inner, own.inside.port);
                        }
                        // Of a flow that is there.
                        (Ok(_), None) => prop_assert!(gateway.shard.flows.len() <= flows),
                        (Err(_), Some(_)) => prop_assert!(false, "refused at a mapped port {port}"),
                        (Err(_), None) => {}
                    }
                }
                Act::Pass(seconds) => {
                    now += Nanos::from_secs(seconds);
                    gateway.tend(now);
                }
                Act::Reload(other) => {
                    let kept = gateway.mapped(now);
                    gateway.reload(&texts[usize::from(other)], now);
                    prop_assert_eq!(gateway.mapped(now), kept);
                }
            }
            let mut owners = BTreeMap::new();
            for own in gateway.shard.mappings.iter() {
                prop_assert!(owners.insert(own.outside.port, own.inside).is_none(), "two mappings of one port");
            }
            for own in gateway.mapped(now) {
                prop_assert_eq!(owners.get(&own.outside.port), Some(&own.inside));
            }
        }
        // All is given back.
        let end = now + Nanos::from_secs(1000);
        for _ in 0..200 {
            gateway.tend(end);
        }
        gateway.shard.expire_port_mappings(end);
        prop_assert_eq!(gateway.shard.mappings.len(), 0);
    }
}
