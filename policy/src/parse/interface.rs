//! Interfaces and sets.

use std::borrow::Cow;

use config::{Entry, Part};
use toml::Spanned;
use toml::de::DeValue;

use super::{Sink, Table, value};
use crate::model::{Interface, LinkKind, MssClamp, Set, SourceCheck};
use crate::word;

/// Reads `[interface.NAME]`.
pub(super) fn read(
    sink: &Sink,
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> (Interface, Entry) {
    let mut interface = Interface {
        name: key.get_ref().clone().into_owned(),
        zone: String::new(),
        addresses: Vec::new(),
        link: LinkKind::Ethernet,
        mtu: 1500,
        rate: None,
        device_rate: None,
        overhead: None,
        mac: None,
        parent: None,
        vlans: Vec::new(),
        source_check: SourceCheck::Strict,
        mss: MssClamp::Off,
    };
    let Some(mut table) = Table::of(sink, value, "an interface") else {
        return (interface, Entry { span: key.span(), parts: Vec::new(), broken: true });
    };
    if let Some(zone) = table.require("zone", "\"lan\"", value::owned) {
        interface.zone = zone;
    }
    interface.addresses = table.items("addresses", value::interface_address);
    interface.link = table.take("link", |value| value::one_of(value, word::LINK)).unwrap_or_default();
    if let Some(mtu) = table.take("mtu", value::number16) {
        interface.mtu = mtu;
    }
    interface.rate = table.take("rate", value::bit_rate);
    interface.overhead = table.take("overhead", value::number16);
    interface.mac = table.take("mac", value::mac);
    interface.parent = table.take("parent", value::owned);
    interface.vlans = table.list("vlan", value::number16);
    interface.source_check =
        table.take("source-check", |value| value::one_of(value, word::SOURCE_CHECK)).unwrap_or_default();
    interface.mss = table.take("mss", value::mss).unwrap_or_default();
    let entry = Entry { span: key.span(), ..table.finish() };
    (interface, entry)
}

/// Reads one line of `[set]`.
pub(super) fn read_set(
    sink: &Sink,
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> (Set, Entry) {
    let mut entry = Entry { span: key.span(), ..Entry::default() };
    let mut set = Set { name: key.get_ref().clone().into_owned(), items: Vec::new() };
    let items = match value.get_ref() {
        DeValue::Array(items) => &items[..],
        _ => std::slice::from_ref(value),
    };
    for item in items {
        match value::address_range(item.get_ref()) {
            Ok(range) => {
                entry.parts.push(Part { key: "items", item: Some(set.items.len()), span: item.span() });
                set.items.push(range);
            }
            Err(complaint) => {
                entry.broken = true;
                sink.report(complaint, item.span());
            }
        }
    }
    (set, entry)
}
