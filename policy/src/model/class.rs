//! Traffic classes, meters and marks (RFC 2475).

use wire::vlan::{DropEligible, Priority};
use wire::{BitRate, Bytes, Dscp, Pcp};

use super::Conditions;

/// A traffic class. Packets are of the first class whose conditions they meet, or of none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Name in counters and traces, unique among classes.
    pub name: String,
    /// Conditions on the packet. Of a flow the first packet decides, but for the DiffServ code point, which is each packet's own.
    pub conditions: Conditions,
    /// Priority code points of the frame's outer VLAN tag (IEEE 802.1Q), 0 of a frame without one; each packet's own. An empty list
    /// holds for all.
    pub pcp: Vec<Pcp>,
    /// Drop eligible indicator of the outer VLAN tag; each packet's own.
    pub dei: Option<DropEligible>,
    /// Name of the meter of the class.
    pub meter: Option<String>,
    /// Code point that packets of the class are given, unless the action for their colour gives another.
    pub mark: Option<Dscp>,
    /// Priority code point of the VLAN tags that its packets leave with, in the place of the interface's ([`PcpMap`](super::PcpMap)).
    pub mark_pcp: Option<Pcp>,
}

impl Class {
    /// True if priorities of VLAN tags are among the conditions.
    pub fn asks_priority(&self) -> bool {
        !self.pcp.is_empty() || self.dei.is_some()
    }

    /// True if packets whose frames have that priority may be of the class.
    pub fn admits(&self, priority: Priority) -> bool {
        let has_pcp = self.pcp.is_empty() || self.pcp.contains(&priority.code_point());
        has_pcp && self.dei.is_none_or(|dei| dei == priority.eligible())
    }
}

/// A traffic meter: gives each packet a colour by the rate of the packets before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Name, unique among meters. Classes that name the same meter are metered together.
    pub name: String,
    /// Algorithm.
    pub kind: MeterKind,
    /// Committed rate (CIR).
    pub rate: MeterRate,
    /// Committed burst size (CBS): bytes, or packets where the rate is one of packets; 1 at least.
    pub burst: u64,
    /// Peak rate (PIR), of [`MeterKind::TwoRate`].
    pub peak_rate: Option<MeterRate>,
    /// Peak burst size (PBS), of [`MeterKind::TwoRate`].
    pub peak_burst: Option<u64>,
    /// Excess rate (EIR), of [`MeterKind::Rfc4115`].
    pub excess_rate: Option<MeterRate>,
    /// Excess burst size (EBS), of [`MeterKind::SingleRate`] and [`MeterKind::Rfc4115`].
    pub excess_burst: Option<u64>,
    /// Use of the colour that a packet comes with.
    pub colours: ColourMode,
    /// Overhead counted with each packet. Of no effect on a rate of packets.
    pub overhead: Overhead,
    /// Instances of the meter.
    pub per: MeterScope,
    /// Instances that there is room for at one time, at least: they lie in sets of eight.
    pub instances: u32,
    /// Treatment of packets for which there is no instance left.
    pub when_full: NoInstance,
    /// Action on packets of each [`Colour`].
    pub actions: [ColourAction; 3],
}

/// Algorithm of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeterKind {
    /// Token bucket: green while there are tokens, else red.
    #[default]
    TokenBucket,
    /// Single rate three color marker (RFC 2697).
    SingleRate,
    /// Two rate three color marker (RFC 2698).
    TwoRate,
    /// Two rate three color marker with efficient handling of in-profile traffic (RFC 4115).
    Rfc4115,
}

/// Rate of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterRate {
    /// Bits per second.
    Bits(BitRate),
    /// Packets per second.
    Packets(u64),
}

/// Colour of a packet: its drop precedence (RFC 2597).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Colour {
    /// Within the committed rate.
    #[default]
    Green = 0,
    /// Above the committed rate, within the excess or peak rate.
    Yellow = 1,
    /// Above both.
    Red = 2,
}

/// Use of the colour that a packet comes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourMode {
    /// Every packet counts as green.
    #[default]
    Blind,
    /// A packet has the drop precedence of its AF code point (RFC 2597), else is green; no meter improves it.
    Aware,
    /// A packet is yellow if the outer VLAN tag of its frame says that it may be dropped first (IEEE 802.1Q, 9.6), else green, also without
    /// a tag; no meter improves it.
    DropEligible,
}

/// Overhead that is counted with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overhead {
    /// Bytes beside the IP packet.
    Fixed(Bytes),
    /// Ethernet: bytes beside the IP packet, which is padded to [`ETHERNET_LEAST`](Overhead::ETHERNET_LEAST).
    Ethernet(Bytes),
    /// ATM: the IP packet and that many bytes of encapsulation, the AAL5 trailer among them, in cells of 48 bytes that count as 53.
    Atm(Bytes),
    /// VDSL2's packet transfer mode: the IP packet and that many bytes of encapsulation, and one byte for each 64 of them or part thereof,
    /// for its 64/65-octet encapsulation (IEEE 802.3, clause 61), as Linux's CAKE counts.
    Ptm(Bytes),
}

impl Overhead {
    /// The IP packet alone.
    pub const IP: Overhead = Overhead::Fixed(Bytes(0));
    /// The Ethernet header.
    pub const LAYER_2: Overhead = Overhead::Ethernet(Bytes(14));
    /// Ethernet header (14), frame check sequence (4), preamble and start delimiter (8), interpacket gap (12).
    pub const ETHERNET: Overhead = Overhead::Ethernet(Bytes(38));
    /// Bytes of the shortest IP packet that Ethernet does not pad (IEEE 802.3, clause 4.4.2: a frame has 64 bytes at least, header and
    /// check sequence among them).
    pub const ETHERNET_LEAST: u8 = 46;
    /// Most bytes.
    pub const MOST: Bytes = Bytes(256);

    /// Bytes that are counted for an IP packet of that length.
    #[inline(always)]
    pub const fn count(self, length: u64) -> u64 {
        match self {
            Overhead::Fixed(Bytes(bytes)) => length + bytes,
            Overhead::Ethernet(Bytes(bytes)) => {
                let least = Self::ETHERNET_LEAST as u64;
                bytes + if length < least { least } else { length }
            }
            Overhead::Atm(Bytes(bytes)) => (length + bytes).div_ceil(48) * 53,
            Overhead::Ptm(Bytes(bytes)) => {
                let length = length + bytes;
                length + length.div_ceil(64)
            }
        }
    }
}

/// Instances of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeterScope {
    /// One for all packets.
    #[default]
    All,
    /// One for each flow: addresses, protocol and ports, both directions together. Only with connection tracking.
    Flow,
    /// One for each source address or prefix of the packet, of so many bits (IPv4, IPv6).
    Source(u8, u8),
    /// One for each destination address or prefix.
    Destination(u8, u8),
}

/// Treatment of packets for which a meter has no instance left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoInstance {
    /// They are red.
    #[default]
    Red,
    /// They share one instance.
    Share,
}

/// Action on packets of a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourAction {
    /// The packet passes.
    #[default]
    Pass,
    /// The packet is dropped.
    Drop,
    /// The packet passes with this code point.
    Mark(Dscp),
    /// The packet passes, marked "congestion experienced" (RFC 3168) where its transport is capable of ECN.
    Ecn,
    /// The packet is marked "congestion experienced" where its transport is capable of ECN, and dropped elsewhere.
    EcnOrDrop,
}

impl Meter {
    /// Instances, where a policy does not say how many.
    pub const INSTANCES: u32 = 65_536;

    /// Most instances that a meter may have.
    pub const MOST_INSTANCES: u32 = 1 << 24;

    /// Largest burst, in bytes or packets: a tenth of a second at the highest rate of a link.
    pub const MOST_BURST: u64 = 1 << 37;

    /// A meter with that name, and no rate yet.
    pub fn new(name: &str) -> Meter {
        Meter {
            name: name.to_owned(),
            kind: MeterKind::default(),
            rate: MeterRate::Bits(BitRate(0)),
            burst: 0,
            peak_rate: None,
            peak_burst: None,
            excess_rate: None,
            excess_burst: None,
            colours: ColourMode::default(),
            overhead: Overhead::IP,
            per: MeterScope::default(),
            instances: Meter::INSTANCES,
            when_full: NoInstance::default(),
            actions: [ColourAction::Pass, ColourAction::Pass, ColourAction::Drop],
        }
    }

    /// Colours that the meter may give, from the best: a token bucket gives yellow to packets alone that come with it.
    pub fn possible_colours(&self) -> impl Iterator<Item = Colour> {
        let has_two = self.kind == MeterKind::TokenBucket && self.colours == ColourMode::Blind;
        Colour::ALL.into_iter().filter(move |colour| !has_two || *colour != Colour::Yellow)
    }
}

impl Colour {
    /// All colours, from the best.
    pub const ALL: [Colour; 3] = [Colour::Green, Colour::Yellow, Colour::Red];

    /// The drop precedence of an AF code point (RFC 2597, section 6), else green.
    #[inline(always)]
    pub const fn of(dscp: Dscp) -> Colour {
        // Classes 1 to 4 in the upper three bits, the precedence 1 to 3 in the next two, the last is 0.
        match dscp.value() {
            12 | 20 | 28 | 36 => Colour::Yellow,
            14 | 22 | 30 | 38 => Colour::Red,
            _ => Colour::Green,
        }
    }

    /// Name of the colour.
    pub const fn name(self) -> &'static str {
        match self {
            Colour::Green => "green",
            Colour::Yellow => "yellow",
            Colour::Red => "red",
        }
    }
}
