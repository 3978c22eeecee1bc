//! WANs as they are: up while their interface runs and their check is passed, with the routers of Linux's default routes where the policy
//! names none.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use policy::Policy;
use policy::model::{Interface, Wan, WanState};

use super::Place;
use crate::linux::interface::Condition;
use crate::linux::{LinkIndex, OURS, State};
use crate::wan::Standing;

/// Default routes of both IP versions.
const EVERYWHERE: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED, 0)),
    IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::UNSPECIFIED, 0)),
];

/// Sets states and routers of the WANs, and returns their standings.
pub(super) fn follow(
    made: &mut Policy,
    places: &[Place],
    state: &State,
    failed: &BTreeSet<String>,
) -> Vec<Standing> {
    let Policy { wans, interfaces, .. } = made;
    let mut standings = Vec::with_capacity(wans.len());
    for wan in wans {
        let found = interfaces.iter().zip(places).find(|(interface, _)| interface.name == wan.interface);
        let (interface, place) = match found {
            Some((interface, place)) => (Some(interface), *place),
            None => (None, Place::Absent),
        };
        if let Place::Link(index) = place {
            for everywhere in EVERYWHERE {
                if wan.gateway(everywhere.addr()).is_none() {
                    wan.gateways.extend(learnt(everywhere, index, state));
                }
            }
        }
        let standing = standing(wan, interface, place, state, failed);
        if standing != Standing::Up {
            wan.state = WanState::Down;
        }
        standings.push(standing);
    }
    standings
}

fn standing(
    wan: &Wan,
    interface: Option<&Interface>,
    place: Place,
    state: &State,
    failed: &BTreeSet<String>,
) -> Standing {
    let condition = match place {
        Place::Link(index) => state.links.get(&index).map_or(Condition::Down, |link| link.condition),
        // Made by the gateway: nobody says that it has no carrier.
        Place::Soft => Condition::Running,
        Place::Absent => Condition::Down,
    };
    let is_carried = |net: &IpNet| interface.is_some_and(|own| wan.carries(net.addr(), own));
    match condition {
        _ if wan.state == WanState::Down => Standing::OutOfService,
        Condition::Down => Standing::NoInterface,
        Condition::NoCarrier => Standing::NoCarrier,
        Condition::Running if !EVERYWHERE.iter().any(is_carried) => Standing::NoGateway,
        Condition::Running if failed.contains(&wan.name) => {
            let is_by_url = wan.check.as_ref().is_some_and(|check| !check.urls.is_empty());
            if is_by_url { Standing::UrlFailed } else { Standing::Unanswered }
        }
        Condition::Running => Standing::Up,
    }
}

/// The router of the best of Linux's default routes of an IP version that leaves by a link.
fn learnt(everywhere: IpNet, index: LinkIndex, state: &State) -> Option<IpAddr> {
    let routes =
        state.routes.get(&everywhere).iter().filter(|route| route.protocol != OURS && route.tos == 0);
    let mut hops = routes.flat_map(|route| route.target.hops()).filter(|hop| hop.link == Some(index));
    hops.find_map(|hop| hop.via.filter(|via| via.is_ipv4() == everywhere.addr().is_ipv4()))
}
