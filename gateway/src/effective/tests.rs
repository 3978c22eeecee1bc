use std::sync::Arc;

use policy::model;
use wire::BitRate;
use wire::ethernet::Mac;

use super::*;
use crate::linux::desired::{Desired, Device, Step};
use crate::linux::interface::{Linkdown, Settings, TableId};
use crate::linux::route::{Member, Placing};
use crate::linux::state::{Address, AddressKey, Event};

mod multicast;
mod vrf;
mod wan;

/// Interfaces of the test machine; the policy names all but `mgmt`, and a nonexistent `gone`.
const LAN: LinkIndex = LinkIndex(2);
const WAN: LinkIndex = LinkIndex(3);
const MGMT: LinkIndex = LinkIndex(4);
const BIRD: u8 = 12;

const POLICY: &str = r#"
[interface.lan]
zone = "inside"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

[interface.wan]
zone = "outside"
addresses = ["192.0.2.2/30"]
mtu = 1400
mac = "02:00:00:00:00:99"

[interface.guests]
zone = "guests"
parent = "lan"
vlan = 20
addresses = ["192.168.20.1/24"]

[interface.gone]
zone = "outside"
addresses = ["203.0.113.1/24"]

[[route]]
to = "0.0.0.0/0"
via = "192.0.2.1"

[[route]]
to = "10.66.0.0/16"
kind = "blackhole"
"#;

fn policy() -> Policy {
    let parsed = policy::parse(POLICY, "scene.toml");
    assert!(parsed.policy.is_some(), "{:?}", parsed.diagnostics);
    parsed.policy.unwrap_or_default()
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn link(name: &str, mtu: u32, condition: Condition) -> Link {
    Link {
        name: name.to_owned(),
        mac: Some(Mac([2, 0, 0, 0, 0, mtu as u8])),
        mtu,
        condition,
        hardware: 1,
        kind: String::new(),
        parent: None,
        master: None,
        table: None,
    }
}

#[test]
fn a_device_in_the_making_says_nothing_of_its_address() {
    const GUESTS: LinkIndex = LinkIndex(9);
    let mut scene = Scene::new();
    let mut made = Link { kind: "tun".to_owned(), ..link("guests", 1496, Condition::Down) };
    let known = |scene: &Scene| {
        let effective = scene.effective();
        let guests = &effective.policy.interfaces[2];
        assert_eq!(guests.name, "guests");
        (guests.mac, guests.mtu)
    };
    let before = known(&scene);
    scene.tell(Event::Link(GUESTS, made.clone()));
    assert_eq!(known(&scene), before);
    made.condition = Condition::Running;
    made.mac = Some(Mac([2, 0, 0, 0, 0, 7]));
    scene.tell(Event::Link(GUESTS, made));
    assert_eq!(known(&scene), (Some(Mac([2, 0, 0, 0, 0, 7])), 1496));
}

fn hop(link: LinkIndex, via: Option<&str>) -> Hop {
    let via = via.map(|via| via.parse().expect("an address"));
    Hop { link: Some(link), via, weight: 1, onlink: false, encapsulated: false }
}

fn route(metric: u32, protocol: u8, target: Target) -> Route {
    Route { metric, tos: 0, protocol, target }
}

/// Machine with `lan`, `wan` and `mgmt`, in the state that the policy wants.
struct Scene(State);

impl Scene {
    fn new() -> Scene {
        let mut scene = Scene(State::default());
        scene.tell(Event::Link(LAN, link("lan", 1500, Condition::Running)));
        scene.tell(Event::Link(WAN, link("wan", 1500, Condition::Running)));
        scene.tell(Event::Link(MGMT, link("mgmt", 1500, Condition::Running)));
        scene
    }

    fn tell(&mut self, event: Event) {
        self.0.apply(event);
    }

    fn address(&mut self, link: LinkIndex, text: &str, protocol: u8) {
        let key = AddressKey { link, net: net(text), peer: None };
        self.tell(Event::Address(key, Address { protocol, scope: 0, flags: 0x80 }));
    }

    fn route(&mut self, to: &str, route: Route) {
        self.tell(Event::Route(TableId::MAIN, net(to), route, Placing::Last));
    }

    fn effective(&self) -> Effective {
        effective(&policy(), &self.0, &Failed::default())
    }

    /// Returns the target of the effective policy's route, of which there is one at most.
    fn target(&self, to: &str) -> Option<RouteTarget> {
        let policy = self.effective().policy;
        dataplane::tables::Tables::compile(&policy, 1).expect("whatever Linux says, it compiles");
        let mut routes = policy.routes.into_iter().filter(|route| route.destination == net(to));
        let target = routes.next().map(|route| route.target);
        assert_eq!(routes.next(), None);
        target
    }

    fn why(&self) -> Vec<Why> {
        let why = |note: &Note| match note {
            Note::Routes { why, .. } => Some(why.clone()),
            _ => None,
        };
        self.effective().notes.iter().filter_map(why).collect()
    }
}

fn via(hops: &[(&str, Option<&str>, u8)]) -> Option<RouteTarget> {
    let hop = |(interface, via, weight): &(&str, Option<&str>, u8)| NextHop {
        via: via.map(|via| via.parse().expect("an address")),
        interface: Some((*interface).to_owned()),
        weight: *weight,
    };
    Some(RouteTarget::Via(hops.iter().map(hop).collect()))
}

#[test]
fn interfaces_are_as_linux_has_them() {
    let mut scene = Scene::new();
    scene.tell(Event::Link(LAN, link("lan", 9000, Condition::Running)));
    let Effective { policy, places, notes, .. } = scene.effective();
    assert_eq!(places, [Place::Link(LAN), Place::Link(WAN), Place::Soft, Place::Absent]);
    assert_eq!(policy.interfaces[0].mtu, 9000);
    assert_eq!(policy.interfaces[0].mac, Some(Mac([2, 0, 0, 0, 0, 9000_u16 as u8])));
    // A VLAN that has no device yet has the policy's MTU.
    assert_eq!(policy.interfaces[2].mtu, 1500);
    assert_eq!(
        notes,
        [
            Note::Mtu { interface: "wan".into(), policy: 1400, counts: 1500 },
            Note::Mac { interface: "wan".into() },
            Note::InterfaceAbsent { interface: "gone".into() },
        ]
    );
    // What carries less, carries VLANs of less.
    scene.tell(Event::Link(LAN, link("lan", 1400, Condition::Running)));
    assert_eq!(scene.effective().policy.interfaces[2].mtu, 1400);
    scene.tell(Event::Link(LAN, link("lan", 65_536, Condition::Running)));
    assert_eq!(scene.effective().policy.interfaces[0].mtu, 16_000);
}

#[test]
fn addresses_of_linux_stand_beside_the_policys() {
    let mut scene = Scene::new();
    for (text, protocol) in [
        ("192.168.1.1/24", OURS),
        ("192.168.1.9/24", 0),
        ("10.1.0.1/16", 0),
        ("169.254.7.7/16", 0),
        ("fe80::1/64", 3),
        ("2001:db8:a::1/64", 0),
        ("2001:db8:b::1/64", 0),
        // Was in the policy once.
        ("10.2.0.1/16", OURS),
    ] {
        scene.address(LAN, text, protocol);
    }
    for to in ["192.168.1.0/24", "10.1.0.0/16", "2001:db8:a::/64"] {
        scene.route(to, route(0, KERNEL, Target::One(hop(LAN, None))));
    }
    let expected = [
        "192.168.1.1/24",
        "2001:db8:1::1/64",
        "10.1.0.1/16",
        "192.168.1.9/24",
        "2001:db8:a::1/64",
        // Without a route to its network on this link, an address is alone.
        "2001:db8:b::1/128",
    ];
    let mut addresses = scene.effective().policy.interfaces[0].addresses.clone();
    addresses[2..].sort();
    assert_eq!(addresses, expected.map(net));
    // The routes to these networks need not be written.
    assert_eq!(scene.target("10.1.0.0/16"), None);
    // Another interface's route to the same network is better: then it is the other's.
    scene.address(WAN, "10.1.0.2/16", 0);
    scene.route("10.1.0.0/16", route(50, KERNEL, Target::One(hop(WAN, None))));
    let addresses = |scene: &Scene, at: usize| scene.effective().policy.interfaces[at].addresses.clone();
    assert!(addresses(&scene, 0).contains(&net("10.1.0.1/16")));
    assert!(addresses(&scene, 1).contains(&net("10.1.0.2/32")));
    scene.tell(Event::RouteGone(
        TableId::MAIN,
        net("10.1.0.0/16"),
        route(0, KERNEL, Target::One(hop(LAN, None))),
    ));
    assert!(addresses(&scene, 0).contains(&net("10.1.0.1/32")));
    assert!(addresses(&scene, 1).contains(&net("10.1.0.2/16")));
}

#[test]
fn one_end_of_a_link_has_no_network() {
    let mut scene = Scene::new();
    let peer = Some("10.9.0.2".parse().expect("an address"));
    let key = AddressKey { link: WAN, net: net("10.9.0.1/32"), peer };
    scene.tell(Event::Address(key, Address { protocol: 0, scope: 0, flags: 0x80 }));
    scene.route("10.9.0.2/32", route(0, KERNEL, Target::One(hop(WAN, None))));
    assert!(scene.effective().policy.interfaces[1].addresses.contains(&net("10.9.0.1/32")));
    assert_eq!(scene.target("10.9.0.2/32"), via(&[("wan", None, 1)]));
}

#[test]
fn an_address_that_another_host_has_is_not_ours() {
    let mut scene = Scene::new();
    let key = AddressKey { link: LAN, net: net("2001:db8:c::1/64"), peer: None };
    scene.tell(Event::Address(key, Address { protocol: 0, scope: 0, flags: 0x88 }));
    assert_eq!(scene.effective().policy.interfaces[0].addresses, policy().interfaces[0].addresses);
}

#[test]
fn routes_of_linux_lead_where_linux_leads_them() {
    let mut scene = Scene::new();
    let one = |link, via| Target::One(hop(link, via));
    scene.route("10.1.0.0/16", route(20, BIRD, one(LAN, Some("192.168.1.9"))));
    scene.route("10.1.0.0/16", route(10, BIRD, one(WAN, Some("192.0.2.1"))));
    scene.route("10.2.0.0/16", route(0, BIRD, Target::Prohibit));
    scene.route("10.3.0.0/16", route(0, BIRD, Target::Blackhole));
    scene.route("10.4.0.0/16", route(0, BIRD, one(WAN, None)));
    scene.route("2001:db8:9::/48", route(1024, BIRD, one(WAN, Some("fe80::9"))));
    // A router on no network that is known: Linux says it is on the link.
    let onlink = Hop { onlink: true, ..hop(WAN, Some("198.51.100.7")) };
    scene.route("10.5.0.0/16", route(0, BIRD, Target::One(onlink)));
    assert_eq!(scene.target("10.1.0.0/16"), via(&[("wan", Some("192.0.2.1"), 1)]));
    assert_eq!(scene.target("10.2.0.0/16"), Some(RouteTarget::Unreachable));
    assert_eq!(scene.target("10.3.0.0/16"), Some(RouteTarget::Blackhole));
    assert_eq!(scene.target("10.4.0.0/16"), via(&[("wan", None, 1)]));
    assert_eq!(scene.target("10.5.0.0/16"), via(&[("wan", Some("198.51.100.7"), 1)]));
    assert_eq!(scene.target("2001:db8:9::/48"), via(&[("wan", Some("fe80::9"), 1)]));
    assert_eq!(scene.why(), []);
}

#[test]
fn the_policys_routes_win() {
    let mut scene = Scene::new();
    scene.route("0.0.0.0/0", route(0, BIRD, Target::One(hop(LAN, Some("192.168.1.9")))));
    // Its own, as Linux has them, are not Linux's.
    scene.route("10.66.0.0/16", route(1, OURS, Target::Blackhole));
    scene.route("10.77.0.0/16", route(1, OURS, Target::Blackhole));
    let written = policy().routes;
    assert_eq!(scene.effective().policy.routes, written);
    assert_eq!(scene.why(), [Why::PolicyWins]);
}

#[test]
fn several_ways_keep_their_shares() {
    let mut scene = Scene::new();
    let weighted = |link, via, weight| Hop { weight, ..hop(link, Some(via)) };
    let both = Target::of(vec![weighted(LAN, "192.168.1.9", 100), weighted(WAN, "192.0.2.1", 200)]);
    scene.route("10.1.0.0/16", route(0, BIRD, both.expect("two hops")));
    let both = Target::of(vec![weighted(LAN, "192.168.1.9", 1), weighted(WAN, "192.0.2.1", 1000)]);
    scene.route("10.2.0.0/16", route(0, BIRD, both.expect("two hops")));
    let lan = |weight| ("lan", Some("192.168.1.9"), weight);
    let wan = |weight| ("wan", Some("192.0.2.1"), weight);
    assert_eq!(scene.target("10.1.0.0/16"), via(&[lan(1), wan(2)]));
    assert_eq!(scene.target("10.2.0.0/16"), via(&[lan(1), wan(255)]));
    // By an interface that is switched off, or that nobody is behind, goes nothing that can go elsewhere.
    for condition in [Condition::NoCarrier, Condition::Down] {
        scene.tell(Event::Link(WAN, link("wan", 1500, condition)));
        assert_eq!(scene.target("10.1.0.0/16"), via(&[lan(1)]));
    }
    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::NoCarrier)));
    scene.tell(Event::Link(LAN, link("lan", 1500, Condition::Down)));
    assert_eq!(scene.target("10.1.0.0/16"), via(&[wan(1)]));
    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::Down)));
    assert_eq!(scene.target("10.1.0.0/16"), None);
    // A worse route takes over.
    scene.tell(Event::Link(LAN, link("lan", 1500, Condition::Running)));
    scene.route("10.3.0.0/16", route(5, BIRD, Target::One(hop(WAN, Some("192.0.2.1")))));
    scene.route("10.3.0.0/16", route(6, BIRD, Target::One(hop(LAN, Some("192.168.1.9")))));
    assert_eq!(scene.target("10.3.0.0/16"), via(&[lan(1)]));
}

#[test]
fn next_hop_objects_are_looked_up() {
    let mut scene = Scene::new();
    scene.tell(Event::Object(1, Object::One(hop(LAN, Some("192.168.1.9")))));
    scene.tell(Event::Object(2, Object::One(hop(WAN, Some("192.0.2.1")))));
    scene.tell(Event::Object(3, Object::Blackhole));
    let members = [Member { object: 1, weight: 3 }, Member { object: 2, weight: 6 }];
    scene.tell(Event::Object(4, Object::Group(Arc::new(members))));
    for number in 1..=5 {
        scene.route(&format!("10.{number}.0.0/16"), route(0, BIRD, Target::Object(number)));
    }
    let (lan, wan) = (("lan", Some("192.168.1.9"), 1), ("wan", Some("192.0.2.1"), 1));
    assert_eq!(scene.target("10.1.0.0/16"), via(&[lan]));
    assert_eq!(scene.target("10.3.0.0/16"), Some(RouteTarget::Blackhole));
    assert_eq!(scene.target("10.4.0.0/16"), via(&[lan, ("wan", Some("192.0.2.1"), 2)]));
    assert_eq!(scene.target("10.5.0.0/16"), None);
    assert_eq!(scene.why(), [Why::ObjectUnknown(5)]);
    // An object that changes takes its routes along.
    scene.tell(Event::Object(1, Object::One(hop(WAN, Some("192.0.2.1")))));
    assert_eq!(scene.target("10.1.0.0/16"), via(&[wan]));
}

#[test]
fn what_cannot_be_carried_out_is_noted() {
    let mut scene = Scene::new();
    let one = |link, via| Target::One(hop(link, via));
    scene.route("10.1.0.0/16", route(0, BIRD, one(MGMT, Some("172.16.0.1"))));
    scene.route("10.2.0.0/16", route(0, BIRD, one(MGMT, None)));
    // A worse route by an interface that is named is not what Linux would take.
    scene.route("10.2.0.0/16", route(9, BIRD, one(WAN, Some("192.0.2.1"))));
    scene.route("10.3.0.0/16", route(0, BIRD, one(WAN, Some("2001:db8::9"))));
    let encapsulated = Hop { encapsulated: true, ..hop(WAN, Some("192.0.2.1")) };
    scene.route("10.4.0.0/16", route(0, BIRD, Target::One(encapsulated)));
    let some = Target::One(hop(WAN, Some("192.0.2.1")));
    scene.route("10.5.0.0/16", Route { tos: 0x10, ..route(0, BIRD, some.clone()) });
    scene.route("10.6.0.0/16", Route { tos: 0x10, ..route(0, BIRD, some.clone()) });
    scene.route("10.6.0.0/16", route(0, BIRD, some));
    scene.route("10.7.0.0/16", route(0, BIRD, Target::Other(9)));
    scene.route("10.8.0.0/16", route(0, BIRD, Target::One(Hop { link: None, ..hop(WAN, None) })));
    scene.route("224.0.0.0/4", route(0, BIRD, one(MGMT, None)));
    for number in [1, 2, 3, 4, 5, 7, 8] {
        assert_eq!(scene.target(&format!("10.{number}.0.0/16")), None);
    }
    assert_eq!(scene.target("10.6.0.0/16"), via(&[("wan", Some("192.0.2.1"), 1)]));
    let notes = scene.effective().notes;
    let count = |why: Why| {
        notes.iter().find_map(|note| match note {
            Note::Routes { why: other, count, .. } if *other == why => Some(*count),
            _ => None,
        })
    };
    assert_eq!(count(Why::ForeignInterface("mgmt".into())), Some(2));
    assert_eq!(count(Why::OtherVersion), Some(1));
    assert_eq!(count(Why::Encapsulated), Some(1));
    assert_eq!(count(Why::TypeOfService), Some(2));
    assert_eq!(count(Why::Kind(9)), Some(1));
    assert_eq!(count(Why::InterfaceUnknown), Some(1));
    assert!(
        notes.iter().any(|note| note.to_string().starts_with("2 routes of Linux left out out of \"mgmt\""))
    );
}

fn device(index: LinkIndex, name: &str) -> Device {
    Device { index, name: name.to_owned() }
}

#[test]
fn what_linux_lacks_of_the_policy_is_added_and_nothing_else() {
    let desired = Desired::of(&policy(), &[]);
    let mut scene = Scene::new();
    let add = |at, name, text| Step::AddAddress(device(at, name), net(text));
    let default = route(1, OURS, Target::One(hop(WAN, Some("192.0.2.1"))));
    let blackhole = route(1, OURS, Target::Blackhole);
    assert_eq!(
        desired.plan(&scene.0),
        [
            add(LAN, "lan", "192.168.1.1/24"),
            add(LAN, "lan", "2001:db8:1::1/64"),
            add(WAN, "wan", "192.0.2.2/30"),
            Step::AddRoute(TableId::MAIN, net("0.0.0.0/0"), default.clone()),
            Step::AddRoute(TableId::MAIN, net("10.66.0.0/16"), blackhole.clone()),
        ]
    );
    // Somebody has made some of it, and more; the gateway made some, and more in former times.
    scene.address(LAN, "192.168.1.1/24", 0);
    scene.address(LAN, "2001:db8:1::1/64", OURS);
    scene.address(WAN, "192.0.2.2/30", OURS);
    scene.address(WAN, "192.0.2.6/30", OURS);
    scene.address(MGMT, "172.16.0.2/24", 0);
    scene.route("0.0.0.0/0", route(100, BIRD, default.target.clone()));
    scene.route("10.66.0.0/16", route(0, BIRD, Target::Unreachable));
    scene.route("10.66.0.0/16", blackhole);
    let former = route(1, OURS, Target::One(hop(WAN, Some("192.0.2.1"))));
    scene.route("10.67.0.0/16", former.clone());
    scene.route("10.68.0.0/16", route(1, BIRD, Target::Blackhole));
    let left_over = AddressKey { link: WAN, net: net("192.0.2.6/30"), peer: None };
    assert_eq!(
        desired.plan(&scene.0),
        [
            Step::RemoveRoute(TableId::MAIN, net("10.67.0.0/16"), former),
            Step::RemoveAddress(device(WAN, "wan"), left_over)
        ]
    );
}

/// Event of the sysctl for routes by an interface without a carrier.
fn linkdown(link: LinkIndex, v6: bool, linkdown: Linkdown) -> Event {
    Event::Settings(LinkdownKey { link, v6 }, Settings { linkdown: Some(linkdown), multicast: None })
}

#[test]
fn routes_by_dead_links_are_ignored_where_linux_ignores_them() {
    let mut scene = Scene::new();
    let lan = ("lan", Some("192.168.1.9"), 1);
    scene.route("10.3.0.0/16", route(5, BIRD, Target::One(hop(WAN, Some("192.0.2.1")))));
    scene.route("10.3.0.0/16", route(6, BIRD, Target::One(hop(LAN, Some("192.168.1.9")))));
    scene.route("10.4.0.0/16", route(5, BIRD, Target::One(hop(WAN, Some("192.0.2.1")))));
    scene.tell(linkdown(WAN, false, Linkdown::Ignored));
    // While there is a carrier, all is as ever.
    let wan = via(&[("wan", Some("192.0.2.1"), 1)]);
    assert_eq!(scene.target("10.3.0.0/16"), wan);
    let networks = |scene: &Scene| scene.effective().policy.interfaces[1].addresses.clone();
    assert_eq!(networks(&scene), [net("192.0.2.2/30")]);

    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::NoCarrier)));
    assert_eq!(scene.target("10.3.0.0/16"), via(&[lan]));
    assert_eq!(scene.target("10.4.0.0/16"), None);
    // The policy's own, and that to the interface's network, too; its address stays.
    assert_eq!(scene.target("0.0.0.0/0"), None);
    assert_eq!(scene.target("10.66.0.0/16"), Some(RouteTarget::Blackhole));
    assert_eq!(networks(&scene), [net("192.0.2.2/32")]);

    scene.tell(linkdown(WAN, false, Linkdown::Used));
    assert_eq!(scene.target("10.3.0.0/16"), wan);
    assert_eq!(scene.target("0.0.0.0/0"), Some(default_route()));
    assert_eq!(networks(&scene), [net("192.0.2.2/30")]);
    // The other IP version's word is not about this one.
    scene.tell(linkdown(WAN, true, Linkdown::Ignored));
    assert_eq!(scene.target("10.3.0.0/16"), wan);
    // An interface that is made anew begins anew.
    scene.tell(linkdown(WAN, false, Linkdown::Ignored));
    scene.tell(Event::LinkGone(WAN));
    assert!(scene.0.linkdown.is_empty());
}

/// Default route of the policy.
fn default_route() -> RouteTarget {
    let mut routes = policy().routes.into_iter();
    routes.find(|route| route.destination == net("0.0.0.0/0")).expect("a default route").target
}

#[test]
fn a_route_out_of_a_dead_link_leaves_others_their_share() {
    let mut scene = Scene::new();
    let both = Target::of(vec![hop(LAN, Some("192.168.1.9")), hop(WAN, Some("192.0.2.1"))]);
    scene.route("10.1.0.0/16", route(0, BIRD, both.expect("two hops")));
    scene.tell(linkdown(WAN, false, Linkdown::Ignored));
    scene.tell(linkdown(LAN, false, Linkdown::Ignored));
    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::NoCarrier)));
    assert_eq!(scene.target("10.1.0.0/16"), via(&[("lan", Some("192.168.1.9"), 1)]));
    scene.tell(Event::Link(LAN, link("lan", 1500, Condition::NoCarrier)));
    assert_eq!(scene.target("10.1.0.0/16"), None);
}

#[test]
fn linux_says_what_kind_of_link_an_interface_is_on() {
    let mut scene = Scene::new();
    let tun = |hardware| Link { mac: None, hardware, ..link("wan", 1400, Condition::Running) };
    for (hardware, kind) in
        [(1, LinkKind::Ethernet), (65_534, LinkKind::Ip), (512, LinkKind::Ip), (776, LinkKind::Ip)]
    {
        scene.tell(Event::Link(WAN, tun(hardware)));
        let Effective { policy, notes, .. } = scene.effective();
        assert_eq!(policy.interfaces[1].link, kind);
        // The policy gives it an Ethernet address, which it cannot have there.
        let note = Note::Link { interface: "wan".into(), counts: LinkKind::Ip };
        assert_eq!(notes.contains(&note), kind == LinkKind::Ip, "{notes:?}");
        assert_eq!(policy.interfaces[1].mac.is_some(), kind == LinkKind::Ethernet);
        let tables = dataplane::tables::Tables::compile(&policy, 1).expect("it compiles");
        assert_eq!(tables.interfaces[1].link, kind);
    }
    // What is neither stays what the policy says: it cannot be opened.
    scene.tell(Event::Link(WAN, tun(801)));
    assert_eq!(scene.effective().policy.interfaces[1].link, LinkKind::Ethernet);
}

#[test]
fn a_device_has_a_rate_where_the_policy_gives_none() {
    let mut scene = Scene::new();
    scene.0.rates = Arc::new([(LAN, BitRate(1_000_000_000)), (WAN, BitRate(10_000_000_000))].into());
    let rates = |policy: &Policy| {
        let tables = dataplane::tables::Tables::compile(policy, 1).expect("it compiles");
        tables.interfaces.iter().map(|interface| interface.egress.rate()).collect::<Vec<_>>()
    };
    let Effective { mut policy, .. } = scene.effective();
    assert_eq!(rates(&policy)[..2], [Some(BitRate(1_000_000_000)), Some(BitRate(10_000_000_000))]);
    policy.interfaces[1].rate = Some(BitRate(40_000_000));
    assert_eq!(rates(&policy)[1], Some(BitRate(40_000_000)));
    // A carrier that goes takes what is known of the rate along.
    scene.0.rates = Arc::default();
    assert_eq!(rates(&scene.effective().policy)[..2], [None, None]);
}

#[test]
fn what_waits_for_an_interface_is_not_asked_for() {
    let desired = Desired::of(&policy(), &[]);
    let mut scene = Scene::new();
    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::Down)));
    let steps = desired.plan(&scene.0);
    assert!(
        !steps
            .iter()
            .any(|step| matches!(step, Step::AddRoute(TableId::MAIN, to, _) if *to == net("0.0.0.0/0")))
    );
    // An interface that is switched off takes addresses.
    assert!(steps.contains(&Step::AddAddress(device(WAN, "wan"), net("192.0.2.2/30"))));
    // The soft interface's device appears.
    let soft = LinkIndex(9);
    scene.tell(Event::Link(soft, link("guests", 1500, Condition::NoCarrier)));
    let address = Step::AddAddress(device(soft, "guests"), net("192.168.20.1/24"));
    assert!(desired.plan(&scene.0).contains(&address));
}

#[test]
fn a_route_of_the_policy_that_leads_elsewhere_now_is_replaced() {
    let desired = Desired {
        defaults: Vec::new(),
        addresses: Vec::new(),
        routes: vec![model::Route {
            vrf: None,
            next_vrf: None,
            destination: net("10.1.0.0/16"),
            target: via(&[("wan", Some("192.0.2.1"), 1), ("lan", Some("192.168.1.9"), 2)]).expect("ways"),
        }],
    };
    let mut scene = Scene::new();
    let old = route(1, OURS, Target::One(hop(WAN, Some("192.0.2.1"))));
    scene.route("10.1.0.0/16", old.clone());
    let both = vec![Hop { weight: 2, ..hop(LAN, Some("192.168.1.9")) }, hop(WAN, Some("192.0.2.1"))];
    let new = route(1, OURS, Target::of(both).expect("two hops"));
    let to = net("10.1.0.0/16");
    assert_eq!(
        desired.plan(&scene.0),
        [Step::RemoveRoute(TableId::MAIN, to, old), Step::AddRoute(TableId::MAIN, to, new)]
    );
}
