//! Tunnels, and their security associations.

use std::net::{IpAddr, Ipv4Addr};

use config::{Entry, tables};
use wire::esp::{Direction, SUITES, Secret};

use super::{Keys, Table};
use crate::model::{Interface, StaticSa, Tunnel};
use crate::value::address::ADDRESS;
use crate::value::tunnel::{ALGORITHM, KEY};
use crate::value::{NUMBER32, key};
use crate::word;

impl Keys<'_, '_> {
    /// True if the interface is a tunnel.
    pub(super) fn is_tunnel(&self, interface: &Interface) -> bool {
        match self {
            Keys::Read(table) => table.has("esp"),
            Keys::Print(_) => interface.esp.is_some(),
        }
    }

    /// Complains of keys that have no meaning in this table; `why` is the reason.
    pub(super) fn misplaced(&mut self, keys: &[&'static str], why: &str) {
        if let Keys::Read(table) = self {
            keys.iter().for_each(|key| table.misplaced(key, why));
        }
    }
}

/// `[interface.NAME.esp]`, and the list of its security associations.
pub(super) fn esp(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    match keys {
        Keys::Read(outer) => {
            let Some(found) = outer.raw("esp") else { return };
            let Some(mut table) = Table::of(outer.sink(), found, "a tunnel") else { return outer.note(true) };
            let mut read = new_tunnel();
            tunnel(&mut Keys::Read(&mut table), &mut read);
            let mut entries = Vec::new();
            for mut table in tables(&mut table, "sa", "a security association") {
                let mut one = new_sa();
                let is_whole = sa(&mut Keys::Read(&mut table), &mut one);
                read.sas.extend(is_whole.then_some(one));
                entries.push((table.finish(), is_whole));
            }
            outer.absorb(table.finish());
            absorb_list(outer, entries);
            interface.esp = Some(Box::new(read));
        }
        Keys::Print(out) => {
            let Some(esp) = &mut interface.esp else { return };
            let name = key(&interface.name);
            out.header(&format!("[interface.{name}.esp]"));
            tunnel(&mut Keys::Print(out), esp);
            for one in &mut esp.sas {
                out.header(&format!("[[interface.{name}.esp.sa]]"));
                sa(&mut Keys::Print(out), one);
            }
        }
    }
}

/// Adds the positions of the values of a list's tables to those of `outer`, as elements of lists at the tables' keys.
fn absorb_list(outer: &mut Table<'_>, entries: Vec<(Entry, bool)>) {
    let mut place = 0;
    for (mut entry, is_whole) in entries {
        entry.broken |= !is_whole;
        entry.parts.iter_mut().for_each(|part| part.item = Some(place));
        place += usize::from(is_whole);
        outer.absorb(entry);
    }
}

/// Keys of `[interface.NAME.esp]`, beside the list of security associations.
pub(super) fn tunnel(keys: &mut Keys<'_, '_>, tunnel: &mut Tunnel) {
    keys.required("local", "\"192.0.2.1\"", ADDRESS, &mut tunnel.local);
    keys.required("remote", "\"198.51.100.1\"", ADDRESS, &mut tunnel.remote);
}

/// Keys of `[[interface.NAME.esp.sa]]`.
pub(super) fn sa(keys: &mut Keys<'_, '_>, sa: &mut StaticSa) -> bool {
    // Each is asked for, so that all that are missing are reported.
    [
        keys.required("direction", "\"out\"", word::DIRECTION, &mut sa.direction),
        keys.required("spi", "0x1000", NUMBER32, &mut sa.spi),
        keys.required("algorithm", "\"aes128-gcm\"", ALGORITHM, &mut sa.suite),
        keys.required("key", "\"000102030405060708090a0b0c0d0e0f10111213\"", KEY, &mut sa.key),
    ]
    .iter()
    .all(|is_there| *is_there)
}

/// A tunnel before its keys are read.
pub(super) fn new_tunnel() -> Tunnel {
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Tunnel { local: unknown, remote: unknown, sas: Vec::new() }
}

/// A security association before its keys are read.
pub(super) fn new_sa() -> StaticSa {
    StaticSa { direction: Direction::Out, spi: 0, suite: SUITES[0], key: Secret::new(Box::default()) }
}
