//! Opens ports: the fastest driver that works, with the reasons why faster ones do not.

use std::fmt;
use std::os::fd::OwnedFd;

use wire::ethernet;
use wire::vlan::TAG_LEN;
use wire::{HEADROOM, LinkKind, PoolMemory};

use crate::fast_path::Bypass;
use crate::line::{Identity, Line, Target};
use crate::link_kind::link_kind;
use crate::packet::PacketLine;
use crate::refusal::{Cause, OpenError, Refusal};
use crate::spec::{Driver, Spec, Tagged, Wish};
use crate::sys::interface::{self, Asker, Offloads, offload};
use crate::sys::link::{Change, Stack};
use crate::tap::Tap;
use crate::xdp::Xdp;

/// An open port.
pub struct Opened {
    /// Driver selected.
    pub driver: Driver,
    /// Copying of frames between card and pool.
    pub copying: Copying,
    /// VLAN tags of frames received: `Tagged::Yes` where each frame keeps its own.
    pub tagged: Tagged,
    /// The interface's index in Linux.
    pub ifindex: u32,
    /// One queue for each worker, in the order of the memories given.
    pub lines: Vec<Box<dyn Line>>,
    /// Faster drivers, with the reasons why they did not work.
    pub refused: Vec<Refusal>,
    /// Packets that go by the lines.
    pub bypass: Bypass,
    /// Changes of the port to the interface, undone on drop. Keep it as long as the lines.
    pub held: Held,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("driver", &self.driver)
            .field("copying", &self.copying)
            .field("tagged", &self.tagged)
            .field("ifindex", &self.ifindex)
            .field("lines", &self.lines.len())
            .field("refused", &self.refused)
            .field("bypass", &self.bypass)
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
        let (lines, bypass) = PacketLine::open(&target, spec.mark, memories.len(), spec.fast_path.as_ref())?;
        let held = Held { _links: Vec::new(), _offloads: offloads };
        return Ok(Opened { bypass, ..opened(driver, ifindex, boxed(lines), held) });
    }
    let offloads = Offloads::off(&asker, &spec.name, offload::LRO | offload::VLAN_RECEIVE, spec.offload);
    let fast_path = spec.fast_path_xdp.as_ref();
    let Xdp { lines, links, zero_copy, tagged, bypass } =
        Xdp::open(&target, spec.tagged, &asker, memories, fast_path)?;
    let held = Held { _links: links, _offloads: offloads };
    let copying = if zero_copy { Copying::ZeroCopy } else { Copying::Copy };
    Ok(Opened { copying, tagged, bypass, ..opened(driver, ifindex, boxed(lines), held) })
}

fn opened(driver: Driver, ifindex: u32, lines: Vec<Box<dyn Line>>, held: Held) -> Opened {
    let (copying, tagged) = (Copying::Copy, Tagged::Yes);
    Opened { driver, copying, tagged, ifindex, lines, refused: Vec::new(), bypass: Bypass::Off, held }
}

fn boxed<L: Line + 'static>(lines: Vec<L>) -> Vec<Box<dyn Line>> {
    lines.into_iter().map(|line| Box::new(line) as Box<dyn Line>).collect()
}
