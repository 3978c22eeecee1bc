//! Handoff of frames between workers: frames that one worker received and another owns ([`dataplane::handoff`]).
//!
//! Between any two workers there are two bounded channels each way: frames go there, and come back empty, since a frame
//! belongs to the pool that it is from. The receiver copies what it takes into a frame of its own. Nobody waits for
//! anybody: where a channel is full, or the receiver has no frame, the packet is dropped and counted. Order is kept from
//! each worker to each other.
//!
//! Tables are swapped by one worker after the other. So interfaces are named by the numbers that stay with their names,
//! and a frame from one that the receiver's tables do not have is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use dataplane::counter::Counters;
use dataplane::handoff::arrived;
use dataplane::tables::Tables;
use dataplane::verdict::Reason;
use wire::{Batch, Frame, Nanos, Pool};

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
    /// True if frames were handed off since the other worker was last woken.
    is_to_wake: bool,
}

/// Frame in handoff.
struct Parcel {
    frame: Frame,
    /// Number of the ingress interface.
    ingress: u32,
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
                exchanges[low].others.push(Other {
                    worker: high as u16,
                    given: to_high,
                    back: back_at_low,
                    taken: at_low,
                    empty: back_to_high,
                    sleeper: sleepers[high].clone(),
                    is_to_wake: false,
                });
                exchanges[high].others.push(Other {
                    worker: low as u16,
                    given: to_low,
                    back: back_at_high,
                    taken: at_high,
                    empty: back_to_low,
                    sleeper: sleepers[low].clone(),
                    is_to_wake: false,
                });
            }
        }
        exchanges
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
        match other.given.try_send(Parcel { frame, ingress }) {
            Ok(()) => {
                other.is_to_wake = true;
                Ok(())
            }
            Err(refused) => match refused {
                std::sync::mpsc::TrySendError::Full(parcel)
                | std::sync::mpsc::TrySendError::Disconnected(parcel) => Err(parcel.frame),
            },
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

    /// Takes frames handed off by others, as many as fit into the batch. Returns their number, including those that could
    /// not be taken.
    pub fn take(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        tables: &Tables,
        now: Nanos,
        counters: &mut Counters,
    ) -> usize {
        let mut found = 0;
        for step in 0..self.others.len() {
            let number = (self.turn + step) % self.others.len();
            let other = &mut self.others[number];
            while !batch.is_full() {
                let parcel = match other.taken.try_recv() {
                    Ok(parcel) => parcel,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                };
                found += 1;
                if let Err(reason) = copy(&parcel, batch, pool, tables, now) {
                    counters.count_not_taken(reason);
                }
                // Where there is no room to give it back it goes home by itself, in the end.
                drop(other.empty.try_send(parcel.frame));
            }
        }
        if !self.others.is_empty() {
            self.turn = (self.turn + 1) % self.others.len();
        }
        found
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

impl Sleeper {
    fn wake_if_asleep(&self) {
        // Behind what was given: see `falls_asleep`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wake_up.wake();
        }
    }
}

/// Puts a copy of what is in a parcel into the batch, which has room.
fn copy(
    parcel: &Parcel,
    batch: &mut Batch,
    pool: &mut Pool,
    tables: &Tables,
    now: Nanos,
) -> Result<(), Reason> {
    let ingress = tables.interface_numbered(parcel.ingress).ok_or(Reason::InterfaceGone)?;
    let mut frame = pool.take().ok_or(Reason::HandoffFull)?;
    if !frame.fill(parcel.frame.bytes()) {
        pool.put(frame);
        return Err(Reason::SlotTooSmall);
    }
    frame.meta = arrived(&parcel.frame.meta, ingress, now);
    batch.push(frame).map_err(|frame| {
        pool.put(frame);
        Reason::HandoffFull
    })
}

#[cfg(test)]
mod tests;
