//! ICMP messages and their counterparts in the other family (RFC 7915, sections 4.2, 4.3, 5.2 and 5.3).

use arrayvec::ArrayVec;

use super::{
    EndsV4, EndsV6, Mtus, Untranslatable, V4, V6, addresses_v4, addresses_v6, adjust_transport, part_of,
    pseudo_v4, pseudo_v6, refuse_v4, refuse_v6,
};
use crate::checksum::{self, Delta, Sum};
use crate::header::Protocol;
use crate::meta::Part;
use crate::{icmpv4, icmpv6, ipv4, ipv6};

/// Most bytes of an ICMPv6 error without its IPv6 header: the packet fits the least MTU (RFC 4443, section 2.4).
const MOST_V6: usize = ipv6::LEAST_MTU as usize - ipv6::HEADER_LEN;
/// Most bytes of an ICMP error without its IPv4 header (RFC 1812, section 4.3.2.3).
const MOST_V4: usize = 576 - ipv4::MIN_HEADER_LEN;
/// Fewest bytes of a quote that extensions follow (RFC 4884, section 4).
const LEAST_QUOTE: usize = 128;

/// An error's counterpart, from the ICMP header on.
pub(super) type Message = ArrayVec<u8, MOST_V6>;

/// Kind of a payload, of those that have a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Echo request or reply.
    Query,
    /// An error, which quotes a packet.
    Error,
    /// No ICMP.
    Other,
}

/// Type, code and second word of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: u8,
    code: u8,
    /// MTU, pointer or nothing, without the length of RFC 4884.
    word: u32,
}

/// Refuses fragments: IPv6's checksum takes the length of the whole message.
pub(super) fn refuse_fragment(part: Part) -> Result<(), Untranslatable> {
    if part == Part::Whole { Ok(()) } else { Err(Untranslatable::IcmpFragment) }
}

/// Kind of an ICMPv6 message.
pub(super) fn kind_of_v6(message: &[u8]) -> Result<Kind, Untranslatable> {
    let header = icmpv6::Header::of(message).ok_or(Untranslatable::Malformed)?;
    match header.kind() {
        icmpv6::Type::ECHO_REQUEST | icmpv6::Type::ECHO_REPLY => Ok(Kind::Query),
        kind if kind.class() == icmpv6::Class::Error => Ok(Kind::Error),
        _ => Err(Untranslatable::Message),
    }
}

/// Kind of an ICMP message of IPv4.
pub(super) fn kind_of_v4(message: &[u8]) -> Result<Kind, Untranslatable> {
    let header = icmpv4::Header::of(message).ok_or(Untranslatable::Malformed)?;
    match header.kind() {
        icmpv4::Type::ECHO_REQUEST | icmpv4::Type::ECHO_REPLY => Ok(Kind::Query),
        kind if kind.class() == icmpv4::Class::Error => Ok(Kind::Error),
        _ => Err(Untranslatable::Message),
    }
}

/// Makes an ICMPv6 echo that of IPv4, which has no pseudo header.
pub(super) fn query_to_v4(message: &mut [u8], pseudo: Delta) {
    let kind = match message.first() {
        Some(&kind) if icmpv6::Type(kind) == icmpv6::Type::ECHO_REQUEST => icmpv4::Type::ECHO_REQUEST.0,
        _ => icmpv4::Type::ECHO_REPLY.0,
    };
    let change = set_kind(message, kind).and(pseudo.inverse());
    icmpv4::adjust_checksum(message, change);
}

/// Makes an ICMP echo that of IPv6.
pub(super) fn query_to_v6(message: &mut [u8], pseudo: Delta) {
    let kind = match message.first() {
        Some(&kind) if icmpv4::Type(kind) == icmpv4::Type::ECHO_REQUEST => icmpv6::Type::ECHO_REQUEST.0,
        _ => icmpv6::Type::ECHO_REPLY.0,
    };
    let change = set_kind(message, kind).and(pseudo);
    if let Some(mut header) = icmpv6::HeaderMut::of(message) {
        header.adjust_checksum(change);
    }
}

/// Sets the type, and returns the change of the sum.
fn set_kind(message: &mut [u8], kind: u8) -> Delta {
    let Some(first) = message.first_chunk_mut::<2>() else { return Delta::NONE };
    let old = u16::from_be_bytes(*first);
    first[0] = kind;
    Delta::NONE.change16(old, u16::from_be_bytes(*first))
}

/// Counterpart of an ICMPv6 error.
pub(super) fn error_to_v4(message: &[u8], quote: &EndsV4, mtus: Mtus) -> Result<Message, Untranslatable> {
    let parsed = icmpv6::parse(message).map_err(|_| Untranslatable::Malformed)?;
    let head = head_to_v4(parsed.header, mtus).ok_or(Untranslatable::Message)?;
    // The length of the quote, in words of 64 bits, where extensions follow (RFC 4884, section 4.4 and 4.5).
    let length = match parsed.header.kind() {
        icmpv6::Type::DESTINATION_UNREACHABLE | icmpv6::Type::TIME_EXCEEDED => usize::from(message[4]) * 8,
        _ => 0,
    };
    let (quoted, extensions) = split(parsed.body, length);
    let translated = quote_to_v4(quoted, quote)?;
    let mut new = Message::new();
    let most = if extensions.is_empty() { MOST_V4 } else { MOST_V6 };
    let words = assemble(&mut new, head, &translated, extensions, most, 4);
    // In the second byte of the second word.
    new[5] = words;
    let sum = checksum::of(&new);
    new[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok(new)
}

/// Counterpart of an ICMP error of IPv4; `ends` are the addresses of the packet that it will be in.
pub(super) fn error_to_v6(
    message: &[u8],
    ends: &EndsV6,
    quote: &EndsV6,
    mtus: Mtus,
) -> Result<Message, Untranslatable> {
    let parsed = icmpv4::parse(message).map_err(|_| Untranslatable::Malformed)?;
    let head = head_to_v6(parsed.header, parsed.body, mtus).ok_or(Untranslatable::Message)?;
    // In words of 32 bits (RFC 4884, sections 4.1 to 4.3).
    let (quoted, extensions) = split(parsed.body, usize::from(message[5]) * 4);
    let takes_extensions = matches!(
        icmpv6::Type(head.kind),
        icmpv6::Type::DESTINATION_UNREACHABLE | icmpv6::Type::TIME_EXCEEDED
    );
    let extensions = if takes_extensions { extensions } else { &[] };
    let translated = quote_to_v6(quoted, quote)?;
    let mut new = Message::new();
    let words = assemble(&mut new, head, &translated, extensions, MOST_V6, 8);
    if takes_extensions {
        new[4] = words;
    }
    // At most `MOST_V6`.
    let pseudo = Sum::pseudo_v6(ends.source, ends.destination, Protocol::ICMPV6, new.len() as u32);
    let sum = pseudo.and(&new).checksum();
    new[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok(new)
}

/// Splits an error's body into quote and extensions, given the bytes of the quote, 0 where no extensions follow.
fn split(body: &[u8], length: usize) -> (&[u8], &[u8]) {
    match body.split_at_checked(length) {
        // Of less than that the sender does not speak RFC 4884 (section 5.5).
        Some((quote, extensions)) if length >= LEAST_QUOTE && extensions.len() >= 8 => (quote, extensions),
        _ => (body, &[]),
    }
}

/// Puts header, quote and extensions together, in at most `most` bytes, and returns the length of the quote in units of `unit` bytes, 0 where
/// there are no extensions.
fn assemble(new: &mut Message, head: Head, quote: &[u8], extensions: &[u8], most: usize, unit: usize) -> u8 {
    let mut header = [0; icmpv4::HEADER_LEN];
    header[0] = head.kind;
    header[1] = head.code;
    header[4..].copy_from_slice(&head.word.to_be_bytes());
    new.extend(header);
    let room = most - icmpv4::HEADER_LEN;
    // Extensions that leave no room for a quote are left out.
    let extensions = if extensions.len() + LEAST_QUOTE > room { &[] } else { extensions };
    let room = room - extensions.len();
    if extensions.is_empty() {
        new.extend(quote.iter().take(room).copied());
        return 0;
    }
    // The length field has 8 bits.
    let most_words = (room / unit).min(usize::from(u8::MAX));
    let words = quote.len().max(LEAST_QUOTE).div_ceil(unit).min(most_words);
    let padded = quote.iter().copied().chain(std::iter::repeat(0)).take(words * unit);
    new.extend(padded);
    new.extend(extensions.iter().copied());
    words as u8
}

/// Header of an ICMPv6 error's counterpart (RFC 7915, section 5.2).
fn head_to_v4(header: icmpv6::Header<'_>, mtus: Mtus) -> Option<Head> {
    use icmpv4::unreachable as v4;
    use icmpv6::unreachable as v6;
    let unreachable = |code| Some(Head { kind: icmpv4::Type::DESTINATION_UNREACHABLE.0, code, word: 0 });
    match (header.kind(), header.code()) {
        (icmpv6::Type::DESTINATION_UNREACHABLE, code) => match code {
            v6::NO_ROUTE | BEYOND_SCOPE | v6::ADDRESS => unreachable(v4::HOST),
            v6::ADMINISTRATIVELY_PROHIBITED => unreachable(HOST_PROHIBITED),
            v6::PORT => unreachable(v4::PORT),
            _ => None,
        },
        (icmpv6::Type::PACKET_TOO_BIG, _) => {
            let shorter = |mtu: u32| mtu.saturating_sub(u32::from(LONGER));
            let mtu = shorter(header.mtu()).min(u32::from(mtus.v4)).min(shorter(u32::from(mtus.v6)));
            let kind = icmpv4::Type::DESTINATION_UNREACHABLE.0;
            Some(Head { kind, code: v4::FRAGMENTATION_NEEDED, word: mtu })
        }
        (icmpv6::Type::TIME_EXCEEDED, code) => {
            Some(Head { kind: icmpv4::Type::TIME_EXCEEDED.0, code, word: 0 })
        }
        (icmpv6::Type::PARAMETER_PROBLEM, 0) => {
            let pointer = pointer_to_v4(header.pointer())?;
            Some(Head { kind: icmpv4::Type::PARAMETER_PROBLEM.0, code: 0, word: u32::from(pointer) << 24 })
        }
        (icmpv6::Type::PARAMETER_PROBLEM, UNKNOWN_NEXT_HEADER) => unreachable(v4::PROTOCOL),
        _ => None,
    }
}

/// Header of an ICMP error's counterpart (RFC 7915, section 4.2), given the packet that it quotes.
fn head_to_v6(header: icmpv4::Header<'_>, quote: &[u8], mtus: Mtus) -> Option<Head> {
    use icmpv4::unreachable as v4;
    use icmpv6::unreachable as v6;
    let unreachable = |code| Some(Head { kind: icmpv6::Type::DESTINATION_UNREACHABLE.0, code, word: 0 });
    let parameter_problem = |code, word| Some(Head { kind: icmpv6::Type::PARAMETER_PROBLEM.0, code, word });
    match (header.kind(), header.code()) {
        (icmpv4::Type::DESTINATION_UNREACHABLE, code) => match code {
            // Net, host, source route failed, their unknown and isolated kin, and both for the type of service.
            v4::NET | v4::HOST | 5..=8 | 11 | 12 => unreachable(v6::NO_ROUTE),
            v4::PROTOCOL => parameter_problem(UNKNOWN_NEXT_HEADER, 6),
            v4::PORT => unreachable(v6::PORT),
            v4::FRAGMENTATION_NEEDED => {
                let mtu = match header.mtu() {
                    0 => plateau(ipv4::Header::of(quote)?.total_len()),
                    mtu => mtu,
                };
                let longer = |mtu: u16| u32::from(mtu) + u32::from(LONGER);
                let word =
                    longer(mtu).min(u32::from(mtus.v6)).min(longer(mtus.v4)).max(ipv6::LEAST_MTU.into());
                Some(Head { kind: icmpv6::Type::PACKET_TOO_BIG.0, code: 0, word })
            }
            // Net, host, communication prohibited, and precedence cut off.
            9 | HOST_PROHIBITED | v4::ADMINISTRATIVELY_PROHIBITED | 15 => {
                unreachable(v6::ADMINISTRATIVELY_PROHIBITED)
            }
            _ => None,
        },
        (icmpv4::Type::TIME_EXCEEDED, code) => {
            Some(Head { kind: icmpv6::Type::TIME_EXCEEDED.0, code, word: 0 })
        }
        // A pointer, or a bad length.
        (icmpv4::Type::PARAMETER_PROBLEM, 0 | 2) => parameter_problem(0, pointer_to_v6(header.pointer())?),
        _ => None,
    }
}

/// Bytes by which an IPv6 header is longer than an IPv4 header without options.
const LONGER: u16 = (ipv6::HEADER_LEN - ipv4::MIN_HEADER_LEN) as u16;
/// ICMPv6 code "beyond scope of source address" (RFC 4443, section 3.1).
const BEYOND_SCOPE: u8 = 2;
/// ICMPv6 code "unrecognized next header" (RFC 4443, section 3.4).
const UNKNOWN_NEXT_HEADER: u8 = 1;
/// ICMP code "communication with the destination host is administratively prohibited" (RFC 1122, section 3.2.2.1).
const HOST_PROHIBITED: u8 = 10;

/// Likely MTU where a router did not say its own: the greatest plateau below the packet's length (RFC 1191, section 7).
fn plateau(total_len: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];
    PLATEAUS.into_iter().find(|plateau| *plateau < total_len).unwrap_or(68)
}

/// Field of the IPv4 header for a field of the IPv6 header (RFC 7915, figure 6).
fn pointer_to_v4(pointer: u32) -> Option<u8> {
    match pointer {
        0 | 1 => Some(pointer as u8), // 0 or 1
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// Field of the IPv6 header for a field of the IPv4 header (RFC 7915, figure 3).
fn pointer_to_v6(pointer: u8) -> Option<u32> {
    match pointer {
        0 | 1 => Some(u32::from(pointer)),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// Translates a quoted packet, which may be cut short behind its headers. Lengths are those that its own header says.
fn quote_to_v4(quote: &[u8], ends: &EndsV4) -> Result<Message, Untranslatable> {
    let packet = ipv6::parse_prefix(quote).map_err(|_| Untranslatable::Malformed)?;
    refuse_v6(&packet)?;
    let payload = packet.payload.get(..packet.payload.len().min(MOST_V6 - ipv6::HEADER_LEN)).unwrap_or(&[]);
    let payload_len = packet.header.payload_len().saturating_sub(packet.extensions.len);
    let total = u16::try_from(usize::from(payload_len) + ipv4::MIN_HEADER_LEN);
    let fragment = packet.extensions.fragment.map(|header| header.fragment);
    let part = part_of(fragment);
    let addresses = pseudo_v4(ends).and(pseudo_v6(&addresses_v6(packet.header)).inverse());
    let is_icmp = packet.protocol() == Protocol::ICMPV6;
    let header = V4 {
        ds_field: packet.header.ds_field(),
        hops: packet.header.hop_limit(),
        protocol: if is_icmp { Protocol::ICMP } else { packet.protocol() },
        fragment,
        id: 0,
        ends: *ends,
    };
    let mut new = Message::new();
    new.extend(header.bytes(total.map_err(|_| Untranslatable::TooLong)?));
    new.extend(payload.iter().copied());
    let payload = &mut new[ipv4::MIN_HEADER_LEN..];
    if !is_icmp {
        adjust_transport(payload, packet.protocol(), part, addresses);
    } else if part != Part::Later {
        refuse_nested(kind_of_v6(payload)?)?;
        // The pseudo header is that of the whole packet.
        let length = u32::from(payload_len);
        let pseudo = Sum::pseudo_v6(packet.header.src(), packet.header.dst(), Protocol::ICMPV6, length);
        query_to_v4(payload, Delta::from_bits(pseudo.fold()));
    }
    Ok(new)
}

/// As [`quote_to_v4`], the other way.
fn quote_to_v6(quote: &[u8], ends: &EndsV6) -> Result<Message, Untranslatable> {
    let packet = ipv4::parse_prefix(quote).map_err(|_| Untranslatable::Malformed)?;
    refuse_v4(&packet)?;
    const LONGEST_HEADER: usize = ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN;
    let payload = packet.payload.get(..packet.payload.len().min(MOST_V6 - LONGEST_HEADER)).unwrap_or(&[]);
    // The header's length was compared with the total length.
    let payload_len = packet.header.total_len().saturating_sub(packet.header.header_len() as u16);
    let fragment = packet.header.fragment();
    let part = part_of(fragment);
    let addresses = pseudo_v6(ends).and(pseudo_v4(&addresses_v4(packet.header)).inverse());
    let is_icmp = packet.header.protocol() == Protocol::ICMP;
    let protocol = if is_icmp { Protocol::ICMPV6 } else { packet.header.protocol() };
    let header = V6 { ds_field: packet.header.ds_field(), hops: packet.header.ttl(), protocol, ends: *ends };
    let mut new = Message::new();
    match fragment {
        None => new.extend(header.bytes(payload_len)),
        Some(fragment) => new.extend(header.bytes_of_fragment(payload_len, fragment)),
    }
    let at = new.len();
    new.extend(payload.iter().copied());
    let payload = &mut new[at..];
    if !is_icmp {
        adjust_transport(payload, protocol, part, addresses);
    } else if part != Part::Later {
        refuse_nested(kind_of_v4(payload)?)?;
        let pseudo = Sum::pseudo_v6(ends.source, ends.destination, Protocol::ICMPV6, u32::from(payload_len));
        query_to_v6(payload, Delta::from_bits(pseudo.fold()));
    }
    Ok(new)
}

/// Refuses an error about an error, which nobody may send (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
fn refuse_nested(kind: Kind) -> Result<(), Untranslatable> {
    if kind == Kind::Query { Ok(()) } else { Err(Untranslatable::Message) }
}
