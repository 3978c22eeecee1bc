//! Outer ends of peers, and of those that move.

use policy::model::{Follow, KeySource};
use wire::Nanos;
use wire::esp::{NAT_PORT, Udp};

use super::learnt::is_apart;
use crate::tables::{Address, Tunnel};

/// Outer end of a peer. Of one without a fixed address it is not known before its first genuine packet: then the address is the unspecified one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address.
    pub address: Address,
    /// UDP port, where ESP is encapsulated; else 0.
    pub port: u16,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.address.to_ip(), self.port) {
            (address, 0) => write!(f, "{address}"),
            (address, port) => write!(f, "{}", std::net::SocketAddr::new(address, port)),
        }
    }
}

impl Peer {
    /// The peer's end at the address that a policy gives, if it gives one, without a NAT in between; `local` is the gateway's end.
    pub(crate) fn given(remote: Option<Address>, local: Address, udp: Udp) -> Peer {
        let address = remote.unwrap_or(Address { bits: 0, ..local });
        Peer { address, port: usual_port(udp) }
    }

    /// True for an end that packets can be sent to, wherever routes lead.
    pub fn is_known(self) -> bool {
        self.address.bits != 0
    }

    /// True for an end that packets with this encapsulation can be sent to.
    pub(crate) fn takes(self, udp: Udp) -> bool {
        (udp == Udp::Yes) == (self.port != 0)
    }
}

/// UDP port of either end without a NAT in between; 0 without UDP.
pub(crate) fn usual_port(udp: Udp) -> u16 {
    match udp {
        Udp::No => 0,
        Udp::Yes => NAT_PORT,
    }
}

/// The word of the policy, or of an IKE daemon, on the peer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    peer: Peer,
    follow: Follow,
}

impl Given {
    pub(super) fn new(peer: Peer, tunnel: &Tunnel) -> Given {
        Given { peer, follow: tunnel.follow }
    }
}

/// End that a peer's latest packet came from, on whichever security association. `encap` goes by another one, so that packets before that
/// one in a batch do not.
pub(super) struct Followed {
    seen: Peer,
    /// Moment when that changed.
    moved: Option<Nanos>,
    given: Given,
    /// Whose word that is.
    keys: KeySource,
}

impl Followed {
    pub(super) fn new(tunnel: &Tunnel) -> Followed {
        let udp = tunnel.out.as_ref().map_or(Udp::No, |out| out.udp);
        let peer = Peer::given(tunnel.remote, tunnel.local, udp);
        Followed { seen: peer, moved: None, given: Given::new(peer, tunnel), keys: tunnel.keys }
    }

    /// Takes an IKE daemon's word on the peer's end. Returns the end that packets go to: where the peer was seen last, if the word is the one of
    /// before.
    pub(super) fn heed(&mut self, peer: Peer) -> Peer {
        if self.given.peer != peer {
            self.given.peer = peer;
            (self.seen, self.moved) = (peer, None);
        }
        self.seen
    }

    /// End that the peer was last seen at, or is to be at.
    pub(super) fn seen(&self) -> Peer {
        self.seen
    }

    /// True for the address that the peer was last seen at.
    pub(super) fn is_at(&self, address: Address) -> bool {
        self.seen.address == address
    }

    /// True if the peer is to be followed to the source of a packet.
    #[inline]
    pub(super) fn is_elsewhere(&self, source: Peer) -> bool {
        source != self.seen && self.given.follow != Follow::No
    }

    /// Takes the source of a packet for the peer's end. Returns false if it has moved a moment ago.
    pub(super) fn has_moved(&mut self, source: Peer, now: Nanos) -> bool {
        if !is_apart(self.moved, now) {
            return false;
        }
        (self.seen, self.moved) = (source, Some(now));
        true
    }

    /// Takes in what another shard has seen, if the policy says the same of the peer. Returns false if it does not.
    pub(super) fn has_heard(&mut self, seen: Peer, given: Given, at: Nanos) -> bool {
        let is_same = self.given == given;
        if is_same {
            (self.seen, self.moved) = (seen, Some(at));
        }
        is_same
    }

    /// The policy's word on the peer's end.
    pub(super) fn given(&self) -> Given {
        self.given
    }

    /// Goes on from before a reload, if the policy says the same of the peer. A daemon has said nothing new.
    pub(super) fn go_on(&mut self, before: &Followed) {
        let are_daemons = [self.keys, before.keys] == [KeySource::Ike; 2];
        if are_daemons {
            self.given.peer = before.given.peer;
        }
        if self.given == before.given {
            (self.seen, self.moved) = (before.seen, before.moved);
        } else if are_daemons {
            self.seen = self.given.peer;
        }
    }
}
