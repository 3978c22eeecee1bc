//! What hangs on one interface: the port's queue of this worker, and the way to Linux's own stack.

use dataplane::shard::Fifo;
use ports::{Line, Statistics};
use serde::Serialize;
use wire::vlan::Tags;
use wire::{Batch, Frame, Pool, PortError, Received};

/// The live ends of an interface, for one worker.
#[derive(Default)]
pub struct Attachment {
    /// The port's queue; none for a VLAN, whose frames go by its parent's.
    pub line: Option<Box<dyn Line>>,
    /// What is delivered to Linux, and what Linux sends.
    pub punt: Option<Box<dyn Line>>,
}

/// An interface, as a worker has it.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) ends: Attachment,
    /// Frames that the port did not take yet.
    out: Batch,
    /// Frames that Linux did not take yet.
    in_: Batch,
    counts: LinkCounts,
    failed: Option<PortError>,
}

/// What one worker has seen of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Frames received by the port.
    pub received: u64,
    /// Frames sent by the port.
    pub sent: u64,
    /// Frames that were to be sent while there was no port.
    pub unsent: u64,
    /// Frames given to Linux.
    pub delivered: u64,
    /// Frames that Linux did not take.
    pub undelivered: u64,
    /// Frames that Linux sent.
    pub originated: u64,
}

/// An interface in a report.
#[derive(Clone, Debug, Default)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Frames that came and went.
    pub counts: LinkCounts,
    /// What the port's driver counts; none while there is no port.
    pub driver: Option<Statistics>,
}

impl Link {
    pub(super) fn new(name: &str) -> Link {
        Link {
            name: name.to_owned(),
            ends: Attachment::default(),
            out: Batch::new(),
            in_: Batch::new(),
            counts: LinkCounts::default(),
            failed: None,
        }
    }

    pub(super) fn report(&mut self) -> LinkReport {
        let driver = self.ends.line.as_mut().map(|line| line.statistics());
        LinkReport { name: self.name.clone(), counts: self.counts, driver }
    }

    /// Receives by the port, and says how many frames came.
    pub(super) fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(line) = &mut self.ends.line else { return 0 };
        match line.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.received += count as u64;
                count
            }
            Ok(Received::Nothing | Received::End) => 0,
            Err(error) => {
                self.lose(error, pool);
                0
            }
        }
    }

    /// Receives what Linux sends by the interface.
    pub(super) fn receive_punted(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(punt) = &mut self.ends.punt else { return 0 };
        match punt.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.originated += count as u64;
                count
            }
            Ok(Received::Nothing | Received::End) => 0,
            Err(_) => {
                // It goes with its interface, whose port will say so.
                self.ends.punt = None;
                0
            }
        }
    }

    /// What the port failed with since this was last asked.
    pub(super) fn failure(&mut self) -> Option<PortError> {
        self.failed.take()
    }

    /// Gives a frame to Linux as received by this interface, without the tags that told its VLAN.
    pub(super) fn punt(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
        let extra = 4 * tags.as_slice().len();
        if extra > 0 && frame.len() >= 12 + extra {
            frame.bytes_mut().copy_within(..12, extra);
            frame.pull_front(extra);
        }
        if self.ends.punt.is_none() {
            self.counts.undelivered += 1;
            return pool.put(frame);
        }
        if self.in_.is_full() {
            self.flush(pool);
        }
        if let Err(frame) = self.in_.push(frame) {
            self.counts.undelivered += 1;
            pool.put(frame);
        }
    }

    /// Sends a frame as Linux made it, with the tags of the VLAN that it is for.
    pub(super) fn send_as_is(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
        let extra = 4 * tags.as_slice().len();
        if extra > 0 && frame.push_front(extra).is_some() {
            let bytes = frame.bytes_mut();
            bytes.copy_within(extra..extra + 12, 0);
            for (tag, at) in tags.as_slice().iter().zip((12..).step_by(4)) {
                bytes[at..at + 2].copy_from_slice(&tag.tpid.0.to_be_bytes());
                bytes[at + 2..at + 4].copy_from_slice(&tag.tci.to_be_bytes());
            }
        }
        if self.out.is_full() {
            self.flush(pool);
        }
        if let Err(frame) = self.out.push(frame) {
            self.counts.unsent += 1;
            pool.put(frame);
        }
    }

    /// Sends what waits in a queue, as far as the port takes it.
    pub(super) fn send(&mut self, queue: &mut Fifo, pool: &mut Pool) -> usize {
        let mut sent = 0;
        while !queue.is_empty() {
            while !self.out.is_full() {
                let Some(frame) = queue.pop() else { break };
                if let Err(frame) = self.out.push(frame) {
                    pool.put(frame);
                }
            }
            sent += self.transmit(pool);
            if !self.out.is_empty() {
                break;
            }
        }
        sent
    }

    /// Sends what could not be sent before, and gives Linux what is for it.
    pub(super) fn flush(&mut self, pool: &mut Pool) -> usize {
        let mut moved = self.transmit(pool);
        if let Some(punt) = self.ends.punt.as_mut().filter(|_| !self.in_.is_empty()) {
            let waiting = self.in_.len();
            let _ = punt.transmit(&mut self.in_, pool);
            let taken = waiting - self.in_.len();
            self.counts.delivered += taken as u64;
            moved += taken;
            // Linux's queue is full: what it cannot take now it would have dropped as well.
            self.counts.undelivered += self.in_.len() as u64;
        }
        while let Some(frame) = self.in_.pop() {
            pool.put(frame);
        }
        moved
    }

    fn transmit(&mut self, pool: &mut Pool) -> usize {
        if self.out.is_empty() {
            return 0;
        }
        let waiting = self.out.len();
        let failed = match &mut self.ends.line {
            Some(line) => line.transmit(&mut self.out, pool).err(),
            None => {
                self.discard(pool);
                return 0;
            }
        };
        let sent = waiting - self.out.len();
        self.counts.sent += sent as u64;
        if let Some(error) = failed {
            self.lose(error, pool);
        }
        sent
    }

    /// The port is gone.
    fn lose(&mut self, error: PortError, pool: &mut Pool) {
        self.ends.line = None;
        self.failed = Some(error);
        self.discard(pool);
    }

    /// Hangs other ends there. What the old ones did not take is gone.
    pub(super) fn attach(&mut self, ends: Attachment, pool: &mut Pool) {
        self.ends = ends;
        self.discard(pool);
    }

    fn discard(&mut self, pool: &mut Pool) {
        self.counts.unsent += self.out.len() as u64;
        while let Some(frame) = self.out.pop() {
            pool.put(frame);
        }
    }
}
