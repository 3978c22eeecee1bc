//! Address translations.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use wire::siit::Prefix;

use super::rule::{AddressRange, Addresses, PortRange, Protocol};
use super::{OnFailure, PortMapping, ServerCheck};

/// An address translation. All conditions must hold; an empty list holds for all packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat {
    /// Name, unique among translations.
    pub name: String,
    /// Zones of origin.
    pub from: Vec<String>,
    /// Zones of destination; only for source translations (masquerade, source, exempt).
    pub to: Vec<String>,
    /// Source address, before translation.
    pub source: Addresses,
    /// Destination address: before destination translation for a forward or redirect, after it for a source translation.
    pub destination: Addresses,
    /// Transport protocols.
    pub protocols: Vec<Protocol>,
    /// Source ports, before translation; only for source translations (masquerade, source, exempt).
    pub sports: Vec<PortRange>,
    /// Destination ports, after destination translation; only for source translations (masquerade, source, exempt).
    pub dports: Vec<PortRange>,
    /// Action on matching packets.
    pub action: NatAction,
}

/// Action of a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatAction {
    /// The source becomes the address of the outgoing interface.
    Masquerade {
        /// Ports allocated.
        ports: PortUse,
    },
    /// The source becomes an address of a pool; each inside address keeps to one (RFC 4787, REQ-2).
    Source {
        /// Outside addresses.
        pool: Vec<AddressRange>,
        /// Ports allocated on each outside address.
        ports: PortUse,
    },
    /// The source stays as it is: an exception before a wider translation.
    Exempt,
    /// Port forward: the destination becomes an inside address.
    Forward {
        /// Outside address; each of the gateway's own addresses where absent.
        outside: Option<IpAddr>,
        /// Outside ports; all where empty.
        ports: Vec<PortRange>,
        /// Inside address.
        target: IpAddr,
        /// VRF of the inside address; the default one where absent.
        vrf: Option<Arc<str>>,
        /// Inside port for the first of `ports`, the others follow in order; unchanged where absent.
        target_port: Option<u16>,
        /// Hairpin: inside hosts reach the service by its outside address, too.
        hairpin: Hairpin,
    },
    /// Port forward to several servers, over which new connections are spread.
    Balance(Balance),
    /// The destination becomes the gateway itself: the first address of the interface that the packet came in by, of its IP
    /// version.
    Redirect {
        /// Destination ports; all where empty.
        ports: Vec<PortRange>,
        /// Port of the gateway for all of them; unchanged where absent.
        to_port: Option<u16>,
    },
    /// Inside and outside addresses translated to one another, one by one; prefixes of equal length.
    OneToOne {
        /// Outside addresses.
        outside: IpNet,
        /// Inside addresses.
        inside: IpNet,
        /// Hairpin: inside hosts reach one another by their outside addresses, too.
        hairpin: Hairpin,
    },
    /// IPv6 network prefix translation (RFC 6296): one by one as [`NatAction::OneToOne`], between networks of one length up to 64 bits, with
    /// addresses that leave checksums as they are.
    Npt {
        /// Outside prefix.
        outside: IpNet,
        /// Inside prefix.
        inside: IpNet,
        /// Hairpin, as above.
        hairpin: Hairpin,
    },
    /// Stateful NAT64 (RFC 6146): IPv6 hosts reach IPv4 hosts.
    Nat64(Nat64),
    /// CLAT, the customer side of 464XLAT (RFC 6877): IPv4 hosts reach IPv4 hosts by way of an IPv6 network.
    Clat(Clat),
}

impl NatAction {
    /// True for source translations: masquerade, source and exempt.
    pub fn is_of_source(&self) -> bool {
        matches!(self, NatAction::Masquerade { .. } | NatAction::Source { .. } | NatAction::Exempt)
    }
}

/// Stateful NAT64 (RFC 6146): an IPv6 destination in a prefix stands for an IPv4 host (RFC 6052); the packet leaves as IPv4, from an
/// IPv4 address of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64 {
    /// Prefix of IPv6 addresses that IPv4 addresses are embedded in.
    pub prefix: Prefix,
    /// IPv4 addresses that packets leave with; where empty, those of the interface that they leave by.
    pub pool: Vec<AddressRange>,
    /// Ports allocated on each IPv4 address. Blocks are on demand: nobody counts the addresses of an IPv6 network.
    pub ports: PortUse,
}

impl Nat64 {
    /// The prefix as a network.
    pub fn net(&self) -> Ipv6Net {
        net_of(self.prefix)
    }
}

impl Default for Nat64 {
    fn default() -> Nat64 {
        Nat64 { prefix: Prefix::WELL_KNOWN, pool: Vec::new(), ports: PortUse::default() }
    }
}

/// CLAT (RFC 6877): an IPv4 packet without a route of IPv4 leaves as IPv6, from an IPv6 address of the gateway, to its destination under the
/// prefix of a PLAT, which is the provider's NAT64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clat {
    /// Prefix of the PLAT, which IPv4 destinations are embedded in.
    pub prefix: Prefix,
    /// IPv6 addresses that packets leave with; where empty, those of the interface that they leave by.
    pub pool: Vec<AddressRange>,
    /// Ports allocated on each IPv6 address, without blocks.
    pub ports: PortUse,
}

impl Clat {
    /// The prefix as a network.
    pub fn net(&self) -> Ipv6Net {
        net_of(self.prefix)
    }
}

impl Default for Clat {
    fn default() -> Clat {
        Clat { prefix: Prefix::WELL_KNOWN, pool: Vec::new(), ports: PortUse::default() }
    }
}

fn net_of(prefix: Prefix) -> Ipv6Net {
    // A length of at most 96.
    Ipv6Net::new_assert(prefix.address(), prefix.length())
}

/// Port forward to several servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Outside address; each of the gateway's own addresses where absent.
    pub outside: Option<IpAddr>,
    /// Outside ports; all where empty.
    pub ports: Vec<PortRange>,
    /// Servers, of one IP version.
    pub servers: Vec<Server>,
    /// Connections that keep to one server.
    pub sticky: Sticky,
    /// Treatment of the connections of a server that goes down.
    pub on_failure: OnFailure,
    /// Hairpin: inside hosts reach the service by its outside address, too.
    pub hairpin: Hairpin,
    /// Health check of the servers by a live gateway; none where absent.
    pub check: Option<ServerCheck>,
}

/// A server of a [`Balance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Inside address.
    pub address: IpAddr,
    /// Inside port for the first outside port, the others follow in order; unchanged where absent.
    pub port: Option<u16>,
    /// Share of new connections, 1 to 255.
    pub weight: u8,
    /// State.
    pub state: ServerState,
}

/// State of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerState {
    /// New connections are spread over it, too.
    #[default]
    Up,
    /// New connections go to others.
    Down,
}

/// Connections that keep to one server, or to one WAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sticky {
    /// Each connection by itself.
    #[default]
    Connection,
    /// All connections of a client's address.
    Source,
}

impl Server {
    /// Address, with its port if it has one.
    pub fn target(&self) -> String {
        let Server { address, port, .. } = self;
        port.map_or_else(|| address.to_string(), |port| SocketAddr::new(*address, port).to_string())
    }
}

impl Balance {
    /// Most servers.
    pub const MOST_SERVERS: usize = 64;
}

/// Hairpinning: return of packets from inside to an outside address back inside (RFC 4787, section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpin {
    /// Such packets are turned back.
    #[default]
    On,
    /// Such packets are not turned back.
    Off,
}

/// Allocation of the ports of outside addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortUse {
    /// Ports (ICMP identifiers) for allocation; never empty.
    pub ranges: Vec<PortRange>,
    /// Most ports of one inside address at one time, for each protocol;
    /// [`PortUse::quota_in_force`] if absent.
    pub quota: Option<u32>,
    /// Ports of a block. Without `blocks_per_host` every inside address of the translation's `source` owns a block, computed, not
    /// remembered (deterministic NAT, RFC 7422).
    pub block: Option<u16>,
    /// Blocks on demand: an inside address takes one with its first connection, and further ones, up to so many, when its blocks are full; it
    /// gives each back with the last connection there.
    pub blocks_per_host: Option<u16>,
    /// Selection of an outside port for an inside endpoint.
    pub choice: PortChoice,
    /// Outside ports that hosts may ask for; none by default. Not of a NAT64 or CLAT.
    pub mapping: Option<PortMapping>,
}

/// Blocks of ports that inside addresses take when they need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Ports of a block.
    pub ports: u16,
    /// The most blocks of one inside address.
    pub most: u16,
}

impl OnDemand {
    /// Least ports of a block.
    pub const LEAST: u16 = 16;
    /// The most blocks of one inside address.
    pub const MOST: u16 = 64;
}

/// Selection of an outside port among the free ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortChoice {
    /// The inside port if free, else one of the same parity if there is one (RFC 4787, sections 4.2.1 and 4.2.2).
    #[default]
    Preserve,
    /// A random one (RFC 6056).
    Random,
}

/// Least default quota of one inside address, in ports.
const LEAST_QUOTA: u32 = 4_096;

impl PortUse {
    /// Ports of a block that an inside address owns by arithmetic.
    pub fn block_by_arithmetic(&self) -> Option<u16> {
        self.block.filter(|_| self.blocks_per_host.is_none())
    }

    /// Blocks on demand: ports of one, and the most of one inside address.
    pub fn blocks_on_demand(&self) -> Option<OnDemand> {
        let most = self.blocks_per_host?;
        self.block.map(|ports| OnDemand { ports, most })
    }

    /// Quota in force, in ports: if not configured, a quarter of the ports of one outside address, 4,096 at least, so that no
    /// host takes them all; `None` for inside addresses with blocks of their own, which are the quota.
    pub fn quota_in_force(&self) -> Option<u32> {
        let size = |range: &PortRange| u32::from(range.last).saturating_sub(range.first.into()) + 1;
        let ports: u32 = self.ranges.iter().map(size).sum();
        self.quota.or_else(|| self.block.is_none().then(|| (ports / 4).max(LEAST_QUOTA)))
    }
}

impl Default for PortUse {
    fn default() -> PortUse {
        PortUse {
            ranges: vec![PortRange { first: 1024, last: 65535 }],
            quota: None,
            block: None,
            blocks_per_host: None,
            choice: PortChoice::Preserve,
            mapping: None,
        }
    }
}
