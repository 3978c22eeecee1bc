//! What the policy wants Linux to have, and what is to be done about the difference.
//!
//! What the gateway adds is marked with a number of its own ([`OURS`]), and so is known again, even by a gateway that was
//! started anew. What others made is never removed and never changed; what they made that is the same as wanted is enough.

use std::collections::HashSet;

use ipnet::IpNet;
use policy::Policy;
use policy::model::{NextHop, RouteTarget};

use super::route::{Hop, Route, Target};
use super::state::{AddressKey, Condition, LinkIndex, State};

/// Marks addresses (`IFA_PROTO`) and routes (`RTPROT_*`) that the gateway made.
pub const OURS: u8 = 119;

/// The metric of the gateway's routes: better than those of others who give one, and not in the way of those who give none.
const METRIC: u32 = 1;

/// What the policy wants Linux to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of interfaces.
    pub addresses: Vec<DesiredAddress>,
    /// Routes; each next hop with its interface.
    pub routes: Vec<policy::model::Route>,
}

/// An address that an interface is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredAddress {
    /// The interface's name.
    pub interface: String,
    /// The address, with its network's prefix.
    pub net: IpNet,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take a route away.
    RemoveRoute(IpNet, Route),
    /// Take an address away.
    RemoveAddress(Device, AddressKey),
    /// Give an interface an address.
    AddAddress(Device, IpNet),
    /// Add a route.
    AddRoute(IpNet, Route),
}

/// An interface of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: LinkIndex,
    /// Its name.
    pub name: String,
}

impl Desired {
    /// What a policy wants: its interfaces' addresses and its routes.
    pub fn of(policy: &Policy) -> Desired {
        let addresses = policy.interfaces.iter().flat_map(|interface| {
            interface
                .addresses
                .iter()
                .map(|net| DesiredAddress { interface: interface.name.clone(), net: *net })
        });
        let mut routes = policy.routes.clone();
        for route in &mut routes {
            if let RouteTarget::Via(hops) = &mut route.target {
                for hop in hops {
                    if hop.interface.is_none() {
                        hop.interface = interface_of(policy, hop);
                    }
                }
            }
        }
        Desired { addresses: addresses.collect(), routes }
    }

    /// What is to be done so that Linux has this and nothing else of the gateway's: first what goes, then addresses, then
    /// routes, which need them. What needs an interface that is not there or switched off is left for later.
    pub fn plan(&self, state: &State) -> Vec<Step> {
        let routes: Vec<(IpNet, Route)> =
            self.routes.iter().filter_map(|route| Some((route.destination, wanted(route, state)?))).collect();
        let mut steps = Vec::new();
        let still: HashSet<(IpNet, &Route)> = routes.iter().map(|(to, route)| (*to, route)).collect();
        for (destination, known) in state.routes.iter() {
            let ours = known.iter().filter(|known| known.protocol == OURS);
            let gone = ours.filter(|known| !still.contains(&(*destination, *known)));
            steps.extend(gone.map(|known| Step::RemoveRoute(*destination, known.clone())));
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
        steps
    }
}

/// The interface that a router without one is behind: the first with a network that has its address.
fn interface_of(policy: &Policy, hop: &NextHop) -> Option<String> {
    let via = hop.via?;
    let on_link =
        |interface: &&policy::model::Interface| interface.addresses.iter().any(|net| net.contains(&via));
    policy.interfaces.iter().find(on_link).map(|interface| interface.name.clone())
}

/// A route of the policy in Linux's words; `None` while it leads by no interface that is switched on.
fn wanted(route: &policy::model::Route, state: &State) -> Option<Route> {
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
    Some(Route { metric: METRIC, tos: 0, protocol: OURS, target })
}

/// True if packets go the same ways.
fn leads_alike(a: &Target, b: &Target) -> bool {
    match (a.hops(), b.hops()) {
        ([], []) => a == b,
        (a, b) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| (a.link, a.via, a.weight) == (b.link, b.via, b.weight))
        }
    }
}
