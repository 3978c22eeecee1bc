use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use tally::NoTally;

use super::*;

/// Few groups and sources, so that prefixes hold one another and packets meet routes.
fn route() -> impl Strategy<Value = MulticastRoute> {
    let group = (any::<bool>(), 0..8_u8, 24..=32_u8).prop_map(|(v6, last, length)| group(v6, last, length));
    (group, option::of(0..2_u8), 0..3_u16).prop_map(|(group, source, from)| MulticastRoute {
        group,
        source: source.map(|last| source_of(group.addr().is_ipv6(), last)),
        from: PortId(from),
        exits: Vec::new(),
        count: Arc::default(),
    })
}

fn group(v6: bool, last: u8, length: u8) -> IpNet {
    let net = if v6 {
        IpNet::new(IpAddr::from([0xff3e, 0, 0, 0, 0, 0, 0, u16::from(last)]), length + 96)
    } else {
        IpNet::new(IpAddr::from([239, 1, 1, last]), length)
    };
    net.unwrap().trunc()
}

fn source_of(v6: bool, last: u8) -> IpAddr {
    if v6 {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)])
    } else {
        IpAddr::from([198, 51, 100, last])
    }
}

proptest! {
    #[test]
    fn a_route_is_that_of_a_linear_search(
        list in vec(route(), 0..12),
        packets in vec((any::<bool>(), 0..8_u8, 0..3_u8), 1..32),
    ) {
        let routes = MulticastRoutes::new(list, false);
        for (v6, last, source) in packets {
            let (group, source) = (group(v6, last, 32).addr(), source_of(v6, source));
            let fits = |route: &&MulticastRoute| {
                route.group.contains(&group) && route.source.is_none_or(|own| own == source)
            };
            // Of two alike the first: `max_by_key` gives the last.
            let best = routes.list.iter().rev().filter(fits).max_by_key(|route| {
                (route.group.prefix_len(), route.source.is_some())
            });
            let found = routes.find(source.into(), group.into(), &mut NoTally);
            let key = |route: &MulticastRoute| (route.group, route.source, route.from);
            prop_assert_eq!(found.map(key), best.map(key));
        }
    }
}
