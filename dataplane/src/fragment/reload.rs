//! Reload: the table takes other limits and conntrack zones, and datagrams under way go on.
//!
//! Given back are frames whose interface is gone, frames of a datagram for which there is no room any more, and frames
//! whose conntrack zone has no known successor. The work is bounded by the datagrams and frames held.

use tally::NoTally;
use wire::{Frame, Nanos};

use lookup::memory::MemoryError;
use policy::model::FragmentLimits;

use super::{Fragments, Held, List, MOST, Stage, Table, largest};
use crate::tables::Tables;
use crate::verdict::Reason;

/// Limits that will take the place of others.
pub(crate) struct FragmentsPlan {
    timeout: Nanos,
    limits: FragmentLimits,
    /// Memory for datagrams and frames, if their number or the conntrack zones change.
    renewed: Option<Renewed>,
}

struct Renewed {
    table: Table,
    held: Held,
}

impl FragmentsPlan {
    /// Prepares the limits; `seed` is the shard's. With `moved` conntrack zones the whole table is made anew.
    pub(crate) fn prepare(
        old: &Tables,
        new: &Tables,
        seed: [u64; 2],
        moved: Moved,
    ) -> Result<FragmentsPlan, MemoryError> {
        let (before, limits) = (&old.limits.fragments, &new.limits.fragments);
        let same = before.datagrams == limits.datagrams && before.held == limits.held;
        let renewed = if same && moved == Moved::None {
            None
        } else {
            Some(Renewed {
                table: Table::new(limits.datagrams.clamp(1, MOST), seed)?,
                held: Held::new(limits.held.min(MOST))?,
            })
        };
        Ok(FragmentsPlan { timeout: new.timeouts.fragment, limits: *limits, renewed })
    }
}

/// Renumbering of conntrack zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// No conntrack zone is renumbered.
    None,
    /// Some conntrack zones are renumbered.
    Some,
}

impl Fragments {
    /// Puts the limits in place. `keep` returns the reason why a held frame cannot go on, if any; `ct_zone` maps a
    /// former conntrack zone to the present one. Frames that cannot go on are given back with the reason.
    pub(crate) fn apply(
        &mut self,
        plan: &mut FragmentsPlan,
        mut keep: impl FnMut(&mut Frame) -> Result<(), Reason>,
        ct_zone: impl Fn(u16) -> Option<u16>,
        mut give: impl FnMut(Frame, Reason),
    ) {
        while let Some((frame, reason)) = self.held.give() {
            give(frame, reason);
        }
        (self.timeout, self.largest) = (plan.timeout, largest(&plan.limits));
        self.shares.set(&plan.limits);
        let Some(Renewed { table, held }) = &mut plan.renewed else {
            self.sift(&mut keep, &mut give);
            self.recount();
            return;
        };
        std::mem::swap(&mut self.table, table);
        std::mem::swap(&mut self.held, held);
        let places: Vec<u32> = table.places().collect();
        for at in places {
            let mut key = table.key(at);
            let before = table.get_mut(at);
            let mut frames = std::mem::replace(&mut before.held, List::EMPTY);
            let to = ct_zone(key.ct_zone).and_then(|ct_zone| {
                key.ct_zone = ct_zone;
                // Two may have become one: the older goes on.
                let is_new = self.table.search(&key, &mut NoTally).is_none();
                let owner = self.owner(&key);
                is_new.then(|| self.table.make(&key, owner, before.deadline, &mut NoTally)).flatten()
            });
            if let Some(to) = to {
                self.table.get_mut(to).go_on_as(before);
            }
            while let Some(mut frame) = held.pop(&mut frames) {
                let Some(to) = to else {
                    give(frame, Reason::FragmentTableFull);
                    continue;
                };
                if let Err(reason) = keep(&mut frame) {
                    give(frame, reason);
                    continue;
                }
                let datagram = self.table.get_mut(to);
                match self.held.push(&mut datagram.held, frame) {
                    Ok(()) => datagram.waiting += 1,
                    Err(frame) => give(frame, Reason::FragmentTableFull),
                }
            }
        }
        self.recount();
    }

    /// Counts anew the datagrams and frames of every owner, even beyond a share.
    fn recount(&mut self) {
        self.shares.clear();
        let places: Vec<u32> = self.table.places().collect();
        for at in places {
            let datagram = self.table.get(at);
            self.shares.begin(datagram.owner);
            (0..datagram.waiting).for_each(|_| self.shares.wait(datagram.owner));
        }
    }

    /// Takes out frames that cannot go on.
    fn sift(
        &mut self,
        keep: &mut impl FnMut(&mut Frame) -> Result<(), Reason>,
        give: &mut impl FnMut(Frame, Reason),
    ) {
        if self.held.count() == 0 {
            return;
        }
        let places: Vec<u32> = self.table.places().collect();
        for at in places {
            let datagram = self.table.get_mut(at);
            debug_assert!(datagram.held.is_empty() || datagram.stage == Stage::Waits);
            let mut frames = std::mem::replace(&mut datagram.held, List::EMPTY);
            datagram.waiting = 0;
            while let Some(mut frame) = self.held.pop(&mut frames) {
                if let Err(reason) = keep(&mut frame) {
                    give(frame, reason);
                    continue;
                }
                match self.held.push(&mut datagram.held, frame) {
                    Ok(()) => datagram.waiting += 1,
                    // A place has just become free.
                    Err(frame) => give(frame, Reason::FragmentTableFull),
                }
            }
        }
    }
}
