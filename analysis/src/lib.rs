//! Analysis of a policy's rules for all possible packets: rules that decide nothing, redundant rules, rules whose order
//! matters, and the packets that two policies treat differently.
//!
//! Exact, by the algebra of sets of headers ([`lookup::classify::bdd`]). The headers are those that `filter` can see: an
//! interface of origin with its zone, and one of destination or the gateway itself; ports and flags only where the protocol
//! has them. Memberships in dynamic sets are free: answers hold whatever is in the sets. Routes, translations and source checks are not considered: packets that these would keep from the rules count,
//! too.
//!
//! The work is bounded, and counted, not timed: the same policy gets the same answer on every machine. Questions past the
//! bound are reported as open.
//!
//! No set is made of a whole policy, which can take more memory than there is. Each rule is asked for by itself, together
//! with the rules that overlap with it.

use std::fmt;

use lookup::classify::Position;
use policy::model::{Action, ConnectionLimit, Helper, Logging, Rate, Rule, SynAnswer};

mod algebra;
mod classes;
pub mod difference;
pub mod example;
mod outline;
pub mod region;
pub mod rules;
mod ruling;

pub use algebra::Effort;
pub use classes::{
    ClassComparison, ClassDifference, EmptyClass, EmptyClasses, compare_classes, empty_classes,
};
pub use difference::{Comparison, Difference, Judgement, compare};
pub use example::{Example, Places};
pub use region::{AddressRange, Families, PortRange, Region};
pub use rules::{Finding, Findings, Look, findings};

/// Fate of a packet, by a rule or by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Action on the packet.
    pub action: Action,
    /// Logging of matches.
    pub log: Logging,
    /// Limit on the rate of packets.
    pub rate: Option<Rate>,
    /// Limit on the number of connections.
    pub connections: Option<ConnectionLimit>,
    /// Idle timeout of a connection.
    pub timeout: Option<wire::Nanos>,
    /// Responder to SYNs: the server or the gateway.
    pub syn: SynAnswer,
    /// Helper that reads the connection.
    pub helper: Option<Helper>,
    /// Number of the addition of the source to a dynamic set, where the rule makes one.
    pub adds: Option<u32>,
}

/// Decider on a packet: a rule or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// The rule at this place of the policy.
    Rule(Position),
    /// No rule: the default action of the zones.
    Default,
}

/// Completeness of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was looked at.
    Complete,
    /// The bound was reached. Reported findings are true; there may be more.
    Stopped,
}

impl Fate {
    /// Returns the fate by a rule.
    fn by_rule(rule: &Rule) -> Fate {
        let Rule { action, log, rate, connections, timeout, syn, helper, .. } = *rule;
        Fate { action, log, rate, connections, timeout, syn, helper, adds: None }
    }

    /// The default action, which logs and counts nothing.
    fn by_default(action: Action) -> Fate {
        Fate {
            action,
            log: Logging::Off,
            rate: None,
            connections: None,
            timeout: None,
            syn: SynAnswer::Forward,
            helper: None,
            adds: None,
        }
    }

    /// True if it depends on packets before, or others depend on it.
    fn counts(&self) -> bool {
        self.rate.is_some() || self.connections.is_some() || self.adds.is_some()
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            Action::Accept => "accept",
            Action::Drop => "drop",
            Action::Reject(_) => "reject",
        })?;
        if self.log == Logging::On {
            f.write_str(", logged")?;
        }
        if self.rate.is_some() {
            f.write_str(", at a limited rate")?;
        }
        if self.connections.is_some() {
            f.write_str(", a limited number")?;
        }
        if self.timeout.is_some() {
            f.write_str(", with a timeout")?;
        }
        if self.syn == SynAnswer::Proxy {
            f.write_str(", by SYN proxy")?;
        }
        if self.helper.is_some() {
            f.write_str(", with a helper")?;
        }
        if self.adds.is_some() {
            f.write_str(", with its source added to a set")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
