//! Parsers of words common to the sources: protocols, ICMP types, DSCP classes, TCP flags, addresses, time units.

use std::net::IpAddr;

use config::word::meaning;
use wire::Nanos;

use super::range::ByteSet;
use crate::model::{AddressRange, MssClamp, Protocol};
use crate::word::{DSCP, TCP_FLAG};

/// Parses a protocol: a number, or a name of `/etc/protocols`.
pub(super) fn protocol(word: &str) -> Option<u8> {
    if let Ok(number) = word.parse() {
        return Some(number);
    }
    let also = [
        ("ipv6-icmp", 58),
        ("icmp6", 58),
        ("ipencap", 4),
        ("ip-encap", 4),
        ("ospfigp", 89),
        ("vrrp", 112),
        ("pim", 103),
        ("ipcomp", 108),
        ("comp", 108),
        ("igp", 9),
        ("egp", 8),
        ("eigrp", 88),
        ("l2tp", 115),
        ("mobility-header", 135),
        ("ipv6-mh", 135),
        ("ipv6-nonxt", 59),
        ("ipv6-frag", 44),
        ("ipv6-route", 43),
        ("ipv6-opts", 60),
    ];
    let word = word.to_ascii_lowercase();
    match also.iter().find(|(name, _)| *name == word) {
        Some(&(_, number)) => Some(number),
        None => word.parse::<Protocol>().ok().map(|protocol| protocol.0),
    }
}

/// Parses an ICMP or ICMPv6 type, with the code if the word has one, by the names of nftables and iptables.
pub(super) fn icmp(word: &str, v6: bool) -> Option<(u8, Option<u8>)> {
    if let Some((kind, code)) = word.split_once('/') {
        return Some((kind.parse().ok()?, Some(code.parse().ok()?)));
    }
    if let Ok(kind) = word.parse() {
        return Some((kind, None));
    }
    let v4_names: &[(&str, u8, Option<u8>)] = &[
        ("echo-reply", 0, None),
        ("destination-unreachable", 3, None),
        ("network-unreachable", 3, Some(0)),
        ("host-unreachable", 3, Some(1)),
        ("protocol-unreachable", 3, Some(2)),
        ("port-unreachable", 3, Some(3)),
        ("fragmentation-needed", 3, Some(4)),
        ("source-route-failed", 3, Some(5)),
        ("network-unknown", 3, Some(6)),
        ("host-unknown", 3, Some(7)),
        ("network-prohibited", 3, Some(9)),
        ("host-prohibited", 3, Some(10)),
        ("TOS-network-unreachable", 3, Some(11)),
        ("TOS-host-unreachable", 3, Some(12)),
        ("communication-prohibited", 3, Some(13)),
        ("host-precedence-violation", 3, Some(14)),
        ("precedence-cutoff", 3, Some(15)),
        ("source-quench", 4, None),
        ("redirect", 5, None),
        ("network-redirect", 5, Some(0)),
        ("host-redirect", 5, Some(1)),
        ("TOS-network-redirect", 5, Some(2)),
        ("TOS-host-redirect", 5, Some(3)),
        ("echo-request", 8, None),
        ("router-advertisement", 9, None),
        ("router-solicitation", 10, None),
        ("time-exceeded", 11, None),
        ("ttl-exceeded", 11, None),
        ("ttl-zero-during-transit", 11, Some(0)),
        ("ttl-zero-during-reassembly", 11, Some(1)),
        ("parameter-problem", 12, None),
        ("ip-header-bad", 12, Some(0)),
        ("required-option-missing", 12, Some(1)),
        ("timestamp-request", 13, None),
        ("timestamp-reply", 14, None),
        ("info-request", 15, None),
        ("info-reply", 16, None),
        ("address-mask-request", 17, None),
        ("address-mask-reply", 18, None),
    ];
    let v6_names: &[(&str, u8, Option<u8>)] = &[
        ("destination-unreachable", 1, None),
        ("no-route", 1, Some(0)),
        ("communication-prohibited", 1, Some(1)),
        ("beyond-scope", 1, Some(2)),
        ("address-unreachable", 1, Some(3)),
        ("port-unreachable", 1, Some(4)),
        ("failed-policy", 1, Some(5)),
        ("reject-route", 1, Some(6)),
        ("packet-too-big", 2, None),
        ("time-exceeded", 3, None),
        ("ttl-zero-during-transit", 3, Some(0)),
        ("ttl-zero-during-reassembly", 3, Some(1)),
        ("parameter-problem", 4, None),
        ("bad-header", 4, Some(0)),
        ("unknown-header-type", 4, Some(1)),
        ("unknown-option", 4, Some(2)),
        ("echo-request", 128, None),
        ("echo-reply", 129, None),
        ("mld-listener-query", 130, None),
        ("mld-listener-report", 131, None),
        ("mld-listener-done", 132, None),
        ("mld-listener-reduction", 132, None),
        ("nd-router-solicit", 133, None),
        ("router-solicitation", 133, None),
        ("nd-router-advert", 134, None),
        ("router-advertisement", 134, None),
        ("nd-neighbor-solicit", 135, None),
        ("neighbour-solicitation", 135, None),
        ("neighbor-solicitation", 135, None),
        ("nd-neighbor-advert", 136, None),
        ("neighbour-advertisement", 136, None),
        ("neighbor-advertisement", 136, None),
        ("nd-redirect", 137, None),
        ("redirect", 137, None),
        ("router-renumbering", 138, None),
        ("ind-neighbor-solicit", 141, None),
        ("ind-neighbor-advert", 142, None),
        ("mld2-listener-report", 143, None),
    ];
    let names = if v6 { v6_names } else { v4_names };
    names.iter().find(|(name, ..)| *name == word).map(|&(_, kind, code)| (kind, code))
}

/// Parses a code of an ICMP unreachable, by nftables' name.
pub(super) fn icmp_code(word: &str, v6: bool) -> Option<u8> {
    if let Ok(code) = word.parse() {
        return Some(code);
    }
    let v4_names = [
        ("net-unreachable", 0),
        ("host-unreachable", 1),
        ("prot-unreachable", 2),
        ("port-unreachable", 3),
        ("frag-needed", 4),
        ("net-prohibited", 9),
        ("host-prohibited", 10),
        ("admin-prohibited", 13),
    ];
    let v6_names = [
        ("no-route", 0),
        ("admin-prohibited", 1),
        ("addr-unreachable", 3),
        ("port-unreachable", 4),
        ("policy-fail", 5),
        ("reject-route", 6),
    ];
    let names = if v6 { v6_names.as_slice() } else { v4_names.as_slice() };
    names.iter().find(|(name, _)| *name == word).map(|&(_, code)| code)
}

/// Parses a DiffServ code point: a number, decimal or `0x` hexadecimal, or a class.
pub(super) fn dscp(word: &str) -> Option<u8> {
    let word = word.to_ascii_lowercase();
    let number = match word.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    number.or_else(|| meaning(DSCP, &word)).filter(|&value| value < 64)
}

/// Parses a DiffServ code point into a set.
pub(super) fn dscp_set(word: &str) -> Option<ByteSet> {
    dscp(word).map(ByteSet::one)
}

/// Parses a TCP flag by name, to its bit on the wire.
pub(super) fn tcp_flag(word: &str) -> Option<u8> {
    match word.to_ascii_lowercase().as_str() {
        "ecn" => Some(64),
        "all" => Some(63),
        "none" => Some(0),
        word => meaning(TCP_FLAG, word),
    }
}

/// Returns the addresses of a type of netfilter's that does not depend on routes, or only in part: IPv6 has no broadcasts, and of IPv4's
/// those of networks are missing.
pub(super) fn address_type(word: &str) -> Option<Vec<AddressRange>> {
    let ranges: &[&str] = match word {
        "multicast" => &["224.0.0.0/4", "ff00::/8"],
        "broadcast" => &["255.255.255.255"],
        _ => return None,
    };
    ranges.iter().map(|range| addresses(range)).collect()
}

/// Returns the clamp to a number of bytes, if an interface can have it.
pub(super) fn mss(bytes: u64) -> Option<MssClamp> {
    let bytes = u16::try_from(bytes).ok().filter(|bytes| MssClamp::RANGE.contains(bytes))?;
    Some(MssClamp::Bytes(bytes))
}

/// Parses an address, a prefix (by length or by mask), or a range with a dash.
pub(super) fn addresses(word: &str) -> Option<AddressRange> {
    if let Some((first, last)) = word.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let sound = first.is_ipv4() == last.is_ipv4() && first <= last;
        return sound.then_some(AddressRange { first, last });
    }
    let Some((address, length)) = word.split_once('/') else {
        return Some(AddressRange::single(word.parse().ok()?));
    };
    let address: IpAddr = address.parse().ok()?;
    let length = match (address, length.parse::<IpAddr>()) {
        (IpAddr::V4(_), Ok(IpAddr::V4(mask))) => {
            let bits = u32::from(mask);
            let length = bits.leading_ones();
            if bits.checked_shl(length).unwrap_or(0) != 0 {
                return None;
            }
            length as u8
        }
        (_, Ok(_)) => return None,
        (_, Err(_)) => length.parse().ok()?,
    };
    ipnet::IpNet::new(address, length).ok().map(AddressRange::from)
}

/// Parses an Ethernet address, six groups of one or two hexadecimal digits, to a number.
pub(super) fn mac(word: &str) -> Option<u64> {
    let mut groups = word.split(':');
    let address = (0..6).try_fold(0, |address, _| {
        let group = groups.next().filter(|group| group.len() <= 2 && !group.starts_with('+'))?;
        Some(address << 8 | u64::from(u8::from_str_radix(group, 16).ok()?))
    })?;
    groups.next().is_none().then_some(address)
}

/// Parses a unit of time, in full or by its beginning.
pub(super) fn unit(word: &str) -> Option<Nanos> {
    let seconds = match word {
        "second" | "sec" | "s" => 1,
        "minute" | "min" | "m" => 60,
        "hour" | "h" => 3_600,
        "day" | "d" => 86_400,
        "week" => 604_800,
        _ => return None,
    };
    Some(Nanos::from_secs(seconds))
}
