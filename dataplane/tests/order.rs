//! The order of interfaces in a policy, and of routes, decides nothing: each permutation does the same to the same packets.

use dataplane::Tables;
use dataplane::replay::Way;
use wire::Nanos;
use wire::tcp::Flags;

use crate::scene::pair::{tcp, v4, v6};
use crate::scene::{Arrival, Gateway, START};

const POLICY: &str = r#"
[interface.a]
zone = "inside"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
mac = "02:00:00:00:00:02"
[interface.b]
zone = "servers"
addresses = ["192.168.2.1/24", "2001:db8:2::1/64"]
mac = "02:00:00:00:00:02"
[interface.c]
zone = "outside"
addresses = ["203.0.113.2/24", "2001:db8:ff::2/64"]
mac = "02:00:00:00:00:02"
[interface.d]
zone = "second"
addresses = ["198.18.0.2/24", "203.0.113.130/28"]
mac = "02:00:00:00:00:02"
[default]
"any > any" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ff::1"
[[route]]
to = "10.0.0.0/8"
via = "198.18.0.1"
[[nat]]
name = "routed"
kind = "one-to-one"
outside = "198.51.100.64/28"
inside = "192.168.1.64/28"
[[nat]]
name = "routed6"
kind = "one-to-one"
outside = "2001:db8:70::/64"
inside = "2001:db8:1::/64"
[[nat]]
name = "here"
kind = "one-to-one"
outside = "203.0.113.9"
inside = "192.168.2.9"
[[nat]]
name = "everywhere"
kind = "forward"
protocol = ["tcp", "udp"]
port = 443
target = "192.168.2.20:8443"
[[nat]]
name = "away"
kind = "forward"
outside = "198.51.100.80"
protocol = "tcp"
port = 80
target = "192.168.1.20"
[[nat]]
name = "office"
kind = "masquerade"
from = ["inside", "servers"]
to = ["outside", "second"]
"#;

/// Every order of a few things.
fn orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.len() < 2 {
        return vec![things.to_vec()];
    }
    let mut all = Vec::new();
    for place in 0..things.len() {
        let mut rest = things.to_vec();
        let first = rest.remove(place);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first.clone());
            order
        }));
    }
    all
}

/// Outcome of a few packets: interfaces by name, verdicts and bytes.
fn seen(tables: Tables) -> Vec<String> {
    const AWAY: [u8; 4] = [198, 51, 100, 7];
    let syn = |from, to, ports| tcp(v4(from, to), ports, 1, 0, Flags::SYN);
    let frames = [
        ("a", v4([192, 168, 1, 70], AWAY).udp(5_000, 53)),
        ("a", v4([192, 168, 1, 70], [192, 168, 2, 7]).udp(5_000, 53)),
        ("a", v4([192, 168, 1, 10], AWAY).udp(5_000, 53)),
        ("a", v4([192, 168, 1, 10], [10, 0, 0, 1]).udp(5_000, 53)),
        ("a", syn([192, 168, 1, 10], [203, 0, 113, 2], [5_000, 443])),
        ("a", syn([192, 168, 1, 10], [198, 18, 0, 2], [5_000, 443])),
        ("a", v4([192, 168, 1, 10], [203, 0, 113, 9]).udp(5_000, 53)),
        ("a", v4([192, 168, 1, 10], [203, 0, 113, 131]).udp(5_001, 53)),
        ("a", syn([192, 168, 1, 10], [198, 51, 100, 80], [5_000, 80])),
        ("a", v4([192, 168, 1, 10], [198, 51, 100, 66]).udp(5_000, 53)),
        ("a", v6("2001:db8:1::7", "2001:db8:bad::7").udp(5_000, 53)),
        ("b", v4([192, 168, 2, 9], AWAY).udp(5_000, 53)),
        ("b", v4([192, 168, 2, 9], [10, 0, 0, 1]).udp(5_000, 53)),
        ("b", syn([192, 168, 2, 10], [203, 0, 113, 2], [5_000, 443])),
        ("c", syn(AWAY, [203, 0, 113, 2], [5_000, 443])),
        ("c", syn(AWAY, [192, 168, 1, 1], [5_001, 443])),
        ("c", v4(AWAY, [198, 51, 100, 65]).udp(5_000, 53)),
        ("c", v6("2001:db8:bad::7", "2001:db8:70::9").udp(5_000, 53)),
        ("d", syn([198, 18, 0, 7], [198, 18, 0, 2], [5_000, 443])),
        ("d", v4([10, 0, 0, 1], [203, 0, 113, 9]).udp(5_000, 53)),
    ];
    let mut gateway = Gateway::with_slots(tables, Way::Run, 64);
    let mut seen = Vec::new();
    for ((name, frame), number) in frames.into_iter().zip(0..) {
        let port = gateway.tables.interface_named(name).unwrap();
        let at = START + Nanos(u64::from(number));
        gateway.receive(&[Arrival { port, at, number, bytes: frame.to_vec() }]);
        let out = gateway.out(64);
        for sent in out.sent {
            let name = &gateway.tables.interfaces[usize::from(sent.port)].name;
            seen.push(format!("{number} {name} {:?} {:02x?}", sent.verdict, sent.bytes));
        }
        seen.extend(out.ended.iter().map(|(number, verdict)| format!("{number} {verdict:?}")));
    }
    seen
}

#[test]
fn the_order_of_interfaces_and_routes_decides_nothing() {
    let policy = policy::parse(POLICY, "order.toml").policy.unwrap();
    let first = seen(Tables::compile(&policy, 1).unwrap());
    assert!(
        first.len() >= 20 && first.iter().filter(|line| line.contains("Forwarded")).count() > 15,
        "{first:#?}"
    );
    for interfaces in orders(&policy.interfaces) {
        for routes in orders(&policy.routes) {
            let other = ::policy::Policy { interfaces: interfaces.clone(), routes, ..policy.clone() };
            let names: Vec<&String> = other.interfaces.iter().map(|interface| &interface.name).collect();
            assert_eq!(seen(Tables::compile(&other, 1).unwrap()), first, "{names:?}");
        }
    }
}
