//! Translations.

use std::mem::discriminant;
use std::net::{IpAddr, Ipv4Addr};

use config::value::one_of;
use ipnet::IpNet;
use toml::de::DeValue;
use wire::siit::Prefix;

use super::rule::addresses;
use super::{Keys, Table, check, names, port_mapping};
use crate::model::{Addresses, Balance, Clat, Hairpin, Nat, Nat64, NatAction, PortChoice, PortUse};
use crate::value::address::{ADDRESS, PREFIX, PREFIX6, RANGE, SERVER, TARGET};
use crate::value::packet::{PORT, PORTS, PROTOCOL};
use crate::value::{Flag, Form, NAME, NUMBER16, NUMBER32, Read, STRING, quoted};
use crate::word;

/// Keys of a `[[nat]]`.
pub(super) fn nat(keys: &mut Keys<'_, '_>, nat: &mut Nat) -> bool {
    keys.required("name", "\"office\"", STRING, &mut nat.name);
    let has_kind = keys.required("kind", "\"masquerade\"", Kind, &mut nat.action);
    conditions(keys, nat);
    let is_whole = has_kind && action(keys, &mut nat.action);
    if let Keys::Read(table) = keys {
        misplaced(table, has_kind);
    }
    is_whole
}

fn conditions(keys: &mut Keys<'_, '_>, nat: &mut Nat) {
    let of_source = nat.action.is_of_source();
    keys.list("from", STRING, &mut nat.from);
    if of_source {
        keys.list("to", STRING, &mut nat.to);
    }
    addresses(keys, "source", &mut nat.source);
    if !matches!(nat.action, NatAction::Nat64(_)) {
        addresses(keys, "destination", &mut nat.destination);
    }
    keys.list("protocol", PROTOCOL, &mut nat.protocols);
    if of_source {
        keys.list("sport", PORTS, &mut nat.sports);
        keys.list("dport", PORTS, &mut nat.dports);
    }
}

/// Keys that depend on the kind of translation.
fn action(keys: &mut Keys<'_, '_>, action: &mut NatAction) -> bool {
    match action {
        NatAction::Masquerade { ports } => {
            port_use(keys, ports);
            port_mapping::of_ports(keys, ports);
            true
        }
        NatAction::Source { pool, ports } => {
            let has_pool = keys.required_list("pool", "[\"198.51.100.10-198.51.100.20\"]", RANGE, pool);
            port_use(keys, ports);
            port_mapping::of_ports(keys, ports);
            has_pool
        }
        NatAction::Exempt => true,
        NatAction::Forward { outside, ports, target, vrf, target_port, hairpin } => {
            keys.optional("outside", ADDRESS, outside);
            keys.list("port", PORTS, ports);
            let mut socket = (*target, *target_port);
            let has_target = keys.required("target", "\"192.168.1.20:8443\"", TARGET, &mut socket);
            (*target, *target_port) = socket;
            keys.optional("vrf", NAME, vrf);
            keys.key("hairpin", HAIRPIN, hairpin);
            has_target
        }
        NatAction::Balance(balance) => {
            keys.optional("outside", ADDRESS, &mut balance.outside);
            keys.list("port", PORTS, &mut balance.ports);
            let example = "[\"192.168.1.20:8080\", \"192.168.1.21:8080 weight 2\"]";
            let has_servers = keys.required_list("targets", example, SERVER, &mut balance.servers);
            keys.key("sticky", word::STICKY, &mut balance.sticky);
            keys.key("on-failure", word::ON_FAILURE, &mut balance.on_failure);
            keys.key("hairpin", HAIRPIN, &mut balance.hairpin);
            check::of_balance(keys, balance);
            has_servers
        }
        NatAction::Redirect { ports, to_port } => {
            keys.list("port", PORTS, ports);
            keys.optional("to-port", PORT, to_port);
            true
        }
        NatAction::OneToOne { outside, inside, hairpin } => {
            let has_outside = keys.required("outside", "\"203.0.113.9\"", PREFIX, outside);
            let has_inside = keys.required("inside", "\"192.168.1.9\"", PREFIX, inside);
            keys.key("hairpin", HAIRPIN, hairpin);
            has_outside && has_inside
        }
        NatAction::Npt { outside, inside, hairpin } => {
            let has_outside = keys.required("outside", "\"2001:db8:1::/48\"", PREFIX, outside);
            let has_inside = keys.required("inside", "\"fd01:203:405::/48\"", PREFIX, inside);
            keys.key("hairpin", HAIRPIN, hairpin);
            has_outside && has_inside
        }
        NatAction::Nat64(nat64) => {
            keys.key_or("prefix", PREFIX6, &mut nat64.prefix, Prefix::WELL_KNOWN);
            keys.list("pool", RANGE, &mut nat64.pool);
            port_use(keys, &mut nat64.ports);
            true
        }
        NatAction::Clat(clat) => {
            keys.key_or("prefix", PREFIX6, &mut clat.prefix, Prefix::WELL_KNOWN);
            keys.list("pool", RANGE, &mut clat.pool);
            single_ports(keys, &mut clat.ports);
            true
        }
    }
}

const HAIRPIN: Flag<Hairpin> = Flag(Hairpin::On, Hairpin::Off);

fn port_use(keys: &mut Keys<'_, '_>, ports: &mut PortUse) {
    single_ports(keys, ports);
    keys.optional("block", NUMBER16, &mut ports.block);
    keys.optional("blocks-per-host", NUMBER16, &mut ports.blocks_per_host);
}

/// Keys of ports that are allocated one by one.
fn single_ports(keys: &mut Keys<'_, '_>, ports: &mut PortUse) {
    keys.list_or("ports", PORTS, &mut ports.ranges, PortUse::default().ranges);
    keys.key("random", Flag(PortChoice::Random, PortChoice::Preserve), &mut ports.choice);
    keys.optional("quota", NUMBER32, &mut ports.quota);
}

/// A translation before it is read. Until its kind is known, it has the conditions that all kinds have.
pub(super) fn new_nat() -> Nat {
    let [.., (_, action)] = kinds();
    Nat {
        name: String::new(),
        from: Vec::new(),
        to: Vec::new(),
        source: Addresses::default(),
        destination: Addresses::default(),
        protocols: Vec::new(),
        sports: Vec::new(),
        dports: Vec::new(),
        action,
    }
}

/// Kinds of translations: the words for them, and their actions before their keys are read.
pub(super) fn kinds() -> [(&'static str, NatAction); 10] {
    let (ports, hairpin) = (PortUse::default(), Hairpin::default());
    let (target, prefix) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpNet::default());
    [
        ("masquerade", NatAction::Masquerade { ports: ports.clone() }),
        ("source", NatAction::Source { pool: Vec::new(), ports }),
        ("exempt", NatAction::Exempt),
        (
            "forward",
            NatAction::Forward {
                outside: None,
                ports: Vec::new(),
                target,
                vrf: None,
                target_port: None,
                hairpin,
            },
        ),
        ("balance", NatAction::Balance(Balance::default())),
        ("nat64", NatAction::Nat64(Nat64::default())),
        ("clat", NatAction::Clat(Clat::default())),
        ("redirect", NatAction::Redirect { ports: Vec::new(), to_port: None }),
        ("npt", NatAction::Npt { outside: prefix, inside: prefix, hairpin }),
        ("one-to-one", NatAction::OneToOne { outside: prefix, inside: prefix, hairpin }),
    ]
}

/// Form of a kind of translation.
struct Kind;

impl Form<NatAction> for Kind {
    fn read(&self, value: &DeValue<'_>) -> Read<NatAction> {
        one_of(value, &kinds())
    }

    fn print(&self, action: &NatAction) -> String {
        let kinds = kinds();
        let own = kinds.iter().find(|(_, kind)| discriminant(kind) == discriminant(action));
        quoted(own.map_or("", |(word, _)| word))
    }
}

/// Complains of keys that only other kinds of translations have; of none where the kind is not known.
fn misplaced(table: &mut Table<'_>, has_kind: bool) {
    let kinds = kinds().map(|(word, action)| (word, keys_of(action)));
    for key in kinds.iter().flat_map(|(_, keys)| keys) {
        if table.known().contains(key) {
            continue;
        }
        if has_kind {
            let owners = kinds.iter().filter(|(_, keys)| keys.contains(key)).map(|(word, _)| *word);
            let owners = owners.collect::<Vec<_>>().join(" or ");
            table.misplaced(key, &format!("only translations of the kind {owners} have it"));
        } else {
            let _ = table.raw(key);
        }
    }
}

/// Returns the keys of a kind of translation, besides its name and kind.
pub(super) fn keys_of(kind: NatAction) -> Vec<&'static str> {
    let mut nat = Nat { action: kind, ..new_nat() };
    names(|keys| {
        conditions(keys, &mut nat);
        action(keys, &mut nat.action);
    })
}
