//! Metadata of a frame: the pipeline's findings, each written once by one stage and read by the stages after it.
//!
//! Plain numbers on purpose: metadata goes with every frame, in a cache line. The stage named beside a field
//! defines the meaning of its indices and codes.

use crate::unit::Nanos;
use serde::{Deserialize, Serialize};

/// A port by its place in the host's list of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortId(pub u16);

/// Network-layer protocol of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Family {
    /// Neither IPv4 nor IPv6.
    #[default]
    Other = 0,
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

/// Part of a datagram that a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Part {
    /// A whole datagram.
    #[default]
    Whole,
    /// The first fragment: it has the transport header.
    First,
    /// A fragment further on: it has no transport header.
    Later,
}

/// Metadata of a frame. A frame fresh from its pool has the default: `flow`, `hop`, `rule` and `opening` stand for none, all
/// other fields are zero.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Host: time of receipt.
    pub received: Nanos,
    /// Host: number by which the host identifies the frame on its return.
    pub number: u32,
    /// Host: ingress port.
    pub ingress: PortId,
    /// `route`: egress port. Host: for packets of the gateway itself, the egress interface that its own stack would choose.
    pub egress: PortId,
    /// `parse`: offset of the IP header from the frame's first byte.
    pub network: u16,
    /// `parse`: offset of the transport header (of the payload, in a later fragment).
    pub transport: u16,
    /// `parse`: offset of the first byte past the IP packet; link-layer padding lies behind it.
    pub end: u16,
    /// `parse`: IPv4, IPv6 or neither.
    pub family: Family,
    /// `parse`: the transport protocol, after all extension headers.
    pub protocol: u8,
    /// `parse`: whole or fragment.
    pub part: Part,
    /// `parse`: the DS field (traffic class) as on the wire.
    pub ds_field: u8,
    /// `parse`: TCP flags as on the wire, else 0.
    pub tcp_flags: u8,
    /// `parse`: TCP or UDP source port; ICMP echo identifier; else 0.
    pub sport: u16,
    /// `parse`: TCP or UDP destination port; ICMP type << 8 | code; else 0.
    pub dport: u16,
    /// `track`: index of the flow, or `u32::MAX`.
    pub flow: u32,
    /// `route`: index of the next hop, or [`Meta::NO_HOP`].
    pub hop: u32,
    /// `filter`: index of the rule that decided, or [`Meta::NO_RULE`].
    pub rule: u32,
    /// `dnat`, `snat`: translations that apply, encoded by the dataplane.
    pub nat: u16,
    /// `classify`: number of the traffic class, 0 for none.
    pub class: u16,
    /// `police`: colour by the meter of the class: 0 green, 1 yellow, 2 red.
    pub colour: u8,
    /// `track`: bit flags of its own (direction, state seen).
    pub flags: u16,
    /// `track`: for a packet that opens a flow, index of its opening, where the stages write their decisions on that flow; else
    /// [`Meta::NO_OPENING`].
    pub opening: u8,
    /// `decap`, `route`, `answer`, `encap`: bits of their own (in or out of a tunnel).
    pub tunnel: u8,
    /// `decap`: number of the tree of queues `from` the interface that the outer packet came by, 0 for none.
    pub outer_tree: u8,
    /// `rewrite`: number of further parts of this packet that follow it.
    pub parts: u8,
    /// Any stage: the verdict, encoded by the dataplane; 0 while none has been given.
    pub fate: u16,
}

impl Meta {
    /// Value of `hop` before a next hop has been chosen.
    pub const NO_HOP: u32 = u32::MAX - 1;

    /// Value of `rule` where none has decided.
    pub const NO_RULE: u32 = u32::MAX;

    /// Value of `opening` for a frame that opens no flow.
    pub const NO_OPENING: u8 = u8::MAX;
}

impl Default for Meta {
    #[inline(always)]
    fn default() -> Meta {
        Meta {
            received: Nanos(0),
            number: 0,
            ingress: PortId(0),
            egress: PortId(0),
            network: 0,
            transport: 0,
            end: 0,
            family: Family::Other,
            protocol: 0,
            part: Part::Whole,
            ds_field: 0,
            tcp_flags: 0,
            sport: 0,
            dport: 0,
            flow: u32::MAX,
            hop: Meta::NO_HOP,
            rule: Meta::NO_RULE,
            nat: 0,
            class: 0,
            colour: 0,
            flags: 0,
            opening: Meta::NO_OPENING,
            tunnel: 0,
            outer_tree: 0,
            parts: 0,
            fate: 0,
        }
    }
}

/// Set of fields of a frame: its packet, the fields of its [`Meta`], and the decisions on the flow that the frame opens. The
/// fields that `parse` reads from the headers count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u16);

impl Fields {
    /// No fields.
    pub const NONE: Fields = Fields(0);
    /// The packet's bytes.
    pub const PACKET: Fields = Fields(1);
    /// [`Meta::received`].
    pub const RECEIVED: Fields = Fields(1 << 1);
    /// [`Meta::number`].
    pub const NUMBER: Fields = Fields(1 << 2);
    /// [`Meta::ingress`].
    pub const INGRESS: Fields = Fields(1 << 3);
    /// [`Meta::egress`].
    pub const EGRESS: Fields = Fields(1 << 4);
    /// [`Meta::network`] to [`Meta::dport`].
    pub const HEADERS: Fields = Fields(1 << 5);
    /// [`Meta::flow`].
    pub const FLOW: Fields = Fields(1 << 6);
    /// [`Meta::hop`].
    pub const HOP: Fields = Fields(1 << 7);
    /// [`Meta::rule`].
    pub const RULE: Fields = Fields(1 << 8);
    /// [`Meta::nat`].
    pub const NAT: Fields = Fields(1 << 9);
    /// [`Meta::class`].
    pub const CLASS: Fields = Fields(1 << 10);
    /// [`Meta::flags`].
    pub const FLAGS: Fields = Fields(1 << 11);
    /// [`Meta::parts`].
    pub const PARTS: Fields = Fields(1 << 12);
    /// [`Meta::opening`], and the decisions in the opening.
    pub const OPENING: Fields = Fields(1 << 13);

    /// [`Meta::colour`].
    pub const COLOUR: Fields = Fields(1 << 14);
    /// [`Meta::tunnel`] and [`Meta::outer_tree`].
    pub const TUNNEL: Fields = Fields(1 << 15);

    /// Fields known after `parse`: packet, headers, ingress port and flags.
    pub const SEEN: Fields = Fields::PACKET.and(Fields::HEADERS).and(Fields::INGRESS).and(Fields::FLAGS);

    /// Fields that a host sets.
    pub const HOST: Fields =
        Fields::PACKET.and(Fields::RECEIVED).and(Fields::NUMBER).and(Fields::INGRESS).and(Fields::EGRESS);

    const NAMES: [&str; 16] = [
        "packet", "received", "number", "ingress", "egress", "headers", "flow", "hop", "rule", "nat",
        "class", "flags", "parts", "opening", "colour", "tunnel",
    ];

    /// Bytes of each. Of the headers: three offsets, two ports, and family, protocol, part, DS field and TCP flags. Of an opening: the key's
    /// hash, 4, two ends after translation, 12, the places of two translations, 4, the mapping, 4, the class, 2, and two counts, 8.
    const BYTES: [u32; 16] = [0, 8, 4, 2, 2, 15, 4, 4, 4, 2, 2, 2, 1, 34, 1, 2];

    /// Returns the union with `others`.
    #[must_use]
    pub const fn and(self, others: Fields) -> Fields {
        Fields(self.0 | others.0)
    }

    /// Returns the fields of `self` that are not in `others`.
    #[must_use]
    pub const fn without(self, others: Fields) -> Fields {
        Fields(self.0 & !others.0)
    }

    /// Returns the fields that are in both.
    #[must_use]
    pub const fn within(self, others: Fields) -> Fields {
        Fields(self.0 & others.0)
    }

    /// Number of bytes that the fields take where they go with a frame from one engine to another; none for the packet.
    pub fn bytes(self) -> u32 {
        let sizes = Fields::BYTES.into_iter().enumerate();
        sizes.filter(|(place, _)| self.0 >> place & 1 == 1).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the names of the fields, in the order of the constants.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Fields::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(place, _)| self.0 >> place & 1 == 1)
            .map(|(_, name)| name)
    }
}

impl Meta {
    /// Returns the fields that differ between both; the verdict (`fate`) is not compared.
    pub fn changed(&self, other: &Meta) -> Fields {
        let headers = |meta: &Meta| {
            let bounds = [meta.network, meta.transport, meta.end, meta.sport, meta.dport];
            (bounds, meta.family, meta.protocol, meta.part, meta.ds_field, meta.tcp_flags)
        };
        [
            (self.received != other.received, Fields::RECEIVED),
            (self.number != other.number, Fields::NUMBER),
            (self.ingress != other.ingress, Fields::INGRESS),
            (self.egress != other.egress, Fields::EGRESS),
            (headers(self) != headers(other), Fields::HEADERS),
            (self.flow != other.flow, Fields::FLOW),
            (self.hop != other.hop, Fields::HOP),
            (self.rule != other.rule, Fields::RULE),
            (self.nat != other.nat, Fields::NAT),
            (self.class != other.class, Fields::CLASS),
            (self.flags != other.flags, Fields::FLAGS),
            (self.parts != other.parts, Fields::PARTS),
            (self.opening != other.opening, Fields::OPENING),
            (self.colour != other.colour, Fields::COLOUR),
            ((self.tunnel, self.outer_tree) != (other.tunnel, other.outer_tree), Fields::TUNNEL),
        ]
        .into_iter()
        .filter(|(is_changed, _)| *is_changed)
        .fold(Fields::NONE, |fields, (_, field)| fields.and(field))
    }
}
