//! Routes, neighbours and default actions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::interface::{is_link_local, unusable};
use super::reach::{interface_of, own_addresses};
use super::space::Space;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{ANY_ZONE, DEFAULT_VRF, NextHop, OTHER_ZONE, Route, RouteTarget, SELF_ZONE};

/// Most next hops of one route.
const MOST_HOPS: usize = 64;

/// Link that a router or neighbour is on: that of an interface, or else of any interface of a VRF.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) named: Option<&'a str>,
    pub(super) vrf: Option<&'a str>,
}

impl Validator<'_> {
    pub(super) fn routes(&mut self) {
        let policy = self.policy;
        let mut seen: HashMap<(Option<&str>, IpNet), Item> = HashMap::new();
        for (index, interface) in policy.interfaces.iter().enumerate() {
            for net in interface.addresses.iter().filter(|net| !is_link_local(net.addr())) {
                seen.insert((interface.vrf.as_deref(), net.trunc()), Item::Interface(index));
            }
        }
        for (index, route) in policy.routes.iter().enumerate() {
            let item = Item::Route(index);
            if let Some(first) = seen.insert((route.vrf.as_deref(), route.destination), item) {
                let (what, hint) = match first {
                    Item::Interface(_) => {
                        ("an interface's own network", "routes to own networks need not be written")
                    }
                    _ => (
                        "another route's",
                        "several next hops are written as via = [\"192.0.2.1\", \"192.0.2.2\"]",
                    ),
                };
                let message = format!("the destination {} is {what}, too", route.destination);
                let diagnostic = Diagnostic::new(Code::DuplicateRoute, message)
                    .hint(hint)
                    .at(self.lines.place_of(item, "to"))
                    .and("the first", self.lines.place(first));
                self.report(diagnostic);
            }
            self.hops(item, route);
        }
        self.neighbours();
    }

    fn hops(&mut self, item: Item, route: &Route) {
        let RouteTarget::Via(hops) = &route.target else { return };
        if hops.len() > MOST_HOPS {
            let message = format!("{} next hops are more than {MOST_HOPS}", hops.len());
            self.wrong(Code::TooMany, item, "via", message, "split the destination into longer prefixes");
        }
        for (index, hop) in hops.iter().enumerate() {
            let at = In { item, key: "via", index };
            let named = match &hop.interface {
                Some(name) => {
                    // The interface's own key, unless the hop is a table of its own.
                    let key = if hops.len() == 1 { "interface" } else { "via" };
                    if !self.known_interface(In { key, ..at }, name) {
                        continue;
                    }
                    Some(name.as_str())
                }
                None => None,
            };
            if let NextHop { via: Some(via), .. } = hop {
                self.hop(at, route.destination, *via, Link { named, vrf: route.hop_vrf() });
            }
        }
    }

    pub(super) fn hop(&mut self, at: In<'_>, destination: IpNet, via: IpAddr, link: Link<'_>) {
        if via.is_ipv4() != destination.addr().is_ipv4() {
            let message = format!("{destination} cannot be reached through {via}, of the other IP version");
            self.wrong_in(Code::FamilyMismatch, at, message, "give a next hop of the destination's version");
        } else if let Some(why) = unusable(IpNet::from(via)) {
            let message = format!("{via} cannot be a next hop: it is {why}");
            self.wrong_in(Code::UnusableAddress, at, message, "give the router's address");
        } else if self.own_in(link.vrf).contains(via) {
            let message = format!("the next hop {via} is the gateway itself");
            self.wrong_in(Code::UnusableAddress, at, message, "give the neighbouring router's address");
        } else if !self.is_on_link(via, link) {
            let message = match link.named {
                Some(name) => format!("the next hop {via} is not on the link of \"{name}\""),
                None => match link.vrf {
                    Some(vrf) => {
                        format!("the next hop {via} is on no interface's link in the VRF \"{vrf}\"")
                    }
                    None => format!("the next hop {via} is on no interface's link"),
                },
            };
            let hint = self.link_hint(via, link);
            self.wrong_in(Code::NextHopOffLink, at, message, hint);
        }
    }

    fn neighbours(&mut self) {
        let policy = self.policy;
        let mut seen: HashMap<(&str, IpAddr), Item> = HashMap::new();
        for (index, neighbour) in policy.neighbours.iter().enumerate() {
            let item = Item::Neighbour(index);
            if let Some(first) = seen.insert((&neighbour.interface, neighbour.address), item) {
                let message = format!("the neighbour {} is there twice", neighbour.address);
                let diagnostic = Diagnostic::new(Code::DuplicateNeighbour, message)
                    .hint("leave one out")
                    .at(self.lines.place_of(item, "address"))
                    .and("the first", self.lines.place_of(first, "address"));
                self.report(diagnostic);
            }
            if !neighbour.mac.is_unicast() {
                let message = format!("{} is not one station's Ethernet address", neighbour.mac);
                self.wrong(
                    Code::BadMac,
                    item,
                    "mac",
                    message,
                    "the first byte of a station's address is even",
                );
            }
            let at = In { item, key: "interface", index: 0 };
            if !self.known_interface(at, &neighbour.interface) {
                continue;
            }
            if self.is_bare(&neighbour.interface) {
                let message = format!("\"{}\" has no neighbours", neighbour.interface);
                let hint = "its packets have no Ethernet header, and need no link-layer address: leave the neighbour out";
                self.wrong_in(Code::NeedsEthernet, at, message, hint);
                continue;
            }
            let address = neighbour.address;
            let interface = self.policy.interface(&neighbour.interface);
            let link = Link {
                named: Some(&neighbour.interface),
                vrf: interface.and_then(|interface| interface.vrf.as_deref()),
            };
            if self.own_in(link.vrf).contains(address) {
                let message = format!("the neighbour {address} is the gateway itself");
                self.wrong(
                    Code::UnusableAddress,
                    item,
                    "address",
                    message,
                    "give the neighbour's own address",
                );
            } else if !self.is_on_link(address, link) {
                let message = format!("{address} is not on the link of \"{}\"", neighbour.interface);
                let hint = self.link_hint(address, link);
                self.wrong(Code::NeighbourOffLink, item, "address", message, hint);
            }
        }
    }

    /// The gateway's own addresses in a VRF.
    fn own_in(&self, vrf: Option<&str>) -> Arc<Space> {
        if vrf.is_none() { Arc::clone(&self.own) } else { Arc::new(own_addresses(self.policy, vrf)) }
    }

    /// True if `address` is on a link; also if an address of an interface could not be read.
    fn is_on_link(&self, address: IpAddr, link: Link<'_>) -> bool {
        let Link { named, vrf } = link;
        if self.lines.any_broken(Item::Interface(0)) || (is_link_local(address) && named.is_some()) {
            return true;
        }
        let mut interfaces = self.policy.interfaces.iter();
        interfaces.any(|interface| {
            named.map_or(interface.vrf.as_deref() == vrf, |name| interface.name == name)
                && interface.addresses.iter().any(|net| net.contains(&address))
        })
    }

    fn link_hint(&self, address: IpAddr, link: Link<'_>) -> String {
        if is_link_local(address) {
            return "a link-local address needs the key `interface`".to_owned();
        }
        let nets = |name: &str| {
            let interface = self.policy.interface(name);
            let nets = interface.into_iter().flat_map(|interface| &interface.addresses);
            let nets: Vec<String> = nets.map(|net| net.trunc().to_string()).collect();
            if nets.is_empty() { "none".to_owned() } else { nets.join(", ") }
        };
        match (interface_of(self.policy, link.vrf, address), link.named) {
            (Some(index), _) => format!("it is on the link of \"{}\"", self.policy.interfaces[index].name),
            (None, Some(name)) => format!("the networks there are: {}", nets(name)),
            (None, None) => self.other_vrf_hint(address).unwrap_or_else(|| {
                "give an address in an interface's network, or the key `interface`".to_owned()
            }),
        }
    }

    /// Hint at the interface of any VRF that has an address on its link.
    fn other_vrf_hint(&self, address: IpAddr) -> Option<String> {
        let vrfs = std::iter::once(None).chain(self.policy.vrfs().into_iter().map(Some));
        let index = vrfs.into_iter().find_map(|vrf| interface_of(self.policy, vrf, address))?;
        let interface = &self.policy.interfaces[index];
        let (name, vrf) = (&interface.name, interface.vrf.as_deref());
        let place = vrf.map_or_else(|| "the default VRF".to_owned(), |vrf| format!("the VRF \"{vrf}\""));
        let next = vrf.unwrap_or(DEFAULT_VRF);
        Some(format!(
            "it is on the link of \"{name}\" in {place}: a route leads there by next-vrf = \"{next}\""
        ))
    }

    pub(super) fn defaults(&mut self) {
        let mut seen: HashMap<(&str, &str), Item> = HashMap::new();
        for (index, default) in self.policy.defaults.iter().enumerate() {
            let item = Item::Default(index);
            let is_other = default.from == OTHER_ZONE;
            if is_other && default.to == SELF_ZONE {
                let message =
                    "no packet is judged that goes from the zone \"other\" to the gateway itself".to_owned();
                let hint =
                    "Linux receives it by an interface that the policy does not name: leave the line out";
                self.report(
                    Diagnostic::new(Code::ImpossiblePair, message).hint(hint).at(self.lines.place(item)),
                );
            }
            let ends = [&default.from, &default.to];
            for zone in ends.into_iter().skip(usize::from(is_other)) {
                if zone != ANY_ZONE && zone != SELF_ZONE && !self.is_zone(zone) {
                    let message = format!("no interface is in the zone \"{zone}\"");
                    let hint = self.zone_hint(zone);
                    self.report(
                        Diagnostic::new(Code::UnknownZone, message).hint(hint).at(self.lines.place(item)),
                    );
                }
            }
            if default.from == SELF_ZONE {
                let message = "no packet is judged that comes from the gateway itself".to_owned();
                let hint = "what the gateway sends passes: leave the line out";
                self.report(
                    Diagnostic::new(Code::ImpossiblePair, message).hint(hint).at(self.lines.place(item)),
                );
            }
            if let Some(first) = seen.insert((&default.from, &default.to), item) {
                let message = format!("\"{} > {}\" is there twice", default.from, default.to);
                let diagnostic = Diagnostic::new(config::Code::DuplicateName, message)
                    .hint("leave one out")
                    .at(self.lines.place(item))
                    .and("the first", self.lines.place(first));
                self.report(diagnostic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// A next hop on another VRF's link is told where it is.
    #[test]
    fn a_next_hop_in_another_vrf() {
        let text = "[interface.red0]\nzone = \"red\"\nvrf = \"red\"\naddresses = [\"192.168.1.1/24\"]\n\
            [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n";
        let hint = |route: &str| {
            let checked =
                crate::check(&format!("{text}[[route]]\nto = \"10.9.0.0/16\"\n{route}"), "policy.toml");
            let [error] = checked.errors().collect::<Vec<_>>()[..] else {
                panic!("{:?}", checked.diagnostics)
            };
            assert_eq!(error.code, crate::Code::NextHopOffLink);
            error.hint.clone().unwrap_or_default()
        };
        assert_eq!(
            hint("vrf = \"red\"\nvia = \"203.0.113.1\""),
            "it is on the link of \"wan\" in the default VRF: a route leads there by next-vrf = \"default\""
        );
        assert_eq!(
            hint("via = \"192.168.1.9\""),
            "it is on the link of \"red0\" in the VRF \"red\": a route leads there by next-vrf = \"red\""
        );
        let nowhere = hint("vrf = \"red\"\nvia = \"198.51.100.1\"");
        assert_eq!(nowhere, "give an address in an interface's network, or the key `interface`");
    }
}
