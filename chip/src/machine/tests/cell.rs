//! Tests of frames in ATM cells: elements, memory and lines, reckoned by hand.

use proptest::prelude::*;
use tally::Region;

use super::{Ways, drawing, line, slower};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load, Output};
use crate::machine::{Ideal, Machine, Window};
use crate::mapping::Place;

/// Packets of so many bytes in so many cells, one in forty times its own time on the line, each of which leaves as it came.
struct Packets {
    left: u32,
    length: Length,
    at: u64,
}

impl Load for Packets {
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        let at = Ticks(self.at);
        self.at += 40 * u64::from(self.length.cells) * CELL;
        Some(Arrival { at, port: 0, length: self.length })
    }

    fn accept(&mut self, job: &mut Job) {
        Ways { coming: vec![(0, 0, 0)], next: 1, taken: Vec::new() }.accept(job);
        job.outputs[0] = Output { port: 0, length: self.length, flow: 0 };
    }
}

/// Ticks that a cell takes on a line of 200 Mbit/s: 40 ns a byte, of 10 ns each.
const CELL: u64 = 53 * 4;

fn pass(length: Length, frames: u32) -> Window {
    let (mut chip, mut mapping) = (slower(4), line(1, 8));
    mapping.placements = drawing(1, 1, Place::Shared(0)).placements;
    chip.ports.0[0].gap = wire::Bytes(0);
    let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Packets { left: frames, length, at: 0 }, 0).unwrap()
}

#[test]
fn a_packet_in_cells_takes_the_line_for_its_cells_and_memory_for_its_bytes() {
    // 40 bytes with LLC and trailer: 56 bytes, two cells.
    let seen = pass(Length { bytes: 40, cells: 2 }, 100);
    assert_eq!((seen.lost, seen.overruns, seen.delivered.frames, seen.delivered.bytes), (0, 0, 100, 4_000));
    assert_eq!(seen.lines[0], Ticks(100 * 2 * CELL));
    let frames = &seen.memories[0].regions[Region::Frame as usize];
    // Two writes and two reads: of 40 bytes, and of the padding in the second cell, as little as can be moved.
    assert_eq!((frames.references, frames.bytes), (400, 100 * 2 * 41));
    let tables = &seen.memories[0].regions[Region::CipherTable as usize];
    assert_eq!((tables.references, tables.bytes), (100 * 2 * 48, 100 * 2 * 48 * 4), "the CRC of what leaves");
}

#[test]
fn a_packet_that_fills_its_cells_goes_in_payloads_of_48_bytes() {
    let seen = pass(Length { bytes: 1_500, cells: 32 }, 20);
    assert_eq!((seen.lost, seen.delivered.frames), (0, 20));
    assert_eq!(seen.lines[0], Ticks(20 * 32 * CELL));
    let frames = &seen.memories[0].regions[Region::Frame as usize];
    assert_eq!((frames.references, frames.bytes), (20 * 64, 20 * 2 * 1_500));
}

proptest! {
    /// All bytes of a frame lie in its elements, once each, and all bytes on the line.
    #[test]
    fn elements_hold_the_frame(bytes in 1_u32..70_000, cells in 0_u32..3_000, element in 1_u32..256) {
        let cells = if cells == 0 { 0 } else { cells.max(bytes.div_ceil(48)) };
        let length = Length { bytes, cells };
        let count = length.elements(element);
        let on_line: u32 = (0..count).map(|number| length.of_element(number, element)).sum();
        prop_assert_eq!(on_line, length.on_line());
        let mut end = 0;
        for number in 0..count {
            let (at, held) = length.in_memory(number, element);
            if at < u64::from(bytes) {
                prop_assert_eq!(at, end);
                end = at + u64::from(held);
            }
        }
        prop_assert_eq!(end, u64::from(bytes));
    }
}
