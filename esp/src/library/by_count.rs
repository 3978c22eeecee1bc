//! Two libraries for one suite: one for few packets at a time, another for many together.

use wire::esp::Suite;

use crate::packet::Packet;
use crate::transform::{Forged, Transform};

/// A transform that leaves packets to one of two others, by how many there are together.
pub(super) struct ByCount {
    pub(super) few: Box<dyn Transform>,
    /// Packets that are many, at least.
    pub(super) least: usize,
    pub(super) many: Box<dyn Transform>,
}

impl ByCount {
    fn of(&self, packets: &[Packet<'_>]) -> &dyn Transform {
        if packets.len() < self.least { &*self.few } else { &*self.many }
    }
}

impl Transform for ByCount {
    fn suite(&self) -> &'static Suite {
        self.many.suite()
    }

    /// The one for many: where packets are few, nobody waits for them.
    fn library(&self, text: usize) -> &'static str {
        self.many.library(text)
    }

    fn seal(&self, packet: Packet<'_>) {
        self.few.seal(packet);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        self.few.open(packet)
    }

    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        self.of(packets).seal_many(packets);
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        self.of(packets).open_many(packets, outcomes);
    }
}
