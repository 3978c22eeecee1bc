//! Expressions: packet fields of matches, and the constants compared.

use std::net::IpAddr;

use serde_json::Value;

use crate::import::cond::{MAC_MAX, macs};
use crate::import::interface::Names;
use crate::import::note::Why;
use crate::import::range::Ranges;
use crate::import::word;
use crate::model::{AddressRange, DnatStatus};

/// Packet field of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Source {
        v6: bool,
    },
    Destination {
        v6: bool,
    },
    /// Source port of the protocol given, or of any transport protocol.
    Sport(Option<u8>),
    Dport(Option<u8>),
    IcmpType {
        v6: bool,
    },
    IcmpCode {
        v6: bool,
    },
    TcpFlags,
    Dscp {
        v6: bool,
    },
    Protocol,
    /// IPv4's protocol field, or IPv6's next header.
    HeaderProtocol {
        v6: bool,
    },
    /// The version field of a header.
    Version {
        v6: bool,
    },
    Nfproto,
    /// Protocol carried by a frame: the type in its Ethernet header, if the source requires one.
    EtherType {
        framed: bool,
    },
    /// Bits in `mask` of a frame's source address.
    SourceMac {
        mask: u64,
    },
    /// Kind of link that a packet arrived by.
    InwardType,
    Inward,
    Outward,
    State,
    /// Bits of the connection's status.
    Status,
    DestinationType,
    SourceType,
    /// Kind of the link-layer address that a packet was sent to.
    PacketType,
    /// Existence of a route back to the source.
    ReversePath,
}

/// Parses the key of a map, or the left side of a match: a field, or several in a concatenation.
pub(super) fn fields(key: &Value) -> Result<Vec<Field>, Why> {
    match key.get("concat").and_then(Value::as_array) {
        Some(parts) => parts.iter().map(field).collect(),
        None => Ok(vec![field(key)?]),
    }
}

/// Parses the left side of a match.
pub(super) fn field(left: &Value) -> Result<Field, Why> {
    let unknown = || Why::Feature(left.to_string());
    let word = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(payload) = left.get("payload") {
        let protocol = word(payload, "protocol").ok_or_else(unknown)?;
        let name = word(payload, "field").ok_or_else(unknown)?;
        let v6 = matches!(protocol.as_str(), "ip6" | "icmpv6");
        let transport = match protocol.as_str() {
            "tcp" => Some(6),
            "udp" => Some(17),
            "sctp" => Some(132),
            "dccp" => Some(33),
            "udplite" => Some(136),
            _ => None,
        };
        return Ok(match (protocol.as_str(), name.as_str()) {
            ("ip" | "ip6", "saddr") => Field::Source { v6 },
            ("ip" | "ip6", "daddr") => Field::Destination { v6 },
            ("ip" | "ip6", "dscp") => Field::Dscp { v6 },
            ("ip" | "ip6", "version") => Field::Version { v6 },
            ("ether", "type") => Field::EtherType { framed: true },
            ("ether", "saddr") => Field::SourceMac { mask: MAC_MAX },
            ("ip", "protocol") | ("ip6", "nexthdr") => Field::HeaderProtocol { v6 },
            ("tcp" | "udp" | "udplite" | "sctp" | "dccp" | "th", "sport") => Field::Sport(transport),
            ("tcp" | "udp" | "udplite" | "sctp" | "dccp" | "th", "dport") => Field::Dport(transport),
            ("tcp", "flags") => Field::TcpFlags,
            ("icmp" | "icmpv6", "type") => Field::IcmpType { v6 },
            ("icmp" | "icmpv6", "code") => Field::IcmpCode { v6 },
            _ => return Err(Why::Feature(format!("{protocol} {name}"))),
        });
    }
    if let Some(key) = left.get("meta").and_then(|meta| word(meta, "key")) {
        return Ok(match key.as_str() {
            "iifname" | "iif" => Field::Inward,
            "oifname" | "oif" => Field::Outward,
            "l4proto" => Field::Protocol,
            "nfproto" => Field::Nfproto,
            "protocol" => Field::EtherType { framed: false },
            "iiftype" => Field::InwardType,
            "pkttype" => Field::PacketType,
            "mark" => return Err(Why::Mark),
            _ => return Err(Why::Feature(format!("meta {key}"))),
        });
    }
    if let Some(ct) = left.get("ct") {
        let key = word(ct, "key").unwrap_or_default();
        return match key.as_str() {
            "state" => Ok(Field::State),
            "status" => Ok(Field::Status),
            "mark" => Err(Why::Mark),
            _ => Err(Why::Feature(format!("ct {key}"))),
        };
    }
    if let Some(fib) = left.get("fib") {
        let flags = fib.get("flags");
        let is_of =
            |flag: &str| flags.is_some_and(|flags| *flags == flag || *flags == serde_json::json!([flag]));
        match word(fib, "result").as_deref() {
            Some("type") if is_of("daddr") => return Ok(Field::DestinationType),
            Some("type") if is_of("saddr") => return Ok(Field::SourceType),
            _ => {}
        }
        let asked: Vec<&str> =
            flags.map_or_else(Vec::new, |flags| items(flags).into_iter().filter_map(Value::as_str).collect());
        let is_of_source =
            asked.contains(&"saddr") && asked.iter().all(|flag| matches!(*flag, "saddr" | "mark" | "iif"));
        if word(fib, "result").as_deref() == Some("oif") && is_of_source {
            return Ok(Field::ReversePath);
        }
    }
    if let Some([masked, by]) = left.get("&").and_then(Value::as_array).map(Vec::as_slice) {
        match field(masked) {
            Ok(Field::SourceMac { mask }) => {
                let by = constant(by)?;
                return Ok(Field::SourceMac { mask: mask & word::mac(&by).ok_or(Why::Value(by))? });
            }
            Ok(Field::Status) if is_dnat(by) => return Ok(Field::Status),
            _ => {}
        }
    }
    Err(unknown())
}

/// Condition of a match on the connection's status: whether its destination was translated. `left` and `right` are the sides of the match.
pub(super) fn dnat(left: &Value, op: &str, right: &Value) -> Result<DnatStatus, Why> {
    // The other bits, and all of them at once, say what only a later packet has, or every one.
    let is_masked = left.get("&").is_some();
    match (is_masked, op) {
        _ if !is_dnat(right) => Err(Why::Feature("ct status".to_owned())),
        (false, "in") | (true, "==") => Ok(DnatStatus::Translated),
        (false, "!") | (true, "!=") => Ok(DnatStatus::Untranslated),
        _ => Err(Why::Feature("ct status".to_owned())),
    }
}

/// True for the status bit of destination NAT.
fn is_dnat(bits: &Value) -> bool {
    const IPS_DST_NAT: u64 = 1 << 5;
    bits == "dnat" || bits.as_u64() == Some(IPS_DST_NAT)
}

/// Constants of a right side: the elements of a set, or a single one.
pub(super) fn items(right: &Value) -> Vec<&Value> {
    match right.get("set").unwrap_or(right) {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    }
}

/// Element of a set without its counter, comment and expiry.
pub(super) fn bare(item: &Value) -> &Value {
    item.get("elem").and_then(|elem| elem.get("val")).unwrap_or(item)
}

/// Formats a constant as a word: numbers in decimal.
pub(super) fn constant(item: &Value) -> Result<String, Why> {
    match bare(item) {
        Value::String(word) => Ok(word.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(Why::Value(other.to_string())),
    }
}

/// First and last of a range, or a constant twice.
pub(super) fn ends(item: &Value) -> Result<(String, String), Why> {
    match bare(item).get("range").and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, last]) => Ok((constant(first)?, constant(last)?)),
        Some(_) => Err(Why::Value(item.to_string())),
        None => constant(item).map(|word| (word.clone(), word)),
    }
}

/// Parses an address, prefix or range.
pub(super) fn address(item: &Value) -> Result<AddressRange, Why> {
    let bad = || Why::Value(item.to_string());
    if let Some(prefix) = bare(item).get("prefix") {
        let base: IpAddr =
            prefix.get("addr").and_then(Value::as_str).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        let length = prefix.get("len").and_then(Value::as_u64).and_then(|len| u8::try_from(len).ok());
        let net = ipnet::IpNet::new(base, length.ok_or_else(bad)?).map_err(|_| bad())?;
        return Ok(AddressRange::from(net));
    }
    let (first, last) = ends(item)?;
    if first == last {
        return word::addresses(&first).ok_or_else(bad);
    }
    word::addresses(&format!("{first}-{last}")).ok_or_else(bad)
}

/// Parses Ethernet addresses: a constant for the bits of `mask`, or, with all bits, a prefix or a range.
pub(super) fn source_macs(item: &Value, mask: u64) -> Result<Ranges, Why> {
    let bad = || Why::Value(item.to_string());
    let number = |word: &str| word::mac(word).ok_or_else(bad);
    if mask != MAC_MAX {
        let value = number(&constant(item)?)?;
        return Ranges::masked(MAC_MAX, mask, value).ok_or(Why::TooMany);
    }
    if let Some(prefix) = bare(item).get("prefix") {
        let base = prefix.get("addr").and_then(Value::as_str).and_then(word::mac).ok_or_else(bad)?;
        let length = prefix.get("len").and_then(Value::as_u64).filter(|&length| length <= 48);
        let rest = MAC_MAX >> length.ok_or_else(bad)?;
        return Ok(macs([(base & !rest, base | rest)]));
    }
    let (first, last) = ends(item)?;
    let (first, last) = (number(&first)?, number(&last)?);
    if first > last { Err(bad()) } else { Ok(macs([(first, last)])) }
}

/// Gathers all interfaces named by a rule.
pub(super) fn gather_interfaces<'a>(
    rule: &'a Value,
    names: &mut Names,
    named: &dyn Fn(&str) -> Option<&'a Value>,
) {
    let statements = rule.get("expr").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for statement in statements {
        let (left, right, negated) = if let Some(found) = statement.get("match") {
            (found.get("left"), found.get("right"), found.get("op").and_then(Value::as_str) == Some("!="))
        } else if let Some(map) = statement.get("vmap") {
            (map.get("key"), map.get("data"), false)
        } else {
            continue;
        };
        let (Some(left), Some(right)) = (left, right) else { continue };
        let fields: Vec<Option<Field>> = match left.get("concat").and_then(Value::as_array) {
            Some(parts) => parts.iter().map(|part| field(part).ok()).collect(),
            None => vec![field(left).ok()],
        };
        if !fields.iter().flatten().any(|field| matches!(field, Field::Inward | Field::Outward)) {
            continue;
        }
        let set = right.as_str().and_then(|word| word.strip_prefix('@')).and_then(named);
        let list = set.map_or(right, |set| set.get("elem").unwrap_or(&Value::Null));
        for item in items(list) {
            // An item of a map is a pair of key and verdict.
            let key = item.as_array().and_then(|pair| pair.first()).unwrap_or(item);
            let parts = match bare(key).get("concat").and_then(Value::as_array) {
                Some(parts) => parts.iter().collect(),
                None => vec![key],
            };
            for (field, part) in fields.iter().zip(parts) {
                if let (Some(Field::Inward | Field::Outward), Ok(word)) = (field, constant(part)) {
                    names.gather(&word, negated);
                }
            }
        }
    }
}
