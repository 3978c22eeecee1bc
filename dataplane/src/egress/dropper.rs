//! Active queue management: RED and WRED, CoDel, PIE.

use policy::model::{Colour, Dropper, RedThreshold};
use wire::Nanos;

use super::packets::List;
use crate::tables::LeafSettings;

/// State of the active queue management of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aqm {
    /// None.
    Tail,
    /// Random early detection.
    Red(Red),
    /// Controlled delay.
    Codel(Codel),
    /// Proportional integral controller.
    Pie(Pie),
}

/// Decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The packet stays, or goes.
    Keep,
    /// The packet is marked (ECN), or dropped where its transport does not know marks.
    Signal,
    /// The packet is dropped: marks would not help.
    Drop,
}

impl Aqm {
    /// State of a new queue.
    pub(super) fn new(settings: &LeafSettings) -> Aqm {
        match settings.drop {
            Dropper::Tail => Aqm::Tail,
            Dropper::Red => Aqm::Red(Red::default()),
            Dropper::Codel => Aqm::Codel(Codel::default()),
            Dropper::Pie => Aqm::Pie(Pie::default()),
        }
    }

    /// Decides on a packet that comes to a queue.
    #[inline]
    pub(super) fn arrives(
        &mut self,
        settings: &LeafSettings,
        list: &List,
        colour: Colour,
        now: Nanos,
        random: &mut Random,
    ) -> Decision {
        match self {
            Aqm::Tail | Aqm::Codel(_) => Decision::Keep,
            Aqm::Red(red) => red.arrives(&settings.red[colour as usize % 3], list.packets, now, random),
            Aqm::Pie(pie) => pie.arrives(settings.target, list, now, random),
        }
    }

    /// Decides on a packet that is about to leave a queue, with what is left behind it.
    #[inline]
    pub(super) fn departs(
        &mut self,
        settings: &LeafSettings,
        since: Nanos,
        behind: &List,
        now: Nanos,
    ) -> Decision {
        match self {
            Aqm::Codel(codel) => codel.departs(settings, now.since(since), behind, now),
            Aqm::Pie(pie) => {
                pie.delay = now.since(since);
                Decision::Keep
            }
            Aqm::Tail => Decision::Keep,
            Aqm::Red(red) => {
                if behind.packets == 0 {
                    red.idle_since = Some(now);
                }
                Decision::Keep
            }
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        let back = |at: &mut Nanos| *at = Nanos(at.0.saturating_sub(span.0));
        match self {
            Aqm::Tail => {}
            Aqm::Red(red) => red.idle_since.iter_mut().for_each(back),
            Aqm::Codel(codel) => {
                codel.above_until.iter_mut().for_each(back);
                back(&mut codel.next);
            }
            Aqm::Pie(pie) => back(&mut pie.updated),
        }
    }
}

/// Random numbers: SplitMix64, which any seed suits. Reproducible, and no secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The next number.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Random early detection (Floyd and Jacobson 1993), with thresholds by drop precedence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Red {
    /// Average number of packets, in units of 2^-16.
    average: u64,
    /// Packets since the last that was dropped or marked.
    count: u64,
    idle_since: Option<Nanos>,
}

/// Weight of a packet in the average, as a power of two: 1/512 (section 7 of the paper: 0.002).
const RED_WEIGHT: u32 = 9;

/// Time after which an idle queue's average has fallen by one packet's weight: that of a full frame at 10 Mbit/s.
const RED_IDLE: u64 = 1_230_000;

const ONE: u64 = 1 << 16;

impl Red {
    fn arrives(
        &mut self,
        threshold: &RedThreshold,
        packets: u32,
        now: Nanos,
        random: &mut Random,
    ) -> Decision {
        let current = u64::from(packets) * ONE;
        if let Some(idle) = self.idle_since.take().filter(|_| packets == 0) {
            let steps = now.since(idle).0 / RED_IDLE;
            // (1 - 1/512)^steps, in halves: 355 steps halve it.
            self.average >>= (steps / 355).min(63);
        }
        self.average = self.average - (self.average >> RED_WEIGHT) + (current >> RED_WEIGHT);
        let (min, max) = (u64::from(threshold.min) * ONE, u64::from(threshold.max) * ONE);
        if self.average < min {
            self.count = 0;
            return Decision::Keep;
        }
        if self.average >= max {
            self.count = 0;
            return Decision::Drop;
        }
        // pb = maxp (avg - min) / (max - min); pa = pb / (1 - count pb), in units of 2^-32.
        let share = ((self.average - min) << 16) / (max - min).max(1);
        let base = (u64::from(threshold.per_mille) << 16) / 1_000 * share;
        let rest = (1_u64 << 32).saturating_sub(self.count.saturating_mul(base));
        self.count += 1;
        let is_chosen = ((random.next() >> 32) * rest) >> 32 < base;
        if is_chosen {
            self.count = 0;
            return Decision::Signal;
        }
        Decision::Keep
    }
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codel {
    /// Moment at which the delay will have been above the target for an interval.
    above_until: Option<Nanos>,
    /// Moment of the next drop.
    next: Nanos,
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

/// Bytes of a full packet: a queue of no more is no standing queue (RFC 8289, section 4.4).
const FULL_PACKET: u64 = 1_500;

impl Codel {
    /// The pseudo-code of RFC 8289, section 5.4, packet by packet: the caller comes again with the next one after a drop.
    fn departs(&mut self, settings: &LeafSettings, delay: Nanos, behind: &List, now: Nanos) -> Decision {
        let is_late = self.is_late(settings, delay, behind, now);
        if self.is_dropping {
            if !is_late {
                self.is_dropping = false;
                return Decision::Keep;
            }
            if now >= self.next {
                self.count = self.count.saturating_add(1);
                self.next = after(self.next, settings.interval, self.count);
                return Decision::Signal;
            }
            return Decision::Keep;
        }
        if !is_late {
            return Decision::Keep;
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
        if delay < settings.target || behind.bytes <= FULL_PACKET {
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
}

/// The control law: interval / sqrt(count) later (RFC 8289, section 3.3).
fn after(at: Nanos, interval: Nanos, count: u32) -> Nanos {
    // In units of 2^-16 of the root: integers, so that all hosts agree.
    let root = (u64::from(count.max(1)) << 32).isqrt();
    at + Nanos((u128::from(interval.0) * u128::from(ONE) / u128::from(root.max(1))) as u64)
}

/// Proportional integral controller enhanced (RFC 8033), by the time that packets have waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pie {
    /// Probability of a drop, in units of 2^-32.
    probability: i64,
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
const PIE_UPDATE: u64 = 15_000_000;

/// Burst of time that is let through (section 4.4).
const PIE_BURST: Nanos = Nanos(150_000_000);

const WHOLE: i64 = 1 << 32;

impl Pie {
    fn arrives(&mut self, target: Nanos, list: &List, now: Nanos, random: &mut Random) -> Decision {
        if !self.is_active {
            *self = Pie { is_active: true, updated: now, allowance: PIE_BURST, ..*self };
        }
        if list.packets == 0 {
            self.delay = Nanos(0);
        }
        let updates = now.since(self.updated).0 / PIE_UPDATE;
        // An idle queue's probability is nought long before that.
        for _ in 0..updates.min(1_000) {
            self.update(target);
        }
        self.updated += Nanos(updates * PIE_UPDATE);
        if self.allowance > Nanos(0) {
            return Decision::Keep;
        }
        // Section 5.1: a queue that is nearly empty, or a delay well below the target, drops none.
        if self.old_delay.0 < target.0 / 2 && self.probability < WHOLE / 5 || list.bytes <= 2 * FULL_PACKET {
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
        let is_chosen =
            self.accumulated >= WHOLE as u64 * 17 / 2 || ((random.next() >> 32) as i64) < self.probability;
        if is_chosen {
            self.accumulated = 0;
            // Section 5.1: marks up to ten per cent, drops beyond.
            return if self.probability > WHOLE / 10 { Decision::Drop } else { Decision::Signal };
        }
        Decision::Keep
    }

    /// Section 4.2: p += alpha (delay - target) + beta (delay - old delay), alpha 1/8 and beta 1 1/4 per second, less at low p.
    fn update(&mut self, target: Nanos) {
        let (delay, old) = (self.delay.0 as i128, self.old_delay.0 as i128);
        let whole = i128::from(WHOLE);
        let change =
            ((delay - i128::from(target.0)) * whole / 8 + (delay - old) * whole * 5 / 4) / 1_000_000_000;
        let p = self.probability;
        let divisor = match p {
            _ if p < WHOLE / 1_000_000 => 2_048,
            _ if p < WHOLE / 100_000 => 512,
            _ if p < WHOLE / 10_000 => 128,
            _ if p < WHOLE / 1_000 => 32,
            _ if p < WHOLE / 100 => 8,
            _ if p < WHOLE / 10 => 2,
            _ => 1,
        };
        let mut change = change / divisor;
        // Section 5.5: no more than two per cent at once, where it is high already.
        if p >= WHOLE / 10 {
            change = change.min(whole / 50);
        }
        let sum = (i128::from(p) + change).clamp(0, whole);
        self.probability = sum as i64;
        if delay == 0 && old == 0 {
            self.probability -= self.probability / 50;
        }
        self.old_delay = self.delay;
        self.allowance = Nanos(self.allowance.0.saturating_sub(PIE_UPDATE));
        // Section 4.4: all is quiet again.
        if self.probability == 0 && self.delay.0 < target.0 / 2 && old < i128::from(target.0 / 2) {
            self.allowance = PIE_BURST;
        }
    }
}
