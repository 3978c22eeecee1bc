//! State synchronisation with a second gateway: one connection of mutual TLS, by which each tells the other of the flows that it sees.
//!
//! A thread of its own opens or takes the connection, and opens it again when it breaks. A session begins with a greeting of one line,
//! which says the version, and a hello. Then each side sends all its flows, elements of dynamic sets and port mappings (full synchronisation),
//! and from there on the changes. What is sent is asked of the workers only when the connection has room for it, so that a slow peer costs no
//! memory here: changes wait in the shards' lists, once for each flow and element. Times go as spans, so that the clocks of the two need
//! not agree.
//!
//! Refused: a certificate of another authority, or none; another version; what is no message, or comes out of turn. A peer that is
//! silent for 5 seconds, or takes nothing for 10, has gone.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dataplane::flow::SteeringTable;
use dataplane::tables::Tables;
use policy::model::{Half, Sync, SyncPeer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};
use tracing::error;

use crate::port_mapping::Epoch;
use crate::worker::CommandSender;

mod files;
mod link;
mod message;
mod owner;
mod session;
mod shards;
mod status;
#[cfg(test)]
mod tests;

pub use owner::{HandedOver, OwnerStatus};
pub use status::{ReceivedCounts, SyncState, SyncStatus};

use link::Link;
use owner::Division;
use session::{PeerMemory, Times, conduct};
use shards::Shards;
use status::Account;

/// Identity of the flows of a gateway: another one once they are lost, by a restart or a worker's panic.
type Instance = [u64; 2];

/// State that the thread shares with the supervisor.
struct Shared {
    account: Account,
    division: Division,
    instance: Mutex<Instance>,
    /// Epoch of the server of port mappings.
    epoch: Arc<Epoch>,
    /// Wakes the session when there is another instance.
    begun_anew: Notify,
}

/// Supervisor's handle of the synchronisation; it ends when dropped.
pub struct Synchroniser {
    shared: Option<Arc<Shared>>,
    _stop: Option<oneshot::Sender<()>>,
}

impl Shared {
    fn new(peer: SyncPeer, instance: Instance, epoch: Arc<Epoch>) -> Shared {
        let (instance, begun_anew) = (Mutex::new(instance), Notify::new());
        Shared { account: Account::new(peer), division: Division::new(None), instance, epoch, begun_anew }
    }

    /// Divides flows with the peer, where this gateway has a half.
    fn dividing(self, half: Option<Half>) -> Shared {
        Shared { division: Division::new(half), ..self }
    }

    fn status(&self) -> SyncStatus {
        let (status, owner) = (self.account.status(), self.division.status());
        // Where flows are divided both are meant to be active.
        let both_active = status.both_active && self.division.half().is_none();
        SyncStatus { owner, both_active, ..status }
    }

    fn instance(&self) -> Instance {
        // A thread that panicked while it held the lock has done no harm to two numbers.
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Start parameters.
pub struct Start {
    /// Settings of the policy.
    pub sync: Sync,
    /// Command channels of the workers, in the order of their numbers.
    pub workers: Vec<CommandSender>,
    /// Flow steering table; none with a single worker.
    pub steering: Option<Arc<SteeringTable>>,
    /// Tables of the workers.
    pub tables: Arc<Tables>,
    /// Identity of the workers' flows: two random numbers.
    pub instance: [u64; 2],
    /// Epoch of the server of port mappings, which the two have in common.
    pub epoch: Arc<Epoch>,
}

impl Synchroniser {
    /// Starts the thread, where the policy has a peer.
    ///
    /// # Errors
    /// No thread.
    pub fn start(start: Start) -> io::Result<Synchroniser> {
        let Start { sync, workers, steering, tables, instance, epoch } = start;
        let Some(peer) = sync.peer else { return Ok(Synchroniser { shared: None, _stop: None }) };
        let shared = Arc::new(Shared::new(peer, instance, epoch).dividing(sync.half()));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let own = shared.clone();
        thread::Builder::new().name("sync".to_owned()).spawn(move || {
            let Some(link) = Link::new(&sync) else {
                return error!("no synchronisation: the policy names no certificate, key and authority");
            };
            let shards = Shards::new(workers, steering, tables);
            runtime.block_on(async {
                tokio::select! {
                    () = link::work(link, shards, own) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Synchroniser { shared: Some(shared), _stop: Some(stop) })
    }

    /// Notes that flows have been lost here: the peer keeps its copies, and tells of them.
    pub fn begin_anew(&self, instance: [u64; 2]) {
        if let Some(shared) = &self.shared {
            *shared.instance.lock().unwrap_or_else(PoisonError::into_inner) = instance;
            shared.begun_anew.notify_one();
        }
    }

    /// Returns the status; none where the policy has no peer.
    pub fn status(&self) -> Option<SyncStatus> {
        self.shared.as_ref().map(|shared| shared.status())
    }
}

/// Conducts one session over a stream that is there already, without TLS, until it breaks. Returns the status then, with the reason as
/// its trouble; none where the policy has no peer.
pub async fn converse<S: AsyncRead + AsyncWrite>(stream: S, start: Start) -> Option<SyncStatus> {
    let Start { sync, workers, steering, tables, instance, epoch } = start;
    let (shards, half) = (Shards::new(workers, steering, tables), sync.half());
    let shared = Shared::new(sync.peer?, instance, epoch).dividing(half);
    let mut memory = PeerMemory::default();
    let ended = conduct(stream, "the stream", &shards, &shared, &mut memory, Times::LIVE).await;
    shared.account.failed(&ended.to_string());
    Some(shared.status())
}
