//! Frames of several buffers: AF_XDP takes no buffer beyond a page, so that longer frames come and go as several
//! ([multi-buffer](https://docs.kernel.org/networking/af_xdp.html#multi-buffer-support), Linux 6.6). They are copied between buffers of the
//! line's own and slots of the worker's pool, where a frame lies in one piece.

use wire::{Batch, Frame, HEADROOM, Pool, PoolError, PoolMemory};

use super::PAGE;
use crate::sys::xsk::{Part, Piece, Queue};

/// Bytes of a frame that a buffer has.
const BUFFER_BYTES: usize = PAGE - HEADROOM;

/// Buffers of a line, and the frames that have come in part.
pub(super) struct Staging {
    buffers: Pool,
    /// Most buffers of a frame that is sent.
    most_parts: usize,
    /// Frame in the making, for each queue.
    partial: Box<[Option<Partial>]>,
}

/// Frame some of whose buffers have come.
struct Partial {
    frame: Frame,
    room: Room,
}

/// Room for a frame's buffers in a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    TooLittle,
}

/// Number of frames received.
#[derive(Default)]
pub(super) struct Staged {
    /// Frames appended to the batch.
    pub(super) frames: usize,
    /// Frames dropped, as no slot has room for them.
    pub(super) too_long: usize,
}

impl Staging {
    /// Buffers for `queues` queues, each with rings of `size` entries, and frames of up to `longest` bytes.
    pub(super) fn new(queues: usize, size: u32, longest: usize) -> Result<Staging, PoolError> {
        let most_parts = longest.div_ceil(BUFFER_BYTES);
        // Sent ones are away for as long as the device takes, behind the ring.
        let count = (queues as u32).saturating_mul(size).saturating_add(2 * size);
        let mut buffers = Pool::new(count, PAGE)?;
        buffers.prefault();
        Ok(Staging { buffers, most_parts, partial: (0..queues).map(|_| None).collect() })
    }

    /// Memory of the buffers, for the sockets.
    pub(super) fn memory(&self) -> PoolMemory {
        self.buffers.memory()
    }

    /// Lends a queue buffers to fill.
    #[inline]
    pub(super) fn refill(&mut self, queue: &mut Queue) {
        queue.refill(&mut self.buffers);
    }

    /// Takes buffers back that were sent.
    #[inline]
    pub(super) fn reclaim(&mut self, queue: &mut Queue) {
        queue.reclaim(&mut self.buffers);
    }

    /// Appends the frames that have come by a queue, by its place among the line's, to the batch. They wait in the ring while the pool has no slot.
    pub(super) fn receive(
        &mut self,
        place: usize,
        queue: &mut Queue,
        batch: &mut Batch,
        pool: &mut Pool,
    ) -> Staged {
        let mut staged = Staged::default();
        let Some(partial) = self.partial.get_mut(place) else { return staged };
        while !batch.is_full() {
            let begun = partial.take().or_else(|| Some(Partial { frame: pool.take()?, room: Room::Enough }));
            let Some(mut begun) = begun else { break };
            let Some(Piece { buffer, part }) = queue.receive_piece() else {
                if begun.is_empty() {
                    pool.put(begun.frame);
                } else {
                    *partial = Some(begun);
                }
                break;
            };
            begun.append(buffer.bytes());
            self.buffers.put(buffer);
            match (part, begun.room) {
                (Part::Continued, _) => *partial = Some(begun),
                (Part::Last, Room::TooLittle) => {
                    staged.too_long += 1;
                    pool.put(begun.frame);
                }
                (Part::Last, Room::Enough) => staged.frames += usize::from(batch.push(begun.frame).is_ok()),
            }
        }
        queue.release_received();
        staged
    }

    /// Number of frames that can be sent by a queue now, whatever their length.
    #[inline]
    pub(super) fn room(&self, queue: &mut Queue, wanted: u32) -> u32 {
        let most = self.most_parts as u32;
        queue.room(wanted.saturating_mul(most)).min(self.buffers.available() as u32) / most
    }

    /// Puts a copy of a frame into the transmit ring of a queue, all of it or nothing. False without [room](Staging::room).
    #[inline]
    pub(super) fn send(&mut self, queue: &mut Queue, frame: &[u8]) -> bool {
        let parts = frame.len().div_ceil(BUFFER_BYTES);
        if (queue.room(parts as u32) as usize).min(self.buffers.available()) < parts {
            return false;
        }
        for (number, bytes) in (1..).zip(frame.chunks(BUFFER_BYTES)) {
            let part = if number < parts { Part::Continued } else { Part::Last };
            let Some(mut buffer) = self.buffers.take() else { return false };
            if !buffer.fill(bytes) {
                self.buffers.put(buffer);
                return false;
            }
            if let Err(buffer) = queue.send(buffer, part) {
                self.buffers.put(buffer);
                return false;
            }
        }
        true
    }
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.frame.len() == 0 && self.room == Room::Enough
    }

    /// Appends the bytes of the frame's next buffer, if the slot has room for them.
    fn append(&mut self, bytes: &[u8]) {
        if self.room == Room::TooLittle {
            return;
        }
        let is_first = self.frame.len() == 0;
        let written = match if is_first {
            self.frame.prepare(bytes.len())
        } else {
            self.frame.push_back(bytes.len())
        } {
            Some(place) => {
                place.copy_from_slice(bytes);
                Room::Enough
            }
            None => Room::TooLittle,
        };
        self.room = written;
    }
}
