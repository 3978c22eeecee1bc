//! Bits of [`Meta::flags`](wire::Meta::flags): what stages note about a frame under way.

use crate::flow::Direction;

/// The packet goes against the direction of its flow's first one.
pub const REPLY: u16 = 1;
/// The frame was sent to a link-layer group.
pub const GROUP: u16 = 1 << 1;
/// An ICMP error about its flow.
pub const RELATED: u16 = 1 << 2;
/// The packet belongs to a flow that has been decided.
pub const HIT: u16 = 1 << 3;
/// The packet opens a flow, which `snat` will create.
pub const OPENS: u16 = 1 << 4;
/// The packet is larger than the MTU of its next hop, and may be fragmented.
pub const CUT: u16 = 1 << 5;
/// The packet must not be fragmented (DF).
pub const DONT_FRAGMENT: u16 = 1 << 6;
/// The packet's flow is translated.
pub const TRANSLATED: u16 = 1 << 7;
/// The IP destination is a group: multicast or broadcast.
pub const TO_GROUP: u16 = 1 << 8;
/// An ICMP message that asks or answers, and has an identifier.
pub const QUERY: u16 = 1 << 9;
/// An ICMP error.
pub const ERROR: u16 = 1 << 10;
/// A fragment that waited for its first one, which has come.
pub const RESUMED: u16 = 1 << 11;
/// Linux sends it: the gateway itself, or an interface that is not the policy's ([`OTHER`](crate::tables::OTHER)), whose
/// packets meet the rules.
pub const OWN: u16 = 1 << 12;
/// The packet has been pending for a neighbour, and goes through the stages once more.
pub const WAITED: u16 = 1 << 13;
/// Number of handoffs of the packet to another worker, in two bits (0 to 3).
pub const HANDED: u16 = 3 << 14;

/// Direction of a packet of a flow, by its flags.
#[inline(always)]
pub(crate) fn direction(flags: u16) -> Direction {
    if flags & REPLY == 0 { Direction::Original } else { Direction::Reply }
}
