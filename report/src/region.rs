//! Headers, and regions of them, in words.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use analysis::{AddressRange, Example, Families, PortRange, Region};
use dataplane::tables::{DNAT, LOCAL, NO_MAC, SetUse, SetUses, Side, SourceMacs};
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use lookup::classify::ClassSpan;
use policy::Policy;
use policy::model::{FamilyMatch, MacRange, SELF_ZONE};
use serde_json::{Map, Value, json};
use wire::Family;
use wire::capture::link::NOBODY;
use wire::header::{Endpoint, Protocol};
use wire::tcp::Flags;
use wire::unit::Dscp;

/// Number of items of a list shown to people.
const MOST_SHOWN: usize = 8;

/// Interfaces, with their zones where all policies agree on them, and source MAC addresses, as an analysis has numbered them.
pub(crate) struct Numbered {
    names: Vec<String>,
    zones: Vec<Option<String>>,
    macs: Option<SourceMacs>,
    sets: SetUses,
}

impl Numbered {
    /// Interfaces of these names, which all `policies` have.
    pub(crate) fn new(
        names: Vec<String>,
        macs: Option<SourceMacs>,
        sets: SetUses,
        policies: &[&Policy],
    ) -> Numbered {
        let zone = |name: &String| {
            let mut zones = policies.iter().map(|policy| policy.interface(name).map(|one| one.zone.clone()));
            let first = zones.next().flatten();
            first.filter(|first| zones.all(|zone| zone.as_ref() == Some(first)))
        };
        let zones = names.iter().map(zone).collect();
        Numbered { names, zones, macs, sets }
    }

    /// The packet, in the words that `explain` takes. By which interface it leaves is for the routes to say.
    pub(crate) fn packet(&self, header: &Example) -> Option<String> {
        let interface = self.names.get(usize::from(header.ingress))?;
        let protocol = Protocol(header.protocol);
        let end = |bits: u128, port: u16| {
            let address = match header.family {
                Family::V6 => IpAddr::from(Ipv6Addr::from_bits(bits)),
                _ => IpAddr::from(Ipv4Addr::from_bits(bits as u32)),
            };
            Endpoint { address, port: protocol.has_ports().then_some(port) }
        };
        let mut text = format!(
            "{interface} {protocol} {} > {}",
            end(header.source, header.sport),
            end(header.destination, header.dport)
        );
        if protocol == Protocol::TCP {
            text.push_str(&format!(" {}", Flags(header.tcp_flags)));
        }
        if protocol == message(header.family) {
            let [kind, code] = header.dport.to_be_bytes();
            match policy::icmp_name(kind, code, family(header.family)) {
                Some(name) => text.push_str(&format!(" {name}")),
                None => text.push_str(&format!(" type {kind} code {code}")),
            }
            if header.sport != 0 {
                text.push_str(&format!(" id {}", header.sport));
            }
        }
        if header.dscp != 0 {
            text.push_str(&format!(" dscp {}", dscp(header.dscp)));
        }
        // Said where it is not that of all packets in words.
        let macs = self.macs.as_ref().filter(|macs| macs.class(NOBODY.to_bits()) != header.source_mac);
        if let Some(mac) = macs.and_then(|macs| macs.example(header.source_mac)) {
            text.push_str(&format!(" from {mac}"));
        }
        Some(text)
    }

    /// The region, as a rule would ask for it.
    pub(crate) fn words(&self, region: &Region) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (key, items) in self.conditions(region) {
            let shown = items.iter().take(MOST_SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let more = items.len().saturating_sub(MOST_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("{key} {shown}{more}"));
        }
        if parts.is_empty() { "every packet".to_owned() } else { parts.join("; ") }
    }

    /// Returns the region as an object: for each condition the list of values that it admits.
    pub(crate) fn to_json(&self, region: &Region) -> Value {
        let object: Map<String, Value> =
            self.conditions(region).into_iter().map(|(key, items)| (key.to_owned(), json!(items))).collect();
        Value::Object(object)
    }

    /// Returns the conditions of a region, by the keys of a policy's rules.
    fn conditions(&self, region: &Region) -> Vec<(&'static str, Vec<String>)> {
        let mut conditions = Vec::new();
        let mut add = |key, items: Option<Vec<String>>| conditions.extend(items.map(|items| (key, items)));
        let ways =
            |numbers: Option<Vec<u16>>| numbers.map(|numbers| self.zones(&numbers)).unwrap_or_default();
        let (from, to) = (ways(region.origins()), ways(region.ends()));
        let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
        add("from", some(from.zones));
        add("in", some(from.interfaces));
        add("to", some(to.zones));
        add("out", some(to.interfaces));
        let addressed = region.source().or(region.destination()).is_some();
        add(
            "family",
            match region.families() {
                Families::V4 if !addressed => Some(vec!["ipv4".to_owned()]),
                Families::V6 if !addressed => Some(vec!["ipv6".to_owned()]),
                _ => None,
            },
        );
        add("source-mac", region.source_macs().and_then(|spans| self.mac_words(&spans)));
        let protocols = region.protocols();
        add("protocol", protocols.as_deref().map(protocol_words));
        add("source", region.source().map(|ranges| address_words(&ranges)));
        add("sport", region.sports().map(|ranges| port_words(&ranges)));
        add("destination", region.destination().map(|ranges| address_words(&ranges)));
        match protocols.as_deref() {
            Some([one]) if [Protocol::ICMP.0, Protocol::ICMPV6.0].contains(one) => {
                let family = if *one == Protocol::ICMP.0 { FamilyMatch::V4 } else { FamilyMatch::V6 };
                add("icmp", region.dports().map(|ranges| message_words(&ranges, family)));
            }
            _ => add("dport", region.dports().map(|ranges| port_words(&ranges))),
        }
        add("tcp-flags", region.flags().map(|flags| flag_words(&flags)));
        let facts = self.fact_words(region);
        for key in ["dnat", "sets", "rates"] {
            let own = facts.iter().filter(|(of, _)| *of == key);
            add(key, some(own.map(|(_, word)| word.clone()).collect()));
        }
        add("dscp", region.dscp().map(|points| points.into_iter().map(dscp).collect()));
        conditions
    }

    /// Addresses of classes, `none` for packets without one; `None` where all will do.
    fn mac_words(&self, spans: &[ClassSpan]) -> Option<Vec<String>> {
        let macs = self.macs.as_ref()?;
        if spans.iter().any(|span| span.first <= 1 && span.last == macs.highest()) {
            return None;
        }
        let without = spans.iter().any(|span| span.first == NO_MAC).then(|| "none".to_owned());
        let ranges = spans.iter().filter_map(|span| {
            let (first, last) = (macs.range(span.first.max(1))?.first, macs.range(span.last)?.last);
            Some(MacRange { first, last }.to_string())
        });
        Some(without.into_iter().chain(ranges).collect())
    }

    /// Facts that all packets have in common; where that does not say it, every combination.
    fn fact_words(&self, region: &Region) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        for (number, values) in region.sets().into_iter().enumerate() {
            let Some(values) = values else { continue };
            let facts = self.facts(number);
            let set = values.iter().fold(u8::MAX, |all, one| all & one);
            let any = values.iter().fold(0, |any, one| any | one);
            if values.len() == 1 << (any & !set).count_ones() {
                let common = facts.iter().filter(|fact| (any & !set) >> fact.bit & 1 == 0);
                words.extend(common.map(|fact| (fact.key, fact.word(set).to_owned())));
                continue;
            }
            words.extend(values.iter().map(|value| {
                let all = facts.iter().map(|fact| match fact.key {
                    "dnat" => format!("dnat {}", fact.word(*value)),
                    _ => fact.word(*value).to_owned(),
                });
                ("sets", all.collect::<Vec<_>>().join(" and "))
            }));
        }
        words
    }

    /// Meanings of the bits of a byte of [`Header::sets`](lookup::classify::Header::sets).
    fn facts(&self, byte: usize) -> Vec<Fact> {
        let meaning = |bit: u8| {
            let place = 8 * byte + usize::from(bit);
            if let Some(SetUse { set, side }) = self.sets.list.get(place) {
                let end = match side {
                    Side::Source => "source",
                    Side::Destination => "destination",
                };
                let (yes, no) = (format!("{end} in @{set}"), format!("{end} not in @{set}"));
                return Some(Fact { key: "sets", bit, yes, no });
            }
            if let Some(rule) = self.sets.rates.get(place.wrapping_sub(self.sets.list.len())) {
                let (yes, no) = (format!("past \"{rule}\""), format!("not past \"{rule}\""));
                return Some(Fact { key: "rates", bit, yes, no });
            }
            let is_dnat = place == DNAT.trailing_zeros() as usize;
            is_dnat.then(|| Fact { key: "dnat", bit, yes: "true".to_owned(), no: "false".to_owned() })
        };
        (0..8).filter_map(meaning).collect()
    }

    /// Zones all of whose interfaces are listed, and the other interfaces.
    fn zones(&self, numbers: &[u16]) -> Ways {
        let mut ways = Ways::default();
        let mut members: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
        for (number, zone) in self.zones.iter().enumerate() {
            if let Some(zone) = zone {
                members.entry(zone).or_default().push(number as u16);
            }
        }
        let whole =
            |zone: &str| members.get(zone).is_some_and(|all| all.iter().all(|one| numbers.contains(one)));
        for number in numbers {
            if *number == LOCAL.0 {
                ways.zones.push(SELF_ZONE.to_owned());
                continue;
            }
            match self.zones.get(usize::from(*number)).and_then(Option::as_deref) {
                Some(zone) if whole(zone) => {
                    if !ways.zones.iter().any(|one| one == zone) {
                        ways.zones.push(zone.to_owned());
                    }
                }
                _ => ways.interfaces.extend(self.names.get(usize::from(*number)).cloned()),
            }
        }
        ways
    }
}

/// A fact that a bit of headers stands for.
struct Fact {
    /// Key of the condition.
    key: &'static str,
    bit: u8,
    yes: String,
    no: String,
}

impl Fact {
    fn word(&self, byte: u8) -> &str {
        if byte >> self.bit & 1 != 0 { &self.yes } else { &self.no }
    }
}

#[derive(Default)]
struct Ways {
    zones: Vec<String>,
    interfaces: Vec<String>,
}

fn message(family: Family) -> Protocol {
    if family == Family::V6 { Protocol::ICMPV6 } else { Protocol::ICMP }
}

fn family(family: Family) -> FamilyMatch {
    if family == Family::V6 { FamilyMatch::V6 } else { FamilyMatch::V4 }
}

fn dscp(point: u8) -> String {
    let named = Dscp::new(point).and_then(policy::dscp_name);
    named.map_or_else(|| point.to_string(), str::to_owned)
}

/// Most of all protocols are told by what is missing.
fn protocol_words(protocols: &[u8]) -> Vec<String> {
    if protocols.len() <= 128 {
        return protocols.iter().map(|one| Protocol(*one).to_string()).collect();
    }
    let missing = (0..=u8::MAX).filter(|one| !protocols.contains(one));
    missing.map(|one| format!("not {}", Protocol(one))).collect()
}

/// A prefix, two that make a range up, or the range.
fn address_words(ranges: &[AddressRange]) -> Vec<String> {
    ranges.iter().flat_map(range_words).collect()
}

fn range_words(range: &AddressRange) -> Vec<String> {
    let prefixes: Vec<IpNet> = match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            Ipv4Subnets::new(first, last, 0).take(3).map(IpNet::V4).collect()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            Ipv6Subnets::new(first, last, 0).take(3).map(IpNet::V6).collect()
        }
        _ => Vec::new(),
    };
    match prefixes.as_slice() {
        [_] | [_, _] => prefixes
            .iter()
            .map(|net| {
                if net.prefix_len() == net.max_prefix_len() {
                    net.addr().to_string()
                } else {
                    net.to_string()
                }
            })
            .collect(),
        _ => vec![format!("{}-{}", range.first, range.last)],
    }
}

fn port_words(ranges: &[PortRange]) -> Vec<String> {
    let word = |range: &PortRange| {
        if range.first == range.last {
            range.first.to_string()
        } else {
            format!("{}-{}", range.first, range.last)
        }
    };
    ranges.iter().map(word).collect()
}

/// ICMP types and codes: `echo-request`, `8`, `3/4`, `9/0-12/255`.
fn message_words(ranges: &[PortRange], family: FamilyMatch) -> Vec<String> {
    let word = |range: &PortRange| {
        let ([kind, code], [last_kind, last_code]) = (range.first.to_be_bytes(), range.last.to_be_bytes());
        let name = policy::icmp_name(kind, code, family);
        match name {
            Some(name) if range.first == range.last => name.to_owned(),
            _ if range.first == range.last => format!("{kind}/{code}"),
            _ if kind == last_kind && (code, last_code) == (0, u8::MAX) => kind.to_string(),
            _ if (code, last_code) == (0, u8::MAX) => format!("{kind}-{last_kind}"),
            _ => format!("{kind}/{code}-{last_kind}/{last_code}"),
        }
    };
    ranges.iter().map(word).collect()
}

/// Flags that must be set and, with `!`, clear, where that says it; else every combination.
fn flag_words(combinations: &[u8]) -> Vec<String> {
    let set = combinations.iter().fold(u8::MAX, |all, one| all & one);
    let clear = combinations.iter().fold(0, |any, one| any | one);
    let free = (clear & !set).count_ones();
    if combinations.len() != 1 << free {
        return combinations.iter().map(|one| Flags(*one).to_string()).collect();
    }
    let words = (0..8).filter_map(|bit| {
        let flag = 1u8 << bit;
        if set & flag != 0 {
            Some(Flags(flag).to_string())
        } else {
            (clear & flag == 0).then(|| format!("!{}", Flags(flag)))
        }
    });
    vec![words.collect::<Vec<_>>().join(",")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_prefix_says_is_no_range() {
        let words = |first: &str, last: &str| {
            range_words(&AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() })
                .join(" ")
        };
        assert_eq!(words("10.0.0.0", "10.255.255.255"), "10.0.0.0/8");
        assert_eq!(words("10.0.0.7", "10.0.0.7"), "10.0.0.7");
        assert_eq!(words("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(words("10.0.0.0", "10.0.0.2"), "10.0.0.0/31 10.0.0.2");
        assert_eq!(words("10.0.0.1", "10.0.0.6"), "10.0.0.1-10.0.0.6");
        assert_eq!(words("2001:db8::", "2001:db8::ffff"), "2001:db8::/112");
        assert_eq!(words("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
    }

    #[test]
    fn flags_are_said_as_a_rule_says_them() {
        let shown =
            |mask: u8, value: u8| (0..=u8::MAX).filter(|one| one & mask == value).collect::<Vec<u8>>();
        assert_eq!(flag_words(&shown(0x12, 0x02)), ["syn,!ack"]);
        assert_eq!(flag_words(&[0x02, 0x11]), ["syn", "ack,fin"]);
    }

    #[test]
    fn most_protocols_are_told_by_what_is_missing() {
        let all_but =
            |missing: &[u8]| (0..=u8::MAX).filter(|one| !missing.contains(one)).collect::<Vec<u8>>();
        assert_eq!(protocol_words(&all_but(&[6, 17])), ["not tcp", "not udp"]);
        assert_eq!(protocol_words(&[1, 6]), ["icmp", "tcp"]);
    }
}
