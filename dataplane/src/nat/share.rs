//! Shares of the ports of outside addresses among several workers.
//!
//! Ports belong together in pairs, an even one and the odd one behind it, so that each worker has ports of both
//! parities. Worker i of n owns the pairs whose number divided by n leaves i, in every pool alike: no two workers hand
//! out the same port, though pools share addresses, and one division finds the owner of a port. Blocks of deterministic
//! NAT (RFC 7422) are shared likewise, port by port: a block is still of one inside address, and any worker that has a
//! flow of this address finds ports for it. A range of fewer ports than workers leaves some of them none.
//!
//! Of an outside address whose ports go by blocks on demand, blocks are shared in the place of pairs: a host's block is of one
//! worker, whole.

use super::PortRange;

/// The part of all ports that one worker hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    worker: u16,
    workers: u16,
}

impl Share {
    /// All ports: there is one worker.
    pub const WHOLE: Share = Share { worker: 0, workers: 1 };

    /// Returns the share of one of `workers`, which are counted from 0; `None` if there is no such worker.
    pub const fn new(worker: u16, workers: u16) -> Option<Share> {
        if worker < workers { Some(Share { worker, workers }) } else { None }
    }

    /// Returns the owner of a port among so many workers; 0 if there are none.
    pub const fn owner(port: u16, workers: u16) -> u16 {
        if workers == 0 { 0 } else { (port / 2) % workers }
    }

    /// Returns the owner of a port among so many workers, of an address with blocks of `block` ports.
    pub const fn owner_in_block(port: u16, block: u16, workers: u16) -> u16 {
        if workers == 0 || block == 0 { 0 } else { (port / block) % workers }
    }

    /// True if a block of ports is in the share.
    pub const fn owns_block(self, number: u16) -> bool {
        number % self.workers == self.worker
    }

    /// Number of the worker, from 0.
    pub const fn worker(self) -> u16 {
        self.worker
    }

    /// Number of workers, 1 at least.
    pub const fn workers(self) -> u16 {
        self.workers
    }

    /// True if a port is in the share.
    pub const fn owns(self, port: u16) -> bool {
        self.workers == 1 || (port / 2) % self.workers == self.worker
    }

    /// Number of the share's ports within a range.
    pub(super) fn within(self, range: PortRange) -> u32 {
        self.below(u32::from(range.last) + 1) - self.below(u32::from(range.first))
    }

    /// Returns the port of the share within a range that has so many of the share's before it.
    pub(super) fn nth(self, range: PortRange, place: u32) -> u16 {
        let number = self.below(u32::from(range.first)) + place;
        let (workers, worker) = (u32::from(self.workers), u32::from(self.worker));
        (number / 2 * 2 * workers + 2 * worker + number % 2) as u16
    }

    /// Number of the share's ports below `end`.
    fn below(self, end: u32) -> u32 {
        // Without divisions, which take long, where there is one worker.
        if self.workers == 1 {
            return end;
        }
        let (turn, own) = (2 * u32::from(self.workers), 2 * u32::from(self.worker));
        end / turn * 2 + (end % turn).saturating_sub(own).min(2)
    }

    /// Returns the part of a bound that holds for all workers together: rounded up, so that it is never nothing.
    pub(crate) const fn of_bound(self, bound: u32) -> u32 {
        if self.workers == 1 { bound } else { bound.div_ceil(self.workers as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_one_worker_s() {
        for workers in [1, 2, 3, 7, 64, 1000, 65_535] {
            let some = [0, 1, workers / 2, workers - 1];
            for port in (0..=u16::MAX).step_by(37) {
                let owner = Share::owner(port, workers);
                assert!(Share::new(owner, workers).unwrap().owns(port));
                for worker in some.into_iter().filter(|worker| *worker != owner && *worker < workers) {
                    assert!(!Share::new(worker, workers).unwrap().owns(port));
                }
            }
        }
        assert_eq!(Share::new(3, 3), None);
    }

    #[test]
    fn what_is_within_a_range_is_what_a_count_finds() {
        for (first, last) in [(1, 65_535), (4000, 4001), (4000, 4063), (7, 7), (65_530, 65_535)] {
            let range = PortRange { first, last };
            for workers in [1, 2, 3, 5, 64, 4_001] {
                for worker in (0..workers).step_by(usize::from(workers / 7 + 1)) {
                    let share = Share::new(worker, workers).unwrap();
                    let own: Vec<u16> = (first..=last).filter(|port| share.owns(*port)).collect();
                    assert_eq!(share.within(range), own.len() as u32, "{share:?} of {range:?}");
                    for (place, port) in own.iter().enumerate().step_by(own.len() / 9 + 1) {
                        assert_eq!(
                            share.nth(range, place as u32),
                            *port,
                            "{place} of {share:?} in {range:?}"
                        );
                    }
                }
            }
        }
    }
}
