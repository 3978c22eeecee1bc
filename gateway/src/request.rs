//! Requests to a running gateway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dataplane::Tables;
use dataplane::flow::SteeringTable;
use dataplane::sa::Fingerprint;
use policy::Policy;
use ports::FastPath;
use wire::esp::Direction;

use crate::balance::ServerView;
use crate::effective::Effective;
use crate::guard::GuardState;
use crate::history::{By, HistoryView};
use crate::ipfix::IpfixCounts;
use crate::log::LogCounts;
use crate::multicast::MulticastView;
use crate::port::PortState;
use crate::port_mapping::Mapper;
use crate::privilege::Confinement;
use crate::sa::{ReserveError, TunnelStatus};
use crate::set::{SetChanged, SetFaults, SetView};
use crate::supervisor::{SaAsked, SaTrouble, SetAsked};
use crate::sync::SyncStatus;
use crate::wan::WanView;
use crate::worker::{CommandSender, Known, Reply, Report};

/// Request to the supervisor.
pub enum Request {
    /// Overview: all counters and states.
    Overview(Reply<Overview>),
    /// Apply another policy.
    Apply {
        /// Policy.
        policy: Box<Policy>,
        /// Time after which the policy is rolled back unless confirmed.
        confirm: Option<Duration>,
        /// User and comment.
        by: By,
        /// Reply, sent once all workers use the policy.
        reply: Reply<Result<Applied, Refusal>>,
    },
    /// Confirm the policy on trial.
    Confirm(Reply<Result<(), NoTrial>>),
    /// Roll back the policy on trial.
    Rollback(Reply<Result<(), NoTrial>>),
    /// History of policies put in force; none where no history is kept.
    History(Reply<Option<HistoryView>>),
    /// Text of a policy in the history.
    Kept {
        /// Number of the policy.
        number: u64,
        /// Reply: the text, if there is such an entry.
        reply: Reply<Option<String>>,
    },
    /// Remove guards from interfaces that the policy does not name: from the given ones, or from all if none is given.
    Release {
        /// Interfaces.
        interfaces: Vec<String>,
        /// Reply: the interfaces released, or an error.
        reply: Reply<Result<Vec<String>, String>>,
    },
    /// Add a security association.
    AddSa(Box<SaAsked>, Reply<Result<(), SaTrouble>>),
    /// Delete a security association.
    DeleteSa {
        /// Tunnel.
        tunnel: String,
        /// Direction.
        direction: Direction,
        /// Security parameters index.
        spi: u32,
        /// Reply.
        reply: Reply<Result<(), SaTrouble>>,
    },
    /// Delete all security associations, or those of a tunnel.
    FlushSas(Option<String>, Reply<Result<usize, SaTrouble>>),
    /// Reserve sequence numbers behind those that another gateway may have used, by key.
    Reserve(HashMap<Fingerprint, u64>, Reply<Result<(), ReserveError>>),
    /// Change a dynamic set.
    ChangeSet {
        /// Name of the set.
        set: String,
        /// Change.
        asked: SetAsked,
        /// Reply.
        reply: Reply<Result<SetChanged, SetTrouble>>,
    },
    /// Lines of a set's list that say no address; none where the set has no list.
    SetFaults {
        /// Name of the set.
        set: String,
        /// Reply.
        reply: Reply<Option<SetFaults>>,
    },
    /// Access to the workers' port mappings.
    PortMapper(Reply<Mapper>),
    /// Command channels to the workers.
    Workers(Reply<Vec<CommandSender>>),
    /// Policy in force, as requested.
    Policy(Reply<Arc<Policy>>),
    /// Tables, steering and neighbours of the workers.
    Basis(Reply<Basis>),
}

/// Tables, steering and neighbours that the workers use.
#[derive(Clone)]
pub struct Basis {
    /// Tables of the workers.
    pub tables: Arc<Tables>,
    /// Policy that the tables were compiled from: the policy in force, merged with the state of Linux.
    pub effective: Arc<Effective>,
    /// Flow steering table, with several workers.
    pub steering: Option<Arc<SteeringTable>>,
    /// Resolved neighbours.
    pub neighbours: Arc<[Known]>,
}

/// Success: the policy is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Epoch of its tables.
    pub epoch: u16,
}

/// Reason for refusing a policy. The policy in force stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Compile error.
    Compile(String),
    /// No interfaces.
    Empty,
    /// Another policy on trial.
    OnTrial,
    /// Change that requires a restart.
    Restart(String),
}

/// Reason for which a dynamic set is not changed on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTrouble {
    /// No such set.
    Unknown,
    /// A file or a URL fills the set.
    Listed,
}

/// Error: no policy is on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTrial;

/// Overview of a running gateway.
#[derive(Clone)]
pub struct Overview {
    /// Tables of the workers.
    pub tables: Arc<Tables>,
    /// Counters of each worker, in order; a worker that does not answer is missing.
    pub reports: Vec<Report>,
    /// Tunnels, with all that their security associations have counted, those that are gone too.
    pub tunnels: Vec<TunnelStatus>,
    /// WANs, in the order of the policy.
    pub wans: Vec<WanView>,
    /// Servers of translations, in the order of the policy.
    pub servers: Vec<ServerView>,
    /// Dynamic sets, in the order of the policy.
    pub sets: Vec<SetView>,
    /// Multicast routes: the policy's own, and then Linux's.
    pub multicast_routes: Vec<MulticastView>,
    /// Ports, in the order of the policy's interfaces.
    pub ports: Vec<PortState>,
    /// Guards of interfaces.
    pub guards: Vec<GuardState>,
    /// Fast path; none where the kernel carries no flows.
    pub fast_path: Option<Arc<FastPath>>,
    /// Time since the start.
    pub uptime: Duration,
    /// Panics of workers, each followed by a restart of the worker.
    pub panics: u64,
    /// Log records written and left out.
    pub log: LogCounts,
    /// Records exported and lost.
    pub ipfix: IpfixCounts,
    /// State synchronisation with a second gateway; none where the policy has no peer.
    pub sync: Option<SyncStatus>,
    /// Privileges of the process.
    pub confinement: Confinement,
    /// Entries of Linux's state left out, and a policy that is not kept.
    pub notes: Vec<String>,
    /// Time until the policy on trial is rolled back.
    pub trial: Option<Duration>,
}
