//! Frames that a policy ended, by reason.

use std::collections::BTreeMap;

use dataplane::replay::Witness;
use dataplane::{Reason, Verdict};
use serde::Serialize;
use wire::{Frame, Nanos, PortId};

use crate::host::Onlooker;

/// Number of frames that did not leave as they came, by what became of them: a reason, or `delivered` to the gateway itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Fates(pub BTreeMap<&'static str, u64>);

impl Witness for Fates {
    fn sent(&mut self, _: PortId, _: Nanos, _: &Frame, _: Option<Verdict>) {}

    fn ended(&mut self, _: &Frame, verdict: Verdict) {
        let fate = match verdict {
            Verdict::Forwarded | Verdict::Held(_) => None,
            Verdict::Delivered => Some("delivered"),
            Verdict::Answered(reason) | Verdict::Dropped(reason) => Some(reason.name()),
        };
        if let Some(fate) = fate {
            *self.0.entry(fate).or_default() += 1;
        }
    }

    fn refused(&mut self, _: u32, _: PortId, reason: Reason) {
        *self.0.entry(reason.name()).or_default() += 1;
    }
}

impl Onlooker for Fates {}
