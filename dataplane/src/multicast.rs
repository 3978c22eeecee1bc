//! Packets to multicast groups that have no route, and are given to Linux so that its multicast router asks the daemon for one.
//!
//! One of a source and a group is given each second, and at most [`PLACES`] in all: whoever sends to ever more groups asks no more often.

use wire::Nanos;

/// Interval between two packets of one source and group: 1 s.
pub const INTERVAL: Nanos = Nanos::from_secs(1);

/// Places that sources and groups share, by a hash.
pub const PLACES: usize = 256;

/// The last packets given to Linux.
#[derive(Debug)]
pub(crate) struct Misses {
    /// When the next one may be given, by the hash of source and group.
    due: [Nanos; PLACES],
}

impl Default for Misses {
    fn default() -> Misses {
        Misses { due: [Nanos(0); PLACES] }
    }
}

impl Misses {
    /// True if a packet may be given to Linux at `now`, which is noted; `hash` is that of its source and group.
    pub(crate) fn admits(&mut self, hash: u64, now: Nanos) -> bool {
        let due = &mut self.due[hash as usize % PLACES];
        let is_due = now >= *due;
        if is_due {
            *due = Nanos(now.0.saturating_add(INTERVAL.0));
        }
        is_due
    }
}
