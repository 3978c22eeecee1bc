//! What a live host tells its shards of neighbours: their link-layer addresses, and when they cannot be reached.
//!
//! Frames that wait for a neighbour (`rewrite` finds that its hop is unknown) come free when it is told of. They go
//! through the stages again from `track` on, at the next batch or [`Pipeline::tend`](crate::Pipeline::tend). A flow that
//! one of them opened is there then: its packets are not tracked, and no limit is charged, a second time. Where nobody
//! tells, the sender is answered that the host is unreachable (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
//!
//! Interfaces are those of `tables`: a VLAN's neighbours are on the VLAN's interface.

use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

use crate::hop::{NO_HOP, Recycled, TooMany, Wanted};
use crate::shard::Shard;
use crate::stage::Step;
use crate::stage::parse::flag;
use crate::tables::{Address, Neighbour, Tables};
use crate::verdict::Reason;

impl Shard {
    /// A neighbour has this link-layer address. What waits for it comes free.
    ///
    /// # Errors
    /// It stays unknown: as many are known as there is room for.
    pub fn learn(
        &mut self,
        tables: &Tables,
        interface: PortId,
        address: Address,
        mac: Mac,
    ) -> Result<(), TooMany> {
        let wanted = Wanted { interface, address };
        let mut learnt = self.hops.learn(tables, wanted, mac);
        if learnt.is_err() && self.hops.recycle(&mut self.flows) == Recycled::Some {
            learnt = self.hops.learn(tables, wanted, mac);
        }
        learnt?;
        self.resume(wanted);
        Ok(())
    }

    /// A neighbour's link-layer address is not known any more. Packets to it wait from now on, those of flows too, and it
    /// is asked for.
    pub fn forget(&mut self, tables: &Tables, interface: PortId, address: Address) {
        self.hops.forget(tables, Wanted { interface, address });
    }

    /// A neighbour does not answer. Senders of what waits for it are told so.
    pub fn unreachable(&mut self, tables: &Tables, interface: PortId, address: Address) {
        self.forget(tables, interface, address);
        self.give_up(Wanted { interface, address });
    }

    /// The tables have been swapped: begins anew with theirs, and with these neighbours. All that waits comes free, as its
    /// way may be another. Flows must have been decided by other tables (another epoch), for hops have other numbers.
    ///
    /// # Errors
    /// Some stay unknown: there are more than there is room for.
    pub fn retell(&mut self, tables: &Tables, neighbours: &[Neighbour]) -> Result<(), TooMany> {
        self.resume_all();
        self.hops.rebuild(tables);
        neighbours.iter().try_for_each(|told| {
            self.hops.learn(tables, Wanted { interface: told.interface, address: told.address }, told.mac)
        })
    }

    /// Gives up neighbours that have been asked for too long. Looked for as often as flows that are idle: each eighth of a
    /// second.
    pub(crate) fn give_up_overdue(&mut self, now: Nanos) {
        while let Some(wanted) = self.hops.waiting.overdue(now) {
            self.give_up(wanted);
        }
    }

    /// All that waits comes free.
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
            Step::Answer(Reason::NeighbourUnknown).settle(&mut frame);
            self.released.push_back(frame);
        }
    }
}

/// Takes back all that was decided: of a frame that has waited only what `parse` found holds.
fn renew(frame: &mut Frame) {
    const FOUND: u16 =
        flag::GROUP | flag::DONT_FRAGMENT | flag::TO_GROUP | flag::QUERY | flag::ERROR | flag::OWN;
    let meta = &mut frame.meta;
    meta.flags = meta.flags & FOUND | flag::RESUMED | flag::WAITED;
    meta.flow = u32::MAX;
    meta.rule = u32::MAX;
    meta.hop = NO_HOP;
    meta.nat = 0;
    meta.class = 0;
    meta.fate = 0;
}
