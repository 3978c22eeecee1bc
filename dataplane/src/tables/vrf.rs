//! VRFs: routing domains with routes and addresses of their own (Linux: VRF devices).
//!
//! A packet's VRF is that of the interface that it came in by; what the gateway itself sends is in that of the interface by which its own
//! stack sends it. A flow is in the VRF of its first packet, in both directions, but for the way to the target of a port forward, or to the
//! host of a mapping, that is in another.
//!
//! Numbers stay with names from one compilation to the next ([`Numbers`](super::Numbers)): flows and mappings refer to them. The default VRF
//! has the number and the place 0, so that nothing asks for more where there are no others.

use lookup::fib::{Fib4, Fib6};
use wire::ethernet;
use wire::{Frame, PortId, ipv4, ipv6};

use super::{Address, LOCAL, Tables, is_linux};

/// A VRF by its place in the tables: 0 for the default one, others from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VrfId(pub u8);

/// Number of a VRF, which stays with its name; 0 for the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VrfNumber(pub u8);

impl VrfId {
    /// The default VRF.
    pub const DEFAULT: VrfId = VrfId(0);
}

impl VrfNumber {
    /// The default VRF.
    pub const DEFAULT: VrfNumber = VrfNumber(0);
}

/// The most VRFs beside the default one: each has a zone at least.
pub(crate) const MOST: usize = super::MAX_ZONES;

/// Conntrack zones from here on are the gateway's own, one for each VRF.
pub(crate) const OWN_CT_ZONES: u16 = u16::MAX - u8::MAX as u16;

/// VRFs beside the default one, compiled.
#[derive(Default)]
pub struct Vrfs {
    /// They, by place from 1, in the order of the policy's interfaces.
    pub list: Vec<Vrf>,
    /// VRF of each interface; empty where there is only the default one.
    pub(crate) of_interface: Vec<VrfId>,
}

/// A VRF, compiled.
pub struct Vrf {
    /// Name.
    pub name: String,
    /// Number, which stays with the name.
    pub number: VrfNumber,
    /// Longest-prefix match; values are places in [`Tables::targets`].
    pub fib4: Fib4,
    /// Likewise for IPv6.
    pub fib6: Fib6,
}

impl Vrfs {
    /// True if there is only the default one.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The VRF at a place; `None` for the default one.
    #[inline(always)]
    pub fn get(&self, id: VrfId) -> Option<&Vrf> {
        self.list.get(usize::from(id.0).wrapping_sub(1))
    }

    /// Bytes of memory of their routes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.iter().map(|vrf| vrf.fib4.memory_bytes() + vrf.fib6.memory_bytes()).sum()
    }
}

impl Tables {
    /// The VRF of an interface; of the gateway itself, the default one.
    #[inline(always)]
    pub fn vrf_of(&self, interface: PortId) -> VrfId {
        self.vrfs.of_interface.get(usize::from(interface.0)).copied().unwrap_or_default()
    }

    /// The VRF of a packet before `route`: what Linux sends says by which interface.
    #[inline(always)]
    pub(crate) fn vrf_of_frame(&self, frame: &Frame) -> VrfId {
        if self.vrfs.is_empty() {
            return VrfId::DEFAULT;
        }
        let meta = &frame.meta;
        self.vrf_of(if meta.ingress == LOCAL { meta.egress } else { meta.ingress })
    }

    /// Number of the VRF at a place.
    #[inline(always)]
    pub fn vrf_number(&self, id: VrfId) -> VrfNumber {
        self.vrfs.get(id).map_or(VrfNumber::DEFAULT, |vrf| vrf.number)
    }

    /// The VRF of that number; `None` if it is gone.
    pub fn vrf_numbered(&self, number: VrfNumber) -> Option<VrfId> {
        if number == VrfNumber::DEFAULT {
            return Some(VrfId::DEFAULT);
        }
        let place = self.vrfs.list.iter().position(|vrf| vrf.number == number)?;
        u8::try_from(place + 1).ok().map(VrfId)
    }

    /// Name of the VRF of an interface; `None` for the default one.
    pub fn vrf_name(&self, interface: PortId) -> Option<&str> {
        self.vrfs.get(self.vrf_of(interface)).map(|vrf| vrf.name.as_str())
    }

    /// The conntrack zone of packets that come in, or leave, by an interface in a VRF: the gateway itself has one in each.
    #[inline(always)]
    pub(crate) fn ct_zone(&self, interface: PortId, vrf: VrfId) -> u16 {
        let own = self.interface(interface).map_or(0, |interface| interface.ct_zone);
        if vrf == VrfId::DEFAULT || interface != LOCAL {
            own
        } else {
            own - u16::from(self.vrf_number(vrf).0)
        }
    }

    /// The VRF of a flow that began in the gateway itself, by the conntrack zone of its first packet; `None` if it is gone.
    pub(crate) fn vrf_of_own(&self, ct_zone: u16) -> Option<VrfId> {
        self.vrf_numbered(VrfNumber((self.itself.ct_zone - ct_zone.max(OWN_CT_ZONES)) as u8))
    }

    /// The interface by which the gateway's own stack would send a frame, as far as a host does not know better: the first that has its
    /// source address. [`LOCAL`] where there is none, or all are in the default VRF.
    pub fn sender_of(&self, frame: &[u8]) -> PortId {
        let sender = || {
            if self.vrfs.is_empty() {
                return None;
            }
            let layer = ethernet::parse(frame).ok()?;
            let source = match ipv4::Header::of(layer.payload).filter(|header| header.version() == 4) {
                Some(header) => Address::v4(header.src_bits()),
                None => Address::v6(ipv6::Header::of(layer.payload)?.src_bits()),
            };
            let has =
                |own: &super::Interface| own.networks.iter().any(|net| Address::from(net.addr()) == source);
            let place = self.interfaces.iter().position(has)?;
            u16::try_from(place).ok().map(PortId)
        };
        sender().unwrap_or(LOCAL)
    }
}

/// The interface that a host gives with a frame of the gateway itself: see [`Tables::sender_of`].
pub(crate) fn note_sender(tables: &Tables, frame: &mut Frame) {
    if is_linux(frame.meta.ingress) && !tables.vrfs.is_empty() {
        frame.meta.egress = tables.sender_of(frame.bytes());
    }
}
