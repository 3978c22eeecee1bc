//! Two libraries for one suite: one for short texts, another for long ones.

use arrayvec::ArrayVec;
use wire::esp::Suite;

use crate::packet::Packet;
use crate::transform::{Forged, Transform};

/// A transform that leaves texts to one of two others, by their length.
pub(super) struct ByLength {
    pub(super) short: Box<dyn Transform>,
    /// Bytes of the longest text that is short.
    pub(super) longest: usize,
    pub(super) long: Box<dyn Transform>,
}

/// Packets that are sorted by length at once.
const SORTED: usize = 16;

impl ByLength {
    #[inline(always)]
    fn is_short(&self, packet: &Packet<'_>) -> bool {
        packet.text_len(self.short.suite()) <= self.longest
    }

    fn of(&self, packet: &Packet<'_>) -> &dyn Transform {
        if self.is_short(packet) { &*self.short } else { &*self.long }
    }

    /// The one for all of these packets, if it is the same.
    fn of_all(&self, packets: &[Packet<'_>]) -> Option<&dyn Transform> {
        let (first, rest) = packets.split_first()?;
        let is_short = self.is_short(first);
        rest.iter().all(|packet| self.is_short(packet) == is_short).then(|| self.of(first))
    }
}

impl Transform for ByLength {
    fn suite(&self) -> &'static Suite {
        self.short.suite()
    }

    fn library(&self, text: usize) -> &'static str {
        if text <= self.longest { self.short.library(text) } else { self.long.library(text) }
    }

    fn seal(&self, packet: Packet<'_>) {
        self.of(&packet).seal(packet);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        self.of(&packet).open(packet)
    }

    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        if let Some(one) = self.of_all(packets) {
            return one.seal_many(packets);
        }
        for packets in packets.chunks_mut(SORTED) {
            let mut sorted = [(); 2].map(|()| ArrayVec::<Packet<'_>, SORTED>::new());
            for packet in packets {
                sorted[usize::from(self.is_short(packet))].push(packet.again());
            }
            let [long, short] = &mut sorted;
            self.long.seal_many(long);
            self.short.seal_many(short);
        }
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        if let Some(one) = self.of_all(packets) {
            return one.open_many(packets, outcomes);
        }
        for (packets, outcomes) in packets.chunks_mut(SORTED).zip(outcomes.chunks_mut(SORTED)) {
            let mut sorted = [(); 2].map(|()| ArrayVec::<Packet<'_>, SORTED>::new());
            let mut places = [(); 2].map(|()| ArrayVec::<usize, SORTED>::new());
            for (place, packet) in packets.iter_mut().enumerate() {
                let kind = usize::from(self.is_short(packet));
                sorted[kind].push(packet.again());
                places[kind].push(place);
            }
            for ((of, packets), places) in [&self.long, &self.short].into_iter().zip(&mut sorted).zip(places)
            {
                let mut opened = [Err(Forged); SORTED];
                of.open_many(packets, &mut opened[..places.len()]);
                places.into_iter().zip(opened).for_each(|(place, opened)| outcomes[place] = opened);
            }
        }
    }
}
