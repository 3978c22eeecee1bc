//! Rules, and the addresses in conditions of rules and translations.

use toml::de::DeValue;

use super::{Keys, Table, texts};
use crate::model::{Addresses, Conditions, DnatStatus, FamilyMatch, Logging, Rule};
use crate::value::address::{ADDRESS_ITEM, MAC_RANGE, SET};
use crate::value::packet::{DSCP, Icmp, PORTS, PROTOCOL, TCP_FLAGS};
use crate::value::time::{CONNECTIONS, DURATION, RATE};
use crate::value::{Complaint, Flag, Form, STRING, Text};
use crate::word;

/// Keys of a `[[rule]]`.
pub(super) fn rule(keys: &mut Keys<'_, '_>, rule: &mut Rule) -> bool {
    keys.required("name", "\"ssh\"", STRING, &mut rule.name);
    conditions(keys, &mut rule.conditions);
    keys.list("state", word::STATE, &mut rule.states);
    keys.optional("dnat", Flag(DnatStatus::Translated, DnatStatus::Untranslated), &mut rule.dnat);
    keys.optional("rate", RATE, &mut rule.rate);
    keys.key("excess", word::EXCESS, &mut rule.excess);
    keys.optional("connections", CONNECTIONS, &mut rule.connections);
    keys.optional("timeout", DURATION, &mut rule.timeout);
    keys.key("syn", word::SYN, &mut rule.syn);
    keys.optional("helper", word::HELPER, &mut rule.helper);
    keys.optional("add-source", SET, &mut rule.add_source);
    keys.optional("for", DURATION, &mut rule.add_for);
    keys.key("log", Flag(Logging::On, Logging::Off), &mut rule.log);
    keys.required("action", "\"accept\"", word::ACTION, &mut rule.action);
    true
}

/// Conditions on a packet.
pub(super) fn conditions(keys: &mut Keys<'_, '_>, conditions: &mut Conditions) {
    keys.list("from", STRING, &mut conditions.from);
    keys.list("to", STRING, &mut conditions.to);
    keys.list("in", STRING, &mut conditions.in_interfaces);
    keys.list("out", STRING, &mut conditions.out_interfaces);
    keys.key_or("family", word::FAMILY, &mut conditions.family, FamilyMatch::Both);
    let macs = &mut conditions.source_macs;
    items(keys, "source-mac", "02:00:5e:10:00:01", MAC_RANGE, &mut macs.items, &mut macs.except);
    addresses(keys, "source", &mut conditions.source);
    addresses(keys, "destination", &mut conditions.destination);
    keys.list("protocol", PROTOCOL, &mut conditions.protocols);
    keys.list("sport", PORTS, &mut conditions.sports);
    keys.list("dport", PORTS, &mut conditions.dports);
    keys.list("icmp", Icmp(word::icmp_words(&conditions.protocols)), &mut conditions.icmp);
    keys.optional("tcp-flags", TCP_FLAGS, &mut conditions.tcp_flags);
    keys.list("dscp", DSCP, &mut conditions.dscp);
}

/// A condition on IP addresses: one, a list, or `{ except = ... }`.
pub(super) fn addresses(keys: &mut Keys<'_, '_>, key: &'static str, addresses: &mut Addresses) {
    items(keys, key, "192.0.2.1", ADDRESS_ITEM, &mut addresses.items, &mut addresses.except);
}

/// Items: one, a list, or `{ except = ... }`. `example` is an item, for messages.
fn items<T: PartialEq>(
    keys: &mut Keys<'_, '_>,
    key: &'static str,
    example: &str,
    form: Text<T>,
    items: &mut Vec<T>,
    except: &mut bool,
) {
    match keys {
        Keys::Read(table) => (*items, *except) = read_items(table, key, example, &form),
        Keys::Print(out) if *except && !items.is_empty() => {
            out.line(key, &format!("{{ except = [{}] }}", texts(&form, items).join(", ")));
        }
        Keys::Print(_) => keys.list(key, form, items),
    }
}

/// Reads items (one, a list, or `{ except = ... }`), and true for exceptions. `example` is an item, for messages.
fn read_items<T>(table: &mut Table<'_>, key: &'static str, example: &str, form: &Text<T>) -> (Vec<T>, bool) {
    let Some(found) = table.raw(key) else { return (Vec::new(), false) };
    let read = |item: &DeValue<'_>| form.read(item);
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
