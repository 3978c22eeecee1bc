//! VRFs: known names, zones and next hops of one VRF, and features that only the default VRF has.

use std::collections::HashMap;

use config::did_you_mean;

use super::reach::hop_interface;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{Conditions, DEFAULT_VRF, Nat, NatAction, PortUse, Route, RouteTarget};

impl Validator<'_> {
    pub(super) fn vrfs(&mut self) {
        self.vrf_names();
        self.zones_of_one_vrf();
        let policy = self.policy;
        for (index, route) in policy.routes.iter().enumerate() {
            self.route_vrfs(Item::Route(index), route);
        }
        for (index, nat) in policy.nats.iter().enumerate() {
            self.nat_vrfs(Item::Nat(index), nat);
        }
        if policy.interfaces.iter().all(|interface| interface.vrf.is_none()) {
            return;
        }
        for (index, wan) in policy.wans.iter().enumerate() {
            let vrf = policy.interface(&wan.interface).and_then(|interface| interface.vrf.as_deref());
            if let Some(vrf) = vrf {
                let message = format!("\"{}\" is in the VRF \"{vrf}\"", wan.interface);
                let hint = "WANs share the default routes of the default VRF; a VRF has its own by [[route]], with `vrf`";
                self.wrong(Code::BadVrf, Item::Wan(index), "interface", message, hint);
            }
        }
        for (index, route) in policy.policy_routes.iter().enumerate() {
            self.policy_route_vrfs(Item::PolicyRoute(index), &route.conditions);
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            if rule.helper.is_some() {
                let message = "a helper knows no VRFs, and the policy has some".to_owned();
                let hint = "addresses that connections announce may be in use twice: leave `helper` out";
                self.wrong(Code::BadVrf, Item::Rule(index), "helper", message, hint);
            }
        }
    }

    /// Reports names that no VRF can have, and tunnels in VRFs.
    fn vrf_names(&mut self) {
        let policy = self.policy;
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let Some(vrf) = interface.vrf.as_deref() else { continue };
            let item = Item::Interface(index);
            if vrf == DEFAULT_VRF {
                let message = format!("no VRF can be named \"{DEFAULT_VRF}\"");
                let hint = "it is that of all interfaces without the key: leave the key out";
                self.wrong(config::Code::ReservedName, item, "vrf", message, hint);
            } else {
                self.form("VRF", vrf, self.lines.place_of(item, "vrf"));
            }
            if interface.esp.is_some() {
                let message =
                    format!("\"{}\" is a tunnel, and tunnels are of the default VRF", interface.name);
                let hint =
                    "leave `vrf` out, and lead packets of the VRF into the tunnel by a route with `next-vrf`";
                self.wrong(Code::BadVrf, item, "vrf", message, hint);
            }
        }
    }

    /// Reports zones with interfaces in two VRFs: rules, and the addresses in them, are told apart by zones.
    fn zones_of_one_vrf(&mut self) {
        let policy = self.policy;
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let before = *first.entry(interface.zone.as_str()).or_insert(index);
            let vrfs = [before, index].map(|index| policy.interfaces[index].vrf.as_deref());
            if vrfs[0] != vrfs[1] {
                let item = Item::Interface(index);
                let zone = &interface.zone;
                let [one, other] = vrfs.map(named);
                let message = format!("the zone \"{zone}\" is in {one} and in {other}");
                let diagnostic = Diagnostic::new(Code::BadVrf, message)
                    .hint("addresses of two VRFs may be the same: give the interfaces of each VRF zones of their own")
                    .at(self.lines.place_of(item, "zone"))
                    .and("the first", self.lines.place_of(Item::Interface(before), "zone"));
                self.report(diagnostic);
            }
        }
    }

    fn route_vrfs(&mut self, item: Item, route: &Route) {
        let is_known = route.vrf.iter().all(|vrf| self.known_vrf(item, "vrf", vrf));
        let next = route.next_vrf.as_deref().filter(|vrf| *vrf != DEFAULT_VRF);
        let is_known = next.is_none_or(|vrf| self.known_vrf(item, "next-vrf", vrf)) && is_known;
        let RouteTarget::Via(hops) = &route.target else {
            if route.next_vrf.is_some() && !self.lines.is_broken(item) {
                let message = "a route that leads nowhere leads into no other VRF".to_owned();
                self.wrong(Code::BadVrf, item, "next-vrf", message, "leave `next-vrf` or `kind` out");
            }
            return;
        };
        if !is_known {
            return;
        }
        for (index, hop) in hops.iter().enumerate() {
            let Some(link) = hop_interface(self.policy, route.hop_vrf(), hop) else { continue };
            let interface = &self.policy.interfaces[link];
            let is_leak = route.next_vrf.is_some();
            if interface.vrf.as_deref() == route.hop_vrf() {
                continue;
            }
            let (is_in, wanted) = (interface.vrf.as_deref(), route.hop_vrf());
            let message = format!(
                "the next hop leaves by \"{}\", which is in {}, and the route {} {}",
                interface.name,
                named(is_in),
                if is_leak { "leads into" } else { "is of" },
                named(wanted),
            );
            let hint = format!(
                "if packets are to cross from one VRF to the other, write next-vrf = \"{}\"; else name an interface of {}",
                is_in.unwrap_or(DEFAULT_VRF),
                named(wanted)
            );
            let key = if hops.len() == 1 && hop.interface.is_some() { "interface" } else { "via" };
            self.wrong_in(Code::BadVrf, In { item, key, index }, message, hint);
        }
    }

    /// Reports translations whose outside is not the default VRF, or whose hosts ask for ports from another.
    fn nat_vrfs(&mut self, item: Item, nat: &Nat) {
        if let NatAction::Forward { vrf: Some(vrf), .. } = &nat.action {
            self.known_vrf(item, "vrf", vrf);
        }
        let (key, zones, outside) = match &nat.action {
            NatAction::Masquerade { .. } | NatAction::Source { .. } => ("to", &nat.to, "leave"),
            NatAction::Exempt | NatAction::Redirect { .. } => return,
            NatAction::Forward { .. }
            | NatAction::Balance(_)
            | NatAction::OneToOne { .. }
            | NatAction::Npt { .. }
            | NatAction::Nat64(_)
            | NatAction::Clat(_) => ("from", &nat.from, "come in"),
        };
        for (index, zone) in zones.iter().enumerate() {
            let Some(vrf) = self.policy.vrf_of_zone(zone) else { continue };
            let message = format!(
                "\"{}\" is for packets that {outside} by the zone \"{zone}\", in the VRF \"{vrf}\"",
                nat.name
            );
            let hint = "outside addresses of translations are those of the default VRF: packets of a VRF leave there by a route with \
                        next-vrf = \"default\"";
            self.wrong_in(Code::BadVrf, In { item, key, index }, message, hint);
        }
        let ports = match &nat.action {
            NatAction::Masquerade { ports } | NatAction::Source { ports, .. } => Some(ports),
            _ => None,
        };
        let policy = self.policy;
        let may_be_of_vrf =
            nat.from.is_empty() || nat.from.iter().any(|zone| policy.vrf_of_zone(zone).is_some());
        let has_blocks = ports.is_some_and(|ports| ports.block_by_arithmetic().is_some());
        if has_blocks && may_be_of_vrf && !policy.vrfs().is_empty() {
            let message = "hosts of two VRFs with one address would have one block of ports".to_owned();
            let hint = "name zones of the default VRF alone in `from`, or give blocks on demand: blocks-per-host = 1";
            self.wrong(Code::BadVrf, item, "block", message, hint);
        }
        if let Some(PortUse { mapping: Some(_), .. }) = ports {
            let asks = nat.from.iter().find_map(|zone| Some((zone, self.policy.vrf_of_zone(zone)?)));
            if let Some((zone, vrf)) = asks {
                let message = format!(
                    "hosts of the zone \"{zone}\", in the VRF \"{vrf}\", cannot ask for outside ports"
                );
                let hint = "requests are answered in the default VRF: name its zones alone in `from`, and translate those of VRFs by \
                            a translation of their own";
                self.wrong(Code::BadVrf, item, "port-mapping", message, hint);
            }
        }
    }

    /// Reports policy routes for packets that no WAN is the best route of.
    fn policy_route_vrfs(&mut self, item: Item, conditions: &Conditions) {
        let zones = conditions.from.iter().map(|zone| ("from", zone, self.policy.vrf_of_zone(zone)));
        let by = |name: &String| self.policy.interface(name).and_then(|interface| interface.vrf.as_deref());
        let interfaces = conditions.in_interfaces.iter().map(|name| ("in", name, by(name)));
        let found: Vec<_> = zones.enumerate().chain(interfaces.enumerate()).collect();
        for (index, (key, name, vrf)) in found {
            let Some(vrf) = vrf else { continue };
            let message = format!(
                "packets that come by \"{name}\" are routed in the VRF \"{vrf}\", where there are no WANs"
            );
            let hint = "a policy route is for packets of the default VRF: leave it out";
            self.wrong_in(Code::BadVrf, In { item, key, index }, message, hint);
        }
    }

    /// True if an interface is in the VRF; reports an unknown one.
    fn known_vrf(&mut self, item: Item, key: &str, vrf: &str) -> bool {
        let known = self.policy.vrfs();
        if known.contains(&vrf) || self.lines.any_broken(Item::Interface(0)) {
            return true;
        }
        let hint = did_you_mean(vrf, known.iter().copied(), || match known.is_empty() {
            true => format!("VRFs are named by interfaces: add vrf = \"{vrf}\" to some"),
            false => format!("the VRFs are: {}", known.join(", ")),
        });
        self.wrong(Code::UnknownVrf, item, key, format!("no interface is in the VRF \"{vrf}\""), hint);
        false
    }
}

/// A VRF in the words of diagnostics.
fn named(vrf: Option<&str>) -> String {
    vrf.map_or_else(|| "the default VRF".to_owned(), |vrf| format!("the VRF \"{vrf}\""))
}
