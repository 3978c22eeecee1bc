//! Desired state of Linux by the policy, and the plan that reconciles Linux with it.
//!
//! Addresses and routes that the gateway adds have its own protocol number ([`OURS`]), by which a restarted gateway,
//! too, recognises them. Entries of others are never removed or changed; an equal entry of theirs suffices.

use std::collections::HashSet;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use policy::Policy;
use policy::model::{NextHop, RouteTarget, Wan, WanState};

use super::interface::{Condition, LinkIndex, TableId};
use super::route::{Hop, Route, Target};
use super::state::{AddressKey, State};

/// Protocol number of addresses (`IFA_PROTO`) and routes (`RTPROT_*`) that the gateway adds.
pub const OURS: u8 = 119;

/// Metric of the gateway's routes: preferred to routes with a larger one, and yielding to routes without one.
const METRIC: u32 = 1;

/// Desired addresses and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of interfaces.
    pub addresses: Vec<DesiredAddress>,
    /// Routes; each next hop with its interface.
    pub routes: Vec<policy::model::Route>,
    /// Default routes by the WANs, the preferred first.
    pub defaults: Vec<policy::model::Route>,
}

/// Desired address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredAddress {
    /// Name of the interface.
    pub interface: String,
    /// Address, with its network's prefix length.
    pub net: IpNet,
}

/// Step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Remove a route.
    RemoveRoute(IpNet, Route),
    /// Remove an address.
    RemoveAddress(Device, AddressKey),
    /// Add an address to an interface.
    AddAddress(Device, IpNet),
    /// Add a route.
    AddRoute(IpNet, Route),
    /// Remove a route of a VRF's table.
    RemoveVrfRoute(TableId, IpNet, Route),
    /// Add a route to a VRF's table.
    AddVrfRoute(TableId, IpNet, Route),
}

/// Interface of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Index of the interface.
    pub index: LinkIndex,
    /// Name of the interface.
    pub name: String,
}

impl Desired {
    /// Desired state by a policy: its interfaces' addresses, its routes, and a default route by each of `wans`, which are its WANs as they
    /// are now.
    pub fn of(policy: &Policy, wans: &[Wan]) -> Desired {
        let addresses = policy.interfaces.iter().flat_map(|interface| {
            interface
                .addresses
                .iter()
                .map(|net| DesiredAddress { interface: interface.name.clone(), net: *net })
        });
        let mut routes = policy.routes.clone();
        for route in &mut routes {
            let vrf = route.hop_vrf().map(str::to_owned);
            if let RouteTarget::Via(hops) = &mut route.target {
                for hop in hops {
                    if hop.interface.is_none() {
                        hop.interface = interface_of(policy, vrf.as_deref(), hop);
                    }
                }
            }
        }
        Desired { addresses: addresses.collect(), routes, defaults: defaults(policy, wans) }
    }

    /// Plans the steps after which Linux has this state and no other entries of the gateway: removals first, then
    /// addresses, then routes, which depend on addresses. Entries on an interface that is absent or switched off are
    /// deferred.
    pub fn plan(&self, state: &State) -> Vec<Step> {
        let routes: Vec<(IpNet, Route)> = self
            .routes
            .iter()
            .filter(|route| route.vrf.is_none())
            .filter_map(|route| Some((route.destination, wanted(route, METRIC, state)?)))
            .collect();
        let of_vrfs = self.routes_of_vrfs(state);
        let numbered = (METRIC..).zip(&self.defaults);
        let defaults: Vec<(IpNet, Route)> = numbered
            .filter_map(|(metric, route)| Some((route.destination, wanted(route, metric, state)?)))
            .collect();
        let mut steps = Vec::new();
        let still: HashSet<(IpNet, &Route)> =
            routes.iter().chain(&defaults).map(|(to, route)| (*to, route)).collect();
        for (destination, known) in state.routes.iter() {
            let ours = known.iter().filter(|known| known.protocol == OURS);
            let gone = ours.filter(|known| !still.contains(&(*destination, *known)));
            steps.extend(gone.map(|known| Step::RemoveRoute(*destination, known.clone())));
        }
        for (table, known) in state.vrf_routes.iter() {
            let ours = known.iter().flat_map(|(to, known)| known.iter().map(move |known| (to, known)));
            let ours = ours.filter(|(_, known)| known.protocol == OURS);
            let gone = ours.filter(|(to, known)| {
                !of_vrfs.iter().any(|(of, wanted, route)| of == table && wanted == *to && route == *known)
            });
            steps.extend(gone.map(|(to, known)| Step::RemoveVrfRoute(*table, *to, known.clone())));
        }
        let mut addresses = Vec::new();
        for wanted in &self.addresses {
            if let Some((index, _)) = state.link_named(&wanted.interface) {
                addresses.push((Device { index, name: wanted.interface.clone() }, wanted.net));
            }
        }
        for (key, _) in state.addresses.iter().filter(|(_, address)| address.protocol == OURS) {
            let wanted = addresses.iter().any(|(device, net)| device.index == key.link && *net == key.net);
            if !wanted {
                let name = state.links.get(&key.link).map_or_else(String::new, |link| link.name.clone());
                steps.push(Step::RemoveAddress(Device { index: key.link, name }, *key));
            }
        }
        for (device, net) in addresses {
            let key = AddressKey { link: device.index, net, peer: None };
            if !state.addresses.contains_key(&key) {
                steps.push(Step::AddAddress(device, net));
            }
        }
        for (destination, route) in routes {
            let known = state.routes.get(&destination);
            if !known.iter().any(|known| known.tos == 0 && leads_alike(&known.target, &route.target)) {
                steps.push(Step::AddRoute(destination, route));
            }
        }
        for (table, destination, route) in of_vrfs {
            let known = state.vrf_routes.get(&table).map_or(&[][..], |routes| routes.get(&destination));
            if !known.iter().any(|known| known.tos == 0 && leads_alike(&known.target, &route.target)) {
                steps.push(Step::AddVrfRoute(table, destination, route));
            }
        }
        // An equal route of others has another metric, perhaps a worse one than that of a WAN that is down.
        for (destination, route) in defaults {
            if !state.routes.get(&destination).contains(&route) {
                steps.push(Step::AddRoute(destination, route));
            }
        }
        steps
    }

    /// Routes of VRFs that have a device in Linux, each with its table.
    fn routes_of_vrfs(&self, state: &State) -> Vec<(TableId, IpNet, Route)> {
        let of = |route: &policy::model::Route| {
            let table = state.vrf_table(route.vrf.as_deref()?)?;
            Some((table, route.destination, wanted(route, METRIC, state)?))
        };
        self.routes.iter().filter_map(of).collect()
    }
}

/// Interface of a next hop given without one: the first interface of a VRF with a network that contains the router's address.
fn interface_of(policy: &Policy, vrf: Option<&str>, hop: &NextHop) -> Option<String> {
    let via = hop.via?;
    let on_link =
        |interface: &&policy::model::Interface| interface.addresses.iter().any(|net| net.contains(&via));
    let mut interfaces = policy.interfaces.iter().filter(|interface| interface.vrf.as_deref() == vrf);
    interfaces.find(on_link).map(|interface| interface.name.clone())
}

/// Default routes by WANs: those that are up first, by tier. What the gateway itself sends has the address of the first as source, unless a
/// program is bound to another.
fn defaults(policy: &Policy, wans: &[Wan]) -> Vec<policy::model::Route> {
    let mut ordered: Vec<&Wan> = wans.iter().collect();
    ordered.sort_by_key(|wan| (wan.state == WanState::Down, wan.tier));
    let everywhere = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    let by = |wan: &Wan| {
        let interface = policy.interface(&wan.interface);
        let carried =
            everywhere.into_iter().filter(|net| interface.is_some_and(|own| wan.carries(net.addr(), own)));
        let hop = |net: &IpNet| NextHop {
            via: wan.gateway(net.addr()),
            interface: Some(wan.interface.clone()),
            weight: 1,
        };
        let route = |net| policy::model::Route {
            destination: net,
            vrf: None,
            next_vrf: None,
            target: RouteTarget::Via(vec![hop(&net)]),
        };
        carried.map(route).collect::<Vec<_>>()
    };
    ordered.into_iter().flat_map(by).collect()
}

/// Converts a route of the policy to Linux's form; `None` while no interface of its next hops is switched on.
fn wanted(route: &policy::model::Route, metric: u32, state: &State) -> Option<Route> {
    let target = match &route.target {
        RouteTarget::Blackhole => Target::Blackhole,
        RouteTarget::Unreachable => Target::Unreachable,
        RouteTarget::Via(hops) => {
            let hop = |hop: &NextHop| {
                let (index, link) = state.link_named(hop.interface.as_deref()?)?;
                (link.condition != Condition::Down).then_some(Hop {
                    link: Some(index),
                    via: hop.via,
                    weight: u16::from(hop.weight.max(1)),
                    onlink: false,
                    encapsulated: false,
                })
            };
            Target::of(hops.iter().filter_map(hop).collect())?
        }
    };
    Some(Route { metric, tos: 0, protocol: OURS, target })
}

/// True if two targets have the same next hops.
fn leads_alike(a: &Target, b: &Target) -> bool {
    match (a.hops(), b.hops()) {
        ([], []) => a == b,
        (a, b) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| (a.link, a.via, a.weight) == (b.link, b.via, b.weight))
        }
    }
}
