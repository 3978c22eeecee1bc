//! Routes of Linux's main table: several per destination, distinguished by metric and type of service, and even several
//! with the same metric and type of service.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::cow::Map;
use super::interface::LinkIndex;

/// Route of Linux, without its destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Metric: the lower is preferred.
    pub metric: u32,
    /// Type of service that the route applies to; 0 for all.
    pub tos: u8,
    /// Protocol: origin of the route (`RTPROT_*`).
    pub protocol: u8,
    /// Target of the route.
    pub target: Target,
}

/// Target of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Single next hop.
    One(Hop),
    /// Multipath: next hops with weights, in order; two at least.
    Many(Arc<[Hop]>),
    /// Next-hop object, by its ID in [`super::State::objects`].
    Object(u32),
    /// Drop in silence.
    Blackhole,
    /// Drop with ICMP host unreachable.
    Unreachable,
    /// Drop with ICMP administratively prohibited.
    Prohibit,
    /// Other route type (`RTN_*`), not supported here: local, throw and the like.
    Other(u8),
}

/// Next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Egress interface; `None` where Linux gives none.
    pub link: Option<LinkIndex>,
    /// Router, of either IP version; `None` where destinations are on the link.
    pub via: Option<IpAddr>,
    /// Weight among the route's next hops, 1 or more; 1 for a single next hop.
    pub weight: u16,
    /// True if the router counts as on the link even without a network there that contains it.
    pub onlink: bool,
    /// True if packets are to be encapsulated (MPLS, segment routing).
    pub encapsulated: bool,
}

/// Next-hop object (`ip nexthop`), shared by any number of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Single next hop.
    One(Hop),
    /// Group of other objects, with weights of 1 or more.
    Group(Arc<[Member]>),
    /// Drop in silence.
    Blackhole,
}

/// Member of a next-hop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// ID of the object.
    pub object: u32,
    /// Weight in the group, 1 or more.
    pub weight: u16,
}

/// Position of a new route among those of the same destination, metric and type of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// First.
    First,
    /// Last.
    Last,
    /// In place of the first.
    Instead,
}

/// Certainty of the state after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// State equal to Linux's.
    Sure,
    /// State doubtful: the event was inconsistent with the known state, or incomplete.
    Doubtful,
}

/// All routes, by destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    map: Map<IpNet, Same>,
}

/// Routes to one destination; nearly always one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Same {
    One(Route),
    /// Two at least, sorted by metric and type of service. Among equals, the first is used in IPv4; in IPv6 none has
    /// precedence, and equals are sorted.
    Many(Vec<Route>),
}

impl Routes {
    /// Number of destinations.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Iterates over all destinations, each with its routes, the best first.
    pub fn iter(&self) -> impl Iterator<Item = (&IpNet, &[Route])> {
        self.map.iter().map(|(destination, same)| (destination, same.as_slice()))
    }

    /// Returns the routes to exactly this destination, the best first.
    pub fn get(&self, destination: &IpNet) -> &[Route] {
        self.map.get(destination).map_or(&[], Same::as_slice)
    }

    /// Replaces all routes of one IP version by those of `other`.
    pub(super) fn replace_version(&mut self, v6: bool, other: &Routes) {
        let gone: Vec<IpNet> = self
            .map
            .iter()
            .map(|(destination, _)| *destination)
            .filter(|destination| is_v6(destination) == v6 && other.map.get(destination).is_none())
            .collect();
        for destination in gone {
            self.map.remove(&destination);
        }
        for (destination, same) in other.map.iter() {
            // What is the same is left alone, so that copies go on sharing it.
            if self.map.get(destination) != Some(same) {
                self.map.insert(*destination, same.clone());
            }
        }
    }

    /// Adds a route of a dump, behind those of equal destination, metric and type of service listed before.
    pub(super) fn add(&mut self, destination: IpNet, route: Route) {
        let Some(same) = self.map.get(&destination) else {
            self.map.insert(destination, Same::One(route));
            return;
        };
        let mut routes = same.as_slice().to_vec();
        routes.push(route);
        self.set(destination, routes);
    }

    /// Applies the event of a new or changed route.
    pub(super) fn put(&mut self, destination: IpNet, route: Route, placing: Placing) -> Certainty {
        let Some(same) = self.map.get(&destination) else {
            self.map.insert(destination, Same::One(route));
            return Certainty::Sure;
        };
        if matches!(same, Same::One(known) if *known == route) {
            return Certainty::Sure;
        }
        let (mut alike, mut routes): (Vec<Route>, Vec<Route>) =
            same.as_slice().iter().cloned().partition(|known| goes_with(known, &route));
        let certainty = if alike.is_empty() {
            alike.push(route);
            Certainty::Sure
        } else if is_v6(&destination) {
            put6(&mut alike, route, placing)
        } else {
            put4(&mut alike, route, placing);
            Certainty::Sure
        };
        routes.append(&mut alike);
        self.set(destination, routes);
        certainty
    }

    /// Applies the event of a removed route.
    pub(super) fn take(&mut self, destination: IpNet, route: &Route) -> Certainty {
        let Some(same) = self.map.get(&destination) else { return Certainty::Sure };
        let mut routes = same.as_slice().to_vec();
        let certainty = if let Some(at) = routes.iter().position(|known| known == route) {
            routes.remove(at);
            Certainty::Sure
        } else if is_v6(&destination) {
            take_hops(&mut routes, route)
        } else {
            Certainty::Doubtful
        };
        self.set(destination, routes);
        certainty
    }

    fn set(&mut self, destination: IpNet, mut routes: Vec<Route>) {
        if is_v6(&destination) {
            routes.sort();
        } else {
            routes.sort_by_key(|route| (route.metric, route.tos));
        }
        match routes.len() {
            0 => self.map.remove(&destination),
            1 => routes.pop().and_then(|route| self.map.insert(destination, Same::One(route))),
            _ => self.map.insert(destination, Same::Many(routes)),
        };
    }
}

impl Same {
    fn as_slice(&self) -> &[Route] {
        match self {
            Same::One(route) => std::slice::from_ref(route),
            Same::Many(routes) => routes,
        }
    }
}

impl Target {
    /// Target with these next hops, sorted: their order has no meaning in Linux.
    pub fn of(mut hops: Vec<Hop>) -> Option<Target> {
        hops.sort();
        match hops.as_slice() {
            [] => None,
            [hop] => Some(Target::One(Hop { weight: 1, ..*hop })),
            _ => Some(Target::Many(hops.into())),
        }
    }

    /// Next hops that the route itself names.
    pub fn hops(&self) -> &[Hop] {
        match self {
            Target::One(hop) => std::slice::from_ref(hop),
            Target::Many(hops) => hops,
            _ => &[],
        }
    }
}

fn is_v6(destination: &IpNet) -> bool {
    matches!(destination, IpNet::V6(_))
}

/// True if routes to the same destination have equal metric and type of service, and differ in their targets alone.
fn goes_with(a: &Route, b: &Route) -> bool {
    (a.metric, a.tos) == (b.metric, b.tos)
}

/// Inserts as `fib_table_insert` in Linux's `net/ipv4/fib_trie.c`. A route already present keeps its position: after a
/// dump, earlier events are delivered again.
fn put4(routes: &mut Vec<Route>, route: Route, placing: Placing) {
    let known = routes.iter().position(|other| *other == route);
    match placing {
        Placing::Instead => {
            if let Some(at) = known {
                routes.remove(at);
            } else {
                routes.remove(0);
            }
            routes.insert(0, route);
        }
        Placing::First if known.is_none() => routes.insert(0, route),
        Placing::Last if known.is_none() => routes.push(route),
        Placing::First | Placing::Last => {}
    }
}

/// Inserts as `fib6_add_rt2node` in `net/ipv6/ip6_fib.c`: routes by routers merge into one multipath route, reported as
/// a whole; others remain separate. Of several such routes, Linux does not report which one was replaced.
fn put6(routes: &mut Vec<Route>, mut route: Route, placing: Placing) -> Certainty {
    let mut certainty = Certainty::Sure;
    if placing == Placing::Instead {
        if routes.len() > 1 {
            certainty = Certainty::Doubtful;
        }
        routes.truncate(routes.len() - 1);
    } else {
        let same_way = |a: &Hop, b: &Hop| (a.link, a.via) == (b.link, b.via);
        let among = |a: &Route, b: &Route| {
            let unites = a.target.hops().iter().any(|hop| hop.via.is_some());
            unites && a.target.hops().iter().all(|a| b.target.hops().iter().any(|b| same_way(a, b)))
        };
        if routes.iter().any(|known| *known == route || (among(&route, known) && !among(known, &route))) {
            // Told of late: it has more ways by now.
            return Certainty::Sure;
        }
        // With some ways more, it still counts as made by whoever made the first.
        if let Some(at) = routes.iter().position(|known| among(known, &route)) {
            route.protocol = routes.remove(at).protocol;
        }
    }
    routes.push(route);
    certainty
}

/// Removes the next hops of `gone` from routes that have them.
fn take_hops(routes: &mut Vec<Route>, gone: &Route) -> Certainty {
    let is_gone = |hop: &Hop| gone.target.hops().iter().any(|old| (old.link, old.via) == (hop.link, hop.via));
    let mut found = 0;
    let mut certainty = Certainty::Sure;
    routes.retain_mut(|route| {
        let hops = if goes_with(route, gone) { route.target.hops() } else { &[] };
        let rest: Vec<Hop> = hops.iter().filter(|hop| !is_gone(hop)).copied().collect();
        let taken = hops.len() - rest.len();
        found += taken;
        if taken == 0 {
            return true;
        }
        // It counts as made by whoever made the first of its ways, which may be the one that is gone.
        if route.protocol == gone.protocol {
            certainty = Certainty::Doubtful;
        }
        match Target::of(rest) {
            Some(target) => {
                route.target = target;
                true
            }
            None => {
                certainty = Certainty::Sure;
                false
            }
        }
    });
    if found == 0 || found != gone.target.hops().len() { Certainty::Doubtful } else { certainty }
}
