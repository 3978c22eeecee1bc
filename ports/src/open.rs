//! Opens ports: the fastest driver that works, and why the faster ones did not.

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

/// How frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// AF_XDP: the card's queue, past Linux.
    Xdp,
    /// AF_PACKET: any interface of Ethernet or of bare IP packets.
    Packet,
    /// A TAP device that is made here.
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

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// The fastest that works on this interface: AF_XDP, else AF_PACKET.
    #[default]
    Auto,
    /// AF_XDP or nothing.
    Xdp,
    /// AF_PACKET.
    Packet,
    /// A TAP device of that name, to be made.
    Tap,
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The interface's name in Linux.
    pub name: String,
    /// Its MTU, in bytes of an IP packet.
    pub mtu: u16,
    /// The driver.
    pub wish: Wish,
    /// What is delivered to Linux bears this mark on its way through the interface (`skb->mark`): not 0, and the same
    /// as for the interface's punt.
    pub mark: u32,
    /// VLAN tags of frames on it.
    pub tagged: Tagged,
    /// Number of frames that may wait for a worker, rounded up to a power of two: a few milliseconds' worth of those that may come
    /// at most. AF_XDP has them wait in slots of the worker's pool, and takes no more than an eighth of these.
    pub depth: u32,
    /// What becomes of frames larger than the link carries.
    pub offload: Offload,
    /// The address of a TAP device; without it Linux draws one. Other interfaces have theirs.
    pub mac: Option<Mac>,
}

impl Default for Spec {
    /// No name, an MTU of 1500, any driver, no tags, 4096 frames, large ones cut, and a mark of ours.
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

/// The mark that is used where no other is asked for.
pub const MARK: u32 = 0x7772;

/// VLAN tags of frames on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tagged {
    /// None that matter. By AF_XDP on an interface without hardware they may lose them.
    #[default]
    No,
    /// They do, and each must keep its own.
    Yes,
}

/// What becomes of frames larger than the link carries: those that Linux or a card put together (GRO), or that were to
/// be cut by a card (GSO). By AF_XDP there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Offload {
    /// They are cut.
    #[default]
    Segment,
    /// Putting together is switched off, and what comes nevertheless is dropped, and counted as unusable.
    Refuse,
}

/// An open port.
pub struct Opened {
    /// The driver that was taken.
    pub driver: Driver,
    /// Copying of frames between card and pool.
    pub copying: Copying,
    /// The interface's index in Linux.
    pub ifindex: u32,
    /// A queue for each worker, in the order of the memories that were given.
    pub lines: Vec<Box<dyn Line>>,
    /// Drivers that would be faster, and why they did not work.
    pub refused: Vec<Refusal>,
    /// What the port has changed of the interface. Keep it for as long as the lines.
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

/// Copying: the card writes frames to the pool itself, or the kernel copies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copying {
    /// It does.
    ZeroCopy,
    /// The kernel copies them.
    Copy,
}

/// Holds the program of AF_XDP to its interface, which it leaves when this is dropped, or the process ends. Offloads of the
/// card that were switched off are switched on again when this is dropped. What keeps Linux from taking the frames is the
/// interface's [guard](crate::Guard), not the port's.
#[derive(Debug)]
pub struct Held {
    _links: Vec<OwnedFd>,
    _offloads: Option<Offloads>,
}

/// Opens a port with a line for each of `memories`, which are those of the workers' pools. Call it on any thread of the
/// network namespace that the interface is in.
///
/// # Errors
/// Where no driver that the wish allows works, with each one's reason.
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

/// True if there is such an interface, and nothing behind it but another stack.
fn has_no_hardware(name: &str) -> bool {
    interface::index(name).is_ok() && Asker::new().is_ok_and(|asker| asker.is_virtual(name))
}

/// An interface, and what all drivers want to know.
pub(crate) struct Target {
    pub(crate) identity: Identity,
    /// What its packets begin with.
    pub(crate) kind: LinkKind,
    /// Bytes of its longest frame.
    pub(crate) longest: usize,
    /// Frames that may wait for a worker: a power of two.
    pub(crate) depth: u32,
    /// What becomes of larger ones.
    pub(crate) offload: Offload,
}

/// Frames that may wait, at least and at most.
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

/// What packets of an interface begin with, which must be Ethernet or IP.
pub(crate) fn link_kind(name: &str, asker: &Asker) -> Result<LinkKind, Cause> {
    let hardware = asker.hardware(name).map_err(Cause::step("ask what kind of interface it is"))?;
    kind_of(hardware).ok_or(Cause::UnknownLink(hardware))
}

/// What packets of an interface of that hardware type (`ARPHRD_*`) begin with; `None` where that is neither Ethernet nor IP.
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
