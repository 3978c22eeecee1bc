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
    /// Remove a route of a table.
    RemoveRoute(TableId, IpNet, Route),
    /// Remove an address.
    RemoveAddress(Device, AddressKey),
    /// Add an address to an interface.
    AddAddress(Device, IpNet),
    /// Add a route to a table.
    AddRoute(TableId, IpNet, Route),
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
        let in_table = |metric, route: &policy::model::Route| {
            // A VRF without a device in Linux has no table there.
            let table = match &route.vrf {
                None => TableId::MAIN,
                Some(vrf) => state.vrf_table(vrf)?,
            };
            Some((table, route.destination, wanted(route, metric, state)?))
        };
        let routes: Vec<(TableId, IpNet, Route)> =
            self.routes.iter().filter_map(|route| in_table(METRIC, route)).collect();
        let numbered = (METRIC..).zip(&self.defaults);
        let defaults: Vec<(TableId, IpNet, Route)> =
            numbered.filter_map(|(metric, route)| in_table(metric, route)).collect();
        let mut steps = Vec::new();
        let still: HashSet<(TableId, IpNet, &Route)> =
            routes.iter().chain(&defaults).map(|(table, to, route)| (*table, *to, route)).collect();
        for (table, known) in state.tables() {
            for (destination, known) in known.iter() {
                let ours = known.iter().filter(|known| known.protocol == OURS);
                let gone = ours.filter(|known| !still.contains(&(table, *destination, *known)));
                steps.extend(gone.map(|known| Step::RemoveRoute(table, *destination, known.clone())));
            }
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
        for (table, destination, route) in routes {
            let known = state.in_table(table, &destination);
            if !known.iter().any(|known| known.tos == 0 && leads_alike(&known.target, &route.target)) {
                steps.push(Step::AddRoute(table, destination, route));
            }
        }
        // An equal route of others has another metric, perhaps a worse one than that of a WAN that is down.
        for (table, destination, route) in defaults {
            if !state.in_table(table, &destination).contains(&route) {
                steps.push(Step::AddRoute(table, destination, route));
            }
        }
        steps
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
