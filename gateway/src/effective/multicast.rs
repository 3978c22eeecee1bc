//! Multicast routes of Linux: the entries of its multicast forwarding cache, which a daemon programs. Interfaces that the policy does
//! not name are left out: by them Linux forwards itself, if at all.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use policy::Policy;
use policy::model::{MulticastExit, MulticastMiss, MulticastRoute};

use super::{Routing, Why};
use crate::linux::interface::LinkdownKey;
use crate::linux::multicast::MulticastKey;
use crate::linux::{LinkIndex, State};

/// Treatment of packets to groups without a route that come by an interface.
pub(super) fn miss(link: LinkIndex, state: &State) -> MulticastMiss {
    let is_router = |v6| state.multicast_routers.contains(&LinkdownKey { link, v6 });
    if is_router(false) || is_router(true) { MulticastMiss::Punt } else { MulticastMiss::Drop }
}

impl Routing<'_> {
    pub(super) fn add_multicast_to(&mut self, made: &mut Policy) {
        let own: HashSet<(IpNet, Option<IpAddr>)> =
            made.multicast_routes.iter().map(|route| (route.group.trunc(), route.source)).collect();
        let state = self.state;
        for (key, entry) in state.multicast.iter() {
            let (group, source) = (groups(key), Some(key.source).filter(|source| !source.is_unspecified()));
            if own.contains(&(group, source)) {
                self.leave_out(Why::PolicyWins, group);
                continue;
            }
            if made.multicast_routes.len() >= MulticastRoute::MOST {
                self.leave_out(Why::TooMany, group);
                continue;
            }
            let Some(from) = self.names.get(&entry.from) else {
                self.leave_out(Why::ForeignInterface(self.name(entry.from)), group);
                continue;
            };
            let from = (*from).to_owned();
            let mut to = Vec::with_capacity(entry.to.len());
            for exit in entry.to.iter().filter(|exit| exit.link != entry.from) {
                match self.names.get(&exit.link) {
                    Some(name) => to.push(MulticastExit {
                        interface: (*name).to_owned(),
                        // Nothing leaves whose time to live is 1.
                        threshold: exit.threshold.max(MulticastExit::THRESHOLD),
                    }),
                    None => self.leave_out(Why::ForeignInterface(self.name(exit.link)), group),
                }
            }
            made.multicast_routes.push(MulticastRoute { group, source, from, to });
        }
    }
}

/// Group of an entry, or all groups.
fn groups(key: &MulticastKey) -> IpNet {
    match key.group {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4).into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8).into()
        }
        group => group.into(),
    }
}
