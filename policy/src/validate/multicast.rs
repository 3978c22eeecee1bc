//! Multicast routes.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::interface::unusable;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::MulticastRoute;

impl Validator<'_> {
    pub(super) fn multicast_routes(&mut self) {
        let policy = self.policy;
        let mut seen: HashMap<(IpNet, Option<IpAddr>), Item> = HashMap::new();
        for (index, route) in policy.multicast_routes.iter().enumerate() {
            let item = Item::MulticastRoute(index);
            if let Some(first) = seen.insert((route.group.trunc(), route.source), item) {
                let message = format!("the group {} has another multicast route", route.group);
                let diagnostic = Diagnostic::new(Code::DuplicateRoute, message)
                    .hint("a group, or a group and a source, has one route: list all interfaces in its `to`")
                    .at(self.lines.place_of(item, "group"))
                    .and("the first", self.lines.place(first));
                self.report(diagnostic);
            }
            self.group(item, route.group);
            self.multicast_source(item, route);
            self.known_interface(In { item, key: "from", index: 0 }, &route.from);
            self.exits(item, route);
        }
    }

    fn group(&mut self, item: Item, group: IpNet) {
        let (message, hint) = if !is_of_groups(group) {
            let hint = "groups are in 224.0.0.0/4 and ff00::/8, such as \"239.1.0.0/16\" or \"ff3e::/32\"";
            (format!("{group} is no multicast group or prefix of groups"), hint)
        } else if is_link_scoped(group) {
            let hint = "groups of a link are answered on it: 224.0.0.0/24 (RFC 5771), ff01::/16 and ff02::/16 (RFC 4291)";
            (format!("packets to {group} never leave their link"), hint)
        } else {
            return;
        };
        self.wrong(Code::UnusableAddress, item, "group", message, hint);
    }

    fn multicast_source(&mut self, item: Item, route: &MulticastRoute) {
        let Some(source) = route.source else { return };
        if source.is_ipv4() != route.group.addr().is_ipv4() {
            let message = format!("{source} sends nothing to {}, of the other IP version", route.group);
            self.wrong(Code::FamilyMismatch, item, "source", message, "give a source of the group's version");
        } else if let Some(why) = unusable(IpNet::from(source)) {
            let message = format!("{source} cannot be a source: it is {why}");
            self.wrong(Code::UnusableAddress, item, "source", message, "give the sender's address");
        }
    }

    fn exits(&mut self, item: Item, route: &MulticastRoute) {
        if route.to.len() > MulticastRoute::MOST_EXITS {
            let message =
                format!("{} interfaces are more than {}", route.to.len(), MulticastRoute::MOST_EXITS);
            self.wrong(Code::TooMany, item, "to", message, "leave some out");
        }
        for (index, exit) in route.to.iter().enumerate() {
            let at = In { item, key: "to", index };
            if !self.known_interface(at, &exit.interface) {
                continue;
            }
            let is_twice = route.to[..index].iter().any(|other| other.interface == exit.interface);
            if is_twice || exit.interface == route.from {
                let message = match is_twice {
                    true => format!("\"{}\" is there twice", exit.interface),
                    false => format!("packets come in by \"{}\", and do not go back there", exit.interface),
                };
                self.wrong_in(config::Code::DuplicateName.into(), at, message, "leave it out");
            }
        }
    }
}

/// True if all addresses of a prefix are groups.
fn is_of_groups(net: IpNet) -> bool {
    let shortest = if net.addr().is_ipv4() { 4 } else { 8 };
    net.addr().is_multicast() && net.prefix_len() >= shortest
}

/// True if all addresses of a prefix are groups that no router forwards to.
fn is_link_scoped(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.prefix_len() >= 24 && net.addr().octets()[..3] == [224, 0, 0],
        IpNet::V6(net) => net.prefix_len() >= 16 && net.addr().segments()[0] & 0x000f <= 2,
    }
}
