//! WANs and policy routes.

use config::{Entry, section};

use super::check::{pace, status};
use super::rule::addresses;
use super::{Keys, Table};
use crate::model::{FamilyMatch, PolicyRoute, Wan, WanCheck};
use crate::value::address::ADDRESS;
use crate::value::check::CHECK_URL;
use crate::value::packet::{DSCP, PORTS, PROTOCOL};
use crate::value::{STRING, WEIGHT, key};
use crate::word;

/// Keys of `[wan.NAME]`.
pub(super) fn wan(keys: &mut Keys<'_, '_>, wan: &mut Wan) -> bool {
    let has_interface = keys.required("interface", "\"fibre0\"", STRING, &mut wan.interface);
    keys.list("gateway", ADDRESS, &mut wan.gateways);
    keys.key_or("weight", WEIGHT, &mut wan.weight, 1);
    keys.key_or("tier", WEIGHT, &mut wan.tier, 1);
    keys.key("on-failure", word::ON_FAILURE, &mut wan.on_failure);
    keys.key("state", word::WAN_STATE, &mut wan.state);
    match keys {
        Keys::Read(outer) => {
            let Some(found) = outer.raw("check") else { return has_interface };
            let Some(mut table) = Table::of(outer.sink(), found, "a check") else {
                outer.note(true);
                return has_interface;
            };
            let mut read = WanCheck::default();
            check(&mut Keys::Read(&mut table), &mut read);
            outer.absorb(table.finish());
            wan.check = Some(read);
        }
        Keys::Print(out) => {
            let Some(read) = &mut wan.check else { return has_interface };
            out.header(&format!("[wan.{}.check]", key(&wan.name)));
            check(&mut Keys::Print(out), read);
        }
    }
    has_interface
}

/// Keys of `[wan.NAME.check]`.
pub(super) fn check(keys: &mut Keys<'_, '_>, check: &mut WanCheck) {
    keys.list("ping", ADDRESS, &mut check.ping);
    keys.list("url", CHECK_URL, &mut check.urls);
    status(keys, &mut check.status);
    pace(keys, &mut check.pace, WanCheck::PACE);
}

/// `[wan]`: the tables of all WANs.
pub(super) fn wans(keys: &mut Keys<'_, '_>, wans: &mut Vec<Wan>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "wan")
            .into_iter()
            .map(|(name, value)| {
                let mut read = Wan::new(name.get_ref(), "");
                let mut table = Table::of(top.sink(), value, "a WAN")?;
                let is_whole = wan(&mut Keys::Read(&mut table), &mut read);
                let entry = table.finish();
                wans.extend(is_whole.then_some(read));
                Some(Entry { span: name.span(), ..entry }).filter(|_| is_whole)
            })
            .collect(),
        Keys::Print(out) => {
            for one in wans {
                out.header(&format!("[wan.{}]", key(&one.name)));
                wan(&mut Keys::Print(out), one);
            }
            Vec::new()
        }
    }
}

/// Keys of a `[[policy-route]]`.
pub(super) fn policy_route(keys: &mut Keys<'_, '_>, route: &mut PolicyRoute) -> bool {
    let has_name = keys.required("name", "\"voice\"", STRING, &mut route.name);
    let conditions = &mut route.conditions;
    keys.list("from", STRING, &mut conditions.from);
    keys.list("in", STRING, &mut conditions.in_interfaces);
    keys.key_or("family", word::FAMILY, &mut conditions.family, FamilyMatch::Both);
    addresses(keys, "source", &mut conditions.source);
    addresses(keys, "destination", &mut conditions.destination);
    keys.list("protocol", PROTOCOL, &mut conditions.protocols);
    keys.list("sport", PORTS, &mut conditions.sports);
    keys.list("dport", PORTS, &mut conditions.dports);
    keys.list("dscp", DSCP, &mut conditions.dscp);
    let has_wan = keys.required("via", "\"fibre\"", STRING, &mut route.via);
    keys.key("when-down", word::WHEN_DOWN, &mut route.when_down);
    has_name && has_wan
}
