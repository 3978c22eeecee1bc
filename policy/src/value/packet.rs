//! Fields of packets: protocols, ports, ICMP types, TCP flags, DiffServ code points.

use std::collections::BTreeMap;

use config::value::text;
use config::word::meaning;
use config::{did_you_mean, wrong_type};
use toml::de::DeValue;
use wire::{Dscp, Pcp};

use super::{Complaint, Form, Read, Text, Value, number, quoted};
use crate::diagnostic::Code;
use crate::model::{IcmpMatch, PcpMap, PortRange, Protocol, TcpFlagsMatch};
use crate::word::{self, Words, dscp_name, dscp_named, word_for};

/// A port, or `first-last`.
pub(crate) const PORTS: Value<PortRange> = Value { read: ports, print: ports_text };

/// One port, not zero.
pub(crate) const PORT: Value<u16> =
    Value { read: |value| number(value, 1, u16::MAX.into()).map(|port| port as u16), print: u16::to_string };

/// A protocol by name or number.
pub(crate) const PROTOCOL: Value<Protocol> = Value {
    read: protocol,
    print: |protocol| protocol.name().map_or_else(|| protocol.0.to_string(), quoted),
};

/// An ICMP type by name, number or `type/code`, with the names of the protocol.
pub(crate) struct Icmp(pub(crate) Option<Words<IcmpMatch>>);

/// TCP flags: a flag is compared if listed, and must be clear with `!`.
pub(crate) const TCP_FLAGS: Text<TcpFlagsMatch> = Text { read: tcp_flags, print: tcp_flags_text };

/// A DiffServ code point by name or number.
pub(crate) const DSCP: Value<Dscp> = Value {
    read: dscp,
    print: |dscp| word_for(word::DSCP, &dscp.value()).map_or_else(|| dscp.value().to_string(), quoted),
};

/// A priority code point of a VLAN tag, 0 to 7.
pub(crate) const PCP: Value<Pcp> = Value { read: pcp, print: |pcp| pcp.value().to_string() };

/// Priority code points by DiffServ code point: `dscp`, or a table of them.
pub(crate) const PCP_MAP: Value<PcpMap> = Value { read: pcp_map, print: pcp_map_text };

fn ports(value: &DeValue<'_>) -> Read<PortRange> {
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

fn ports_text(range: &PortRange) -> String {
    if range.first == range.last {
        range.first.to_string()
    } else {
        quoted(&format!("{}-{}", range.first, range.last))
    }
}

fn protocol(value: &DeValue<'_>) -> Read<Protocol> {
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

impl Form<IcmpMatch> for Icmp {
    fn read(&self, value: &DeValue<'_>) -> Read<IcmpMatch> {
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
        let Some(words) = self.0 else {
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

    fn print(&self, icmp: &IcmpMatch) -> String {
        match (self.0.and_then(|words| word_for(words, icmp)), icmp.code) {
            (Some(word), _) => quoted(word),
            (None, Some(code)) => quoted(&format!("{}/{code}", icmp.kind)),
            (None, None) => icmp.kind.to_string(),
        }
    }
}

fn tcp_flags(text: &str) -> Read<TcpFlagsMatch> {
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

fn tcp_flags_text(flags: &TcpFlagsMatch) -> String {
    let compared = word::TCP_FLAG.iter().filter(|(_, bit)| flags.mask & bit != 0);
    let words: Vec<String> = compared
        .map(|(word, bit)| if flags.value & bit != 0 { (*word).to_owned() } else { format!("!{word}") })
        .collect();
    words.join(",")
}

fn dscp(value: &DeValue<'_>) -> Read<Dscp> {
    let point = match value {
        DeValue::Integer(integer) => number(value, 0, 63).map_err(|_| bad_dscp(&integer.to_string()))? as u8,
        _ => {
            let text = text(value)?;
            meaning(word::DSCP, text).ok_or_else(|| bad_dscp(&format!("\"{text}\"")))?
        }
    };
    Dscp::new(point).ok_or_else(|| bad_dscp(&point.to_string()))
}

fn pcp(value: &DeValue<'_>) -> Read<Pcp> {
    Ok(Pcp::new(number(value, 0, 7)? as u8).unwrap_or_default())
}

/// Word for the class selectors of code points.
const SELECTOR: &str = "dscp";

fn pcp_map(value: &DeValue<'_>) -> Read<PcpMap> {
    let table = match value {
        DeValue::Table(table) => table,
        DeValue::String(word) if word == SELECTOR => return Ok(PcpMap::Selector),
        other => {
            let complaint = wrong_type("\"dscp\", or a table of code points", other);
            return Err(complaint.hint("write \"dscp\" for their upper three bits, or { ef = 5, af41 = 4 }"));
        }
    };
    let mut map = BTreeMap::new();
    for (name, value) in table {
        let name = name.get_ref();
        let point = dscp_named(name).or_else(|| Dscp::new(name.parse().ok()?));
        let point = point.ok_or_else(|| bad_dscp(&format!("\"{name}\"")))?;
        if map.insert(point, pcp(value.get_ref())?).is_some() {
            let message = format!("the code point {} is there twice", point.value());
            return Err(Complaint::new(Code::BadDscp, message).hint("leave out its name or its number"));
        }
    }
    Ok(if map.is_empty() { PcpMap::None } else { PcpMap::Listed(map) })
}

fn pcp_map_text(map: &PcpMap) -> String {
    let listed = match map {
        PcpMap::None => return "{}".to_owned(),
        PcpMap::Selector => return quoted(SELECTOR),
        PcpMap::Listed(listed) => listed,
    };
    let entry = |(dscp, pcp): (&Dscp, &Pcp)| {
        let name = dscp_name(*dscp).map_or_else(|| dscp.value().to_string(), str::to_owned);
        format!("{name} = {}", pcp.value())
    };
    format!("{{ {} }}", listed.iter().map(entry).collect::<Vec<_>>().join(", "))
}

fn bad_dscp(what: &str) -> Complaint {
    Complaint::new(Code::BadDscp, format!("{what} is not a DiffServ code point"))
        .hint("write a number from 0 to 63, or ef, af11 to af43, cs0 to cs7, le")
}
