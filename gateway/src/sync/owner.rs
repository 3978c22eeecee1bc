//! Division of flows between the two gateways: when frames are handed over, and by which link.
//!
//! A gateway is *complete* once it has been told of all flows of the peer. Two complete gateways hand frames over by the owner of the
//! flow; one that is not complete hands over all packets of unknown flows to a peer that is. To a peer that is not complete, or that has
//! been silent for a second, nothing is handed over.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dataplane::peer::Handover;
use policy::model::Half;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::session::SessionError;
use super::shards::Shards;
use crate::peer::{PeerLink, PeerSocket, Refused, Standing};

/// Addresses of both ends of a session's connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) own: IpAddr,
    pub(super) peer: IpAddr,
}

/// Packets of unknown flows that are handed over to the second gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HandedOver {
    /// None.
    #[default]
    None,
    /// Packets of flows that the second gateway owns.
    Owned,
    /// All.
    All,
}

/// Status of the division of flows with a second gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerStatus {
    /// Packets of unknown flows that are handed over now.
    pub handed_over: HandedOver,
    /// Frames handed over to the second gateway.
    pub frames_sent: u64,
    /// Frames for the second gateway that the link did not take: they were dropped.
    pub frames_lost: u64,
    /// Frames taken from the second gateway.
    pub frames_taken: u64,
    /// Datagrams refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Obstacle to handing over, in words.
    pub trouble: Option<String>,
}

/// Division of flows, by the policy.
pub(super) struct Division {
    half: Option<Half>,
    standing: Arc<Standing>,
    socket: Mutex<Option<Arc<PeerSocket>>>,
    trouble: Mutex<Option<String>>,
    /// Completeness of this gateway and of the peer, in this session, and whether the peer has been told of the former.
    is_complete: AtomicBool,
    is_peer_complete: AtomicBool,
    is_told: AtomicBool,
    /// The workers have a link.
    is_linked: AtomicBool,
    /// Nothing has come from the peer for a while.
    is_silent: AtomicBool,
}

/// Handing over in a session; it ends when dropped.
pub(super) struct Begun<'a>(&'a Division);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.is_linked.store(false, Ordering::Relaxed);
        self.0.settle();
    }
}

impl Division {
    pub(super) fn new(half: Option<Half>) -> Division {
        Division {
            half,
            standing: Arc::default(),
            socket: Mutex::default(),
            trouble: Mutex::default(),
            is_complete: AtomicBool::new(false),
            is_peer_complete: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            is_linked: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        }
    }

    /// This gateway's half; none where its policy divides nothing.
    pub(super) fn half(&self) -> Option<Half> {
        self.half
    }

    /// State that the workers read.
    #[cfg(test)]
    pub(super) fn standing(&self) -> Arc<Standing> {
        self.standing.clone()
    }

    /// Stands for a session whose workers have a link.
    #[cfg(test)]
    pub(super) fn link_for_test(&self) {
        self.is_linked.store(true, Ordering::Relaxed);
    }

    /// Begins a session with a peer of that half, whose connection has these ends.
    ///
    /// # Errors
    /// The workers have ended.
    pub(super) async fn begin(
        &self,
        theirs: Option<Half>,
        ends: Option<Ends>,
        shards: &Shards,
    ) -> Result<Begun<'_>, SessionError> {
        for flag in
            [&self.is_complete, &self.is_peer_complete, &self.is_told, &self.is_linked, &self.is_silent]
        {
            flag.store(false, Ordering::Relaxed);
        }
        self.settle();
        let begun = Begun(self);
        let link = match self.link(theirs, ends) {
            Ok(link) => link,
            Err(trouble) => {
                warn!("synchronisation: {trouble}");
                *lock(&self.trouble) = Some(trouble);
                return Ok(begun);
            }
        };
        *lock(&self.trouble) = None;
        if let Some(link) = link {
            shards.follow_peer(&link).await?;
            self.is_linked.store(true, Ordering::Relaxed);
        }
        Ok(begun)
    }

    /// The link of a session; none where neither gateway divides flows.
    fn link(&self, theirs: Option<Half>, ends: Option<Ends>) -> Result<Option<PeerLink>, String> {
        let ends = match (self.half, theirs, ends) {
            (None, None, _) => return Ok(None),
            (Some(own), Some(theirs), Some(ends)) if own != theirs => ends,
            (None, Some(_), _) => {
                return Err("the peer divides flows by `sync-owner`, this gateway does not: nothing is handed over, and both may \
                            choose the same outside ports"
                    .to_owned());
            }
            (Some(_), None, _) => {
                return Err("the peer has no `sync-owner` in its policy: nothing is handed over, and both may choose the same outside \
                            ports"
                    .to_owned());
            }
            (Some(_), Some(_), None) => return Ok(None),
            (Some(_), Some(_), Some(_)) => {
                return Err("both gateways have the same half of flows and ports".to_owned());
            }
        };
        let mut socket = lock(&self.socket);
        let at = socket.as_ref().and_then(|socket| socket.address().ok());
        let open = match &*socket {
            Some(open) if at == Some(ends.own) => open.clone(),
            _ => {
                // What is left of another one is closed when the workers have the next.
                *socket = None;
                let open = PeerSocket::open(ends.own).map_err(|error| {
                    format!("nothing is handed over: UDP port 4789 at {} cannot be opened: {error}", ends.own)
                })?;
                socket.insert(Arc::new(open)).clone()
            }
        };
        Ok(Some(PeerLink::new(open, ends.peer, self.standing.clone())))
    }

    /// Notes that the peer has told of all its flows.
    pub(super) fn completed(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
        self.settle();
    }

    /// Notes that the peer has been told of all flows, and says so.
    pub(super) fn peer_completed(&self) {
        self.is_peer_complete.store(true, Ordering::Relaxed);
        self.settle();
    }

    /// True once if the peer is to be told that this gateway is complete.
    pub(super) fn is_to_be_told(&self) -> bool {
        let is_due = self.half.is_some() && self.is_complete.load(Ordering::Relaxed);
        is_due && !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// Notes that nothing has come from the peer for a while.
    pub(super) fn silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
        self.settle();
    }

    /// Notes that something has come from the peer.
    pub(super) fn heard(&self) {
        if self.is_silent.swap(false, Ordering::Relaxed) {
            self.settle();
        }
    }

    /// Tells the workers.
    fn settle(&self) {
        let read = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let is_up = read(&self.is_linked) && !read(&self.is_silent);
        let handover = match (is_up, read(&self.is_complete), read(&self.is_peer_complete)) {
            (true, true, true) => Handover::Owned,
            (true, false, true) => Handover::All,
            _ => Handover::None,
        };
        if self.standing.handover() != handover {
            self.standing.set(handover);
            match handover {
                Handover::Owned => {
                    info!("packets of unknown flows are handed over to the peer where it owns them")
                }
                Handover::All => info!(
                    "packets of unknown flows are handed over to the peer until all flows are known here"
                ),
                Handover::None => info!("no packets are handed over to the peer"),
            }
        }
    }

    /// Returns the status; none where nothing is divided, here and by the peer.
    pub(super) fn status(&self) -> Option<OwnerStatus> {
        let trouble = lock(&self.trouble).clone();
        if self.half.is_none() && trouble.is_none() {
            return None;
        }
        let standing = &self.standing;
        let refused =
            Refused::ALL.into_iter().map(|reason| (reason.words().to_owned(), standing.refused(reason)));
        Some(OwnerStatus {
            handed_over: match standing.handover() {
                Handover::None => HandedOver::None,
                Handover::Owned => HandedOver::Owned,
                Handover::All => HandedOver::All,
            },
            frames_sent: standing.handed_over(),
            frames_lost: standing.lost(),
            frames_taken: standing.taken(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            trouble,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it held the lock has left a value that is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
