//! Schedule of the neighbour requests to Linux.
//!
//! Packets to a neighbour bypass Linux, which therefore cannot see that the neighbour is in use, and would never detect
//! that it is gone. While Linux has a neighbour in use as stale, a request is due at most every [`PAUSE`]; for an
//! unresolved neighbour that a shard wants, at most every [`RETRY`]. Bounded: past the capacity, the neighbours wanted
//! longest ago are evicted; at most [`AT_ONCE`] are due at a time.

use std::collections::HashMap;

use wire::Nanos;

use super::cow::Map;
use super::state::{Neighbour, NeighbourKey, Reachability};

/// Least interval between two requests for a stale neighbour.
pub const PAUSE: Nanos = Nanos::from_secs(15);

/// Least interval between two requests for an unresolved neighbour.
pub const RETRY: Nanos = Nanos::from_secs(1);

/// Requests due at once, at most.
pub const AT_ONCE: usize = 256;

/// Neighbours that shards want, with the times of requests.
#[derive(Debug)]
pub struct Probe {
    entries: HashMap<NeighbourKey, Entry>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    /// Time of the last request by a shard.
    wanted: Nanos,
    /// Time of the last request to Linux.
    asked: Option<Nanos>,
}

impl Probe {
    /// Creates a schedule with room for `capacity` neighbours, 1 at least.
    pub fn new(capacity: usize) -> Probe {
        Probe { entries: HashMap::new(), capacity: capacity.max(1) }
    }

    /// Notes that a shard requests a neighbour or uses it.
    pub fn want(&mut self, key: NeighbourKey, now: Nanos) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.wanted = now;
            return;
        }
        if self.entries.len() >= self.capacity {
            self.make_room();
        }
        self.entries.insert(key, Entry { wanted: now, asked: None });
    }

    /// Removes a neighbour that no shard uses any more.
    pub fn forget(&mut self, key: &NeighbourKey) {
        self.entries.remove(key);
    }

    /// Returns the neighbours to request now, those wanted longest ago first, and marks them as requested.
    pub fn due(&mut self, neighbours: &Map<NeighbourKey, Neighbour>, now: Nanos) -> Vec<NeighbourKey> {
        let mut due = Vec::new();
        self.entries.retain(|key, entry| {
            let known = neighbours.get(key).map(|neighbour| neighbour.reachability);
            let waited = |pause| entry.asked.is_none_or(|asked| now.since(asked) >= pause);
            let wanted_since = entry.asked.is_none_or(|asked| entry.wanted > asked);
            match known {
                Some(Reachability::Stale) if waited(PAUSE) => due.push((entry.wanted, *key)),
                None | Some(Reachability::Failed) if wanted_since && waited(RETRY) => {
                    due.push((entry.wanted, *key));
                }
                // Nobody wants it any more: a shard that does asks again.
                None | Some(Reachability::Failed) => return wanted_since || !waited(RETRY),
                Some(_) => {}
            }
            true
        });
        due.sort_unstable();
        due.truncate(AT_ONCE);
        for (_, key) in &due {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.asked = Some(now);
            }
        }
        due.into_iter().map(|(_, key)| key).collect()
    }

    /// Evicts the quarter wanted longest ago.
    fn make_room(&mut self) {
        let mut wanted: Vec<Nanos> = self.entries.values().map(|entry| entry.wanted).collect();
        wanted.sort_unstable();
        let Some(oldest) = wanted.get(wanted.len() / 4).copied() else { return };
        let mut surplus = wanted.len() / 4 + 1;
        self.entries.retain(|_, entry| {
            let goes = entry.wanted <= oldest && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::LinkIndex;

    fn key(last: u8) -> NeighbourKey {
        NeighbourKey { link: LinkIndex(1), address: [192, 0, 2, last].into() }
    }

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn known(reachability: Reachability) -> Map<NeighbourKey, Neighbour> {
        let mut neighbours = Map::default();
        neighbours.insert(key(1), Neighbour { mac: None, reachability, router: false });
        neighbours
    }

    #[test]
    fn one_that_is_not_known_is_asked_for_as_often_as_it_is_wanted() {
        let mut probe = Probe::new(10);
        let nobody = Map::default();
        probe.want(key(1), at(0));
        assert_eq!(probe.due(&nobody, at(0)), [key(1)]);
        assert_eq!(probe.due(&nobody, at(5)), []);
        probe.want(key(1), at(500));
        assert_eq!(probe.due(&nobody, at(999)), []);
        assert_eq!(probe.due(&nobody, at(1000)), [key(1)]);
        // Linux is at it.
        probe.want(key(1), at(1500));
        assert_eq!(probe.due(&known(Reachability::Incomplete), at(2500)), []);
        assert_eq!(probe.due(&known(Reachability::Failed), at(2500)), [key(1)]);
        // Not wanted since: forgotten.
        assert_eq!(probe.due(&nobody, at(20_000)), []);
        assert!(probe.entries.is_empty());
    }

    #[test]
    fn a_stale_one_is_asked_for_every_fifteen_seconds() {
        let mut probe = Probe::new(10);
        probe.want(key(1), at(0));
        assert_eq!(probe.due(&Map::default(), at(0)), [key(1)]);
        let (reachable, stale) = (known(Reachability::Reachable), known(Reachability::Stale));
        assert_eq!(probe.due(&reachable, at(40_000)), []);
        let asked: Vec<u64> =
            (40..100).filter(|second| !probe.due(&stale, at(second * 1000)).is_empty()).collect();
        assert_eq!(asked, [40, 55, 70, 85]);
        for other in [Reachability::Permanent, Reachability::Delay, Reachability::Probe, Reachability::NoArp]
        {
            assert_eq!(probe.due(&known(other), at(200_000)), []);
        }
        probe.forget(&key(1));
        assert_eq!(probe.due(&stale, at(300_000)), []);
    }

    #[test]
    fn what_was_wanted_longest_ago_makes_room() {
        let mut probe = Probe::new(8);
        for last in 0..9 {
            probe.want(key(last), at(last.into()));
        }
        assert_eq!(probe.due(&Map::default(), at(100)), (3..9).map(key).collect::<Vec<_>>());
        let mut probe = Probe::new(1000);
        for number in 0..1000_u32 {
            probe.want(NeighbourKey { link: LinkIndex(number), ..key(1) }, at(0));
        }
        let due: Vec<usize> = (0..5).map(|_| probe.due(&Map::default(), at(0)).len()).collect();
        assert_eq!(due, [256, 256, 256, 232, 0]);
    }

    #[test]
    fn all_wanted_at_one_time_make_room_too() {
        let mut probe = Probe::new(4);
        for last in 0..100 {
            probe.want(key(last), at(0));
            assert!(probe.entries.len() <= 4);
            assert!(probe.entries.contains_key(&key(last)));
        }
    }
}
