//! Filter rules and their conditions.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use wire::ethernet::Mac;
use wire::{Dscp, Nanos};

pub use wire::header::Protocol;

/// A filter rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Name in logs, counters and traces, unique among rules.
    pub name: String,
    /// Conditions on the packet.
    pub conditions: Conditions,
    /// Connection states; empty means [`State::New`]. Packets of established and related connections bypass the rules, and
    /// invalid ones never pass, so a rule without `New` has no effect.
    pub states: Vec<State>,
    /// Destination NAT of the connection: with a condition only connections whose destination was translated match, or only the others.
    pub dnat: Option<DnatStatus>,
    /// Most connections (packets, if stateless) per interval. Of a rule that accepts: those that are accepted. Of one that refuses: those
    /// that go on to the next rules, and only the excess is refused.
    pub rate: Option<Rate>,
    /// Fate of the excess over `rate`. Only with [`Action::Accept`].
    pub excess: Excess,
    /// Most concurrent connections; the excess is dropped. Only with [`Action::Accept`].
    pub connections: Option<ConnectionLimit>,
    /// Idle timeout of accepted connections, for TCP once established; that of `[timeout]` if absent. Only with
    /// [`Action::Accept`].
    pub timeout: Option<Nanos>,
    /// Responder to the SYN of an accepted TCP connection: server or gateway. Only with [`Action::Accept`].
    pub syn: SynAnswer,
    /// Helper that reads the accepted connections, and lets in those that they announce. Only with [`Action::Accept`].
    pub helper: Option<Helper>,
    /// Dynamic set that the source address of matching packets is added to, without the `@`.
    pub add_source: Option<String>,
    /// Lifetime of the element, from the last match on; the set's own if absent.
    pub add_for: Option<Nanos>,
    /// Logging of matches.
    pub log: Logging,
    /// Action on matching packets.
    pub action: Action,
}

impl Rule {
    /// True if the rate is a condition, by which packets that meet all others may go on to the next rules: those within it where the rule
    /// refuses, those above it where it accepts.
    pub fn matches_by_rate(&self) -> bool {
        self.rate.is_some() && (self.action != Action::Accept || self.excess == Excess::Next)
    }
}

/// Conditions on a packet, of which all must hold; an empty list or `None` holds for all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
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
    /// Source address of the Ethernet frame. With a condition, packets that came without an Ethernet header do not match.
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
    /// ICMP types and codes, of the protocol in `protocols` (ICMP or ICMPv6).
    pub icmp: Vec<IcmpMatch>,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlagsMatch>,
    /// DiffServ code points.
    pub dscp: Vec<Dscp>,
}

impl Conditions {
    /// True if [`OTHER_ZONE`](super::OTHER_ZONE) is named as an origin.
    pub fn names_other(&self) -> bool {
        self.from.iter().any(|zone| zone == super::OTHER_ZONE)
    }
}

/// Action on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The packet passes, with the rest of its connection.
    Accept,
    /// The packet is dropped silently.
    #[default]
    Drop,
    /// The packet is dropped and answered.
    Reject(RejectWith),
}

/// Answer to a rejected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectWith {
    /// TCP RST, or for other protocols ICMP "administratively prohibited" (for UDP "port unreachable").
    #[default]
    Fitting,
    /// TCP RST; other protocols are dropped silently.
    TcpReset,
    /// ICMP port unreachable.
    PortUnreachable,
    /// ICMP host unreachable (address unreachable, in ICMPv6).
    HostUnreachable,
    /// ICMP communication administratively prohibited.
    AdminProhibited,
}

/// Fate of what exceeds the rate of a rule that accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// The rule drops the excess.
    #[default]
    Drop,
    /// The excess meets the next rules.
    Next,
}

/// Responder to the SYN of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynAnswer {
    /// The server, to which the SYN is forwarded.
    #[default]
    Forward,
    /// The gateway, with a SYN cookie; the server sees the connection once the client has acknowledged the cookie (SYN proxy).
    Proxy,
}

/// Protocol helper (application layer gateway).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// FTP (RFC 959, RFC 2428).
    Ftp,
    /// SIP over UDP (RFC 3261), with session descriptions (RFC 8866).
    Sip,
    /// PPTP (RFC 2637), with the GRE of its calls.
    Pptp,
}

impl Helper {
    /// Transport protocol of the connections that the helper reads.
    pub fn protocol(self) -> Protocol {
        match self {
            Helper::Ftp | Helper::Pptp => Protocol::TCP,
            Helper::Sip => Protocol::UDP,
        }
    }
}

/// Address condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses; an empty list means all.
    pub items: Vec<AddressItem>,
    /// True if every address but these matches, of the families of the items.
    pub except: bool,
}

/// An element of a list of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressItem {
    /// Addresses from first to last.
    Range(AddressRange),
    /// All addresses of a named set, dynamic or not.
    Set(String),
}

/// Addresses of one family from `first` to `last`, inclusive; `first <= last`. Prefixes are ranges, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    /// Lowest address.
    pub first: IpAddr,
    /// Highest address.
    pub last: IpAddr,
}

/// Ethernet address condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// Addresses; an empty list means all, and frames without one.
    pub items: Vec<MacRange>,
    /// True if every address but these matches.
    pub except: bool,
}

/// Ethernet addresses from `first` to `last`, inclusive; `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacRange {
    /// Lowest address.
    pub first: Mac,
    /// Highest address.
    pub last: Mac,
}

/// IP versions matched.
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

/// Port numbers from `first` to `last`, inclusive; `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}

/// An ICMP or ICMPv6 type, with an optional code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpMatch {
    /// ICMP type.
    pub kind: u8,
    /// ICMP code; any if absent.
    pub code: Option<u8>,
}

/// TCP flags to be set or clear: `flags & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlagsMatch {
    /// Flags compared, as on the wire.
    pub mask: u8,
    /// Flags of `mask` that must be set.
    pub value: u8,
}

/// State of a packet's connection, in the terms of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The packet may open a connection.
    New,
    /// The packet belongs to a connection.
    Established,
    /// The packet is an ICMP error about a connection.
    Related,
    /// The packet belongs to no connection and may not open one.
    Invalid,
}

/// Destination NAT of a connection (conntrack status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DnatStatus {
    /// A translation of the policy has changed the destination's address or port. Those to the outside endpoint of a mapping, which nobody
    /// has asked to let in, are none.
    Translated,
    /// None has.
    Untranslated,
}

/// A token bucket: `count` tokens per `per`, at most `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of tokens, 1 at least.
    pub count: u32,
    /// Interval.
    pub per: Nanos,
    /// Depth of the bucket, in tokens, 1 at least.
    pub burst: u32,
    /// Scope: one bucket for each source address, or one for the rule.
    pub scope: Scope,
}

/// A bound on concurrent connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Most connections, 1 at least.
    pub most: u32,
    /// Scope of the count.
    pub scope: Scope,
}

/// Scope of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All packets that match the rule, together.
    #[default]
    Rule,
    /// Each source address by itself.
    Source,
}

/// Logging of matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// Nothing is logged.
    #[default]
    Off,
    /// The first packet of each connection is logged.
    On,
}

impl AddressRange {
    /// Returns the range of one address.
    pub fn single(address: IpAddr) -> AddressRange {
        AddressRange { first: address, last: address }
    }

    /// Returns the prefix that the range is, if it is one.
    pub fn network(&self) -> Option<IpNet> {
        let length = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (u32::from(first) ^ u32::from(last)).leading_zeros(),
            (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first) ^ u128::from(last)).leading_zeros(),
            _ => return None,
        };
        let net = IpNet::new(self.first, length as u8).ok()?;
        (AddressRange::from(net) == *self).then_some(net)
    }

    /// True if `address` lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last && address.is_ipv4() == self.first.is_ipv4()
    }
}

impl MacRange {
    /// Returns the range of one address.
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

impl From<IpNet> for AddressRange {
    fn from(net: IpNet) -> AddressRange {
        // The highest address of the prefix, not what IPv4 calls broadcast: the two are the same bits.
        AddressRange { first: net.network(), last: net.broadcast() }
    }
}

impl PortRange {
    /// Returns the range of one port.
    pub const fn single(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }

    /// True if `port` lies in the range.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}
