//! Requests for tokens of the buckets that flows share, kept for a host that wants to know whether a bound was felt.
//!
//! A replay of some of the flows has the tokens to itself. [`Limiter::grant`](super::Limiter::grant) with the requests of all replays, in the
//! order of time, finds out whether a replay of all flows would have refused one.

use wire::Nanos;

use super::ErrorKind;

/// Request for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Under the rate of a rule as a whole.
    Rate {
        /// Time of the packet.
        at: Nanos,
        /// Place of the rule.
        rule: u32,
    },
    /// For an answer to a receiver.
    Answer {
        /// Time of the packet.
        at: Nanos,
        /// Kind of the answer.
        kind: ErrorKind,
        /// Hash of the receiver's subject.
        hash: u64,
    },
}

impl Ask {
    /// Time of the packet.
    pub fn at(self) -> Nanos {
        match self {
            Ask::Rate { at, .. } | Ask::Answer { at, .. } => at,
        }
    }
}

/// Requests so far: none unless a host has them kept.
#[derive(Debug, Default)]
pub struct Asks {
    list: Vec<Ask>,
    most: usize,
    lost: u64,
}

impl Asks {
    /// Keeps up to `most` requests from now on, for which memory is taken.
    pub fn keep(&mut self, most: usize) {
        *self = Asks { list: Vec::with_capacity(most), most, lost: 0 };
    }

    /// Requests, in the order of time.
    pub fn list(&self) -> &[Ask] {
        &self.list
    }

    /// Number of requests for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Notes a request, where they are kept.
    #[inline]
    pub(super) fn note(&mut self, ask: Ask) {
        if self.most == 0 {
            return;
        }
        if self.list.len() < self.most {
            self.list.push(ask);
        } else {
            self.lost += 1;
        }
    }
}
