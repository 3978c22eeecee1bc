//! Routes, multicast routes and neighbours.

use std::net::{IpAddr, Ipv4Addr};

use config::wrong_type;
use ipnet::IpNet;
use toml::de::DeValue;

use super::{Keys, Table};
use crate::model::{Mac, MulticastRoute, Neighbour, NextHop, Route, RouteTarget};
use crate::print::Printer;
use crate::value::address::{ADDRESS, MAC, MULTICAST_EXIT, PREFIX};
use crate::value::{Complaint, Form, NAME, STRING, WEIGHT};
use crate::word;

/// A neighbour before it is read.
pub(super) const NEW_NEIGHBOUR: Neighbour =
    Neighbour { interface: String::new(), address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), mac: Mac([0; 6]) };

/// Keys of a `[[neighbour]]`.
pub(super) fn neighbour(keys: &mut Keys<'_, '_>, neighbour: &mut Neighbour) -> bool {
    let interface = keys.required("interface", "\"wan\"", STRING, &mut neighbour.interface);
    let address = keys.required("address", "\"203.0.113.1\"", ADDRESS, &mut neighbour.address);
    let mac = keys.required("mac", "\"02:00:5e:20:00:01\"", MAC, &mut neighbour.mac);
    interface && address && mac
}

/// A route before it is read.
pub(super) fn new_route() -> Route {
    Route { destination: IpNet::default(), vrf: None, next_vrf: None, target: RouteTarget::Blackhole }
}

/// Keys of a `[[route]]`.
pub(super) fn route(keys: &mut Keys<'_, '_>, route: &mut Route) -> bool {
    let destination = keys.required("to", "\"0.0.0.0/0\"", PREFIX, &mut route.destination);
    keys.optional("vrf", NAME, &mut route.vrf);
    keys.optional("next-vrf", NAME, &mut route.next_vrf);
    match keys {
        Keys::Read(table) => match read_target(table) {
            Some(target) => route.target = target,
            None => return false,
        },
        Keys::Print(out) => match &mut route.target {
            RouteTarget::Via(hops) => match &mut hops[..] {
                [hop] if hop.weight == 1 => next_hop(keys, hop),
                hops => out.list("via", &hops.iter_mut().map(next_hop_text).collect::<Vec<_>>()),
            },
            nowhere => out.line("kind", &word::NOWHERE.print(nowhere)),
        },
    }
    destination
}

/// A multicast route before it is read.
pub(super) fn new_multicast_route() -> MulticastRoute {
    MulticastRoute { group: IpNet::default(), source: None, from: String::new(), to: Vec::new() }
}

/// Keys of a `[[multicast-route]]`.
pub(super) fn multicast_route(keys: &mut Keys<'_, '_>, route: &mut MulticastRoute) -> bool {
    let group = keys.required("group", "\"239.1.0.0/16\"", PREFIX, &mut route.group);
    keys.optional("source", ADDRESS, &mut route.source);
    let from = keys.required("from", "\"wan\"", STRING, &mut route.from);
    keys.list("to", MULTICAST_EXIT, &mut route.to);
    group && from
}

/// Keys of a next hop.
pub(super) fn next_hop(keys: &mut Keys<'_, '_>, hop: &mut NextHop) {
    keys.optional("via", ADDRESS, &mut hop.via);
    keys.optional("interface", STRING, &mut hop.interface);
    keys.key_or("weight", WEIGHT, &mut hop.weight, 1);
}

fn next_hop_text(hop: &mut NextHop) -> String {
    match hop {
        NextHop { via: Some(via), interface: None, weight: 1 } => ADDRESS.print(via),
        hop => Printer::braces(|keys| next_hop(keys, hop)),
    }
}

/// Reads `via`, `interface` or `kind`.
fn read_target(table: &mut Table<'_>) -> Option<RouteTarget> {
    let kind = table.take("kind", |found| word::NOWHERE.read(found));
    if kind.is_some() {
        table.misplaced("via", "a route with a kind leads nowhere: leave out either");
        table.misplaced("interface", "a route with a kind leads nowhere: leave out either");
    }
    let interface = table.take("interface", |found| STRING.read(found));
    let hops = read_hops(table, interface.as_deref());
    let via = |hops| Some(RouteTarget::Via(hops));
    let target = match (kind, interface) {
        (Some(kind), _) => Some(kind),
        (None, _) if !hops.is_empty() => via(hops),
        (None, interface @ Some(_)) => via(vec![NextHop { via: None, interface, weight: 1 }]),
        (None, None) => None,
    };
    if target.is_none() && !["via", "interface", "kind"].iter().any(|key| table.has(key)) {
        table.complain(
            Complaint::new(config::Code::MissingKey, "a route needs the key `via`, `interface` or `kind`")
                .hint("for example: via = \"203.0.113.1\", or kind = \"blackhole\""),
        );
    }
    target
}

/// Reads `via`: an address, a table, or a list of them.
fn read_hops(table: &mut Table<'_>, interface: Option<&str>) -> Vec<NextHop> {
    let sink = table.sink();
    let Some(found) = table.raw("via") else { return Vec::new() };
    // Tables have spans of their own, so they are read here and not by `list`.
    let items = match found.get_ref() {
        DeValue::Array(items) => &items[..],
        _ => std::slice::from_ref(found),
    };
    let mut given = items.iter().map(|item| match item.get_ref() {
        DeValue::Table(_) => {
            let mut inner = Table::of(sink, item, "a next hop")?;
            let mut hop = NextHop { via: None, interface: None, weight: 1 };
            next_hop(&mut Keys::Read(&mut inner), &mut hop);
            if !inner.has("via") && !inner.has("interface") {
                inner.complain(
                    Complaint::new(config::Code::MissingKey, "a next hop needs the key `via` or `interface`")
                        .hint("for example: { via = \"203.0.113.1\", weight = 2 }"),
                );
            }
            hop.interface = hop.interface.or_else(|| interface.map(str::to_owned));
            (!inner.finish().broken).then_some(hop)
        }
        _ => None,
    });
    table
        .list_of("via", found, |value| {
            let hop = given.next().flatten();
            match value {
                DeValue::Table(_) => Ok(hop),
                DeValue::String(_) => ADDRESS.read(value).map(|via| {
                    Some(NextHop { via: Some(via), interface: interface.map(str::to_owned), weight: 1 })
                }),
                other => Err(wrong_type("an address or a table such as { via = \"203.0.113.1\" }", other)),
            }
        })
        .into_iter()
        .flatten()
        .collect()
}
