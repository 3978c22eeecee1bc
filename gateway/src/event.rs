//! Events for the supervisor: all that happens to a gateway, from Linux, workers, clients and the process, in one queue.

use policy::model::Listener;
use policy::{Checked, LoadError};

use crate::balance::ServerNews;
use crate::linux::News;
use crate::reload::Built;
use crate::request::Request;
use crate::set::SetNews;
use crate::wan::CheckNews;
use crate::worker::WorkerEvent;
use crate::xfrm::carried::{Change, TunnelFor};

/// Event for the supervisor.
pub enum Event {
    /// Change of Linux, or of a neighbour.
    Linux(News),
    /// Verdict of a WAN's check.
    Wan(CheckNews),
    /// Verdict of a server's check.
    Server(ServerNews),
    /// Outcome of reading the list of a dynamic set.
    Set(Box<SetNews>),
    /// Endpoints that sockets of the machine listen on.
    Listeners(Vec<Listener>),
    /// Event of a worker.
    Worker(WorkerEvent),
    /// Request of a client.
    Request(Request),
    /// Change of the security associations of IKE daemons.
    Ike(Change),
    /// Question for the tunnel of a security association.
    TunnelFor(TunnelFor),
    /// End of a compilation of tables.
    Built(Box<Built>),
    /// Request to stop the process.
    Stop,
    /// Outcome of rereading the policy file.
    Reread(Box<Result<Checked, LoadError>>),
}
