//! Interfaces.

use config::{Entry, section};
use wire::vlan::DropEligible;

use super::ppp::ppp;
use super::tunnel::esp;
use super::{Keys, Table};
use crate::model::{Atm, CrossConnect, Interface, LinkKind, PriorityTag};
use crate::value::address::{ADDRESS, CONNECTION_END, INTERFACE_ADDRESS, MAC, SOCKET_ADDRESS, VC};
use crate::value::packet::PCP_MAP;
use crate::value::{BIT_RATE, Flag, MSS, NAME, NUMBER16, STRING, key};
use crate::word;

/// Keys of `[interface.NAME]`.
pub(super) fn interface(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    keys.required("zone", "\"lan\"", STRING, &mut interface.zone);
    keys.optional("vrf", NAME, &mut interface.vrf);
    let is_tunnel = keys.is_tunnel(interface);
    let is_session = !is_tunnel && keys.is_session(interface);
    if is_tunnel {
        keys.misplaced(&OF_LINKS, "a tunnel has no link of its own: leave the key out");
        interface.link = LinkKind::Ip;
    } else if is_session {
        keys.misplaced(&OF_FRAMES, "a PPP session has no Ethernet header of its own: leave the key out");
        interface.link = LinkKind::Ip;
        keys.optional("parent", STRING, &mut interface.parent);
    } else {
        tags(keys, interface);
    }
    keys.items("addresses", INTERFACE_ADDRESS, &mut interface.addresses);
    keys.list("virtual-addresses", ADDRESS, &mut interface.virtual_addresses);
    if !is_tunnel && !is_session {
        keys.key("link", word::LINK, &mut interface.link);
    }
    let over_ethernet = is_session && keys.has_parent(interface);
    let mtu = if over_ethernet { Interface::PPPOE_MTU } else { Interface::MTU };
    keys.key_or("mtu", NUMBER16, &mut interface.mtu, mtu);
    if !is_tunnel {
        keys.optional("rate", BIT_RATE, &mut interface.rate);
        keys.optional("overhead", NUMBER16, &mut interface.overhead);
    }
    if !is_tunnel && !is_session {
        keys.optional("mac", MAC, &mut interface.mac);
    }
    keys.key("source-check", word::SOURCE_CHECK, &mut interface.source_check);
    keys.key("mss", MSS, &mut interface.mss);
    if !is_tunnel {
        atm(keys, interface);
        ppp(keys, interface);
    }
    esp(keys, interface);
}

/// Keys of an interface that has a link of its own.
const OF_LINKS: [&str; 11] =
    ["parent", "vlan", "pcp", "dei", "priority-tag", "link", "rate", "overhead", "mac", "atm", "ppp"];

/// Keys of an interface whose packets have a link-layer header.
const OF_FRAMES: [&str; 6] = ["vlan", "pcp", "dei", "priority-tag", "link", "mac"];

/// `[interface.NAME.atm]`.
fn atm(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    match keys {
        Keys::Read(outer) => {
            let Some(found) = outer.raw("atm") else { return };
            let Some(mut table) = Table::of(outer.sink(), found, "a virtual channel") else {
                return outer.note(true);
            };
            let mut read = Atm::default();
            let is_whole = channel(&mut Keys::Read(&mut table), &mut read);
            let entry = table.finish();
            outer.absorb(Entry { broken: entry.broken || !is_whole, ..entry });
            interface.atm = is_whole.then_some(read);
        }
        Keys::Print(out) => {
            let Some(read) = &mut interface.atm else { return };
            out.header(&format!("[interface.{}.atm]", key(&interface.name)));
            channel(&mut Keys::Print(out), read);
        }
    }
}

/// Keys of `[interface.NAME.atm]`.
fn channel(keys: &mut Keys<'_, '_>, atm: &mut Atm) -> bool {
    let is_whole = keys.required("vc", "\"8/35\"", VC, &mut atm.channel.vc);
    keys.key("encapsulation", word::ENCAPSULATION, &mut atm.channel.encapsulation);
    keys.optional("line", STRING, &mut atm.line);
    keys.optional("local", SOCKET_ADDRESS, &mut atm.local);
    keys.optional("remote", SOCKET_ADDRESS, &mut atm.remote);
    is_whole
}

/// Keys of a `[[cross-connect]]`.
pub(super) fn cross_connect(keys: &mut Keys<'_, '_>, cross: &mut CrossConnect) -> bool {
    let name = keys.required("name", "\"backhaul\"", STRING, &mut cross.name);
    let example = "[\"dsl 8/48\", \"trunk 1/32\"]";
    let ends = keys.required_list("ends", example, CONNECTION_END, &mut cross.ends);
    name && ends
}

/// Keys of an interface's VLAN, and of the tags of its frames.
fn tags(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    keys.optional("parent", STRING, &mut interface.parent);
    keys.list("vlan", NUMBER16, &mut interface.vlans);
    keys.key("pcp", PCP_MAP, &mut interface.pcp);
    keys.key("dei", Flag(DropEligible::Yes, DropEligible::No), &mut interface.dei);
    keys.key("priority-tag", Flag(PriorityTag::Yes, PriorityTag::No), &mut interface.priority_tag);
}

/// `[interface]`: the tables of all interfaces.
pub(super) fn interfaces(keys: &mut Keys<'_, '_>, interfaces: &mut Vec<Interface>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "interface")
            .into_iter()
            .map(|(name, value)| {
                let mut read = Interface::new(name.get_ref(), "");
                let entry = match Table::of(top.sink(), value, "an interface") {
                    Some(mut table) => {
                        interface(&mut Keys::Read(&mut table), &mut read);
                        table.finish()
                    }
                    None => Entry { broken: true, ..Entry::default() },
                };
                interfaces.push(read);
                Some(Entry { span: name.span(), ..entry })
            })
            .collect(),
        Keys::Print(out) => {
            for one in interfaces {
                out.header(&format!("[interface.{}]", key(&one.name)));
                interface(&mut Keys::Print(out), one);
            }
            Vec::new()
        }
    }
}
