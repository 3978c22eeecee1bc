//! What can be said of a policy's rules for every packet there can be: which rules decide nothing, which the policy
//! would be the same without, where order matters, and which packets two policies treat differently.
//!
//! Exact, by the algebra of sets of headers ([`lookup::classify::bdd`]). The headers are those that `filter` can see: an
//! interface of origin with its zone, and one of destination or the gateway itself; ports and flags only where the
//! protocol has them. Routes, translations and source checks are not looked at: what they would keep from the rules counts,
//! too.
//!
//! The work is bounded, and counted, not timed: the same policy gets the same answer on every machine. What is past the
//! bound is left open, and said to be.
//!
//! No set is made of a whole policy, which can take more memory than there is. Each rule is asked for by itself, together
//! with the rules that overlap with it.

use std::fmt;

use lookup::classify::Position;
use policy::model::{Action, ConnectionLimit, Logging, Rate, Rule, SynAnswer};

mod algebra;
pub mod difference;
pub mod example;
mod outline;
pub mod region;
pub mod rules;
mod ruling;

pub use algebra::Effort;
pub use difference::{Comparison, Difference, Judgement, compare};
pub use example::{Example, Places};
pub use region::{AddressRange, Families, PortRange, Region};
pub use rules::{Finding, Findings, Look, findings};

/// What becomes of a packet that a rule, or no rule, decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// What happens.
    pub action: Action,
    /// Logging of matches.
    pub log: Logging,
    /// A bound on how many pass in a time.
    pub rate: Option<Rate>,
    /// A bound on how many connections there are.
    pub connections: Option<ConnectionLimit>,
    /// How long a connection may be idle.
    pub timeout: Option<wire::Nanos>,
    /// Who answers SYNs.
    pub syn: SynAnswer,
}

/// What decides on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// The rule at this place of the policy.
    Rule(Position),
    /// No rule: the default action of the zones.
    Default,
}

/// How far an analysis came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was looked at.
    Complete,
    /// The bound was reached. What is reported is so; there may be more.
    Stopped,
}

impl Fate {
    /// What a rule does.
    fn by_rule(rule: &Rule) -> Fate {
        let Rule { action, log, rate, connections, timeout, syn, .. } = *rule;
        Fate { action, log, rate, connections, timeout, syn }
    }

    /// The default action, which logs and counts nothing.
    fn by_default(action: Action) -> Fate {
        let syn = SynAnswer::Forward;
        Fate { action, log: Logging::Off, rate: None, connections: None, timeout: None, syn }
    }

    /// True if it depends on packets before.
    fn counts(&self) -> bool {
        self.rate.is_some() || self.connections.is_some()
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
        Ok(())
    }
}

#[cfg(test)]
mod tests;
