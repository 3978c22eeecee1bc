use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::RouteAttribute;
use proptest::prelude::{any, prop, proptest};

use super::*;

/// Recorded `ip` commands, each with the bytes of Linux's events.
fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    for line in include_str!("recorded.txt").lines().skip(1) {
        if line.starts_with("ip ") {
            all.push((line, String::new()));
        } else if let Some((_, hex)) = all.last_mut() {
            hex.push_str(line);
        }
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    all.into_iter().map(|(what, hex)| (what, hex.as_bytes().chunks(2).map(byte).collect())).collect()
}

/// Parses the one message recorded for a command.
fn told(command: &str) -> Body {
    let (_, bytes) = recorded().into_iter().find(|(what, _)| *what == command).expect("it was recorded");
    let mut messages = parse(&bytes);
    let body = messages.next().expect("a message").body;
    assert_eq!(messages.next(), None);
    body
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

const EAST: LinkIndex = LinkIndex(3);

fn hop(via: &str) -> Hop {
    let via = Some(via.parse().unwrap());
    Hop { link: Some(EAST), via, weight: 1, onlink: false, encapsulated: false }
}

fn route(metric: u32, target: Target) -> Route {
    const BOOT: u8 = 3;
    Route { metric, tos: 0, protocol: BOOT, target }
}

fn several<const N: usize>(hops: [Hop; N]) -> Target {
    Target::of(hops.to_vec()).unwrap()
}

#[test]
fn links() {
    let Body::Event(Event::Link(index, link)) = told("ip link set east mtu 1400") else { panic!() };
    let expected = Link {
        name: "east".into(),
        mac: Some("02:00:00:00:00:01".parse().unwrap()),
        mtu: 1400,
        condition: Condition::Running,
        hardware: 1,
        kind: "veth".into(),
        parent: Some(LinkIndex(2)),
        master: None,
        table: None,
    };
    assert_eq!((index, link), (EAST, expected));
    let added = told("ip link add link east name vlan type macvlan");
    let Body::Event(Event::Link(_, link)) = added else { panic!() };
    assert_eq!((link.kind.as_str(), link.parent, link.condition), ("macvlan", Some(EAST), Condition::Down));
    // What a bridge says of its ports is not about the links.
    assert_eq!(told("ip link set far master br"), Body::Other);
    assert_eq!(told("ip link set far nomaster"), Body::Other);
}

/// Body of a message on the settings of an interface: attributes by number.
fn settings(kind: u16, family: u8, attributes: &[(u16, i32)]) -> Body {
    let mut bytes = vec![family, 0, 0, 0];
    for (number, value) in attributes {
        bytes.extend(8_u16.to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    let mut message = ((16 + bytes.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend([0; 10]);
    message.extend(bytes);
    parse(&message).next().expect("a message").body
}

#[test]
fn settings_of_interfaces() {
    let body = |v6, linkdown| {
        let key = LinkdownKey { link: EAST, v6 };
        let settings = Settings { linkdown: Some(linkdown), multicast: None };
        Body::Event(Event::Settings(key, settings))
    };
    // Interface 3: forwarding, then what becomes of routes without a carrier.
    assert_eq!(settings(80, 2, &[(1, 3), (2, 1), (6, 1)]), body(false, Linkdown::Ignored));
    assert_eq!(settings(80, 10, &[(6, 1), (1, 3)]), body(true, Linkdown::Ignored));
    assert_eq!(settings(80, 2, &[(1, 3), (6, 0)]), body(false, Linkdown::Used));
    let gone = Settings { linkdown: Some(Linkdown::Used), multicast: Some(MulticastRouter::Off) };
    let key = LinkdownKey { link: EAST, v6: false };
    assert_eq!(settings(81, 2, &[(1, 3)]), Body::Event(Event::Settings(key, gone)));
    let router = Settings { linkdown: None, multicast: Some(MulticastRouter::On) };
    assert_eq!(settings(80, 2, &[(1, 3), (4, 1)]), Body::Event(Event::Settings(key, router)));
    // Another setting; those of all interfaces and of new ones; other protocols (MPLS).
    assert_eq!(settings(80, 2, &[(1, 3), (2, 1)]), Body::Other);
    assert_eq!(settings(80, 2, &[(1, -1), (6, 1)]), Body::Other);
    assert_eq!(settings(80, 2, &[(1, -2), (6, 1)]), Body::Other);
    assert_eq!(settings(80, 28, &[(1, 3), (6, 1)]), Body::Other);
}

#[test]
fn addresses() {
    let address = Address { protocol: 0, scope: 0, flags: 0x80 };
    let plain = AddressKey { link: EAST, net: net("192.0.2.1/24"), peer: None };
    assert_eq!(told("ip addr add 192.0.2.1/24 dev east"), Body::Event(Event::Address(plain, address)));
    let peer = AddressKey { link: EAST, net: net("10.0.0.1/32"), peer: Some("10.0.0.2".parse().unwrap()) };
    let told_of = told("ip addr add 10.0.0.1 peer 10.0.0.2/32 dev east");
    assert_eq!(told_of, Body::Event(Event::Address(peer, address)));
    let gone = told("ip addr del 10.0.0.1 peer 10.0.0.2/32 dev east");
    assert_eq!(gone, Body::Event(Event::AddressGone(peer)));
}

#[test]
fn routes() {
    let bird = Route { protocol: 12, ..route(7, Target::One(hop("192.0.2.9"))) };
    let onlink = Hop { onlink: true, ..hop("192.0.2.200") };
    let weighted = |via, weight| Hop { weight, ..hop(via) };
    let four = several([weighted("192.0.2.8", 3), weighted("192.0.2.9", 256)]);
    let six = several([hop("2001:db8::8"), weighted("2001:db8::9", 2)]);
    for (command, to, expected, placing) in [
        (
            "ip route add 198.51.100.0/24 via 192.0.2.9 metric 7 proto bird",
            "198.51.100.0/24",
            bird.clone(),
            Placing::First,
        ),
        (
            "ip -4 route add default via inet6 fe80::9 dev east",
            "0.0.0.0/0",
            route(0, Target::One(hop("fe80::9"))),
            Placing::First,
        ),
        (
            "ip route add 10.6.0.0/16 via 192.0.2.200 dev east onlink",
            "10.6.0.0/16",
            route(0, Target::One(onlink)),
            Placing::First,
        ),
        (
            "ip route add 203.0.113.0/24 tos 0x10 nexthop via 192.0.2.8 weight 3 nexthop via 192.0.2.9 weight 256",
            "203.0.113.0/24",
            Route { tos: 0x10, ..route(0, four) },
            Placing::First,
        ),
        ("ip route append blackhole 10.9.0.0/16", "10.9.0.0/16", route(0, Target::Blackhole), Placing::First),
        (
            "ip route replace unreachable 10.9.0.0/16",
            "10.9.0.0/16",
            route(0, Target::Unreachable),
            Placing::Instead,
        ),
        (
            "ip -6 route add 2001:db8:1::/48 nexthop via 2001:db8::8 nexthop via 2001:db8::9 weight 2",
            "2001:db8:1::/48",
            route(1024, six),
            Placing::First,
        ),
        ("ip route add 10.7.0.0/16 nhid 3", "10.7.0.0/16", route(0, Target::Object(3)), Placing::First),
    ] {
        assert_eq!(
            told(command),
            Body::Event(Event::Route(TableId::MAIN, net(to), expected, placing)),
            "{command}"
        );
    }
    let gone = Event::RouteGone(TableId::MAIN, net("198.51.100.0/24"), bird);
    assert_eq!(told("ip route del 198.51.100.0/24"), Body::Event(gone));
    let of_table = told("ip route add table 7 10.8.0.0/16 dev east");
    let expected = route(0, Target::One(Hop { via: None, ..hop("192.0.2.9") }));
    let event = Event::Route(TableId(7), net("10.8.0.0/16"), expected, Placing::First);
    assert_eq!(of_table, Body::Event(event), "that of a VRF, perhaps");
}

#[test]
fn objects() {
    let onlink = Hop { onlink: true, ..hop("192.0.2.9") };
    let members = [Member { object: 1, weight: 3 }, Member { object: 2, weight: 200 }];
    for (command, number, object) in [
        ("ip nexthop add id 1 via 192.0.2.9 dev east onlink", 1, Object::One(onlink)),
        ("ip nexthop add id 2 via 192.0.2.8 dev east", 2, Object::One(hop("192.0.2.8"))),
        ("ip nexthop add id 3 group 1,3/2,200", 3, Object::Group(members.into())),
        ("ip nexthop add id 4 blackhole", 4, Object::Blackhole),
    ] {
        assert_eq!(told(command), Body::Event(Event::Object(number, object)), "{command}");
    }
    assert_eq!(told("ip nexthop del id 4"), Body::Event(Event::ObjectGone(4)));
}

#[test]
fn neighbours() {
    let mac = Some("02:00:00:00:00:09".parse().unwrap());
    let key = |address: &str| NeighbourKey { link: EAST, address: address.parse().unwrap() };
    let permanent = Neighbour { mac, reachability: Reachability::Permanent, router: false };
    let stale = Neighbour { mac, reachability: Reachability::Stale, router: true };
    for (command, key, neighbour) in [
        ("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev east", key("192.0.2.9"), permanent),
        (
            "ip neigh add 2001:db8::9 lladdr 02:00:00:00:00:09 nud stale router dev east",
            key("2001:db8::9"),
            stale,
        ),
    ] {
        let change = NeighbourChange { key, now: Some(neighbour) };
        assert_eq!(told(command), Body::Event(Event::Neighbour(change)), "{command}");
    }
}

/// Comparison with another parser's result for the same bytes.
#[test]
fn it_is_read_as_others_read_it() {
    let mut compared = 0;
    for (what, bytes) in recorded() {
        let Ok(theirs) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes) else {
            // They know no next-hop objects.
            assert!(what.contains("nexthop"), "{what}");
            continue;
        };
        let NetlinkPayload::InnerMessage(theirs) = theirs.payload else { panic!("{what}") };
        let ours = parse(&bytes).next().map(|message| message.body);
        match (ours, theirs) {
            (Some(Body::Event(Event::Link(index, link))), RouteNetlinkMessage::NewLink(theirs)) => {
                assert_eq!(index.0, theirs.header.index);
                assert_eq!(u16::from(theirs.header.link_layer_type), link.hardware);
                let has =
                    |attribute| assert!(theirs.attributes.contains(&attribute), "{what}: {attribute:?}");
                has(LinkAttribute::IfName(link.name));
                has(LinkAttribute::Mtu(link.mtu));
                link.mac.iter().for_each(|mac| has(LinkAttribute::Address(mac.0.to_vec())));
                link.parent.iter().for_each(|parent| has(LinkAttribute::Link(parent.0)));
                compared += 1;
            }
            (
                Some(Body::Event(Event::Route(TableId::MAIN, to, route, _))),
                RouteNetlinkMessage::NewRoute(theirs),
            ) => {
                assert_eq!(to.prefix_len(), theirs.header.destination_prefix_length);
                assert_eq!(route.protocol, u8::from(theirs.header.protocol));
                assert_eq!(route.tos, theirs.header.tos);
                let has =
                    |attribute| assert!(theirs.attributes.contains(&attribute), "{what}: {attribute:?}");
                if to.prefix_len() > 0 {
                    has(RouteAttribute::Destination(to.addr().into()));
                }
                if let Target::One(hop) = route.target {
                    has(RouteAttribute::Oif(hop.link.unwrap().0));
                }
                compared += 1;
            }
            (Some(Body::Event(Event::Address(key, _))), RouteNetlinkMessage::NewAddress(theirs)) => {
                assert_eq!(
                    (key.link.0, key.net.prefix_len()),
                    (theirs.header.index, theirs.header.prefix_len)
                );
                compared += 1;
            }
            (Some(Body::Event(Event::Neighbour(change))), RouteNetlinkMessage::NewNeighbour(theirs)) => {
                assert_eq!(change.key.link.0, theirs.header.ifindex);
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn what_is_cut_short_is_malformed_or_less() {
    for (what, bytes) in recorded() {
        for length in 0..bytes.len() {
            let messages: Vec<Message> = parse(&bytes[..length]).collect();
            let expected = if length == 0 { vec![] } else { vec![Body::Malformed] };
            let bodies: Vec<Body> = messages.into_iter().map(|message| message.body).collect();
            assert_eq!(bodies, expected, "{what}, {length} bytes");
            // With a length to match, it is a message, but perhaps not one that says anything.
            let mut short = bytes[..length].to_vec();
            if length >= HEADER {
                short[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                assert_eq!(parse(&short).count(), 1);
            }
        }
    }
}

#[test]
fn answers_are_told_from_events() {
    let message = |kind: u16, flags: u16, body: &[u8]| {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let mut refusal = (-22_i32).to_ne_bytes().to_vec();
    refusal.extend([0; HEADER]);
    refusal.extend(8_u16.to_ne_bytes());
    refusal.extend(1_u16.to_ne_bytes());
    refusal.extend(b"why\0");
    let mut bytes = message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &refusal);
    bytes.extend(message(NLMSG_ERROR, 0, &0_i32.to_ne_bytes()));
    bytes.extend(message(NLMSG_DONE, NLM_F_DUMP_INTR, &0_i32.to_ne_bytes()));
    bytes.extend(message(NLMSG_OVERRUN, 0, &[]));
    bytes.extend(message(NLMSG_ERROR, 0, &[1]));
    let said: Vec<_> =
        parse(&bytes).map(|message| (message.sequence, message.interrupted, message.body)).collect();
    assert_eq!(
        said,
        [
            (7, false, Body::Answer(-22, "why".into())),
            (7, false, Body::Answer(0, String::new())),
            (7, true, Body::Done(0)),
            (7, false, Body::Overrun),
            (7, false, Body::Malformed),
        ]
    );
}

proptest! {
    /// Malformed bytes cause neither a panic nor an endless loop.
    #[test]
    fn damage_does_no_harm(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let all = recorded();
        let mut bytes = which.get(&all).1.clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        assert!(parse(&bytes).count() <= bytes.len() / HEADER + 1);
    }
}

/// An entry of the multicast forwarding cache as `ip mroute` has it, from `_ipmr_fill_mroute` and `mr_fill_mroute` of Linux.
#[test]
fn entries_of_the_multicast_forwarding_cache() {
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    // Length, flags, TTL threshold, interface.
    let exit = |threshold: u8, link: u32| {
        let mut bytes = vec![8, 0, 0, threshold];
        bytes[..2].copy_from_slice(&8_u16.to_ne_bytes());
        bytes.extend(link.to_ne_bytes());
        bytes
    };
    let message = |kind: u16, family: u8, table: u32, from: Option<u32>| {
        let mut body = vec![family, 32, 32, 0, table as u8, 17, 0, 5, 0, 0, 0, 0];
        body.extend(attribute(15, &table.to_ne_bytes()));
        body.extend(attribute(2, &[198, 51, 100, 9]));
        body.extend(attribute(1, &[239, 1, 1, 1]));
        if let Some(from) = from {
            body.extend(attribute(3, &from.to_ne_bytes()));
            body.extend(attribute(9, &[exit(1, 3), exit(16, 4)].concat()));
        }
        // Packets, bytes, and those that came by another interface.
        body.extend(attribute(17, &[0; 24]));
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        parse(&bytes).map(|message| message.body).collect::<Vec<_>>()
    };
    let key = MulticastKey { group: [239, 1, 1, 1].into(), source: [198, 51, 100, 9].into() };
    let exits = [(3, 1), (4, 16)].map(|(link, threshold)| MulticastExit { link: LinkIndex(link), threshold });
    let entry = MulticastEntry { from: LinkIndex(2), to: exits.into() };
    assert_eq!(message(24, 128, 253, Some(2)), [Body::Event(Event::Multicast(key, entry))]);
    assert_eq!(message(25, 128, 253, Some(2)), [Body::Event(Event::MulticastGone(key))]);
    // One that nobody has resolved yet; another table.
    assert_eq!(message(24, 128, 253, None), [Body::Other]);
    assert_eq!(message(24, 128, 7, Some(2)), [Body::Other]);
    // Addresses of another length than the family has.
    assert_eq!(message(24, 129, 254, Some(2)), [Body::Malformed]);
}
