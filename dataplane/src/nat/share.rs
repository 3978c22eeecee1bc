//! Which ports of outside addresses are whose, where several workers hand them out.
//!
//! Worker i of n has the ports whose number divided by n leaves i, of every pool alike: so no two hand out the same one,
//! though pools share addresses, and whoever must find the worker of a port divides. Blocks of deterministic NAT
//! (RFC 7422) are shared likewise, port by port: that a block is one inside address's is as true as with one worker, and
//! whichever worker has a flow finds ports for it. A range of fewer ports than workers leaves some of them none.

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

    /// That of one of `workers`, which are counted from 0; `None` where there is no such worker.
    pub const fn new(worker: u16, workers: u16) -> Option<Share> {
        if worker < workers { Some(Share { worker, workers }) } else { None }
    }

    /// The worker that a port belongs to, of as many as there are; of none, the first.
    pub const fn owner(port: u16, workers: u16) -> u16 {
        if workers == 0 { 0 } else { port % workers }
    }

    /// Which worker it is, from 0.
    pub const fn worker(self) -> u16 {
        self.worker
    }

    /// How many there are, 1 at least.
    pub const fn workers(self) -> u16 {
        self.workers
    }

    /// Whether a port is in it.
    pub const fn owns(self, port: u16) -> bool {
        self.workers == 1 || port % self.workers == self.worker
    }

    /// The first of its ports within a range, and how many there are; none where that is 0.
    pub(super) fn within(self, range: PortRange) -> Option<(u16, u32)> {
        let (first, last) = (u32::from(range.first), u32::from(range.last));
        if self.workers == 1 {
            return Some((range.first, last - first + 1));
        }
        let workers = u32::from(self.workers);
        let first = first + (u32::from(self.worker) + workers - first % workers) % workers;
        (first <= last).then(|| (first as u16, (last - first) / workers + 1))
    }

    /// Its part of a bound that holds for all workers together: rounded up, so that it is never nothing.
    pub(crate) const fn of_bound(self, bound: u32) -> u32 {
        bound.div_ceil(self.workers as u32)
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
                    let mut own = (first..=last).filter(|port| share.owns(*port));
                    let found = own.next().map(|lowest| (lowest, 1 + own.count() as u32));
                    assert_eq!(share.within(range), found, "{share:?} of {range:?}");
                }
            }
        }
    }
}
