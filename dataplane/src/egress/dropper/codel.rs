//! Controlled delay (RFC 8289).

use wire::Nanos;

use super::{Decision, set_back};
use crate::egress::packets::List;
use crate::tables::LeafSettings;

/// State of CoDel.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::egress) struct Codel {
    /// Moment at which the delay will have been above the target for an interval.
    above_until: Option<Nanos>,
    /// Moment of the next drop.
    next: Nanos,
    count: u32,
    last_count: u32,
    is_dropping: bool,
    /// True until the packet behind one that was dropped has shown whether there is a next drop.
    is_next_open: bool,
}

impl Codel {
    /// The pseudo-code of RFC 8289, section 5.4, packet by packet: the caller comes again with the next one after a drop.
    pub(super) fn departs(
        &mut self,
        settings: &LeafSettings,
        delay: Nanos,
        behind: &List,
        now: Nanos,
    ) -> Decision {
        let is_late = self.is_late(settings, delay, behind, now);
        let is_open = std::mem::take(&mut self.is_next_open);
        if !is_late {
            self.is_dropping = false;
            return Decision::Keep;
        }
        if self.is_dropping {
            if is_open {
                self.next = after(self.next, settings.interval, self.count);
            }
            if now < self.next {
                return Decision::Keep;
            }
            self.count = self.count.saturating_add(1);
            self.is_next_open = true;
            return Decision::Signal;
        }
        self.is_dropping = true;
        // If the last time is not long ago, begin near the rate that controlled the queue then.
        let delta = self.count - self.last_count;
        let is_recent = now.since(self.next).0 < 16 * settings.interval.0;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.next = after(now, settings.interval, self.count);
        Decision::Signal
    }

    fn is_late(&mut self, settings: &LeafSettings, delay: Nanos, behind: &List, now: Nanos) -> bool {
        // A queue of no more than a full packet is no standing queue (section 4.4).
        if delay < settings.target || behind.bytes <= settings.longest.0 {
            self.above_until = None;
            return false;
        }
        match self.above_until {
            None => {
                self.above_until = Some(now + settings.interval);
                false
            }
            Some(until) => now >= until,
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        self.above_until.iter_mut().for_each(|at| set_back(at, span));
        set_back(&mut self.next, span);
    }
}

/// The control law: interval / sqrt(count) later (RFC 8289, section 3.3), in whole nanoseconds.
fn after(at: Nanos, interval: Nanos, count: u32) -> Nanos {
    let square = u128::from(interval.0) * u128::from(interval.0) / u128::from(count.max(1));
    at + Nanos(square.isqrt() as u64)
}
