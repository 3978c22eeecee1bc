//! Inference of the interface by which a packet came in, from its addresses.
//!
//! A packet comes in by the interface of the best route to its source. Packets without such a source (DHCP, link-local
//! addresses, other protocols) come in by the interface of their sender's other packets.

use std::collections::HashMap;
use std::net::IpAddr;

use dataplane::Tables;
use dataplane::stage::parse::vlan;
use dataplane::tables::{Address, Target, VrfId};
use tally::NoTally;
use wire::capture::link::NOBODY;
use wire::ethernet::{self, EtherType, Mac};
use wire::{PortId, arp, ipv4, ipv6};

/// Evidence for the interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// The command line says it.
    Given,
    /// The capture names its interface as the policy does.
    CaptureName,
    /// The file is called as the interface.
    FileName,
    /// The source is on a network, or behind a route, of the interface.
    Home,
    /// Other packets of the same sender came in by the interface.
    Sender,
    /// Only the default route leads to the source.
    DefaultRoute,
    /// Only the default route leads to the source, a private address, which nobody has behind a default route to the
    /// internet.
    PrivateSource,
    /// No evidence: the interface of the default route, or the first one.
    Nothing,
}

impl How {
    /// Returns the evidence in words, behind "entered by X: ".
    pub fn text(self) -> &'static str {
        match self {
            How::Given => "as said",
            How::CaptureName => "the capture names this interface",
            How::FileName => "the file is called like it",
            How::Home => "their sources are at home there",
            How::Sender => "other packets of their senders came in there",
            How::DefaultRoute => "only the default route leads to their sources",
            How::PrivateSource => {
                "only the default route leads to their sources, which are private addresses"
            }
            How::Nothing => "nothing else was known",
        }
    }

    /// A word for scripts.
    pub fn name(self) -> &'static str {
        match self {
            How::Given => "given",
            How::CaptureName => "capture-interface",
            How::FileName => "file-name",
            How::Home => "source-address",
            How::Sender => "sender",
            How::DefaultRoute => "default-route",
            How::PrivateSource => "default-route-private",
            How::Nothing => "none",
        }
    }

    /// True if it was inferred from each packet's addresses.
    pub fn is_by_address(self) -> bool {
        self >= How::Home
    }
}

/// Senders remembered, at most.
const SENDERS: usize = 4096;

/// Table of senders, with the interface behind which each is.
pub(super) struct Homes {
    /// Interface of senders of whom nothing is known.
    fallback: PortId,
    default4: Option<PortId>,
    default6: Option<PortId>,
    senders: HashMap<Mac, PortId>,
}

impl Homes {
    /// Returns an empty table: no packet has been seen yet.
    pub(super) fn new(tables: &Tables) -> Homes {
        let default4 = default_route(tables, false);
        let default6 = default_route(tables, true);
        let fallback = default4.or(default6).unwrap_or(PortId(0));
        Homes { fallback, default4, default6, senders: HashMap::new() }
    }

    /// Returns the interface by which `frame` came in, and the evidence.
    pub(super) fn find(&mut self, frame: &[u8], tables: &Tables) -> (PortId, How) {
        let Ok(layer) = ethernet::parse(frame) else { return (self.fallback, How::Nothing) };
        let sender = layer.header.src();
        let source: Option<IpAddr> = match layer.ethertype {
            EtherType::IPV4 => ipv4::Header::of(layer.payload).map(|header| header.src().into()),
            EtherType::IPV6 => ipv6::Header::of(layer.payload).map(|header| header.src().into()),
            EtherType::ARP => arp::parse(layer.payload).ok().map(|packet| packet.sender_ip().into()),
            _ => None,
        };
        if let Some((home, how)) = source.and_then(|source| self.home(source, tables)) {
            if sender != NOBODY && (self.senders.len() < SENDERS || self.senders.contains_key(&sender)) {
                self.senders.insert(sender, home);
            }
            return (carrier(frame, home, tables), how);
        }
        match self.senders.get(&sender) {
            Some(home) => (carrier(frame, *home, tables), How::Sender),
            None => (carrier(frame, self.fallback, tables), How::Nothing),
        }
    }

    /// The interface behind which an address is at home.
    fn home(&self, source: IpAddr, tables: &Tables) -> Option<(PortId, How)> {
        let elsewhere = match source {
            IpAddr::V4(v4) => v4.is_unspecified() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unspecified() || v6.segments()[0] & 0xffc0 == 0xfe80,
        };
        if elsewhere {
            return None;
        }
        // A network that the interface is on says more than the route, which for the gateway's own address
        // leads to the gateway.
        let linked = tables
            .interfaces
            .iter()
            .position(|interface| interface.networks.iter().any(|network| network.contains(&source)));
        if let Some(place) = linked {
            return Some((PortId(place as u16), How::Home));
        }
        let default = if source.is_ipv4() { self.default4 } else { self.default6 };
        let target = tables.route(VrfId::DEFAULT, Address::from(source), &mut NoTally)?;
        let leads = (0..tables.interfaces.len())
            .map(|place| PortId(place as u16))
            .find(|interface| tables.leads_by(target, *interface))?;
        let is_default = Some(target) == default_target(tables, source.is_ipv6());
        match default {
            Some(default) if is_default && is_private(source) => Some((default, How::PrivateSource)),
            Some(default) if is_default => Some((default, How::DefaultRoute)),
            _ => Some((leads, How::Home)),
        }
    }
}

/// RFC 1918 and RFC 4193.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xfe00 == 0xfc00,
    }
}

/// Returns the interface whose port receives a frame for `interface`: a tagged frame comes in by the port that carries
/// the VLAN, where its tags are read.
pub(super) fn carrier(frame: &[u8], interface: PortId, tables: &Tables) -> PortId {
    let tagged = ethernet::Header::of(frame).is_some_and(|header| header.ethertype().is_vlan());
    match tables.interface(interface) {
        Some(own) if tagged => own.root,
        _ => interface,
    }
}

/// Returns the destination link-layer address that a frame needs to be accepted at `port`.
pub(super) fn receiver(frame: &[u8], port: PortId, tables: &Tables) -> Mac {
    let Some(own) = tables.interface(port) else { return Mac::ZERO };
    let Ok(layer) = ethernet::parse(frame) else { return own.mac };
    vlan(port, &own.vlans, &layer.tags).and_then(|id| tables.interface(id)).map_or(own.mac, |vlan| vlan.mac)
}

/// Returns the target of the default route: the best route to an address that nobody has a narrower route for.
fn default_target(tables: &Tables, v6: bool) -> Option<&Target> {
    // 192.0.0.8 (RFC 7600) and 100::/64's last (RFC 6666): no route but the default one leads there.
    let nobody =
        if v6 { Address::v6((0x100 << 112) | u128::from(u64::MAX)) } else { Address::v4(0xc000_0008) };
    tables.route(VrfId::DEFAULT, nobody, &mut NoTally)
}

/// The interface of the default route.
pub fn default_route(tables: &Tables, v6: bool) -> Option<PortId> {
    let target = default_target(tables, v6)?;
    (0..tables.interfaces.len())
        .map(|place| PortId(place as u16))
        .find(|interface| tables.leads_by(target, *interface))
}
