//! Filter rules and what they match.

use std::fmt;
use std::net::IpAddr;

use wire::ethernet::Mac;
use wire::{Dscp, Nanos};

pub use wire::header::Protocol;

/// A filter rule. Every condition that is given must hold; an empty list or `None` holds for all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique among rules, in every log, counter and trace.
    pub name: String,
    /// Zones of origin.
    pub from: Vec<String>,
    /// Zones of destination ([`SELF_ZONE`](super::SELF_ZONE) for the gateway itself).
    pub to: Vec<String>,
    /// Interfaces of origin.
    pub in_interfaces: Vec<String>,
    /// Interfaces of destination.
    pub out_interfaces: Vec<String>,
    /// IPv4, IPv6 or both.
    pub family: FamilyMatch,
    /// Source address of the Ethernet frame; given, a packet that came without an Ethernet header does not match.
    pub source_macs: Macs,
    /// Source address, before source NAT.
    pub source: Addresses,
    /// Destination address, after destination NAT.
    pub destination: Addresses,
    /// Transport protocols.
    pub protocols: Vec<Protocol>,
    /// Source ports, of TCP, UDP, SCTP or DCCP.
    pub sports: Vec<PortRange>,
    /// Destination ports.
    pub dports: Vec<PortRange>,
    /// ICMP types and codes, of the protocols that `protocols` lists (ICMP or ICMPv6).
    pub icmp: Vec<IcmpMatch>,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlagsMatch>,
    /// DiffServ code points.
    pub dscp: Vec<Dscp>,
    /// Connection states; empty means [`State::New`]. Packets of established and related connections do not
    /// meet the rules, and invalid ones never pass, so a rule without `New` has no effect.
    pub states: Vec<State>,
    /// The most connections (packets, where stateless) accepted in a time; those past it are dropped. Only
    /// with [`Action::Accept`].
    pub rate: Option<Rate>,
    /// The most connections at one time; those past it are dropped. Only with [`Action::Accept`].
    pub connections: Option<ConnectionLimit>,
    /// How long a connection that it accepts may be idle, TCP once it is established; as `[timeout]` says where absent. Only
    /// with [`Action::Accept`].
    pub timeout: Option<Nanos>,
    /// Who answers the SYN of a TCP connection that it accepts. Only with [`Action::Accept`].
    pub syn: SynAnswer,
    /// Logging of matches.
    pub log: Logging,
    /// What happens.
    pub action: Action,
}

impl Rule {
    /// True if the rule names [`OTHER_ZONE`](super::OTHER_ZONE) as an origin.
    pub fn names_other(&self) -> bool {
        self.from.iter().any(|zone| zone == super::OTHER_ZONE)
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// It passes, and so does the rest of its connection.
    Accept,
    /// It is dropped in silence.
    #[default]
    Drop,
    /// It is dropped and answered.
    Reject(RejectWith),
}

/// The answer to a rejected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectWith {
    /// TCP is answered with RST, all else with ICMP "administratively prohibited" (UDP: "port unreachable").
    #[default]
    Fitting,
    /// RST; all but TCP is dropped in silence.
    TcpReset,
    /// ICMP port unreachable.
    PortUnreachable,
    /// ICMP host unreachable (address unreachable, in ICMPv6).
    HostUnreachable,
    /// ICMP communication administratively prohibited.
    AdminProhibited,
}

/// Who answers the SYN of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynAnswer {
    /// The server.
    #[default]
    Forward,
    /// The gateway, with a cookie: the server hears of the connection when the client has acknowledged that (SYN proxy).
    Proxy,
}

/// Addresses that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The addresses; none means all addresses.
    pub items: Vec<AddressItem>,
    /// If true, every address but these matches, of the families that the items name.
    pub except: bool,
}

/// One item of a list of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressItem {
    /// Addresses from first to last.
    Range(AddressRange),
    /// All of a named set.
    Set(String),
}

/// Addresses of one family from `first` to `last`, both included; `first <= last`. A prefix is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    /// The lowest.
    pub first: IpAddr,
    /// The highest.
    pub last: IpAddr,
}

/// Ethernet addresses that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// The addresses; none means all, and frames without one.
    pub items: Vec<MacRange>,
    /// If true, every address but these matches.
    pub except: bool,
}

/// Ethernet addresses from `first` to `last`, both included; `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacRange {
    /// The lowest.
    pub first: Mac,
    /// The highest.
    pub last: Mac,
}

/// Which IP versions match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FamilyMatch {
    /// Both.
    #[default]
    Both,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Port numbers from `first` to `last`, both included; `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// An ICMP or ICMPv6 type, and its code where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpMatch {
    /// The type.
    pub kind: u8,
    /// The code; any where absent.
    pub code: Option<u8>,
}

/// TCP flags that must be set or clear: `flags & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlagsMatch {
    /// The flags looked at, as on the wire.
    pub mask: u8,
    /// Those of them that must be set.
    pub value: u8,
}

/// State of a packet's connection, in netfilter's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The packet may open one.
    New,
    /// The packet belongs to one.
    Established,
    /// The packet is an ICMP error about one.
    Related,
    /// The packet fits none and may not open one.
    Invalid,
}

/// A token bucket: `count` per `per`, and at most `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of them, 1 at least.
    pub count: u32,
    /// In which time.
    pub per: Nanos,
    /// Depth of the bucket, 1 at least.
    pub burst: u32,
    /// Scope: a bucket for each source address, or one for all.
    pub scope: Scope,
}

/// A bound on the connections that exist at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// The most, 1 at least.
    pub most: u32,
    /// Counted for whom.
    pub scope: Scope,
}

/// For whom a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// For all that match the rule together.
    #[default]
    Rule,
    /// For each source address by itself.
    Source,
}

/// Logging of matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// No.
    #[default]
    Off,
    /// Yes, the first packet of each connection.
    On,
}

impl AddressRange {
    /// The range that is one address.
    pub fn single(address: IpAddr) -> AddressRange {
        AddressRange { first: address, last: address }
    }

    /// True if `address` lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last && address.is_ipv4() == self.first.is_ipv4()
    }
}

impl MacRange {
    /// The range that is one address.
    pub const fn single(mac: Mac) -> MacRange {
        MacRange { first: mac, last: mac }
    }
}

impl fmt::Display for MacRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MacRange { first, last } = self;
        if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
    }
}

impl From<ipnet::IpNet> for AddressRange {
    fn from(net: ipnet::IpNet) -> AddressRange {
        // The highest address of the prefix, not what IPv4 calls broadcast: the two are the same bits.
        AddressRange { first: net.network(), last: net.broadcast() }
    }
}

impl PortRange {
    /// The range that is one port.
    pub const fn single(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }

    /// True if `port` lies in it.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}
