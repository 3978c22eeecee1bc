//! Translations, compiled to the tables of stages `dnat` and `snat`.
//!
//! Source and destination translations are two lists; of each, the first that matches applies. A flow
//! carries both places in one number, see [`NatTables::pair`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use policy::model::Half;
use tally::Tally;
use wire::siit::Prefix;
use wire::{Nanos, PortId};

use super::{Address, AddressMatch, VrfId};
use crate::nat::{NetworkPair, PoolConfig, PortRange, Share};
use crate::port_mapping::MappedBy;

mod server;
mod source;

use crate::stage::route::is_link_local;
use crate::verdict::Reason;
use lookup::classify::{self, AddressSpan, Classifier, Header, Position};
pub use server::{Server, Servers};
pub use source::{Outgoing, OwnAddress};

/// Translations, compiled.
pub struct NatTables {
    /// Destination translations: their search.
    pub destination_search: Box<dyn Classifier>,
    /// The destination translation of each pattern, by place in `destinations`.
    pub destination_of: Vec<u16>,
    /// Source translations: their search.
    pub source_search: Box<dyn Classifier>,
    /// The source translation of each pattern, by place in `sources`.
    pub source_of: Vec<u16>,
    /// Destination translations, by place.
    pub destinations: Vec<NatRule<DestinationAction>>,
    /// Source translations, by place.
    pub sources: Vec<NatRule<SourceAction>>,
    /// Pools of outside addresses and ports.
    pub pools: Vec<PoolConfig>,
    /// Owner of each pool.
    pub owners: Vec<PoolOwner>,
    /// Pools of the gateway's own addresses, by place of the interface, for packets that no source translation matches but
    /// that must be translated ([`OWN_ACCORD`]); empty if there are no such packets.
    pub accord: Vec<Outgoing>,
    /// Port forwards by target, ascending.
    pub returning: Vec<Returning>,
    /// True if one of the translations is between IP versions.
    pub has_translator: bool,
    /// Source translations whose hosts may ask for outside ports, in their order.
    pub port_mappings: Vec<PortMappingSpec>,
    /// Zones whose hosts may ask by UPnP, a bit each: their searches to [`SSDP`] are for the gateway.
    pub upnp_zones: u64,
    /// Number of gateways that divide the ports of outside addresses: 2 with a second one ([`Pair`](super::Pair)), else 1.
    pub gateways: u16,
    /// Addresses of all pools, merged: the destinations of packets from outside that may have a mapping.
    pub outside: Vec<AddressSpan>,
}

/// Group of searches for UPnP devices (UPnP Device Architecture 1.1, section 1.3.2): 239.255.255.250.
pub const SSDP: Address = Address { bits: 0xefff_fffa, v6: false };

/// Outside ports of a source translation that its hosts may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMappingSpec {
    /// The source translation, by place from 0.
    pub source: u16,
    /// Zones of the hosts, a bit each.
    pub zones: u64,
    /// Addresses of the hosts, of which any matches.
    pub hosts: Vec<AddressMatch>,
    /// Outside ports: disjoint, ascending.
    pub ports: Vec<PortRange>,
    /// Longest lifetime that a host gets.
    pub lifetime: Nanos,
    /// Most mappings of a host.
    pub per_host: u32,
    /// Most mappings of the translation, on each worker.
    pub size: u32,
    /// Longest lifetime of requests by UPnP; none where they are not answered.
    pub upnp: Option<Nanos>,
}

impl PortMappingSpec {
    /// True if a mapping of an outside port may be there, by the origin of its request.
    pub(crate) fn allows(&self, by: MappedBy, port: u16) -> bool {
        (by != MappedBy::Upnp || self.upnp.is_some()) && self.ports.iter().any(|range| range.has(port))
    }
}

/// The translation that a pool is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOwner {
    /// The source translation, by place from 0; [`OWN_ACCORD`] where it is none of the policy's.
    pub source: u16,
    /// The interface of whose addresses it is, where the translation is a masquerade, or none.
    pub interface: Option<PortId>,
}

/// In the place of a source translation: the gateway translates of its own accord, because answers would go past it or to
/// another flow.
pub const OWN_ACCORD: u16 = u16::MAX;

/// A port forward, seen from its target: what the target sends from there leaves by the outside port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returning {
    /// The inside address.
    pub target: Address,
    /// Its VRF.
    pub vrf: VrfId,
    /// Inside ports.
    pub ports: PortRange,
    /// The outside port of the lowest of them.
    pub outside_port: u16,
    /// Transport protocols.
    pub protocols: Vec<u8>,
    /// Zones that it is forwarded from, and outside addresses.
    pub homes: Vec<Home>,
}

/// Outside addresses, and where they are at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The addresses.
    pub addresses: AddressSpan,
    /// The interface that packets to them would leave by, were they not translated.
    pub interface: PortId,
    /// Zones whose packets come from outside; those of others are turned back (hairpin).
    pub zones: u64,
}

/// A translation, compiled.
#[derive(Clone, Debug)]
pub struct NatRule<Action> {
    /// Its name.
    pub name: String,
    /// Its number, which stays with its name.
    pub number: u32,
    /// Action of the translation.
    pub action: Action,
}

/// A destination translation.
#[derive(Clone, Debug)]
pub struct DestinationAction {
    /// The outside addresses: disjoint, ascending.
    pub addresses: Vec<AddressSpan>,
    /// The new destinations.
    pub to: NewDestination,
    /// Outside ports that become others; where there is none, ports stay.
    pub ports: Vec<PortShift>,
    /// Interfaces and zones of the outside addresses.
    pub homes: Vec<Home>,
    /// VRF of the new destinations; `None` for that of the packet.
    pub vrf: Option<VrfId>,
}

/// New destination of packets.
#[derive(Clone, Debug)]
pub enum NewDestination {
    /// One address.
    One(Address),
    /// Addresses of a network, one by one.
    Network(NetworkPair),
    /// One of several servers.
    Servers(Servers),
    /// The address of the other IP version that the destination stands for.
    Across(Translator),
    /// The gateway itself: the first address of the interface that a packet came in by.
    Gateway(Vec<FirstAddresses>),
}

/// Translator between IP versions (RFC 6877).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translator {
    /// Its side of 464XLAT.
    pub xlat: Xlat,
    /// Prefix under which IPv4 hosts have IPv6 addresses (RFC 6052).
    pub prefix: Prefix,
    /// Its source translation, by place.
    pub source: u16,
}

/// Side of 464XLAT (RFC 6877): which hosts a translator serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xlat {
    /// Stateful NAT64 (RFC 6146): IPv6 hosts, whose packets leave as IPv4. The provider's side.
    Plat,
    /// IPv4 hosts, whose packets leave as IPv6. The customer's side.
    Clat,
}

impl Translator {
    /// The destination of the other IP version; `None` where no address is embedded in this one.
    pub fn destination(&self, arrived: Address) -> Option<Address> {
        self.xlat.leaving(self.prefix, arrived)
    }
}

impl Xlat {
    /// Address by which a packet of a host served leaves, for its peer's address as the host has it.
    fn leaving(self, prefix: Prefix, peer: Address) -> Option<Address> {
        match self {
            Xlat::Plat => extract(prefix, peer),
            Xlat::Clat => embed(prefix, peer),
        }
    }

    /// Address by which a host served knows a peer outside, whose address is of the other IP version; `None` where no address is embedded in it.
    pub(crate) fn peer(self, prefix: Prefix, outside: Address) -> Option<Address> {
        match self {
            Xlat::Plat => embed(prefix, outside),
            Xlat::Clat => extract(prefix, outside),
        }
    }
}

fn extract(prefix: Prefix, address: Address) -> Option<Address> {
    let address = Some(address).filter(|address| address.v6)?;
    prefix.extract(Ipv6Addr::from_bits(address.bits)).map(|embedded| Address::v4(embedded.to_bits()))
}

fn embed(prefix: Prefix, address: Address) -> Option<Address> {
    let address = Some(address).filter(|address| !address.v6)?;
    // IPv4 in the low 32 bits.
    Some(Address::v6(prefix.embed(Ipv4Addr::from_bits(address.bits as u32)).to_bits()))
}

/// First addresses of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstAddresses {
    /// Of IPv4.
    pub v4: Option<Address>,
    /// Of IPv6.
    pub v6: Option<Address>,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Address.
    pub address: Address,
    /// Port; for an ICMP query, the second value of [`Key::query_ports`](crate::flow::Key::query_ports).
    pub port: u16,
}

/// Sender of a packet whose destination is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its address.
    pub source: Address,
    /// The interface that the packet came in by.
    pub ingress: PortId,
    /// Hash of the flow.
    pub hash: u32,
}

/// Ports translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShift {
    /// Outside ports.
    pub outside: PortRange,
    /// Inside port of the lowest outside port.
    pub inside: u16,
    /// Inside ports of the others.
    pub others: OtherPorts,
}

/// Inside ports of the outside ports of a range but its lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPorts {
    /// They follow in order.
    Follow,
    /// All become the same.
    Same,
}

impl DestinationAction {
    /// The interface that a packet to an outside address would have left by, where its zone of origin is none of those
    /// outside.
    pub fn turned(&self, outside: Address, from: u8) -> Option<PortId> {
        let home = self.homes.iter().find(|home| home.has(outside))?;
        (home.zones & (1 << from) == 0 && home.interface != super::LOCAL).then_some(home.interface)
    }

    /// Translates a destination; the port stays where no ports are translated.
    ///
    /// # Errors
    /// [`Reason::NatNoAddress`] where the gateway has no address to redirect to, or the other network no address for this one;
    /// [`Reason::NoServer`] where no server is up; [`Reason::Nat64Address`] where no IPv4 address is in an IPv6 destination.
    pub fn translate<T: Tally>(
        &self,
        arrived: Destination,
        asker: Asker,
        tally: &mut T,
    ) -> Result<Destination, Reason> {
        let Destination { address: outside, port } = arrived;
        let address = match &self.to {
            NewDestination::One(target) => *target,
            NewDestination::Network(pair) => {
                tally.instructions(pair.instructions());
                pair.inward(outside).ok_or(Reason::NatNoAddress)?
            }
            // No other host of the link has it: it is the gateway's there.
            NewDestination::Gateway(_) if outside.v6 && is_link_local(outside) => outside,
            NewDestination::Gateway(first) => {
                let first = first.get(usize::from(asker.ingress.0));
                let own = first.and_then(|first| if outside.v6 { first.v6 } else { first.v4 });
                own.ok_or(Reason::NatNoAddress)?
            }
            NewDestination::Across(translator) => {
                translator.destination(outside).ok_or(Reason::Nat64Address)?
            }
            NewDestination::Servers(servers) => {
                let server = servers.choose(asker.source, asker.hash, tally);
                return Ok(server.ok_or(Reason::NoServer)?.destination(port, self.shifted(port)));
            }
        };
        Ok(Destination { address, port: self.shifted(port).unwrap_or(port) })
    }

    /// True if it is of certain outside addresses of this IP version, as a forward is.
    pub(crate) fn is_of_addresses(&self) -> bool {
        !matches!(self.to, NewDestination::Gateway(_) | NewDestination::Across(_))
    }

    /// The translation, if it is one between IP versions.
    #[inline]
    pub fn translator(&self) -> Option<Translator> {
        if let NewDestination::Across(translator) = self.to { Some(translator) } else { None }
    }

    /// The server that a packet to `arrived` has been translated to, where it is one of several.
    pub fn server(&self, arrived: Destination, translated: Destination) -> Option<(&Servers, &Server)> {
        let NewDestination::Servers(servers) = &self.to else { return None };
        let offset = self.shifted(arrived.port);
        let is_it = |server: &&Server| server.destination(arrived.port, offset) == translated;
        Some((servers, servers.list.iter().find(is_it)?))
    }

    /// The port in the place of another, where there is one; of several servers, its place among the outside ports.
    fn shifted(&self, port: u16) -> Option<u16> {
        let shift = self.ports.iter().find(|shift| shift.outside.has(port))?;
        Some(match shift.others {
            OtherPorts::Follow => shift.inside.wrapping_add(port - shift.outside.first),
            OtherPorts::Same => shift.inside,
        })
    }
}

impl Home {
    /// True if it is that of an address.
    pub fn has(&self, address: Address) -> bool {
        let AddressSpan { v6, first, last } = self.addresses;
        v6 == address.v6 && (first..=last).contains(&address.bits)
    }
}

/// A source translation.
#[derive(Clone, Debug)]
pub enum SourceAction {
    /// None.
    Exempt,
    /// By a pool.
    Pool(u16),
    /// By the pool of the interface that the packet leaves by, by place of the interface.
    Masquerade(Vec<Outgoing>),
    /// By addresses of the other IP version. Packets are found by their destination, never by the search.
    Across {
        /// Side of 464XLAT.
        xlat: Xlat,
        /// Prefix under which IPv4 hosts have IPv6 addresses.
        prefix: Prefix,
        /// By a pool, or by those of the interface that packets leave by.
        by: Box<SourceAction>,
    },
    /// One by one.
    Network(NetworkPair),
}

impl NatTables {
    /// Ports of a block of an outside address, where they go by blocks on demand.
    pub fn block_of(&self, outside: IpAddr) -> Option<u16> {
        // As `nat::pool` compiles it: of several pools the first one's.
        let mut pools = self.pools.iter().filter(|pool| pool.has(outside));
        pools.find_map(|pool| pool.on_demand).map(|blocks| blocks.ports)
    }

    /// Returns the worker, of so many, that hands out a port of an outside address.
    pub fn owner_of_port(&self, outside: IpAddr, port: u16, workers: u16) -> u16 {
        match self.block_of(outside) {
            Some(block) => Share::owner_in_block(port, block, workers, self.gateways),
            None => Share::owner(port, workers, self.gateways),
        }
    }

    /// Returns the half, of two gateways' ports of an outside address, that has a port.
    pub fn half_of_port(&self, outside: IpAddr, port: u16) -> Half {
        let unit = self.block_of(outside).map_or(port / 2, |block| port / block.max(1));
        Half::of(unit.into())
    }

    /// Both places in one number, 0 for none: `destination` and `source` are places, counted from 1.
    #[inline]
    pub fn pair(&self, destination: u16, source: u16) -> u16 {
        destination * (self.sources.len() as u16 + 1) + source
    }

    /// Number of pairs, the pair of none included.
    pub fn pairs(&self) -> usize {
        (self.destinations.len() + 1) * (self.sources.len() + 1)
    }

    /// The places in a pair, counted from 0.
    pub fn places(&self, pair: u16) -> (Option<usize>, Option<usize>) {
        let width = self.sources.len() + 1;
        let pair = usize::from(pair);
        ((pair / width).checked_sub(1), (pair % width).checked_sub(1))
    }

    /// Names of the translations in a pair.
    pub fn names(&self, pair: u16) -> impl Iterator<Item = &str> {
        let (destination, source) = self.places(pair);
        let destination = destination.and_then(|place| self.destinations.get(place));
        // Between IP versions one translation translates both ends.
        let is_across = destination.is_some_and(|rule| rule.action.translator().is_some());
        let source = source.filter(|_| !is_across).and_then(|place| self.sources.get(place));
        let [destination, source] = [destination.map(|rule| &rule.name), source.map(|rule| &rule.name)];
        destination.into_iter().chain(source).map(String::as_str)
    }

    /// The first destination translation that matches, counted from 1, and its action.
    pub fn destination<T: Tally>(
        &self,
        header: &Header,
        tally: &mut T,
    ) -> Option<(u16, &NatRule<DestinationAction>)> {
        if self.destinations.is_empty() {
            return None;
        }
        let position = search(self.destination_search.as_ref(), header, tally)?;
        let place = *self.destination_of.get(position as usize)?;
        self.destinations.get(usize::from(place)).map(|rule| (place + 1, rule))
    }

    /// The first source translation that matches, counted from 1, and its action.
    pub fn source<T: Tally>(&self, header: &Header, tally: &mut T) -> Option<(u16, &NatRule<SourceAction>)> {
        let position = search(self.source_search.as_ref(), header, tally)?;
        let place = *self.source_of.get(position as usize)?;
        self.sources.get(usize::from(place)).map(|rule| (place + 1, rule))
    }

    /// Bytes of servers' slots in the memory of a network processor.
    pub(crate) fn server_bytes(&self) -> u64 {
        let of = |rule: &NatRule<DestinationAction>| match &rule.action.to {
            NewDestination::Servers(servers) => servers.region_bytes(),
            _ => 0,
        };
        self.destinations.iter().map(of).sum()
    }

    /// True if a pool has this outside address.
    pub fn is_outside(&self, address: Address) -> bool {
        is_within(&self.outside, address)
    }
}

/// True if disjoint, ascending spans hold an address.
pub(crate) fn is_within(spans: &[AddressSpan], address: Address) -> bool {
    let after = spans.partition_point(|span| (span.v6, span.first) <= (address.v6, address.bits));
    spans[..after].last().is_some_and(|span| span.v6 == address.v6 && address.bits <= span.last)
}

/// Classifies the header, and tallies the cost.
fn search<T: Tally>(classifier: &dyn Classifier, header: &Header, tally: &mut T) -> Option<Position> {
    classify::tell(classifier, header, tally);
    classifier.classify(header)
}
