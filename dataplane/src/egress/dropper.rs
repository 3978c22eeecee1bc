//! Active queue management of one queue: RED and WRED, CoDel, PIE.

use policy::model::{Colour, Dropper};
use wire::Nanos;

use super::packets::List;
use crate::tables::LeafSettings;

mod codel;
mod pie;
mod red;
#[cfg(test)]
mod tests;

use codel::Codel;
use pie::Pie;
use red::Red;

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
            // The queues of DualPI2 have one of their own.
            Dropper::Tail | Dropper::DualPi2 => Aqm::Tail,
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
            Aqm::Red(red) => {
                let threshold = &settings.red[colour as usize % 3];
                red.arrives(threshold, settings.idle, list.packets, now, random)
            }
            Aqm::Pie(pie) => pie.arrives(settings, list, now, random),
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
            Aqm::Codel(codel) => return codel.departs(settings, now.since(since), behind, now),
            Aqm::Pie(pie) => pie.departs(settings, now.since(since), behind, now),
            Aqm::Tail => {}
            Aqm::Red(red) => red.departs(behind, now),
        }
        Decision::Keep
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        match self {
            Aqm::Tail => {}
            Aqm::Red(red) => red.set_back(span),
            Aqm::Codel(codel) => codel.set_back(span),
            Aqm::Pie(pie) => pie.set_back(span),
        }
    }
}

/// Sets a moment back by `span`.
pub(super) fn set_back(at: &mut Nanos, span: Nanos) {
    *at = Nanos(at.0.saturating_sub(span.0));
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

    /// True with a probability in units of 2^-32.
    #[inline]
    pub(super) fn happens(&mut self, probability: u64) -> bool {
        self.next() >> 32 < probability
    }
}
