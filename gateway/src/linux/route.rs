//! Routes of the main table, as Linux has them: several to one destination, told apart by metric and type of service, and
//! even several with these alike.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::cow::Map;
use super::state::LinkIndex;

/// A route to some destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Of two to the same destination, the lower wins.
    pub metric: u32,
    /// Type of service that packets must have; 0 for all.
    pub tos: u8,
    /// Who made it (`RTPROT_*`).
    pub protocol: u8,
    /// Where it leads.
    pub target: Target,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// One way.
    One(Hop),
    /// Several ways, shared by weight, in order; two at least.
    Many(Arc<[Hop]>),
    /// To a next-hop object, which is looked up in [`super::State::objects`].
    Object(u32),
    /// Dropped in silence.
    Blackhole,
    /// Answered: host unreachable.
    Unreachable,
    /// Answered: administratively prohibited.
    Prohibit,
    /// A type of which nothing is known here (`RTN_*`): local, throw and the like.
    Other(u8),
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The interface to leave by; `None` where Linux does not say.
    pub link: Option<LinkIndex>,
    /// The router, of either IP version; `None` where destinations are on the link.
    pub via: Option<IpAddr>,
    /// Its share among the route's hops, 1 or more; 1 where there is one hop.
    pub weight: u16,
    /// The router is on the link even where no network there says so.
    pub onlink: bool,
    /// Packets are to be encapsulated (MPLS, segment routing).
    pub encapsulated: bool,
}

/// A next-hop object (`ip nexthop`), which any number of routes may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// One way.
    One(Hop),
    /// Other objects, by their numbers, with weights of 1 or more.
    Group(Arc<[Member]>),
    /// Dropped in silence.
    Blackhole,
}

/// A member of a group of next-hop objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The object's number.
    pub object: u32,
    /// Its share in the group, 1 or more.
    pub weight: u16,
}

/// How a route that Linux tells of goes with others of its destination, metric and type of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// In front of them.
    First,
    /// Behind them.
    Last,
    /// Instead of the first.
    Instead,
}

/// Certainty of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is as Linux has it.
    Sure,
    /// Linux told something that does not fit with what was known, or not enough.
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
    /// Two at least, by metric and type of service. Where these are alike, in IPv4 the first counts; in IPv6 none is before
    /// another, and so they are in order.
    Many(Vec<Route>),
}

impl Routes {
    /// Number of destinations.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All destinations, each with its routes, the best first.
    pub fn iter(&self) -> impl Iterator<Item = (&IpNet, &[Route])> {
        self.map.iter().map(|(destination, same)| (destination, same.as_slice()))
    }

    /// The routes to exactly this destination, the best first.
    pub fn get(&self, destination: &IpNet) -> &[Route] {
        self.map.get(destination).map_or(&[], Same::as_slice)
    }

    /// Takes the routes of one IP version from `other`, whatever they were here.
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

    /// Adds a route of a list, behind those that it goes with and that were listed before it.
    pub(super) fn add(&mut self, destination: IpNet, route: Route) {
        let Some(same) = self.map.get(&destination) else {
            self.map.insert(destination, Same::One(route));
            return;
        };
        let mut routes = same.as_slice().to_vec();
        routes.push(route);
        self.set(destination, routes);
    }

    /// Applies what Linux tells of a new or changed route.
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

    /// Applies what Linux tells of a route's end.
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
    /// The ways given, in an order of their own: Linux gives no meaning to it.
    pub fn of(mut hops: Vec<Hop>) -> Option<Target> {
        hops.sort();
        match hops.as_slice() {
            [] => None,
            [hop] => Some(Target::One(Hop { weight: 1, ..*hop })),
            _ => Some(Target::Many(hops.into())),
        }
    }

    /// The ways that the route itself names.
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

/// True if routes to the same destination are told apart by where they lead alone.
fn goes_with(a: &Route, b: &Route) -> bool {
    (a.metric, a.tos) == (b.metric, b.tos)
}

/// `fib_table_insert` in Linux's `net/ipv4/fib_trie.c`. What is there already keeps its place: after a dump, events from
/// before it are told again.
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

/// `fib6_add_rt2node` in `net/ipv6/ip6_fib.c`: routes by routers unite into one of several ways, and are told of as a
/// whole; others stand beside one another. Which of several was replaced, Linux does not say.
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

/// Takes the ways of `gone` out of routes that have them.
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
