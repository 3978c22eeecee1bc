//! Work of tasks beside the stages: gets of frames from rings, and moves between ports and memory.
//!
//! Instructions were counted in the microcode for the IXP2400 that Linux had (drivers/net/ixp2000, ixp2400_rx.uc and
//! ixp2400_tx.uc of version 2.6.33, by L. Buytenhek): those of a frame of one element, and of each further element.

use tally::{Offload, Region};
use wire::atm;

use super::edge::{Buffer, Element};
use super::script::{Busy, Move, WRITES, Writer};
use super::{Ring, Unit};
use crate::description::{Chip, FrameAccess, UnitWork};
use crate::load::{Job, Length};
use crate::mapping::{Mapping, Pool, PoolPlace, Task};
use crate::trace::{Access, Act, Referral, Wait};

/// Instructions and branches taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) instructions: u32,
    pub(super) taken: u32,
}

/// Reception of a frame of one element: 2 instructions set off the wait, 2 check for errors, 6 find the channel's
/// state and 6 check it, 12 sum lengths, 6 take a buffer, 2 + 2 + 2 keep the threads in order, 6 store the state, 2
/// check the room, 11 copy, 5 write the descriptor, 9 pass it on; 2 more wait for the element.
const RECEIVE: Cost = Cost { instructions: 73, taken: 2 };

/// Each further element: as above without taking a buffer, the descriptor, and passing on.
const RECEIVE_FURTHER: Cost = Cost { instructions: 55, taken: 2 };

/// Transmission of a frame of one element: 13 take a descriptor, 15 find the element and its place, 6 wait for room, 7
/// copy, 6 mark it, 2 keep the order, 7 give the buffer back.
const TRANSMIT: Cost = Cost { instructions: 56, taken: 3 };

/// Each further element.
const TRANSMIT_FURTHER: Cost = Cost { instructions: 45, taken: 3 };

/// Each cell that leaves, beside its element: 3 take the channel's header and mark the last cell, 2 find the payload, 3 tell whether padding or
/// the trailer is in it. The framer adds the HEC.
const CELL: Cost = Cost { instructions: 8, taken: 1 };

/// Instructions for a byte of a CRC by a table, beside the reference: as the stage `reassemble` has them.
const CRC: u32 = 6;

/// Taking a frame from a ring: get, test for empty, branch, address of the descriptor, as the first lines of
/// ixp2400_tx.uc.
const TAKE: Cost = Cost { instructions: 4, taken: 0 };

/// Passing a frame on: test for full, handle, put, back to the top.
const PASS: Cost = Cost { instructions: 4, taken: 1 };

/// Bytes of the descriptor word that is a frame's entry in a ring: its buffer, its length and its port (the egress, once it is
/// known, and the ingress until then). More of its metadata goes in the rest of the entry, and what has no room there by memory.
const DESCRIPTOR: u32 = 4;

/// Number of stages that frames in the ring have passed.
pub(super) fn passed(mapping: &Mapping, ring: usize) -> usize {
    let into = |task: &&Task| task.to.iter().any(|exit| exit.ring == ring);
    tasks(mapping).map(|(_, task)| task).filter(into).map(|task| task.stages().end).max().unwrap_or(0)
}

/// The tasks that are no stages, by their names in mappings, and the instructions that the code of each takes in the
/// store: the lines of ixp2400_rx.uc and ixp2400_tx.uc that are instructions, set-up included.
pub const PROGRAMS: [(&str, u32); 2] = [("receive", 116), ("transmit", 74)];

/// An element and its place in its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Offset in the frame, and length, in bytes.
    at: u64,
    bytes: u32,
    pub(super) is_first: bool,
    is_last: bool,
    /// True if it is a cell.
    is_cell: bool,
}

impl Part {
    /// The part of a frame of that length that an element of that buffer is.
    pub(super) fn of(element: Element, frame: Length, buffer: &Buffer) -> Part {
        let (at, bytes) = frame.in_memory(element.number, buffer.element);
        Part {
            at,
            bytes,
            is_first: element.number == 0,
            is_last: buffer.is_last(element.number, frame),
            is_cell: frame.cells > 0,
        }
    }
}

impl Writer<'_> {
    fn cost(&mut self, cost: Cost) {
        self.execute(cost.instructions, cost.taken);
    }

    /// The way of an element from the receive buffer to memory, and of the frame's descriptor. A cell that the
    /// thread itself `reassembles` goes to its place in the PDU later on, and nowhere before.
    pub(super) fn receive(&mut self, part: Part, reassembles: bool) {
        if part.is_first {
            self.refer(Region::Queue, Access::Read, 0, 4);
        }
        self.cost(if part.is_first { RECEIVE } else { RECEIVE_FURTHER });
        if !reassembles {
            self.refer(Region::Frame, Access::Write, part.at, part.bytes);
        }
        self.moves.extend([Move::Release, Move::Gather]);
    }

    /// The way of an element from memory to the port; that of the first one begins with taking the frame from the ring that it is in.
    pub(super) fn transmit(
        &mut self,
        taken: Option<(u16, &Ring)>,
        from: Option<(u16, &Ring)>,
        part: Part,
        job: &Job,
    ) {
        if let Some((number, ring)) = taken {
            self.take(number, ring, job);
        }
        self.moves.push(Move::Claim);
        self.unlink(from, part);
        self.cost(if part.is_first { TRANSMIT } else { TRANSMIT_FURTHER });
        self.refer(Region::Frame, Access::Read, part.at, part.bytes);
        if part.is_cell {
            self.cost(CELL);
            self.check();
        }
        self.moves.push(Move::Send);
        if part.is_last {
            self.write_later(Region::Queue, 0, 4);
        }
    }

    /// The way of a cell's payload into the CRC of its PDU.
    fn check(&mut self) {
        let bytes = atm::PAYLOAD_LEN as u32;
        if self.offloads(Offload::Crc { bytes }) {
            return;
        }
        for byte in 0..bytes {
            self.execute(CRC, 0);
            // Which word it is depends on the data.
            let word = (self.slot.wrapping_add(byte)).wrapping_mul(0x9e37_79b1) >> 24;
            self.refer(Region::CipherTable, Access::Read, u64::from(word) * 4, 4);
        }
    }

    /// The way of an element from the receive buffer to memory, in a unit.
    pub(super) fn receive_in_unit(&mut self, unit: &Unit, part: Part) {
        self.in_unit(unit, part.bytes);
        if unit.work == UnitWork::Dma {
            self.transfer(Region::Frame, Access::Write, part.at, part.bytes, Wait::Now);
        }
        self.moves.extend([Move::Release, Move::Gather]);
    }

    /// The way of an element to the port, in a unit; one that does DMA gets the frame's entry from the ring itself.
    pub(super) fn transmit_in_unit(
        &mut self,
        unit: &Unit,
        taken: Option<(u16, &Ring)>,
        from: Option<(u16, &Ring)>,
        part: Part,
    ) {
        if let Some((number, _)) =
            taken.filter(|(_, ring)| unit.work == UnitWork::Dma && ring.memory.is_some())
        {
            self.moves.push(Move::Get(number));
        }
        self.moves.push(Move::Claim);
        self.unlink(from, part);
        self.in_unit(unit, part.bytes);
        if unit.work == UnitWork::Dma {
            self.transfer(Region::Frame, Access::Read, part.at, part.bytes, Wait::Now);
        }
        self.moves.push(Move::Send);
    }

    /// The segments of an element out of the linked lists of its ring, if it has any. Its place in the transmit buffer is claimed by then, so that
    /// elements do not wait for one another.
    fn unlink(&mut self, from: Option<(u16, &Ring)>, part: Part) {
        if let Some((number, ring)) = from {
            self.link_part(number, ring, part.at, part.bytes);
        }
    }

    /// Gets a frame from a ring, and reads what goes with it beside its entry.
    pub(super) fn take(&mut self, number: u16, ring: &Ring, job: &Job) {
        self.cost(TAKE);
        match ring.memory {
            Some(_) => {
                self.wait();
                self.moves.push(Move::Get(number));
            }
            None => self.occupy(Busy { executing: ring.latency, ..Busy::default() }),
        }
        if let Some(bytes) = ring.beside(job) {
            self.execute(2, 0);
            self.refer(Region::Meta, Access::Read, 0, bytes);
        }
    }

    /// Writes what goes with a frame beside its entry, and puts the frame into a ring once all that was written is there.
    pub(super) fn pass(&mut self, number: u16, ring: &Ring, job: &Job) {
        if let Some(bytes) = ring.beside(job) {
            self.execute(2, 0);
            self.write_later(Region::Meta, 0, bytes);
        }
        self.settle();
        self.cost(PASS);
        if ring.memory.is_none() {
            self.occupy(Busy { executing: ring.latency, ..Busy::default() });
        }
        self.moves.push(Move::Put(number));
    }

    /// The way of a frame through stages in a unit: no instructions, but the same references to memory, which a unit's pipeline issues
    /// early enough to wait for none. Metadata, and what ciphers look up, are in the unit itself.
    pub(super) fn stages_in_unit(&mut self, unit: &Unit, bytes: u32, acts: &[Act]) {
        for act in acts {
            let Act::Refer(Referral { region, access, at, bytes, .. }) = *act else { continue };
            let is_inside = match region {
                Region::Meta | Region::CipherTable | Region::CipherKey => true,
                Region::Frame => unit.frames == FrameAccess::Inline,
                _ => false,
            };
            if !is_inside {
                self.transfer(region, access, at, bytes, Wait::Later(WRITES));
            }
        }
        self.in_unit(unit, bytes);
    }

    /// The way of a frame through a pipelined unit: it takes the unit for its interval, and leaves it after the latency.
    pub(super) fn in_unit(&mut self, unit: &Unit, bytes: u32) {
        self.occupy(Busy { executing: unit.interval_of(bytes), ..Busy::default() });
        self.moves.push(Move::Sleep(unit.latency));
    }

    /// Giving back the buffer of a frame that goes no further.
    pub(super) fn drop(&mut self) {
        self.cost(PASS);
        self.write_later(Region::Queue, 0, 4);
        self.moves.push(Move::End);
    }
}

impl Ring {
    /// Bytes of a frame's metadata that its entry has no room for, in whole words; `None` if there are none.
    fn beside(&self, job: &Job) -> Option<u32> {
        let room = self.entry.saturating_sub(DESCRIPTOR);
        let rest = job.crossing(self.passed).saturating_sub(room);
        (rest > 0).then(|| rest.next_multiple_of(4))
    }
}

/// Returns the unit of fixed function that the pool runs in; `None` if it runs on engines.
pub(super) fn unit_of(pool: &Pool, chip: &Chip) -> Option<usize> {
    match pool.place {
        PoolPlace::Unit(unit) if chip.units.get(unit).is_some_and(|unit| takes_frames(unit.work)) => {
            Some(unit)
        }
        _ => None,
    }
}

/// True if a unit of that work takes frames in the place of an engine.
fn takes_frames(work: UnitWork) -> bool {
    matches!(work, UnitWork::Stage | UnitWork::Dma)
}

/// The tasks of a mapping, with the pool of each.
pub(super) fn tasks(mapping: &Mapping) -> impl Iterator<Item = (usize, &Task)> {
    mapping.pools.iter().enumerate().flat_map(|(pool, of)| of.tasks.iter().map(move |task| (pool, task)))
}
