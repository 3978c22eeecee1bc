//! Work of tasks beside the stages: gets of frames from rings, and moves between ports and memory.
//!
//! Instructions were counted in the microcode for the IXP2400 that Linux had (drivers/net/ixp2000, ixp2400_rx.uc and
//! ixp2400_tx.uc of version 2.6.33, by L. Buytenhek): those of a frame of one element, and of each further element.

use tally::Region;

use super::script::{Busy, Move, Writer, elements};
use super::{Ring, Unit};
use crate::description::{Chip, UnitWork};
use crate::mapping::{Mapping, Pool, PoolPlace, Task};
use crate::trace::Access;

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

/// Taking a frame from a ring: get, test for empty, branch, address of the descriptor, as the first lines of
/// ixp2400_tx.uc.
const TAKE: Cost = Cost { instructions: 4, taken: 0 };

/// Passing a frame on: test for full, handle, put, back to the top.
const PASS: Cost = Cost { instructions: 4, taken: 1 };

/// Bytes of a buffer's descriptor.
const DESCRIPTOR: u32 = 16;

/// Bytes of the metadata that travels with a frame.
pub(super) const METADATA: u32 = 32;

/// The tasks that are no stages, by their names in mappings, and the instructions that the code of each takes in the
/// store: the lines of ixp2400_rx.uc and ixp2400_tx.uc that are instructions, set-up included.
pub const PROGRAMS: [(&str, u32); 2] = [("receive", 116), ("transmit", 74)];

impl Writer<'_> {
    fn cost(&mut self, cost: Cost) {
        self.execute(cost.instructions, cost.taken);
    }

    /// The way of a frame from the receive buffer to memory.
    pub(super) fn receive(&mut self, chip: &Chip, bytes: u32) {
        self.refer(Region::Queue, Access::Read, 0, 4);
        self.refer(Region::Meta, Access::Read, 0, 8);
        self.by_elements(RECEIVE, RECEIVE_FURTHER, Access::Write, bytes, chip.receive.element.0);
        self.moves.push(Move::Release);
        self.refer(Region::Meta, Access::Write, 8, 8);
    }

    /// The way of a frame from memory to the port.
    pub(super) fn transmit(&mut self, chip: &Chip, bytes: u32) {
        self.refer(Region::Meta, Access::Read, 0, DESCRIPTOR);
        self.moves.push(Move::Claim);
        self.by_elements(TRANSMIT, TRANSMIT_FURTHER, Access::Read, bytes, chip.transmit.element.0);
        self.moves.push(Move::Send);
        self.refer(Region::Queue, Access::Write, 0, 4);
    }

    fn by_elements(&mut self, first: Cost, further: Cost, access: Access, bytes: u32, element: u64) {
        let element = u32::try_from(element).unwrap_or(u32::MAX).max(1);
        for number in 0..elements(bytes, wire::Bytes(u64::from(element))) {
            self.cost(if number == 0 { first } else { further });
            let at = number * element;
            self.refer(Region::Frame, access, u64::from(at), bytes.saturating_sub(at).clamp(1, element));
        }
    }

    /// Gets a frame and its metadata from a ring.
    pub(super) fn take(&mut self, number: u16, ring: &Ring) {
        self.cost(TAKE);
        match ring.memory {
            Some(_) => self.moves.push(Move::Get(number)),
            None => self.occupy(Busy { executing: ring.latency, ..Busy::default() }),
        }
        self.execute(2, 0);
        self.refer(Region::Meta, Access::Read, 0, METADATA);
    }

    /// Writes a frame's metadata, and puts the frame into a ring.
    pub(super) fn pass(&mut self, number: u16, ring: &Ring) {
        self.execute(2, 0);
        self.refer(Region::Meta, Access::Write, 0, METADATA);
        self.cost(PASS);
        if ring.memory.is_none() {
            self.occupy(Busy { executing: ring.latency, ..Busy::default() });
        }
        self.moves.push(Move::Put(number));
    }

    /// The way of a frame through a pipelined unit: it takes the unit for its interval, and leaves it after the latency.
    pub(super) fn in_unit(&mut self, unit: &Unit, bytes: u32) {
        self.occupy(Busy { executing: unit.interval_of(bytes), ..Busy::default() });
        self.moves.push(Move::Sleep(unit.latency));
    }

    /// Giving back the buffer of a frame that goes no further.
    pub(super) fn drop(&mut self) {
        self.cost(PASS);
        self.refer(Region::Queue, Access::Write, 0, 4);
        self.moves.push(Move::End);
    }
}

/// Returns the unit of fixed function that the pool runs in; `None` if it runs on engines.
pub(super) fn unit_of(pool: &Pool, chip: &Chip) -> Option<usize> {
    match pool.place {
        PoolPlace::Unit(unit) if chip.units.get(unit).is_some_and(|unit| unit.work == UnitWork::Stage) => {
            Some(unit)
        }
        _ => None,
    }
}

/// The tasks of a mapping, with the pool of each.
pub(super) fn tasks(mapping: &Mapping) -> impl Iterator<Item = (usize, &Task)> {
    mapping.pools.iter().enumerate().flat_map(|(pool, of)| of.tasks.iter().map(move |task| (pool, task)))
}
