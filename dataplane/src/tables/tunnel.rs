//! Tunnels, compiled: their ends, and the security associations that the policy gives.

use std::sync::Arc;

use esp::{Fingerprint, Transform};
use policy::model::{DfBit, Follow, FragmentWhen, KeySource, Legacy, Lifetime};
use wire::esp::{Direction, EcnUse, Esn, Mode, Standing, Suite, Tfc, Udp};
use wire::{Dscp, Nanos, PortId};

use super::{Address, Selectors, Spd, Tables};
use crate::sa::{Peer, Senders, Sequence, Sequences};

/// All tunnels, in the order of their interfaces.
#[derive(Default)]
pub struct Tunnels {
    /// Tunnels; [`Interface::tunnel`](super::Interface::tunnel) is a place in this list.
    pub list: Vec<Tunnel>,
    /// Packets that policy-based tunnels protect.
    pub spd: Spd,
    /// The gateway's ends: ordered, each once.
    locals: Vec<Address>,
    /// Numbers of all keys, of earlier tables too.
    sequences: Sequences,
}

/// Tunnel of ESP to one peer.
pub struct Tunnel {
    /// Interface of the tunnel: ingress of what comes out of it, egress of what goes into it.
    pub interface: PortId,
    /// Outer address of the gateway.
    pub local: Address,
    /// Outer address of the peer; none of a peer without a fixed one.
    pub remote: Option<Address>,
    /// Source of its security associations.
    pub keys: KeySource,
    /// Tunnel mode, or transport mode, in which packets keep their header.
    pub mode: Mode,
    /// UDP encapsulation that its MTU leaves room for.
    pub udp: Udp,
    /// Algorithms that its MTU leaves room for.
    pub suite: &'static Suite,
    /// Size of the window against replay of its security associations; 0 if numbers are not looked at.
    pub window: u32,
    /// Time without a packet after which a NAT on the way is kept open.
    pub keepalive: Option<Nanos>,
    /// Peers that move.
    pub follow: Follow,
    /// Fragmentation of packets that are too large.
    pub fragment: FragmentWhen,
    /// "Don't fragment" of outer packets.
    pub df: DfBit,
    /// Code point of outer packets; that of the inner packet where there is none.
    pub dscp: Option<Dscp>,
    /// Congestion notification across the tunnel.
    pub ecn: EcnUse,
    /// Padding against traffic analysis.
    pub tfc: Tfc,
    /// Use of weak algorithms.
    pub legacy: Legacy,
    /// Packets that it protects, wherever routes lead; none of a tunnel that routes lead into.
    pub selectors: Arc<Selectors>,
    /// Security association of packets that leave; none where an IKE daemon gives it.
    pub out: Option<SaSpec>,
    /// Security associations of packets that come in.
    pub inward: Vec<SaSpec>,
}

impl Tunnel {
    /// Outer destination of the packets of a direction, as it is in the name of their security associations: that of a peer without a fixed
    /// address is the unspecified one.
    pub fn destination(&self, direction: Direction) -> Address {
        match direction {
            Direction::In => self.local,
            Direction::Out => Peer::given(self.remote, self.local, self.udp).address,
        }
    }

    /// True if the tunnel may use the algorithms (RFC 8221).
    pub fn permits(&self, suite: &Suite) -> bool {
        self.legacy == Legacy::Allowed || suite.standing == Standing::Current
    }

    /// True if the peer is followed to where its packets come from. One of an IKE daemon's is only through a NAT: else the daemon itself moves
    /// it (RFC 7296, section 2.23; RFC 4555).
    pub(crate) fn follows(&self, udp: Udp) -> bool {
        self.keys == KeySource::Policy || udp == Udp::Yes
    }

    /// Largest inner packet where outer ones have `outer` bytes at most.
    pub(crate) fn inner_mtu(&self, outer: u16) -> u16 {
        let room = self.suite.inner_mtu(outer, self.local.family(), self.udp, self.mode);
        room.max(policy::tunnel::LEAST_MTU)
    }
}

/// Security association as the policy gives it. Its numbers are here, all other state is a shard's ([`Sas`](crate::sa::Sas)).
pub struct SaSpec {
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// UDP encapsulation.
    pub udp: Udp,
    /// UDP port that packets leave by; 0 without UDP.
    pub sport: u16,
    /// End of the peer, where it has not moved.
    pub peer: Peer,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Size of the window against replay; 0 if numbers are not looked at.
    pub window: u32,
    /// Packets that it may carry; all if there are none.
    pub selectors: Arc<Selectors>,
    /// Bounds at which a new one is due.
    pub soft: Lifetime,
    /// Bounds at which it ends.
    pub hard: Lifetime,
    /// Workers that send by it.
    pub senders: Senders,
    /// Cipher and integrity algorithm with their keys expanded, which all shards share.
    pub transform: Arc<dyn Transform>,
    /// Fingerprint of the key, by which later tables find it again.
    pub fingerprint: Fingerprint,
    /// Numbers used under the key: those that the tables before had, where the key is the same.
    pub sequence: Arc<Sequence>,
}

impl Tunnels {
    pub(crate) fn new(list: Vec<Tunnel>, spd: Spd) -> Tunnels {
        let mut locals: Vec<Address> = list.iter().map(|tunnel| tunnel.local).collect();
        locals.sort_unstable();
        locals.dedup();
        let mut tunnels = Tunnels { list, spd, locals, sequences: Sequences::default() };
        tunnels.go_on(Sequences::default());
        tunnels
    }

    /// Goes on with the numbers of keys that were used before.
    pub(crate) fn go_on(&mut self, sequences: Sequences) {
        let tunnels = self.list.iter_mut();
        sequences.take_over(tunnels.flat_map(|tunnel| tunnel.out.iter_mut().chain(&mut tunnel.inward)));
        self.sequences = sequences;
    }

    /// Numbers of all keys, of earlier tables too.
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Security associations that the policy gives, each with its tunnel.
    pub(crate) fn specs(&self) -> impl Iterator<Item = (&Tunnel, &SaSpec)> {
        self.list
            .iter()
            .flat_map(|tunnel| tunnel.out.iter().chain(&tunnel.inward).map(move |spec| (tunnel, spec)))
    }

    /// True if there is no tunnel.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if a tunnel ends at this address.
    #[inline]
    pub fn is_local(&self, address: Address) -> bool {
        self.locals.binary_search(&address).is_ok()
    }
}

impl Tables {
    /// These tables with the numbers of keys that were used before, by tables that are no more.
    #[must_use]
    pub fn going_on(mut self, sequences: Sequences) -> Tables {
        self.tunnels.go_on(sequences);
        self
    }

    /// Number of the tunnel that an interface is.
    #[inline(always)]
    pub fn tunnel_of(&self, interface: PortId) -> Option<u16> {
        self.interfaces.get(usize::from(interface.0))?.tunnel
    }

    /// Name of the tunnel of that number.
    pub fn tunnel_name(&self, number: u16) -> &str {
        let tunnel = self.tunnels.list.get(usize::from(number));
        let interface = tunnel.and_then(|tunnel| self.interface(tunnel.interface));
        interface.map_or("?", |interface| interface.name.as_str())
    }

    /// The tunnel that an interface is.
    #[inline]
    pub fn tunnel_at(&self, interface: PortId) -> Option<&Tunnel> {
        self.tunnels.list.get(usize::from(self.tunnel_of(interface)?))
    }
}
