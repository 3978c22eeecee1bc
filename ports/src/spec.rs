//! Specification of a port: interface, driver, and treatment of its frames.

use std::fmt;
use std::sync::Arc;

use wire::ethernet::Mac;

use crate::fast_path::FastPath;

/// Specification of a port to open.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The interface's name in Linux.
    pub name: String,
    /// Its MTU, in bytes of an IP packet.
    pub mtu: u16,
    /// The driver.
    pub wish: Wish,
    /// Mark (`skb->mark`) of packets delivered to Linux, on their way through the interface: not 0, and the same as for
    /// the interface's punt.
    pub mark: u32,
    /// VLAN tags of frames on it.
    pub tagged: Tagged,
    /// Number of frames that may wait for a worker, rounded up to a power of two: at most a few milliseconds' worth.
    /// With AF_XDP frames wait in slots of the worker's pool, at most an eighth of them.
    pub depth: u32,
    /// Treatment of frames larger than the link carries.
    pub offload: Offload,
    /// Hardware address of a TAP device; without it Linux draws one. Other interfaces have their own.
    pub mac: Option<Mac>,
    /// Fast path for packets of published flows, with AF_PACKET on Ethernet. The interface's guard must be of a
    /// [`GuardSet`](crate::GuardSet) with the same fast path: else packets that go by are dropped there, and without a guard
    /// reach Linux's own stack.
    pub fast_path: Option<Arc<FastPath>>,
    /// Fast path for frames of published flows in front of AF_XDP, on Ethernet.
    pub fast_path_xdp: Option<Arc<FastPath>>,
}

impl Default for Spec {
    /// No name, an MTU of 1500, any driver, no tags, 4096 frames, large frames segmented, no fast path, and the mark [`MARK`].
    fn default() -> Spec {
        Spec {
            name: String::new(),
            mtu: 1500,
            wish: Wish::Auto,
            mark: MARK,
            tagged: Tagged::No,
            depth: 4096,
            offload: Offload::Segment,
            mac: None,
            fast_path: None,
            fast_path_xdp: None,
        }
    }
}

/// Default mark.
pub const MARK: u32 = 0x7772;

/// Driver that the operator asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// The fastest that works on this interface: AF_XDP, else AF_PACKET.
    #[default]
    Auto,
    /// AF_XDP or nothing.
    Xdp,
    /// AF_PACKET.
    Packet,
    /// A TAP device of that name, to be created.
    Tap,
}

/// Driver that receives and sends a port's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// AF_XDP: the card's queue, past Linux.
    Xdp,
    /// AF_PACKET: any interface of Ethernet or of bare IP packets.
    Packet,
    /// A TAP device created by wirerate.
    Tap,
    /// ATM cells over UDP.
    Cells,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Driver::Xdp => "AF_XDP",
            Driver::Packet => "AF_PACKET",
            Driver::Tap => "TAP",
            Driver::Cells => "ATM over UDP",
        })
    }
}

/// VLAN tags of frames on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tagged {
    /// No tags of importance. With AF_XDP on an interface without hardware, frames may lose their tags.
    #[default]
    No,
    /// Frames have tags, and each must keep its own.
    Yes,
}

/// Treatment of frames larger than the link carries: merged by Linux or a card (GRO), or left to a card to segment
/// (GSO). With AF_XDP there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Offload {
    /// Kept whole where the pool has slots for them ([`Pool::with_big`](wire::Pool::with_big)), else segmented.
    Whole,
    /// Segmented.
    #[default]
    Segment,
    /// Merging is switched off; large frames that come nevertheless are dropped, and counted as unusable.
    Refuse,
}
