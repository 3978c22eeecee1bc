//! The fields of a packet, as case files name them: the one list that reading, building, taking apart and
//! comparing packets share.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use wire::Dscp;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::tcp::Flags;

/// A field of a packet. The order is that in which a packet is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    EthSource,
    EthDestination,
    Vlans,
    Ethertype,
    Protocol,
    Source,
    Sport,
    Destination,
    Dport,
    Flags,
    Type,
    Code,
    IcmpId,
    IcmpSeq,
    Mtu,
    Seq,
    Ack,
    Window,
    Mss,
    WindowScale,
    Ttl,
    Dscp,
    Ecn,
    Df,
    Ipid,
    Offset,
    More,
    Length,
    Data,
    TotalLength,
    Checksum,
    HeaderChecksum,
    Version,
    HeaderLength,
    UdpLength,
    DataOffset,
    TcpOptions,
    IpOptions,
    Whole,
    From,
    Until,
    Cut,
    Pad,
    Quote,
}

/// Syntax of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A number up to the given one.
    Number(u64),
    /// Hexadecimal digits.
    Bytes,
    /// A DiffServ code point by name or number.
    Dscp,
    /// `right`, `bad` or `none`.
    Checksum,
    /// The word alone.
    Set,
    /// `A..B`.
    Part,
    /// Not by a word of its own.
    Hidden,
}

/// Every field: its word and the shape of its value.
pub(crate) const FIELDS: &[(Field, &str, Shape)] = &[
    (Field::EthSource, "eth source", Shape::Hidden),
    (Field::EthDestination, "eth destination", Shape::Hidden),
    (Field::Vlans, "vlan", Shape::Hidden),
    (Field::Ethertype, "ethertype", Shape::Hidden),
    (Field::Protocol, "protocol", Shape::Hidden),
    (Field::Source, "source", Shape::Hidden),
    (Field::Sport, "source port", Shape::Hidden),
    (Field::Destination, "destination", Shape::Hidden),
    (Field::Dport, "destination port", Shape::Hidden),
    (Field::Flags, "flags", Shape::Hidden),
    (Field::Type, "type", Shape::Number(255)),
    (Field::Code, "code", Shape::Number(255)),
    (Field::IcmpId, "id", Shape::Number(0xffff)),
    (Field::IcmpSeq, "seq", Shape::Number(0xffff)),
    (Field::Mtu, "mtu", Shape::Number(0xffff_ffff)),
    (Field::Seq, "seq", Shape::Number(0xffff_ffff)),
    (Field::Ack, "ack", Shape::Number(0xffff_ffff)),
    (Field::Window, "win", Shape::Number(0xffff)),
    (Field::Mss, "mss", Shape::Number(0xffff)),
    (Field::WindowScale, "wscale", Shape::Number(255)),
    (Field::Ttl, "ttl", Shape::Number(255)),
    (Field::Dscp, "dscp", Shape::Dscp),
    (Field::Ecn, "ecn", Shape::Number(3)),
    (Field::Df, "df", Shape::Set),
    (Field::Ipid, "ipid", Shape::Number(0xffff_ffff)),
    (Field::Offset, "offset", Shape::Hidden),
    (Field::More, "more", Shape::Hidden),
    (Field::Length, "len", Shape::Number(70_000)),
    (Field::Data, "data", Shape::Bytes),
    (Field::TotalLength, "total-length", Shape::Number(0xffff)),
    (Field::Checksum, "checksum", Shape::Checksum),
    (Field::HeaderChecksum, "header-checksum", Shape::Checksum),
    (Field::Version, "version", Shape::Number(15)),
    (Field::HeaderLength, "header-length", Shape::Number(60)),
    (Field::UdpLength, "udp-length", Shape::Number(0xffff)),
    (Field::DataOffset, "data-offset", Shape::Number(60)),
    (Field::TcpOptions, "tcp-options", Shape::Bytes),
    (Field::IpOptions, "ip-options", Shape::Bytes),
    (Field::Whole, "whole", Shape::Hidden),
    (Field::From, "part", Shape::Part),
    (Field::Until, "until", Shape::Hidden),
    (Field::Cut, "cut", Shape::Number(20_000)),
    (Field::Pad, "pad", Shape::Number(20_000)),
    (Field::Quote, "quote", Shape::Number(1500)),
];

impl Field {
    /// The word that a case file has for it.
    pub(crate) fn word(self) -> &'static str {
        FIELDS.iter().find(|(field, ..)| *field == self).map_or("?", |(_, word, _)| word)
    }

    /// True if it only says how the packet is to be made.
    pub(crate) fn is_recipe(self) -> bool {
        matches!(self, Field::From | Field::Until | Field::Cut | Field::Pad | Field::Quote | Field::Whole)
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Address(IpAddr),
    Mac(Mac),
    Bytes(Vec<u8>),
    Vlans(Vec<u16>),
    /// Of a checksum, or of a bit.
    Word(&'static str),
}

/// The fields of one packet.
pub(crate) type Fields = BTreeMap<Field, Value>;

/// A value in the words of the format.
pub(crate) struct Shown<'a>(pub(crate) Field, pub(crate) &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(field, value) = self;
        match (field, value) {
            (Field::Flags, Value::Number(bits)) => Flags(*bits as u8).fmt(f),
            (Field::Protocol, Value::Number(number)) => Protocol(*number as u8).fmt(f),
            (Field::Ethertype, Value::Number(number)) => write!(f, "{number:#06x}"),
            (Field::Dscp, Value::Number(number)) => number.fmt(f),
            (_, Value::Number(number)) => number.fmt(f),
            (_, Value::Address(address)) => address.fmt(f),
            (_, Value::Mac(mac)) => mac.fmt(f),
            (_, Value::Word(word)) => f.write_str(word),
            (_, Value::Vlans(ids)) if ids.is_empty() => f.write_str("untagged"),
            (_, Value::Vlans(ids)) => {
                let ids: Vec<String> = ids.iter().map(u16::to_string).collect();
                f.write_str(&ids.join(" vlan "))
            }
            (_, Value::Bytes(bytes)) => {
                for byte in bytes.iter().take(SHOWN) {
                    write!(f, "{byte:02x}")?;
                }
                if bytes.len() > SHOWN { write!(f, "... ({} bytes)", bytes.len()) } else { Ok(()) }
            }
        }
    }
}

/// Bytes of a payload that a difference shows.
const SHOWN: usize = 24;

/// The code point of that name (RFC 2474, RFC 2597, RFC 3246, RFC 8622) or number.
pub(crate) fn dscp(word: &str) -> Option<u64> {
    let number = match word {
        "ef" => 46,
        "va" => 44,
        "le" => 1,
        _ => match word.as_bytes() {
            [b'c', b's', class @ b'0'..=b'7'] => (class - b'0') * 8,
            [b'a', b'f', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => (class - b'0') * 8 + (drop - b'0') * 2,
            _ => word.parse().ok()?,
        },
    };
    Dscp::new(number).map(|dscp| u64::from(dscp.value()))
}

/// An ICMP message's name, and its type and code in IPv4 and in IPv6.
type Kind = (&'static str, Option<(u8, u8)>, Option<(u8, u8)>);

/// ICMP messages by name (RFC 792, RFC 1812, RFC 4443, RFC 4861).
pub(crate) const KINDS: &[Kind] = &[
    ("echo-request", Some((8, 0)), Some((128, 0))),
    ("echo-reply", Some((0, 0)), Some((129, 0))),
    ("timestamp-request", Some((13, 0)), None),
    ("timestamp-reply", Some((14, 0)), None),
    ("net-unreachable", Some((3, 0)), Some((1, 0))),
    ("host-unreachable", Some((3, 1)), Some((1, 3))),
    ("port-unreachable", Some((3, 3)), Some((1, 4))),
    ("admin-prohibited", Some((3, 13)), Some((1, 1))),
    ("reject-route", None, Some((1, 6))),
    ("too-big", Some((3, 4)), Some((2, 0))),
    ("time-exceeded", Some((11, 0)), Some((3, 0))),
    ("parameter-problem", Some((12, 0)), Some((4, 0))),
    ("redirect", Some((5, 1)), Some((137, 0))),
    ("router-solicitation", None, Some((133, 0))),
    ("router-advertisement", None, Some((134, 0))),
    ("neighbour-solicitation", None, Some((135, 0))),
    ("neighbour-advertisement", None, Some((136, 0))),
    ("listener-report", None, Some((143, 0))),
];

/// Type and code of an ICMP message's name, or of `TYPE/CODE`.
pub(crate) fn icmp_kind(word: &str, v6: bool) -> Option<(u8, u8)> {
    if let Some((_, four, six)) = KINDS.iter().find(|(name, ..)| *name == word) {
        return if v6 { *six } else { *four };
    }
    let (kind, code) = word.split_once('/')?;
    Some((kind.parse().ok()?, code.parse().ok()?))
}

/// True if an ICMP message quotes a packet.
pub(crate) fn is_error(v6: bool, kind: u64) -> bool {
    if v6 { (1..=4).contains(&kind) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}
