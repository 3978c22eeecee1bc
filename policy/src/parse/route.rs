//! Routes and neighbours.

use config::{Entry, wrong_type};
use toml::de::DeValue;

use super::value;
use super::{Complaint, Table};
use crate::model::{Neighbour, NextHop, Route, RouteTarget};

#[derive(Clone, Copy)]
enum Nowhere {
    Blackhole,
    Unreachable,
}

/// Reads a `[[route]]`.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> Option<(Route, Entry)> {
    let destination = table.require("to", "\"0.0.0.0/0\"", value::prefix);
    let words = &[("blackhole", Nowhere::Blackhole), ("unreachable", Nowhere::Unreachable)];
    let kind = table.take("kind", |value| value::one_of(value, words));
    if kind.is_some() {
        table.misplaced("via", "a route with a kind leads nowhere: leave out either");
        table.misplaced("interface", "a route with a kind leads nowhere: leave out either");
    }
    let interface = table.take("interface", value::owned);
    let hops = read_hops(&mut table, interface.as_deref());
    let target = match kind {
        Some(Nowhere::Blackhole) => Some(RouteTarget::Blackhole),
        Some(Nowhere::Unreachable) => Some(RouteTarget::Unreachable),
        None if !hops.is_empty() => Some(RouteTarget::Via(hops)),
        None => interface
            .map(|name| RouteTarget::Via(vec![NextHop { via: None, interface: Some(name), weight: 1 }])),
    };
    if target.is_none() && !["via", "interface", "kind"].iter().any(|key| table.has(key)) {
        table.complain(
            Complaint::new(config::Code::MissingKey, "a route needs the key `via`, `interface` or `kind`")
                .hint("for example: via = \"203.0.113.1\", or kind = \"blackhole\""),
        );
    }
    let entry = table.finish();
    Some((Route { destination: destination?, target: target? }, entry))
}

/// Reads `via`: an address, a table, or a list of them.
fn read_hops(table: &mut Table<'_, '_, '_>, interface: Option<&str>) -> Vec<NextHop> {
    let sink = table.sink();
    let Some(found) = table.raw("via") else { return Vec::new() };
    // Tables have spans of their own, so they are read here and not by `list`.
    let items = match found.get_ref() {
        DeValue::Array(items) => &items[..],
        _ => std::slice::from_ref(found),
    };
    let mut given = items.iter().map(|item| match item.get_ref() {
        DeValue::Table(_) => {
            let mut hop = Table::of(sink, item, "a next hop")?;
            let via = hop.take("via", value::address);
            let own = hop.take("interface", value::owned);
            let weight = hop.take("weight", |value| value::number(value, 1, 255)).unwrap_or(1) as u8;
            if via.is_none() && own.is_none() && !hop.has("via") && !hop.has("interface") {
                hop.complain(
                    Complaint::new(config::Code::MissingKey, "a next hop needs the key `via` or `interface`")
                        .hint("for example: { via = \"203.0.113.1\", weight = 2 }"),
                );
            }
            let broken = hop.finish().broken;
            let interface = own.or_else(|| interface.map(str::to_owned));
            (!broken).then_some(NextHop { via, interface, weight })
        }
        _ => None,
    });
    table
        .list_of("via", found, |value| {
            let hop = given.next().flatten();
            match value {
                DeValue::Table(_) => Ok(hop),
                DeValue::String(_) => value::address(value).map(|via| {
                    Some(NextHop { via: Some(via), interface: interface.map(str::to_owned), weight: 1 })
                }),
                other => Err(wrong_type("an address or a table such as { via = \"203.0.113.1\" }", other)),
            }
        })
        .into_iter()
        .flatten()
        .collect()
}

/// Reads a `[[neighbour]]`.
pub(super) fn read_neighbour(mut table: Table<'_, '_, '_>) -> Option<(Neighbour, Entry)> {
    let interface = table.require("interface", "\"wan\"", value::owned);
    let address = table.require("address", "\"203.0.113.1\"", value::address);
    let mac = table.require("mac", "\"02:00:5e:20:00:01\"", value::mac);
    let entry = table.finish();
    Some((Neighbour { interface: interface?, address: address?, mac: mac? }, entry))
}
