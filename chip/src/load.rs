//! Load of a machine: frames that arrive, and the cost and outcome of each.

use crate::kernel::Ticks;
use crate::machine::Ticket;
use crate::trace::Act;
use wire::atm;

/// Source of frames, and of the cost of each.
pub trait Load {
    /// The next frame that will come in, no earlier than the one before; `None` when there are no more.
    fn next(&mut self) -> Option<Arrival>;

    /// Runs the frame that [`Load::next`] gave last, once taken in, and writes its cost and outcome into `job`. Not
    /// called for frames that are lost.
    fn accept(&mut self, job: &mut Job);
}

/// A frame that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of its first bit; later, if its port is still busy with the frame before.
    pub at: Ticks,
    /// The port.
    pub port: u16,
    /// Its length, without the line's overhead.
    pub length: Length,
}

/// Length of a frame, in memory and on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// Bytes in memory, and on a line of frames.
    pub bytes: u32,
    /// ATM cells that carry it on its line; 0 on a line of frames.
    pub cells: u32,
}

impl Length {
    /// Length of a frame that is not in cells.
    pub fn of(bytes: u32) -> Length {
        Length { bytes, cells: 0 }
    }

    /// True for one cell, and not a packet in its cells.
    pub(crate) fn is_cell(self) -> bool {
        self == Length { bytes: CELL, cells: 1 }
    }

    /// Number of elements, of `element` bytes at most, that it comes or goes by: 1 at least. A cell is an element by itself.
    pub(crate) fn elements(self, element: u32) -> u32 {
        if self.cells > 0 { self.cells } else { self.bytes.max(1).div_ceil(element) }
    }

    /// Bytes on the line.
    pub(crate) fn on_line(self) -> u32 {
        if self.cells > 0 { self.cells.saturating_mul(CELL) } else { self.bytes }
    }

    /// Bytes on the line of the element of that number.
    pub(crate) fn of_element(self, number: u32, element: u32) -> u32 {
        let element = if self.cells > 0 { CELL } else { element };
        self.on_line().saturating_sub(number.saturating_mul(element)).min(element)
    }

    /// Offset in memory of the element of that number, and its bytes there: 1 at least, even if all of a cell is padding.
    pub(crate) fn in_memory(self, number: u32, element: u32) -> (u64, u32) {
        let element = if self.cells > 0 { atm::PAYLOAD_LEN as u32 } else { element };
        let at = number.saturating_mul(element).min(self.bytes);
        (at.into(), (self.bytes - at).min(element).max(1))
    }
}

/// Bytes of a cell.
const CELL: u32 = atm::CELL_LEN as u32;

/// A frame under way in a machine.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Acts of its stages, one stage after the other.
    pub acts: Vec<Act>,
    /// Index in `acts` of each stage's first act, and the end of the last stage: one entry more than there are stages.
    pub marks: Vec<u32>,
    /// Bytes of metadata that stages before an index have written and later ones read, of each index in `marks`: they go
    /// with the frame where a ring lies between.
    pub crossing: Vec<u32>,
    /// The stage behind which it goes no further, if nothing leaves because of it.
    pub ends_at: usize,
    /// Frames that leave because of it.
    pub outputs: Vec<Output>,
    /// Standing of its flow.
    pub standing: Standing,
    /// Handling of the frame itself.
    pub handling: Handling,
    /// Class selector of the code point that it leaves with, the upper three bits (RFC 2474, section 4.2.2): 7 is the highest.
    pub precedence: u8,
    /// Number of its flow; frames of one flow have the same.
    pub flow: u32,
    pub(crate) length: Length,
    /// Its first segment, where frames are in linked lists.
    pub(crate) segment: u32,
    pub(crate) arrived: Ticks,
    pub(crate) unsent: u32,
    /// Places of `outputs` in the [order](crate::machine) of flows.
    pub(crate) places: Vec<u32>,
    /// Line that it comes by.
    pub(crate) line: usize,
    /// Elements that are in memory.
    pub(crate) gathered: u32,
    pub(crate) has_overrun: bool,
    /// Its place in a reorder buffer, until it is settled.
    pub(crate) ticket: Option<Ticket>,
    /// Its number among the frames that depart.
    pub(crate) departure: u64,
}

/// A frame that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The port.
    pub port: u16,
    /// Its length.
    pub length: Length,
    /// Number of its flow as it leaves; frames of one flow and direction have the same.
    pub flow: u32,
}

/// Standing of a frame: of a flow that has been decided, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The frame opens a flow, or is tracked for itself.
    #[default]
    New,
    /// The frame belongs to a decided flow.
    Known,
}

/// Handling of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Handling {
    /// Forwarded or dropped.
    #[default]
    Plain,
    /// Answered, delivered to the gateway itself, or held.
    Exception,
}

impl Job {
    pub(crate) fn renew(&mut self, arrival: &Arrival, arrived: Ticks) {
        self.acts.clear();
        self.marks.clear();
        self.crossing.clear();
        self.outputs.clear();
        self.places.clear();
        self.ends_at = 0;
        (self.standing, self.handling) = (Standing::New, Handling::Plain);
        (self.flow, self.precedence) = (0, 0);
        self.length = arrival.length;
        self.arrived = arrived;
        self.unsent = 0;
        self.gathered = 0;
        self.ticket = None;
        self.has_overrun = false;
    }

    /// The acts of the stages in `stages`.
    pub(crate) fn acts_of(&self, stages: &std::ops::Range<usize>) -> &[Act] {
        let mark =
            |stage: usize| self.marks.get(stage).or(self.marks.last()).map_or(0, |mark| *mark as usize);
        self.acts.get(mark(stages.start)..mark(stages.end)).unwrap_or(&[])
    }

    /// Bytes of metadata that go with the frame when it has passed the stages before that index.
    pub(crate) fn crossing(&self, passed: usize) -> u32 {
        self.crossing.get(passed).copied().unwrap_or(0)
    }
}
