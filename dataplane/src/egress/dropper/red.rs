//! Random early detection (Floyd and Jacobson 1993), with thresholds by drop precedence (WRED).
//!
//! The average is one of all packets; its thresholds are those of the packet's colour. From the upper threshold on all packets are
//! dropped, not marked (RFC 3168, section 7): senders that do not heed marks would fill the queue. The ramp beyond it that is called
//! "gentle" is not offered: where the average may go further, the upper threshold is too low.

use policy::model::RedThreshold;
use wire::Nanos;

use super::{Decision, Random, set_back};
use crate::egress::packets::List;

/// State of RED.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::egress) struct Red {
    /// Average number of packets, in units of 2^-16.
    pub(super) average: u64,
    /// Packets since the last that was dropped or marked, one more: 0 stands for the paper's -1.
    count: u64,
    idle_since: Option<Nanos>,
}

/// Weight of a packet in the average, as a power of two: 1/512 (section 7 of the paper: 0.002).
const WEIGHT: u32 = 9;

const ONE: u64 = 1 << 16;

impl Red {
    /// Decides on a packet that comes to a queue of `packets`; `idle` is the time of a packet by which an idle queue's average falls.
    pub(super) fn arrives(
        &mut self,
        threshold: &RedThreshold,
        idle: Nanos,
        packets: u32,
        now: Nanos,
        random: &mut Random,
    ) -> Decision {
        match self.idle_since.take().filter(|_| packets == 0) {
            // As if so many small packets had come to an empty queue.
            Some(since) => self.average = decayed(self.average, now.since(since).0 / idle.0.max(1)),
            None => {
                let current = u64::from(packets) * ONE;
                self.average = self.average - (self.average >> WEIGHT) + (current >> WEIGHT);
            }
        }
        let (min, max) = (u64::from(threshold.min) * ONE, u64::from(threshold.max) * ONE);
        if self.average < min {
            self.count = 0;
            return Decision::Keep;
        }
        if self.average >= max {
            self.count = 1;
            return Decision::Drop;
        }
        // pb = maxp (avg - min) / (max - min); pa = pb / (1 - count pb), in units of 2^-32.
        let share = ((self.average - min) << 16) / (max - min).max(1);
        let base = ((u64::from(threshold.per_mille) << 32) / 1_000 * share) >> 16;
        let rest = (1_u64 << 32).saturating_sub(self.count.saturating_mul(base));
        self.count += 1;
        if ((random.next() >> 32) * rest) >> 32 < base {
            self.count = 1;
            return Decision::Signal;
        }
        Decision::Keep
    }

    /// Notes that a packet leaves.
    pub(super) fn departs(&mut self, behind: &List, now: Nanos) {
        if behind.packets == 0 {
            self.idle_since = Some(now);
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        self.idle_since.iter_mut().for_each(|at| set_back(at, span));
    }
}

/// An average after so many packets' times without any: (1 - 1/512)^steps of it.
fn decayed(average: u64, steps: u64) -> u64 {
    // Below 2^-32 of it nothing is left.
    let mut steps = steps.min(22 << WEIGHT);
    let (mut power, mut factor) = (u64::MAX >> 32, ((1 << 32) / (1 << WEIGHT)) * ((1 << WEIGHT) - 1));
    while steps > 0 {
        if steps & 1 == 1 {
            power = (power * factor) >> 32;
        }
        factor = (factor * factor) >> 32;
        steps >>= 1;
    }
    ((u128::from(average) * u128::from(power)) >> 32) as u64
}
