//! Reductions of a source: to its first frames, or to a slower pace.

use wire::{Nanos, PortId};

use super::stream::{Rate, Stream};
use crate::host::{Entry, Traffic};

/// The first frames of a source.
pub struct First {
    source: Box<dyn Traffic>,
    left: u64,
}

impl First {
    /// The first `frames` of `source`.
    pub fn new(source: Box<dyn Traffic>, frames: u64) -> First {
        First { source, left: frames }
    }
}

impl Traffic for First {
    fn peek(&mut self) -> Option<Nanos> {
        if self.left == 0 { None } else { self.source.peek() }
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        self.left = self.left.checked_sub(1)?;
        self.source.next(bytes)
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        self.source.left(port, frame);
    }
}

/// A source at a share of its own pace: a frame one second after the beginning comes after two at a share of one half.
pub struct Slowed {
    source: Box<dyn Traffic>,
    start: Nanos,
    load: f64,
}

impl Slowed {
    /// `source`, which begins at `start`, at the share `load` of its pace, above 0.
    pub fn new(source: Box<dyn Traffic>, start: Nanos, load: f64) -> Slowed {
        Slowed { source, start, load }
    }

    fn moved(&self, at: Nanos) -> Nanos {
        if self.load == 1.0 {
            return at;
        }
        let since = at.since(self.start).0 as f64 / self.load;
        // What is too late for any clock comes at the end of time: a conversion from floating point saturates.
        Nanos(self.start.0.saturating_add(since as u64))
    }
}

impl Traffic for Slowed {
    fn peek(&mut self) -> Option<Nanos> {
        self.source.peek().map(|at| self.moved(at))
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let entry = self.source.next(bytes)?;
        Some(Entry { at: self.moved(entry.at), ..entry })
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        self.source.left(port, frame);
    }
}

impl Stream {
    /// Returns the stream at the share `load` of its rate.
    #[must_use]
    pub fn scaled(&self, load: f64) -> Stream {
        let rate = match self.rate {
            Rate::Line(share) => Rate::Line(share * load),
            Rate::Frames(rate) => Rate::Frames(rate * load),
            Rate::Bits(rate) => Rate::Bits(rate * load),
        };
        Stream { rate, ..self.clone() }
    }
}
