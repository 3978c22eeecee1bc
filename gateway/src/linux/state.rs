//! State of Linux that affects packets: interfaces, addresses, routes of the main table and of those of VRF devices, neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use wire::BitRate;
use wire::ethernet::Mac;

use super::cow::Map;
use super::interface::{Condition, Link, LinkIndex, Linkdown, LinkdownKey, Settings, TableId};
use super::multicast::{MulticastEntry, MulticastKey, MulticastRouter};
use super::route::{Certainty, Object, Placing, Route, Routes};

/// State of Linux that the gateway follows. Copies share their common parts, so a snapshot is cheap, however many
/// routes there are.
///
/// Not included, as Linux changes them without an event: dead next hops for want of a carrier, and neighbours that need
/// no link-layer address and have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interfaces.
    pub links: Arc<BTreeMap<LinkIndex, Link>>,
    /// Rates of the hardware behind interfaces that have a carrier, where known.
    pub rates: Arc<BTreeMap<LinkIndex, BitRate>>,
    /// Addresses of interfaces.
    pub addresses: Arc<BTreeMap<AddressKey, Address>>,
    /// Next-hop objects, by ID.
    pub objects: Arc<BTreeMap<u32, Object>>,
    /// Routes of the main table.
    pub routes: Routes,
    /// Routes of the tables of VRF devices.
    pub vrf_routes: Arc<BTreeMap<TableId, Routes>>,
    /// Interfaces whose routes are ignored while they have no carrier (`ignore_routes_with_linkdown`).
    pub linkdown: Arc<BTreeSet<LinkdownKey>>,
    /// Multicast forwarding cache.
    pub multicast: Arc<BTreeMap<MulticastKey, MulticastEntry>>,
    /// Interfaces of the multicast router (`mc_forwarding`).
    pub multicast_routers: Arc<BTreeSet<LinkdownKey>>,
    /// Neighbours: link-layer address and state, by link and IP address.
    pub neighbours: Map<NeighbourKey, Neighbour>,
}

/// Key of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey {
    /// Interface of the address.
    pub link: LinkIndex,
    /// Address, with its network's prefix length.
    pub net: IpNet,
    /// Peer of a point-to-point link, whose network the prefix then is.
    pub peer: Option<IpAddr>,
}

/// Attributes of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Origin of the address (`IFAPROT_*`); 0 where unspecified.
    pub protocol: u8,
    /// Scope (`RT_SCOPE_*`).
    pub scope: u8,
    /// Flags (`IFA_F_*`).
    pub flags: u32,
}

/// Key of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// Interface of the neighbour.
    pub link: LinkIndex,
    /// IP address.
    pub address: IpAddr,
}

/// Attributes of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Ethernet address, once resolved.
    pub mac: Option<Mac>,
    /// State of the entry.
    pub reachability: Reachability,
    /// True if the neighbour is a router, by its advertisement (IPv6).
    pub router: bool,
}

/// State of a neighbour entry in Linux (`NUD_*`; RFC 4861, section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reachability {
    /// First resolution under way.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// Confirmation expired.
    Stale,
    /// Probe about to be sent.
    Delay,
    /// Probe under way.
    Probe,
    /// No answer.
    Failed,
    /// No resolution needed.
    NoArp,
    /// Static entry.
    Permanent,
}

/// Change of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourChange {
    /// Neighbour.
    pub key: NeighbourKey,
    /// Attributes now; `None` if Linux has removed the entry.
    pub now: Option<Neighbour>,
}

/// Event of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Interface added or changed.
    Link(LinkIndex, Link),
    /// Interface removed.
    LinkGone(LinkIndex),
    /// Sysctls of an interface.
    Settings(LinkdownKey, Settings),
    /// Address added or changed.
    Address(AddressKey, Address),
    /// Address removed.
    AddressGone(AddressKey),
    /// Next-hop object added or changed.
    Object(u32, Object),
    /// Next-hop object removed.
    ObjectGone(u32),
    /// Route added to a table.
    Route(TableId, IpNet, Route, Placing),
    /// Route removed from a table.
    RouteGone(TableId, IpNet, Route),
    /// Entry of the multicast forwarding cache added or changed.
    Multicast(MulticastKey, MulticastEntry),
    /// Entry of the multicast forwarding cache removed.
    MulticastGone(MulticastKey),
    /// Neighbour changed.
    Neighbour(NeighbourChange),
}

impl Event {
    /// True for routes, and for objects that routes depend on.
    pub fn is_of_routes(&self) -> bool {
        matches!(
            self,
            Event::Route(..)
                | Event::RouteGone(..)
                | Event::Object(..)
                | Event::ObjectGone(..)
                | Event::Multicast(..)
                | Event::MulticastGone(..)
        )
    }
}

/// Effect of an event on the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Change made to the state.
    pub changed: Changed,
    /// Part of the state that Linux may have changed without an event.
    pub doubt: Doubt,
}

/// Change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// None.
    Nothing,
    /// Interfaces, addresses, next-hop objects or routes.
    Tables,
    /// Neighbour.
    Neighbour(NeighbourChange),
}

/// Part of the state that has to be listed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// None.
    None,
    /// Next-hop objects, routes and multicast routes. Linux sends no events for IPv4 routes removed with an interface, an address or a
    /// next-hop object, nor for next-hop objects removed with an interface.
    Routes,
}

impl From<Certainty> for Doubt {
    fn from(certainty: Certainty) -> Doubt {
        match certainty {
            Certainty::Sure => Doubt::None,
            Certainty::Doubtful => Doubt::Routes,
        }
    }
}

impl State {
    /// Returns the interface of that name.
    pub fn link_named(&self, name: &str) -> Option<(LinkIndex, &Link)> {
        self.links.iter().find(|(_, link)| link.name == name).map(|(index, link)| (*index, link))
    }

    /// Tables of VRF devices, each once.
    pub fn vrf_tables(&self) -> BTreeSet<TableId> {
        self.links.values().filter_map(|link| link.table).collect()
    }

    /// Table of the VRF device of that name.
    pub fn vrf_table(&self, name: &str) -> Option<TableId> {
        self.link_named(name).and_then(|(_, link)| link.table)
    }

    /// The VRF device that an interface belongs to.
    pub fn vrf_of(&self, index: LinkIndex) -> Option<&Link> {
        let master = self.links.get(&index)?.master?;
        self.links.get(&master).filter(|master| master.table.is_some())
    }

    /// Returns the routes to exactly this destination for what comes in by an interface, the best first: of its VRF, or of the main table.
    pub fn routes_at(&self, index: LinkIndex, destination: &IpNet) -> &[Route] {
        let table = self.vrf_of(index).and_then(|vrf| vrf.table);
        self.in_table(table.unwrap_or(TableId::MAIN), destination)
    }

    /// Returns the routes of a table to exactly this destination, the best first.
    pub fn in_table(&self, table: TableId, destination: &IpNet) -> &[Route] {
        if table == TableId::MAIN {
            return self.routes.get(destination);
        }
        self.vrf_routes.get(&table).map_or(&[], |routes| routes.get(destination))
    }

    /// Routes of the tables that are followed: the main one, and those of VRF devices.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Routes)> {
        let of_vrfs = self.vrf_routes.iter().map(|(table, routes)| (*table, routes));
        std::iter::once((TableId::MAIN, &self.routes)).chain(of_vrfs)
    }

    /// Routes of a table to be changed; `None` of one that is neither the main one nor a VRF device's.
    fn table_mut(&mut self, table: TableId) -> Option<&mut Routes> {
        if table == TableId::MAIN {
            return Some(&mut self.routes);
        }
        let is_vrf = self.links.values().any(|link| link.table == Some(table));
        is_vrf.then(|| Arc::make_mut(&mut self.vrf_routes).entry(table).or_default())
    }

    /// Sets the sysctl of an interface; returns true if changed.
    fn set_linkdown(&mut self, key: LinkdownKey, linkdown: Linkdown) -> bool {
        let ignored = linkdown == Linkdown::Ignored;
        if self.linkdown.contains(&key) == ignored {
            return false;
        }
        let all = Arc::make_mut(&mut self.linkdown);
        if ignored { all.insert(key) } else { all.remove(&key) }
    }

    /// Sets the part of an interface in the multicast router; returns true if changed.
    fn set_multicast(&mut self, key: LinkdownKey, router: MulticastRouter) -> bool {
        let is_on = router == MulticastRouter::On;
        if self.multicast_routers.contains(&key) == is_on {
            return false;
        }
        let all = Arc::make_mut(&mut self.multicast_routers);
        if is_on { all.insert(key) } else { all.remove(&key) }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: Event) -> Effect {
        let tables = |changed: bool, doubt| Effect {
            changed: if changed { Changed::Tables } else { Changed::Nothing },
            doubt,
        };
        match event {
            Event::Link(index, link) => {
                let was = self.links.get(&index);
                let changed = was != Some(&link);
                let switched_off =
                    |was: &Link| was.condition != Condition::Down && link.condition == Condition::Down;
                // Linux has told of the routes of a VRF before its device was known, and tells of none that go with an interface to another VRF.
                let table = |link: &Link| link.table.or_else(|| self.links.get(&link.master?)?.table);
                let moved = was.and_then(table) != table(&link);
                let is_doubtful = was.is_some_and(switched_off) || moved;
                let doubt = if is_doubtful { Doubt::Routes } else { Doubt::None };
                if changed {
                    Arc::make_mut(&mut self.links).insert(index, link);
                }
                tables(changed, doubt)
            }
            Event::LinkGone(index) => {
                for v6 in [false, true] {
                    let key = LinkdownKey { link: index, v6 };
                    self.set_linkdown(key, Linkdown::Used);
                    self.set_multicast(key, MulticastRouter::Off);
                }
                let changed = self.links.contains_key(&index);
                if changed {
                    Arc::make_mut(&mut self.links).remove(&index);
                }
                tables(changed, Doubt::Routes)
            }
            Event::Settings(key, Settings { linkdown, multicast }) => {
                let linkdown = linkdown.is_some_and(|linkdown| self.set_linkdown(key, linkdown));
                let multicast = multicast.is_some_and(|router| self.set_multicast(key, router));
                tables(linkdown || multicast, Doubt::None)
            }
            Event::Address(key, address) => {
                let changed = self.addresses.get(&key) != Some(&address);
                if changed {
                    Arc::make_mut(&mut self.addresses).insert(key, address);
                }
                tables(changed, Doubt::None)
            }
            Event::AddressGone(key) => {
                let changed = self.addresses.contains_key(&key);
                if changed {
                    Arc::make_mut(&mut self.addresses).remove(&key);
                }
                tables(changed, Doubt::Routes)
            }
            Event::Object(number, object) => {
                let changed = self.objects.get(&number) != Some(&object);
                if changed {
                    Arc::make_mut(&mut self.objects).insert(number, object);
                }
                tables(changed, Doubt::None)
            }
            Event::ObjectGone(number) => {
                let changed = self.objects.contains_key(&number);
                if changed {
                    Arc::make_mut(&mut self.objects).remove(&number);
                }
                tables(changed, Doubt::Routes)
            }
            Event::Route(table, destination, route, placing) => {
                let Some(routes) = self.table_mut(table) else { return tables(false, Doubt::None) };
                let changed = routes.get(&destination) != std::slice::from_ref(&route);
                let certainty = routes.put(destination, route, placing);
                tables(changed, certainty.into())
            }
            Event::RouteGone(table, destination, route) => {
                let Some(routes) = self.table_mut(table) else { return tables(false, Doubt::None) };
                let changed = !routes.get(&destination).is_empty();
                let certainty = routes.take(destination, &route);
                tables(changed, certainty.into())
            }
            Event::Multicast(key, entry) => {
                let changed = self.multicast.get(&key) != Some(&entry);
                if changed {
                    Arc::make_mut(&mut self.multicast).insert(key, entry);
                }
                tables(changed, Doubt::None)
            }
            Event::MulticastGone(key) => {
                let changed = self.multicast.contains_key(&key);
                if changed {
                    Arc::make_mut(&mut self.multicast).remove(&key);
                }
                tables(changed, Doubt::None)
            }
            Event::Neighbour(change) => {
                let changed = match change.now {
                    Some(now) => self.neighbours.insert(change.key, now) != Some(now),
                    None => self.neighbours.remove(&change.key).is_some(),
                };
                let changed = if changed { Changed::Neighbour(change) } else { Changed::Nothing };
                Effect { changed, doubt: Doubt::None }
            }
        }
    }
}

impl Neighbour {
    /// Returns the Ethernet address, in the states in which Linux, too, would send to it.
    pub fn usable(&self) -> Option<Mac> {
        match self.reachability {
            Reachability::Incomplete | Reachability::Failed => None,
            _ => self.mac,
        }
    }
}
