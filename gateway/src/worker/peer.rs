//! Frames that the second gateway hands over, and those that are handed over to it.

use dataplane::peer::Handover;
use wire::Nanos;

use super::Worker;
use super::processing::Processing;
use crate::peer::{Buffer, Intake, PeerLink};

/// A worker's end of the link.
pub(super) struct PeerEnd {
    pub(super) link: PeerLink,
    /// Memory for datagrams; of the worker that receives them.
    buffer: Option<Buffer>,
}

impl PeerEnd {
    /// The end of the worker of that number. The first one receives, as each look for frames is a question to the kernel, and hands off what is others'.
    pub(super) fn new(link: PeerLink, worker: usize) -> PeerEnd {
        PeerEnd { link, buffer: (worker == 0).then(Buffer::new) }
    }

    /// True if this worker receives.
    pub(super) fn receives(&self) -> bool {
        self.buffer.is_some()
    }
}

impl Worker {
    /// Switches to another link, or to none.
    pub(super) fn follow_peer(&mut self, link: Option<PeerLink>) {
        self.peer = link.map(|link| PeerEnd::new(link, self.number));
        self.processing.shard.handover = Handover::None;
    }

    /// Processes frames that the second gateway has handed over, and reads what is handed over to it until the next turn. Returns the
    /// number of datagrams.
    #[inline(always)]
    pub(super) fn take_handed_over(&mut self, now: Nanos) -> usize {
        if self.peer.is_none() { 0 } else { self.take_from_peer(now) }
    }

    #[inline(never)]
    fn take_from_peer(&mut self, now: Nanos) -> usize {
        let Some(PeerEnd { link, buffer }) = &mut self.peer else { return 0 };
        let Processing { batch, pool, tables, shard, .. } = &mut self.processing;
        shard.handover = link.handover();
        let Some(buffer) = buffer else { return 0 };
        let found = link.receive(&mut Intake::new(batch, pool, tables, buffer, now));
        if !self.processing.batch.is_empty() {
            self.processing.run_handed_over(now);
            self.settle();
        }
        found
    }
}
