//! Patterns: the conditions that a packet must meet to match a rule.

use wire::Family;

use super::Header;

/// Conditions on a packet, all of which must hold. An empty list holds for every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Zones of origin, a bit each.
    pub from: u64,
    /// Zones of destination, a bit each.
    pub to: u64,
    /// Interfaces of origin.
    pub ingress: Vec<u16>,
    /// Interfaces of destination.
    pub egress: Vec<u16>,
    /// Classes of source MAC addresses: disjoint, ascending. `None` is every class, and none; an empty list is no class at all.
    pub source_macs: Option<Vec<ClassSpan>>,
    /// Source addresses: disjoint, ascending. `None` is every address; an empty list is no address at all.
    pub source: Option<Vec<AddressSpan>>,
    /// Destination addresses, likewise.
    pub destination: Option<Vec<AddressSpan>>,
    /// IPv4 packets match.
    pub v4: Admit,
    /// IPv6 packets match.
    pub v6: Admit,
    /// Transport protocols; all where empty.
    pub protocols: Vec<u8>,
    /// Source ports; all, and packets without ports, where empty.
    pub sports: Vec<PortSpan>,
    /// Destination ports likewise.
    pub dports: Vec<PortSpan>,
    /// ICMP types and codes; any where empty.
    pub icmp: Vec<TypeMatch>,
    /// TCP flags looked at; 0 for none.
    pub tcp_mask: u8,
    /// Flags of the mask that must be set.
    pub tcp_value: u8,
    /// DiffServ code points, a bit each.
    pub dscp: u64,
    /// Memberships in sets ([`Header::sets`]) looked at; 0 for none.
    pub sets_mask: u32,
    /// Memberships of the mask that must hold; the others of the mask must not.
    pub sets_value: u32,
}

/// Admission of a kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// Addresses of one family from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressSpan {
    /// IPv6; else IPv4 in the low 32 bits. First in the order, so that families do not mix.
    pub v6: bool,
    /// The lowest.
    pub first: u128,
    /// The highest.
    pub last: u128,
}

/// Classes of source MAC addresses ([`Header::source_mac`]) from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassSpan {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// Ports from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSpan {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// An ICMP type and its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeMatch {
    /// The type.
    pub kind: u8,
    /// The code; any where absent.
    pub code: Option<u8>,
}

impl Default for Pattern {
    /// Matches every packet.
    fn default() -> Pattern {
        Pattern {
            from: u64::MAX,
            to: u64::MAX,
            ingress: Vec::new(),
            egress: Vec::new(),
            source_macs: None,
            source: None,
            destination: None,
            v4: Admit::Yes,
            v6: Admit::Yes,
            protocols: Vec::new(),
            sports: Vec::new(),
            dports: Vec::new(),
            icmp: Vec::new(),
            tcp_mask: 0,
            tcp_value: 0,
            dscp: u64::MAX,
            sets_mask: 0,
            sets_value: 0,
        }
    }
}

impl Pattern {
    /// True if `header` shows all of it.
    #[inline(always)]
    pub fn matches(&self, header: &Header) -> bool {
        // Cheapest and most telling first; few packets get past these.
        self.from & (1 << header.from) != 0
            && self.to & (1 << header.to) != 0
            && self.dscp & (1 << header.dscp) != 0
            && header.tcp_flags & self.tcp_mask == self.tcp_value
            && (self.protocols.is_empty() || protocol_in(&self.protocols, header.protocol))
            && self.matches_lists(header)
    }

    /// Bytes that it takes, with its lists.
    pub fn bytes(&self) -> usize {
        let addresses =
            |spans: &Option<Vec<AddressSpan>>| spans.as_ref().map_or(0, |list| size_of_val(list.as_slice()));
        size_of::<Pattern>()
            + addresses(&self.source)
            + addresses(&self.destination)
            + size_of_val(self.ingress.as_slice())
            + size_of_val(self.egress.as_slice())
            + self.source_macs.as_ref().map_or(0, |list| size_of_val(list.as_slice()))
            + self.protocols.len()
            + size_of_val(self.sports.as_slice())
            + size_of_val(self.dports.as_slice())
            + size_of_val(self.icmp.as_slice())
    }

    /// True if `header` shows the memberships, ports, addresses, family, ICMP types and interfaces.
    #[inline(never)]
    fn matches_lists(&self, header: &Header) -> bool {
        header.sets & self.sets_mask == self.sets_value
            && port_in(&self.dports, header.dport)
            && port_in(&self.sports, header.sport)
            && address_in(self.destination.as_deref(), header.destination, header.family)
            && address_in(self.source.as_deref(), header.source, header.family)
            && (match header.family {
                Family::V4 => self.v4,
                Family::V6 => self.v6,
                Family::Other => Admit::No,
            }) == Admit::Yes
            && (self.icmp.is_empty() || self.icmp_in(header.dport))
            && (self.ingress.is_empty() || self.ingress.contains(&header.ingress))
            && (self.egress.is_empty() || self.egress.contains(&header.egress))
            && class_in(self.source_macs.as_deref(), header.source_mac)
    }

    /// True if `message`, an ICMP type << 8 | code, is listed.
    fn icmp_in(&self, message: u16) -> bool {
        let [kind, code] = message.to_be_bytes();
        self.icmp.iter().any(|item| item.kind == kind && item.code.is_none_or(|wanted| wanted == code))
    }
}

/// `contains` would call a search made for long lists, at twice the price of all other conditions.
#[inline]
#[allow(clippy::manual_contains)]
fn protocol_in(protocols: &[u8], protocol: u8) -> bool {
    protocols.iter().any(|one| *one == protocol)
}

#[inline]
fn port_in(spans: &[PortSpan], port: u16) -> bool {
    spans.is_empty() || spans.iter().any(|span| span.first <= port && port <= span.last)
}

#[inline]
fn class_in(spans: Option<&[ClassSpan]>, class: u16) -> bool {
    let Some(spans) = spans else { return true };
    let after = spans.partition_point(|span| span.first <= class);
    after > 0 && class <= spans[after - 1].last
}

/// Binary search: sets can be long, and the spans are disjoint and ascending.
#[inline]
fn address_in(spans: Option<&[AddressSpan]>, address: u128, family: Family) -> bool {
    let Some(spans) = spans else { return true };
    let v6 = family == Family::V6;
    let after = spans.partition_point(|span| (span.v6, span.first) <= (v6, address));
    after > 0 && {
        let span = &spans[after - 1];
        span.v6 == v6 && address <= span.last
    }
}
