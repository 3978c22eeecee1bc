//! Writes whole packets: headers, lengths and checksums right, into a buffer of the caller's.
//!
//! ```
//! use wire::build;
//! use wire::tcp::Flags;
//!
//! let client = "192.0.2.1".parse().unwrap();
//! let server = "198.51.100.7".parse().unwrap();
//! let tcp = build::Tcp { sport: 50000, dport: 443, flags: Flags::SYN, ..Default::default() };
//! let mut buffer = [0; 64];
//! assert_eq!(build::ipv4(client, server).ttl(3).tcp(tcp).write(&mut buffer), Ok(40));
//! ```
//!
//! A transport checksum covers what is written here. So a packet whose first fragment is wanted is built
//! whole and cut afterwards, and a later fragment is written as raw [`Packet::protocol`] bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use crate::ethernet::{EtherType, Mac};
use crate::header::{Fragment, Protocol};
use crate::tcp::Flags;
use crate::unit::Dscp;
use crate::vlan::{Tag, Tags};
use crate::{arp, icmpv4, icmpv6};

/// Starts a packet with an Ethernet header; the next call names its payload.
pub fn ethernet<'a>(src: Mac, dst: Mac) -> Packet<'a> {
    Packet { link: Some(Link { src, dst, tags: Tags::NONE }), ..Packet::EMPTY }
}

/// Starts a packet at its IPv4 header.
pub fn ipv4<'a>(src: Ipv4Addr, dst: Ipv4Addr) -> Packet<'a> {
    Packet::EMPTY.ipv4(src, dst)
}

/// Starts a packet at its IPv6 header.
pub fn ipv6<'a>(src: Ipv6Addr, dst: Ipv6Addr) -> Packet<'a> {
    Packet::EMPTY.ipv6(src, dst)
}

/// A packet to be written.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    link: Option<Link>,
    network: Network,
    hops: u8,
    ds_field: u8,
    id: u16,
    flow_label: u32,
    dont_fragment: bool,
    fragment: Option<Fragment>,
    options: &'a [u8],
    extensions: ArrayVec<Extension<'a>, 12>,
    upper: Upper<'a>,
    payload: &'a [u8],
    min_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    src: Mac,
    dst: Mac,
    tags: Tags,
}

#[derive(Clone, Copy, Debug)]
enum Network {
    Raw(EtherType),
    Arp(arp::Fields),
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

#[derive(Clone, Copy, Debug)]
enum Upper<'a> {
    Raw(Protocol),
    Tcp(Tcp<'a>),
    Udp(Udp),
    Icmp { protocol: Protocol, message: Icmp },
}

/// An IPv6 extension header: its number, and its bytes after next header and length, which the builder
/// fills in. They are padded with zeros to the next multiple of 8.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    /// Hop-by-hop, routing, destination options, or another of that format.
    pub protocol: Protocol,
    /// At most 2046 bytes; with the first two a multiple of 8, or padded to it.
    pub body: &'a [u8],
}

impl Extension<'_> {
    fn len(&self) -> usize {
        (self.body.len() + 2).next_multiple_of(8)
    }
}

/// A TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags.
    pub flags: Flags,
    /// Window, before scaling.
    pub window: u16,
    /// Options, at most 40 bytes; padded with zeros to the next multiple of 4.
    pub options: &'a [u8],
}

impl Default for Tcp<'_> {
    fn default() -> Self {
        Tcp { sport: 0, dport: 0, seq: 0, ack: 0, flags: Flags::NONE, window: 65535, options: &[] }
    }
}

/// A UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Checksum, or none.
    pub checksum: UdpChecksum,
}

/// Checksum of a datagram, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpChecksum {
    /// Computed.
    #[default]
    Computed,
    /// Zero: none.
    Zero,
}

/// An ICMP or ICMPv6 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The four bytes after the checksum: identifier and sequence, MTU, pointer or zeros.
    pub rest: [u8; 4],
}

impl Icmp {
    /// The four bytes of an echo message.
    pub const fn echo(kind: u8, id: u16, seq: u16) -> Icmp {
        let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
        Icmp { kind, code: 0, rest: [a, b, c, d] }
    }
}

/// Reason why a packet was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbuildable {
    /// The buffer is too small.
    #[error("no room for a packet of {needed} bytes")]
    NoRoom {
        /// Bytes needed.
        needed: usize,
    },
    /// A length is more than its field can say: 40 bytes of IPv4 or TCP options, 2046 of an IPv6 extension,
    /// 65535 of an IPv4 packet or IPv6 payload.
    #[error("longer than a length field can say")]
    TooLong,
}

impl<'a> Packet<'a> {
    const EMPTY: Packet<'a> = Packet {
        link: None,
        network: Network::Raw(EtherType(0)),
        hops: 64,
        ds_field: 0,
        id: 0,
        flow_label: 0,
        dont_fragment: false,
        fragment: None,
        options: &[],
        extensions: ArrayVec::new_const(),
        upper: Upper::Raw(Protocol::NO_NEXT),
        payload: &[],
        min_len: 0,
    };

    /// Adds a VLAN tag within those before it; at most two, and only with an Ethernet header.
    #[must_use]
    pub fn vlan(mut self, tag: Tag) -> Self {
        if let Some(link) = &mut self.link {
            link.tags = link.tags.with(tag);
        }
        self
    }

    /// Carries raw bytes of this type.
    #[must_use]
    pub fn ethertype(mut self, ethertype: EtherType) -> Self {
        self.network = Network::Raw(ethertype);
        self
    }

    /// Carries ARP.
    #[must_use]
    pub fn arp(mut self, fields: arp::Fields) -> Self {
        self.network = Network::Arp(fields);
        self
    }

    /// Carries IPv4.
    #[must_use]
    pub fn ipv4(mut self, src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        self.network = Network::V4 { src, dst };
        self
    }

    /// Carries IPv6.
    #[must_use]
    pub fn ipv6(mut self, src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        self.network = Network::V6 { src, dst };
        self
    }

    /// Sets time to live or hop limit; 64 otherwise.
    #[must_use]
    pub fn ttl(mut self, hops: u8) -> Self {
        self.hops = hops;
        self
    }

    /// Sets the DiffServ code point; 0 otherwise.
    #[must_use]
    pub fn dscp(mut self, dscp: Dscp) -> Self {
        self.ds_field = (self.ds_field & 3) | (dscp.value() << 2);
        self
    }

    /// Sets the whole DS field, congestion notification included.
    #[must_use]
    pub fn ds_field(mut self, field: u8) -> Self {
        self.ds_field = field;
        self
    }

    /// Sets IPv4's identification; 0 otherwise. A fragment brings its own.
    #[must_use]
    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    /// Sets the lower 20 bits as IPv6's flow label; 0 otherwise.
    #[must_use]
    pub fn flow_label(mut self, label: u32) -> Self {
        self.flow_label = label;
        self
    }

    /// Forbids fragmentation (IPv4).
    #[must_use]
    pub fn dont_fragment(mut self) -> Self {
        self.dont_fragment = true;
        self
    }

    /// Makes it this part of a larger packet: in IPv6 by a fragment header after all other extensions.
    #[must_use]
    pub fn fragment(mut self, fragment: Fragment) -> Self {
        self.fragment = Some(fragment);
        self
    }

    /// Adds IPv4 options, at most 40 bytes; padded with zeros to the next multiple of 4.
    #[must_use]
    pub fn ip_options(mut self, options: &'a [u8]) -> Self {
        self.options = options;
        self
    }

    /// Adds an IPv6 extension header after those before it; at most 12.
    #[must_use]
    pub fn extension(mut self, protocol: Protocol, body: &'a [u8]) -> Self {
        // A thirteenth is left out, which the test that wants it will notice.
        let _ = self.extensions.try_push(Extension { protocol, body });
        self
    }

    /// Carries TCP.
    #[must_use]
    pub fn tcp(mut self, header: Tcp<'a>) -> Self {
        self.upper = Upper::Tcp(header);
        self
    }

    /// Carries UDP, with its checksum.
    #[must_use]
    pub fn udp(mut self, sport: u16, dport: u16) -> Self {
        self.upper = Upper::Udp(Udp { sport, dport, checksum: UdpChecksum::Computed });
        self
    }

    /// Carries UDP without a checksum.
    #[must_use]
    pub fn udp_without_checksum(mut self, sport: u16, dport: u16) -> Self {
        self.upper = Upper::Udp(Udp { sport, dport, checksum: UdpChecksum::Zero });
        self
    }

    /// Carries ICMP for IPv4.
    #[must_use]
    pub fn icmpv4(mut self, message: Icmp) -> Self {
        self.upper = Upper::Icmp { protocol: Protocol::ICMP, message };
        self
    }

    /// Carries ICMP for IPv6.
    #[must_use]
    pub fn icmpv6(mut self, message: Icmp) -> Self {
        self.upper = Upper::Icmp { protocol: Protocol::ICMPV6, message };
        self
    }

    /// Carries an echo request of the IP version named before.
    #[must_use]
    pub fn echo_request(self, id: u16, seq: u16) -> Self {
        match self.network {
            Network::V6 { .. } => self.icmpv6(Icmp::echo(icmpv6::Type::ECHO_REQUEST.0, id, seq)),
            _ => self.icmpv4(Icmp::echo(icmpv4::Type::ECHO_REQUEST.0, id, seq)),
        }
    }

    /// Carries an echo reply of the IP version named before.
    #[must_use]
    pub fn echo_reply(self, id: u16, seq: u16) -> Self {
        match self.network {
            Network::V6 { .. } => self.icmpv6(Icmp::echo(icmpv6::Type::ECHO_REPLY.0, id, seq)),
            _ => self.icmpv4(Icmp::echo(icmpv4::Type::ECHO_REPLY.0, id, seq)),
        }
    }

    /// Carries the payload's bytes as this protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.upper = Upper::Raw(protocol);
        self
    }

    /// Sets the payload after the last header.
    #[must_use]
    pub fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Pads with zeros at the end, as links do, to at least this many bytes in all: 60 for Ethernet.
    #[must_use]
    pub fn pad_to(mut self, bytes: usize) -> Self {
        self.min_len = bytes;
        self
    }
}

mod write;

#[cfg(test)]
mod tests;
