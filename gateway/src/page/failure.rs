//! Failed logins and forged tokens, by network address: after a few, an address waits.
//!
//! Nobody guesses a token of 256 bits; the bound keeps logs short and the work small. Sessions go on meanwhile.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures of an address within [`WINDOW`], at most.
const MOST_FAILURES: u32 = 10;

/// Time after the first failure in which failures count.
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses remembered, at most; the one of the oldest failure makes room.
const MOST: usize = 1_024;

#[derive(Default)]
pub(super) struct Failures {
    all: Mutex<HashMap<IpAddr, Failed>>,
}

#[derive(Clone, Copy)]
struct Failed {
    times: u32,
    since: Instant,
}

impl Failures {
    /// Returns how long an address has to wait, if it does.
    pub(super) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = all.get(&network(address)).filter(|failed| failed.times >= MOST_FAILURES)?;
        WINDOW.checked_sub(now.duration_since(failed.since)).filter(|wait| !wait.is_zero())
    }

    /// Counts a failure.
    pub(super) fn count(&self, address: IpAddr, now: Instant) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(address);
        if all.len() >= MOST && !all.contains_key(&address) {
            let oldest = all.iter().min_by_key(|(_, failed)| failed.since).map(|(address, _)| *address);
            oldest.and_then(|address| all.remove(&address));
        }
        let failed = all.entry(address).or_insert(Failed { times: 0, since: now });
        if now.duration_since(failed.since) >= WINDOW {
            *failed = Failed { times: 0, since: now };
        }
        failed.times = failed.times.saturating_add(1);
    }
}

/// The address, or of IPv6 the /64 that a host has to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_waits_after_too_many_failures_and_others_do_not() {
        let (failures, now) = (Failures::default(), Instant::now());
        for _ in 0..MOST_FAILURES {
            assert_eq!(failures.wait(ip("2001:db8::1"), now), None);
            failures.count(ip("2001:db8::1"), now);
        }
        assert_eq!(failures.wait(ip("2001:db8::2"), now), Some(WINDOW), "the same host");
        assert_eq!(failures.wait(ip("2001:db8:0:1::1"), now), None);
        assert_eq!(failures.wait(ip("2001:db8::1"), now + WINDOW), None);
        failures.count(ip("2001:db8::1"), now + WINDOW);
        assert_eq!(failures.wait(ip("2001:db8::1"), now + WINDOW), None, "a new window");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..3 * MOST as u32 {
            failures
                .count(std::net::Ipv4Addr::from(number).into(), now + Duration::from_micros(number.into()));
        }
        assert_eq!(failures.all.lock().unwrap().len(), MOST);
        assert!(failures.all.lock().unwrap().contains_key(&ip("0.0.11.255")));
    }
}
