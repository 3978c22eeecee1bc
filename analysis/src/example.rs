//! A packet that stands for many.

use dataplane::tables::NO_MAC;
use lookup::classify::Header;
use lookup::classify::bdd::field::{Field, Version};
use lookup::classify::bdd::product::{Product, Span, both};
use policy::model::AddressRange;
use wire::Family;
use wire::header::Protocol;
use wire::tcp::Flags;

use super::Region;
use super::region::Families;
use super::ruling::shapes;

/// A header, with interfaces by their numbers in the analysis; its zones mean nothing.
pub type Example = Header;

/// Likely addresses: those of interfaces' networks. For an example that routes do not keep from the rules.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Networks, by number of the interface.
    pub networks: Vec<Vec<AddressRange>>,
    /// The gateway's own addresses.
    pub own: Vec<AddressRange>,
    /// Likely class of the source MAC address of frames, by number of the interface; 0 past the end.
    pub senders: Vec<u16>,
}

/// Number of examples that are thought of for a region.
const MOST: usize = 24;

impl Region {
    /// Headers in the region, the most likely ones first; empty where no packet can be in it.
    pub fn examples(&self, places: &Places) -> Vec<Example> {
        let versions: &[Version] = match self.families {
            Families::V4 => &[Version::V4],
            Families::V6 => &[Version::V6],
            Families::Both => &Version::BOTH,
        };
        let mut found = Vec::new();
        for version in versions {
            found.extend(examples(&self.product, *version, places));
        }
        found.truncate(MOST);
        found
    }
}

/// Headers in the product that there can be.
pub(super) fn examples(product: &Product, version: Version, places: &Places) -> Vec<Example> {
    let mut found = Vec::new();
    for shape in shapes(version) {
        let Some(product) = product.within(&shape, version) else { continue };
        for (ingress, egress) in ways(&product, places) {
            found.extend(by(&product, version, places, ingress, egress));
        }
    }
    found
}

/// A few ways through the gateway, and which of its interfaces they take.
fn ways(product: &Product, places: &Places) -> Vec<(u16, u16)> {
    let among = |field: Field, otherwise: &mut dyn Iterator<Item = u16>| -> Vec<u16> {
        match product.get(field) {
            Some(spans) => {
                spans.iter().flat_map(|span| span.first..=span.last).map(|one| one as u16).take(6).collect()
            }
            None => otherwise.take(6).collect(),
        }
    };
    let many = places.networks.len().max(1) as u16;
    let origins = among(Field::Ingress, &mut (0..many));
    let itself = dataplane::tables::LOCAL.0;
    let ends = among(Field::Egress, &mut (0..places.networks.len() as u16).chain([itself]));
    let pairs = origins.iter().flat_map(|from| ends.iter().map(move |to| (*from, *to)));
    // Between two interfaces first.
    let (mut through, back): (Vec<_>, Vec<_>) = pairs.partition(|(from, to)| from != to);
    through.extend(back);
    through.truncate(12);
    through
}

/// Headers that take this way.
fn by(product: &Product, version: Version, places: &Places, ingress: u16, egress: u16) -> Vec<Example> {
    let spans = |ranges: &[AddressRange]| -> Vec<Span> {
        let own = ranges.iter().filter(|range| range.first.is_ipv6() == (version == Version::V6));
        own.map(|range| Span { first: bits(range.first), last: bits(range.last) }).collect()
    };
    let networks =
        |number: u16| places.networks.get(usize::from(number)).map_or(Vec::new(), |list| spans(list));
    let sources = addresses(product.get(Field::Source), &networks(ingress), version);
    let near = if egress == dataplane::tables::LOCAL.0 { spans(&places.own) } else { networks(egress) };
    let destinations = addresses(product.get(Field::Destination), &near, version);
    let first = |field: Field, wanted: &[u128]| -> Option<u128> {
        let Some(spans) = product.get(field) else { return wanted.first().copied() };
        let inside = |value: &&u128| spans.iter().any(|span| span.first <= **value && **value <= span.last);
        wanted.iter().find(inside).copied().or(spans.first().map(|span| span.first))
    };
    let message = match version {
        Version::V4 => Protocol::ICMP,
        Version::V6 => Protocol::ICMPV6,
    };
    let known = [Protocol::TCP, Protocol::UDP, message, Protocol::GRE];
    let known: Vec<u128> = known.iter().map(|one| one.0.into()).collect();
    let Some(protocol) = first(Field::Protocol, &known).map(|one| Protocol(one as u8)) else {
        return Vec::new();
    };
    let echo = match version {
        Version::V4 => 8 << 8,
        Version::V6 => 128 << 8,
    };
    let flags: Vec<u128> = [Flags::SYN, Flags::SYN.and(Flags::ACK), Flags::ACK, Flags::RST]
        .iter()
        .map(|flags| u128::from(flags.0))
        .collect();
    let sender = places.senders.get(usize::from(ingress)).copied().unwrap_or(NO_MAC);
    let port = |field: Field, wanted: &[u128]| first(field, wanted).unwrap_or(0) as u16;
    let (sport, dport) = if protocol == message {
        (port(Field::Sport, &[1]), port(Field::Dport, &[echo]))
    } else if protocol.has_ports() {
        (port(Field::Sport, &[50_000, 1024]), port(Field::Dport, &[443, 80, 53, 1024, 40_000, 1]))
    } else {
        (0, 0)
    };
    let header = Header {
        sport,
        dport,
        protocol: protocol.0,
        tcp_flags: if protocol == Protocol::TCP { first(Field::Flags, &flags).unwrap_or(0) as u8 } else { 0 },
        dscp: first(Field::Dscp, &[0]).unwrap_or(0) as u8,
        family: match version {
            Version::V4 => Family::V4,
            Version::V6 => Family::V6,
        },
        ingress,
        egress,
        source_mac: first(Field::SourceMac, &[sender.into()]).unwrap_or(0) as u16,
        sets: (0..4).fold(0, |sets, number| {
            sets | (first(Field::Sets(number), &[0]).unwrap_or(0) as u32) << (8 * u32::from(number))
        }),
        ..Header::default()
    };
    let mut found = Vec::new();
    for (rank, source) in sources.iter().enumerate() {
        for destination in destinations.iter().take(if rank == 0 { 3 } else { 1 }) {
            found.push(Header { source: *source, destination: *destination, ..header });
        }
    }
    found
}

/// Addresses among `asked` (all where `None`), those that are `near` first; then documentation's.
fn addresses(asked: Option<&Vec<Span>>, near: &[Span], version: Version) -> Vec<u128> {
    let documented: [Span; 2] = match version {
        // RFC 5737: 198.51.100.0/24 and 203.0.113.0/24.
        Version::V4 => [0xc633_6401, 0xcb00_7101].map(|first| Span { first, last: first + 0xfd }),
        // RFC 3849, RFC 9637.
        Version::V6 => {
            [0x2001_0db8 << 96, 0x3fff << 112].map(|first| Span { first: first + 1, last: first + 0xffff })
        }
    };
    let mut found = Vec::new();
    for place in [near, &documented] {
        let some = match asked {
            Some(asked) => both(asked, place),
            None => place.to_vec(),
        };
        // Not the network's own address, and neither the router's nor the broadcast address, as they often are.
        found.extend(some.iter().take(3).map(|span| span.first + ((span.last - span.first) / 2).min(9)));
    }
    for span in asked.into_iter().flatten().take(2) {
        let inside = (span.last - span.first) / 2;
        found.extend([span.first + inside.min(9), span.first + inside]);
    }
    found.dedup();
    found.truncate(6);
    found
}

fn bits(address: std::net::IpAddr) -> u128 {
    match address {
        std::net::IpAddr::V4(address) => address.to_bits().into(),
        std::net::IpAddr::V6(address) => address.to_bits(),
    }
}
