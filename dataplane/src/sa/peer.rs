//! Outer ends of peers, and of those that move.

use policy::model::Follow;
use wire::Nanos;
use wire::esp::{NAT_PORT, Udp};

use super::learnt::is_apart;
use crate::tables::{Address, Tunnel};

/// Outer end of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Address.
    pub(crate) address: Address,
    /// UDP port, where ESP is encapsulated; else 0.
    pub(crate) port: u16,
}

impl Peer {
    /// The peer's end as the policy gives it.
    pub(super) fn of(tunnel: &Tunnel) -> Peer {
        let port = match tunnel.udp {
            Udp::No => 0,
            Udp::Yes => NAT_PORT,
        };
        Peer { address: tunnel.remote, port }
    }
}

/// The policy's word on the peer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    peer: Peer,
    follow: Follow,
}

impl Given {
    pub(super) fn of(tunnel: &Tunnel) -> Given {
        Given { peer: Peer::of(tunnel), follow: tunnel.follow }
    }
}

/// End that a peer's latest packet came from. `encap` goes by another one, so that packets before that one in a batch do not.
pub(super) struct Followed {
    seen: Peer,
    /// Moment when that changed.
    moved: Option<Nanos>,
    given: Given,
}

impl Followed {
    pub(super) fn new(tunnel: &Tunnel) -> Followed {
        Followed { seen: Peer::of(tunnel), moved: None, given: Given::of(tunnel) }
    }

    /// True for the address that the peer was last seen at.
    pub(super) fn is_at(&self, address: Address) -> bool {
        self.seen.address == address
    }

    /// Returns the source of a packet if that is news.
    #[inline]
    pub(super) fn moved(&mut self, source: Peer, now: Nanos) -> Option<Peer> {
        if self.given.follow == Follow::No || source == self.seen || !is_apart(self.moved, now) {
            return None;
        }
        (self.seen, self.moved) = (source, Some(now));
        Some(source)
    }

    /// Goes on from before a reload, if the policy says the same of the peer.
    pub(super) fn go_on(&mut self, before: &Followed) {
        if self.given == before.given {
            (self.seen, self.moved) = (before.seen, before.moved);
        }
    }
}
