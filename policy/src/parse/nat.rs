//! Translations.

use config::Entry;

use super::Table;
use super::rule::read_addresses;
use super::value;
use crate::model::{Hairpin, Nat, NatAction, PortChoice, PortUse};
use crate::word::{Words, word_for};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Masquerade,
    Source,
    Exempt,
    Forward,
    OneToOne,
}

const KINDS: Words<Kind> = &[
    ("masquerade", Kind::Masquerade),
    ("source", Kind::Source),
    ("exempt", Kind::Exempt),
    ("forward", Kind::Forward),
    ("one-to-one", Kind::OneToOne),
];

/// Keys of some kinds of translation only.
const SPECIAL: [(&str, &[Kind]); 13] = [
    ("to", &[Kind::Masquerade, Kind::Source, Kind::Exempt]),
    ("sport", &[Kind::Masquerade, Kind::Source, Kind::Exempt]),
    ("dport", &[Kind::Masquerade, Kind::Source, Kind::Exempt]),
    ("ports", &[Kind::Masquerade, Kind::Source]),
    ("random", &[Kind::Masquerade, Kind::Source]),
    ("quota", &[Kind::Masquerade, Kind::Source]),
    ("block", &[Kind::Masquerade, Kind::Source]),
    ("pool", &[Kind::Source]),
    ("port", &[Kind::Forward]),
    ("target", &[Kind::Forward]),
    ("outside", &[Kind::Forward, Kind::OneToOne]),
    ("inside", &[Kind::OneToOne]),
    ("hairpin", &[Kind::Forward, Kind::OneToOne]),
];

/// Reads a `[[nat]]`; `None` if a key that its kind requires is absent.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> Option<(Nat, Entry)> {
    let name = table.require("name", "\"office\"", value::owned).unwrap_or_default();
    let kind = table.require("kind", "\"masquerade\"", |value| value::one_of(value, KINDS));
    let from = table.list("from", value::owned);
    let source = read_addresses(&mut table, "source");
    let destination = read_addresses(&mut table, "destination");
    let protocols = table.list("protocol", value::protocol);
    let Some(kind) = kind else {
        // Which keys belong is not known, so none is complained of.
        for (key, _) in SPECIAL {
            let _ = table.raw(key);
        }
        table.finish();
        return None;
    };
    let (to, sports, dports) = match kind {
        Kind::Masquerade | Kind::Source | Kind::Exempt => (
            table.list("to", value::owned),
            table.list("sport", value::ports),
            table.list("dport", value::ports),
        ),
        Kind::Forward | Kind::OneToOne => Default::default(),
    };
    let action = read_action(&mut table, kind);
    for (key, kinds) in SPECIAL {
        if !kinds.contains(&kind) {
            let owners: Vec<&str> = kinds.iter().filter_map(|kind| word_for(KINDS, *kind)).collect();
            table.misplaced(key, &format!("only translations of the kind {} have it", owners.join(" or ")));
        }
    }
    let entry = table.finish();
    let action = action?;
    Some((Nat { name, from, to, source, destination, protocols, sports, dports, action }, entry))
}

fn read_action(table: &mut Table<'_, '_, '_>, kind: Kind) -> Option<NatAction> {
    match kind {
        Kind::Masquerade => Some(NatAction::Masquerade { ports: read_port_use(table) }),
        Kind::Source => {
            let ports = read_port_use(table);
            let _ = table.require("pool", "[\"198.51.100.10-198.51.100.20\"]", |_| Ok(()));
            let pool = table.list("pool", value::address_range);
            (!pool.is_empty()).then_some(NatAction::Source { pool, ports })
        }
        Kind::Exempt => Some(NatAction::Exempt),
        Kind::Forward => {
            let outside = table.take("outside", value::address);
            let ports = table.list("port", value::ports);
            let target = table.require("target", "\"192.168.1.20:8443\"", value::target);
            let hairpin = read_hairpin(table);
            let (target, target_port) = target?;
            Some(NatAction::Forward { outside, ports, target, target_port, hairpin })
        }
        Kind::OneToOne => {
            let outside = table.require("outside", "\"203.0.113.9\"", value::prefix);
            let inside = table.require("inside", "\"192.168.1.9\"", value::prefix);
            let hairpin = read_hairpin(table);
            Some(NatAction::OneToOne { outside: outside?, inside: inside?, hairpin })
        }
    }
}

fn read_hairpin(table: &mut Table<'_, '_, '_>) -> Hairpin {
    table.take("hairpin", |value| value::flag(value, Hairpin::On, Hairpin::Off)).unwrap_or_default()
}

fn read_port_use(table: &mut Table<'_, '_, '_>) -> PortUse {
    let given = table.list("ports", value::ports);
    let choice = table.take("random", |value| value::flag(value, PortChoice::Random, PortChoice::Preserve));
    PortUse {
        ranges: if given.is_empty() { PortUse::default().ranges } else { given },
        quota: table.take("quota", value::number32),
        block: table.take("block", value::number16),
        choice: choice.unwrap_or_default(),
    }
}
