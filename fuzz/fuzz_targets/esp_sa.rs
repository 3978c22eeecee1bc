//! Any text as Wireshark's table of security associations. What is read can be used, and comes back the same from the line that is
//! written for it.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use esp::expand;
use esp::wireshark::{Check, line, parse};
use libfuzzer_sys::fuzz_target;
use wire::esp::Direction;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (sas, bad) = parse(text);
    assert!(sas.len() + bad.len() <= text.lines().count());
    for (at, _) in bad {
        assert!((1..=text.lines().count()).contains(&at));
    }
    for sa in sas {
        let Check::Suite(suite) = sa.check else { continue };
        assert!(expand(suite, &sa.keys, Direction::In).is_ok());
        let end = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let Some(written) = line(Some(end), Some(end), sa.spi, suite, &sa.keys) else { continue };
        let (again, bad) = parse(&written);
        assert!(bad.is_empty());
        assert_eq!((again[0].spi, again[0].check), (sa.spi, sa.check));
        assert_eq!(again[0].keys.cipher.expose(), sa.keys.cipher.expose());
        assert_eq!(again[0].keys.auth.expose(), sa.keys.auth.expose());
        assert!(again[0].source.has(end) && again[0].destination.has(end));
    }
});
