//! The top of the file, sets and defaults.

use std::borrow::Cow;
use std::iter::repeat;

use config::{Entry, section};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::class::{class, meter};
use super::dynamic_set::dynamic_sets;
use super::gateway::gateway;
use super::interface::{cross_connect, interfaces};
use super::limit::{limits, timeouts};
use super::nat::{nat, new_nat};
use super::queue::queue;
use super::route::{NEW_NEIGHBOUR, multicast_route, neighbour, new_multicast_route, new_route, route};
use super::rule::rule;
use super::shape::shapes;
use super::wan::{policy_route, wans};
use super::{Keys, Table, texts};
use crate::diagnostic::Code;
use crate::lines::{Item, Lines};
use crate::model::{Class, CrossConnect, Meter, Policy, PolicyRoute, Queue, Rule, Search, Set, ZoneDefault};
use crate::value::address::RANGE;
use crate::value::{Complaint, Form, MEBIBYTES, key, quoted};
use crate::word;

/// All keys of a policy; `lines` gets the positions of what is read.
pub(crate) fn policy(keys: &mut Keys<'_, '_>, policy: &mut Policy, lines: &mut Lines) {
    keys.key("mode", word::MODE, &mut policy.mode);
    keys.key("wan-sticky", word::STICKY, &mut policy.wan_sticky);
    keys.table("[classifier]", |keys| search(keys, &mut policy.search));
    let entries = interfaces(keys, &mut policy.interfaces);
    lines.extend(Item::Interface(0), entries, policy.interfaces.iter().map(|one| &*one.name));
    let entries = sets(keys, &mut policy.sets);
    lines.extend(Item::Set(0), entries, policy.sets.iter().map(|set| &*set.name));
    let entries = dynamic_sets(keys, &mut policy.dynamic_sets);
    lines.extend(Item::DynamicSet(0), entries, policy.dynamic_sets.iter().map(|set| &*set.name));
    lines.extend(Item::Default(0), defaults(keys, &mut policy.defaults), repeat(""));
    let entries = keys.tables("route", "a route", &mut policy.routes, &new_route(), route);
    lines.extend(Item::Route(0), entries, repeat(""));
    let entries = wans(keys, &mut policy.wans);
    lines.extend(Item::Wan(0), entries, policy.wans.iter().map(|wan| &*wan.name));
    let new = PolicyRoute::default();
    let entries =
        keys.tables("policy-route", "a policy route", &mut policy.policy_routes, &new, policy_route);
    lines.extend(Item::PolicyRoute(0), entries, policy.policy_routes.iter().map(|route| &*route.name));
    let entries = keys.tables(
        "multicast-route",
        "a multicast route",
        &mut policy.multicast_routes,
        &new_multicast_route(),
        multicast_route,
    );
    lines.extend(Item::MulticastRoute(0), entries, repeat(""));
    let entries = keys.tables("neighbour", "a neighbour", &mut policy.neighbours, &NEW_NEIGHBOUR, neighbour);
    lines.extend(Item::Neighbour(0), entries, repeat(""));
    let entries = keys.tables(
        "cross-connect",
        "a cross-connection",
        &mut policy.cross_connects,
        &CrossConnect::default(),
        cross_connect,
    );
    lines.extend(Item::CrossConnect(0), entries, repeat(""));
    let entries = keys.tables("nat", "a translation", &mut policy.nats, &new_nat(), nat);
    lines.extend(Item::Nat(0), entries, policy.nats.iter().map(|nat| &*nat.name));
    let entries = keys.tables("rule", "a rule", &mut policy.rules, &Rule::default(), rule);
    lines.extend(Item::Rule(0), entries, policy.rules.iter().map(|rule| &*rule.name));
    let entries = keys.tables("class", "a class", &mut policy.classes, &Class::default(), class);
    lines.extend(Item::Class(0), entries, policy.classes.iter().map(|class| &*class.name));
    let entries = keys.tables("meter", "a meter", &mut policy.meters, &Meter::new(""), meter);
    lines.extend(Item::Meter(0), entries, policy.meters.iter().map(|meter| &*meter.name));
    let entries = keys.tables("queue", "a queue", &mut policy.queues, &Queue::new(""), queue);
    lines.extend(Item::Queue(0), entries, policy.queues.iter().map(|queue| &*queue.name));
    let entries = shapes(keys, &mut policy.shapes);
    lines.extend(Item::Shape(0), entries, policy.shapes.iter().map(|shape| &*shape.interface));
    let entry = keys.table("[limit]", |keys| limits(keys, &mut policy.limits));
    lines.extend(Item::Limit, entry.map(Some), repeat(""));
    let entry = keys.table("[timeout]", |keys| timeouts(keys, &mut policy.timeouts));
    lines.extend(Item::Timeout, entry.map(Some), repeat(""));
    let entry = keys.table("[gateway]", |keys| gateway(keys, &mut policy.gateway));
    keys.absorb(entry);
}

/// Keys of `[classifier]`.
pub(super) fn search(keys: &mut Keys<'_, '_>, search: &mut Search) {
    keys.key("algorithm", word::SEARCH_ALGORITHM, &mut search.algorithm);
    keys.optional("memory", MEBIBYTES, &mut search.memory);
}

/// `[set]`: the names of sets, with their addresses, of which there may be none.
fn sets(keys: &mut Keys<'_, '_>, sets: &mut Vec<Set>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "set")
            .into_iter()
            .map(|(name, value)| {
                let empty = DeTable::new();
                let mut line = Table::new(top.sink(), &empty, name.span(), "a set");
                let items = line.items_of("items", value, |item| RANGE.read(item));
                sets.push(Set { name: name.get_ref().clone().into_owned(), items });
                Some(line.finish())
            })
            .collect(),
        Keys::Print(out) => {
            out.header("[set]");
            for set in sets {
                out.list(&key(&set.name), &texts(&RANGE, &set.items));
            }
            Vec::new()
        }
    }
}

/// `[default]`: pairs of zones, with their actions.
fn defaults(keys: &mut Keys<'_, '_>, defaults: &mut Vec<ZoneDefault>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "default")
            .into_iter()
            .map(|(pair, action)| {
                defaults.push(read_default(top, pair, action)?);
                Some(Entry { span: pair.span(), ..Entry::default() })
            })
            .collect(),
        Keys::Print(out) => {
            out.header("[default]");
            for default in defaults {
                let pair = quoted(&format!("{} > {}", default.from, default.to));
                out.line(&pair, &word::ACTION.print(&default.action));
            }
            Vec::new()
        }
    }
}

fn read_default(
    top: &Table<'_>,
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Option<ZoneDefault> {
    let action = word::ACTION.read(value.get_ref());
    let action = action.map_err(|complaint| top.sink().report(complaint, value.span())).ok();
    let mut zones = key.get_ref().split('>').map(str::trim);
    let pair = match (zones.next(), zones.next(), zones.next()) {
        (Some(from), Some(to), None) if !from.is_empty() && !to.is_empty() => Some((from, to)),
        _ => {
            let message = format!("\"{}\" is not a pair of zones", key.get_ref());
            let hint = "write \"lan > wan\" = \"accept\"; \"any\" stands for every zone";
            top.sink().report(Complaint::new(Code::BadZonePair, message).hint(hint), key.span());
            None
        }
    };
    let (from, to) = pair?;
    Some(ZoneDefault { from: from.to_owned(), to: to.to_owned(), action: action? })
}
