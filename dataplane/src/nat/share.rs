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
//!
//! Two gateways that show the same addresses divide pairs and blocks first, each has every other one, and the workers of
//! each divide its half in the same way.

use policy::model::Half;

use super::PortRange;

/// The part of all ports that one worker hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    worker: u16,
    workers: u16,
    /// Number of the gateway's half, and of halves: 0 and 1 where the gateway has all ports.
    half: u16,
    halves: u16,
}

impl Share {
    /// All ports: there is one worker.
    pub const WHOLE: Share = Share { worker: 0, workers: 1, half: 0, halves: 1 };

    /// Returns the share of one of `workers`, which are counted from 0; `None` if there is no such worker.
    pub const fn new(worker: u16, workers: u16) -> Option<Share> {
        if worker < workers { Some(Share { worker, workers, half: 0, halves: 1 }) } else { None }
    }

    /// Returns the worker's share of the ports of a half, where a second gateway has the other; of all ports where there is none.
    #[must_use]
    pub const fn of_half(self, half: Option<Half>) -> Share {
        match half {
            Some(half) => Share { half: half.number(), halves: Half::COUNT, ..self },
            None => Share { half: 0, halves: 1, ..self },
        }
    }

    /// Returns the owner of a port among so many workers of a gateway that has one of so many halves; 0 if there are none.
    pub const fn owner(port: u16, workers: u16, halves: u16) -> u16 {
        worker_of(port / 2, workers, halves)
    }

    /// Returns the owner of a port likewise, of an address with blocks of `block` ports.
    pub const fn owner_in_block(port: u16, block: u16, workers: u16, halves: u16) -> u16 {
        match port.checked_div(block) {
            Some(number) => worker_of(number, workers, halves),
            None => 0,
        }
    }

    /// True if a block of ports is in the share.
    pub const fn owns_block(self, number: u16) -> bool {
        number as u32 % self.parts() == self.part()
    }

    /// True if a mapping with a port may be held here: one of the share, or one that the worker would have in the second gateway's half.
    pub(super) const fn may_hold(self, port: u16) -> bool {
        worker_of(port / 2, self.workers, self.halves) == self.worker
    }

    /// True if mappings in a block of ports may be held here.
    pub(super) const fn may_hold_block(self, number: u16) -> bool {
        worker_of(number, self.workers, self.halves) == self.worker
    }

    /// True if others have ports, too.
    pub(super) const fn is_divided(self) -> bool {
        self.parts() > 1
    }

    /// Number of parts of all ports: one for each worker of each half. Both gateways come to the same halves, whatever their numbers of
    /// workers.
    const fn parts(self) -> u32 {
        self.workers as u32 * self.halves as u32
    }

    /// Number of the share's part.
    const fn part(self) -> u32 {
        self.worker as u32 * self.halves as u32 + self.half as u32
    }

    /// Number of aligned groups of 64 ports after which the share's ports repeat.
    pub(super) const fn period(self) -> usize {
        self.parts() as usize
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
        let parts = self.parts();
        parts == 1 || (port / 2) as u32 % parts == self.part()
    }

    /// Number of the share's ports within a range.
    pub(super) fn within(self, range: PortRange) -> u32 {
        self.below(u32::from(range.last) + 1) - self.below(u32::from(range.first))
    }

    /// Returns the port of the share within a range that has so many of the share's before it.
    pub(super) fn nth(self, range: PortRange, place: u32) -> u16 {
        let number = self.below(u32::from(range.first)) + place;
        (number / 2 * 2 * self.parts() + 2 * self.part() + number % 2) as u16
    }

    /// Number of the share's ports below `end`.
    fn below(self, end: u32) -> u32 {
        // Without divisions, which take long, where there is one worker.
        if self.parts() == 1 {
            return end;
        }
        let (turn, own) = (2 * self.parts(), 2 * self.part());
        end / turn * 2 + (end % turn).saturating_sub(own).min(2)
    }

    /// Returns the part of a bound that holds for all workers together: rounded up, so that it is never nothing.
    pub(crate) const fn of_bound(self, bound: u32) -> u32 {
        if self.workers == 1 { bound } else { bound.div_ceil(self.workers as u32) }
    }
}

/// The owner of a unit of ports, pair or block.
const fn worker_of(unit: u16, workers: u16, halves: u16) -> u16 {
    if workers == 0 || halves == 0 { 0 } else { (unit / halves) % workers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_one_worker_s_of_one_gateway() {
        // The numbers of workers differ.
        for counts in [[1, 1], [1, 2], [3, 2], [4, 7]] {
            let shares =
                [Half::Listens, Half::Connects].into_iter().zip(counts).flat_map(|(half, workers)| {
                    (0..workers).map(move |worker| Share::new(worker, workers).unwrap().of_half(Some(half)))
                });
            let shares: Vec<Share> = shares.collect();
            for number in 0..=u16::MAX {
                let ports = shares.iter().filter(|share| share.owns(number));
                let [owner] = ports.collect::<Vec<_>>()[..] else { panic!("{number} of {counts:?}") };
                assert_eq!(owner.half, number / 2 % 2);
                assert_eq!(owner.worker, Share::owner(number, owner.workers, 2));
                let blocks = shares.iter().filter(|share| share.owns_block(number / 64));
                let [owner] = blocks.collect::<Vec<_>>()[..] else { panic!("block of {number}") };
                assert_eq!(owner.half, number / 64 % 2);
                assert_eq!(owner.worker, Share::owner_in_block(number, 64, owner.workers, 2));
            }
        }
    }

    #[test]
    fn a_half_is_counted_as_any_share() {
        for (first, last) in [(1, 65_535), (4000, 4001), (4002, 4063), (7, 7)] {
            let range = PortRange { first, last };
            for share in
                [Half::Listens, Half::Connects].map(|half| Share::new(1, 3).unwrap().of_half(Some(half)))
            {
                let own: Vec<u16> = (first..=last).filter(|port| share.owns(*port)).collect();
                assert_eq!(share.within(range), own.len() as u32);
                for (place, port) in own.iter().enumerate() {
                    assert_eq!(share.nth(range, place as u32), *port);
                }
            }
        }
    }

    #[test]
    fn every_port_is_one_worker_s() {
        for workers in [1, 2, 3, 7, 64, 1000, 65_535] {
            let some = [0, 1, workers / 2, workers - 1];
            for port in (0..=u16::MAX).step_by(37) {
                let owner = Share::owner(port, workers, 1);
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
