//! The bytes of a capture file, a record at a time, with the place in the file.

use std::io::{self, BufReader, Read};

use super::{CaptureError, CutShort, Problem};

/// A source with its name, the offset in it, and the record that is being read.
#[derive(Debug)]
pub(super) struct Input<R: Read> {
    file: String,
    source: BufReader<R>,
    /// Offset of the current record, in bytes.
    start: u64,
    /// Offset up to which the source has been read, in bytes.
    offset: u64,
    record: Vec<u8>,
    cut: Option<CutShort>,
    done: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(file: String, source: BufReader<R>) -> Input<R> {
        Input { file, source, start: 0, offset: 0, record: Vec::new(), cut: None, done: false }
    }

    /// Starts a new record here.
    pub(super) fn begin(&mut self) {
        self.record.clear();
        self.start = self.offset;
    }

    /// Appends the next `bytes` bytes to the record. `false` at the end of the source, which is a cut if
    /// the record has begun. The caller has bounded `bytes`; memory grows by what is there, not by what
    /// is claimed.
    pub(super) fn read(&mut self, bytes: usize) -> Result<bool, CaptureError> {
        if self.done {
            return Ok(false);
        }
        let got = match self.source.by_ref().take(bytes as u64).read_to_end(&mut self.record) {
            Ok(got) => got,
            Err(error) => return Err(self.fail(Problem::Input(error))),
        };
        self.advance(got as u64, bytes as u64);
        Ok(got == bytes)
    }

    /// Passes over the next `bytes` bytes, which belong to the record but are of no use.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<bool, CaptureError> {
        if self.done {
            return Ok(false);
        }
        let got = match io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink()) {
            Ok(got) => got,
            Err(error) => return Err(self.fail(Problem::Input(error))),
        };
        self.advance(got, bytes);
        Ok(got == bytes)
    }

    fn advance(&mut self, got: u64, wanted: u64) {
        self.offset += got;
        if got < wanted {
            self.done = true;
            if self.offset > self.start {
                self.cut = Some(CutShort { offset: self.start, present: self.offset - self.start });
            }
        }
    }

    /// Bytes of the current record read so far.
    pub(super) fn record(&self) -> &[u8] {
        &self.record
    }

    pub(super) fn record_mut(&mut self) -> &mut [u8] {
        &mut self.record
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn cut_short(&self) -> Option<CutShort> {
        self.cut
    }

    /// Error for `problem` at the current record.
    pub(super) fn error(&self, problem: Problem) -> CaptureError {
        CaptureError { file: self.file.clone(), offset: self.start, problem }
    }

    /// Error for `problem` at the current record, after which reading ends.
    pub(super) fn fail(&mut self, problem: Problem) -> CaptureError {
        self.done = true;
        self.error(problem)
    }
}

/// The order of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Order::Little => i64::from_le_bytes(bytes),
            Order::Big => i64::from_be_bytes(bytes),
        }
    }

    pub(super) fn bytes(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    /// The four bytes at `at`; 0 past the end.
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |four| self.u32(*four))
    }
}
