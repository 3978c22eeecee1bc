//! Selectors of tunnels (RFC 4301, section 4.4.1.1).

use ipnet::IpNet;
use wire::esp::Mode;

use super::{PortRange, Protocol, Tunnel};

/// One side of the packets that a tunnel protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorEnd {
    /// Addresses.
    pub net: IpNet,
    /// Protocol; any where there is none.
    pub protocol: Option<Protocol>,
    /// Ports of a protocol that has ports; all where there are none.
    pub ports: Option<PortRange>,
}

/// Both sides of packets that a tunnel protects: of one IP version and one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorPair {
    /// On the gateway's side: source of packets that go into the tunnel.
    pub local: SelectorEnd,
    /// On the peer's side.
    pub remote: SelectorEnd,
    /// Protocol; any where there is none.
    pub protocol: Option<Protocol>,
}

impl SelectorEnd {
    /// All packets of these addresses.
    pub fn of(net: IpNet) -> SelectorEnd {
        SelectorEnd { net, protocol: None, ports: None }
    }
}

impl SelectorPair {
    /// The packets of both sides; `None` if there can be none.
    pub fn of(local: SelectorEnd, remote: SelectorEnd) -> Option<SelectorPair> {
        let is_one_version = local.net.addr().is_ipv4() == remote.net.addr().is_ipv4();
        let protocol = local.protocol.or(remote.protocol);
        let is_one_protocol = remote.protocol.is_none_or(|of| protocol == Some(of));
        (is_one_version && is_one_protocol).then_some(SelectorPair { local, remote, protocol })
    }

    /// True if packets may match both, going the same way.
    pub fn overlaps(&self, other: &SelectorPair) -> bool {
        let ports = |one: Option<PortRange>, other: Option<PortRange>| match (one, other) {
            (Some(one), Some(other)) => one.first <= other.last && other.first <= one.last,
            _ => true,
        };
        let protocols = match (self.protocol, other.protocol) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        overlap(self.local.net, other.local.net)
            && overlap(self.remote.net, other.remote.net)
            && protocols
            && ports(self.local.ports, other.local.ports)
            && ports(self.remote.ports, other.remote.ports)
    }
}

impl Tunnel {
    /// True if selectors say what goes into the tunnel, rather than routes.
    pub fn is_by_policy(&self) -> bool {
        self.mode == Mode::Transport || !self.local_net.is_empty() || !self.remote_net.is_empty()
    }

    /// Selectors in their order: all of the first local side first. In transport mode, without any, those of both ends.
    pub fn selectors(&self) -> impl Iterator<Item = SelectorPair> + '_ {
        let has_none = self.local_net.is_empty() && self.remote_net.is_empty();
        let known = self.remote.filter(|_| self.mode == Mode::Transport && has_none);
        let ends = known.map(|remote| {
            let [local, remote] = [self.local, remote].map(|end| SelectorEnd::of(IpNet::from(end)));
            SelectorPair { local, remote, protocol: None }
        });
        let of = |local: &SelectorEnd| {
            let local = *local;
            self.remote_net.iter().filter_map(move |remote| SelectorPair::of(local, *remote))
        };
        ends.into_iter().chain(self.local_net.iter().flat_map(of))
    }
}

/// True if two prefixes have an address in common: one contains the other.
pub(crate) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}
