//! A line on the fast path: its number, its filter, and the count of packets that tells when flows may go by again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use super::{FastPath, FastPathError, Limits, cpu, step};
use crate::sys::socket;

/// A line, which has its number until dropped.
pub(crate) struct FastLine {
    path: Arc<FastPath>,
    number: usize,
    filter: OwnedFd,
    /// Packets taken from the rings or dropped by them, on the filter's scale.
    count: u64,
    /// Count at the last mark.
    marked: u64,
    /// Count up to which the filter was told that all have been sent on.
    told: u64,
    /// Number of times in a row that packets were missing.
    missing: u32,
    /// Packets that may be between filter and ring, one on each other CPU, while others with higher numbers have been taken.
    in_flight: u64,
}

/// Outcome of [`FastLine::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The filter is told.
    Told,
    /// Packets are missing, which the rings may have dropped: the caller should count those and ask again.
    Short,
}

/// Number of times that packets may be missing before those dropped are counted again.
const PATIENCE: u32 = 8;

impl FastLine {
    /// A number and a filter for one more line, whose rings have so many slots.
    pub(crate) fn new(path: &Arc<FastPath>, slots: usize) -> Result<FastLine, FastPathError> {
        let number = path.take_number()?;
        let limits = Limits { line: number, backlog: (slots / 2).max(1) as u32 };
        let filter = path.filter(limits).inspect_err(|_| path.give_number(number))?;
        let count = path.table.passed(number);
        let in_flight = cpu::online() as u64 - 1;
        path.table.set_taken(number, count);
        let (path, marked, told) = (path.clone(), count, count);
        Ok(FastLine { path, number, filter, count, marked, told, missing: 0, in_flight })
    }

    /// Attaches the filter to a socket of the line.
    pub(crate) fn filter(&self, socket: BorrowedFd<'_>) -> Result<(), FastPathError> {
        socket::attach(socket, self.filter.as_fd()).map_err(step("set the socket's filter"))
    }

    /// Counts packets taken from a ring, or dropped by it.
    #[inline]
    pub(crate) fn count(&mut self, packets: u64) {
        self.count += packets;
    }

    /// Marks the packets counted so far.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.marked = self.count;
    }

    /// Tells the filter that all packets counted up to the mark have been sent on.
    pub(crate) fn settle(&mut self) -> Settled {
        let passed = self.path.table.passed(self.number);
        self.missing = if passed == self.count { 0 } else { self.missing + 1 };
        let settled =
            if passed == self.marked { self.marked } else { self.marked.saturating_sub(self.in_flight) };
        if settled > self.told {
            self.told = settled;
            self.path.table.set_taken(self.number, settled);
        }
        if self.missing % PATIENCE == 1 { Settled::Short } else { Settled::Told }
    }
}

impl Drop for FastLine {
    fn drop(&mut self) {
        self.path.give_number(self.number);
    }
}

impl FastPath {
    fn take_number(&self) -> Result<usize, FastPathError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let free = lines.iter().position(|taken| !taken).ok_or_else(|| io::ErrorKind::OutOfMemory.into());
        let number = free.map_err(step("number one more line of the fast path"))?;
        lines[number] = true;
        Ok(number)
    }

    fn give_number(&self, number: usize) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)[number] = false;
    }
}
