//! WANs: links that share the default routes, and the choice among them.
//!
//! New flows are spread over slots by weighted rendezvous hashing (`rendezvous.rs`), by names, weights and states.

use policy::model::{OnFailure, Sticky, WanState, WhenDown};
use tally::{Op, Region, Tally};
use wire::{Family, PortId};

use super::Address;
use super::rendezvous::{self, Member, SLOTS, hash_of};
use crate::verdict::Reason;
use lookup::classify::{self, Classifier, Header};

/// Place of no WAN.
const NO_WAN: u8 = u8::MAX;

/// A WAN by its place in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WanId(pub u8);

/// The WANs of a policy, compiled.
#[derive(Default)]
pub struct Wans {
    /// The WANs, in the order of the policy.
    pub list: Vec<Wan>,
    /// Policy routes, in the order of the policy.
    pub routes: Vec<PolicyRoute>,
    /// Search of the policy routes; none where there are no policy routes.
    pub(crate) search: Option<RouteSearch>,
    /// New flows that keep to one WAN.
    pub sticky: Sticky,
    /// WAN of each interface, [`NO_WAN`] of others.
    of_interface: Vec<u8>,
    /// WAN of each slot, for IPv4 and IPv6; no slots where no WAN is up.
    slots: [Vec<u8>; 2],
}

/// A WAN, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wan {
    /// Name.
    pub name: String,
    /// Interface that its packets leave by.
    pub interface: PortId,
    /// The interface's own addresses.
    pub own: Vec<Address>,
    /// Paths of IPv4 and IPv6 packets.
    pub paths: [Path; 2],
    /// Share of new flows.
    pub weight: u8,
    /// Order of use: lower first.
    pub tier: u8,
    /// State.
    pub state: WanState,
    /// Treatment of its flows when it goes down.
    pub on_failure: OnFailure,
}

/// Path of the packets of one IP version that leave by a WAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// None: the WAN has no router of that version.
    None,
    /// By a router, a place in [`Tables::gateways`](super::Tables::gateways).
    Router(u32),
    /// On the link itself, which needs no router.
    Link,
}

/// A policy route, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRoute {
    /// Name.
    pub name: String,
    /// WAN of its flows.
    pub via: WanId,
    /// Treatment of new flows while that WAN is down.
    pub when_down: WhenDown,
}

/// Search of policy routes.
pub(crate) struct RouteSearch {
    /// Search of patterns, of which a route has several where it asks for dynamic sets.
    pub(crate) classifier: Box<dyn Classifier>,
    /// Places of the routes that the patterns are of.
    pub(crate) route_of: Vec<u16>,
}

impl RouteSearch {
    /// Place of the first policy route that matches.
    fn find(&self, seen: &Header) -> Option<u16> {
        self.route_of.get(self.classifier.classify(seen)? as usize).copied()
    }
}

/// WAN of a new flow, with the grounds of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The WAN.
    pub wan: WanId,
    /// The grounds.
    pub grounds: Grounds,
}

/// Grounds for the choice of a WAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// The packet is the gateway's own, with the address of the WAN's interface as source.
    Source,
    /// The policy route at a place.
    PolicyRoute(u16),
    /// The WAN's share of new flows, by hash.
    Share,
    /// Likewise, as the WAN of the policy route at a place is down.
    FellBack(u16),
}

/// Packet whose WAN is to be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// IP version.
    pub family: Family,
    /// Source address, if the packet is the gateway's own.
    pub own_source: Option<Address>,
    /// Hash that the WAN is found by ([`Wans::spread`]).
    pub hash: u32,
}

impl Wans {
    /// WANs, with their slots.
    pub(crate) fn new(
        list: Vec<Wan>,
        routes: Vec<PolicyRoute>,
        search: Option<RouteSearch>,
        interfaces: usize,
        sticky: Sticky,
    ) -> Wans {
        let mut of_interface = vec![NO_WAN; interfaces];
        for (place, wan) in (0..).zip(&list) {
            if let Some(entry) = of_interface.get_mut(usize::from(wan.interface.0)) {
                *entry = place;
            }
        }
        let slots = [Family::V4, Family::V6].map(|family| slots(&list, family));
        Wans { list, routes, search, sticky, of_interface, slots }
    }

    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The WAN at a place.
    pub fn get(&self, id: WanId) -> Option<&Wan> {
        self.list.get(usize::from(id.0))
    }

    /// The WAN of an interface, if it is one's.
    pub fn at(&self, interface: PortId) -> Option<WanId> {
        let place = *self.of_interface.get(usize::from(interface.0))?;
        (place != NO_WAN).then_some(WanId(place))
    }

    /// The WAN of an interface, if packets of the IP version can leave by it.
    pub fn carrying(&self, interface: PortId, family: Family) -> Option<WanId> {
        self.at(interface).filter(|id| self.path(*id, family) != Path::None)
    }

    /// The WAN whose interface has an address, if packets of its IP version can leave by that WAN.
    pub fn owner(&self, address: Address) -> Option<WanId> {
        let has = |wan: &&Wan| wan.own.contains(&address);
        self.carrying(self.list.iter().find(has)?.interface, address.family())
    }

    /// Path of packets of an IP version that leave by a WAN.
    pub fn path(&self, id: WanId, family: Family) -> Path {
        self.get(id).map_or(Path::None, |wan| wan.path(family))
    }

    /// Chooses the WAN of a new flow. `seen` gives its header, for policy routes, with its memberships in sets.
    ///
    /// # Errors
    /// [`Reason::RouteMissing`] where no WAN is up; [`Reason::WanDown`] where a policy route has its flows dropped meanwhile.
    pub fn choose<T: Tally>(
        &self,
        asked: Asked,
        seen: impl FnOnce(&mut T) -> Header,
        tally: &mut T,
    ) -> Result<Choice, Reason> {
        let Asked { family, own_source, hash } = asked;
        // Whose packet it is, 2; are there policy routes, 2; the slot by a multiplication, place and bound, 8; its WAN, 3.
        tally.instructions(15);
        tally.execute(Op::Branch, 5);
        if let Some(wan) = own_source.and_then(|source| self.owner(source)) {
            return Ok(Choice { wan, grounds: Grounds::Source });
        }
        let mut grounds = Grounds::Share;
        if let Some(search) = self.search.as_ref().filter(|_| own_source.is_none()) {
            let seen = seen(tally);
            classify::tell(search.classifier.as_ref(), &seen, tally);
            let found = search.find(&seen).and_then(|place| {
                let route = self.routes.get(usize::from(place))?;
                Some((place, route))
            });
            if let Some((place, route)) = found {
                if self.get(route.via).is_some_and(|wan| wan.takes(family)) {
                    return Ok(Choice { wan: route.via, grounds: Grounds::PolicyRoute(place) });
                }
                if route.when_down == WhenDown::Drop {
                    return Err(Reason::WanDown);
                }
                grounds = Grounds::FellBack(place);
            }
        }
        let wan = self.share(family, hash, tally).ok_or(Reason::RouteMissing)?;
        Ok(Choice { wan, grounds })
    }

    /// Hash that a new flow's WAN is found by: the flow's own, or that of its source address before translation.
    #[inline]
    pub fn spread<T: Tally>(&self, source: Address, hash: u32, tally: &mut T) -> u32 {
        if self.sticky == Sticky::Source {
            // Both halves of the address, mixed by three multiplications.
            tally.instructions(24);
        }
        rendezvous::spread(self.sticky, source, hash)
    }

    /// The WAN whose share of new flows a hash is in; `None` where no WAN is up.
    pub(crate) fn share<T: Tally>(&self, family: Family, hash: u32, tally: &mut T) -> Option<WanId> {
        let slots = &self.slots[of(family)];
        let slot = rendezvous::slot_of(hash, slots.len());
        tally.read(Region::RouteTable, slot, 1);
        slots.get(slot).copied().map(WanId)
    }

    /// The policy route that a header is of, with its memberships in sets.
    pub fn policy_route(&self, seen: &Header) -> Option<&PolicyRoute> {
        self.routes.get(usize::from(self.search.as_ref()?.find(seen)?))
    }

    /// Number of slots of each WAN, of an IP version.
    pub fn shares(&self, family: Family) -> Vec<usize> {
        let mut shares = vec![0; self.list.len()];
        for wan in &self.slots[of(family)] {
            if let Some(share) = shares.get_mut(usize::from(*wan)) {
                *share += 1;
            }
        }
        shares
    }

    /// Bytes of the search and the slots in the memory of a network processor.
    pub(crate) fn region_bytes(&self) -> u64 {
        let search = self.search.as_ref().map_or(0, |search| search.classifier.region_bytes());
        search + self.slots.iter().map(|slots| slots.len() as u64).sum::<u64>()
    }

    /// Size of the choice in an engine's control store, in instructions.
    pub(crate) fn program(&self) -> u32 {
        if self.is_empty() {
            0
        } else {
            90 + self.search.as_ref().map_or(0, |search| search.classifier.program())
        }
    }
}

impl Wan {
    /// Path of packets of an IP version.
    pub fn path(&self, family: Family) -> Path {
        self.paths[of(family)]
    }

    /// True if new flows of an IP version may go by it.
    pub fn takes(&self, family: Family) -> bool {
        self.state == WanState::Up && self.path(family) != Path::None
    }
}

const fn of(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        _ => 1,
    }
}

/// Slots of an IP version, shared by the WANs of the lowest tier with any that is up.
fn slots(list: &[Wan], family: Family) -> Vec<u8> {
    let usable = || (0_u8..).zip(list).filter(|(_, wan)| wan.takes(family));
    let Some(tier) = usable().map(|(_, wan)| wan.tier).min() else { return Vec::new() };
    let members: Vec<Member<u8>> = usable()
        .filter(|(_, wan)| wan.tier == tier)
        .map(|(place, wan)| Member { place, name: hash_of(&wan.name), weight: wan.weight.into() })
        .collect();
    rendezvous::owners(&members, SLOTS).collect()
}

#[cfg(test)]
mod tests;
