//! Account of the synchronisation, for status and metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dataplane::import::Refused;
use dataplane::port_mapping::NotTaken;
use dataplane::set::SetOutcome;
use dataplane::sync::Synced;
use policy::model::SyncPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::owner::OwnerStatus;

/// Time after a conflict for which both gateways count as active.
const RECENT: Duration = Duration::from_secs(10);

/// Reasons of refusals that are told apart, at most: some of them have names in them that the peer has given.
const REASONS: usize = 64;

/// Characters of such a name, at most.
const LONGEST_NAME: usize = 64;

/// State of the synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SyncState {
    /// There is no connection to the peer.
    #[default]
    Waiting,
    /// All flows are sent to the peer.
    Full,
    /// Changes are sent to the peer as they come.
    Incremental,
}

/// Status of the state synchronisation with a second gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SyncStatus {
    /// Peer, as the policy names it.
    pub peer: String,
    /// State.
    pub state: SyncState,
    /// Address of the peer, while there is a connection.
    pub address: Option<String>,
    /// Version of the peer's program, while there is a connection.
    pub version: Option<String>,
    /// Seconds since the connection was opened.
    pub connected_seconds: Option<f64>,
    /// Connections so far.
    pub connections: u64,
    /// Full synchronisations sent.
    pub full: u64,
    /// Times that more flows ended than are kept for the peer: a full synchronisation followed.
    pub overflows: u64,
    /// Flows sent: new and changed ones.
    pub flows_sent: u64,
    /// Ends of flows sent.
    pub ended_sent: u64,
    /// Elements of dynamic sets sent: new ones, and those that are over later than before.
    pub elements_sent: u64,
    /// Removals of elements sent.
    pub removed_sent: u64,
    /// Elements of dynamic sets received and taken in.
    pub elements_received: u64,
    /// Elements removed here as they were removed there.
    pub removed_received: u64,
    /// Port mappings sent: new and changed ones.
    pub port_mappings_sent: u64,
    /// Ends of port mappings sent.
    pub unmapped_sent: u64,
    /// Port mappings received and taken in.
    pub port_mappings_received: u64,
    /// Port mappings ended here as they were ended there.
    pub unmapped_received: u64,
    /// Flows received, by outcome.
    pub received: ReceivedCounts,
    /// Flows, elements and port mappings received and refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Seconds by which the peer's clock is ahead of this one's. Nothing of the synchronisation depends on it.
    pub clock_ahead_seconds: Option<f64>,
    /// Keys of tunnels by which both gateways send: each number would be used twice under them.
    pub shared_keys: u64,
    /// Both gateways have seen packets of the same flows, within the last ten seconds.
    pub both_active: bool,
    /// Division of flows with the peer; none where neither divides them.
    #[serde(default)]
    pub owner: Option<OwnerStatus>,
    /// The last trouble, in words; none once a connection has gone on behind it.
    pub trouble: Option<String>,
}

/// Flows received, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedCounts {
    /// Flows that were new here.
    pub created: u64,
    /// Flows that were there, and are now as the peer has them.
    pub updated: u64,
    /// Flows of which a later packet has been seen here: they stay as they are.
    pub older: u64,
    /// Flows of which both gateways have seen packets within a second.
    pub conflicts: u64,
    /// Flows that have ended there, and here with that.
    pub ended: u64,
}

/// Keys of the peer's tunnels.
pub(super) enum PeerKeys {
    /// The peer has another policy: those of its tunnels follow.
    Anew,
    /// Some of them, of which so many are this gateway's, too.
    Shared(usize),
}

/// Account that the thread keeps.
pub(super) struct Account(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    status: SyncStatus,
    connected: Option<Instant>,
    conflict: Option<Instant>,
}

impl Entries {
    fn refuse(&mut self, reason: String) {
        let refused = &mut self.status.refused;
        let is_room = refused.len() < REASONS || refused.contains_key(&reason);
        *refused.entry(if is_room { reason } else { "another reason".to_owned() }).or_default() += 1;
    }
}

impl Account {
    pub(super) fn new(peer: SyncPeer) -> Account {
        let status = SyncStatus { peer: peer.to_string(), ..SyncStatus::default() };
        Account(Mutex::new(Entries { status, ..Entries::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A thread that panicked while it held the lock has left numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> SyncStatus {
        let entries = self.lock();
        SyncStatus {
            connected_seconds: entries.connected.map(|since| since.elapsed().as_secs_f64()),
            both_active: entries.conflict.is_some_and(|at| at.elapsed() < RECENT),
            ..entries.status.clone()
        }
    }

    /// A session begins.
    pub(super) fn connected(&self, address: &str, version: &str, clock_ahead_seconds: f64) {
        let entries = &mut *self.lock();
        entries.connected = Some(Instant::now());
        let status = &mut entries.status;
        status.connections += 1;
        status.address = Some(address.to_owned());
        status.version = Some(version.to_owned());
        status.clock_ahead_seconds = Some(clock_ahead_seconds);
        status.state = SyncState::Full;
    }

    /// A session has ended, or none could be begun. The log tells of it unless it has just told the same.
    pub(super) fn failed(&self, trouble: &str) {
        let entries = &mut *self.lock();
        let was_connected = entries.connected.take().is_some();
        let status = &mut entries.status;
        (status.state, status.address, status.version) = (SyncState::Waiting, None, None);
        if was_connected || status.trouble.as_deref() != Some(trouble) {
            warn!("synchronisation: {trouble}");
        }
        status.trouble = Some(trouble.to_owned());
    }

    /// A connection was refused beside the session, which goes on.
    pub(super) fn refused_beside(&self, trouble: &str) {
        let status = &mut self.lock().status;
        if status.trouble.as_deref() != Some(trouble) {
            warn!("synchronisation: {trouble}");
        }
        status.trouble = Some(trouble.to_owned());
    }

    /// The peer has told of the keys of its tunnels.
    pub(super) fn peer_keys(&self, keys: PeerKeys) {
        let status = &mut self.lock().status;
        match keys {
            PeerKeys::Anew => status.shared_keys = 0,
            PeerKeys::Shared(0) => {}
            PeerKeys::Shared(count) => {
                status.shared_keys += count as u64;
                warn!(
                    "synchronisation: {count} tunnels of the peer send under keys of this gateway's: numbers would be used twice; give each gateway keys of its own"
                );
            }
        }
    }

    /// All flows have been sent.
    pub(super) fn full_ended(&self) {
        let status = &mut self.lock().status;
        status.full += 1;
        status.state = SyncState::Incremental;
        status.trouble = None;
    }

    pub(super) fn overflowed(&self) {
        let status = &mut self.lock().status;
        status.overflows += 1;
        status.state = SyncState::Full;
    }

    pub(super) fn sent(&self, flows: usize, ended: usize) {
        let status = &mut self.lock().status;
        status.flows_sent += flows as u64;
        status.ended_sent += ended as u64;
    }

    pub(super) fn received(&self, outcomes: &[Result<Synced, Refused>], ended: u64) {
        let entries = &mut *self.lock();
        entries.status.received.ended += ended;
        for outcome in outcomes {
            let received = &mut entries.status.received;
            match outcome {
                Ok(Synced::Created) => received.created += 1,
                Ok(Synced::Updated) => received.updated += 1,
                Ok(Synced::Older) => received.older += 1,
                Ok(Synced::Conflict) => {
                    received.conflicts += 1;
                    entries.conflict = Some(Instant::now());
                }
                Err(reason) => entries.refuse(reason.to_string()),
            }
        }
    }

    pub(super) fn sent_elements(&self, elements: usize, removed: usize) {
        let status = &mut self.lock().status;
        status.elements_sent += elements as u64;
        status.removed_sent += removed as u64;
    }

    /// Elements were taken in, or refused, with the name that the peer has for the set of each.
    pub(super) fn received_elements<'a>(
        &self,
        outcomes: impl Iterator<Item = (Option<&'a str>, Result<SetOutcome, Refused>)>,
    ) {
        let entries = &mut *self.lock();
        for (set, outcome) in outcomes {
            let named = || named(set);
            match outcome {
                Ok(_) => entries.status.elements_received += 1,
                Err(Refused::TableFull) => entries.refuse(format!("the set \"{}\" is full here", named())),
                Err(Refused::NameGone) => {
                    let what = "this policy has none of that name that rules and requests fill";
                    entries.refuse(format!("an element of the set \"{}\": {what}", named()));
                }
                Err(reason) => entries.refuse(reason.to_string()),
            }
        }
    }

    pub(super) fn sent_port_mappings(&self, mappings: usize, removed: usize) {
        let status = &mut self.lock().status;
        status.port_mappings_sent += mappings as u64;
        status.unmapped_sent += removed as u64;
    }

    /// Port mappings were taken in, or refused, with the name that the peer has for the translation of each.
    pub(super) fn received_port_mappings<'a>(
        &self,
        outcomes: impl Iterator<Item = (Option<&'a str>, Result<Synced, NotTaken>)>,
    ) {
        let entries = &mut *self.lock();
        for (nat, outcome) in outcomes {
            match outcome {
                Ok(Synced::Created | Synced::Updated) => entries.status.port_mappings_received += 1,
                Ok(Synced::Older | Synced::Conflict) => {}
                Err(reason) => {
                    entries.refuse(format!("a port mapping of the translation \"{}\": {reason}", named(nat)));
                }
            }
        }
    }

    pub(super) fn unmapped(&self, ended: u64) {
        self.lock().status.unmapped_received += ended;
    }

    pub(super) fn removed_elements(&self, removed: u64) {
        self.lock().status.removed_received += removed;
    }
}

/// A name that the peer has given, fit for a line.
fn named(name: Option<&str>) -> String {
    let name = name.unwrap_or_default().chars().take(LONGEST_NAME);
    name.collect::<String>().escape_debug().to_string()
}
