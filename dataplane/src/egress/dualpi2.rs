//! DualPI2: the dual queue of L4S with coupled active queue management (RFC 9332).
//!
//! Packets of scalable senders, by their ECN field ECT(1) or CE, have a queue of low latency; all others the classic one. One
//! controller, PI2, follows the longer of the two delays with a probability p'. Classic packets are marked or dropped with its square,
//! those of low latency marked with `coupling` times p', so that a flow of either kind has about the same share of the link; besides
//! they are marked where they have waited longer than a threshold. Under overload (p' x `coupling` is one), both queues drop with the
//! square, ECN or not (section 4.2.3).
//!
//! The queue of low latency goes first, but for a tenth of the bytes while classic packets wait (a weighted round robin, section 4.2.1).
//! Neither queue is reordered. Numbers are integers, and updates take place at their moments, so that all hosts agree.

use wire::Nanos;

use super::dropper::{Decision, Random, set_back};
use super::kind::Kind;
use super::packets::{List, Packets, Waiting};
use crate::stage::header;
use crate::tables::LeafSettings;

#[cfg(test)]
mod tests;

/// The two queues of a leaf.
#[derive(Debug)]
pub(super) struct Dual {
    low: List,
    classic: List,
    /// Bytes that the queue of low latency is ahead of its weight by, times [`WHOLE_SHARE`]; of those sent while both waited.
    credit: i64,
    controller: Controller,
    /// Moment of the last update; `None` before the first packet.
    updated: Option<Nanos>,
}

/// Proportional integral controller of the base probability (RFC 9332, appendix A.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Controller {
    /// The base probability p', in units of 2^-32.
    pub(super) probability: u64,
    old_delay: Nanos,
    /// Gains for a nanosecond of delay, in units of 2^-64.
    alpha: i128,
    beta: i128,
    target: Nanos,
    period: Nanos,
}

/// Certainty, as a probability.
pub(super) const WHOLE: u64 = 1 << 32;

/// Share of the classic queue while both have packets, of [`WHOLE_SHARE`].
const CLASSIC_SHARE: i64 = 1;
const WHOLE_SHARE: i64 = 10;

/// Shortest time between updates, whatever the target.
const LEAST_PERIOD: u64 = 1_000_000;

/// Updates of a queue that stands still after which its probability is one.
const MOST_UPDATES: u64 = 4_096;

/// Longest delay that the controller follows: some 18 minutes, at which any probability is one.
const MOST_DELAY: u64 = 1 << 40;

impl Dual {
    /// Creates empty queues.
    pub(super) fn new(settings: &LeafSettings) -> Dual {
        Dual {
            low: List::EMPTY,
            classic: List::EMPTY,
            credit: head_start(settings),
            controller: Controller::new(settings.target, settings.interval),
            updated: None,
        }
    }

    /// Puts a packet into its queue.
    ///
    /// # Errors
    /// There is no room in the tree; the packet comes back.
    pub(super) fn push(&mut self, packet: Waiting, packets: &mut Packets) -> Result<(), Waiting> {
        self.catch_up(packet.since, packets);
        let list = if header::is_low_latency(&packet.frame) { &mut self.low } else { &mut self.classic };
        packets.push(list, packet)
    }

    /// Takes the packet whose turn it is, with the decision on it (appendix A.2, figure 7).
    pub(super) fn pop(
        &mut self,
        kind: &Kind,
        settings: &LeafSettings,
        now: Nanos,
        packets: &mut Packets,
        random: &mut Random,
    ) -> Option<(Waiting, Decision)> {
        self.catch_up(now, packets);
        let compete = self.low.packets > 0 && self.classic.packets > 0;
        if !compete && self.low.packets + self.classic.packets == 0 {
            self.credit = head_start(settings);
            return None;
        }
        let is_low = if compete { self.credit <= 0 } else { self.low.packets > 0 };
        let packet = packets.pop(if is_low { &mut self.low } else { &mut self.classic })?;
        let decision = if is_low {
            self.decide_low(settings, now.since(packet.since), random)
        } else {
            self.decide_classic(settings, random)
        };
        // Who is dropped takes no turn. A classic packet without ECN is dropped where the caller cannot mark it.
        let goes = match decision {
            Decision::Keep => true,
            Decision::Signal => is_low || header::is_ecn_capable(&packet.frame),
            Decision::Drop => false,
        };
        if compete && goes {
            let length = i64::from(kind.counted(packet.length));
            let share = if is_low { CLASSIC_SHARE } else { CLASSIC_SHARE - WHOLE_SHARE };
            self.credit += length * share;
        }
        Some((packet, decision))
    }

    /// Decides on a packet of low latency that has waited for `delay`.
    fn decide_low(&self, settings: &LeafSettings, delay: Nanos, random: &mut Random) -> Decision {
        let coupled = self.controller.coupled(settings.coupling);
        if coupled >= WHOLE {
            // Saturated: as classic packets, and all that are left are marked.
            return if random.happens(self.controller.squared()) { Decision::Drop } else { Decision::Signal };
        }
        // The threshold is one of a queue: who is alone on a slow link has waited for another to be sent.
        let is_late = delay > settings.step && self.low.packets > 0;
        if is_late || random.happens(coupled) { Decision::Signal } else { Decision::Keep }
    }

    /// Decides on a classic packet.
    fn decide_classic(&self, settings: &LeafSettings, random: &mut Random) -> Decision {
        match random.happens(self.controller.squared()) {
            false => Decision::Keep,
            // Overload disables ECN.
            true if self.controller.coupled(settings.coupling) >= WHOLE => Decision::Drop,
            true => Decision::Signal,
        }
    }

    /// Carries out the updates that are due by `now`, since when the queues are as they are.
    fn catch_up(&mut self, now: Nanos, packets: &Packets) {
        let Some(updated) = self.updated else {
            self.updated = Some(now);
            return;
        };
        let period = self.controller.period.0;
        let due = now.since(updated).0 / period;
        if due == 0 {
            return;
        }
        self.updated = Some(updated + Nanos(due * period));
        if self.low.packets + self.classic.packets == 0 {
            return self.controller.rest(due);
        }
        let heads = [&self.low, &self.classic].map(|list| packets.first(list));
        let delay = |update: u64| {
            let at = updated + Nanos(update * period);
            let delays = heads.iter().flatten().map(|since| at.since(*since));
            delays.max().unwrap_or(Nanos(0))
        };
        for update in 1..=due.min(MOST_UPDATES) {
            self.controller.update(delay(update));
        }
        if due > MOST_UPDATES {
            // Nothing changes any more but the delay.
            self.controller.old_delay = delay(due - 1);
            self.controller.update(delay(due));
        }
    }

    /// The two queues.
    pub(super) fn lists_mut(&mut self) -> [&mut List; 2] {
        [&mut self.low, &mut self.classic]
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        self.updated.iter_mut().for_each(|at| set_back(at, span));
    }
}

/// Credit at first, and after a pause: packets of low latency wait for none of the classic ones, so long as they are few.
fn head_start(settings: &LeafSettings) -> i64 {
    (2 * CLASSIC_SHARE - WHOLE_SHARE) * settings.longest.0 as i64
}

impl Controller {
    /// At rest, for a target of delay and the longest round trip time that is expected.
    pub(super) fn new(target: Nanos, round_trip: Nanos) -> Controller {
        let longest = u128::from(round_trip.0.max(LEAST_PERIOD));
        let period = u128::from(target.0).min(longest / 3).max(LEAST_PERIOD.into());
        Controller {
            probability: 0,
            old_delay: Nanos(0),
            // 0.1 Tupdate / RTT_max^2, and 0.3 / RTT_max.
            alpha: ((period << 64) / (10 * longest * longest)) as i128,
            beta: ((3 << 64) / (10 * longest)) as i128,
            target,
            period: Nanos(period as u64),
        }
    }

    /// p' += alpha (delay - target) + beta (delay - old delay), between 0 and 1.
    pub(super) fn update(&mut self, delay: Nanos) {
        let delay = delay.min(Nanos(MOST_DELAY));
        let [now, old, target] = [delay, self.old_delay, self.target].map(|delay| i128::from(delay.0));
        let change = (self.alpha * (now - target) + self.beta * (now - old)) >> 32;
        self.probability = (i128::from(self.probability) + change).clamp(0, WHOLE.into()) as u64;
        self.old_delay = delay;
    }

    /// That many updates without delay.
    fn rest(&mut self, updates: u64) {
        self.update(Nanos(0));
        let change = (-self.alpha * i128::from(self.target.0)) >> 32;
        let sum = i128::from(self.probability) + change * i128::from(updates - 1);
        self.probability = sum.max(0) as u64;
    }

    /// Probability for packets of low latency: p' x `coupling`.
    pub(super) fn coupled(&self, coupling: u32) -> u64 {
        self.probability * u64::from(coupling)
    }

    /// Probability for classic packets: the square of p'.
    pub(super) fn squared(&self) -> u64 {
        ((u128::from(self.probability) * u128::from(self.probability)) >> 32) as u64
    }
}
