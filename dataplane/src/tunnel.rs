//! Bits of [`Meta::tunnel`](wire::Meta::tunnel): the tunnels that a packet comes and goes by, copies, and frames of a second gateway.

use wire::Meta;

/// The packet came out of a tunnel, whose interface is [`Meta::ingress`](wire::Meta::ingress).
pub const IN: u8 = 1;
/// The packet leaves by a tunnel, and has not been encrypted yet.
pub const OUT: u8 = 1 << 1;
/// The packet's answer leaves by a tunnel, and has not been encrypted yet.
pub const ANSWER_OUT: u8 = 1 << 2;
/// The frame has the outer packet of a tunnel.
pub const OUTER: u8 = 1 << 3;
/// The frame is a NAT keepalive of a tunnel (RFC 3948, section 2.3).
pub const KEEPALIVE: u8 = 1 << 4;
/// The frame is a further copy of a packet to a multicast group, and has the number of that packet, whose fate is that of its first copy.
pub const COPY: u8 = 1 << 5;

/// The second gateway has handed the frame over ([`crate::peer`]).
pub const PEER: u8 = 1 << 6;

/// True for a further copy of a packet to a multicast group.
#[inline(always)]
pub fn is_copy(meta: &Meta) -> bool {
    meta.tunnel & COPY != 0
}
