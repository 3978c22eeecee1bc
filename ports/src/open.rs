//! Opens ports: the fastest driver that works, with the reasons why faster ones do not.

use std::fmt;
use std::os::fd::OwnedFd;

use wire::ethernet::{self, Mac};
use wire::vlan::TAG_LEN;
use wire::{HEADROOM, LinkKind, PoolMemory};

use crate::line::{Identity, Line};
use crate::packet::PacketLine;
use crate::refusal::{Cause, OpenError, Refusal};
use crate::sys::interface::{self, Asker, Offloads, offload};
use crate::sys::link::{Change, Stack};
use crate::tap::Tap;
use crate::xdp::Xdp;

/// Driver that receives and sends a port's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// AF_XDP: the card's queue, past Linux.
    Xdp,
    /// AF_PACKET: any interface of Ethernet or of bare IP packets.
    Packet,
    /// A TAP device created by wirerate.
    Tap,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Driver::Xdp => "AF_XDP",
            Driver::Packet => "AF_PACKET",
            Driver::Tap => "TAP",
        })
    }
}

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
}

impl Default for Spec {
    /// No name, an MTU of 1500, any driver, no tags, 4096 frames, large frames segmented, and the mark [`MARK`].
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
        }
    }
}

/// Default mark.
pub const MARK: u32 = 0x7772;

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
    /// Segmented.
    #[default]
    Segment,
    /// Merging is switched off; large frames that come nevertheless are dropped, and counted as unusable.
    Refuse,
}

/// An open port.
pub struct Opened {
    /// Driver selected.
    pub driver: Driver,
    /// Copying of frames between card and pool.
    pub copying: Copying,
    /// The interface's index in Linux.
    pub ifindex: u32,
    /// One queue for each worker, in the order of the memories given.
    pub lines: Vec<Box<dyn Line>>,
    /// Faster drivers, with the reasons why they did not work.
    pub refused: Vec<Refusal>,
    /// Changes of the port to the interface, undone on drop. Keep it as long as the lines.
    pub held: Held,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("driver", &self.driver)
            .field("copying", &self.copying)
            .field("ifindex", &self.ifindex)
            .field("lines", &self.lines.len())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

/// Copying of frames between card and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copying {
    /// None: the card writes frames to the pool itself.
    ZeroCopy,
    /// The kernel copies them.
    Copy,
}

/// Holds the program of AF_XDP on its interface until dropped, or until the process ends. Switches the card's offloads
/// on again when dropped. The interface's [guard](crate::Guard), not the port, keeps Linux from taking frames.
#[derive(Debug)]
pub struct Held {
    _links: Vec<OwnedFd>,
    _offloads: Option<Offloads>,
}

/// Opens a port with a line for each of `memories`, the memories of the workers' pools. Call it on any thread of the
/// interface's network namespace.
///
/// # Errors
/// No driver that the wish allows works; the error has the reason of each.
pub fn open(spec: &Spec, memories: &[PoolMemory]) -> Result<Opened, OpenError> {
    let mut refused = Vec::new();
    let drivers: &[Driver] = match spec.wish {
        // Another stack's frames would have to be copied into a form that XDP takes, and then again.
        Wish::Auto if has_no_hardware(&spec.name) => {
            refused.push(Refusal { driver: Driver::Xdp, cause: Cause::SlowerHere });
            &[Driver::Packet]
        }
        Wish::Auto => &[Driver::Xdp, Driver::Packet],
        Wish::Xdp => &[Driver::Xdp],
        Wish::Packet => &[Driver::Packet],
        Wish::Tap => &[Driver::Tap],
    };
    for driver in drivers {
        match open_as(*driver, spec, memories) {
            Ok(opened) => return Ok(Opened { refused, ..opened }),
            Err(cause) => refused.push(Refusal { driver: *driver, cause }),
        }
    }
    Err(OpenError { interface: spec.name.clone(), refused })
}

/// True if the interface exists and has no hardware behind it, only another stack.
fn has_no_hardware(name: &str) -> bool {
    interface::index(name).is_ok() && Asker::new().is_ok_and(|asker| asker.is_virtual(name))
}

/// An interface, with the properties that all drivers need.
pub(crate) struct Target {
    pub(crate) identity: Identity,
    /// Link kind of the interface.
    pub(crate) kind: LinkKind,
    /// Bytes of its longest frame.
    pub(crate) longest: usize,
    /// Number of frames that may wait for a worker: a power of two.
    pub(crate) depth: u32,
    /// Treatment of larger frames.
    pub(crate) offload: Offload,
}

/// Number of frames that may wait: least and most.
const DEPTHS: (u32, u32) = (64, 1 << 15);

fn open_as(driver: Driver, spec: &Spec, memories: &[PoolMemory]) -> Result<Opened, Cause> {
    let longest = usize::from(spec.mtu) + ethernet::HEADER_LEN + 2 * TAG_LEN;
    for memory in memories {
        let room = memory.slot_bytes() - HEADROOM;
        if longest > room {
            return Err(Cause::TooLong { frame: longest, room });
        }
    }
    if driver == Driver::Tap {
        let kind = LinkKind::Ethernet;
        let change = Change { mtu: spec.mtu.into(), mac: spec.mac, kind, stack: Stack::Used };
        let Tap { ifindex, lines, .. } = Tap::make(&spec.name, change, memories.len(), spec.offload)?;
        return Ok(opened(driver, ifindex, boxed(lines), Held { _links: Vec::new(), _offloads: None }));
    }
    let asker = Asker::new().map_err(Cause::step("ask about interfaces"))?;
    let ifindex = interface::index(&spec.name).map_err(Cause::step("find the interface"))?;
    let identity = Identity { name: spec.name.clone(), ifindex };
    let kind = link_kind(&spec.name, &asker)?;
    if kind == LinkKind::Ip && driver != Driver::Packet {
        return Err(Cause::WithoutEthernet);
    }
    let depth = spec.depth.clamp(DEPTHS.0, DEPTHS.1).next_power_of_two();
    let target = Target { identity, kind, longest, depth, offload: spec.offload };
    if driver == Driver::Packet {
        let offloads = Offloads::off(&asker, &spec.name, offload::LRO, spec.offload);
        let lines = PacketLine::open(&target, spec.mark, memories.len())?;
        let held = Held { _links: Vec::new(), _offloads: offloads };
        return Ok(opened(driver, ifindex, boxed(lines), held));
    }
    let offloads = Offloads::off(&asker, &spec.name, offload::LRO | offload::VLAN_RECEIVE, spec.offload);
    let Xdp { lines, links, zero_copy } = Xdp::open(&target, spec.tagged, &asker, memories)?;
    let held = Held { _links: links, _offloads: offloads };
    let copying = if zero_copy { Copying::ZeroCopy } else { Copying::Copy };
    Ok(Opened { copying, ..opened(driver, ifindex, boxed(lines), held) })
}

fn opened(driver: Driver, ifindex: u32, lines: Vec<Box<dyn Line>>, held: Held) -> Opened {
    Opened { driver, copying: Copying::Copy, ifindex, lines, refused: Vec::new(), held }
}

fn boxed<L: Line + 'static>(lines: Vec<L>) -> Vec<Box<dyn Line>> {
    lines.into_iter().map(|line| Box::new(line) as Box<dyn Line>).collect()
}

/// Link kind of an interface, which must be Ethernet or bare IP.
pub(crate) fn link_kind(name: &str, asker: &Asker) -> Result<LinkKind, Cause> {
    let hardware = asker.hardware(name).map_err(Cause::step("ask what kind of interface it is"))?;
    kind_of(hardware).ok_or(Cause::UnknownLink(hardware))
}

/// Link kind of a hardware type (`ARPHRD_*`); `None` if neither Ethernet nor bare IP.
pub fn kind_of(hardware: u16) -> Option<LinkKind> {
    /// Interfaces from which and to which Linux redirects packets without a link-layer header
    /// (`dev_is_mac_header_xmit` in linux/if_arp.h).
    const BARE: [u16; 8] = [
        libc::ARPHRD_NONE,
        libc::ARPHRD_PPP,
        ARPHRD_RAWIP,
        libc::ARPHRD_TUNNEL,
        libc::ARPHRD_TUNNEL6,
        libc::ARPHRD_SIT,
        libc::ARPHRD_IPGRE,
        ARPHRD_IP6GRE,
    ];
    const ARPHRD_RAWIP: u16 = 519;
    const ARPHRD_IP6GRE: u16 = 823;
    match hardware {
        libc::ARPHRD_ETHER => Some(LinkKind::Ethernet),
        _ if BARE.contains(&hardware) => Some(LinkKind::Ip),
        _ => None,
    }
}
