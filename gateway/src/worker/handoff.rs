//! Handoff of frames between workers: frames that one worker received and another owns, and those whose tree of queues another
//! serves ([`dataplane::handoff`]).
//!
//! Between any two workers there are two bounded channels each way: frames go there, and come back empty, since a frame
//! belongs to the pool that it is from. The receiver copies what it takes into a frame of its own. Nobody waits for
//! anybody: where a channel is full, or the receiver has no frame, the packet is dropped and counted. Order is kept from
//! each worker to each other.
//!
//! Tables are swapped by one worker after the other. So interfaces are named by the numbers that stay with their names,
//! and a frame from one that the receiver's tables do not have is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use dataplane::Shard;
use dataplane::egress::{Ends, Handoff};
use dataplane::handoff::{arrived, decided};
use dataplane::recorder::NOWHERE;
use dataplane::tables::{LOCAL, Tables};
use dataplane::verdict::Reason;
use wire::{BATCH, Batch, Frame, Meta, Nanos, Pool, PortId};

use super::capture::Mark;
use super::command::WakeUp;

/// One worker's ends of its channels.
pub struct Exchange {
    others: Vec<Other>,
    own: Arc<Sleeper>,
    /// The other worker that is looked at first.
    turn: usize,
}

/// The channels between this worker and another one.
struct Other {
    worker: u16,
    given: SyncSender<Parcel>,
    back: Receiver<Frame>,
    taken: Receiver<Parcel>,
    empty: SyncSender<Frame>,
    sleeper: Arc<Sleeper>,
    /// Frames given to the other worker and taken from it, and how many of these each has sent on.
    counts: Counts,
    /// True if frames were handed off since the other worker was last woken.
    is_to_wake: bool,
}

/// Numbers of frames between two workers.
struct Counts {
    given: u64,
    /// Frames given up to the last mark.
    marked: u64,
    /// Frames given that the other worker has sent on.
    done: Arc<AtomicU64>,
    taken: u64,
    /// Frames taken that this worker has sent on.
    done_here: Arc<AtomicU64>,
}

/// Frame in handoff.
struct Parcel {
    frame: Frame,
    /// Number of the ingress interface.
    ingress: u32,
    /// Queue that the frame is for; none of a frame that nothing has been decided about.
    queue: Option<ForQueue>,
}

/// Packet for the queues that the receiver serves.
struct ForQueue {
    /// Number of the interface whose tree of incoming packets the packet enters; [`LOCAL`](dataplane::tables::LOCAL)'s where it enters none.
    from: u32,
    /// Number of the egress interface.
    egress: u32,
    ends: Ends,
    /// Epoch of the tables that decided.
    epoch: u16,
    mark: Mark,
}

/// Destination of frames handed off by others.
pub(super) struct Intake<'a> {
    /// Batch for frames to run.
    pub(super) batch: &'a mut Batch,
    pub(super) pool: &'a mut Pool,
    pub(super) tables: &'a Tables,
    pub(super) shard: &'a mut Shard,
    /// Marks of captures on packets that were queued, with their slots.
    pub(super) marks: &'a mut Vec<(u32, Mark)>,
    pub(super) now: Nanos,
}

/// A worker that is woken, if it sleeps.
struct Sleeper {
    asleep: AtomicBool,
    wake_up: WakeUp,
}

/// Frames that may be on their way from one of so many workers to one other: fewer the more others there are, since each
/// has memory for all of its own that are under way.
pub(crate) fn depth(workers: usize) -> usize {
    let others = workers.saturating_sub(1).max(1);
    (4_096 / others).clamp(256, 2_048)
}

impl Exchange {
    /// The ends of all workers, whose wake-ups these are.
    pub fn between(wake_ups: &[WakeUp]) -> Vec<Exchange> {
        let depth = depth(wake_ups.len());
        let sleepers: Vec<Arc<Sleeper>> = wake_ups
            .iter()
            .map(|wake_up| Arc::new(Sleeper { asleep: AtomicBool::new(false), wake_up: wake_up.clone() }))
            .collect();
        let mut exchanges: Vec<Exchange> =
            sleepers.iter().map(|own| Exchange { others: Vec::new(), own: own.clone(), turn: 0 }).collect();
        for high in 0..wake_ups.len() {
            for low in 0..high {
                let ((to_low, at_low), (to_high, at_high)) = (sync_channel(depth), sync_channel(depth));
                let ((back_to_low, back_at_low), (back_to_high, back_at_high)) =
                    (sync_channel(depth), sync_channel(depth));
                let [at_high_done, at_low_done] = [(); 2].map(|()| Arc::<AtomicU64>::default());
                exchanges[low].others.push(Other {
                    worker: high as u16,
                    given: to_high,
                    back: back_at_low,
                    taken: at_low,
                    empty: back_to_high,
                    sleeper: sleepers[high].clone(),
                    counts: Counts::new(&at_high_done, &at_low_done),
                    is_to_wake: false,
                });
                exchanges[high].others.push(Other {
                    worker: low as u16,
                    given: to_low,
                    back: back_at_high,
                    taken: at_high,
                    empty: back_to_low,
                    sleeper: sleepers[low].clone(),
                    counts: Counts::new(&at_low_done, &at_high_done),
                    is_to_wake: false,
                });
            }
        }
        exchanges
    }

    /// Largest number of frames that may be on their way to this worker.
    pub(super) fn capacity(&self) -> usize {
        self.others.len() * depth(self.others.len() + 1)
    }

    /// Gives a frame to another worker.
    ///
    /// # Errors
    /// Worker gone, or channel full: returns the frame.
    pub fn give(&mut self, frame: Frame, worker: u16, tables: &Tables) -> Result<(), Frame> {
        let Some(other) = self.others.iter_mut().find(|other| other.worker == worker) else {
            return Err(frame);
        };
        let ingress = tables.number_of(frame.meta.ingress);
        match other.give(Parcel { frame, ingress, queue: None }) {
            None => Ok(()),
            Some(refused) => Err(refused.frame),
        }
    }

    /// Gives a packet to the worker that serves its queues; captures know it by `mark`.
    ///
    /// # Errors
    /// Worker gone, or channel full: returns the packet.
    pub(super) fn give_to_queue(
        &mut self,
        packet: Handoff,
        tables: &Tables,
        mark: Mark,
    ) -> Result<(), Handoff> {
        let Some(other) = self.others.iter_mut().find(|other| other.worker == packet.worker) else {
            return Err(packet);
        };
        let Handoff { frame, ends, ingress, worker } = packet;
        let (from, egress) = (tables.number_of(ingress), tables.number_of(frame.meta.egress));
        let queue = Some(ForQueue { from, egress, ends, epoch: tables.epoch, mark });
        let parcel = Parcel { ingress: tables.number_of(frame.meta.ingress), frame, queue };
        match other.give(parcel) {
            None => Ok(()),
            Some(refused) => Err(Handoff { frame: refused.frame, ends, ingress, worker }),
        }
    }

    /// Wakes sleeping workers that frames were handed off to.
    pub fn wake(&mut self) {
        for other in self.others.iter_mut().filter(|other| other.is_to_wake) {
            other.is_to_wake = false;
            other.sleeper.wake_if_asleep();
        }
    }

    /// Takes frames that came back to the pool.
    pub fn collect(&mut self, pool: &mut Pool) {
        for other in &mut self.others {
            while let Ok(frame) = other.back.try_recv() {
                pool.put(frame);
            }
        }
    }

    /// Takes frames handed off by others, as many as fit into the batch, and as many that are queued at once. Returns their number,
    /// including those that could not be taken.
    pub(super) fn take(&mut self, mut intake: Intake<'_>) -> usize {
        let (mut found, mut queued) = (0, 0);
        for step in 0..self.others.len() {
            let number = (self.turn + step) % self.others.len();
            let other = &mut self.others[number];
            while !intake.batch.is_full() && queued < BATCH {
                let parcel = match other.taken.try_recv() {
                    Ok(parcel) => parcel,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                };
                found += 1;
                other.counts.taken += 1;
                let Parcel { mut frame, ingress, queue } = parcel;
                match queue {
                    None => intake.run(&mut frame, ingress),
                    Some(queue) => {
                        queued += 1;
                        intake.queue(&mut frame, ingress, queue);
                    }
                }
                // Where there is no room to give it back it goes home by itself, in the end.
                drop(other.empty.try_send(frame));
            }
        }
        if !self.others.is_empty() {
            self.turn = (self.turn + 1) % self.others.len();
        }
        found
    }

    /// Tells the other workers that all frames taken so far have been sent on, or dropped.
    pub(super) fn sent_on(&self) {
        for counts in self.others.iter().map(|other| &other.counts) {
            if counts.done_here.load(Ordering::Relaxed) != counts.taken {
                counts.done_here.store(counts.taken, Ordering::Release);
            }
        }
    }

    /// Marks the frames handed off so far.
    pub(super) fn mark(&mut self) {
        self.others.iter_mut().for_each(|other| other.counts.marked = other.counts.given);
    }

    /// True if a frame that was handed off before the last mark has not been sent on yet.
    pub(super) fn is_underway(&self) -> bool {
        self.others.iter().any(|other| other.counts.done.load(Ordering::Acquire) < other.counts.marked)
    }

    /// Marks this worker as asleep: a handoff from now on wakes it. The worker must look once more before it sleeps.
    pub fn falls_asleep(&self) {
        self.own.asleep.store(true, Ordering::SeqCst);
        // What was given before this is found by the look that follows; who gives after it sees that this worker sleeps.
        fence(Ordering::SeqCst);
    }

    /// Marks this worker as awake.
    pub fn is_awake(&self) {
        self.own.asleep.store(false, Ordering::Relaxed);
    }
}

impl Counts {
    fn new(done: &Arc<AtomicU64>, done_here: &Arc<AtomicU64>) -> Counts {
        Counts { given: 0, marked: 0, done: done.clone(), taken: 0, done_here: done_here.clone() }
    }
}

impl Other {
    /// Sends a parcel; returns one that is refused.
    fn give(&mut self, parcel: Parcel) -> Option<Parcel> {
        match self.given.try_send(parcel) {
            Ok(()) => {
                self.is_to_wake = true;
                self.counts.given += 1;
                None
            }
            Err(TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) => Some(parcel),
        }
    }
}

impl Sleeper {
    fn wake_if_asleep(&self) {
        // Behind what was given: see `falls_asleep`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wake_up.wake();
        }
    }
}

impl Intake<'_> {
    /// Puts a copy of a frame into the batch, which has room.
    fn run(&mut self, given: &mut Frame, ingress: u32) {
        let copied = self.copy(given, ingress).and_then(|(mut frame, ingress)| {
            frame.meta = arrived(&given.meta, ingress, self.now);
            if ingress == LOCAL {
                // Its VRF.
                frame.meta.egress = self.tables.interface_numbered(frame.meta.number).unwrap_or(LOCAL);
            }
            self.batch.push(frame).map_err(|frame| {
                self.pool.put(frame);
                Reason::HandoffFull
            })
        });
        if let Err(reason) = copied {
            given.meta.ingress = self.tables.interface_numbered(ingress).unwrap_or(NOWHERE);
            self.shard.count_not_taken(given, reason);
        }
    }

    /// Queues a copy of a packet. One that cannot be queued is counted.
    fn queue(&mut self, given: &mut Frame, ingress: u32, queue: ForQueue) {
        let ForQueue { from, egress, ends, epoch, mark } = queue;
        let places = self.tables.interface_numbered(from).zip(self.tables.interface_numbered(egress));
        let copied = match places {
            Some((from, egress)) => {
                self.copy(given, ingress).map(|(frame, ingress)| (frame, ingress, from, egress))
            }
            None => Err(Reason::InterfaceGone),
        };
        let (mut frame, ingress, from, egress) = match copied {
            Ok(copied) => copied,
            Err(reason) => {
                let meta = &mut given.meta;
                meta.ingress = self.tables.interface_numbered(ingress).unwrap_or(NOWHERE);
                meta.egress = self.tables.interface_numbered(egress).unwrap_or(NOWHERE);
                if epoch != self.tables.epoch {
                    (meta.rule, meta.nat, meta.class) = (Meta::NO_RULE, 0, 0);
                }
                return self.shard.count_handoff_lost(given, reason);
            }
        };
        frame.meta = decided(&given.meta, ingress, egress);
        if mark != Mark::NONE {
            self.marks.push((frame.slot(), mark));
        }
        if let Err(frame) = self.shard.take_handed_off(frame, from, ends, epoch) {
            self.pool.put(frame);
        }
    }

    /// Copies a frame into one of this worker's. Returns the copy and the place of the ingress interface.
    fn copy(&mut self, given: &Frame, ingress: u32) -> Result<(Frame, PortId), Reason> {
        let ingress = self.tables.interface_numbered(ingress).ok_or(Reason::InterfaceGone)?;
        let mut frame = self.pool.take().ok_or(Reason::HandoffFull)?;
        if !frame.fill(given.bytes()) {
            self.pool.put(frame);
            return Err(Reason::SlotTooSmall);
        }
        Ok((frame, ingress))
    }
}

#[cfg(test)]
mod tests;
