//! Linked lists of segments, in which a unit keeps frames: a queue of each flow, and the free list.
//!
//! A segment that comes is the first of the free list, whose next pointer is then read; the queue's ends are read, the segment is linked
//! behind the last one of the queue, if there is one, and the ends are written. A segment that goes is the first of its queue, whose next
//! pointer is read if another one follows; the ends are written, and the segment is linked before the free list. The unit itself keeps the
//! head of the free list.
//!
//! Simplification: segments are numbered in the order in which frames come, round all that there are, and a frame keeps those that it has.
//! Numbers only decide on channel and bank.

use tally::Region;

use super::memory::Purpose;
use super::pending::Whose;
use super::script::{Command, Move, WRITES, Writer};
use super::{Machine, Ring};
use crate::description::{Chip, FrameAccess, Lists};
use crate::kernel::Ticks;
use crate::load::Job;
use crate::trace::{Access, Wait};

/// Linked lists that a ring's frames are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked {
    /// The unit that keeps them.
    pub(super) unit: usize,
    /// The memory of pointers.
    memory: u16,
    /// Bytes of a segment.
    segment: u32,
    segments: u32,
    queues: u32,
    /// Frames in them are those that leave; else those that came.
    holds_outputs: bool,
}

/// Direction of a segment: into a queue, or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Enqueue,
    Dequeue,
}

/// Segments of frames in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    bytes: u32,
    count: u32,
    /// The segment that the next frame begins with.
    next: u32,
}

impl Linked {
    /// The lists of the unit of that name; `None` if the chip does not have it, or their memory.
    pub(super) fn new(chip: &Chip, unit: &str, holds_outputs: bool) -> Option<Linked> {
        let unit = chip.units.iter().position(|of| of.name == unit)?;
        let Lists { segment, segments, queues, pointers } = chip.units[unit].lists.as_ref()?;
        let memory = chip.memories.iter().position(|memory| memory.name == *pointers)? as u16;
        let segment = u32::try_from(segment.0).unwrap_or(u32::MAX).max(1);
        Some(Linked { unit, memory, segment, segments: *segments, queues: *queues, holds_outputs })
    }

    pub(super) fn segments(&self) -> Segments {
        Segments { bytes: self.segment, count: self.segments, next: 0 }
    }

    /// The queue in which a ring has the frames of a flow.
    fn queue(&self, ring: usize, flow: u32) -> u32 {
        flow.wrapping_add((ring as u32).wrapping_mul(0x9e37_79b1)) % self.queues
    }

    fn command(&self, access: Access, address: u64, bytes: u32) -> Command {
        Command { memory: self.memory, access, address, bytes, purpose: Purpose::List }
    }

    fn next(&self, access: Access, segment: u32) -> Command {
        let address = u64::from(segment % self.segments) * u64::from(Lists::NEXT);
        self.command(access, address, Lists::NEXT)
    }

    fn ends(&self, access: Access, queue: u32) -> Command {
        let behind = u64::from(self.segments) * u64::from(Lists::NEXT);
        self.command(access, behind + u64::from(queue) * u64::from(Lists::ENDS), Lists::ENDS)
    }
}

impl Segments {
    /// Gives a frame of so many bytes its segments, and returns the first.
    pub(super) fn give(&mut self, bytes: u32) -> u32 {
        let first = self.next;
        self.next = (first + bytes.max(1).div_ceil(self.bytes)) % self.count;
        first
    }

    /// Offset of a segment in its memory.
    pub(super) fn offset(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.bytes)
    }
}

impl Writer<'_> {
    /// The segments of a frame into the lists of the ring, or out of them. Frames move along where they pass through whoever puts or gets
    /// them.
    pub(super) fn link_frame(
        &mut self,
        number: u16,
        ring: &Ring,
        job: &Job,
        link: Link,
        frames: FrameAccess,
    ) {
        let Some(linked) = ring.linked else { return };
        let all: &mut dyn Iterator<Item = u32> = match linked.holds_outputs {
            true => &mut job.outputs.iter().map(|output| output.length.bytes),
            false => &mut std::iter::once(job.length.bytes),
        };
        let mut at = 0;
        for bytes in all {
            self.link_bytes(number, linked, link, (at, bytes), frames);
            at += u64::from(bytes.max(1).next_multiple_of(linked.segment));
        }
        self.moves.push(Move::Settle);
    }

    /// The segments that begin in a part of a frame, out of the lists of the ring: who sends the part moves it.
    pub(super) fn link_part(&mut self, number: u16, ring: &Ring, at: u64, bytes: u32) {
        let Some(linked) = ring.linked else { return };
        let segment = u64::from(linked.segment);
        let first = at.div_ceil(segment) * segment;
        let end = at + u64::from(bytes);
        if first < end {
            let part = (first, (end - first) as u32);
            self.link_bytes(number, linked, Link::Dequeue, part, FrameAccess::Memory);
            self.moves.push(Move::Settle);
        }
    }

    fn link_bytes(
        &mut self,
        ring: u16,
        linked: Linked,
        link: Link,
        (at, bytes): (u64, u32),
        frames: FrameAccess,
    ) {
        let access = if link == Link::Enqueue { Access::Write } else { Access::Read };
        for first in (0..bytes.max(1)).step_by(linked.segment as usize) {
            let held = (bytes - first.min(bytes)).min(linked.segment);
            let at = at + u64::from(first);
            self.moves.push(Move::Hand { unit: linked.unit as u16, bytes: held });
            if frames == FrameAccess::Inline {
                self.transfer(Region::Frame, access, at, held, Wait::Later(WRITES));
            }
            let number = (at / u64::from(linked.segment)) as u32;
            self.moves.push(Move::Link { ring, link, number });
        }
    }
}

impl Machine<'_> {
    /// Links a segment of the thread's frame into the ring's queue of its flow, or out of it. Returns the time at which the unit goes on.
    pub(super) fn link(
        &mut self,
        engine: usize,
        thread: usize,
        ring: usize,
        link: Link,
        number: u32,
    ) -> Ticks {
        let Some(linked) = self.rings[ring].linked else { return self.now() };
        let job = &self.jobs[self.threads[thread].element.job as usize];
        let (queue, segment) = (linked.queue(ring, job.flow), job.segment.wrapping_add(number));
        let held = self.queued.entry((linked.unit, queue)).or_default();
        // The free list's pointer, and that between neighbours in the queue, if the segment has one there.
        let (free, neighbours, has_neighbour) = match link {
            Link::Enqueue => {
                *held += 1;
                let last = segment.wrapping_sub(1);
                (linked.next(Access::Read, segment), linked.next(Access::Write, last), *held > 1)
            }
            Link::Dequeue => {
                *held = held.saturating_sub(1);
                (linked.next(Access::Write, segment), linked.next(Access::Read, segment), *held > 0)
            }
        };
        let ends = [linked.ends(Access::Read, queue), linked.ends(Access::Write, queue)];
        let commands = ends.into_iter().chain([free]).chain(has_neighbour.then_some(neighbours));
        let mut goes = self.now();
        for command in commands {
            let whose = Whose::Thread { thread, ticket: WRITES };
            let (admitted, done) = self.command(engine, command, whose);
            goes = goes.max(admitted);
            self.hold_ticket(thread, WRITES, done);
        }
        goes
    }
}
