//! What Linux has, as far as packets are concerned: interfaces, addresses, routes of the main table, neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use wire::ethernet::Mac;

use super::cow::Map;
use super::message::Event;
use super::route::{Certainty, Object, Routes};

/// Linux's number of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub u32);

/// Everything that is followed. Copies share what they have in common, so that handing one out costs little, however many
/// routes there are.
///
/// Left out, as Linux changes it without a word: whether a route's hop is dead for want of a carrier, and neighbours
/// without a link-layer address that need none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interfaces.
    pub links: Arc<BTreeMap<LinkIndex, Link>>,
    /// Addresses of interfaces.
    pub addresses: Arc<BTreeMap<AddressKey, Address>>,
    /// Next-hop objects, by number.
    pub objects: Arc<BTreeMap<u32, Object>>,
    /// Routes of the main table.
    pub routes: Routes,
    /// Interfaces that routes do not lead by while they have no carrier (`ignore_routes_with_linkdown`).
    pub linkdown: Arc<BTreeSet<LinkdownKey>>,
    /// Neighbours: who is behind which address on a link.
    pub neighbours: Map<NeighbourKey, Neighbour>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its Ethernet address; `None` where it has none, or one of another kind.
    pub mac: Option<Mac>,
    /// Largest IP packet that it carries.
    pub mtu: u32,
    /// Condition: up or down.
    pub condition: Condition,
    /// What is in front of its IP packets (`ARPHRD_*`); 1 for Ethernet.
    pub hardware: u16,
    /// What made it: `veth`, `vlan`, `tun` and so on; empty for hardware.
    pub kind: String,
    /// The interface that it is on top of, such as a VLAN's, if that is in the same network namespace.
    pub parent: Option<LinkIndex>,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<LinkIndex>,
}

/// Condition of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Switched off.
    Down,
    /// Switched on, but nobody is at the other end.
    NoCarrier,
    /// Switched on, and ready.
    Running,
}

/// Which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey {
    /// The interface it is on.
    pub link: LinkIndex,
    /// The address, with the length of its network's prefix.
    pub net: IpNet,
    /// The other end of a point-to-point link; the prefix is then around that.
    pub peer: Option<IpAddr>,
}

/// Routes of an IP version by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkdownKey {
    /// The interface.
    pub link: LinkIndex,
    /// IPv6; else IPv4.
    pub v6: bool,
}

/// Use of routes by an interface without a carrier (`ignore_routes_with_linkdown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkdown {
    /// They do.
    Used,
    /// They do not.
    Ignored,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Who made it (`IFAPROT_*`); 0 where nobody said.
    pub protocol: u8,
    /// How far it counts (`RT_SCOPE_*`).
    pub scope: u8,
    /// `IFA_F_*`.
    pub flags: u32,
}

/// Which neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// The interface it is on.
    pub link: LinkIndex,
    /// Its IP address.
    pub address: IpAddr,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its Ethernet address, if it is known.
    pub mac: Option<Mac>,
    /// How sure that is.
    pub reachability: Reachability,
    /// It said that it is a router (IPv6).
    pub router: bool,
}

/// Linux's state of a neighbour (`NUD_*`; RFC 4861, section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reachability {
    /// Being asked for the first time.
    Incomplete,
    /// Known to be there.
    Reachable,
    /// Was there, and has not been heard of for a while.
    Stale,
    /// About to be asked again.
    Delay,
    /// Being asked again.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no asking.
    NoArp,
    /// Set by hand.
    Permanent,
}

/// What became of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourChange {
    /// Which one.
    pub key: NeighbourKey,
    /// What it is now; `None` if Linux has forgotten it.
    pub now: Option<Neighbour>,
}

/// What an event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What is other than before.
    pub changed: Changed,
    /// What Linux may have changed besides, without a word.
    pub doubt: Doubt,
}

/// What is other than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Nothing.
    Nothing,
    /// Interfaces, addresses, next-hop objects or routes.
    Tables,
    /// A neighbour.
    Neighbour(NeighbourChange),
}

/// What has to be asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing.
    None,
    /// Next-hop objects and routes. Linux says nothing of IPv4 routes that end with an interface, an address or a next-hop
    /// object, nor of next-hop objects that end with an interface.
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
    /// The interface of that name.
    pub fn link_named(&self, name: &str) -> Option<(LinkIndex, &Link)> {
        self.links.iter().find(|(_, link)| link.name == name).map(|(index, link)| (*index, link))
    }

    /// Says whether that is other than before.
    fn set_linkdown(&mut self, key: LinkdownKey, linkdown: Linkdown) -> bool {
        let ignored = linkdown == Linkdown::Ignored;
        if self.linkdown.contains(&key) == ignored {
            return false;
        }
        let all = Arc::make_mut(&mut self.linkdown);
        if ignored { all.insert(key) } else { all.remove(&key) }
    }

    /// Applies what Linux told.
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
                let doubt = if was.is_some_and(switched_off) { Doubt::Routes } else { Doubt::None };
                if changed {
                    Arc::make_mut(&mut self.links).insert(index, link);
                }
                tables(changed, doubt)
            }
            Event::LinkGone(index) => {
                for v6 in [false, true] {
                    self.set_linkdown(LinkdownKey { link: index, v6 }, Linkdown::Used);
                }
                let changed = self.links.contains_key(&index);
                if changed {
                    Arc::make_mut(&mut self.links).remove(&index);
                }
                tables(changed, Doubt::Routes)
            }
            Event::Linkdown(key, linkdown) => tables(self.set_linkdown(key, linkdown), Doubt::None),
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
            Event::Route(destination, route, placing) => {
                let changed = self.routes.get(&destination) != std::slice::from_ref(&route);
                let certainty = self.routes.put(destination, route, placing);
                tables(changed, certainty.into())
            }
            Event::RouteGone(destination, route) => {
                let changed = !self.routes.get(&destination).is_empty();
                let certainty = self.routes.take(destination, &route);
                tables(changed, certainty.into())
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
    /// The Ethernet address to send to, while Linux would send there, too.
    pub fn usable(&self) -> Option<Mac> {
        match self.reachability {
            Reachability::Incomplete | Reachability::Failed => None,
            _ => self.mac,
        }
    }
}
