//! Bound on requests: of one host, and of all.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Requests of one host that are answered in a second.
const OF_ONE: u32 = 50;

/// Requests that are answered in a second.
const IN_ALL: u32 = 500;

const SECOND: Duration = Duration::from_secs(1);

/// Requests of the present second, by host: no more entries than requests are answered.
pub(crate) struct Limit {
    since: Instant,
    all: u32,
    hosts: HashMap<Ipv4Addr, u32>,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// The request is answered.
    Yes,
    /// The request is dropped.
    No,
}

impl Limit {
    pub(crate) fn new(now: Instant) -> Limit {
        Limit { since: now, all: 0, hosts: HashMap::new() }
    }

    /// Counts a request.
    pub(crate) fn admit(&mut self, host: Ipv4Addr, now: Instant) -> Admitted {
        if now.saturating_duration_since(self.since) >= SECOND {
            *self = Limit::new(now);
        }
        if self.all >= IN_ALL {
            return Admitted::No;
        }
        let own = self.hosts.entry(host).or_default();
        if *own >= OF_ONE {
            return Admitted::No;
        }
        *own += 1;
        self.all += 1;
        Admitted::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_and_all_together_have_their_share_of_a_second() {
        let (now, host) = (Instant::now(), |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number));
        let mut limit = Limit::new(now);
        let admitted = |limit: &mut Limit, number, at| limit.admit(host(number), at) == Admitted::Yes;
        assert_eq!((0..100).filter(|_| admitted(&mut limit, 0, now)).count(), OF_ONE as usize);
        assert_eq!(
            (0..10_000).filter(|at| admitted(&mut limit, 1 + at, now)).count() as u32,
            IN_ALL - OF_ONE
        );
        assert!(limit.hosts.len() <= IN_ALL as usize + 1);
        assert!(admitted(&mut limit, 0, now + SECOND), "another second");
    }
}
