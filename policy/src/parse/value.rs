//! Readers of the values of a policy file.
//!
//! Each reader takes one value and returns its meaning, or a complaint that names the error and the form expected.

use std::net::{IpAddr, SocketAddr};

use config::word::meaning;
use config::{did_you_mean, quantity, value, wrong_type};
use ipnet::IpNet;
use toml::de::DeValue;
use wire::link::MOST_RATE;
use wire::{BitRate, Bytes, Dscp, Nanos};

use super::Complaint;
use crate::diagnostic::Code;
use crate::model::{
    AddressItem, AddressRange, ConnectionLimit, IcmpMatch, Mac, MacRange, MssClamp, PortRange, Protocol,
    Rate, Scope, TcpFlagsMatch,
};
use crate::word::{self, Words};

pub(super) use config::value::{flag, one_of, owned, text};

/// Result of reading a value, or the complaint about it.
pub(super) type Read<T> = value::Read<T, Code>;

/// Reads an integer from `least` to `most`.
pub(super) fn number(value: &DeValue<'_>, least: u64, most: u64) -> Read<u64> {
    value::number(value, least, most)
}

/// Reads the rate of a link, not zero.
pub(super) fn bit_rate(value: &DeValue<'_>) -> Read<BitRate> {
    quantity::bit_rate(value, MOST_RATE.0).map(BitRate)
}

/// Reads any 32-bit integer; `validate` checks the range.
pub(super) fn number32(value: &DeValue<'_>) -> Read<u32> {
    number(value, 0, u32::MAX.into()).map(|number| number as u32)
}

/// Reads any 16-bit integer; `validate` checks the range.
pub(super) fn number16(value: &DeValue<'_>) -> Read<u16> {
    number(value, 0, u16::MAX.into()).map(|number| number as u16)
}

/// Reads a number of bytes.
pub(super) fn bytes(value: &DeValue<'_>) -> Read<Bytes> {
    number(value, 0, u32::MAX.into()).map(Bytes)
}

/// Reads a number of MiB, up to a TiB.
pub(super) fn mebibytes(value: &DeValue<'_>) -> Read<Bytes> {
    number(value, 1, 1 << 20).map(|number| Bytes(number << 20))
}

/// Reads an IP address.
pub(super) fn address(value: &DeValue<'_>) -> Read<IpAddr> {
    address_of(text(value)?)
}

fn address_of(text: &str) -> Read<IpAddr> {
    text.parse().map_err(|_| {
        let complaint = Complaint::new(Code::BadAddress, format!("\"{text}\" is not an IP address"));
        complaint.hint(if text.contains('/') {
            "one address is wanted here, without a prefix length"
        } else {
            "write it as 192.0.2.1 or 2001:db8::1"
        })
    })
}

/// Reads an address and a TCP port.
pub(super) fn socket_address(value: &DeValue<'_>) -> Read<SocketAddr> {
    let text = text(value)?;
    text.parse().map_err(|_| {
        let message = format!("\"{text}\" is not an address with a port");
        Complaint::new(Code::BadAddress, message).hint("write it as 127.0.0.1:9478 or [::1]:9478")
    })
}

/// Reads an address of the gateway with the prefix length of its network.
pub(super) fn interface_address(value: &DeValue<'_>) -> Read<IpNet> {
    let text = text(value)?;
    text.parse().map_err(|_| {
        let complaint =
            Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address with a prefix length"));
        match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => {
                complaint.hint(format!("add the length of the network's prefix: {address}/24"))
            }
            Ok(IpAddr::V6(address)) => {
                complaint.hint(format!("add the length of the network's prefix: {address}/64"))
            }
            Err(_) => complaint.hint("write it as 192.0.2.1/24 or 2001:db8::1/64"),
        }
    })
}

/// Reads a prefix; a single address is a prefix, too.
pub(super) fn prefix(value: &DeValue<'_>) -> Read<IpNet> {
    prefix_of(text(value)?)
}

fn prefix_of(text: &str) -> Read<IpNet> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let net: IpNet = text.parse().map_err(|_| {
        Complaint::new(Code::BadAddress, format!("\"{text}\" is not a prefix"))
            .hint("write it as 192.0.2.0/24 or 2001:db8::/32")
    })?;
    if net.trunc() != net {
        return Err(Complaint::new(
            Code::BadAddress,
            format!("\"{text}\" has bits set beyond its prefix length"),
        )
        .hint(format!(
            "write \"{}\" for the network, or \"{}\" for the host",
            net.trunc(),
            net.addr()
        )));
    }
    Ok(net)
}

/// Reads addresses: one, a prefix, or `first-last`.
pub(super) fn address_range(value: &DeValue<'_>) -> Read<AddressRange> {
    address_range_of(text(value)?)
}

/// Reads addresses from their text: one, a prefix, or `first-last`.
pub(crate) fn address_range_of(text: &str) -> Read<AddressRange> {
    if text.starts_with('@') {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\": a set cannot stand here"))
            .hint("write the addresses themselves"));
    }
    let Some((first, last)) = text.split_once('-') else {
        return prefix_of(text).map(AddressRange::from).map_err(|complaint| match text.contains('/') {
            true => complaint,
            false => Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address"))
                .hint("write an address, a prefix such as 192.0.2.0/24, a range such as 192.0.2.1-192.0.2.9, or @set"),
        });
    };
    let (first, last) = (address_of(first.trim())?, address_of(last.trim())?);
    if first.is_ipv4() != last.is_ipv4() {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\" mixes IPv4 and IPv6"))
            .hint("a range is of one family; write two"));
    }
    if first > last {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\" runs backwards"))
            .hint(format!("write \"{last}-{first}\"")));
    }
    Ok(AddressRange { first, last })
}

/// Reads addresses or `@set`.
pub(super) fn address_item(value: &DeValue<'_>) -> Read<AddressItem> {
    let text = text(value)?;
    match text.strip_prefix('@') {
        Some(set) => Ok(AddressItem::Set(set.to_owned())),
        None => address_range_of(text).map(AddressItem::Range),
    }
}

/// Reads `address`, `v4:port` or `[v6]:port`.
pub(super) fn target(value: &DeValue<'_>) -> Read<(IpAddr, Option<u16>)> {
    let text = text(value)?;
    if let Ok(address) = text.parse() {
        return Ok((address, None));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok((socket.ip(), Some(socket.port())));
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(Ok(address)) = inner.map(str::parse::<std::net::Ipv6Addr>) {
        return Ok((address.into(), None));
    }
    Err(Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address with or without a port"))
        .hint("write it as 192.0.2.1, 192.0.2.1:8443, 2001:db8::1 or [2001:db8::1]:8443"))
}

/// Reads an Ethernet address.
pub(super) fn mac(value: &DeValue<'_>) -> Read<Mac> {
    mac_of(text(value)?)
}

fn mac_of(text: &str) -> Read<Mac> {
    text.parse().map_err(|_| {
        Complaint::new(Code::BadMac, format!("\"{text}\" is not an Ethernet address"))
            .hint("write it as 02:00:5e:10:00:01")
    })
}

/// Reads an Ethernet address, or `first-last`. An address may have dashes between its bytes, too: a range then has eleven.
pub(super) fn mac_range(value: &DeValue<'_>) -> Read<MacRange> {
    let text = text(value)?;
    if let Ok(mac) = text.parse() {
        return Ok(MacRange::single(mac));
    }
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let Some(middle) = dashes.get(dashes.len() / 2).copied().filter(|_| dashes.len() % 2 == 1) else {
        return mac_of(text).map(MacRange::single);
    };
    let range = MacRange { first: mac_of(text[..middle].trim())?, last: mac_of(text[middle + 1..].trim())? };
    if range.first > range.last {
        return Err(Complaint::new(Code::BadMac, format!("\"{text}\" runs backwards"))
            .hint(format!("write \"{}-{}\"", range.last, range.first)));
    }
    Ok(range)
}

/// Reads a port, or `first-last`.
pub(super) fn ports(value: &DeValue<'_>) -> Read<PortRange> {
    match value {
        DeValue::Integer(integer) => number(value, 0, u16::MAX.into())
            .map(|port| PortRange::single(port as u16))
            .map_err(|_| bad_port(&integer.to_string())),
        DeValue::String(text) => ports_of(text),
        other => Err(wrong_type("a port or a range of ports", other)),
    }
}

fn ports_of(text: &str) -> Read<PortRange> {
    let port = |part: &str| part.trim().parse::<u16>().map_err(|_| bad_port(part));
    let Some((first, last)) = text.split_once(['-', ':']) else { return port(text).map(PortRange::single) };
    let range = PortRange { first: port(first)?, last: port(last)? };
    if range.first > range.last {
        return Err(Complaint::new(Code::BadPort, format!("\"{text}\" runs backwards"))
            .hint(format!("write \"{}-{}\"", range.last, range.first)));
    }
    Ok(range)
}

fn bad_port(text: &str) -> Complaint {
    let complaint = Complaint::new(Code::BadPort, format!("\"{text}\" is not a port"));
    complaint.hint(match meaning(word::SERVICE, text) {
        Some(port) => format!("ports are numbers: {text} is {port}"),
        None => "write a number from 0 to 65535, or a range such as \"8000-8010\"".to_owned(),
    })
}

/// Reads a protocol by name or number.
pub(super) fn protocol(value: &DeValue<'_>) -> Read<Protocol> {
    if let DeValue::Integer(_) = value {
        return number(value, 0, 255)
            .map(|number| Protocol(number as u8))
            .map_err(|complaint| Complaint { code: Code::BadProtocol, ..complaint });
    }
    let text = text(value)?;
    text.parse().map_err(|_| {
        let complaint = Complaint::new(Code::BadProtocol, format!("unknown protocol \"{text}\""));
        complaint.hint(did_you_mean(text, Protocol::names(), || {
            "write a name such as tcp, udp, icmp, icmpv6, esp, gre, or a number from 0 to 255".to_owned()
        }))
    })
}

/// Reads an ICMP type by name, number or `type/code`; `words` has the names of the protocol.
pub(super) fn icmp(value: &DeValue<'_>, words: Option<Words<IcmpMatch>>) -> Read<IcmpMatch> {
    let bad = |what: String| Complaint::new(Code::BadIcmp, what);
    if let DeValue::Integer(integer) = value {
        return number(value, 0, 255)
            .map(|kind| IcmpMatch { kind: kind as u8, code: None })
            .map_err(|_| bad(format!("{integer} is not an ICMP type")).hint("from 0 to 255"));
    }
    let text = text(value)?;
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let (kind, code) = text.split_once('/').map_or((text, None), |(kind, code)| (kind, Some(code)));
        let kind = kind.trim().parse().ok();
        let code = code.map(|code| code.trim().parse().ok());
        return match (kind, code) {
            (Some(kind), None) => Ok(IcmpMatch { kind, code: None }),
            (Some(kind), Some(Some(code))) => Ok(IcmpMatch { kind, code: Some(code) }),
            _ => Err(bad(format!("\"{text}\" is not an ICMP type"))
                .hint("write type or type/code, each from 0 to 255: \"3/4\"")),
        };
    }
    let Some(words) = words else {
        return Err(Complaint::new(
            Code::IcmpWithoutProtocol,
            format!("\"{text}\" needs exactly one ICMP protocol, for the numbers differ"),
        )
        .hint("add protocol = \"icmp\" or \"icmpv6\"; write two rules for both"));
    };
    meaning(words, text).ok_or_else(|| {
        let known = words.iter().map(|(word, _)| *word);
        let listed = || known.clone().collect::<Vec<_>>().join(", ");
        let hint =
            did_you_mean(text, known.clone(), || format!("a number, type/code, or one of: {}", listed()));
        bad(format!("unknown ICMP type \"{text}\"")).hint(hint)
    })
}

/// Reads TCP flags: a flag is compared if listed, and must be clear with `!`.
pub(super) fn tcp_flags(value: &DeValue<'_>) -> Read<TcpFlagsMatch> {
    let text = text(value)?;
    let bad = |what: String| {
        Complaint::new(Code::BadTcpFlags, what)
            .hint("write flags between commas, each with ! if it must be clear: \"syn,!ack\"")
    };
    let mut flags = TcpFlagsMatch { mask: 0, value: 0 };
    for word in text.split(',').map(str::trim) {
        let (word, set) = word.strip_prefix('!').map_or((word, true), |word| (word.trim(), false));
        let bit = meaning(word::TCP_FLAG, word).ok_or_else(|| bad(format!("unknown TCP flag \"{word}\"")))?;
        if flags.mask & bit != 0 {
            return Err(bad(format!("TCP flag \"{word}\" is there twice")));
        }
        flags.mask |= bit;
        flags.value |= if set { bit } else { 0 };
    }
    Ok(flags)
}

/// Reads a DiffServ code point by name or number.
pub(super) fn dscp(value: &DeValue<'_>) -> Read<Dscp> {
    let bad = |what: &str| {
        Complaint::new(Code::BadDscp, format!("{what} is not a DiffServ code point"))
            .hint("write a number from 0 to 63, or ef, af11 to af43, cs0 to cs7, le")
    };
    let point = match value {
        DeValue::Integer(integer) => number(value, 0, 63).map_err(|_| bad(&integer.to_string()))? as u8,
        _ => {
            let text = text(value)?;
            meaning(word::DSCP, text).ok_or_else(|| bad(&format!("\"{text}\"")))?
        }
    };
    Dscp::new(point).ok_or_else(|| bad(&point.to_string()))
}

/// Reads an MSS clamp: `off`, `mtu` or a number of bytes.
pub(super) fn mss(value: &DeValue<'_>) -> Read<MssClamp> {
    match value {
        DeValue::Integer(_) => number16(value).map(MssClamp::Bytes),
        DeValue::String(_) => one_of(value, &[("off", MssClamp::Off), ("mtu", MssClamp::Mtu)]),
        other => Err(wrong_type("\"off\", \"mtu\" or a number of bytes", other)),
    }
}

/// Reads a duration: whole seconds, or numbers with units, the longest first.
pub(super) fn duration(value: &DeValue<'_>) -> Read<Nanos> {
    match value {
        DeValue::Integer(integer) => {
            let seconds =
                number(value, 0, u64::MAX / SECOND).map_err(|_| bad_duration(&integer.to_string()))?;
            Ok(Nanos(seconds * SECOND))
        }
        DeValue::String(text) => duration_of(text),
        other => Err(wrong_type("a duration such as \"30s\", or a number of seconds", other)),
    }
}

const SECOND: u64 = 1_000_000_000;

/// Units of durations in nanoseconds, the longest first.
pub(crate) const UNITS: Words<u64> = &[
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

fn duration_of(text: &str) -> Read<Nanos> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut longest = u64::MAX;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let sum = number.parse::<u64>().ok().zip(meaning(UNITS, unit)).and_then(|(number, unit)| {
            if unit >= longest {
                return None;
            }
            longest = unit;
            number.checked_mul(unit)?.checked_add(total)
        });
        total = sum.ok_or_else(|| bad_duration(text))?;
        if tail.is_empty() {
            return Ok(Nanos(total));
        }
        rest = tail;
    }
}

fn bad_duration(text: &str) -> Complaint {
    Complaint::new(Code::BadDuration, format!("\"{text}\" is not a duration"))
        .hint("write \"30s\", \"4m\", \"2h4m\", \"250ms\", or a number of seconds; 584 years at most")
}

/// Reads a rate: `N/second burst M per source`.
pub(super) fn rate(value: &DeValue<'_>) -> Read<Rate> {
    let text = text(value)?;
    let bad = |what: &str| {
        Complaint::new(Code::BadRate, format!("\"{text}\" is not a rate: {what}"))
            .hint("write \"10/second\", \"10/second burst 20\" or \"10/minute burst 20 per source\"")
    };
    let mut words = text.split_whitespace();
    let (count, per) = words.next().and_then(|word| word.split_once('/')).ok_or_else(|| bad("no N/time"))?;
    let count: u32 = positive(count).ok_or_else(|| bad("the number is 1 at least"))?;
    let per = match per {
        "second" => Nanos(SECOND),
        "minute" => Nanos(60 * SECOND),
        "hour" => Nanos(3_600 * SECOND),
        "day" => Nanos(86_400 * SECOND),
        other => {
            duration_of(other).map_err(|_| bad("the time is second, minute, hour, day or a duration"))?
        }
    };
    if per == Nanos(0) {
        return Err(bad("the time is nothing"));
    }
    let mut rate = Rate { count, per, burst: count, scope: Scope::Rule };
    let mut word = words.next();
    if word == Some("burst") {
        rate.burst = words.next().and_then(positive).ok_or_else(|| bad("the burst is 1 at least"))?;
        word = words.next();
    }
    rate.scope = scope(word, words).ok_or_else(|| bad("what follows is \"per source\" or nothing"))?;
    Ok(rate)
}

/// Reads a bound on connections: `N` or `N per source`.
pub(super) fn connections(value: &DeValue<'_>) -> Read<ConnectionLimit> {
    let bad = |what: &str| {
        Complaint::new(Code::BadRate, format!("{what} is not a number of connections"))
            .hint("write 100 or \"100 per source\", 1 at least")
    };
    if let DeValue::Integer(integer) = value {
        let most = number(value, 1, u32::MAX.into()).map_err(|_| bad(&integer.to_string()))?;
        return Ok(ConnectionLimit { most: most as u32, scope: Scope::Rule });
    }
    let text = text(value)?;
    let mut words = text.split_whitespace();
    let most = words.next().and_then(positive);
    let scope = scope(words.next(), words);
    most.zip(scope)
        .map(|(most, scope)| ConnectionLimit { most, scope })
        .ok_or_else(|| bad(&format!("\"{text}\"")))
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Reads a scope: `per source` or nothing.
fn scope<'a>(first: Option<&str>, mut rest: impl Iterator<Item = &'a str>) -> Option<Scope> {
    match (first, rest.next(), rest.next()) {
        (None, None, None) => Some(Scope::Rule),
        (Some("per"), Some("source"), None) => Some(Scope::Source),
        _ => None,
    }
}
