//! VLANs of a port, whose frames have no port of their own: counters of each.

use dataplane::stage::parse::vlan;
use dataplane::tables::{LOCAL, Tables};
use wire::segment::Segments;
use wire::{BATCH, Frame, PortId, ethernet};

use crate::worker::report::LinkCounts;

/// Counters of a port's VLANs.
#[derive(Default)]
pub(super) struct Vlans {
    /// Outer and inner identifier, and the place in `counts`.
    ids: Vec<(u16, u16, PortId)>,
    counts: Vec<(String, LinkCounts)>,
    /// Places in `counts`, numbers and bytes of the frames that are being sent.
    sending: Vec<(Option<usize>, Segments)>,
}

impl Vlans {
    /// Switches to other tables, with these VLANs of the port; counters stay with their names.
    pub(super) fn follow(&mut self, vlans: &[(u16, u16, PortId)], tables: &Tables) {
        let before = std::mem::take(&mut self.counts);
        self.ids.clear();
        self.sending.reserve(BATCH);
        for (outer, inner, id) in vlans {
            let Some(interface) = tables.interface(*id) else { continue };
            let counts = before.iter().find(|(name, _)| *name == interface.name).map(|(_, counts)| *counts);
            self.ids.push((*outer, *inner, PortId(self.counts.len() as u16)));
            self.counts.push((interface.name.clone(), counts.unwrap_or_default()));
        }
    }

    /// True if the port has no VLANs.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the counters, by name.
    pub(super) fn counts(&self) -> &[(String, LinkCounts)] {
        &self.counts
    }

    /// VLANs with one tag: identifier, and name.
    pub(super) fn single(&self) -> impl Iterator<Item = (u16, &str)> {
        let single = self.ids.iter().filter(|(_, inner, _)| *inner == 0);
        single.filter_map(|(id, _, place)| Some((*id, self.counts.get(usize::from(place.0))?.0.as_str())))
    }

    /// The VLAN of a frame, as a place in the counts.
    fn of(&self, frame: &Frame) -> Option<usize> {
        let tags = ethernet::parse(frame.bytes()).ok()?.tags;
        if tags.as_slice().is_empty() {
            return None;
        }
        vlan(LOCAL, &self.ids, &tags).filter(|id| *id != LOCAL).map(|id| usize::from(id.0))
    }

    /// Notes frames that are about to be sent.
    pub(super) fn note(&mut self, frames: &[Frame]) {
        self.sending.clear();
        for frame in frames {
            let noted = (self.of(frame), Segments::of(frame));
            self.sending.push(noted);
        }
    }

    /// Counts frames received.
    pub(super) fn receive(&mut self, frames: &[Frame]) {
        for frame in frames {
            if let Some((_, counts)) = self.of(frame).and_then(|place| self.counts.get_mut(place)) {
                let Segments { count, bytes } = Segments::of(frame);
                counts.received += count;
                counts.received_bytes += bytes;
            }
        }
    }

    /// Counts the first `sent` of the frames that were noted.
    pub(super) fn send(&mut self, sent: usize) {
        for (place, Segments { count, bytes }) in self.sending.drain(..).take(sent) {
            if let Some((_, counts)) = place.and_then(|place| self.counts.get_mut(place)) {
                counts.sent += count;
                counts.sent_bytes += bytes;
            }
        }
    }
}
