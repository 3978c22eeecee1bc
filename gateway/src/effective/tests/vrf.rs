use std::sync::Arc;

use super::{BIRD, LAN, MGMT, OURS, Scene, WAN, hop, link, net, route};
use crate::effective::{Effective, Note, Why, effective};
use crate::health::Failed;
use crate::linux::LinkIndex;
use crate::linux::desired::{Desired, Step};
use crate::linux::interface::{Condition, Link, TableId};
use crate::linux::route::{Placing, Target};
use crate::linux::state::{Doubt, Event};

const RED: LinkIndex = LinkIndex(10);
const BLUE: LinkIndex = LinkIndex(20);

const POLICY: &str = r#"
[interface.lan]
zone = "red"
vrf = "red"
addresses = ["192.168.1.1/24"]

[interface.mgmt]
zone = "blue"
vrf = "blue"
addresses = ["192.168.1.1/24"]

[interface.wan]
zone = "outside"
addresses = ["192.0.2.2/30"]

[[route]]
to = "0.0.0.0/0"
vrf = "red"
next-vrf = "default"
via = "192.0.2.1"
"#;

fn made(scene: &Scene) -> Effective {
    let checked = policy::check(POLICY, "scene.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let made = effective(&policy, &scene.0, &Failed::default());
    dataplane::tables::Tables::compile(&made.policy, 1).expect("whatever Linux says, it compiles");
    made
}

fn device(name: &str, table: u32) -> Link {
    Link { kind: "vrf".to_owned(), table: Some(TableId(table)), ..link(name, 65_575, Condition::Running) }
}

fn member(name: &str, vrf: LinkIndex) -> Link {
    Link { master: Some(vrf), ..link(name, 1500, Condition::Running) }
}

/// The machine with a VRF device for each VRF of the policy.
fn with_devices() -> Scene {
    let mut scene = Scene::new();
    for (index, device) in [(RED, device("red", 10)), (BLUE, device("blue", 2000))] {
        scene.tell(Event::Link(index, device));
    }
    scene.tell(Event::Link(LAN, member("lan", RED)));
    scene.tell(Event::Link(MGMT, member("mgmt", BLUE)));
    scene
}

/// Routes of the effective policy to a destination: VRF, VRF of the next hops, and router.
fn routes(scene: &Scene, to: &str) -> Vec<(Option<String>, Option<String>, Option<String>)> {
    let routes = made(scene).policy.routes.into_iter().filter(|route| route.destination == net(to));
    let text = |name: Option<Arc<str>>| name.map(|name| name.to_string());
    routes
        .map(|route| {
            let policy::model::RouteTarget::Via(hops) = route.target else { panic!("{:?}", route.target) };
            (text(route.vrf), text(route.next_vrf), hops[0].via.map(|via| via.to_string()))
        })
        .collect()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn routes_of_a_vrf_device_are_those_of_the_vrf() {
    let mut scene = with_devices();
    let by = |link, via| route(20, BIRD, Target::One(hop(link, Some(via))));
    let mut add = |table, to, route| scene.tell(Event::Route(TableId(table), net(to), route, Placing::First));
    add(10, "10.1.0.0/16", by(LAN, "192.168.1.9"));
    add(2000, "10.1.0.0/16", by(MGMT, "192.168.1.8"));
    add(2000, "10.2.0.0/16", by(WAN, "192.0.2.1"));
    // No VRF's.
    add(77, "10.1.0.0/16", by(WAN, "192.0.2.1"));
    // The policy has its own there, and not here.
    add(10, "0.0.0.0/0", by(LAN, "192.168.1.9"));
    add(2000, "0.0.0.0/0", by(MGMT, "192.168.1.8"));
    // The network of an interface.
    add(10, "192.168.1.0/24", route(0, super::KERNEL, Target::One(hop(LAN, None))));
    assert_eq!(
        routes(&scene, "10.1.0.0/16"),
        [(some("blue"), None, some("192.168.1.8")), (some("red"), None, some("192.168.1.9"))]
    );
    assert_eq!(routes(&scene, "10.2.0.0/16"), [(some("blue"), some("default"), some("192.0.2.1"))]);
    assert_eq!(
        routes(&scene, "0.0.0.0/0"),
        [(some("red"), some("default"), some("192.0.2.1")), (some("blue"), None, some("192.168.1.8"))]
    );
    assert_eq!(routes(&scene, "192.168.1.0/24"), []);
    // Of the main table, one that leads into a VRF.
    scene.route("10.3.0.0/16", by(LAN, "192.168.1.9"));
    assert_eq!(routes(&scene, "10.3.0.0/16"), [(None, some("red"), some("192.168.1.9"))]);
    // Where Linux has the interface in no VRF, its routes are no leak.
    scene.tell(Event::Link(LAN, link("lan", 1500, Condition::Running)));
    assert_eq!(routes(&scene, "10.3.0.0/16"), []);
    scene.route("192.168.1.0/24", route(0, super::KERNEL, Target::One(hop(LAN, None))));
    assert_eq!(routes(&scene, "192.168.1.0/24"), []);
    let left_out = |note: &Note| matches!(note, Note::Routes { why: Why::OtherVrf, count: 1, .. });
    assert_eq!(made(&scene).notes.iter().filter(|note| left_out(note)).count(), 1);
    let gone = Event::RouteGone(TableId(10), net("10.1.0.0/16"), by(LAN, "192.168.1.9"));
    scene.tell(gone);
    assert_eq!(routes(&scene, "10.1.0.0/16").len(), 1);
}

#[test]
fn a_vrf_device_that_comes_has_routes_that_nobody_has_told_of() {
    let mut scene = Scene::new();
    let told = scene.0.apply(Event::Link(RED, device("red", 10)));
    assert_eq!(told.doubt, Doubt::Routes);
    assert_eq!(scene.0.apply(Event::Link(RED, device("red", 10))).doubt, Doubt::None);
    assert_eq!(
        scene.0.apply(Event::Link(LAN, member("lan", RED))).doubt,
        Doubt::Routes,
        "its addresses move"
    );
}

#[test]
fn the_policys_routes_go_to_the_table_of_their_vrf() {
    let mut scene = with_devices();
    let desired = Desired::of(&policy::check(POLICY, "scene.toml").policy.unwrap(), &[]);
    let own = route(1, OURS, Target::One(hop(WAN, Some("192.0.2.1"))));
    let add = |table| Step::AddRoute(TableId(table), net("0.0.0.0/0"), own.clone());
    let of_routes = |scene: &Scene| {
        let steps = desired.plan(&scene.0).into_iter();
        steps.filter(|step| !matches!(step, Step::AddAddress(..))).collect::<Vec<_>>()
    };
    assert_eq!(of_routes(&scene), [add(10)]);
    scene.tell(Event::Route(TableId(10), net("0.0.0.0/0"), own.clone(), Placing::First));
    assert_eq!(of_routes(&scene), []);
    // One of ours that the policy has no more.
    scene.tell(Event::Route(TableId(2000), net("10.9.0.0/16"), own.clone(), Placing::First));
    assert_eq!(of_routes(&scene), [Step::RemoveRoute(TableId(2000), net("10.9.0.0/16"), own.clone())]);
    // Without a device there is no table.
    assert_eq!(of_routes(&Scene::new()), []);
}

#[test]
fn what_linux_has_in_another_vrf_is_noted() {
    let notes = |scene: &Scene| -> Vec<Note> {
        made(scene)
            .notes
            .into_iter()
            .filter(|note| matches!(note, Note::VrfAbsent { .. } | Note::Vrf { .. }))
            .collect()
    };
    let absent = |vrf: &str| Note::VrfAbsent { vrf: vrf.to_owned() };
    assert_eq!(notes(&Scene::new()), [absent("red"), absent("blue")]);
    let mut scene = with_devices();
    assert_eq!(notes(&scene), []);
    scene.tell(Event::Link(LAN, member("lan", BLUE)));
    scene.tell(Event::Link(MGMT, link("mgmt", 1500, Condition::Running)));
    scene.tell(Event::Link(WAN, member("wan", RED)));
    let other = |interface: &str, policy: Option<&str>, linux: Option<&str>| Note::Vrf {
        interface: interface.to_owned(),
        policy: policy.map(str::to_owned),
        linux: linux.map(str::to_owned),
    };
    let expected = [
        other("lan", Some("red"), Some("blue")),
        other("mgmt", Some("blue"), None),
        other("wan", None, Some("red")),
    ];
    assert_eq!(notes(&scene), expected);
    let text = expected[1].to_string();
    assert!(
        text.contains("\"mgmt\" is in the VRF \"blue\" by the policy")
            && text.contains("ip link set mgmt master blue"),
        "{text}"
    );
}
