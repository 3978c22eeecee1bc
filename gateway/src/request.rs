//! What may be asked of a running gateway.

use std::sync::Arc;
use std::time::Duration;

use dataplane::Tables;
use dataplane::flow::SteeringTable;
use policy::Policy;
use tokio::sync::oneshot;

use crate::effective::Effective;
use crate::guard::GuardState;
use crate::history::{By, HistoryView};
use crate::log::LogCounts;
use crate::privilege::Confinement;
use crate::supervisor::PortState;
use crate::worker::{CommandSender, Known, Report};

/// Where an answer goes. Nobody may be waiting any more.
pub type Reply<T> = oneshot::Sender<T>;

/// What may be asked.
pub enum Request {
    /// All that was counted.
    Overview(Reply<Overview>),
    /// Another policy.
    Apply {
        /// The policy.
        policy: Box<Policy>,
        /// Goes back to what was before unless it is confirmed within this time.
        confirm: Option<Duration>,
        /// Who asks.
        by: By,
        /// Is told when all workers go by it.
        reply: Reply<Result<Applied, Refusal>>,
    },
    /// The policy on trial is to stay.
    Confirm(Reply<Result<(), NoTrial>>),
    /// The policy on trial is to go.
    Rollback(Reply<Result<(), NoTrial>>),
    /// Policies that were put in force; none where they are not kept.
    History(Reply<Option<HistoryView>>),
    /// The text of one of them.
    Kept {
        /// Its number.
        number: u64,
        /// Is told, if there is such.
        reply: Reply<Option<String>>,
    },
    /// Guards are to be taken off interfaces that the policy does not name: these, or all where none is named.
    Release {
        /// The interfaces.
        interfaces: Vec<String>,
        /// Is told off which they were taken.
        reply: Reply<Result<Vec<String>, String>>,
    },
    /// A way to the workers themselves.
    Workers(Reply<Vec<CommandSender>>),
    /// The policy in force, as it was asked for.
    Policy(Reply<Arc<Policy>>),
    /// What the workers go by.
    Basis(Reply<Basis>),
}

/// What the workers go by.
#[derive(Clone)]
pub struct Basis {
    /// Their tables.
    pub tables: Arc<Tables>,
    /// What these were made of: the policy, with what Linux adds.
    pub effective: Arc<Effective>,
    /// Where flows are, of several workers.
    pub steering: Option<Arc<SteeringTable>>,
    /// The neighbours that are known.
    pub neighbours: Arc<[Known]>,
}

/// A policy is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The epoch of its tables.
    pub epoch: u16,
}

/// Why a policy was not put in force. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its tables could not be made.
    Compile(String),
    /// It has no interface.
    Empty,
    /// Another one is on trial.
    OnTrial,
    /// What it changes takes a restart.
    Restart(String),
}

/// No policy is on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTrial;

/// All that is known of a running gateway.
#[derive(Clone)]
pub struct Overview {
    /// What the workers go by.
    pub tables: Arc<Tables>,
    /// What each worker counted, in their order; one that does not answer is missing.
    pub reports: Vec<Report>,
    /// Ports, in the order of the policy's interfaces.
    pub ports: Vec<PortState>,
    /// What keeps Linux off interfaces.
    pub guards: Vec<GuardState>,
    /// Time since the start.
    pub uptime: Duration,
    /// Workers that panicked and began anew, in all.
    pub panics: u64,
    /// Log records written and left out.
    pub log: LogCounts,
    /// What the process may do.
    pub confinement: Confinement,
    /// What Linux says that could not be taken over.
    pub notes: Vec<String>,
    /// Time until the policy on trial goes back.
    pub trial: Option<Duration>,
}
