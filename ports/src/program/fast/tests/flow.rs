//! Flows that packets of the tests are of.

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn tuple(source: &str, sport: u16, destination: &str, dport: u16) -> Tuple {
    Tuple { source: address(source), destination: address(destination), sport, dport }
}

fn turned(tuple: Tuple) -> Tuple {
    Tuple { source: tuple.destination, destination: tuple.source, sport: tuple.dport, dport: tuple.sport }
}

/// Both directions of a flow.
pub(super) fn both(protocol: Protocol, from: Tuple, to: Tuple, windows: Option<[Window; 2]>) -> [Entry; 2] {
    let entry = |from, to, window| Entry {
        from,
        protocol,
        ifindex: 1,
        vlan: 0,
        to,
        link: [0x02, 1, 2, 3, 4, 5, 0x06, 7, 8, 9, 10, 11],
        tag: None,
        mtu: 400,
        out: 1,
        dscp: DscpSet::ALL,
        mark: None,
        window,
    };
    let [first, second] = match windows {
        Some(windows) => windows.map(Some),
        None => [None, None],
    };
    [entry(from, to, first), entry(turned(to), turned(from), second)]
}

/// A flow whose packets come in first by one VLAN, then by another, and leave by the other; 0 is none. Those of the first one leave with this priority.
fn between(vlans: [u16; 2], priority: Priority, mut entries: [Entry; 2]) -> [Entry; 2] {
    for (of, entry) in entries.iter_mut().enumerate() {
        entry.vlan = vlans[of];
        entry.tag = Some(Tag::customer(vlans[1 - of])).filter(|tag| tag.id() != 0);
    }
    entries[1].tag = entries[1].tag.map(|tag| tag.with_priority(priority));
    entries
}

/// Flows of all kinds: IPv4 and IPv6, TCP and UDP, translated or not, with windows and code points or without, by VLANs, and one of another interface.
pub(super) fn flows() -> Vec<[Entry; 2]> {
    let windows = [
        Window { end: 0xffff_ff00, max_window: 1200, grants: 5_000, scale: 0 },
        Window { end: 4_000, max_window: 70_000, grants: 0x0000_0900, scale: 7 },
    ];
    let mut marked = both(
        Protocol::TCP,
        tuple("2001:db8::2", 4000, "2001:db8:9::1", 80),
        tuple("2001:db8::2", 4000, "2001:db8:9::1", 80),
        None,
    );
    marked.iter_mut().for_each(|entry| entry.dscp = set(&[10]));
    // Code points are rewritten, one way some and the other way all.
    let mut remarked = both(
        Protocol::UDP,
        tuple("10.0.0.4", 6000, "192.0.2.9", 4500),
        tuple("198.51.100.1", 6001, "192.0.2.9", 4500),
        None,
    );
    (remarked[0].dscp, remarked[0].mark) = (set(&[0, 10, 63]), Dscp::new(46));
    remarked[1].mark = Dscp::new(0);
    let mut remarked6 = both(
        Protocol::TCP,
        tuple("fd00::3", 7, "2001:db8:9::1", 8),
        tuple("2001:db8:1::77", 9, "2001:db8:9::1", 8),
        Some(windows),
    );
    (remarked6[0].dscp, remarked6[0].mark) = (set(&[10, 45]), Dscp::new(41));
    remarked6[1].mark = Dscp::new(22);
    let mut elsewhere = both(
        Protocol::UDP,
        tuple("10.0.0.9", 5000, "192.0.2.9", 53),
        tuple("198.51.100.1", 1025, "192.0.2.9", 53),
        None,
    );
    elsewhere.iter_mut().for_each(|entry| entry.ifindex = 2);
    let high = Priority::all().last().unwrap();
    // From inside, of the same addresses and ports as flows of no VLAN and of others.
    let in_vlan = |sport| {
        both(
            Protocol::TCP,
            tuple("10.0.0.2", 40_000, "192.0.2.9", 443),
            tuple("198.51.100.1", sport, "192.0.2.9", 443),
            Some(windows),
        )
    };
    let in_vlan6 = |sport| {
        both(
            Protocol::UDP,
            tuple("fd00::2", 1, "2001:db8:9::1", 2),
            tuple("2001:db8:1::77", sport, "2001:db8:9::1", 2),
            None,
        )
    };
    vec![
        both(
            Protocol::TCP,
            tuple("10.0.0.2", 40_000, "192.0.2.9", 443),
            tuple("198.51.100.1", 1024, "192.0.2.9", 443),
            Some(windows),
        ),
        both(
            Protocol::UDP,
            tuple("10.0.0.2", 40_000, "192.0.2.9", 443),
            tuple("198.51.100.1", 1024, "192.0.2.9", 8443),
            None,
        ),
        both(
            Protocol::TCP,
            tuple("10.0.0.3", 1, "10.0.1.3", 65_535),
            tuple("10.0.0.3", 1, "10.0.1.3", 65_535),
            Some(windows),
        ),
        marked,
        both(
            Protocol::UDP,
            tuple("fd00::2", 1, "2001:db8:9::1", 2),
            tuple("2001:db8:1::77", 3, "2001:db8:9::1", 2),
            None,
        ),
        both(
            Protocol::TCP,
            tuple("fd00::2", 7, "2001:db8:9::1", 8),
            tuple("2001:db8:1::77", 3, "2001:db8:9::1", 8),
            Some(windows),
        ),
        remarked,
        remarked6,
        between([20, 0], Priority::DEFAULT, in_vlan(1025)),
        between([0xfff, 21], high, in_vlan(1024)),
        between([20, 20], Priority::DEFAULT, in_vlan6(3)),
        between([21, 0], high, in_vlan6(4)),
        elsewhere,
    ]
}

fn set(code_points: &[u8]) -> DscpSet {
    code_points.iter().filter_map(|value| Dscp::new(*value)).collect()
}
