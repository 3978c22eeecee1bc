//! The fields of a packet, as case files name them: the one list that reading, building, taking apart and
//! comparing packets share.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use policy::model::{FamilyMatch, IcmpMatch};
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
    Pcp,
    Dei,
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
    IpLength,
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
    /// `OFFSET`, with `+` if more fragments follow.
    Fragment,
    /// An Ethernet address.
    Mac,
    /// `N`, or `N.N`.
    Vlans,
    /// A priority code point of all VLAN tags, or one of each: `N.N`.
    Pcps,
    /// Not by a word of its own.
    Hidden,
}

/// Every field: its word and the shape of its value. Of several words for one field, the first is printed.
pub(crate) const FIELDS: &[(Field, &str, Shape)] = &[
    (Field::EthSource, "eth source", Shape::Hidden),
    (Field::EthSource, "from", Shape::Mac),
    (Field::EthDestination, "eth destination", Shape::Hidden),
    (Field::EthDestination, "to", Shape::Mac),
    (Field::Vlans, "vlan", Shape::Vlans),
    (Field::Pcp, "pcp", Shape::Pcps),
    (Field::Dei, "dei", Shape::Set),
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
    (Field::Ack, "ackno", Shape::Number(0xffff_ffff)),
    (Field::Window, "win", Shape::Number(0xffff)),
    (Field::Window, "window", Shape::Number(0xffff)),
    (Field::Mss, "mss", Shape::Number(0xffff)),
    (Field::WindowScale, "wscale", Shape::Number(255)),
    (Field::Ttl, "ttl", Shape::Number(255)),
    (Field::Dscp, "dscp", Shape::Dscp),
    (Field::Ecn, "ecn", Shape::Number(3)),
    (Field::Df, "df", Shape::Set),
    (Field::Ipid, "ipid", Shape::Number(0xffff_ffff)),
    (Field::Ipid, "id", Shape::Number(0xffff_ffff)),
    (Field::Offset, "fragment", Shape::Fragment),
    (Field::More, "more fragments", Shape::Hidden),
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
    (Field::IpLength, "length", Shape::Number(0xffff)),
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
        matches!(self, Field::From | Field::Until | Field::Cut | Field::Pad | Field::Quote | Field::IpLength)
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Address(IpAddr),
    Mac(Mac),
    Bytes(Vec<u8>),
    /// Of each VLAN tag.
    Vlans(Vec<u16>),
    /// Of a checksum, or of a bit.
    Word(&'static str),
}

/// A value as it stands in a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A fixed value.
    Is(Value),
    /// The value bound to a variable.
    Variable(String),
    /// The value bound to a variable, plus a number.
    After(String, u64),
    /// A value, plus one for each repetition.
    Counts(Value),
    /// Any value.
    Any,
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
            (Field::Pcp, Value::Vlans(points)) => {
                let points: Vec<String> = points.iter().map(u16::to_string).collect();
                f.write_str(&points.join("."))
            }
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

/// The code point of that name or number.
pub(crate) fn dscp(word: &str) -> Option<u64> {
    let point = policy::dscp_named(word).or_else(|| word.parse().ok().and_then(Dscp::new))?;
    Some(point.value().into())
}

/// Names that stand for ICMP messages of either IP version: the name in ICMP and that in ICMPv6.
const COMMON: &[(&str, &str, &str)] = &[
    ("net-unreachable", "net-unreachable", "no-route"),
    ("host-unreachable", "host-unreachable", "address-unreachable"),
    ("too-big", "fragmentation-needed", "packet-too-big"),
];

/// Type and code of an ICMP message's name, or of `TYPE/CODE`.
pub(crate) fn icmp(word: &str, v6: bool) -> Option<IcmpMatch> {
    if let Some((kind, code)) = word.split_once('/') {
        return Some(IcmpMatch { kind: kind.parse().ok()?, code: Some(code.parse().ok()?) });
    }
    let common = COMMON.iter().find(|(name, ..)| *name == word);
    let name = common.map_or(word, |(_, four, six)| if v6 { six } else { four });
    policy::icmp_named(name, if v6 { FamilyMatch::V6 } else { FamilyMatch::V4 })
}

/// True if an ICMP message quotes a packet.
pub(crate) fn is_error(v6: bool, kind: u64) -> bool {
    if v6 { (1..=4).contains(&kind) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

#[cfg(test)]
mod tests {
    use super::{COMMON, FIELDS, Shape, dscp, icmp};

    #[test]
    fn every_word_is_in_the_manual() {
        let manual = include_str!("../../docs/cases.md");
        let words = FIELDS.iter().filter(|(.., shape)| *shape != Shape::Hidden).map(|(_, word, _)| *word);
        for word in words.chain(COMMON.iter().map(|(name, ..)| *name)) {
            let is_there =
                [format!("`{word}`"), format!("`{word} ")].iter().any(|form| manual.contains(form));
            assert!(is_there, "docs/cases.md says nothing of `{word}`");
        }
    }

    #[test]
    fn names_are_those_of_policies_and_of_both_ip_versions() {
        let both = |word| [false, true].map(|v6| icmp(word, v6).map(|icmp| (icmp.kind, icmp.code)));
        for (name, v4, v6) in COMMON {
            let [four, six] = both(name);
            assert!(four.is_some() && six.is_some(), "{name}: {v4}, {v6}");
        }
        assert_eq!(both("too-big"), [Some((3, Some(4))), Some((2, None))]);
        assert_eq!(both("listener-report"), [None, Some((143, None))]);
        assert_eq!(both("9/7"), [Some((9, Some(7))); 2]);
        assert_eq!(
            ["ef", "va", "af43", "63", "64", "af44"].map(dscp),
            [Some(46), Some(44), Some(38), Some(63), None, None]
        );
    }
}
