//! Random health checks.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use wire::Nanos;

use crate::model::{CheckUrl, Pace, Probe, Scheme, ServerCheck, StatusRange};

/// Check of servers.
pub(super) fn server_check() -> impl Strategy<Value = ServerCheck> {
    let probe = prop_oneof![
        Just(Probe::Tcp),
        (1..=u16::MAX).prop_map(Probe::TcpPort),
        Just(Probe::Ping),
        check_url().prop_map(Probe::Url),
    ];
    (probe, status(), pace()).prop_map(|(probe, status, pace)| ServerCheck { probe, status, pace })
}

/// URL.
pub(super) fn check_url() -> impl Strategy<Value = CheckUrl> {
    let scheme = select(&[Scheme::Http, Scheme::Https][..]);
    let host = prop_oneof![
        Just(String::new()),
        "[a-z0-9_.-]{1,20}",
        any::<std::net::IpAddr>().prop_map(|address| address.to_string()),
    ];
    let path = "/[a-z0-9/?=&%.-]{0,20}";
    (scheme, host, option::of(1..=u16::MAX), path).prop_map(|(scheme, host, port, path)| CheckUrl {
        scheme,
        host,
        port,
        path,
    })
}

/// Statuses that pass.
pub(super) fn status() -> impl Strategy<Value = Vec<StatusRange>> {
    let range = (100..=599u16, 100..=599u16)
        .prop_map(|(one, other)| StatusRange { first: one.min(other), last: one.max(other) });
    vec(range, 1..3)
}

/// Interval and hysteresis.
pub(super) fn pace() -> impl Strategy<Value = Pace> {
    let times = (1..u64::MAX, option::of(any::<u64>()));
    (times, 1..=u8::MAX, 1..=u8::MAX).prop_map(|((every, timeout), fall, rise)| Pace {
        every: Nanos(every),
        timeout: timeout.map(Nanos),
        fall,
        rise,
    })
}
