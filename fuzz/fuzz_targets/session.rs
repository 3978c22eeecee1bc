//! Any bytes as packets of PPP sessions and of PPPoE discovery, for clients and servers.
//!
//! The first byte of each packet chooses its kind and the interface, the second its length, the third the time until the next. Beyond not
//! crashing: each frame has one fate.
#![no_main]

use std::sync::OnceLock;

use dataplane::Tables;
use dataplane::replay::{Replay, Way};
use libfuzzer_sys::fuzz_target;
use policy::Policy;
use wire::ethernet::{EtherType, Mac};
use wire::link_kind::received_as;
use wire::{Nanos, PortId, pppoe};

/// Sessions over Ethernet, a client and a server, and over ATM, likewise.
const POLICY: &str = r#"
[interface.wan]
zone = "line"
[interface.client]
zone = "wan"
parent = "wan"
addresses = ["203.0.113.2/32", "2001:db8::2/128"]
ppp = { authentication = "pap", user = "user", password = "secret" }
[interface.server]
zone = "wan"
parent = "wan"
addresses = ["203.0.113.4/32"]
ppp = { role = "server", authentication = "none", peer = "203.0.113.5" }
[interface.atm-client]
zone = "wan"
addresses = ["203.0.113.6/32"]
atm = { vc = "8/35" }
ppp = { authentication = "none" }
[interface.atm-server]
zone = "wan"
addresses = ["203.0.113.8/32", "2001:db8::8/128"]
atm = { vc = "8/36" }
ppp = { role = "server", user = "user", password = "secret", peer = "203.0.113.9" }
[default]
"any > any" = "accept"
"#;

fn policy() -> &'static Policy {
    static CHECKED: OnceLock<Policy> = OnceLock::new();
    CHECKED.get_or_init(|| policy::check(POLICY, "session.toml").policy.expect("a sound policy"))
}

fuzz_target!(|data: &[u8]| {
    let tables = Tables::compile(policy(), 1).expect("a sound policy");
    let start = Nanos::from_secs(1);
    let mut replay = Replay::new(tables, start, Way::Step).expect("memory");
    let (mut rest, mut now, mut number) = (data, start, 0);
    while let Some((&[kind, length, pause], behind)) = rest.split_first_chunk::<3>() {
        let (bytes, next) = behind.split_at(usize::from(length).min(behind.len()));
        rest = next;
        let from = Mac([2, 0, 0, 0, 0, kind >> 6]);
        let ethernet = |EtherType(ethertype): EtherType, header: &[u8]| {
            [&[0xff; 6][..], &from.0, &ethertype.to_be_bytes(), header, bytes].concat()
        };
        let (port, frame) = match kind & 3 {
            0 => (
                0,
                ethernet(
                    EtherType::PPPOE_DISCOVERY,
                    &pppoe::header(bytes.first().copied().unwrap_or(9), 0, bytes.len()),
                ),
            ),
            1 => (0, ethernet(EtherType::PPPOE_SESSION, &[])),
            2 => (3, [&received_as(EtherType::PPP)[..], bytes].concat()),
            _ => (4, [&received_as(EtherType::PPP)[..], bytes].concat()),
        };
        replay.receive(PortId(port), now, number, &frame, &mut ());
        number += 1;
        now += Nanos::from_millis(u64::from(pause) * 100);
    }
    replay.finish(&mut ());
    assert!(replay.shard.counters.are_conserved());
});
