//! Proportional integral controller enhanced (RFC 8033), by the time that packets have waited.

use wire::Nanos;

use super::{Decision, Random, set_back};
use crate::egress::packets::List;
use crate::tables::LeafSettings;

/// State of PIE.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::egress) struct Pie {
    /// Probability of a drop, in units of 2^-32.
    pub(super) probability: i64,
    delay: Nanos,
    old_delay: Nanos,
    updated: Nanos,
    /// Probability summed since the last drop, in units of 2^-32 (section 5.4).
    accumulated: u64,
    /// Time for which no packet is dropped at the beginning (section 4.4).
    allowance: Nanos,
    is_active: bool,
}

/// Time between updates (RFC 8033, section 4.2).
const UPDATE: u64 = 15_000_000;

/// Burst of time that is let through (section 4.4).
const BURST: Nanos = Nanos(150_000_000);

const WHOLE: i64 = 1 << 32;

impl Pie {
    /// Decides on a packet that comes to a queue.
    pub(super) fn arrives(
        &mut self,
        settings: &LeafSettings,
        list: &List,
        now: Nanos,
        random: &mut Random,
    ) -> Decision {
        if !self.is_active {
            *self = Pie { is_active: true, updated: now, allowance: BURST, ..*self };
        }
        self.catch_up(settings.target, now);
        if self.allowance > Nanos(0) {
            return Decision::Keep;
        }
        // Section 4.1: a queue that is nearly empty, or a delay well below the target, drops none.
        let is_short = list.bytes <= 2 * settings.longest.0;
        if is_short || self.old_delay.0 < settings.target.0 / 2 && self.probability * 5 < WHOLE {
            return Decision::Keep;
        }
        // Section 5.4: drops keep a distance.
        self.accumulated += self.probability as u64;
        if self.probability == 0 {
            self.accumulated = 0;
        }
        if self.accumulated < WHOLE as u64 * 85 / 100 {
            return Decision::Keep;
        }
        if self.accumulated < WHOLE as u64 * 17 / 2 && !random.happens(self.probability as u64) {
            return Decision::Keep;
        }
        self.accumulated = 0;
        // Section 5.1: marks below ten per cent, drops from there on.
        if self.probability * 10 >= WHOLE { Decision::Drop } else { Decision::Signal }
    }

    /// Notes the delay of a packet that leaves.
    pub(super) fn departs(&mut self, settings: &LeafSettings, delay: Nanos, behind: &List, now: Nanos) {
        self.catch_up(settings.target, now);
        self.delay = if behind.packets == 0 { Nanos(0) } else { delay };
    }

    /// Carries out the updates that are due by now.
    fn catch_up(&mut self, target: Nanos, now: Nanos) {
        let updates = now.since(self.updated).0 / UPDATE;
        // An idle queue's probability is nought long before that.
        for _ in 0..updates.min(1_000) {
            self.update(target);
        }
        self.updated += Nanos(updates * UPDATE);
    }

    /// Section 4.2: p += alpha (delay - target) + beta (delay - old delay), alpha 1/8 and beta 1 1/4 per second, less at low p.
    fn update(&mut self, target: Nanos) {
        let (delay, old) = (self.delay.0 as i128, self.old_delay.0 as i128);
        let whole = i128::from(WHOLE);
        let change =
            ((delay - i128::from(target.0)) * whole / 8 + (delay - old) * whole * 5 / 4) / 1_000_000_000;
        let p = self.probability;
        let divisor = match p {
            _ if p * 1_000_000 < WHOLE => 2_048,
            _ if p * 100_000 < WHOLE => 512,
            _ if p * 10_000 < WHOLE => 128,
            _ if p * 1_000 < WHOLE => 32,
            _ if p * 100 < WHOLE => 8,
            _ if p * 10 < WHOLE => 2,
            _ => 1,
        };
        let mut change = change / divisor;
        // Section 5.5: no more than two per cent at once, where it is high already.
        if p * 10 >= WHOLE {
            change = change.min(whole / 50);
        }
        let sum = (i128::from(p) + change).clamp(0, whole);
        self.probability = sum as i64;
        if delay == 0 && old == 0 {
            self.probability -= self.probability / 50;
        }
        self.old_delay = self.delay;
        self.allowance = Nanos(self.allowance.0.saturating_sub(UPDATE));
        // Section 4.4: all is quiet again.
        if self.probability == 0 && self.delay.0 < target.0 / 2 && old < i128::from(target.0 / 2) {
            self.allowance = BURST;
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        set_back(&mut self.updated, span);
    }
}
