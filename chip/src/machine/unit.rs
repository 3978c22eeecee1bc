//! Units of fixed function: each operation takes one for an interval, and is done a latency later.

use super::{Ideal, Machine};
use crate::description::{FrameAccess, UnitWork};
use crate::kernel::Ticks;

#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) work: UnitWork,
    pub(super) frames: FrameAccess,
    pub(super) free: Vec<Ticks>,
    pub(super) interval: Ticks,
    /// For each 4 bytes, in thousandths.
    pub(super) per_word: u64,
    pub(super) latency: Ticks,
}

impl Unit {
    /// The time that an operation on so many bytes takes it.
    pub(super) fn interval_of(&self, bytes: u32) -> Ticks {
        self.interval + Ticks(self.per_word * u64::from(bytes.div_ceil(4)) / 1000)
    }
}

impl Machine<'_> {
    /// Hands work to a unit: when it is done.
    pub(super) fn hand(&mut self, unit: usize, bytes: u32) -> Ticks {
        let now = self.now();
        if self.ideal == Ideal::Unit(unit) {
            return now;
        }
        let of = &mut self.units[unit];
        let interval = of.interval_of(bytes);
        let Some(first) = of.free.iter_mut().min() else { return now };
        let start = now.max(*first);
        *first = start + interval;
        self.seen.units[unit] += interval;
        start + interval + of.latency
    }
}
