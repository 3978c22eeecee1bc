//! PPP sessions: what carries them, their addresses, and their sizes.

use std::net::IpAddr;

use wire::pppoe;

use super::Validator;
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{Authentication, Interface, LinkKind, Ppp, PppRole};

impl Validator<'_> {
    /// Reports a session without carrier, addresses or the peer's address, and one that its carrier has no room for.
    pub(super) fn session(&mut self, item: Item, interface: &Interface) {
        let Some(ppp) = &interface.ppp else { return };
        let name = &interface.name;
        if interface.atm.is_some() && interface.parent.is_some() {
            // `channel` tells of it.
        } else if interface.parent.is_some() {
            self.session_parent(item, interface);
        } else if interface.atm.is_none() {
            let message = format!("nothing carries the PPP session of \"{name}\"");
            let hint =
                "add parent = \"eth0\" for PPP over Ethernet, or [interface.NAME.atm] for PPP over ATM";
            self.wrong(Code::BadPpp, item, "ppp", message, hint);
        } else if !ppp.service.is_empty() || !ppp.ac_name.is_empty() {
            let message = "only PPP over Ethernet has services and names of access concentrators".to_owned();
            let key = if ppp.service.is_empty() { "ac-name" } else { "service" };
            self.wrong(Code::BadPpp, item, key, message, "leave the key out");
        }
        self.session_texts(item, ppp);
        self.session_addresses(item, interface, ppp);
    }

    /// Checks the Ethernet interface that carries a session, and the session's MTU.
    fn session_parent(&mut self, item: Item, interface: &Interface) {
        let Some(parent) = interface.parent.as_deref().and_then(|parent| self.policy.interface(parent))
        else {
            return;
        };
        if parent.link != LinkKind::Ethernet || parent.esp.is_some() {
            let message = format!("\"{}\" carries no PPP over Ethernet", parent.name);
            let hint = "its packets have no Ethernet header: name another parent";
            self.wrong(Code::NeedsEthernet, item, "parent", message, hint);
        }
        let room = parent.mtu.saturating_sub(pppoe::SESSION_LEN as u16).min(pppoe::MOST_MTU);
        if interface.mtu > room && interface.mtu <= 16_000 && parent.mtu >= 68 {
            let message = format!("an MTU of {} bytes is more than a PPPoE session carries", interface.mtu);
            let hint = format!(
                "{room} at most: 8 bytes less than \"{}\", and never more than {} (RFC 2516, section 7)",
                parent.name,
                pppoe::MOST_MTU
            );
            self.wrong(Code::BadMtu, item, "mtu", message, hint);
        }
    }

    /// Checks the lengths of names and the password.
    fn session_texts(&mut self, item: Item, ppp: &Ppp) {
        let most = u8::MAX.into();
        let lengths = [
            ("service", ppp.service.len()),
            ("ac-name", ppp.ac_name.len()),
            ("user", ppp.user.len()),
            ("password", ppp.password.len()),
        ];
        for (key, length) in lengths.into_iter().filter(|(_, length)| *length > most) {
            let message = format!("{length} bytes are too many");
            self.wrong(Code::BadPpp, item, key, message, format!("{most} bytes at most"));
        }
    }

    /// Checks that there is an address, and that of IPv4 a server knows its peer's.
    fn session_addresses(&mut self, item: Item, interface: &Interface, ppp: &Ppp) {
        let has = |v6: bool| interface.addresses.iter().any(|net| net.addr().is_ipv6() == v6);
        if !has(false) && !has(true) && !self.lines.is_broken(item) {
            let message = format!("\"{}\" has no address", interface.name);
            let hint = "give the address that the provider has said: a session opens for no other";
            self.wrong(Code::BadPpp, item, "addresses", message, hint);
        }
        match (ppp.role, ppp.peer) {
            (PppRole::Server, None) if has(false) => {
                let message = "a server gives its client an IPv4 address".to_owned();
                self.wrong(Code::BadPpp, item, "peer", message, "add peer = \"203.0.113.2\"");
            }
            (_, Some(peer)) if !has(false) => {
                let message = format!("{peer} has no address of IPv4 facing it");
                self.wrong(Code::BadPpp, item, "peer", message, "add an IPv4 address to `addresses`");
            }
            (_, Some(peer)) if interface.addresses.iter().any(|net| net.addr() == IpAddr::V4(peer)) => {
                let message = format!("{peer} is the gateway's own address");
                self.wrong(Code::BadPpp, item, "peer", message, "give the other end's address");
            }
            _ => {}
        }
        if ppp.role == PppRole::Server && ppp.authentication == Authentication::Pap {
            let message = "with PAP the password crosses the link in clear".to_owned();
            self.wrong(Code::PasswordInClear, item, "authentication", message, "\"chap\" does not send it");
        }
    }
}
