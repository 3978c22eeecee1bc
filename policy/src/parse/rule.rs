//! Rules, and the addresses in conditions of rules and translations.

use config::Entry;
use toml::de::DeValue;

use super::value;
use super::{Complaint, Table};
use crate::model::{Addresses, FamilyMatch, Logging, Macs, Rule};
use crate::word;

/// Reads a `[[rule]]`.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> (Rule, Entry) {
    let mut rule = Rule {
        name: table.require("name", "\"ssh\"", value::owned).unwrap_or_default(),
        from: table.list("from", value::owned),
        to: table.list("to", value::owned),
        in_interfaces: table.list("in", value::owned),
        out_interfaces: table.list("out", value::owned),
        family: table.take("family", |value| value::one_of(value, word::FAMILY)).unwrap_or(FamilyMatch::Both),
        source_macs: read_macs(&mut table, "source-mac"),
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
    let (items, except) = read_items(table, key, "192.0.2.1", value::address_item);
    Addresses { items, except }
}

/// Reads Ethernet addresses: one, a list, or `{ except = ... }`.
fn read_macs(table: &mut Table<'_, '_, '_>, key: &'static str) -> Macs {
    let (items, except) = read_items(table, key, "02:00:5e:10:00:01", value::mac_range);
    Macs { items, except }
}

/// Reads items (one, a list, or `{ except = ... }`), and true for exceptions. `example` is an item, for messages.
fn read_items<T>(
    table: &mut Table<'_, '_, '_>,
    key: &'static str,
    example: &str,
    read: fn(&DeValue<'_>) -> value::Read<T>,
) -> (Vec<T>, bool) {
    let Some(found) = table.raw(key) else { return (Vec::new(), false) };
    let DeValue::Table(inner) = found.get_ref() else {
        return (table.list_of(key, found, read), false);
    };
    let hint = format!("write addresses, or {{ except = [\"{example}\"] }}");
    for name in inner.keys() {
        if name.get_ref() != "except" {
            let message = format!("`{key}` has no key `{}`", name.get_ref());
            table.broken(Complaint::new(config::Code::UnknownKey, message).hint(hint.clone()), name.span());
        }
    }
    match inner.get("except") {
        None if !inner.is_empty() => (Vec::new(), false),
        Some(items) => (table.list_of(key, items, read), true),
        None => {
            let message = format!("`{key}` as a table needs the key `except`");
            table.broken(Complaint::new(config::Code::MissingKey, message).hint(hint), found.span());
            (Vec::new(), false)
        }
    }
}
