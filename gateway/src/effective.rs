//! Effective policy of the gateway: the policy merged with the state of Linux.
//!
//! Interfaces take kind of link, MAC address, MTU and the rate of their device from Linux, and Linux's addresses in addition to the policy's own;
//! routes are those of Linux's main table and, of VRFs, of the tables of Linux's VRF devices of these names, with the policy's routes preferred for the same destination. WANs without a carrier are down, and
//! those without a router learn it from Linux's default routes. Servers whose check has failed are down. State of Linux
//! is never an error: entries that the pipeline cannot carry out are left out with a [`Note`]. Everything else is the
//! policy's, unchanged.
//!
//! Link-local addresses, multicast groups and routes to them are left out without a note: the pipeline has them built
//! in.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use policy::Policy;
use policy::model::{DEFAULT_VRF, Interface, LinkKind, MulticastRoute, NextHop, RouteTarget};
use wire::pppoe::SESSION_LEN;

use crate::balance::{self, ServerStanding};
use crate::health::Failed;
use crate::linux::interface::{Condition, Link, LinkdownKey};
use crate::linux::route::{Hop, Object, Route, Routes, Target};
use crate::linux::{LinkIndex, OURS, State};
use crate::wan::Standing;

mod multicast;
mod wan;

/// Policy merged with the state of Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// Policy to compile tables from, with the interfaces of the operator's policy in their order.
    pub policy: Policy,
    /// Place of each interface of the policy, in its order.
    pub places: Vec<Place>,
    /// Standing of each WAN of the policy, in its order.
    pub standings: Vec<Standing>,
    /// Standing of each server of the policy's translations, in its order.
    pub servers: Vec<ServerStanding>,
    /// Entries left out, and oddities.
    pub notes: Vec<Note>,
}

/// Place of an interface of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Link of Linux.
    Link(LinkIndex),
    /// VLAN or tunnel without a link of Linux's: made by the gateway.
    Soft,
    /// No link of that name.
    Absent,
}

/// Note for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Interface of the policy without a link of that name.
    InterfaceAbsent {
        /// Name of the interface.
        interface: String,
    },
    /// MTU of the policy other than Linux's and than the default of 1500; Linux's counts.
    Mtu {
        /// Name of the interface.
        interface: String,
        /// MTU of the policy, in bytes.
        policy: u16,
        /// MTU in effect, in bytes.
        counts: u16,
    },
    /// MAC address of the policy other than Linux's; Linux's counts.
    Mac {
        /// Name of the interface.
        interface: String,
    },
    /// Kind of link of the policy other than Linux's; Linux's counts.
    Link {
        /// Name of the interface.
        interface: String,
        /// Kind in effect.
        counts: LinkKind,
    },
    /// VRF of the policy without a VRF device of that name.
    VrfAbsent {
        /// Name of the VRF.
        vrf: String,
    },
    /// Interface in another VRF of Linux's than of the policy; for what the gateway forwards, the policy's counts.
    Vrf {
        /// Name of the interface.
        interface: String,
        /// VRF by the policy; `None` for the default one.
        policy: Option<String>,
        /// VRF by Linux; `None` for the default one.
        linux: Option<String>,
    },
    /// Routes left out.
    Routes {
        /// Reason.
        why: Why,
        /// Number of routes.
        count: usize,
        /// One of the routes.
        example: IpNet,
    },
}

/// Reason for leaving out a route of Linux's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Egress interface that the policy does not name.
    ForeignInterface(String),
    /// Egress interface not given by Linux.
    InterfaceUnknown,
    /// Router of the other IP version.
    OtherVersion,
    /// Encapsulation of packets.
    Encapsulated,
    /// Restriction to one type of service.
    TypeOfService,
    /// Route type without an equivalent here (`RTN_*`).
    Kind(u8),
    /// Next-hop object that does not exist.
    ObjectUnknown(u32),
    /// Next hops in several VRFs.
    SeveralVrfs,
    /// Next hop in another VRF by the policy than by Linux.
    OtherVrf,
    /// Route of the policy to the same destination.
    PolicyWins,
    /// More multicast routes than there may be.
    TooMany,
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
            Why::SeveralVrfs => f.write_str("by next hops in several VRFs"),
            Why::OtherVrf => {
                f.write_str("by an interface that is in another VRF by the policy than by Linux")
            }
            Why::PolicyWins => f.write_str("to where the policy has its own"),
            Why::TooMany => write!(f, "beyond {} multicast routes", MulticastRoute::MOST),
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
            Note::VrfAbsent { vrf } => write!(
                f,
                "Linux has no VRF device \"{vrf}\": routing daemons and the gateway's own services have no such VRF (ip link add {vrf} type vrf table 10)"
            ),
            Note::Vrf { interface, policy, linux } => {
                let named = |vrf: &Option<String>| match vrf {
                    Some(vrf) => format!("in the VRF \"{vrf}\""),
                    None => "in no VRF".to_owned(),
                };
                let own = policy;
                let (policy, has) = (named(policy), named(linux));
                write!(
                    f,
                    "\"{interface}\" is {policy} by the policy, which counts, and {has} by Linux, where its own packets go"
                )?;
                match (own, linux) {
                    (Some(own), _) => write!(f, ": ip link set {interface} master {own}"),
                    (None, Some(vrf)) => {
                        write!(f, ": write vrf = \"{vrf}\" in [interface.{interface}], or change Linux")
                    }
                    (None, None) => Ok(()),
                }
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

impl Effective {
    /// True if WANs and servers are up, or down for the same reasons, as in another.
    pub(crate) fn stands_as(&self, other: &Effective) -> bool {
        self.standings == other.standings && self.servers == other.servers
    }
}

/// Merges a policy with the state of Linux; `failed` are the WANs and servers that have failed their check.
pub fn effective(policy: &Policy, state: &State, failed: &Failed) -> Effective {
    let by_name: HashMap<&str, (LinkIndex, &Link)> =
        state.links.iter().map(|(index, link)| (link.name.as_str(), (*index, link))).collect();
    let mut effective = Effective { policy: policy.clone(), ..Effective::default() };
    let mut names = HashMap::new();
    for interface in &policy.interfaces {
        let place = match by_name.get(interface.name.as_str()) {
            Some((index, _)) => {
                names.insert(*index, interface.name.as_str());
                Place::Link(*index)
            }
            None if interface.parent.is_some() || interface.esp.is_some() => Place::Soft,
            None => Place::Absent,
        };
        effective.places.push(place);
    }
    let Effective { policy: made, places, standings, servers, notes } = &mut effective;
    for (interface, place) in made.interfaces.iter_mut().zip(places.iter()) {
        match place {
            Place::Link(index) => {
                if let Some(link) = state.links.get(index) {
                    // The interface of a tunnel or a PPP session is the gateway's own, made as the tunnel is.
                    if interface.esp.is_none() && interface.ppp.is_none() && !is_in_the_making(link) {
                        equip(interface, link, notes);
                        interface.device_rate = state.rates.get(index).copied();
                    }
                    interface.multicast_miss = multicast::miss(*index, state);
                    address(interface, *index, state);
                }
            }
            Place::Soft => {}
            Place::Absent => notes.push(Note::InterfaceAbsent { interface: interface.name.clone() }),
        }
    }
    compare_vrfs(made, places, state, notes);
    carry(made);
    leave_routes(made, places, state);
    leave_networks(made, places, state);
    *standings = wan::follow(made, places, state, &failed.wans);
    *servers = balance::follow(made, failed);
    let vrfs = made.interfaces.iter().filter_map(|own| Some((own.name.clone(), own.vrf.clone()?))).collect();
    let mut routes = Routing { state, names, vrfs, left_out: BTreeMap::new() };
    routes.add_all(made);
    routes.add_multicast_to(made);
    let left_out = routes.left_out.into_iter();
    notes.extend(left_out.map(|(why, (count, example))| Note::Routes { why, count, example }));
    effective
}

/// Notes VRFs that Linux does not have, and interfaces that are in others there.
fn compare_vrfs(made: &Policy, places: &[Place], state: &State, notes: &mut Vec<Note>) {
    let absent: Vec<&str> = made.vrfs().into_iter().filter(|vrf| state.vrf_table(vrf).is_none()).collect();
    notes.extend(absent.iter().map(|vrf| Note::VrfAbsent { vrf: (*vrf).to_owned() }));
    for (interface, place) in made.interfaces.iter().zip(places) {
        let Place::Link(index) = place else { continue };
        let own = interface.vrf.as_deref();
        let has = state.vrf_of(*index).map(|vrf| vrf.name.as_str());
        // There is none that it could be in.
        let is_known = own.is_some_and(|own| absent.contains(&own)) && has.is_none();
        if own != has && !is_known {
            notes.push(Note::Vrf {
                interface: interface.name.clone(),
                policy: own.map(str::to_owned),
                linux: has.map(str::to_owned),
            });
        }
    }
}

/// True of a TAP device that is down, such as that of a VLAN which the gateway is about to bring up: until then it has an address that Linux
/// has drawn, and a usual MTU.
fn is_in_the_making(link: &Link) -> bool {
    link.kind == "tun" && link.condition == Condition::Down
}

/// Smallest and largest MTU that the pipeline supports, in bytes.
const MTUS: (u32, u32) = (68, 16_000);

/// MTU of a policy that gives none, in bytes.
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

/// Limits the MTU of each VLAN to its parent's, and that of each PPP session to what its headers leave of it.
fn carry(policy: &mut Policy) {
    let mtus: HashMap<String, u16> =
        policy.interfaces.iter().map(|interface| (interface.name.clone(), interface.mtu)).collect();
    for interface in &mut policy.interfaces {
        if let Some(mtu) = interface.parent.as_ref().and_then(|parent| mtus.get(parent)) {
            let room = if interface.ppp.is_some() { mtu.saturating_sub(SESSION_LEN as u16) } else { *mtu };
            interface.mtu = interface.mtu.min(room);
        }
    }
}

/// Adds Linux's addresses of an interface.
fn address(interface: &mut Interface, index: LinkIndex, state: &State) {
    /// Duplicate address: another host has it (`IFA_F_DADFAILED`).
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
            && state.routes_at(index, &net.trunc()).first().is_some_and(|route| {
                matches!(route.target, Target::One(Hop { link, via: None, .. }) if link == Some(index))
            });
        let net = if on_link { net } else { IpNet::from(ip) };
        if !interface.addresses.iter().any(|known| known.addr() == ip) {
            interface.addresses.push(net);
        }
    }
}

/// Reduces networks to addresses on interfaces without a carrier where Linux ignores their routes
/// (`ignore_routes_with_linkdown`).
fn leave_networks(made: &mut Policy, places: &[Place], state: &State) {
    for (interface, place) in made.interfaces.iter_mut().zip(places) {
        for net in &mut interface.addresses {
            if is_left(place, net.addr().is_ipv6(), state) {
                *net = IpNet::from(net.addr());
            }
        }
    }
}

/// Removes the policy's own next hops that Linux would not use for want of a carrier, and routes with no other next
/// hop. Next hops by interfaces switched off stay: no frame leaves by such an interface.
fn leave_routes(made: &mut Policy, places: &[Place], state: &State) {
    let Policy { interfaces, routes, .. } = made;
    let is_dead = |hop: &NextHop, vrf: Option<&str>, v6: bool| {
        let found = interfaces.iter().zip(places).find(|(interface, _)| match (&hop.interface, hop.via) {
            (Some(name), _) => interface.name == *name,
            (None, Some(via)) => {
                interface.vrf.as_deref() == vrf && interface.addresses.iter().any(|net| net.contains(&via))
            }
            (None, None) => false,
        });
        found.is_some_and(|(_, place)| is_left(place, v6, state))
    };
    routes.retain_mut(|route| {
        let v6 = route.destination.addr().is_ipv6();
        let vrf = route.hop_vrf().map(str::to_owned);
        let RouteTarget::Via(hops) = &mut route.target else { return true };
        hops.retain(|hop| !is_dead(hop, vrf.as_deref(), v6));
        !hops.is_empty()
    });
}

/// True if routes of an IP version ignore an interface, as it has no carrier.
fn is_left(place: &Place, v6: bool, state: &State) -> bool {
    let Place::Link(index) = place else { return false };
    let has_no_carrier = state.links.get(index).is_some_and(|link| link.condition == Condition::NoCarrier);
    has_no_carrier && condition(state, *index, v6) == Condition::Down
}

/// Returns the condition of an interface for routes of an IP version: without a carrier, it counts as down where Linux
/// is so configured.
fn condition(state: &State, index: LinkIndex, v6: bool) -> Condition {
    let condition = state.links.get(&index).map_or(Condition::Down, |link| link.condition);
    if condition == Condition::NoCarrier && state.linkdown.contains(&LinkdownKey { link: index, v6 }) {
        return Condition::Down;
    }
    condition
}

/// Protocol number of routes that Linux makes for addresses (`RTPROT_KERNEL`).
const KERNEL: u8 = 2;

/// Import of Linux's routes into a policy.
struct Routing<'a> {
    state: &'a State,
    /// Names of the policy's interfaces that Linux has, by link index.
    names: HashMap<LinkIndex, &'a str>,
    /// VRFs of the policy's interfaces, by name; those of the default one are left out.
    vrfs: HashMap<String, Arc<str>>,
    left_out: BTreeMap<Why, (usize, IpNet)>,
}

/// Result of resolving a route.
enum Way {
    To(RouteTarget),
    /// Dead route; the next best applies.
    Dead,
}

impl Routing<'_> {
    /// Adds the routes of the main table, and of the tables of the policy's VRFs.
    fn add_all(&mut self, made: &mut Policy) {
        let state = self.state;
        self.add_to(made, None, &state.routes);
        let vrfs: BTreeSet<Arc<str>> = self.vrfs.values().cloned().collect();
        for vrf in vrfs {
            if let Some(routes) = state.vrf_table(&vrf).and_then(|table| state.vrf_routes.get(&table)) {
                self.add_to(made, Some(vrf), routes);
            }
        }
    }

    /// Adds the routes of a VRF.
    fn add_to(&mut self, made: &mut Policy, vrf: Option<Arc<str>>, routes: &Routes) {
        let of_vrf = made.routes.iter().filter(|route| route.vrf == vrf);
        let own: HashSet<IpNet> = of_vrf.map(|route| route.destination.trunc()).collect();
        let interfaces = made.interfaces.iter().filter(|interface| interface.vrf == vrf);
        let networks: HashSet<IpNet> =
            interfaces.flat_map(|interface| interface.addresses.iter().map(|net| net.trunc())).collect();
        let has_wans = vrf.is_none() && !made.wans.is_empty();
        made.routes.reserve(routes.len());
        for (destination, routes) in routes.iter() {
            let routes = || routes.iter().filter(|route| route.protocol != OURS);
            // Routes to the interfaces' own networks need not be written.
            // Nor those to everywhere, where they are the WANs'.
            let known = (has_wans && destination.prefix_len() == 0)
                || is_link_local(destination.addr())
                || destination.addr().is_multicast()
                || networks.contains(destination);
            if known || routes().next().is_none() {
                continue;
            }
            if own.contains(destination) {
                self.leave_out(Why::PolicyWins, *destination);
                continue;
            }
            let Some(target) = self.target(*destination, routes()) else { continue };
            match self.next_vrf(vrf.as_ref(), &target) {
                Ok(next_vrf) => {
                    let (destination, vrf) = (*destination, vrf.clone());
                    made.routes.push(policy::model::Route { destination, vrf, next_vrf, target });
                }
                // Those that Linux makes for addresses say nothing new.
                Err(Why::OtherVrf) if routes().all(|route| route.protocol == KERNEL) => {}
                Err(why) => self.leave_out(why, *destination),
            }
        }
    }

    /// The VRF of a target's next hops, if it is another than that of their route: a route leak, where Linux has the interfaces in the same VRFs.
    /// Without VRF devices, routes to the networks of all VRFs are in its main table.
    fn next_vrf(&self, vrf: Option<&Arc<str>>, target: &RouteTarget) -> Result<Option<Arc<str>>, Why> {
        let RouteTarget::Via(hops) = target else { return Ok(None) };
        let mut vrfs = hops.iter().map(|hop| self.vrfs.get(hop.interface.as_deref().unwrap_or_default()));
        let Some(first) = vrfs.next() else { return Ok(None) };
        if vrfs.any(|other| other != first) {
            return Err(Why::SeveralVrfs);
        }
        let is_alike = |hop: &NextHop| {
            let link = hop.interface.as_deref().and_then(|name| self.state.link_named(name));
            let has = link.and_then(|(index, _)| self.state.vrf_of(index)).map(|vrf| vrf.name.as_str());
            has == first.map(|vrf| &**vrf)
        };
        if first != vrf && !hops.iter().all(is_alike) {
            return Err(Why::OtherVrf);
        }
        Ok(if first == vrf { None } else { Some(first.cloned().unwrap_or_else(|| Arc::from(DEFAULT_VRF))) })
    }

    /// Resolves the best of the routes to a destination.
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

    /// Resolves next hops to those that are usable.
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

/// Weights of next hops, reduced to the smallest integers of the same ratio, and scaled down to 255 where larger.
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

/// True for 169.254.0.0/16 (RFC 3927) and fe80::/10 (RFC 4291), which are local to a link.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

#[cfg(test)]
mod tests;
