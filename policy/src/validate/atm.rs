//! ATM: virtual channels, the lines that carry them, and cross-connections.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::expand::written;
use crate::lines::Item;
use crate::model::{Atm, Connection, ConnectionEnd, Interface, Queue, Vc};

impl Validator<'_> {
    /// Reports a channel out of its range, half a carrier, and a line that is none.
    pub(super) fn channel(&mut self, item: Item, interface: &Interface) {
        let Some(Atm { channel, line, local, remote }) = &interface.atm else { return };
        if channel.vc.vci < Vc::LEAST_VCI {
            let message = format!("virtual channel {} is reserved", channel.vc);
            let hint =
                "channels 0 to 31 of each path are for signalling and management (ITU-T I.361): from 32 on";
            self.wrong(Code::BadChannel, item, "vc", message, hint);
        }
        match line {
            Some(line) => self.line(item, interface, line),
            None => self.carrier(item, *local, *remote),
        }
        if interface.parent.is_some() {
            let message = format!("\"{}\" is a VLAN and an ATM channel", interface.name);
            let hint = "a channel is a link of its own: name its interface as the parent of the VLAN's";
            self.wrong(Code::BadChannel, item, "parent", message, hint);
        }
    }

    /// Checks the interface by whose line a channel's cells come.
    fn line(&mut self, item: Item, interface: &Interface, line: &str) {
        for (key, end) in [
            ("local", interface.atm.as_ref().and_then(|atm| atm.local)),
            ("remote", interface.atm.as_ref().and_then(|atm| atm.remote)),
        ] {
            if end.is_some() {
                let message = format!("the carrier of \"{}\" is that of \"{line}\"", interface.name);
                let hint = format!("leave `{key}` out, or `line` where the cells come by another line");
                self.wrong(Code::BadChannel, item, key, message, hint);
            }
        }
        if line == interface.name {
            let message = format!("\"{line}\" is its own line");
            self.wrong(
                Code::BadChannel,
                item,
                "line",
                message,
                "leave the key out: an interface has a line without it",
            );
            return;
        }
        self.owns_line(In { item, key: "line", index: 0 }, line);
    }

    /// Checks that an interface has a line of its own. False if there is no such interface.
    fn owns_line(&mut self, at: In<'_>, name: &str) -> bool {
        if !self.known_interface(at, name) {
            return false;
        }
        let policy = self.policy;
        let Some(place) = policy.interfaces.iter().position(|other| other.name == name) else { return false };
        match &policy.interfaces[place].atm {
            _ if self.lines.is_broken(Item::Interface(place)) => {}
            None => {
                let message = format!("\"{name}\" has no cells");
                let hint = format!("add [interface.{name}.atm], or name the interface of another line");
                self.wrong_in(Code::BadChannel, at, message, hint);
            }
            Some(Atm { line: Some(line), .. }) => {
                let message = format!("\"{name}\" has no line of its own");
                self.wrong_in(
                    Code::BadChannel,
                    at,
                    message,
                    format!("name \"{line}\", whose line it shares"),
                );
            }
            Some(_) => {}
        }
        true
    }

    /// Checks the ends of UDP that carries a line's cells.
    fn carrier(&mut self, item: Item, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        for (given, other, key, missing) in
            [(local, remote, "local", "remote"), (remote, local, "remote", "local")]
        {
            if given.is_some() && other.is_none() {
                let message = format!("cells need both ends of UDP: `{missing}` is missing");
                let hint = format!("add {missing} = \"192.0.2.1:5000\", say, or leave `{key}` out");
                self.wrong(Code::BadChannel, item, key, message, hint);
            }
        }
        if let (Some(local), Some(remote)) = (local, remote) {
            if local.is_ipv4() != remote.is_ipv4() {
                let message = format!("{local} and {remote} are of two IP versions");
                let hint = "give both ends an address of one version";
                self.wrong(Code::BadChannel, item, "remote", message, hint);
            }
        }
    }

    /// Reports channels that two interfaces of one line have.
    pub(super) fn same_channels(&mut self) {
        let mut seen: HashMap<(&str, Vc), usize> = HashMap::new();
        for (index, interface) in self.policy.interfaces.iter().enumerate() {
            let Some(atm) = &interface.atm else { continue };
            let (line, vc) = (interface.line(), atm.channel.vc);
            if let Some(first) = seen.insert((line, vc), index) {
                let diagnostic = Diagnostic::new(
                    Code::BadChannel,
                    format!("channel {vc} is there twice on the line of \"{line}\""),
                )
                .hint("cells go to one interface: give each a channel of its own")
                .at(self.lines.place_of(Item::Interface(index), "vc"))
                .and("the first", self.lines.place_of(Item::Interface(first), "vc"));
                self.report(diagnostic);
            }
        }
    }

    /// Reports two lines whose cells come to one address and port.
    pub(super) fn same_carriers(&mut self) {
        let mut seen: HashMap<SocketAddr, usize> = HashMap::new();
        for (index, interface) in self.policy.interfaces.iter().enumerate() {
            let Some(local) =
                interface.atm.as_ref().filter(|atm| atm.line.is_none()).and_then(|atm| atm.local)
            else {
                continue;
            };
            if let Some(first) = seen.insert(local, index) {
                let name = &self.policy.interfaces[first].name;
                let diagnostic =
                    Diagnostic::new(Code::BadChannel, format!("the cells of \"{name}\" come to {local}, too"))
                        .hint(format!(
                            "write line = \"{name}\" for a further channel of that line, or give each line an address and port of its own"
                        ))
                        .at(self.lines.place_of(Item::Interface(index), "local"))
                        .and("the first", self.lines.place_of(Item::Interface(first), "local"));
                self.report(diagnostic);
            }
        }
    }

    /// Reports cross-connections that cannot be, and identifiers that two of them have, or one and a channel of an interface.
    pub(super) fn cross_connects(&mut self) {
        let policy = self.policy;
        let mut taken: Vec<(&str, Connection, In<'_>)> = Vec::new();
        for (index, interface) in policy.interfaces.iter().enumerate() {
            if let Some(atm) = &interface.atm {
                let at = In { item: Item::Interface(index), key: "vc", index: 0 };
                taken.push((interface.line(), Connection::Channel(atm.channel.vc), at));
            }
        }
        let own = taken.len();
        for (index, cross) in policy.cross_connects.iter().enumerate() {
            let item = Item::CrossConnect(index);
            let kinds = match cross.ends.as_slice() {
                _ if self.lines.is_broken(item) => continue,
                [one, other] => [one, other].map(|end| matches!(end.connection, Connection::Path(_))),
                ends => {
                    let message = format!("a cross-connection has two ends, and not {}", ends.len());
                    let hint = "write ends = [\"dsl 8/48\", \"trunk 1/32\"], say";
                    self.wrong(Code::BadChannel, item, "ends", message, hint);
                    continue;
                }
            };
            if kinds[0] != kinds[1] {
                let message = "a path and a channel cannot be connected".to_owned();
                let hint = "give both ends a VPI alone, or both VPI/VCI";
                self.wrong(Code::BadChannel, item, "ends", message, hint);
                continue;
            }
            for (index, end) in cross.ends.iter().enumerate() {
                let at = In { item, key: "ends", index };
                self.connection_end(at, end);
                taken.push((&end.line, end.connection, at));
            }
        }
        let mut channels: HashMap<(&str, Vc), usize> = HashMap::new();
        let mut paths: HashMap<(&str, u8), usize> = HashMap::new();
        let mut clashes = Vec::new();
        for (place, (line, connection, _)) in taken.iter().enumerate() {
            let before = match *connection {
                Connection::Channel(vc) => channels.insert((*line, vc), place),
                Connection::Path(vpi) => paths.insert((*line, vpi), place),
            };
            // Of two channels of interfaces another check tells.
            clashes.extend(before.filter(|_| place >= own).map(|before| (place, before)));
        }
        for ((line, vc), place) in channels {
            let path = paths.get(&(line, vc.vpi)).copied();
            clashes.extend(path.map(|path| (path.max(place), path.min(place))));
        }
        clashes.sort_unstable();
        clashes.dedup_by_key(|(place, _)| *place);
        for (place, before) in clashes {
            let ((line, connection, at), (_, other, first)) = (taken[place], taken[before]);
            let what = match connection {
                Connection::Channel(_) => "channel",
                Connection::Path(_) => "path",
            };
            let message = match connection == other {
                true => format!("{what} {connection} is there twice on the line of \"{line}\""),
                false => format!("{connection} and {other} on the line of \"{line}\" have cells in common"),
            };
            let diagnostic = Diagnostic::new(Code::BadChannel, message)
                .hint("cells go to one interface or cross-connection: a path has all channels of its VPI")
                .at(self.lines.place_in(at.item, at.key, at.index))
                .and("the first", self.lines.place_in(first.item, first.key, first.index));
            self.report(diagnostic);
        }
    }

    /// Checks one end of a cross-connection.
    fn connection_end(&mut self, at: In<'_>, end: &ConnectionEnd) {
        if let Connection::Channel(vc) = end.connection {
            if vc.vci < Vc::LEAST_VCI {
                let message = format!("virtual channel {vc} is reserved");
                let hint = "channels 0 to 31 of each path are for signalling and management (ITU-T I.361): from 32 on, \
                            or the whole path by its VPI";
                self.wrong_in(Code::BadChannel, at, message, hint);
            }
        }
        if !self.owns_line(at, &end.line) {
            return;
        }
        let is_shaped =
            |queue: &Queue| [&queue.on, &queue.from].into_iter().flatten().any(|on| *on == end.line);
        if written(self.policy).iter().any(|written| is_shaped(&written.queue)) {
            let message = format!("\"{}\" has a tree of queues, which schedules packets", end.line);
            let hint =
                "cells that are switched have no class: give the line no [[queue]] or [shape], but a rate";
            self.wrong_in(Code::BadChannel, at, message, hint);
        }
    }
}
