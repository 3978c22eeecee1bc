//! Interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use wire::link::ETHERNET_OVERHEAD;
use wire::vlan::DropEligible;
use wire::{BitRate, Bytes, Dscp, Pcp, pppoe};

use super::{MulticastMiss, Ppp, Tunnel};

pub use wire::LinkKind;
pub use wire::atm::Vc;
pub use wire::ethernet::Mac;
pub use wire::rfc2684::{Channel, Encapsulation};

/// An interface of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface in the system.
    pub name: String,
    /// Zone of the interface's networks.
    pub zone: String,
    /// VRF of the interface; the default one where absent.
    pub vrf: Option<Arc<str>>,
    /// The gateway's own addresses on the interface, each with the prefix length of its network.
    pub addresses: Vec<IpNet>,
    /// Addresses that VRRP moves between this gateway and others: Linux has them, and answers for them, while this gateway is the
    /// active one. A masquerade shows them, active or not.
    pub virtual_addresses: Vec<IpAddr>,
    /// First header of the packets. A link without Ethernet has no link-layer addresses, neighbours or VLANs.
    pub link: LinkKind,
    /// Largest IP packet, 68 to 16000 bytes (at least 1280 with IPv6).
    pub mtu: u16,
    /// Rate of the link outwards, for shaping; none for a VLAN, whose frames share the parent's link.
    pub rate: Option<BitRate>,
    /// Rate of the device, as the host found it; counts where `rate` is none. No part of a policy's text.
    pub device_rate: Option<BitRate>,
    /// Packets to multicast groups without a route that come by it: no key of the file, but found on a live host.
    pub multicast_miss: MulticastMiss,
    /// Bytes that each frame takes of the rate beside those from the Ethernet (or IP) header on; by default those of the kind of
    /// link ([`Interface::overhead`]).
    pub overhead: Option<u16>,
    /// Link-layer address. With one, unicast frames for other addresses are dropped; without, all are accepted and the replay
    /// host makes up an address.
    pub mac: Option<Mac>,
    /// Parent interface, which carries this one's frames in VLANs, or its PPP session.
    pub parent: Option<String>,
    /// VLAN identifiers, outermost first: none, one (802.1Q) or two (QinQ), 1 to 4094 each.
    pub vlans: Vec<u16>,
    /// Priority code points of the VLAN tags of frames sent.
    pub pcp: PcpMap,
    /// Drop eligible indicator in the VLAN tags of frames sent, of packets that are yellow or red; it is clear in those of others.
    pub dei: DropEligible,
    /// Tag of VLAN 0, which says a priority only, on frames sent by an interface that is no VLAN.
    pub priority_tag: PriorityTag,
    /// Check of source addresses against the routes.
    pub source_check: SourceCheck,
    /// Clamping of the MSS of TCP connections across the interface.
    pub mss: MssClamp,
    /// Tunnel that is the interface's link; then the kind of link is [`LinkKind::Ip`].
    pub esp: Option<Box<Tunnel>>,
    /// ATM virtual channel that the interface's packets are carried in: routed on a link of IP, bridged on one of Ethernet.
    pub atm: Option<Atm>,
    /// PPP session that is the interface's link; then the kind of link is [`LinkKind::Ip`].
    pub ppp: Option<Box<Ppp>>,
}

impl Interface {
    /// MTU if not configured.
    pub const MTU: u16 = 1500;

    /// Returns an interface without addresses, with the defaults of the policy file.
    pub fn new(name: &str, zone: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            zone: zone.to_owned(),
            vrf: None,
            addresses: Vec::new(),
            virtual_addresses: Vec::new(),
            link: LinkKind::Ethernet,
            mtu: Interface::MTU,
            rate: None,
            device_rate: None,
            multicast_miss: MulticastMiss::Drop,
            overhead: None,
            mac: None,
            parent: None,
            vlans: Vec::new(),
            pcp: PcpMap::None,
            dei: DropEligible::No,
            priority_tag: PriorityTag::No,
            source_check: SourceCheck::Strict,
            mss: MssClamp::Off,
            esp: None,
            atm: None,
            ppp: None,
        }
    }

    /// MTU if not configured, of an interface whose link is a PPP session over Ethernet.
    pub const PPPOE_MTU: u16 = pppoe::MOST_MTU;

    /// True if frames sent have a VLAN tag, and with it a priority.
    pub fn is_tagged(&self) -> bool {
        !self.vlans.is_empty() || self.priority_tag == PriorityTag::Yes
    }

    /// Name of the interface by whose line the cells of an ATM channel come and go: its own, where it shares no other's.
    pub fn line(&self) -> &str {
        self.atm.as_ref().and_then(|atm| atm.line.as_deref()).unwrap_or(&self.name)
    }

    /// Bytes that each frame takes of the rate beside its own: as configured, else those of encapsulation and AAL5 trailer in an ATM
    /// channel, 24 on Ethernet (preamble, frame check sequence and gap) and none on links that carry bare IP packets.
    pub fn overhead(&self) -> Bytes {
        match (self.overhead, &self.atm, self.link) {
            (Some(bytes), _, _) => Bytes(bytes.into()),
            (None, Some(atm), _) if self.ppp.is_some() => atm.channel.ppp_overhead(),
            (None, Some(atm), kind) => atm.channel.overhead(kind),
            (None, None, LinkKind::Ethernet) => ETHERNET_OVERHEAD,
            (None, None, LinkKind::Ip) => Bytes(0),
        }
    }
}

/// ATM link of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Atm {
    /// Virtual channel, and encapsulation of its packets.
    pub channel: Channel,
    /// Interface by whose line the cells come and go; none where the interface has a line of its own.
    pub line: Option<String>,
    /// Own address and port of UDP that a live gateway carries the cells in; none where Linux has the link.
    pub local: Option<SocketAddr>,
    /// Address and port of the other end of UDP.
    pub remote: Option<SocketAddr>,
}

/// Priority code points of frames sent (IEEE 802.1Q), by the DiffServ code points that their packets leave with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PcpMap {
    /// 0 for all.
    #[default]
    None,
    /// The class selector, the upper three bits (RFC 2474, section 4.2.2): 5 for `ef`, 4 for `af41`.
    Selector,
    /// As listed; 0 for others.
    Listed(BTreeMap<Dscp, Pcp>),
}

impl PcpMap {
    /// Priority code point of packets with a DiffServ code point.
    pub fn get(&self, dscp: Dscp) -> Pcp {
        match self {
            PcpMap::None => Pcp::default(),
            PcpMap::Selector => Pcp::of_dscp(dscp),
            PcpMap::Listed(listed) => listed.get(&dscp).copied().unwrap_or_default(),
        }
    }
}

/// Tags that say a priority only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityTag {
    /// Frames have no such tag.
    #[default]
    No,
    /// Each frame has one.
    Yes,
}

/// Check of source addresses against the routes (unicast reverse path forwarding, RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// The best route back must leave by the interface of arrival.
    #[default]
    Strict,
    /// Some route back must lead on; the default route is one.
    Loose,
    /// No check.
    Off,
}

/// Lowering of the maximum segment size in TCP SYNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MssClamp {
    /// MSS left unchanged.
    #[default]
    Off,
    /// MSS that fits the smaller MTU of the path's two interfaces: less 40 bytes for IPv4, 60 for IPv6.
    Mtu,
    /// Largest MSS, in bytes, of [`MssClamp::RANGE`].
    Bytes(u16),
}

impl MssClamp {
    /// Values in bytes: from the least of IPv4 (RFC 9293, section 3.7.1) to what the largest MTU leaves.
    pub const RANGE: RangeInclusive<u16> = 536..=15_960;
}
