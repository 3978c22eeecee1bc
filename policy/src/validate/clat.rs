//! CLAT: IP versions, an IPv6 address to send from, a way to the PLAT, and a NAT64 of this gateway in its place.

use super::space::{Family, Space};
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{Clat, Interface, Nat, NatAction};

impl Validator<'_> {
    pub(super) fn clat(&mut self, item: Item, nat: &Nat, clat: &Clat) {
        for (key, addresses) in [("source", &nat.source), ("destination", &nat.destination)] {
            let space = self.spaces.of_addresses(addresses);
            if !space.is_empty() && !space.has(Family::V4) {
                let message = format!("\"{}\" translates IPv4, and its {key} has no IPv4 address", nat.name);
                self.wrong(Code::FamilyMismatch, item, key, message, "give IPv4 networks");
            }
        }
        for (index, range) in clat.pool.iter().enumerate().filter(|(_, range)| range.first.is_ipv4()) {
            let message = format!("{} is no IPv6 address", range.first);
            let hint = "packets leave as IPv6: give the pool IPv6 addresses";
            self.wrong_in(Code::FamilyMismatch, In { item, key: "pool", index }, message, hint);
        }
        self.way_to_plat(item, nat, clat);
        self.own_plat(item, nat, clat);
    }

    /// Reports a gateway without an IPv6 address for packets to leave with, and routes of IPv6 that do not lead to the PLAT.
    fn way_to_plat(&mut self, item: Item, nat: &Nat, clat: &Clat) {
        let Some(reach) = &self.reach else { return };
        let is_outside = |interface: &&Interface| {
            interface.vrf.is_none() && (nat.from.is_empty() || !nat.from.contains(&interface.zone))
        };
        let outside = || self.policy.interfaces.iter().filter(is_outside);
        // Where the policy gives an interface no address, Linux does, and a route with it.
        if outside().any(|interface| interface.addresses.is_empty()) {
            return;
        }
        if clat.pool.is_empty()
            && !outside().any(|interface| interface.addresses.iter().any(|net| net.addr().is_ipv6()))
        {
            let message = format!("\"{}\" has no outside address as yet: no WAN has one of IPv6", nat.name);
            let hint = "packets are dropped until there is one: add it to `addresses`, or give `pool`";
            return self.wrong(Code::NoOutsideAddress, item, "name", message, hint);
        }
        let mut routes = self.policy.routes.iter().filter(|route| route.vrf.is_none());
        let has_routes = routes.any(|route| route.destination.addr().is_ipv6());
        if has_routes && !reach.leads_to(None, clat.prefix.address().into()) {
            let message = format!("no route leads to {}", clat.net());
            let hint = "correct the prefix, or add a [[route]] to it, or to \"::/0\"";
            self.wrong(Code::TargetUnreachable, item, "prefix", message, hint);
        }
    }

    /// Reports a prefix that the gateway itself is the PLAT of, for the same hosts.
    fn own_plat(&mut self, item: Item, nat: &Nat, clat: &Clat) {
        let space = Space::of_net(clat.net().into());
        let shares_zone = |other: &Nat| {
            nat.from.is_empty()
                || other.from.is_empty()
                || nat.from.iter().any(|zone| other.from.contains(zone))
        };
        let is_plat = |other: &Nat| match &other.action {
            NatAction::Nat64(nat64) => {
                space.overlaps(&Space::of_net(nat64.net().into())) && shares_zone(other)
            }
            _ => false,
        };
        let Some(place) = self.policy.nats.iter().position(is_plat) else { return };
        let plat = Item::Nat(place);
        if self.lines.is_broken(plat) {
            return;
        }
        let message = format!(
            "\"{}\" sends packets to {}, which \"{}\" of this gateway translates itself",
            nat.name,
            clat.net(),
            self.policy.nats[place].name
        );
        let diagnostic = Diagnostic::new(Code::ClatOverlap, message)
            .hint("a gateway with IPv4 outside needs no CLAT: leave one of them out, or give the prefix of the provider's NAT64")
            .at(self.lines.place_of(item, "prefix"))
            .and("the NAT64", self.lines.place(plat));
        self.report(diagnostic);
    }
}
