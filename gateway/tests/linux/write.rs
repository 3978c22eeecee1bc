//! Requests to Linux, and their effects.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gateway::linux::state::Reachability;
use gateway::linux::{Desired, LinkIndex, NeighbourKey, Operation, Options, Writer};

use crate::follow::Follower;
use crate::netns::{ip, ip_json, within};
use crate::oracle::address;

/// Policy to reconcile Linux with; `guests` is a soft interface.
const POLICY: &str = r#"
[interface.east]
zone = "inside"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]

[interface.west]
zone = "outside"
addresses = ["198.51.100.1/24", "198.51.100.2/24", "2001:db8:2::1/64"]

[interface.guests]
zone = "guests"
parent = "east"
vlan = 20
addresses = ["203.0.113.1/24"]

[[route]]
to = "0.0.0.0/0"
via = [{ via = "192.0.2.9", weight = 2 }, "198.51.100.9"]

[[route]]
to = "::/0"
via = "2001:db8:2::9"

[[route]]
to = "10.1.0.0/16"
kind = "blackhole"

[[route]]
to = "2001:db8:3::/48"
kind = "unreachable"

[[route]]
to = "10.2.0.0/16"
interface = "west"
"#;

fn desired(text: &str) -> Desired {
    let parsed = policy::parse(text, "scene.toml");
    let policy = parsed.policy.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    Desired::of(&policy, &policy.wans)
}

/// Reconciles Linux with the desired state, after which the plan must be empty.
fn ensure(writer: &mut Writer, follower: &mut Follower, desired: &Desired) {
    follower.settle();
    let refused = writer.ensure(desired, &follower.state);
    assert!(refused.is_empty(), "{refused:?}");
    follower.settle();
    assert_eq!(desired.plan(&follower.state), []);
}

fn all_addresses() -> BTreeSet<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    ip_json("addr show")
        .iter()
        .flat_map(|link| link["addr_info"].as_array().unwrap().clone())
        .map(|address| format!("{}/{}", text(&address["local"]), address["prefixlen"]))
        .filter(|address| !address.starts_with("fe80"))
        .collect()
}

/// Routes of other origin than the kernel, as printed by `ip`.
fn all_routes() -> BTreeSet<String> {
    let lines = ip("-o -4 route show") + &ip("-o -6 route show");
    let ours = lines.lines().filter(|line| !line.contains("proto kernel"));
    ours.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" pref medium", ""))
        .collect()
}

fn set<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

#[test]
fn linux_gets_what_the_policy_wants() {
    within("write::linux_gets_what_the_policy_wants", || {
        for name in ["east", "west"] {
            ip(&format!("link add name {name} type veth peer name {name}-end"));
            ip(&format!("link set {name} up"));
            ip(&format!("link set {name}-end up"));
        }
        let mut follower = Follower::start(Options::default());
        let mut writer = Writer::open().unwrap();
        let wanted = desired(POLICY);
        ensure(&mut writer, &mut follower, &wanted);
        assert_eq!(
            all_addresses(),
            set([
                "192.0.2.1/24",
                "2001:db8:1::1/64",
                "198.51.100.1/24",
                "198.51.100.2/24",
                "2001:db8:2::1/64"
            ])
        );
        let routes = set([
            "default proto 119 metric 1 \\ nexthop via 192.0.2.9 dev east weight 2 \\ nexthop via 198.51.100.9 \
             dev west weight 1",
            "default via 2001:db8:2::9 dev west proto 119 metric 1",
            "blackhole 10.1.0.0/16 proto 119 metric 1",
            "unreachable 2001:db8:3::/48 dev lo proto 119 metric 1",
            "10.2.0.0/16 dev west proto 119 scope link metric 1",
        ]);
        assert_eq!(all_routes(), routes);

        // The soft interface's device is made.
        ip("link add name guests type veth peer name guests-end");
        ensure(&mut writer, &mut follower, &wanted);
        assert!(all_addresses().contains("203.0.113.1/24"));
        ip("link del guests");

        // An interface that goes off takes what is on it along; it comes back, and so does that.
        ip("link set west down");
        follower.settle();
        ensure(&mut writer, &mut follower, &wanted);
        assert!(!all_routes().contains("10.2.0.0/16 dev west proto 119 scope link metric 1"));
        ip("link set west up");
        ensure(&mut writer, &mut follower, &wanted);
        assert_eq!(all_routes(), routes);

        // What others made stays: even where the address that theirs is second to is the gateway's and goes.
        ip("addr add 198.51.100.77/24 dev west");
        ip("route add 10.3.0.0/16 via 198.51.100.9");
        ip("route add default via 192.0.2.77 metric 100");
        ensure(&mut writer, &mut follower, &Desired::default());
        assert_eq!(all_addresses(), set(["198.51.100.77/24"]));
        assert_eq!(all_routes(), set(["10.3.0.0/16 via 198.51.100.9 dev west"]));
    });
}

#[test]
fn others_make_what_is_wanted_and_it_is_enough() {
    within("write::others_make_what_is_wanted_and_it_is_enough", || {
        ip("link add name east type veth peer name far");
        ip("link set east up");
        ip("link set far up");
        ip("addr add 192.0.2.1/24 dev east");
        ip("route add 10.1.0.0/16 via 192.0.2.9 metric 50");
        let mut follower = Follower::start(Options::default());
        let mut writer = Writer::open().unwrap();
        let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n\
                    [[route]]\nto = \"10.1.0.0/16\"\nvia = \"192.0.2.9\"\n";
        assert_eq!(desired(text).plan(&follower.state), []);
        // Others lead elsewhere: the policy's goes first.
        ip("route replace 10.1.0.0/16 via 192.0.2.8 metric 50");
        ensure(&mut writer, &mut follower, &desired(text));
        let ours = "10.1.0.0/16 via 192.0.2.9 dev east proto 119 metric 1";
        assert_eq!(all_routes(), set([ours, "10.1.0.0/16 via 192.0.2.8 dev east metric 50"]));
        assert!(ip("route get 10.1.2.3").contains("via 192.0.2.9"));
    });
}

#[test]
fn interfaces_are_set_up_and_refusals_say_why() {
    within("write::interfaces_are_set_up_and_refusals_say_why", || {
        ip("tuntap add name punt mode tap");
        let mut writer = Writer::open().unwrap();
        writer.forbid_link_local("punt").unwrap();
        writer.set_mtu("punt", 9000).unwrap();
        writer.set_mac("punt", "02:00:00:00:00:42".parse().unwrap()).unwrap();
        writer.switch_on("punt").unwrap();
        let link = &ip_json("-d link show punt")[0];
        assert_eq!(link["mtu"], 9000);
        assert_eq!(link["address"], "02:00:00:00:00:42");
        assert_eq!(link["inet6_addr_gen_mode"], "none");
        assert!(link["flags"].as_array().unwrap().contains(&"UP".into()));

        let refused = writer.switch_on("nowhere").unwrap_err();
        assert_eq!((refused.operation, refused.subject.as_deref()), (Operation::SwitchOn, Some("nowhere")));
        assert_eq!(refused.error.raw_os_error(), Some(19), "{refused}");
        let refused = writer.set_mtu("punt", 3).unwrap_err();
        assert_eq!(refused.operation, Operation::SetMtu);
        assert!(refused.to_string().contains("mtu less than device minimum"), "{refused}");
    });
}

#[test]
fn neighbours_are_found_out() {
    within("write::neighbours_are_found_out", || {
        ip("link add name east type veth peer name far");
        ip("link set east up");
        ip("link set far up");
        ip("addr add 192.0.2.1/24 dev east");
        ip("neigh add 192.0.2.8 lladdr 02:00:00:00:00:08 dev east nud stale");
        let mut follower = Follower::start(Options::default());
        let mut writer = Writer::open().unwrap();
        let (east, _) = follower.state.link_named("east").unwrap();
        let key = |text: &str| NeighbourKey { link: east, address: address(text) };
        // Nobody answers for these.
        for who in ["192.0.2.8", "192.0.2.9", "2001:db8::9"] {
            writer.resolve(key(who)).unwrap();
        }
        let mut anew = Follower::start(Options::default());
        anew.settle();
        let is = |who: &str| anew.state.neighbours.get(&key(who)).map(|neighbour| neighbour.reachability);
        assert_eq!(is("192.0.2.9"), Some(Reachability::Incomplete));
        assert!(matches!(is("192.0.2.8"), Some(Reachability::Delay | Reachability::Probe)));
        for who in ["192.0.2.8", "192.0.2.9", "2001:db8::9"] {
            let failed = |follower: &Follower| {
                follower.changes.iter().any(|change| {
                    change.key == key(who)
                        && change.now.is_some_and(|now| now.reachability == Reachability::Failed)
                })
            };
            let begun = Instant::now();
            while !failed(&follower) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{who}: {:?}", follower.changes);
                follower.hear(Duration::from_millis(100));
            }
        }
        let refused = writer.resolve(NeighbourKey { link: LinkIndex(999), ..key("192.0.2.7") }).unwrap_err();
        assert_eq!(refused.operation, Operation::Resolve);
        assert_eq!(refused.error.raw_os_error(), Some(19), "{refused}");
    });
}
