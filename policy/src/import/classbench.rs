//! ClassBench filter sets (Taylor and Turner, ClassBench: A Packet Classification Benchmark, 2007):
//! `@source/len destination/len sport : sport dport : dport protocol/mask flags/mask`, first match wins.
//!
//! The sets have conditions but no actions, so all filters accept and the rest is dropped. The last column is 16 bits of the
//! transport header: in every published set its high byte fits TCP's flags (`0x0200/0x1200` is SYN without ACK) and the ICMP
//! type (`0x0800/0xff00` is echo request), and is read as such.

use super::note::{Note, NoteKind, Origin, Why};
use super::{Count, Import, ImportError, Importer, IpVersion, MOST_RULES, Untranslated, word};
use crate::model::{
    Action, AddressItem, Addresses, Conditions, FamilyMatch, IcmpMatch, Mode, PortRange, Protocol, Rule,
    TcpFlagsMatch,
};

/// ClassBench filter sets.
pub(super) const IMPORTER: Importer = Importer { name: "classbench", reads: "ClassBench filter sets", read };

fn read(source: &[u8], _: Option<IpVersion>) -> Result<Import, ImportError> {
    let text = String::from_utf8_lossy(source);
    let mut import = Import::default();
    import.policy.mode = Mode::Stateless;
    let mut flags_read = false;
    for (index, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        import.count.rules += 1;
        let rule = if import.policy.rules.len() < MOST_RULES { filter(line_text) } else { Err(Why::TooMany) };
        match rule {
            Ok(mut rule) => {
                rule.name = format!("r{:06}", import.count.rules);
                flags_read |= rule.conditions.tcp_flags.is_some() || !rule.conditions.icmp.is_empty();
                import.policy.rules.push(rule);
            }
            Err(why) => import.untranslated.push(Untranslated {
                origin: Origin::Line(u32::try_from(index + 1).unwrap_or(u32::MAX)),
                text: line_text.to_owned(),
                why,
                // The number of rules before it, until the names are known.
                before: Some(format!("r{:06}", import.count.rules + 1)),
            }),
        }
    }
    let untranslated = import.untranslated.len();
    let translated = import.policy.rules.len();
    if translated == 0 && untranslated > 0 && import.untranslated.iter().all(|line| line.why == Why::Syntax) {
        return Err(ImportError::NothingKnown { format: "ClassBench" });
    }
    for missing in &mut import.untranslated {
        let rules = &import.policy.rules;
        let next = rules.partition_point(|rule| missing.before.as_ref().is_some_and(|b| rule.name < *b));
        missing.before = rules.get(next).map(|rule| rule.name.clone());
    }
    import.count = Count { translated, untranslated, ..import.count };
    let mut note = |kind| import.notes.push(Note { origin: None, kind });
    if untranslated > 0 {
        note(NoteKind::NotEquivalent { missing: untranslated });
    }
    note(NoteKind::NoInterfaces);
    note(NoteKind::NoActions);
    if flags_read {
        note(NoteKind::FlagsColumn);
    }
    Ok(import)
}

fn filter(line: &str) -> Result<Rule, Why> {
    let mut words = line.strip_prefix('@').ok_or(Why::Syntax)?.split_ascii_whitespace();
    let mut next = || words.next().ok_or(Why::Syntax);
    let (source, destination) = (next()?, next()?);
    let mut ports = || -> Result<Vec<PortRange>, Why> {
        let (first, colon, last) = (next()?, next()?, next()?);
        let first: u16 = first.parse().map_err(|_| Why::Syntax)?;
        let last: u16 = last.parse().map_err(|_| Why::Syntax)?;
        match (colon, first, last) {
            (":", 0, u16::MAX) => Ok(Vec::new()),
            (":", ..) if first <= last => Ok(vec![PortRange { first, last }]),
            (":", ..) => Err(Why::Value(format!("{first} : {last}"))),
            _ => Err(Why::Syntax),
        }
    };
    let (sports, dports) = (ports()?, ports()?);
    let (protocol, protocol_mask) = masked(next()?)?;
    // Some sets go without the last column.
    let (value, mask) = words.next().map_or(Ok((0, 0)), masked)?;
    if words.next().is_some() {
        return Err(Why::Syntax);
    }
    let (source, v4) = addresses(source)?;
    let (destination, also_v4) = addresses(destination)?;
    if v4 != also_v4 {
        return Err(Why::Value("addresses of both IP versions".to_owned()));
    }
    let pinned = !source.items.is_empty() || !destination.items.is_empty();
    let family = if v4 { FamilyMatch::V4 } else { FamilyMatch::V6 };
    let protocols = match (protocol, protocol_mask) {
        (_, 0) => Vec::new(),
        (protocol @ 0..=0xff, 0xff) => vec![Protocol(protocol as u8)],
        _ => return Err(Why::Value(format!("{protocol:#04x}/{protocol_mask:#04x}"))),
    };
    let ported = !protocols.is_empty() && protocols.iter().all(|protocol| protocol.has_ports());
    if !(ported || sports.is_empty() && dports.is_empty()) {
        return Err(Why::Feature("ports of any protocol".to_owned()));
    }
    if protocols == [if v4 { Protocol::ICMPV6 } else { Protocol::ICMP }] {
        return Err(Why::Value("the other IP version's ICMP".to_owned()));
    }
    let mut rule = Rule {
        conditions: Conditions {
            family: if pinned { FamilyMatch::Both } else { family },
            source,
            destination,
            protocols,
            sports,
            dports,
            ..Conditions::default()
        },
        action: Action::Accept,
        ..Rule::default()
    };
    let [high, low] = mask.to_be_bytes();
    let [value_high, value_low] = (value & mask).to_be_bytes();
    match rule.conditions.protocols.as_slice() {
        _ if mask == 0 => {}
        [Protocol::TCP] if low == 0 => {
            rule.conditions.tcp_flags = Some(TcpFlagsMatch { mask: high, value: value_high });
        }
        [Protocol::ICMP | Protocol::ICMPV6] if high == 0xff && (low == 0 || low == 0xff) => {
            let code = (low == 0xff).then_some(value_low);
            rule.conditions.icmp = vec![IcmpMatch { kind: value_high, code }];
        }
        _ => return Err(Why::Value(format!("{value:#06x}/{mask:#06x}"))),
    }
    Ok(rule)
}

/// Parses addresses, none for all, and returns true for IPv4.
fn addresses(word: &str) -> Result<(Addresses, bool), Why> {
    let range = word::addresses(word).ok_or_else(|| Why::Value(word.to_owned()))?;
    let whole = word.ends_with("/0");
    let items = if whole { Vec::new() } else { vec![AddressItem::Range(range)] };
    Ok((Addresses { items, except: false }, range.first.is_ipv4()))
}

/// Parses `value/mask`, both hexadecimal with `0x`.
fn masked(word: &str) -> Result<(u16, u16), Why> {
    let (value, mask) = word.split_once('/').ok_or(Why::Syntax)?;
    let number = |word: &str| {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).ok_or(Why::Syntax)?;
        u16::from_str_radix(digits, 16).map_err(|_| Why::Syntax)
    };
    Ok((number(value)?, number(mask)?))
}
