//! The one fate of a frame, and why.

use std::fmt;

mod reason;

pub use reason::{Entry, Reason};

/// The one fate of a frame. Every frame that is received gets exactly one:
/// received = forwarded + delivered + answered + dropped + held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Sent, or queued to be sent, by a port.
    Forwarded,
    /// For the gateway itself, or sent by the gateway and for a link alone ([`Delivery`](crate::hop::Delivery)).
    Delivered,
    /// Turned into an answer to its sender. If the sender is the gateway itself, the answer is for the gateway.
    Answered(Reason),
    /// Dropped.
    Dropped(Reason),
    /// Pending; the frame gets another verdict when the event that it waits for has come, or not.
    Held(Reason),
}

impl Verdict {
    /// The verdict as a frame's metadata carries it; never 0, which means none yet.
    #[inline(always)]
    pub const fn to_fate(self) -> u16 {
        match self {
            Verdict::Forwarded => 0x100,
            Verdict::Delivered => 0x200,
            Verdict::Answered(reason) => 0x300 | reason as u16,
            Verdict::Dropped(reason) => 0x400 | reason as u16,
            Verdict::Held(reason) => 0x500 | reason as u16,
        }
    }

    /// The verdict that a frame's metadata carries, or `None` while there is none.
    #[inline]
    pub fn of_fate(fate: u16) -> Option<Verdict> {
        let reason = || Reason::ALL.get((fate & 0xff) as usize).map(|entry| entry.reason);
        match fate >> 8 {
            1 => Some(Verdict::Forwarded),
            2 => Some(Verdict::Delivered),
            3 => reason().map(Verdict::Answered),
            4 => reason().map(Verdict::Dropped),
            5 => reason().map(Verdict::Held),
            _ => None,
        }
    }

    /// The reason, where the verdict has one.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Verdict::Forwarded | Verdict::Delivered => None,
            Verdict::Answered(reason) | Verdict::Dropped(reason) | Verdict::Held(reason) => Some(reason),
        }
    }

    /// `forwarded`, `delivered`, `answered`, `dropped` or `held`.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Forwarded => "forwarded",
            Verdict::Delivered => "delivered",
            Verdict::Answered(_) => "answered",
            Verdict::Dropped(_) => "dropped",
            Verdict::Held(_) => "held",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{} ({reason})", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_survives_the_metadata() {
        assert_eq!(Verdict::of_fate(0), None);
        for (index, entry) in Reason::ALL.iter().enumerate() {
            assert_eq!(entry.reason as usize, index, "{} is out of order", entry.name);
            for verdict in [
                Verdict::Forwarded,
                Verdict::Delivered,
                Verdict::Answered(entry.reason),
                Verdict::Dropped(entry.reason),
                Verdict::Held(entry.reason),
            ] {
                assert_eq!(Verdict::of_fate(verdict.to_fate()), Some(verdict));
            }
        }
        assert_eq!(Verdict::of_fate(0x4ff), None);
    }

    #[test]
    fn reasons_have_distinct_names_a_cause_and_a_remedy() {
        let mut names = std::collections::HashSet::new();
        for entry in Reason::ALL {
            assert!(names.insert(entry.name), "{} twice", entry.name);
            assert!(entry.cause.ends_with('.') && entry.remedy.ends_with('.'), "{}", entry.name);
            assert_eq!(Reason::of_name(entry.name), Some(entry.reason));
        }
    }
}
