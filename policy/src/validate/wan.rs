//! WANs and policy routes.

use std::collections::HashMap;

use config::did_you_mean;
use ipnet::IpNet;

use super::interface::unusable;
use super::reach::EVERYWHERE;
use super::route::Link;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{LinkKind, OnFailure, RouteTarget, SELF_ZONE, Wan, WanCheck, WanState};

impl Validator<'_> {
    pub(super) fn wans(&mut self) {
        let policy = self.policy;
        let mut first: HashMap<&str, Item> = HashMap::new();
        for (index, wan) in policy.wans.iter().enumerate() {
            let item = Item::Wan(index);
            if !self.known_interface(In { item, key: "interface", index: 0 }, &wan.interface) {
                continue;
            }
            if let Some(earlier) = first.insert(&wan.interface, item) {
                let message = format!("\"{}\" is the interface of another WAN, too", wan.interface);
                let hint = "a flow is known to be of a WAN by its interface: give each WAN its own, or several next hops to one [[route]]";
                let diagnostic = Diagnostic::new(Code::BadWan, message)
                    .hint(hint)
                    .at(self.lines.place_of(item, "interface"))
                    .and("the first", self.lines.place_of(earlier, "interface"));
                self.report(diagnostic);
            }
            let interface = policy.interface(&wan.interface);
            if interface.is_some_and(|interface| interface.esp.is_some()) {
                let message =
                    format!("\"{}\" is a tunnel, whose packets leave by a WAN themselves", wan.interface);
                self.wrong(Code::BadWan, item, "interface", message, "name the interface of a link");
                continue;
            }
            if wan.on_failure == OnFailure::Keep && self.is_stateless() {
                let message = "a stateless policy remembers no flows, and keeps none".to_owned();
                let hint = "write mode = \"stateful\", or leave `on-failure` out";
                self.wrong(Code::NeedsStateful, item, "on-failure", message, hint);
            }
            self.gateways(item, wan);
            if let Some(check) = &wan.check {
                self.check(item, check);
            }
        }
        self.no_other_default();
        let are_known = !self.lines.any_broken(Item::Wan(0));
        if are_known && !policy.wans.is_empty() && policy.wans.iter().all(|wan| wan.state == WanState::Down) {
            let message = "every WAN has state = \"down\": no packet leaves by the default routes".to_owned();
            let place = self.lines.place_of(Item::Wan(0), "state");
            let hint = "leave the key out of one that is in service";
            self.report(Diagnostic::new(Code::NoWanUp, message).hint(hint).at(place));
        }
    }

    /// Checks the routers of a WAN.
    fn gateways(&mut self, item: Item, wan: &Wan) {
        for (index, gateway) in wan.gateways.iter().enumerate() {
            let at = In { item, key: "gateway", index };
            let earlier = &wan.gateways[..index];
            if let Some(same) = earlier.iter().find(|other| other.is_ipv4() == gateway.is_ipv4()) {
                let message = format!("{same} and {gateway} are routers of one IP version");
                let hint =
                    "a WAN has one router of each version; what is behind one of several is for a [[route]]";
                self.wrong_in(Code::BadWan, at, message, hint);
            }
            if let Some(everywhere) =
                EVERYWHERE.into_iter().find(|net| net.addr().is_ipv4() == gateway.is_ipv4())
            {
                self.hop(at, everywhere, *gateway, Link { named: Some(&wan.interface), vrf: None });
            }
        }
        let interface = self.policy.interface(&wan.interface);
        let is_bare = interface.is_some_and(|interface| interface.link == LinkKind::Ip);
        if wan.gateways.is_empty() && !is_bare && !self.lines.is_broken(item) {
            let message = format!(
                "the WAN \"{}\" has no router here: only a live gateway learns it, from a default route of Linux",
                wan.name
            );
            let hint = "write gateway = \"...\" if the provider's router has a fixed address; replay and chip need it";
            let place = self.lines.place(item);
            self.report(Diagnostic::new(Code::LearntGateway, message).hint(hint).at(place));
        }
    }

    /// Checks the bounds of a check, and its hosts.
    fn check(&mut self, item: Item, check: &WanCheck) {
        let WanCheck { ping, urls, status, pace } = check;
        self.pace(item, pace);
        self.status_of_url(item, status, !urls.is_empty());
        self.check_urls(item, urls);
        for (key, count) in [("ping", ping.len()), ("url", urls.len())] {
            if count > WanCheck::MOST_HOSTS {
                let message = format!("{count} are more than {}", WanCheck::MOST_HOSTS);
                self.wrong(Code::TooMany, item, key, message, "two or three that never sleep are enough");
            }
        }
        if !ping.is_empty() && !urls.is_empty() {
            let message = "a WAN is checked by echo requests or by URLs".to_owned();
            let hint = "leave `ping` out: who answers a URL is there";
            self.wrong(Code::BadCheck, item, "ping", message, hint);
        }
        for (index, host) in ping.iter().enumerate() {
            let at = In { item, key: "ping", index };
            if let Some(why) = unusable(IpNet::from(*host)) {
                let message = format!("{host} answers no echo request: it is {why}");
                self.wrong_in(Code::UnusableAddress, at, message, "give the address of a host");
            } else if self.own.contains(*host) {
                let message = format!("{host} is the gateway itself, and answers whatever the WAN does");
                self.wrong_in(
                    Code::UnusableAddress,
                    at,
                    message,
                    "give the address of a host behind the WAN",
                );
            }
        }
    }

    /// Reports routes to everywhere beside the WANs'.
    fn no_other_default(&mut self) {
        let policy = self.policy;
        for (index, route) in policy.routes.iter().enumerate() {
            let is_everywhere = EVERYWHERE.contains(&route.destination);
            let leads = matches!(route.target, RouteTarget::Via(_));
            if is_everywhere && route.vrf.is_none() && !policy.wans.is_empty() {
                let item = Item::Route(index);
                let message = format!("the default routes are the WANs', and so is {}", route.destination);
                let hint = match leads {
                    true => "make its next hop a WAN too: [wan.NAME] with interface and gateway",
                    false => {
                        "leave the route out: without a WAN that is up, packets are answered as without a route"
                    }
                };
                let first = self.lines.place(Item::Wan(0));
                let place = self.lines.place_of(item, "to");
                let diagnostic = Diagnostic::new(Code::DuplicateRoute, message).hint(hint).at(place);
                self.report(diagnostic.and("the WAN", first));
            }
        }
    }

    pub(super) fn policy_routes(&mut self) {
        let policy = self.policy;
        for (index, route) in policy.policy_routes.iter().enumerate() {
            let item = Item::PolicyRoute(index);
            self.known_conditions(item, &route.conditions);
            if policy.wan(&route.via).is_none() && !self.lines.any_broken(Item::Wan(0)) {
                let known = policy.wans.iter().map(|wan| wan.name.as_str());
                let hint = did_you_mean(&route.via, known, || {
                    format!("add [wan.{}] with its interface, or name another", route.via)
                });
                let message = format!("there is no WAN \"{}\"", route.via);
                self.wrong(Code::UnknownWan, item, "via", message, hint);
            }
            if self.lines.is_broken(item) {
                continue;
            }
            if let Some(index) = route.conditions.from.iter().position(|zone| zone == SELF_ZONE) {
                let at = In { item, key: "from", index };
                let message =
                    "packets of the gateway itself leave by the WAN that has their source address".to_owned();
                let hint = "leave \"self\" out: bind the program to the address of the WAN's interface";
                self.wrong_in(Code::RuleNeverMatches, at, message, hint);
            }
            self.conditions(item, &route.conditions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EVERYWHERE;
    use ipnet::IpNet;

    #[test]
    fn everywhere_is_the_default_route_of_each_ip_version() {
        let nets: Vec<IpNet> = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(nets, EVERYWHERE);
    }
}
