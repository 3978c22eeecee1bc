//! What the gateway acts by: the policy, with what Linux has put in.
//!
//! Interfaces get Linux's kind of link, MAC address and MTU, its addresses beside the policy's own, and its routes of the main table. To
//! the same destination, the policy's route wins. What Linux says is never refused: what cannot be carried out is left out,
//! with a [`Note`]. Everything else is the policy's, word for word.
//!
//! Left out without a word are link-local addresses and groups, and routes to them: the pipeline knows them by itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use policy::Policy;
use policy::model::{Interface, LinkKind, NextHop, RouteTarget};

use crate::linux::route::{Hop, Object, Route, Target};
use crate::linux::state::{Condition, Link, LinkdownKey};
use crate::linux::{LinkIndex, OURS, State};

/// A policy and what Linux has put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// What tables are compiled from. Interfaces are the policy's, in its order.
    pub policy: Policy,
    /// Where each interface of the policy is, in its order.
    pub places: Vec<Place>,
    /// What was left out or is odd.
    pub notes: Vec<Note>,
}

/// Where an interface of the policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Linux has it.
    Link(LinkIndex),
    /// Linux does not have it, but it is a VLAN, which the gateway makes by itself.
    Soft,
    /// Linux does not have it.
    Absent,
}

/// What an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The policy names an interface that Linux does not have.
    InterfaceAbsent {
        /// Its name.
        interface: String,
    },
    /// Linux has another MTU than the policy asks for, which is not the usual 1500; Linux's counts.
    Mtu {
        /// The interface.
        interface: String,
        /// What the policy says.
        policy: u16,
        /// What counts, in bytes.
        counts: u16,
    },
    /// Linux has another MAC address than the policy says; Linux's counts.
    Mac {
        /// The interface.
        interface: String,
    },
    /// Linux has another kind of link than the policy says; Linux's counts.
    Link {
        /// The interface.
        interface: String,
        /// What counts.
        counts: LinkKind,
    },
    /// Routes that were left out.
    Routes {
        /// Why.
        why: Why,
        /// Number of them.
        count: usize,
        /// One of them.
        example: IpNet,
    },
}

/// Why a route of Linux's was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It leads out of an interface that the policy does not name.
    ForeignInterface(String),
    /// Linux does not say which interface it leads out of.
    InterfaceUnknown,
    /// Its router has an address of the other IP version.
    OtherVersion,
    /// It wants packets encapsulated.
    Encapsulated,
    /// It is for one type of service only.
    TypeOfService,
    /// It is of a type that has no meaning here (`RTN_*`).
    Kind(u8),
    /// It leads to a next-hop object that is not there.
    ObjectUnknown(u32),
    /// The policy has another to the same destination.
    PolicyWins,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::ForeignInterface(name) => write!(f, "out of \"{name}\", which the policy does not name"),
            Why::InterfaceUnknown => f.write_str("without an interface"),
            Why::OtherVersion => f.write_str("by a router of the other IP version"),
            Why::Encapsulated => f.write_str("with encapsulation"),
            Why::TypeOfService => f.write_str("for one type of service"),
            Why::Kind(kind) => write!(f, "of type {kind}"),
            Why::ObjectUnknown(number) => write!(f, "to the next-hop object {number}, which is not there"),
            Why::PolicyWins => f.write_str("to where the policy has its own"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::InterfaceAbsent { interface } => write!(f, "Linux has no interface \"{interface}\""),
            Note::Mtu { interface, policy, counts } => {
                write!(f, "the MTU of \"{interface}\" is {counts} bytes, not {policy} as in the policy")
            }
            Note::Mac { interface } => {
                write!(f, "the MAC address of \"{interface}\" is Linux's, not the policy's")
            }
            Note::Link { interface, counts } => {
                let what = match counts {
                    LinkKind::Ethernet => "is an Ethernet interface",
                    LinkKind::Ip => "carries bare IP packets",
                };
                write!(f, "\"{interface}\" {what}, not what the policy says")
            }
            Note::Routes { why, count: 1, example } => {
                write!(f, "1 route of Linux left out {why}: {example}")
            }
            Note::Routes { why, count, example } => {
                write!(f, "{count} routes of Linux left out {why}, such as {example}")
            }
        }
    }
}

/// Puts what Linux has into a policy.
pub fn effective(policy: &Policy, state: &State) -> Effective {
    let by_name: HashMap<&str, (LinkIndex, &Link)> =
        state.links.iter().map(|(index, link)| (link.name.as_str(), (*index, link))).collect();
    let mut effective = Effective { policy: policy.clone(), places: Vec::new(), notes: Vec::new() };
    let mut names = HashMap::new();
    for interface in &policy.interfaces {
        let place = match by_name.get(interface.name.as_str()) {
            Some((index, _)) => {
                names.insert(*index, interface.name.as_str());
                Place::Link(*index)
            }
            None if interface.parent.is_some() => Place::Soft,
            None => Place::Absent,
        };
        effective.places.push(place);
    }
    let Effective { policy: made, places, notes } = &mut effective;
    for (interface, place) in made.interfaces.iter_mut().zip(places.iter()) {
        match place {
            Place::Link(index) => {
                if let Some(link) = state.links.get(index) {
                    equip(interface, link, notes);
                    address(interface, *index, state);
                }
            }
            Place::Soft => {}
            Place::Absent => notes.push(Note::InterfaceAbsent { interface: interface.name.clone() }),
        }
    }
    carry(made);
    leave_routes(made, places, state);
    leave_networks(made, places, state);
    let mut routes = Routing { state, names, left_out: BTreeMap::new() };
    routes.add_to(made);
    let left_out = routes.left_out.into_iter();
    notes.extend(left_out.map(|(why, (count, example))| Note::Routes { why, count, example }));
    effective
}

/// Sizes of IP packets that the pipeline can carry.
const MTUS: (u32, u32) = (68, 16_000);

/// What a policy says that says nothing of it.
const USUAL_MTU: u16 = 1_500;

fn equip(interface: &mut Interface, link: &Link, notes: &mut Vec<Note>) {
    let mtu = link.mtu.clamp(MTUS.0, MTUS.1) as u16;
    if mtu != interface.mtu && interface.mtu != USUAL_MTU {
        notes.push(Note::Mtu { interface: interface.name.clone(), policy: interface.mtu, counts: mtu });
    }
    interface.mtu = mtu;
    if let Some(kind) = ports::kind_of(link.hardware) {
        // A policy that says nothing of it is not contradicted.
        let said = interface.link == LinkKind::Ip || interface.mac.is_some();
        if kind != interface.link && said {
            notes.push(Note::Link { interface: interface.name.clone(), counts: kind });
        }
        interface.link = kind;
        if kind == LinkKind::Ip {
            interface.mac = None;
        }
    }
    let Some(mac) = link.mac else { return };
    if interface.mac.is_some_and(|given| given != mac) {
        notes.push(Note::Mac { interface: interface.name.clone() });
    }
    interface.mac = Some(mac);
}

/// No VLAN carries more than what carries it.
fn carry(policy: &mut Policy) {
    let mtus: HashMap<String, u16> =
        policy.interfaces.iter().map(|interface| (interface.name.clone(), interface.mtu)).collect();
    for interface in &mut policy.interfaces {
        if let Some(mtu) = interface.parent.as_ref().and_then(|parent| mtus.get(parent)) {
            interface.mtu = interface.mtu.min(*mtu);
        }
    }
}

/// Adds the addresses that Linux has.
fn address(interface: &mut Interface, index: LinkIndex, state: &State) {
    /// Another host has it (`IFA_F_DADFAILED`).
    const REFUSED: u32 = 0x08;
    let own: HashSet<IpNet> = interface.addresses.iter().copied().collect();
    for (key, address) in state.addresses.iter().filter(|(key, _)| key.link == index) {
        let ip = key.net.addr();
        // One of ours that is no longer in the policy is about to go.
        let left_over = address.protocol == OURS && !own.contains(&key.net);
        let unusable = ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || is_link_local(ip);
        if left_over || unusable || own.contains(&key.net) || address.flags & REFUSED != 0 {
            continue;
        }
        // Whether the network is on this link, the routes say: not where another interface's route is better, where the
        // address was added without a route, or where it is one end of a point-to-point link.
        let net = key.net;
        let on_link = key.peer.is_none()
            && state.routes.get(&net.trunc()).first().is_some_and(|route| {
                matches!(route.target, Target::One(Hop { link, via: None, .. }) if link == Some(index))
            });
        let net = if on_link { net } else { IpNet::from(ip) };
        if !interface.addresses.iter().any(|known| known.addr() == ip) {
            interface.addresses.push(net);
        }
    }
}

/// Leaves only its addresses to an interface without a carrier where Linux does not use routes by it, such as to their
/// networks (`ignore_routes_with_linkdown`).
fn leave_networks(made: &mut Policy, places: &[Place], state: &State) {
    for (interface, place) in made.interfaces.iter_mut().zip(places) {
        for net in &mut interface.addresses {
            if is_left(place, net.addr().is_ipv6(), state) {
                *net = IpNet::from(net.addr());
            }
        }
    }
}

/// Leaves out those of the policy's own next hops that Linux would not use for want of a carrier, and routes that have no
/// other. What is switched off stays: nothing leaves by it.
fn leave_routes(made: &mut Policy, places: &[Place], state: &State) {
    let Policy { interfaces, routes, .. } = made;
    let is_dead = |hop: &NextHop, v6: bool| {
        let found = interfaces.iter().zip(places).find(|(interface, _)| match (&hop.interface, hop.via) {
            (Some(name), _) => interface.name == *name,
            (None, Some(via)) => interface.addresses.iter().any(|net| net.contains(&via)),
            (None, None) => false,
        });
        found.is_some_and(|(_, place)| is_left(place, v6, state))
    };
    routes.retain_mut(|route| {
        let v6 = route.destination.addr().is_ipv6();
        let RouteTarget::Via(hops) = &mut route.target else { return true };
        hops.retain(|hop| !is_dead(hop, v6));
        !hops.is_empty()
    });
}

/// True if routes of an IP version do not lead by an interface, as it has no carrier.
fn is_left(place: &Place, v6: bool, state: &State) -> bool {
    let Place::Link(index) = place else { return false };
    let has_no_carrier = state.links.get(index).is_some_and(|link| link.condition == Condition::NoCarrier);
    has_no_carrier && condition(state, *index, v6) == Condition::Down
}

/// Whether an interface is up, as routes of an IP version see it: one without a carrier is down to them where Linux was told
/// so.
fn condition(state: &State, index: LinkIndex, v6: bool) -> Condition {
    let condition = state.links.get(&index).map_or(Condition::Down, |link| link.condition);
    if condition == Condition::NoCarrier && state.linkdown.contains(&LinkdownKey { link: index, v6 }) {
        return Condition::Down;
    }
    condition
}

/// Linux's routes on their way into a policy.
struct Routing<'a> {
    state: &'a State,
    /// The policy's interfaces that Linux has.
    names: HashMap<LinkIndex, &'a str>,
    left_out: BTreeMap<Why, (usize, IpNet)>,
}

/// What a route comes to.
enum Way {
    To(RouteTarget),
    /// It leads nowhere at present; the next best counts.
    Dead,
}

impl Routing<'_> {
    fn add_to(&mut self, made: &mut Policy) {
        let own: HashSet<IpNet> = made.routes.iter().map(|route| route.destination.trunc()).collect();
        let networks: HashSet<IpNet> = made
            .interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().map(|net| net.trunc()))
            .collect();
        made.routes.reserve(self.state.routes.len());
        for (destination, routes) in self.state.routes.iter() {
            let routes = || routes.iter().filter(|route| route.protocol != OURS);
            // Routes to the interfaces' own networks need not be written.
            let known = is_link_local(destination.addr())
                || destination.addr().is_multicast()
                || networks.contains(destination);
            if known || routes().next().is_none() {
                continue;
            }
            if own.contains(destination) {
                self.leave_out(Why::PolicyWins, *destination);
                continue;
            }
            if let Some(target) = self.target(*destination, routes()) {
                made.routes.push(policy::model::Route { destination: *destination, target });
            }
        }
    }

    /// Where the best of the routes to a destination leads.
    fn target<'r>(
        &mut self,
        destination: IpNet,
        routes: impl Iterator<Item = &'r Route>,
    ) -> Option<RouteTarget> {
        let (any, some): (Vec<&Route>, Vec<&Route>) = routes.partition(|route| route.tos == 0);
        if !some.is_empty() {
            self.leave_out(Why::TypeOfService, destination);
        }
        for route in any {
            match self.way(destination, &route.target) {
                Ok(Way::To(target)) => return Some(target),
                Ok(Way::Dead) => {}
                Err(why) => {
                    // A worse route is not what Linux would take either.
                    self.leave_out(why, destination);
                    return None;
                }
            }
        }
        None
    }

    fn way(&self, destination: IpNet, target: &Target) -> Result<Way, Why> {
        match target {
            Target::Blackhole => Ok(Way::To(RouteTarget::Blackhole)),
            Target::Unreachable | Target::Prohibit => Ok(Way::To(RouteTarget::Unreachable)),
            Target::Other(kind) => Err(Why::Kind(*kind)),
            Target::One(hop) => self.by(destination, std::slice::from_ref(hop)),
            Target::Many(hops) => self.by(destination, hops),
            Target::Object(number) => {
                let object = |number: u32| self.state.objects.get(&number).ok_or(Why::ObjectUnknown(number));
                match object(*number)? {
                    Object::Blackhole => Ok(Way::To(RouteTarget::Blackhole)),
                    Object::One(hop) => self.by(destination, std::slice::from_ref(hop)),
                    Object::Group(members) => {
                        let mut hops = Vec::with_capacity(members.len());
                        for member in members.iter() {
                            match object(member.object)? {
                                Object::One(hop) => hops.push(Hop { weight: member.weight, ..*hop }),
                                // Linux lets a blackhole stand in a group only by itself.
                                Object::Blackhole => return Ok(Way::To(RouteTarget::Blackhole)),
                                // Linux has no groups of groups.
                                Object::Group(_) => return Err(Why::ObjectUnknown(member.object)),
                            }
                        }
                        self.by(destination, &hops)
                    }
                }
            }
        }
    }

    /// By those of the next hops that can be taken.
    fn by(&self, destination: IpNet, hops: &[Hop]) -> Result<Way, Why> {
        let v6 = destination.addr().is_ipv6();
        let condition = |hop: &Hop| hop.link.map_or(Condition::Down, |link| condition(self.state, link, v6));
        // Linux takes no way by an interface that is switched off. One without a carrier it may, unless it was told not to;
        // here, others go first.
        let best = if hops.iter().any(|hop| condition(hop) == Condition::Running) {
            |condition| condition == Condition::Running
        } else {
            |condition| condition == Condition::NoCarrier
        };
        let mut taken = Vec::with_capacity(hops.len());
        let mut refused = None;
        for hop in hops {
            let name = hop.link.and_then(|link| self.names.get(&link).copied());
            match (name, hop.link) {
                (_, None) => refused = Some(Why::InterfaceUnknown),
                _ if !best(condition(hop)) => {}
                (None, Some(link)) => refused = Some(Why::ForeignInterface(self.name(link))),
                _ if hop.encapsulated => refused = Some(Why::Encapsulated),
                _ if hop.via.is_some_and(|via| via.is_ipv4() != destination.addr().is_ipv4()) => {
                    refused = Some(Why::OtherVersion);
                }
                (Some(name), _) => taken.push((hop, name)),
            }
        }
        if taken.is_empty() {
            return refused.map_or(Ok(Way::Dead), Err);
        }
        let weights = weights(&taken);
        let hop = |((hop, name), weight): (&(&Hop, &str), u8)| NextHop {
            via: hop.via,
            interface: Some((*name).to_owned()),
            weight,
        };
        Ok(Way::To(RouteTarget::Via(taken.iter().zip(weights).map(hop).collect())))
    }

    fn name(&self, link: LinkIndex) -> String {
        self.state.links.get(&link).map_or_else(|| link.0.to_string(), |link| link.name.clone())
    }

    fn leave_out(&mut self, why: Why, destination: IpNet) {
        self.left_out.entry(why).or_insert((0, destination)).0 += 1;
    }
}

/// Shares of next hops, in the smallest numbers with the same ratio; brought down to 255 where they are larger.
fn weights(hops: &[(&Hop, &str)]) -> Vec<u8> {
    let divisor = hops.iter().fold(0, |divisor, (hop, _)| common_divisor(divisor, hop.weight)).max(1);
    let most = hops.iter().map(|(hop, _)| hop.weight / divisor).max().unwrap_or(1);
    hops.iter()
        .map(|(hop, _)| {
            let weight = u32::from(hop.weight / divisor);
            let scaled = if most > 255 { weight * 255 / u32::from(most) } else { weight };
            scaled.clamp(1, 255) as u8
        })
        .collect()
}

fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291): each link's own.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

#[cfg(test)]
mod tests;
