//! Items of a shard's state, as plain data.

use serde::{Deserialize, Serialize};
use wire::Nanos;

use super::{DebtRecord, FlowRecord, OwnRecord};

/// An item of a shard's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // nearly all items are flows: a box each would cost more than it saves
pub enum Item {
    /// A flow.
    Flow(FlowRecord),
    /// A token debt under a rate.
    Debt(DebtRecord),
    /// State of the gateway's own packets.
    Own(OwnRecord),
}

impl Item {
    /// Returns the item after a span of time without packets.
    #[must_use]
    pub fn aged(self, by: Nanos) -> Item {
        let later = |span: Nanos| Nanos(span.0.saturating_add(by.0));
        let less = |debt: Nanos| Nanos(debt.0.saturating_sub(by.0));
        match self {
            Item::Flow(flow) => {
                Item::Flow(FlowRecord { idle: later(flow.idle), age: later(flow.age), ..flow })
            }
            Item::Debt(record) => Item::Debt(DebtRecord { debt: less(record.debt), ..record }),
            Item::Own(own) => Item::Own(OwnRecord { errors: less(own.errors), ..own }),
        }
    }
}
