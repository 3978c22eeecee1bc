//! ICMP for IPv6 (RFC 4443), with neighbour discovery (RFC 4861) as far as a router needs it.

use std::net::Ipv6Addr;

use crate::checksum::{Delta, Sum};
use crate::ethernet::Mac;
use crate::header::{array, be16, be32, put};
pub use crate::icmpv4::Class;

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// The type of a message (IANA, "ICMPv6 'type' Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Type(pub u8);

impl Type {
    /// Error: not delivered; [`mod@unreachable`] names the codes.
    pub const DESTINATION_UNREACHABLE: Type = Type(1);
    /// Error: too big for the next link.
    pub const PACKET_TOO_BIG: Type = Type(2);
    /// Error: the hop limit ran out (code 0), or the time for reassembly (code 1).
    pub const TIME_EXCEEDED: Type = Type(3);
    /// Error: a header is wrong at a given byte.
    pub const PARAMETER_PROBLEM: Type = Type(4);
    /// Query: asks for an echo reply.
    pub const ECHO_REQUEST: Type = Type(128);
    /// Answer to an echo request.
    pub const ECHO_REPLY: Type = Type(129);
    /// A host's request for router advertisements.
    pub const ROUTER_SOLICITATION: Type = Type(133);
    /// A router's announcement.
    pub const ROUTER_ADVERTISEMENT: Type = Type(134);
    /// Asks for a neighbour's link-layer address.
    pub const NEIGHBOR_SOLICITATION: Type = Type(135);
    /// Announces a node's own link-layer address.
    pub const NEIGHBOR_ADVERTISEMENT: Type = Type(136);
    /// Redirect: a better first hop exists.
    pub const REDIRECT: Type = Type(137);

    /// Class of the message in connection tracking: types below 128 are errors.
    #[inline]
    pub const fn class(self) -> Class {
        match self.0 {
            0..128 => Class::Error,
            128 => Class::Request,
            129 => Class::Reply,
            _ => Class::Other,
        }
    }

    /// True for messages of neighbour discovery, which must have hop limit 255 (RFC 4861, section 6.1 and 7.1).
    #[inline]
    pub const fn is_neighbor_discovery(self) -> bool {
        matches!(self.0, 133..=137)
    }
}

/// Codes of [`Type::DESTINATION_UNREACHABLE`].
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens at the port.
    pub const PORT: u8 = 4;
    /// The source address failed a policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// Reject route to the destination.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Reason why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its type demands.
    #[error("ICMPv6 message shorter than its type demands")]
    TooShort,
    /// The checksum is wrong.
    #[error("wrong ICMPv6 checksum")]
    Checksum,
    /// An option of neighbour discovery has length zero or reaches past the end.
    #[error("bad length of a neighbour discovery option")]
    Option,
}

/// A message, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The first 8 bytes.
    pub header: Header<'a>,
    /// Message body, after the first 8 bytes.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Beginning of the packet that an error quotes, for [`crate::ipv6::parse_prefix`].
    #[inline]
    pub fn quoted(&self) -> Option<&'a [u8]> {
        matches!(self.header.kind().class(), Class::Error).then_some(self.body)
    }

    /// The message as one of neighbour discovery; `None` for any other type.
    pub fn discovery(&self) -> Option<Result<Discovery<'a>, Malformed>> {
        let body = self.body;
        let target = || {
            let Some((target, options)) = body.split_first_chunk() else { return Err(Malformed::TooShort) };
            Ok((Ipv6Addr::from(*target), DiscoveryOptions(options)))
        };
        Some(match self.header.kind() {
            Type::ROUTER_SOLICITATION => {
                Ok(Discovery::RouterSolicitation { options: DiscoveryOptions(body) })
            }
            Type::ROUTER_ADVERTISEMENT => match body.split_first_chunk::<8>() {
                // The first 8 bytes hold reachable time and retransmission timer.
                Some((_, options)) => Ok(Discovery::RouterAdvertisement {
                    lifetime: self.header.seq(),
                    options: DiscoveryOptions(options),
                }),
                None => Err(Malformed::TooShort),
            },
            Type::NEIGHBOR_SOLICITATION => {
                target().map(|(target, options)| Discovery::NeighborSolicitation { target, options })
            }
            Type::NEIGHBOR_ADVERTISEMENT => target().map(|(target, options)| {
                let flags = AdvertisementFlags(self.header.0[4]);
                Discovery::NeighborAdvertisement { target, flags, options }
            }),
            Type::REDIRECT => match body.split_first_chunk::<32>() {
                Some((addresses, options)) => Ok(Discovery::Redirect {
                    target: Ipv6Addr::from(array::<32, 16>(addresses, 0)),
                    destination: Ipv6Addr::from(array::<32, 16>(addresses, 16)),
                    options: DiscoveryOptions(options),
                }),
                None => Err(Malformed::TooShort),
            },
            _ => return None,
        })
    }
}

/// Takes a message apart, its checksum unseen.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Message<'_>, Malformed> {
    match payload.split_first_chunk() {
        Some((header, body)) => Ok(Message { header: Header(header), body }),
        None => Err(Malformed::TooShort),
    }
}

/// Takes a message apart and verifies its checksum, for which it must be whole: no fragment, not cut.
/// `pseudo` is the sum of the pseudo header, as [`crate::ipv6::Packet::pseudo_header`] gives it.
#[inline]
pub fn parse_verified(payload: &[u8], pseudo: Sum) -> Result<Message<'_>, Malformed> {
    let message = parse(payload)?;
    if pseudo.and(payload).verifies() { Ok(message) } else { Err(Malformed::Checksum) }
}

/// The first 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The bytes at the start of `payload`, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a [u8]) -> Option<Header<'a>> {
        payload.first_chunk().map(Header)
    }

    /// The type.
    #[inline]
    pub fn kind(self) -> Type {
        Type(self.0[0])
    }

    /// The code, whose meaning depends on the type.
    #[inline]
    pub fn code(self) -> u8 {
        self.0[1]
    }

    /// The checksum.
    #[inline]
    pub fn checksum(self) -> u16 {
        be16(self.0, 2)
    }

    /// The identifier of a request or reply; bytes of another meaning in any other message.
    #[inline]
    pub fn id(self) -> u16 {
        be16(self.0, 4)
    }

    /// The sequence number of a request or reply; bytes of another meaning in any other message.
    #[inline]
    pub fn seq(self) -> u16 {
        be16(self.0, 6)
    }

    /// The next link's MTU in bytes, in [`Type::PACKET_TOO_BIG`].
    #[inline]
    pub fn mtu(self) -> u32 {
        be32(self.0, 4)
    }

    /// Pointer of [`Type::PARAMETER_PROBLEM`]: offset of the wrong byte in the quoted packet.
    #[inline]
    pub fn pointer(self) -> u32 {
        be32(self.0, 4)
    }
}

/// The first 8 bytes, to change. The checksum is the caller's.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The bytes at the start of `payload`, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        payload.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the type.
    #[inline]
    pub fn set_kind(&mut self, kind: Type) {
        self.0[0] = kind.0;
    }

    /// Sets the code.
    #[inline]
    pub fn set_code(&mut self, code: u8) {
        self.0[1] = code;
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0, 2, checksum.to_be_bytes());
    }

    /// Sets the identifier.
    #[inline]
    pub fn set_id(&mut self, id: u16) {
        put(self.0, 4, id.to_be_bytes());
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u16) {
        put(self.0, 6, seq.to_be_bytes());
    }

    /// Adjusts the checksum for fields that changed, those of the pseudo header among them.
    #[inline]
    pub fn adjust_checksum(&mut self, delta: Delta) {
        let checksum = delta.apply(self.view().checksum());
        self.set_checksum(checksum);
    }
}

/// A message of neighbour discovery (RFC 4861, section 4).
#[derive(Clone, Debug)]
pub enum Discovery<'a> {
    /// A host asks for routers.
    RouterSolicitation {
        /// Options.
        options: DiscoveryOptions<'a>,
    },
    /// A router announces itself.
    RouterAdvertisement {
        /// Router lifetime, in seconds; 0 if it is no default router.
        lifetime: u16,
        /// Options.
        options: DiscoveryOptions<'a>,
    },
    /// Asks for the link-layer address of the target.
    NeighborSolicitation {
        /// Address to resolve.
        target: Ipv6Addr,
        /// Options.
        options: DiscoveryOptions<'a>,
    },
    /// Announces the link-layer address of the target.
    NeighborAdvertisement {
        /// Address whose link-layer address is announced.
        target: Ipv6Addr,
        /// Router, solicited, override.
        flags: AdvertisementFlags,
        /// Options.
        options: DiscoveryOptions<'a>,
    },
    /// A better first hop for a destination.
    Redirect {
        /// Address of the better hop.
        target: Ipv6Addr,
        /// Destination that the redirect is for.
        destination: Ipv6Addr,
        /// Options.
        options: DiscoveryOptions<'a>,
    },
}

/// The flags of a neighbor advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisementFlags(pub u8);

impl AdvertisementFlags {
    /// The sender is a router.
    pub const ROUTER: AdvertisementFlags = AdvertisementFlags(0x80);
    /// The advertisement answers a solicitation.
    pub const SOLICITED: AdvertisementFlags = AdvertisementFlags(0x40);
    /// The advertisement replaces a cached link-layer address.
    pub const OVERRIDE: AdvertisementFlags = AdvertisementFlags(0x20);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: AdvertisementFlags) -> AdvertisementFlags {
        AdvertisementFlags(self.0 | other.0)
    }

    /// True if all of `other` are set.
    pub const fn contains(self, other: AdvertisementFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// An option of neighbour discovery (RFC 4861, section 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryOption<'a> {
    /// The sender's address on the link.
    SourceLinkLayer(Mac),
    /// The target's address on the link.
    TargetLinkLayer(Mac),
    /// The link's MTU in bytes.
    Mtu(u32),
    /// Another option.
    Other {
        /// The type.
        kind: u8,
        /// Option data, after type and length.
        data: &'a [u8],
    },
}

/// Walks the options of a message of neighbour discovery. Ends after the first error.
#[derive(Clone, Debug)]
pub struct DiscoveryOptions<'a>(&'a [u8]);

impl DiscoveryOptions<'_> {
    /// The first source link-layer address, of options that all parse.
    pub fn source_link_layer(&self) -> Result<Option<Mac>, Malformed> {
        self.first(|option| match option {
            DiscoveryOption::SourceLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }

    /// The first target link-layer address, of options that all parse.
    pub fn target_link_layer(&self) -> Result<Option<Mac>, Malformed> {
        self.first(|option| match option {
            DiscoveryOption::TargetLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }

    fn first(&self, pick: impl Fn(DiscoveryOption<'_>) -> Option<Mac>) -> Result<Option<Mac>, Malformed> {
        // To the end in any case: a message with a bad option is to be dropped whole (RFC 4861, section 6.1).
        let mut found = None;
        for option in self.clone() {
            found = found.or(pick(option?));
        }
        Ok(found)
    }
}

impl<'a> Iterator for DiscoveryOptions<'a> {
    type Item = Result<DiscoveryOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let &[kind, units, ..] = bytes else { return Some(Err(Malformed::Option)) };
        if units == 0 {
            return Some(Err(Malformed::Option));
        }
        let Some((option, rest)) = bytes.split_at_checked(usize::from(units) * 8) else {
            return Some(Err(Malformed::Option));
        };
        self.0 = rest;
        let data = &option[2..];
        Some(Ok(match (kind, <&[u8; 6]>::try_from(data)) {
            (1, Ok(mac)) => DiscoveryOption::SourceLinkLayer(Mac(*mac)),
            (2, Ok(mac)) => DiscoveryOption::TargetLinkLayer(Mac(*mac)),
            (5, Ok(mtu)) => DiscoveryOption::Mtu(be32(mtu, 2)),
            _ => DiscoveryOption::Other { kind, data },
        }))
    }
}

#[cfg(test)]
mod tests;
