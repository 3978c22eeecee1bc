//! Outcome of imports: reasons for refusing an item of another shard's state, and counts. [`state`](crate::state) imports.

use crate::nat::Restore;

/// Reason for refusing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refused {
    /// The interface that the flow began at is gone.
    #[error("the interface that it began at is gone")]
    InterfaceGone,
    /// A translation of the flow is gone, or the rule, meter, set or key that the item is of.
    #[error("its translation, rule, meter, set or key is gone")]
    NameGone,
    /// The mapping cannot be made.
    #[error(transparent)]
    Mapping(Restore),
    /// There are as many flows, instances of a meter or elements of a set as there is memory for.
    #[error("the flow table, or that of the meter or set, is full")]
    TableFull,
    /// Another flow has the same ends.
    #[error("another flow has the same ends")]
    Taken,
    /// Nothing is tracked by these tables.
    #[error("nothing is tracked")]
    Stateless,
    /// The item contradicts itself: families, or state and protocol.
    #[error("what it says does not fit together")]
    Malformed,
}

/// Counts of items taken in, and of items refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// Number of items taken in.
    pub taken: u64,
    /// Numbers of items refused, in the order of `REASONS`.
    refused: [u64; Imports::REASONS.len()],
}

impl Imports {
    /// All reasons, in the order of [`Refused`], and of [`Restore`] within that.
    pub const REASONS: [Refused; 12] = [
        Refused::InterfaceGone,
        Refused::NameGone,
        Refused::Mapping(Restore::AddressGone),
        Refused::Mapping(Restore::PortTaken),
        Refused::Mapping(Restore::NotOurs),
        Refused::Mapping(Restore::Otherwise),
        Refused::Mapping(Restore::TableFull),
        Refused::Mapping(Restore::Malformed),
        Refused::TableFull,
        Refused::Taken,
        Refused::Stateless,
        Refused::Malformed,
    ];

    /// Number of items refused for a reason.
    pub fn refused_for(&self, reason: Refused) -> u64 {
        let place = Imports::REASONS.iter().position(|known| *known == reason);
        place.map_or(0, |place| self.refused[place])
    }

    /// Number of items refused.
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Counts the outcome of one item.
    pub fn count(&mut self, outcome: Result<(), Refused>) {
        let Err(reason) = outcome else {
            self.taken += 1;
            return;
        };
        if let Some(place) = Imports::REASONS.iter().position(|known| *known == reason) {
            self.refused[place] += 1;
        }
    }
}
