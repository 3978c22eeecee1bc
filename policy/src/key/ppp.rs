//! PPP sessions.

use config::Entry;

use super::{Keys, Table};
use crate::model::{Authentication, Interface, Ppp};
use crate::value::address::ADDRESS4;
use crate::value::tunnel::PASSWORD;
use crate::value::{PATH, STRING, key};
use crate::word;

impl Keys<'_, '_> {
    /// True if the interface's link is a PPP session.
    pub(super) fn is_session(&self, interface: &Interface) -> bool {
        match self {
            Keys::Read(table) => table.has("ppp"),
            Keys::Print(_) => interface.ppp.is_some(),
        }
    }

    /// True if the interface has a parent.
    pub(super) fn has_parent(&self, interface: &Interface) -> bool {
        match self {
            Keys::Read(table) => table.has("parent"),
            Keys::Print(_) => interface.parent.is_some(),
        }
    }
}

/// `[interface.NAME.ppp]`.
pub(super) fn ppp(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    match keys {
        Keys::Read(outer) => {
            let Some(found) = outer.raw("ppp") else { return };
            let Some(mut table) = Table::of(outer.sink(), found, "a PPP session") else {
                return outer.note(true);
            };
            let mut read = Ppp::new();
            let is_whole = session(&mut Keys::Read(&mut table), &mut read);
            let entry = table.finish();
            outer.absorb(Entry { broken: entry.broken || !is_whole, ..entry });
            interface.ppp = Some(Box::new(read));
        }
        Keys::Print(out) => {
            let Some(read) = &mut interface.ppp else { return };
            out.header(&format!("[interface.{}.ppp]", key(&interface.name)));
            session(&mut Keys::Print(out), read);
        }
    }
}

/// Keys of `[interface.NAME.ppp]`.
fn session(keys: &mut Keys<'_, '_>, ppp: &mut Ppp) -> bool {
    keys.key("role", word::PPP_ROLE, &mut ppp.role);
    keys.key("service", STRING, &mut ppp.service);
    keys.key("ac-name", STRING, &mut ppp.ac_name);
    keys.key("authentication", word::AUTHENTICATION, &mut ppp.authentication);
    let mut is_whole = true;
    if ppp.authentication == Authentication::None {
        let why = "nobody authenticates himself: leave the key out";
        keys.misplaced(&["user", "password", "password-file"], why);
    } else {
        is_whole = keys.required("user", "\"user@provider\"", STRING, &mut ppp.user);
        is_whole &= password(keys, ppp);
    }
    keys.optional("peer", ADDRESS4, &mut ppp.peer);
    is_whole
}

/// The password, or the file that it is in. False if there is neither.
fn password(keys: &mut Keys<'_, '_>, ppp: &mut Ppp) -> bool {
    let is_in_file = match keys {
        Keys::Read(table) => table.has("password-file"),
        Keys::Print(_) => ppp.password_file.is_some(),
    };
    if !is_in_file {
        return keys.required("password", "\"secret\"", PASSWORD, &mut ppp.password);
    }
    keys.misplaced(&["password"], "the password is in the file of `password-file`: leave one of them out");
    keys.optional("password-file", PATH, &mut ppp.password_file);
    ppp.password_file.is_some()
}
