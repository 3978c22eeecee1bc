//! Tunnels: interfaces whose link is ESP to a peer.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use wire::esp::{Direction, EcnUse, Esn, Mode, SUITES, Secret, Standing, Suite, Tfc, Udp};
use wire::{Dscp, Nanos};

use super::SelectorEnd;

/// Tunnel of an interface: IP packets in ESP (RFC 4303) to one peer and from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer address of the gateway: one of another interface.
    pub local: IpAddr,
    /// Outer address of the peer; none of a peer without a fixed address, whose packets say where it is.
    pub remote: Option<IpAddr>,
    /// Tunnel mode, or transport mode: then packets between both ends keep their IP header, and fields about outer headers are of no
    /// effect.
    pub mode: Mode,
    /// Sources of packets that go into the tunnel, wherever routes lead; none where routes do, and in transport mode for all that go from
    /// `local` to `remote`.
    pub local_net: Vec<SelectorEnd>,
    /// Their destinations.
    pub remote_net: Vec<SelectorEnd>,
    /// Destinations that this tunnel has nothing to do with, although its selectors match.
    pub direct: Vec<IpNet>,
    /// UDP encapsulation (RFC 3948), for a NAT on the way.
    pub udp: Udp,
    /// Time without a packet after which a NAT on the way is kept open by a single byte (RFC 3948, section 4): a second at least, and only with
    /// UDP encapsulation.
    pub keepalive: Option<Nanos>,
    /// Peers that move.
    pub follow: Follow,
    /// Fragmentation of packets that are too large.
    pub fragment: FragmentWhen,
    /// Window against replay.
    pub window: WindowSize,
    /// "Don't fragment" of outer packets; of no effect where they are IPv6.
    pub df: DfBit,
    /// Code point of outer packets.
    pub dscp: TunnelDscp,
    /// Congestion notification across the tunnel.
    pub ecn: EcnUse,
    /// Padding against traffic analysis.
    pub tfc: Tfc,
    /// Use of weak algorithms.
    pub legacy: Legacy,
    /// Source of its security associations.
    pub keys: KeySource,
    /// Number by which an IKE daemon's security associations are this tunnel's; by their outer addresses where there is neither this one nor
    /// the next.
    pub reqid: Option<u32>,
    /// Number of the interface by which they are; before `reqid`.
    pub if_id: Option<u32>,
    /// Security associations, in the order of the file.
    pub sas: Vec<StaticSa>,
}

/// Source of a tunnel's security associations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The policy, and the operator at run time.
    #[default]
    Policy,
    /// An IKE daemon.
    Ike,
}

/// Sign by which security associations of an IKE daemon are a tunnel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Number of the interface (`if_id_in` and `if_id_out` of strongSwan).
    IfId(u32),
    /// Number that binds security associations to policies.
    Reqid(u32),
    /// Outer addresses: the gateway's, and the peer's.
    Ends(IpAddr, Option<IpAddr>),
}

/// Fragmentation of packets that are too large for the way to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FragmentWhen {
    /// Inner packets are fragmented, and their senders told the MTU of the way.
    #[default]
    Before,
    /// Outer packets are fragmented: inner ones have the MTU of the tunnel's interface.
    After,
}

/// Following of a peer whose outer address or port changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// The peer's end is where its latest genuine packet came from.
    #[default]
    Yes,
    /// The peer's end is as the policy gives it.
    No,
}

/// Security association whose keys are in the policy, for laboratories and tests, or in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSa {
    /// Direction, as the gateway has it.
    pub direction: Direction,
    /// Security parameters index; 1 to 255 are reserved.
    pub spi: u32,
    /// Cipher and integrity algorithm.
    pub suite: Suite,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Bounds at which a new security association is due.
    pub soft: Lifetime,
    /// Bounds at which it ends.
    pub hard: Lifetime,
    /// Key, followed by the salt where the cipher has one (RFC 4106, section 8.1); empty where there is no cipher.
    pub key: Secret,
    /// Key of the integrity algorithm; empty where the cipher authenticates, or nothing does.
    pub auth_key: Secret,
    /// Files of the keys.
    pub files: KeyFiles,
}

/// Files that keys are in, relative to the directory of the policy; none of a key that is in the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFiles {
    /// File of the cipher's key.
    pub key: Option<PathBuf>,
    /// File of the integrity algorithm's key.
    pub auth_key: Option<PathBuf>,
    /// Reading of the files.
    pub reading: Reading,
}

/// Reading of the files of a security association's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// They have not been read: a key with a file is not known, and empty in the model.
    #[default]
    Due,
    /// They have been [read](crate::keys::read): the keys are theirs, whatever their lengths.
    Done,
}

impl KeyFiles {
    /// True if a key is not known, as its file has not been read.
    pub fn are_unread(&self) -> bool {
        self.reading == Reading::Due && (self.key.is_some() || self.auth_key.is_some())
    }
}

/// Bounds of a lifetime (RFC 4301, section 4.4.2.1): whichever is reached first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes that the cipher is applied to.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Time since the security association was added.
    pub time: Option<Nanos>,
}

impl Lifetime {
    /// No bounds.
    pub const UNBOUNDED: Lifetime = Lifetime { bytes: None, packets: None, time: None };
}

/// Window against replay of a tunnel's inbound security associations (RFC 4303, section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSize {
    /// Sequence numbers are not looked at.
    Off,
    /// So many of the highest numbers received are told apart.
    Numbers(u32),
}

impl WindowSize {
    /// Smallest window (RFC 4303, section 3.4.3).
    pub const LEAST: u32 = 32;
    /// Largest window.
    pub const MOST: u32 = 65_536;
    /// Numbers that are told apart; 0 if numbers are not looked at.
    pub fn numbers(self) -> u32 {
        match self {
            WindowSize::Off => 0,
            WindowSize::Numbers(numbers) => numbers,
        }
    }
}

impl Default for WindowSize {
    fn default() -> WindowSize {
        WindowSize::Numbers(64)
    }
}

/// "Don't fragment" of outer packets of IPv4 (RFC 4301, section 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DfBit {
    /// That of the inner packet; set where the inner packet is IPv6.
    #[default]
    Copy,
    /// Set.
    Set,
    /// Not set: routers may fragment the outer packet.
    Clear,
}

/// Code point of outer packets (RFC 2983).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelDscp {
    /// That of the inner packet.
    #[default]
    Copy,
    /// One for all packets.
    Fixed(Dscp),
}

impl TunnelDscp {
    /// The code point for all packets, if there is one.
    pub fn fixed(self) -> Option<Dscp> {
        match self {
            TunnelDscp::Copy => None,
            TunnelDscp::Fixed(dscp) => Some(dscp),
        }
    }
}

/// Use of algorithms that no longer protect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Legacy {
    /// They are refused.
    #[default]
    Refused,
    /// They are used, in a laboratory.
    Allowed,
}

impl Tunnel {
    /// Returns the sign by which security associations of an IKE daemon are the tunnel's.
    pub fn binding(&self) -> Binding {
        let number = self.if_id.map(Binding::IfId).or(self.reqid.map(Binding::Reqid));
        number.unwrap_or(Binding::Ends(self.local, self.remote))
    }

    /// Returns the UDP encapsulation that packets have to leave room for: an IKE daemon finds out whether there is a NAT on the way.
    pub fn room_for(&self) -> Udp {
        match self.keys {
            KeySource::Policy => self.udp,
            KeySource::Ike => Udp::Yes,
        }
    }

    /// Returns the algorithms that packets may leave by: of a tunnel whose security associations are an IKE daemon's, all that it may choose.
    pub fn suites_out(&self) -> Vec<Suite> {
        match self.keys {
            KeySource::Policy => self.sas(Direction::Out).map(|sa| sa.suite).collect(),
            KeySource::Ike => SUITES.iter().filter(|suite| self.permits(suite)).copied().collect(),
        }
    }

    /// True if the tunnel may use the algorithms (RFC 8221).
    pub fn permits(&self, suite: &Suite) -> bool {
        self.legacy == Legacy::Allowed || suite.standing == Standing::Current
    }

    /// Returns the security associations of one direction.
    pub fn sas(&self, direction: Direction) -> impl Iterator<Item = &StaticSa> {
        self.sas.iter().filter(move |sa| sa.direction == direction)
    }
}
