//! Interfaces.

use config::{Entry, section};
use wire::vlan::DropEligible;

use super::{Keys, Table};
use crate::model::{Interface, PriorityTag};
use crate::value::address::{INTERFACE_ADDRESS, MAC};
use crate::value::packet::PCP_MAP;
use crate::value::{BIT_RATE, Flag, MSS, NUMBER16, STRING, key};
use crate::word;

/// Keys of `[interface.NAME]`.
pub(super) fn interface(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    keys.required("zone", "\"lan\"", STRING, &mut interface.zone);
    keys.optional("parent", STRING, &mut interface.parent);
    keys.list("vlan", NUMBER16, &mut interface.vlans);
    keys.key("pcp", PCP_MAP, &mut interface.pcp);
    keys.key("dei", Flag(DropEligible::Yes, DropEligible::No), &mut interface.dei);
    keys.key("priority-tag", Flag(PriorityTag::Yes, PriorityTag::No), &mut interface.priority_tag);
    keys.items("addresses", INTERFACE_ADDRESS, &mut interface.addresses);
    keys.key("link", word::LINK, &mut interface.link);
    keys.key_or("mtu", NUMBER16, &mut interface.mtu, Interface::MTU);
    keys.optional("rate", BIT_RATE, &mut interface.rate);
    keys.optional("overhead", NUMBER16, &mut interface.overhead);
    keys.optional("mac", MAC, &mut interface.mac);
    keys.key("source-check", word::SOURCE_CHECK, &mut interface.source_check);
    keys.key("mss", MSS, &mut interface.mss);
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
