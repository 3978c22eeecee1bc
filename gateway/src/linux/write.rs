//! Requests to Linux, on a socket of their own: resolving neighbours, reconciling addresses and routes with the policy,
//! setting up interfaces.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressProtocol};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol, RouteScope,
    RouteType,
};
use rustix::io::Errno;
use wire::ethernet::Mac;

use super::desired::{Desired, Device, OURS, Step};
use super::interface::TableId;
use super::message::{Body, RTM_DELADDR, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE};
use super::route::{Hop, Route, Target};
use super::socket::{Enough, Error, Operation, Socket};
use super::state::{AddressKey, NeighbourKey, State};

/// Sender of requests to Linux.
#[derive(Debug)]
pub struct Writer {
    socket: Socket,
}

impl Writer {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// No netlink socket.
    pub fn open() -> Result<Writer, Error> {
        Ok(Writer { socket: Socket::open()? })
    }

    /// Requests resolution of a neighbour, or confirmation of its reachability, as if Linux had a packet to send to it.
    /// The answer arrives as an event.
    ///
    /// # Errors
    ///
    /// Interface gone, or neighbour table full.
    pub fn resolve(&mut self, key: NeighbourKey) -> Result<(), Error> {
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family: family(key.address),
            ifindex: key.link.0,
            flags: NeighbourFlags::Use,
            ..NeighbourHeader::default()
        };
        let address = match key.address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes.push(NeighbourAttribute::Destination(address));
        let refused = self.request(RTM_NEWNEIGH, NLM_F_CREATE, &message);
        refused.map_err(|refusal| {
            refusal.of(Operation::Resolve, format!("{} on interface {}", key.address, key.link.0))
        })
    }

    /// Reconciles Linux, whose state is given, with the desired state: of the gateway's entries, no others remain;
    /// entries of others stay. Continues after a refusal, and returns all refusals. To be called again when the state
    /// changes.
    pub fn ensure(&mut self, desired: &Desired, state: &State) -> Vec<Error> {
        desired.plan(state).iter().filter_map(|step| self.carry_out(step).err()).collect()
    }

    /// Carries out one step of [`Desired::plan`].
    ///
    /// # Errors
    ///
    /// Refusal by Linux. Removing an absent entry or adding a present one is no error.
    pub fn carry_out(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::AddAddress(device, net) => {
                let key = AddressKey { link: device.index, net: *net, peer: None };
                settled(self.request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &address(&key)), EXISTS)
                    .map_err(|refusal| refusal.of(Operation::AddAddress, on(net, device)))
            }
            Step::RemoveAddress(device, key) => {
                let kept = keep_secondaries(key, device);
                let removed = self.request(RTM_DELADDR, 0, &address(key));
                drop(kept);
                settled(removed, ADDRESS_GONE)
                    .map_err(|refusal| refusal.of(Operation::RemoveAddress, on(&key.net, device)))
            }
            Step::AddRoute(table, destination, wanted) => {
                let message = route(*table, *destination, wanted);
                // Without NLM_F_EXCL, an IPv4 route goes in front of others of its metric; an IPv6 route would join them.
                let flags = if destination.addr().is_ipv4() { 0 } else { NLM_F_EXCL };
                settled(self.request(RTM_NEWROUTE, NLM_F_CREATE | flags, &message), EXISTS)
                    .map_err(|refusal| refusal.of(Operation::AddRoute, in_table(destination, *table)))
            }
            Step::RemoveRoute(table, destination, known) => {
                let message = route(*table, *destination, known);
                settled(self.request(RTM_DELROUTE, 0, &message), ROUTE_GONE)
                    .map_err(|refusal| refusal.of(Operation::RemoveRoute, in_table(destination, *table)))
            }
        }
    }

    /// Switches an interface on.
    ///
    /// # Errors
    ///
    /// No such interface, or refusal by Linux.
    pub fn switch_on(&mut self, device: &str) -> Result<(), Error> {
        let mut message = link(device);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set(Operation::SwitchOn, device, &message)
    }

    /// Sets the MTU of an interface, in bytes.
    ///
    /// # Errors
    ///
    /// As for [`Writer::switch_on`].
    pub fn set_mtu(&mut self, device: &str, mtu: u16) -> Result<(), Error> {
        let mut message = link(device);
        message.attributes.push(LinkAttribute::Mtu(mtu.into()));
        self.set(Operation::SetMtu, device, &message)
    }

    /// Sets the MAC address of an interface.
    ///
    /// # Errors
    ///
    /// As for [`Writer::switch_on`].
    pub fn set_mac(&mut self, device: &str, mac: Mac) -> Result<(), Error> {
        let mut message = link(device);
        message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
        self.set(Operation::SetMac, device, &message)
    }

    /// Prevents Linux from giving an interface a link-local address, and so from sending packets of its own. To be
    /// called before the interface is switched on.
    ///
    /// # Errors
    ///
    /// As for [`Writer::switch_on`].
    pub fn forbid_link_local(&mut self, device: &str) -> Result<(), Error> {
        let mut message = link(device);
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
        self.set(Operation::ForbidLinkLocal, device, &message)
    }

    fn set(&mut self, operation: Operation, device: &str, message: &LinkMessage) -> Result<(), Error> {
        self.request(RTM_NEWLINK, 0, message).map_err(|refusal| refusal.of(operation, device.to_owned()))
    }

    /// Sends a message and waits for its answer.
    fn request(&mut self, kind: u16, flags: u16, message: &impl Emitable) -> Result<(), Refusal> {
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        let failed = |error| Refusal { error, explanation: String::new() };
        let sequence = self.socket.send(kind, flags | NLM_F_ACK, &body).map_err(failed)?;
        let mut outcome = Ok(());
        self.socket
            .answers(sequence, |message| match message.body {
                Body::Answer(0, _) => Enough::Yes,
                Body::Answer(error, explanation) => {
                    outcome = Err(Refusal { error: io::Error::from_raw_os_error(-error), explanation });
                    Enough::Yes
                }
                _ => Enough::No,
            })
            .map_err(failed)?;
        outcome
    }
}

/// Refusal of a request by Linux.
struct Refusal {
    error: io::Error,
    explanation: String,
}

impl Refusal {
    fn of(self, operation: Operation, subject: String) -> Error {
        Error { operation, subject: Some(subject), error: self.error, explanation: self.explanation }
    }
}

/// Errors of an addition whose entry is present.
const EXISTS: &[Errno] = &[Errno::EXIST];

/// Errors of a removal whose route is absent.
const ROUTE_GONE: &[Errno] = &[Errno::SRCH];

/// Errors of a removal whose address, or its interface, is absent.
const ADDRESS_GONE: &[Errno] = &[Errno::ADDRNOTAVAIL, Errno::NODEV];

/// Treats some errors as success.
fn settled(outcome: Result<(), Refusal>, as_good: &[Errno]) -> Result<(), Refusal> {
    outcome.or_else(|refusal| match Errno::from_io_error(&refusal.error) {
        Some(error) if as_good.contains(&error) => Ok(()),
        _ => Err(refusal),
    })
}

fn on(net: &IpNet, device: &Device) -> String {
    format!("{net} on \"{}\"", device.name)
}

fn in_table(destination: &IpNet, table: TableId) -> String {
    match table {
        TableId::MAIN => destination.to_string(),
        TableId(number) => format!("{destination} in table {number}"),
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn link(device: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(device.to_owned()));
    message
}

fn address(key: &AddressKey) -> AddressMessage {
    let own = key.net.addr();
    let mut message = AddressMessage::default();
    message.header.family = family(own);
    message.header.prefix_len = key.net.prefix_len();
    message.header.index = key.link.0;
    message.attributes.push(AddressAttribute::Local(own));
    message.attributes.push(AddressAttribute::Address(key.peer.unwrap_or(own)));
    message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(OURS)));
    match key.net {
        // RFC 3021: a /31 has no broadcast address.
        IpNet::V4(net) if net.prefix_len() < 31 => {
            message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
        }
        _ => {}
    }
    message
}

fn route(table: TableId, destination: IpNet, route: &Route) -> RouteMessage {
    let v4 = destination.addr().is_ipv4();
    let by_router = route.target.hops().iter().any(|hop| hop.via.is_some());
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(destination.addr()),
        destination_prefix_length: destination.prefix_len(),
        tos: route.tos,
        // One of a larger number is in the attribute alone.
        table: u8::try_from(table.0).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
        protocol: RouteProtocol::from(route.protocol),
        scope: if v4 && !by_router && !route.target.hops().is_empty() {
            RouteScope::Link
        } else {
            RouteScope::Universe
        },
        kind: match route.target {
            Target::Blackhole => RouteType::BlackHole,
            Target::Unreachable => RouteType::Unreachable,
            Target::Prohibit => RouteType::Prohibit,
            Target::Other(kind) => RouteType::from(kind),
            Target::One(_) | Target::Many(_) | Target::Object(_) => RouteType::Unicast,
        },
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(table.0));
    attributes.push(RouteAttribute::Destination(destination.addr().into()));
    attributes.push(RouteAttribute::Priority(route.metric));
    match &route.target {
        Target::One(hop) => {
            attributes.extend(gateway(hop));
            attributes.extend(hop.link.map(|link| RouteAttribute::Oif(link.0)));
        }
        Target::Many(hops) => {
            let next = |hop: &Hop| {
                let mut next = RouteNextHop::default();
                next.hops = hop.weight.saturating_sub(1).min(255) as u8;
                next.interface_index = hop.link.map_or(0, |link| link.0);
                next.attributes.extend(gateway(hop));
                next
            };
            attributes.push(RouteAttribute::MultiPath(hops.iter().map(next).collect()));
        }
        Target::Object(number) => attributes.push(RouteAttribute::NhId(*number)),
        Target::Blackhole | Target::Unreachable | Target::Prohibit | Target::Other(_) => {}
    }
    message
}

fn gateway(hop: &Hop) -> Option<RouteAttribute> {
    hop.via.map(|via| RouteAttribute::Gateway(RouteAddress::from(via)))
}

/// Temporary `promote_secondaries` of an interface, restored when dropped: Linux keeps an IPv4 network's other
/// addresses, which others may have added, when its first one is removed.
struct KeepSecondaries {
    path: PathBuf,
}

fn keep_secondaries(key: &AddressKey, device: &Device) -> Option<KeepSecondaries> {
    if !key.net.addr().is_ipv4() {
        return None;
    }
    let path = PathBuf::from("/proc/sys/net/ipv4/conf").join(&device.name).join("promote_secondaries");
    let was = fs::read_to_string(&path).ok()?;
    // Where it cannot be set, Linux does as it does.
    (was.trim() == "0" && fs::write(&path, "1").is_ok()).then_some(KeepSecondaries { path })
}

impl Drop for KeepSecondaries {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = fs::write(&self.path, "0");
    }
}
