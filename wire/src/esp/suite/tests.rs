use std::collections::BTreeSet;

use super::*;

#[test]
fn names_are_unique_and_lead_back() {
    let names: BTreeSet<String> = SUITES.iter().map(|suite| suite.name().to_string()).collect();
    assert_eq!(names.len(), SUITES.len());
    for suite in &SUITES {
        assert_eq!(Suite::named(suite.name().algorithm(), suite.name().auth()), Some(suite));
    }
    let printed = |algorithm, auth| Suite::named(algorithm, auth).map(|suite| suite.name().to_string());
    assert_eq!(printed("aes128-gcm", None).as_deref(), Some("aes128-gcm"));
    assert_eq!(printed("aes192-cbc", Some("hmac-sha1-96")).as_deref(), Some("aes192-cbc, hmac-sha1-96"));
}

#[test]
fn auth_is_given_where_the_cipher_has_none() {
    for (algorithm, auth) in [
        ("aes128-gcm", Some("hmac-sha1-96")),
        ("aes128-gcm", Some("none")),
        ("aes128-cbc", None),
        ("null", None),
        ("null", Some("none")),
        ("aes128-gmc", None),
        ("aes128-cbc", Some("sha1")),
        ("unknown", None),
    ] {
        assert_eq!(Suite::named(algorithm, auth), None, "{algorithm} {auth:?}");
    }
}

/// Lengths as the RFCs give them: algorithm, auth; key, salt, auth key, IV, alignment, ICV.
#[test]
fn lengths_are_those_of_the_rfcs() {
    for (algorithm, auth, lengths, standing) in [
        ("aes128-gcm", None, [16, 4, 0, 8, 4, 16], Standing::Current),
        ("aes256-gcm", None, [32, 4, 0, 8, 4, 16], Standing::Current),
        ("chacha20-poly1305", None, [32, 4, 0, 8, 4, 16], Standing::Current),
        ("aes256-gmac", None, [32, 4, 0, 8, 4, 16], Standing::Current),
        ("aes192-cbc", Some("hmac-sha256-128"), [24, 0, 32, 16, 16, 16], Standing::Current),
        ("aes256-cbc", Some("hmac-sha384-192"), [32, 0, 48, 16, 16, 24], Standing::Current),
        ("null", Some("hmac-sha512-256"), [0, 0, 64, 0, 4, 32], Standing::Current),
        ("aes128-cbc", Some("hmac-md5-96"), [16, 0, 16, 16, 16, 12], Standing::Legacy),
        ("3des-cbc", Some("hmac-sha1-96"), [24, 0, 20, 8, 8, 12], Standing::Legacy),
        ("des-cbc", Some("none"), [8, 0, 0, 8, 8, 0], Standing::Legacy),
    ] {
        let suite = Suite::named(algorithm, auth).unwrap();
        let Suite { key, salt, auth_key, iv, align, icv, .. } = *suite;
        assert_eq!([key, salt, auth_key, iv, align, icv], lengths, "{}", suite.name());
        assert_eq!(suite.standing, standing, "{}", suite.name());
    }
}

/// Length of the outer packet, counted byte by byte.
fn outer_len(inner: u16, suite: &Suite, outer: Family, udp: Udp, mode: Mode) -> u16 {
    let ip = if outer == Family::V4 { 20 } else { 40 };
    let mut text = if mode == Mode::Tunnel { inner } else { inner - ip };
    text += 2;
    while text % u16::from(suite.align) != 0 {
        text += 1;
    }
    let udp = if udp == Udp::Yes { 8 } else { 0 };
    ip + udp + 8 + u16::from(suite.iv) + text + u16::from(suite.icv)
}

#[test]
fn inner_mtu_is_the_longest_that_fits() {
    for suite in &SUITES {
        for outer in [Family::V4, Family::V6] {
            for udp in [Udp::No, Udp::Yes] {
                for mode in [Mode::Tunnel, Mode::Transport] {
                    for mtu in (576..640).chain([1280, 1420, 1492, 1500, 9000]) {
                        let shortest = if mode == Mode::Tunnel { 0 } else { 40 };
                        let longest = (shortest..=mtu)
                            .rev()
                            .find(|&inner| outer_len(inner, suite, outer, udp, mode) <= mtu);
                        let mtu_inside = suite.inner_mtu(mtu, outer, udp, mode);
                        assert_eq!(
                            Some(mtu_inside),
                            longest,
                            "{} {outer:?} {udp:?} {mode:?} {mtu}",
                            suite.name()
                        );
                    }
                }
            }
        }
    }
    let gcm = Suite::named("aes128-gcm", None).unwrap();
    assert_eq!(gcm.inner_mtu(1500, Family::V4, Udp::No, Mode::Tunnel), 1446);
    assert_eq!(gcm.inner_mtu(1500, Family::V6, Udp::No, Mode::Tunnel), 1426);
    let cbc = Suite::named("aes128-cbc", Some("hmac-sha1-96")).unwrap();
    assert_eq!(cbc.inner_mtu(1500, Family::V4, Udp::No, Mode::Tunnel), 1438);
}

#[test]
fn nothing_fits_into_a_tiny_packet() {
    for suite in &SUITES {
        for mode in [Mode::Tunnel, Mode::Transport] {
            assert_eq!(suite.inner_mtu(0, Family::V6, Udp::Yes, mode), 0);
            assert_eq!(suite.inner_mtu(40, Family::V4, Udp::No, mode), 0);
        }
    }
}

#[test]
fn overhead_is_reached_and_never_passed() {
    for suite in &SUITES {
        for (outer, udp) in [(Family::V4, Udp::No), (Family::V4, Udp::Yes), (Family::V6, Udp::No)] {
            let added = |inner| outer_len(inner, suite, outer, udp, Mode::Tunnel) - inner;
            assert_eq!((100..200).map(added).max(), Some(suite.overhead(outer, udp)), "{}", suite.name());
        }
    }
}
