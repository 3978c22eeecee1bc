//! Multicast routes: from a packet's source and group to the interfaces that copies leave by.
//!
//! They are found by hash, for each combination of prefix length and source that routes have, in the order in which they count: the
//! longest prefix first, and of one prefix the route of the packet's own source. Most have one combination, that of Linux's multicast
//! forwarding cache: a group and a source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use ipnet::IpNet;
use policy::Policy;
use tally::{Op, Region, Tally};
use wire::PortId;

use super::{Address, CompileError, Tables};
use crate::compile;

/// All multicast routes of a policy.
#[derive(Debug, Default)]
pub struct MulticastRoutes {
    /// The routes, in the order of the policy.
    pub list: Vec<MulticastRoute>,
    /// Places in `list`.
    index: HashMap<Key, u32, RandomState>,
    /// Combinations of prefix length and source, in the order in which they are looked for.
    shapes: Vec<Shape>,
    /// True if packets without a route are given to Linux where they come by some interface.
    has_punts: bool,
}

/// A multicast route.
#[derive(Debug)]
pub struct MulticastRoute {
    /// Group, or prefix of groups.
    pub group: IpNet,
    /// Source of the packets; any where absent.
    pub source: Option<IpAddr>,
    /// Interface that packets come in by.
    pub from: PortId,
    /// Interfaces that copies leave by.
    pub exits: Vec<MulticastExit>,
    /// Packets of the route; workers share it, and tables that follow one another.
    pub count: Arc<MulticastCount>,
}

/// An interface that copies leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastExit {
    /// The interface.
    pub interface: PortId,
    /// TTL threshold: packets leave whose time to live, on receipt, is greater.
    pub threshold: u8,
}

/// Packets of a multicast route.
#[derive(Debug, Default)]
pub struct MulticastCount {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl MulticastCount {
    /// Counts a packet of so many bytes.
    #[inline(always)]
    pub(crate) fn count(&self, bytes: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets that the route has forwarded, each once, however many copies were made.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes of their IP packets.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A prefix of groups, with a source or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    group: Address,
    length: u8,
    source: Option<Address>,
}

/// Combination of prefix length and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    v6: bool,
    length: u8,
    has_source: bool,
}

impl MulticastRoutes {
    /// Makes the index of routes; `has_punts` if packets without a route are given to Linux where they come by some interface.
    pub(crate) fn new(list: Vec<MulticastRoute>, has_punts: bool) -> MulticastRoutes {
        let mut routes = MulticastRoutes { has_punts, ..MulticastRoutes::default() };
        for (place, route) in (0..).zip(&list) {
            let (group, length) = (route.group.trunc(), route.group.prefix_len());
            let source = route.source.map(Address::from);
            let shape = Shape { v6: group.addr().is_ipv6(), length, has_source: source.is_some() };
            if !routes.shapes.contains(&shape) {
                routes.shapes.push(shape);
            }
            // Of two alike, which the validation refuses, the first counts.
            routes.index.entry(Key { group: group.addr().into(), length, source }).or_insert(place);
        }
        routes.shapes.sort_by_key(|shape| (std::cmp::Reverse(shape.length), !shape.has_source));
        routes.list = list;
        routes
    }

    /// True if no packet to a group leaves its link, or is given to Linux for want of a route.
    pub(crate) fn is_unused(&self) -> bool {
        self.list.is_empty() && !self.has_punts
    }

    /// Returns the route of a packet.
    #[inline]
    pub fn find<T: Tally>(&self, source: Address, group: Address, tally: &mut T) -> Option<&MulticastRoute> {
        for shape in self.shapes.iter().filter(|shape| shape.v6 == group.v6) {
            // The combination, 3; the group under its mask, 4; a hash of two addresses, 16; the entry compared, 9.
            tally.instructions(32);
            tally.execute(Op::Branch, 6);
            tally.read(Region::RouteTable, 0, 32);
            let group = group.prefix(shape.length, shape.length);
            let key = Key { group, length: shape.length, source: shape.has_source.then_some(source) };
            if let Some(place) = self.index.get(&key) {
                return self.list.get(*place as usize);
            }
        }
        None
    }

    /// Largest number of interfaces that one route leads to.
    fn most_exits(&self) -> usize {
        self.list.iter().map(|route| route.exits.len()).max().unwrap_or(0)
    }

    /// Goes on counting where the routes of `old` have stopped.
    pub fn go_on(&mut self, old: &MulticastRoutes) {
        let before: HashMap<(IpNet, Option<IpAddr>), &Arc<MulticastCount>> =
            old.list.iter().map(|route| ((route.group, route.source), &route.count)).collect();
        for route in &mut self.list {
            if let Some(count) = before.get(&(route.group, route.source)) {
                route.count = Arc::clone(count);
            }
        }
    }
}

impl Tables {
    /// Compiles other multicast routes for these tables, in the place of `present`, which shards have by them: those of a policy that differs in
    /// nothing else. `None` if shards have no memory for them, as no packet to a group has left its link so far.
    ///
    /// # Errors
    /// A route names an interface that the policy does not have.
    pub fn with_multicast_routes(
        &self,
        policy: &Policy,
        present: &MulticastRoutes,
    ) -> Result<Option<MulticastRoutes>, CompileError> {
        let mut routes = compile::multicast_routes(policy)?;
        if self.multicast.is_unused() || routes.most_exits() > self.most_copies() {
            return Ok(None);
        }
        routes.go_on(present);
        Ok(Some(routes))
    }

    /// Largest number of interfaces that a packet to a group leaves by, also by routes that come later.
    pub fn most_copies(&self) -> usize {
        let later = if self.multicast.has_punts { self.interfaces.len() } else { 0 };
        self.multicast.most_exits().max(later.min(policy::model::MulticastRoute::MOST_EXITS))
    }

    /// True if packets to groups without a route are given to Linux where they come by this interface: its multicast router asks the
    /// daemon for a route then.
    pub(crate) fn punts_groups(&self, interface: PortId) -> bool {
        self.interfaces
            .get(usize::from(interface.0))
            .is_some_and(|own| own.multicast_miss == policy::model::MulticastMiss::Punt)
    }
}

#[cfg(test)]
mod tests;
