//! Elements common to several headers: protocol numbers, port pairs, fragment fields, and the walk over
//! type-length-value options.
//!
//! The crate-private readers at the end take arrays of known size, so that an accessor with a constant offset compiles
//! to one load, without a bounds check.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A protocol above IP: IPv4's Protocol field and IPv6's Next Header, which share one registry (IANA,
/// "Protocol Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options (RFC 8200, section 4.3).
    pub const HOP_BY_HOP: Protocol = Protocol(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Protocol = Protocol(1);
    /// Group management for IPv4 (RFC 9776).
    pub const IGMP: Protocol = Protocol(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Protocol = Protocol(4);
    /// TCP (RFC 9293).
    pub const TCP: Protocol = Protocol(6);
    /// UDP (RFC 768).
    pub const UDP: Protocol = Protocol(17);
    /// DCCP (RFC 4340).
    pub const DCCP: Protocol = Protocol(33);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Protocol = Protocol(41);
    /// IPv6 routing header (RFC 8200, section 4.4).
    pub const ROUTING: Protocol = Protocol(43);
    /// IPv6 fragment header (RFC 8200, section 4.5).
    pub const FRAGMENT: Protocol = Protocol(44);
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: Protocol = Protocol(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Protocol = Protocol(50);
    /// Authentication header (RFC 4302).
    pub const AH: Protocol = Protocol(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Protocol = Protocol(58);
    /// Nothing follows (RFC 8200, section 4.7).
    pub const NO_NEXT: Protocol = Protocol(59);
    /// IPv6 destination options (RFC 8200, section 4.6).
    pub const DESTINATION_OPTIONS: Protocol = Protocol(60);
    /// OSPF (RFC 2328).
    pub const OSPF: Protocol = Protocol(89);
    /// SCTP (RFC 9260).
    pub const SCTP: Protocol = Protocol(132);
    /// UDP-Lite (RFC 3828).
    pub const UDPLITE: Protocol = Protocol(136);

    const NAMES: [(Protocol, &'static str); 19] = [
        (Protocol::TCP, "tcp"),
        (Protocol::UDP, "udp"),
        (Protocol::ICMP, "icmp"),
        (Protocol::ICMPV6, "icmpv6"),
        (Protocol::ESP, "esp"),
        (Protocol::AH, "ah"),
        (Protocol::GRE, "gre"),
        (Protocol::SCTP, "sctp"),
        (Protocol::DCCP, "dccp"),
        (Protocol::UDPLITE, "udplite"),
        (Protocol::IGMP, "igmp"),
        (Protocol::OSPF, "ospf"),
        (Protocol::IPV4, "ipv4"),
        (Protocol::IPV6, "ipv6"),
        (Protocol::HOP_BY_HOP, "hop-by-hop"),
        (Protocol::ROUTING, "routing"),
        (Protocol::FRAGMENT, "fragment"),
        (Protocol::NO_NEXT, "no-next"),
        (Protocol::DESTINATION_OPTIONS, "destination-options"),
    ];

    /// The name that [`Display`](fmt::Display) prints and [`FromStr`] reads, where there is one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(protocol, _)| *protocol == self).map(|(_, name)| *name)
    }

    /// All names that [`FromStr`] knows, the most used first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }

    /// True if the transport header starts with a source and a destination port of 16 bits each.
    #[inline]
    pub const fn has_ports(self) -> bool {
        matches!(self, Protocol::TCP | Protocol::UDP | Protocol::SCTP | Protocol::DCCP | Protocol::UDPLITE)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Neither the name of a protocol nor a number from 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither the name of a protocol nor a number from 0 to 255")]
pub struct UnknownProtocol;

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    /// Reads a name in any case, or a decimal number.
    fn from_str(text: &str) -> Result<Protocol, UnknownProtocol> {
        if let Some((protocol, _)) = Self::NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)) {
            return Ok(*protocol);
        }
        match text {
            "icmp6" | "ipv6-icmp" => Ok(Protocol::ICMPV6),
            "icmpv4" => Ok(Protocol::ICMP),
            _ => text.parse().map(Protocol).map_err(|_| UnknownProtocol),
        }
    }
}

/// Source and destination port of TCP, UDP, SCTP, DCCP and UDP-Lite, which all begin with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

impl Ports {
    /// The ports at the start of a transport header, or `None` where it is shorter than 4 bytes.
    #[inline]
    pub fn of(transport: &[u8]) -> Option<Ports> {
        let bytes: &[u8; 4] = transport.first_chunk()?;
        Some(Ports { sport: be16(bytes, 0), dport: be16(bytes, 2) })
    }
}

/// One end of a packet: an address, and a port where the protocol has ports. Printed as `192.0.2.1:443`,
/// `[2001:db8::1]:443` or the address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

/// Fragment fields of an IP packet (RFC 791, section 3.2; RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The packet's identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Fragment offset, in bytes: a multiple of 8, at most 65528.
    pub offset: u16,
    /// More fragments: true if another fragment follows.
    pub more: bool,
}

impl Fragment {
    /// True for the first fragment, which has the transport header.
    #[inline]
    pub const fn is_first(self) -> bool {
        self.offset == 0
    }

    /// True for an atomic fragment, first and last at once: a whole packet with an IPv6 fragment header (RFC 6946).
    #[inline]
    pub const fn is_atomic(self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// One type-length-value option of an IPv4 or TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// The type byte.
    pub kind: u8,
    /// Offset of the option's type byte, in bytes from the first option.
    pub at: usize,
    /// Option data, after type and length.
    pub data: &'a [u8],
}

/// Malformed option: its length is below 2 bytes, or reaches past the end of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad length of the option at byte {at}")]
pub struct BadOption {
    /// Offset of the option's type byte, in bytes from the first option.
    pub at: usize,
}

/// Walks the options of an IPv4 or TCP header, which share one format: 0 ends, 1 is padding, any other type has a
/// length byte that counts type and length too. Ends after the first error.
#[derive(Clone, Debug)]
pub struct RawOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RawOptions<'a> {
    /// Starts a walk over the bytes between the fixed header and the payload.
    #[inline]
    pub const fn new(options: &'a [u8]) -> RawOptions<'a> {
        RawOptions { bytes: options, at: 0 }
    }
}

impl<'a> Iterator for RawOptions<'a> {
    type Item = Result<RawOption<'a>, BadOption>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let rest = self.bytes.get(at..)?;
            match *rest {
                [] | [0, ..] => {
                    self.at = self.bytes.len();
                    return None;
                }
                [1, ..] => self.at += 1,
                [kind, len, ..] if len >= 2 && usize::from(len) <= rest.len() => {
                    self.at += usize::from(len);
                    return Some(Ok(RawOption { kind, at, data: &rest[2..usize::from(len)] }));
                }
                _ => {
                    self.at = self.bytes.len();
                    return Some(Err(BadOption { at }));
                }
            }
        }
    }
}

/// The big-endian 16 bits at `at`.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32 bits at `at`.
#[inline(always)]
pub const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The little-endian 64 bits at `at`, 0 past the end: for what does not depend on the order of bytes.
#[inline(always)]
pub const fn le64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    // As one array: of single bytes the compiler makes several loads.
    match bytes.split_at(at).1.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// The `M` bytes at `at`.
#[inline(always)]
pub(crate) fn array<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| bytes[at + i])
}

/// Puts `value` at `at`.
#[inline(always)]
pub(crate) fn put<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, value: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&value);
}

#[cfg(test)]
mod tests;
