//! Queues and links of ports: they go on where the port does.

use tally::Region;
use wire::{Frame, PortId};

use super::{Applying, Part, Plan, Reload};
use crate::egress::Egress;
use crate::recorder::NOWHERE;
use crate::shard::{Shard, ShardError};
use crate::tables::{LOCAL, Tables};
use crate::verdict::Reason;

/// Queue and link of each port.
pub(super) struct Queues;

impl Part for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let egress = Egress::new(reload.new, reload.setup.share, reload.setup.seed);
        Ok(Box::new(egress.map_err(ShardError::Memory)?))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.egress.memory_bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::Queue, shard.egress.tallied_bytes())]
    }
}

impl Plan for Egress {
    /// Keeps the queued frames, even if the queue is shorter now; drops frames queued for a port that is gone.
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        let Applying { tables, renumbering, now, ended, .. } = reload;
        // What was a port and is a VLAN of another now has a queue no more.
        let is_port = |place| tables.interface(place).is_some_and(|interface| interface.root == place);
        let was = |place: PortId| renumbering.interfaces_were.get(usize::from(place.0)).copied().flatten();
        self.continue_from(
            &mut shard.egress,
            *now,
            |place| was(place).filter(|_| is_port(place)).map(PortId),
            |frame, place| renumbering.send_on(&mut frame.meta, place),
        );
        let renumber = |frame: &mut Frame| {
            let port = renumbering.interfaces_become.get(usize::from(frame.meta.egress.0)).copied().flatten();
            renumbering.send_on(&mut frame.meta, port.map_or(LOCAL, PortId));
            port.map(PortId)
        };
        self.continue_incoming(&mut shard.egress, *now, |place| was(place).map(PortId), renumber);
        self.continue_handoffs(&mut shard.egress, renumber);
        std::mem::swap(&mut shard.egress, self);
        for mut frame in self.drain() {
            // Of a tree of incoming packets, or of those to hand off: by the names of the new tables already.
            let is_renumbered = frame.meta.egress == LOCAL;
            let is_part = frame.meta.fate == 0;
            shard.counters.count_lost(&mut frame, Reason::InterfaceGone);
            // The record goes by the names of the old tables still.
            match (is_part, is_renumbered) {
                (true, _) => {}
                (false, false) => shard.recorder.note_dropped(&frame, *now),
                (false, true) => {
                    shard.recorder.note_refused(frame.bytes(), NOWHERE, *now, Reason::InterfaceGone);
                }
            }
            if !is_renumbered {
                renumbering.send_on(&mut frame.meta, LOCAL);
            }
            ended.push(frame);
        }
    }
}
