//! Programs at tracepoints that count frames which the program at XDP sent on and which no device took: the program has ended by then, and is not
//! told.
//!
//! The tracepoints are all programs' of the machine. A frame is known for ours by the CPU: what is redirected in a poll of a queue is flushed in the same
//! poll, and all of it was by the program of that queue's interface. So a CPU has frames of ours under way in those polls alone.
//!
//! R6 are the arguments, R9 this CPU's part of the memory.

use std::ffi::CStr;

use super::super::assembler::{Assembler, If, Label, Op, Width};
use super::super::{Instruction, R1, R2, R3, R4, R6, R9};
use super::Memory;
use crate::fast_path::layout::frame::{PENDING, REFUSED, UNSENT};

/// Tracepoints, each with its program.
pub(crate) fn witnesses(memory: &Memory<'_>) -> [(&'static CStr, Option<Vec<Instruction>>); 2] {
    [(c"xdp_redirect_err", refused(memory)), (c"xdp_devmap_xmit", sent(memory))]
}

/// A frame could not be queued for its device. Arguments: interface, program, target, error, type of the map, its number, index.
fn refused(memory: &Memory<'_>) -> Option<Vec<Instruction>> {
    const MAP_TYPE: i16 = 4 * 8;
    let mut a = Assembler::default();
    let end = begin(&mut a, memory);
    // Not by a map, as what goes to a socket does.
    a.load(Width::Word, R1, R6, MAP_TYPE);
    a.jump_if(R1, If::Unequal, 0, end);
    a.number(R1, 1);
    a.number(R2, 1);
    a.number(R4, -1);
    finish(a, end)
}

/// A device has been given frames. Arguments: interface, device, frames sent, frames dropped, error.
fn sent(memory: &Memory<'_>) -> Option<Vec<Instruction>> {
    const SENT: i16 = 2 * 8;
    const DROPPED: i16 = 3 * 8;
    const ERROR: i16 = 4 * 8;
    let mut a = Assembler::default();
    let end = begin(&mut a, memory);
    a.load(Width::Word, R1, R6, SENT);
    a.load(Width::Word, R2, R6, DROPPED);
    a.load(Width::Word, R4, R6, ERROR);
    a.long(Op::Add, R1, R2);
    finish(a, end)
}

/// Goes on where this CPU has frames under way.
fn begin(a: &mut Assembler, memory: &Memory<'_>) -> Label {
    let end = a.label();
    a.copy(R6, R1);
    memory.find_cpu(a);
    a.load(Width::Double, R1, R9, PENDING);
    a.jump_if_null(R1, end);
    end
}

/// Takes R1 frames off those under way, of which R2 are counted as not sent, and as refused if R4 is an error.
fn finish(mut a: Assembler, end: Label) -> Option<Vec<Instruction>> {
    let (none, counted, is_error) = (a.label(), a.label(), a.label());
    a.load(Width::Double, R3, R9, UNSENT);
    a.long(Op::Add, R3, R2);
    a.store_to(Width::Double, R9, UNSENT, R3);
    a.jump_if(R4, If::SignedBelow, 0, is_error);
    a.jump(counted);
    a.place(is_error);
    a.load(Width::Double, R3, R9, REFUSED);
    a.long(Op::Add, R3, R2);
    a.store_to(Width::Double, R9, REFUSED, R3);
    a.place(counted);
    a.load(Width::Double, R3, R9, PENDING);
    a.subtract(R3, R1);
    a.jump_if(R3, If::SignedAbove, 0, none);
    a.number(R3, 0);
    a.place(none);
    a.store_to(Width::Double, R9, PENDING, R3);
    a.place(end);
    a.end(0);
    a.finish()
}
