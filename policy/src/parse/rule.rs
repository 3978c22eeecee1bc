//! Rules, and the addresses that rules and translations match.

use toml::de::DeValue;

use super::reader::{Complaint, Table};
use super::value;
use crate::diagnostic::Code;
use crate::lines::Entry;
use crate::model::{Addresses, FamilyMatch, Logging, Rule};
use crate::word;

/// Reads a `[[rule]]`.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> (Rule, Entry) {
    let mut rule = Rule {
        name: table.require("name", "\"ssh\"", value::name).unwrap_or_default(),
        from: table.list("from", value::name),
        to: table.list("to", value::name),
        in_interfaces: table.list("in", value::name),
        out_interfaces: table.list("out", value::name),
        family: table.take("family", |value| value::one_of(value, word::FAMILY)).unwrap_or(FamilyMatch::Both),
        source: read_addresses(&mut table, "source"),
        destination: read_addresses(&mut table, "destination"),
        protocols: table.list("protocol", value::protocol),
        sports: table.list("sport", value::ports),
        dports: table.list("dport", value::ports),
        ..Rule::default()
    };
    let icmp_words = word::icmp_words(&rule.protocols);
    rule.icmp = table.list("icmp", |value| value::icmp(value, icmp_words));
    rule.tcp_flags = table.take("tcp-flags", value::tcp_flags);
    rule.dscp = table.list("dscp", value::dscp);
    rule.states = table.list("state", |value| value::one_of(value, word::STATE));
    rule.rate = table.take("rate", value::rate);
    rule.connections = table.take("connections", value::connections);
    rule.timeout = table.take("timeout", value::duration);
    rule.syn = table.take("syn", |value| value::one_of(value, word::SYN)).unwrap_or_default();
    rule.log =
        table.take("log", |value| value::flag(value, Logging::On, Logging::Off)).unwrap_or(Logging::Off);
    rule.action =
        table.require("action", "\"accept\"", |value| value::one_of(value, word::ACTION)).unwrap_or_default();
    (rule, table.finish())
}

/// Reads addresses: one, a list, or `{ except = ... }`.
pub(super) fn read_addresses(table: &mut Table<'_, '_, '_>, key: &'static str) -> Addresses {
    let Some(found) = table.raw(key) else { return Addresses::default() };
    let DeValue::Table(inner) = found.get_ref() else {
        return Addresses { items: table.list_of(key, found, value::address_item), except: false };
    };
    for name in inner.keys() {
        if name.get_ref() != "except" {
            let message = format!("`{key}` has no key `{}`", name.get_ref());
            let hint = "write addresses, or { except = [\"192.0.2.1\"] }";
            table.broken(Complaint::new(Code::UnknownKey, message).hint(hint), name.span());
        }
    }
    match inner.get("except") {
        None if !inner.is_empty() => Addresses::default(),
        Some(items) => Addresses { items: table.list_of(key, items, value::address_item), except: true },
        None => {
            let message = format!("`{key}` as a table needs the key `except`");
            let hint = "write addresses, or { except = [\"192.0.2.1\"] }";
            table.broken(Complaint::new(Code::MissingKey, message).hint(hint), found.span());
            Addresses::default()
        }
    }
}
