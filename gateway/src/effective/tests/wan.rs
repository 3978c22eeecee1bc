use policy::model::WanState;

use super::{LAN, Scene, WAN, hop, link, net, route};
use crate::effective::{Effective, effective};
use crate::health::Failed;
use crate::linux::OURS;
use crate::linux::desired::{Desired, Step};
use crate::linux::interface::{Condition, TableId};
use crate::linux::route::{Route, Target};
use crate::linux::state::Event;
use crate::wan::Standing;

const BIRD: u8 = 12;

const POLICY: &str = r#"
[interface.lan]
zone = "outside"
addresses = ["192.168.1.1/24"]

[interface.wan]
zone = "outside"
addresses = ["192.0.2.2/30"]

[interface.gone]
zone = "outside"
addresses = ["203.0.113.1/24"]

[wan.fibre]
interface = "wan"

[wan.lte]
interface = "lan"
gateway = "192.168.1.254"
tier = 2

[wan.absent]
interface = "gone"
gateway = "203.0.113.9"
"#;

fn made(scene: &Scene, failed: &[&str]) -> Effective {
    let parsed = policy::parse(POLICY, "scene.toml");
    let policy = parsed.policy.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    let wans = failed.iter().map(|name| (*name).to_owned()).collect();
    let failed = Failed { wans, ..Failed::default() };
    effective(&policy, &scene.0, &failed)
}

fn default_by(metric: u32, protocol: u8, via: &str) -> Route {
    let link = if via.starts_with("192.168") { LAN } else { WAN };
    route(metric, protocol, Target::One(hop(link, Some(via))))
}

#[test]
fn a_wan_learns_its_router_from_linux_and_is_down_without_one() {
    let mut scene = Scene::new();
    let Effective { policy, standings, notes, .. } = made(&scene, &[]);
    assert_eq!(standings, [Standing::NoGateway, Standing::Up, Standing::NoInterface]);
    assert_eq!(
        policy.wans.iter().map(|wan| wan.state).collect::<Vec<_>>(),
        [WanState::Down, WanState::Up, WanState::Down]
    );
    assert_eq!(notes.len(), 1, "{notes:?}");
    scene.route("0.0.0.0/0", default_by(100, BIRD, "192.0.2.1"));
    scene.route("::/0", route(100, BIRD, Target::One(hop(WAN, Some("fe80::1")))));
    // One of the gateway's own says nothing new.
    scene.route("0.0.0.0/0", default_by(1, OURS, "192.0.2.3"));
    let Effective { policy, standings, notes, .. } = made(&scene, &[]);
    assert_eq!(standings, [Standing::Up, Standing::Up, Standing::NoInterface]);
    let gateways: Vec<String> = policy.wans[0].gateways.iter().map(ToString::to_string).collect();
    assert_eq!(gateways, ["192.0.2.1", "fe80::1"]);
    assert_eq!((policy.routes.len(), notes.len()), (0, 1), "default routes are the WANs': {notes:?}");
}

#[test]
fn carrier_and_check_take_a_wan_down() {
    let mut scene = Scene::new();
    scene.route("0.0.0.0/0", default_by(100, BIRD, "192.0.2.1"));
    assert_eq!(made(&scene, &["lte", "other"]).standings[..2], [Standing::Up, Standing::Unanswered]);
    scene.tell(Event::Link(WAN, link("wan", 1500, Condition::NoCarrier)));
    let made = made(&scene, &["fibre"]);
    assert_eq!(made.standings[..2], [Standing::NoCarrier, Standing::Up]);
    assert_eq!(made.policy.wans[0].state, WanState::Down);
}

#[test]
fn linux_has_a_default_route_by_each_wan_the_best_first() {
    let mut scene = Scene::new();
    scene.address(WAN, "192.0.2.2/30", 0);
    scene.address(LAN, "192.168.1.1/24", 0);
    scene.route("0.0.0.0/0", default_by(100, BIRD, "192.0.2.1"));
    let everywhere = net("0.0.0.0/0");
    let [fibre, lte] = ["192.0.2.1", "192.168.1.254"];
    let add = |metric, via| Step::AddRoute(TableId::MAIN, everywhere, default_by(metric, OURS, via));
    let remove = |metric, via| Step::RemoveRoute(TableId::MAIN, everywhere, default_by(metric, OURS, via));
    let steps = |scene: &Scene, failed: &[&str]| {
        let made = made(scene, failed);
        Desired::of(&made.policy, &made.policy.wans).plan(&scene.0)
    };
    // An equal one of others, with another metric, does not do.
    assert_eq!(steps(&scene, &[]), [add(1, fibre), add(2, lte)]);
    scene.route("0.0.0.0/0", default_by(1, OURS, fibre));
    scene.route("0.0.0.0/0", default_by(2, OURS, lte));
    assert_eq!(steps(&scene, &[]), []);
    assert_eq!(steps(&scene, &["fibre"]), [remove(1, fibre), remove(2, lte), add(1, lte), add(2, fibre)]);
}
