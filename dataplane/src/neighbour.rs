//! Neighbour updates (ARP, RFC 826; neighbour discovery, RFC 4861) from a live host: link-layer addresses, and neighbours that
//! cannot be reached.
//!
//! Frames pending for a neighbour (`rewrite` finds that its hop is unknown) are released by its update. They go
//! through the stages again from `track` on, at the next batch or [`Pipeline::tend`](crate::Pipeline::tend). A flow that
//! one of them opened is there then: its packets are not tracked, and no limit is charged, a second time. Where no update
//! comes, the sender is answered that the host is unreachable (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
//!
//! Interfaces are those of `tables`: a VLAN's neighbours are on the VLAN's interface.

use wire::ethernet::Mac;
use wire::{Frame, Meta, Nanos, PortId};

use crate::flag;
use crate::hop::{NO_HOP, Recycled, TooMany, Wanted};
use crate::shard::Shard;
use crate::state::Plan;
use crate::tables::{Address, Neighbour, Tables};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

impl Shard {
    /// Updates a neighbour's link-layer address, and releases the frames pending for it.
    ///
    /// # Errors
    /// The neighbour stays unknown: there is no room for more.
    pub fn update_neighbour(
        &mut self,
        tables: &Tables,
        interface: PortId,
        address: Address,
        mac: Mac,
    ) -> Result<(), TooMany> {
        let wanted = Wanted { interface, address };
        let before = self.hops.header_to(wanted);
        let mut known = self.hops.update(tables, wanted, mac);
        if known.is_err() && self.hops.recycle(&mut self.flows) == Recycled::Some {
            self.sas.forget_ways();
            self.fast_path.take_all_back();
            known = self.hops.update(tables, wanted, mac);
        }
        known?;
        self.take_back_unless(wanted, before);
        self.resume(wanted);
        Ok(())
    }

    /// A neighbour's link-layer address is not known any more. Packets to it wait from now on, those of flows too, and it
    /// is asked for.
    pub fn remove_neighbour(&mut self, tables: &Tables, interface: PortId, address: Address) {
        let wanted = Wanted { interface, address };
        let before = self.hops.header_to(wanted);
        self.hops.remove(tables, wanted);
        self.take_back_unless(wanted, before);
    }

    /// Takes published flows back, unless packets to a neighbour have the link-layer header of before, or had none.
    fn take_back_unless(&mut self, wanted: Wanted, before: Option<[u8; 12]>) {
        if before.is_some() && self.hops.header_to(wanted) != before {
            self.fast_path.take_all_back();
        }
    }

    /// Ends the resolution of a neighbour that does not answer, and answers the senders of frames pending for it.
    pub fn neighbour_unreachable(&mut self, tables: &Tables, interface: PortId, address: Address) {
        self.remove_neighbour(tables, interface, address);
        self.give_up(Wanted { interface, address });
    }

    /// The tables have been swapped: begins anew with theirs, and with these neighbours. Pending frames are released, as their
    /// route may be another. Flows must have been decided by other tables (another epoch), for hops have other numbers.
    ///
    /// # Errors
    /// Some stay unknown: there are more than there is room for.
    pub fn replace_neighbours(&mut self, tables: &Tables, neighbours: &[Neighbour]) -> Result<(), TooMany> {
        self.resume_all();
        self.hops.rebuild(tables);
        self.fast_path.take_all_back();
        self.sas.forget_ways();
        neighbours.iter().try_for_each(|neighbour| self.hops.update_neighbour(tables, neighbour))
    }

    /// Gives up neighbours that have been asked for too long. Looked for as often as flows that are idle: each eighth of a
    /// second.
    pub(crate) fn give_up_overdue(&mut self, now: Nanos) {
        while let Some(wanted) = self.hops.waiting.overdue(now) {
            self.give_up(wanted);
        }
    }

    /// Releases all pending frames.
    pub(crate) fn resume_all(&mut self) {
        while let Some(wanted) = self.hops.waiting.any() {
            self.resume(wanted);
        }
    }

    fn resume(&mut self, wanted: Wanted) {
        while let Some(mut frame) = self.hops.waiting.take(wanted) {
            renew(&mut frame);
            self.released.push_back(frame);
        }
    }

    fn give_up(&mut self, wanted: Wanted) {
        while let Some(mut frame) = self.hops.waiting.take(wanted) {
            frame.meta.fate = Verdict::Answered(Reason::NeighbourUnknown).to_fate();
            self.released.push_back(frame);
        }
    }
}

/// Resets the metadata of a frame that has waited to the results of `parse`.
fn renew(frame: &mut Frame) {
    const FOUND: u16 =
        flag::GROUP | flag::DONT_FRAGMENT | flag::TO_GROUP | flag::QUERY | flag::ERROR | flag::OWN;
    let meta = &mut frame.meta;
    meta.flags = meta.flags & FOUND | flag::RESUMED | flag::WAITED;
    meta.flow = u32::MAX;
    meta.rule = Meta::NO_RULE;
    meta.hop = NO_HOP;
    meta.nat = 0;
    meta.class = 0;
    meta.tunnel &= tunnel::IN | tunnel::COPY;
    meta.fate = 0;
}
