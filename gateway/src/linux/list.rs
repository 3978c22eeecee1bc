//! Dumps of Linux's objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cow::Map;
use super::interface::{Link, LinkIndex, Linkdown, LinkdownKey, Settings, TableId};
use super::message::{AF_INET, AF_INET6, IP6MR, IPMR};
use super::multicast::{MulticastEntry, MulticastKey, MulticastRouter};
use super::route::{Object, Routes};
use super::socket::{Error, Operation, Request, Socket};
use super::state::{Event, Neighbour, NeighbourChange, NeighbourKey, State};

const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTM_GETNETCONF: u16 = 82;
const RTM_GETNEXTHOP: u16 = 106;

/// Lists all objects.
pub(super) fn state(socket: &mut Socket) -> Result<State, Error> {
    let links = links(socket)?;
    let addresses = socket.list(
        Request { operation: Operation::ListAddresses, kind: RTM_GETADDR, body: &[0; 8] },
        |list: &mut BTreeMap<_, _>, event| {
            if let Event::Address(key, address) = event {
                list.insert(key, address);
            }
        },
    )?;
    let objects = objects(socket)?;
    let mut state = State { links: Arc::new(links), ..State::default() };
    all_routes(socket, &mut state)?;
    let multicast = multicast(socket)?;
    let (mut linkdown, mut multicast_routers) = (BTreeSet::new(), BTreeSet::new());
    for family in [AF_INET, AF_INET6] {
        for (key, settings) in settings(socket, family)? {
            if settings.linkdown == Some(Linkdown::Ignored) {
                linkdown.insert(key);
            }
            if settings.multicast == Some(MulticastRouter::On) {
                multicast_routers.insert(key);
            }
        }
    }
    let neighbours = neighbours(socket)?;
    Ok(State {
        addresses: Arc::new(addresses),
        objects: Arc::new(objects),
        linkdown: Arc::new(linkdown),
        multicast: Arc::new(multicast),
        multicast_routers: Arc::new(multicast_routers),
        neighbours,
        ..state
    })
}

/// Lists interfaces.
pub(super) fn links(socket: &mut Socket) -> Result<BTreeMap<LinkIndex, Link>, Error> {
    const IFLA_EXT_MASK: u16 = 29;
    const SKIP_STATISTICS: u32 = 1 << 3;
    let mut body = vec![0; 16];
    body.extend(8_u16.to_ne_bytes());
    body.extend(IFLA_EXT_MASK.to_ne_bytes());
    body.extend(SKIP_STATISTICS.to_ne_bytes());
    let request = Request { operation: Operation::ListLinks, kind: RTM_GETLINK, body: &body };
    socket.list(request, |list: &mut BTreeMap<_, _>, event| {
        if let Event::Link(index, link) = event {
            list.insert(index, link);
        }
    })
}

/// Lists the sysctls of interfaces for an IP version.
fn settings(socket: &mut Socket, family: u8) -> Result<BTreeMap<LinkdownKey, Settings>, Error> {
    let operation = Operation::ListSettings;
    let request = Request { operation, kind: RTM_GETNETCONF, body: &[family, 0, 0, 0] };
    socket.list(request, |list: &mut BTreeMap<_, _>, event| {
        if let Event::Settings(key, settings) = event {
            list.insert(key, settings);
        }
    })
}

/// Lists the multicast forwarding caches of both IP versions.
pub(super) fn multicast(socket: &mut Socket) -> Result<BTreeMap<MulticastKey, MulticastEntry>, Error> {
    let mut all = BTreeMap::new();
    for family in [IPMR, IP6MR] {
        let mut body = [0; 12];
        body[0] = family;
        let request = Request { operation: Operation::ListRoutes, kind: RTM_GETROUTE, body: &body };
        // A kernel without a multicast router lists routes of other families.
        let list: BTreeMap<MulticastKey, MulticastEntry> =
            socket.list(request, |list: &mut BTreeMap<_, _>, event| {
                if let Event::Multicast(key, entry) = event {
                    list.insert(key, entry);
                }
            })?;
        all.extend(list);
    }
    Ok(all)
}

/// Lists neighbours.
pub(super) fn neighbours(socket: &mut Socket) -> Result<Map<NeighbourKey, Neighbour>, Error> {
    let mut neighbours = Map::default();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0; 12];
        body[0] = family;
        let request = Request { operation: Operation::ListNeighbours, kind: RTM_GETNEIGH, body: &body };
        let list: BTreeMap<NeighbourKey, Neighbour> =
            socket.list(request, |list: &mut BTreeMap<_, _>, event| {
                if let Event::Neighbour(NeighbourChange { key, now: Some(now) }) = event {
                    list.insert(key, now);
                }
            })?;
        for (key, neighbour) in list {
            neighbours.insert(key, neighbour);
        }
    }
    Ok(neighbours)
}

/// Lists next-hop objects.
pub(super) fn objects(socket: &mut Socket) -> Result<BTreeMap<u32, Object>, Error> {
    let request = Request { operation: Operation::ListObjects, kind: RTM_GETNEXTHOP, body: &[0; 8] };
    socket.list(request, |list: &mut BTreeMap<_, _>, event| {
        if let Event::Object(number, object) = event {
            list.insert(number, object);
        }
    })
}

/// Lists the routes of the main table and of those of VRF devices, into a state that has the devices.
pub(super) fn all_routes(socket: &mut Socket, state: &mut State) -> Result<(), Error> {
    let mut vrf_routes = BTreeMap::new();
    for v6 in [false, true] {
        let listed = routes(socket, v6, TableId::MAIN)?;
        state.routes.replace_version(v6, &listed);
    }
    for table in state.vrf_tables() {
        // What is the same goes on to be shared with copies.
        let mut known = state.vrf_routes.get(&table).cloned().unwrap_or_default();
        for v6 in [false, true] {
            let listed = routes(socket, v6, table)?;
            known.replace_version(v6, &listed);
        }
        vrf_routes.insert(table, known);
    }
    state.vrf_routes = Arc::new(vrf_routes);
    Ok(())
}

/// Lists the routes of a table, of one IP version.
fn routes(socket: &mut Socket, v6: bool, table: TableId) -> Result<Routes, Error> {
    const RTA_TABLE: u16 = 15;
    const COMPAT: u8 = 252;
    let mut body = vec![0; 12];
    body[0] = if v6 { AF_INET6 } else { AF_INET };
    body[4] = u8::try_from(table.0).unwrap_or(COMPAT);
    if table != TableId::MAIN {
        body.extend(8_u16.to_ne_bytes());
        body.extend(RTA_TABLE.to_ne_bytes());
        body.extend(table.0.to_ne_bytes());
    }
    let request = Request { operation: Operation::ListRoutes, kind: RTM_GETROUTE, body: &body };
    socket.list(request, |list: &mut Routes, event| {
        // Listed in the order in which Linux has them.
        match event {
            Event::Route(of, destination, route, _) if of == table => list.add(destination, route),
            _ => {}
        }
    })
}
