//! A line on the fast path: its number, its filter, and the count of packets that tells when flows may go by again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use super::{FastPath, FastPathError, Limits, cpu};
use crate::sys::socket;

/// A line of AF_PACKET: its filter, and the count of its packets.
pub(crate) struct FastLine {
    filter: OwnedFd,
    pub(crate) count: LineCount,
}

impl FastLine {
    /// A number and a filter for one more line, whose rings have so many slots.
    pub(crate) fn new(path: &Arc<FastPath>, slots: usize) -> Result<FastLine, FastPathError> {
        let [count] =
            LineCount::several(path, 1, cpu::online() as u64 - 1)?.try_into().map_err(|_| none())?;
        let filter = path.filter(Limits { line: count.number, backlog: (slots / 2).max(1) as u32 })?;
        Ok(FastLine { filter, count })
    }

    /// Attaches the filter to a socket of the line.
    pub(crate) fn filter(&self, socket: BorrowedFd<'_>) -> Result<(), FastPathError> {
        socket::attach(socket, self.filter.as_fd()).map_err(FastPathError::step("set the socket's filter"))
    }
}

/// Count of the packets that a line has taken, which has the line's number until dropped.
pub(crate) struct LineCount {
    path: Arc<FastPath>,
    number: usize,
    /// Packets taken from the rings, and those of the dropped ones that no packet in the rings is in front of, on the program's scale.
    count: u64,
    /// Count at the last mark.
    marked: u64,
    /// Other packets that the rings have dropped, and the number up to which the program had kept packets when they were counted.
    dropped: u64,
    dropped_before: u64,
    /// Count up to which the program was told that all have been sent on.
    told: u64,
    /// Number of times in a row that packets were missing.
    missing: u32,
    /// Packets that may be between program and ring while others with higher numbers have been taken.
    in_flight: u64,
}

/// Outcome of [`LineCount::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The program is told.
    Told,
    /// Packets are missing, which the rings may have dropped: the caller should count those and ask again.
    Short,
}

/// Number of times that packets may be missing before those dropped are counted again.
const PATIENCE: u32 = 8;

impl LineCount {
    /// Counts of so many lines, whose numbers follow one another.
    pub(crate) fn several(
        path: &Arc<FastPath>,
        lines: usize,
        in_flight: u64,
    ) -> Result<Vec<LineCount>, FastPathError> {
        let first = path.take_numbers(lines)?;
        let line = |number| {
            let count = path.table.passed(number);
            path.table.set_taken(number, count);
            let (path, marked, told) = (path.clone(), count, count);
            let (dropped, dropped_before, missing) = (0, 0, 0);
            LineCount { path, number, count, marked, dropped, dropped_before, told, missing, in_flight }
        };
        Ok((first..first + lines).map(line).collect())
    }

    /// Number of the line.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Counts packets taken from a ring.
    #[inline]
    pub(crate) fn take(&mut self, packets: u64) {
        self.count += packets;
    }

    /// Counts packets that a ring has dropped. They may have come behind others that are in the ring yet.
    pub(crate) fn drop(&mut self, packets: u64) {
        if packets > 0 {
            self.dropped += packets;
            self.dropped_before = self.path.table.passed(self.number);
        }
    }

    /// Marks the packets counted so far.
    #[inline]
    pub(crate) fn mark(&mut self) {
        // Those dropped count as soon as all packets up to the last of them have come, or are among them.
        if self.dropped > 0 && self.count + self.dropped >= self.dropped_before + self.in_flight {
            self.count += std::mem::take(&mut self.dropped);
        }
        self.marked = self.count;
    }

    /// Tells the program that all packets counted up to the mark have been sent on.
    pub(crate) fn settle(&mut self) -> Settled {
        let passed = self.path.table.passed(self.number);
        let is_even = passed == self.count + self.dropped;
        self.missing = if is_even { 0 } else { self.missing + 1 };
        let settled =
            if passed == self.marked { self.marked } else { self.marked.saturating_sub(self.in_flight) };
        if settled > self.told {
            self.told = settled;
            self.path.table.set_taken(self.number, settled);
        }
        if self.missing % PATIENCE == 1 { Settled::Short } else { Settled::Told }
    }
}

impl Drop for LineCount {
    fn drop(&mut self) {
        self.path.give_number(self.number);
    }
}

impl FastPath {
    /// The first of so many free numbers in a row.
    fn take_numbers(&self, lines: usize) -> Result<usize, FastPathError> {
        let mut taken = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let first = taken.windows(lines.max(1)).position(|numbers| numbers.iter().all(|taken| !taken));
        let first = first.ok_or_else(none)?;
        taken[first..first + lines].fill(true);
        Ok(first)
    }

    fn give_number(&self, number: usize) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)[number] = false;
    }
}

fn none() -> FastPathError {
    FastPathError::step("number one more line of the fast path")(io::ErrorKind::OutOfMemory.into())
}
