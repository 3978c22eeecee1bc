//! Interfaces.

use ipnet::IpNet;
use wire::link::ETHERNET_OVERHEAD;
use wire::{BitRate, Bytes};

pub use wire::LinkKind;
pub use wire::ethernet::Mac;

/// An interface of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as the system has it.
    pub name: String,
    /// The zone its networks belong to.
    pub zone: String,
    /// The gateway's own addresses on it, each with the length of its network's prefix.
    pub addresses: Vec<IpNet>,
    /// What its packets begin with. A link without Ethernet has no link-layer addresses, neighbours or VLANs.
    pub link: LinkKind,
    /// Largest IP packet it carries, 68 to 16000 bytes (1280 at least where it has IPv6).
    pub mtu: u16,
    /// Rate of its link outwards, where frames are to be sent no faster; none of a VLAN, whose frames take its parent's link.
    pub rate: Option<BitRate>,
    /// Bytes that count against the rate with each frame beside those from the Ethernet (or IP) header on, where it is not what the
    /// kind of link has ([`Interface::overhead`]).
    pub overhead: Option<u16>,
    /// Its link-layer address. Where it is given, unicast frames for others are dropped; where not, all are
    /// taken and the replay host makes an address up.
    pub mac: Option<Mac>,
    /// The interface that carries this one's frames in VLANs.
    pub parent: Option<String>,
    /// VLAN identifiers, outermost first: none, one (802.1Q) or two (QinQ), 1 to 4094 each.
    pub vlans: Vec<u16>,
    /// Source check: must source addresses be at home behind this interface?
    pub source_check: SourceCheck,
    /// Clamping of the MSS of TCP connections that cross this interface.
    pub mss: MssClamp,
}

impl Interface {
    /// Bytes that count against the rate with each frame beside its own: 24 on Ethernet (preamble, frame check sequence and gap), none
    /// on links that carry bare IP packets, or those that are given.
    pub fn overhead(&self) -> Bytes {
        match (self.overhead, self.link) {
            (Some(bytes), _) => Bytes(bytes.into()),
            (None, LinkKind::Ethernet) => ETHERNET_OVERHEAD,
            (None, LinkKind::Ip) => Bytes(0),
        }
    }
}

/// Check of source addresses against the routes (unicast reverse path forwarding, RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// The best route back must leave by the interface that the packet came in by.
    #[default]
    Strict,
    /// There must be some route back that leads on; the default route is one.
    Loose,
    /// None.
    Off,
}

/// Lowering of the maximum segment size that TCP SYNs announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MssClamp {
    /// Left as it is.
    #[default]
    Off,
    /// To what fits the smaller MTU of the path's two interfaces: less 40 bytes for IPv4, 60 for IPv6.
    Mtu,
    /// To at most this many bytes, 536 at least.
    Bytes(u16),
}
