//! The kernel fast path: established flows, published to programs of the kernel, which then carry their plain packets
//! without a worker.
//!
//! Two programs act on each packet that a port of AF_PACKET receives, one right after the other and on the same CPU. The
//! socket *filter* of the worker's line decides: it finds the packet's flow in the table, checks the packet, and either
//! keeps it for the worker or notes its decision for this CPU. The program at TCX ingress of the interface's
//! [guard](crate::Guard) acts on the decision: it rewrites addresses, ports, TTL and link-layer header, counts, and
//! redirects to the interface that the packet leaves by. As only one of them decides, no packet is doubled or lost when a
//! flow is published or retracted in between.
//!
//! Promises. A packet that goes by leaves with the bytes that the worker would have sent, its checksums right if they came
//! in right, and is counted in the flow's [`Account`]. Packets that are not plain go to the worker: fragments, IP options, bad
//! lengths or checksums of a header, TTL 1, TCP with SYN, FIN, RST, URG or CWR, segments outside the TCP windows, packets over the MTU, and all
//! packets of interfaces without Ethernet and with more than one VLAN tag, or one of 802.1ad; at XDP with any tag. A packet does not go by while an earlier packet of its flow is still with the worker, up to
//! the last [`Line::settled`](crate::Line::settled); the first packet after publication always goes to the worker. Where a worker is so far
//! behind that half of its rings is full, a flow without pauses would never come to go by: some of its packets are dropped instead, as the rings would soon do,
//! until the worker has sent on those that it has.
//!
//! Publication takes no lock, and the memory is allocated at start. A full table, or one in which eight
//! other keys have a key's entries of the index, does not publish the flow, which stays with its worker.
//!
//! Limits. A flow leaves its worker at the first moment at which none of its packets is there: a stream that keeps the worker
//! busy without a pause stays. The order holds per CPU: where several deliver to one line, a packet with which its CPU was interrupted
//! between filter and ring may be overtaken. Packets that go by leave through the queueing discipline of their interface, those that
//! the worker sends pass by it. UDP packets of many segments that are a tunnel's are compared with the MTU as if they were plain.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use wire::header::Protocol;
use wire::vlan::Tag;
use wire::{Bytes, Dscp, DscpSet, Nanos};

use crate::program::Instruction;
use crate::program::fast::{self, Front, Limits, Memory};
use crate::sys::bpf::{self, Hook};
use crate::sys::mapping::Words;
use crate::sys::netdev;

mod cpu;
pub(crate) mod hash;
pub(crate) mod layout;
mod line;
mod table;
#[cfg(feature = "trial")]
pub(crate) mod trial;

use hash::Hasher;
use layout::{LINES, Layout};
pub(crate) use line::{FastLine, LineCount, Settled};
use table::Table;

/// Published flows, and the programs that carry them. Shared by all workers.
pub struct FastPath {
    table: Table,
    /// The map that the table lies in.
    map: OwnedFd,
    mark: u32,
    /// Program of guards at ingress.
    action: OwnedFd,
    /// Lines that have a number, by number.
    lines: Mutex<[bool; LINES]>,
    /// Programs that count frames which no device took.
    witnesses: Mutex<Vec<Witness>>,
}

/// Program at a tracepoint of the kernel.
struct Witness {
    tracepoint: &'static CStr,
    program: OwnedFd,
    /// Keeps the program at its tracepoint.
    link: Option<OwnedFd>,
}

/// One direction of a flow: packets that it consists of, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Addresses and ports of received packets.
    pub from: Tuple,
    /// Protocol: TCP or UDP.
    pub protocol: Protocol,
    /// Index of the interface that receives the packets.
    pub ifindex: u32,
    /// VLAN of the packets received; 0 for packets without a tag, and for those whose tag says a priority alone.
    pub vlan: u16,
    /// Addresses and ports of packets sent, of the same IP version.
    pub to: Tuple,
    /// Link-layer addresses of packets sent: destination, then source.
    pub link: [u8; 12],
    /// VLAN tag of packets sent, of IEEE 802.1Q.
    pub tag: Option<Tag>,
    /// MTU at the interface that sends them.
    pub mtu: u16,
    /// Index of the interface that sends them.
    pub out: u32,
    /// Code points of packets that may go by.
    pub dscp: DscpSet,
    /// Code point that packets are given; `None` leaves theirs.
    pub mark: Option<Dscp>,
    /// Window of this direction's sender; `None` leaves TCP windows unchecked. Both directions have one, or neither.
    pub window: Option<Window>,
}

/// Addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

/// TCP window of a direction's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Highest sequence number sent, plus 1.
    pub end: u32,
    /// Largest window offered, scaled; at least 1.
    pub max_window: u32,
    /// Highest end of a window offered (acknowledgement plus window): the other side's data may reach up to there.
    pub grants: u32,
    /// Window scale of this sender, 0 to 14.
    pub scale: u8,
}

/// Publication of one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    index: u32,
    version: u32,
}

/// Packets of one direction of a flow that went by; those of many segments count as their segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of packets.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: Bytes,
    /// Bytes from the link-layer header on, as received.
    pub frame_bytes: Bytes,
    /// Time of the last packet by the monotonic clock, up to a tick early; zero before the first.
    pub seen: Nanos,
}

/// Number of packets that did not go by, by reason. All but the stale ones went to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallThrough {
    /// Packets that are not plain.
    pub unplain: u64,
    /// Packets of no published flow.
    pub unknown: u64,
    /// Packets over the MTU.
    pub too_big: u64,
    /// Segments outside the TCP windows.
    pub window: u64,
    /// Packets behind others of their flow that were still with the worker.
    pub order: u64,
    /// Packets dropped because the decision was another packet's, or because the kernel could not rewrite them.
    pub stale: u64,
    /// Packets dropped because their worker was far behind, so that later packets of their flow go by without overtaking any.
    pub overload: u64,
    /// Frames that the program at XDP sent on, and that the device they were to leave by did not take.
    pub unsent: u64,
}

/// Packets of an open port that may go by its workers.
#[derive(Debug)]
pub enum Bypass {
    /// None: not asked for, or the driver or the kind of link has no fast path.
    Off,
    /// Packets of published flows.
    On,
    /// None: the kernel refused. The port works as without.
    Refused(FastPathError),
}

/// Interface whose packets may go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPort {
    /// Index of the interface.
    pub ifindex: u32,
    /// Hook of the program that carries packets which the interface receives.
    pub hook: FastHook,
    /// Packets that it sends.
    pub egress: FastEgress,
}

/// Hook of the kernel at which packets go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastHook {
    /// TCX, for socket buffers, behind the decision of a filter.
    Tc,
    /// XDP, for frames.
    Xdp,
}

/// Packets that an interface sends when a program redirects them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastEgress {
    /// Frames from programs at XDP, and socket buffers.
    All,
    /// Socket buffers only: the device takes no frames from XDP.
    Buffers,
}

impl FastEgress {
    /// Packets that an interface sends, as of now: a veth takes frames while its peer has a program at XDP, or GRO.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not know (Linux 6.3).
    pub fn of(ifindex: u32) -> io::Result<FastEgress> {
        let takes = netdev::takes_frames(ifindex)?;
        Ok(if takes { FastEgress::All } else { FastEgress::Buffers })
    }
}

/// Failed operation of the fast path.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation}: {error}")]
pub struct FastPathError {
    /// Operation that failed, as in "could not {operation}".
    pub operation: &'static str,
    /// Error of the kernel.
    pub error: io::Error,
}

impl FastPath {
    /// Allocates memory for so many flows, about a million (2^20) if they are more, and loads the programs. `seed` is a secret that hashes depend on; `mark` is
    /// the mark of packets that the punt delivers, as in [`Spec::mark`](crate::Spec::mark).
    ///
    /// # Errors
    /// Privileges are missing (CAP_BPF and CAP_NET_ADMIN), or the kernel lacks a needed feature (Linux 6.6).
    pub fn open(flows: u32, seed: [u64; 2], mark: u32) -> Result<FastPath, FastPathError> {
        let layout = Layout::new(flows, cpu::possible());
        let bytes = u32::try_from(layout.bytes()).map_err(|_| io::ErrorKind::OutOfMemory.into());
        let bytes = bytes.map_err(FastPathError::step("size the table of the fast path"))?;
        let map =
            bpf::shared_map(bytes).map_err(FastPathError::step("allocate the table of the fast path"))?;
        let words = Words::new(map.as_fd(), layout.bytes())
            .map_err(FastPathError::step("map the table of the fast path"))?;
        let table = Table::new(words, layout, Hasher::new(seed));
        let memory = Memory { map: map.as_fd(), layout, hasher: table.hasher() };
        // A filter too, so that a kernel that refuses it does so here.
        load_filter(&memory, Limits { line: 0, backlog: 1 }, mark)?;
        let action = fast::action(&memory, mark).ok_or_else(|| io::ErrorKind::InvalidInput.into());
        let action = action.and_then(|action| bpf::load(Hook::TcxIngress, &action));
        let action =
            action.map_err(FastPathError::step("load the program that forwards on the fast path"))?;
        Ok(FastPath {
            table,
            map,
            mark,
            action,
            lines: Mutex::new([false; LINES]),
            witnesses: Mutex::default(),
        })
    }

    /// Publishes both directions of a flow; `None` where no slot is free for one of them, where one is published already,
    /// or where they make no flow: addresses of different IP versions, another protocol, or a tag that is none of 802.1Q. No packet goes by before
    /// both are complete.
    pub fn publish(&self, entries: &[Entry; 2]) -> Option<[Place; 2]> {
        self.table.publish(entries)
    }

    /// Takes a publication back: decisions made from now on do not find it. A program may still be acting on an earlier one,
    /// and count a packet.
    pub fn retract(&self, place: Place) {
        self.table.retract(place);
    }

    /// Frees the slot of a publication that was retracted at least a second ago, since a program may still be about to
    /// use it; and no sooner than the flow's other direction is retracted. Does nothing otherwise than after [`FastPath::retract`].
    pub fn free(&self, place: Place) {
        self.table.free(place);
    }

    /// Packets that went by; none once the slot is freed.
    pub fn account(&self, place: Place) -> Account {
        self.table.account(place)
    }

    /// Window of the direction's sender as of the last packet that the filter accepted; `None` once the slot is freed, or
    /// where the entry had none.
    pub fn window(&self, place: Place) -> Option<Window> {
        self.table.window(place)
    }

    /// Sets the window of the direction's sender after a packet that a worker forwarded, before [`Line::settled`](crate::Line::settled)
    /// lets the next one go by. The scale stays.
    pub fn set_window(&self, place: Place, window: Window) {
        self.table.set_window(place, window);
    }

    /// True until the publication is retracted or the generation advances.
    pub fn is_live(&self, place: Place) -> bool {
        self.table.is_live(place)
    }

    /// Generation of publications in force.
    pub fn generation(&self) -> u32 {
        self.table.generation()
    }

    /// Takes all publications back at once, and returns the new generation. Their slots are still to be
    /// [retracted](FastPath::retract) and [freed](FastPath::free).
    pub fn advance_generation(&self) -> u32 {
        self.table.advance_generation()
    }

    /// Slots in use, two for each flow: published, or retracted and not free yet.
    pub fn in_use(&self) -> u32 {
        self.table.in_use()
    }

    /// Number of slots, three for each flow that there is memory for.
    pub fn capacity(&self) -> u32 {
        self.table.layout().slots() as u32 - 1
    }

    /// Bytes of memory allocated.
    pub fn memory(&self) -> Bytes {
        Bytes(self.table.layout().bytes() as u64)
    }

    /// Frames that the program at XDP sent on, and that the device they were to leave by refused, for whatever reason but that it had no room: it will
    /// refuse others too.
    pub fn refused(&self) -> u64 {
        self.table.refused()
    }

    /// Packets that did not go by, on all CPUs.
    pub fn fall_through(&self) -> FallThrough {
        self.table.fall_through()
    }
}

impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the hash's secret numbers.
        f.debug_struct("FastPath")
            .field("capacity", &self.capacity())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

/// Operation that counts frames which no device takes.
const COUNT_UNSENT: &str = "count frames that devices do not take";

impl FastPath {
    /// Program of a guard at ingress.
    pub(crate) fn action(&self) -> BorrowedFd<'_> {
        self.action.as_fd()
    }

    /// Mark of packets on their way to the interface that they leave by.
    pub(crate) fn fast_mark(&self) -> u32 {
        fast::fast_mark(self.mark)
    }

    /// Memory that the programs share.
    pub(crate) fn programs(&self) -> Memory<'_> {
        Memory { map: self.map.as_fd(), layout: self.table.layout(), hasher: self.table.hasher() }
    }

    /// Program of a port of AF_XDP.
    pub(crate) fn front(&self, front: &Front<'_>) -> Result<Vec<Instruction>, FastPathError> {
        let program = fast::xdp(&self.programs(), front).ok_or_else(|| io::ErrorKind::InvalidInput.into());
        program.map_err(FastPathError::step("assemble the program that forwards frames on the fast path"))
    }

    /// Loads what [`FastPath::count_unsent`] attaches, as long as this process has CAP_PERFMON, which it does not need then.
    ///
    /// # Errors
    /// CAP_PERFMON is missing.
    pub fn prepare_unsent(&self) -> Result<(), FastPathError> {
        let mut witnesses = self.witnesses.lock().unwrap_or_else(PoisonError::into_inner);
        if witnesses.is_empty() {
            let memory = self.programs();
            let load = |(tracepoint, program): (_, Option<Vec<Instruction>>)| {
                let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                Ok(Witness { tracepoint, program: bpf::load_trace(&program)?, link: None })
            };
            let loaded: io::Result<Vec<Witness>> = fast::witnesses(&memory).into_iter().map(load).collect();
            *witnesses = loaded.map_err(FastPathError::step(COUNT_UNSENT))?;
        }
        Ok(())
    }

    /// Counts from now on frames that the program at XDP sends on and that no device takes ([`FallThrough::unsent`]).
    ///
    /// # Errors
    /// CAP_PERFMON is missing, and [was missing](FastPath::prepare_unsent), or the kernel has no such tracepoints.
    pub fn count_unsent(&self) -> Result<(), FastPathError> {
        self.prepare_unsent()?;
        let mut witnesses = self.witnesses.lock().unwrap_or_else(PoisonError::into_inner);
        for witness in witnesses.iter_mut().filter(|witness| witness.link.is_none()) {
            let link = bpf::attach_trace(witness.tracepoint, witness.program.as_fd());
            witness.link = Some(link.map_err(FastPathError::step(COUNT_UNSENT))?);
        }
        Ok(())
    }

    fn filter(&self, limits: Limits) -> Result<OwnedFd, FastPathError> {
        load_filter(&self.programs(), limits, self.mark)
    }
}

#[cfg(test)]
impl FastPath {
    /// The table, to play the worker on.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

fn load_filter(memory: &Memory<'_>, limits: Limits, mark: u32) -> Result<OwnedFd, FastPathError> {
    let filter = fast::filter(memory, limits, mark).ok_or_else(|| io::ErrorKind::InvalidInput.into());
    filter
        .and_then(|filter| bpf::load_filter(&filter))
        .map_err(FastPathError::step("load the filter of the fast path"))
}

impl FastPathError {
    /// Error of a failed operation: "could not {operation}".
    pub(crate) fn step(operation: &'static str) -> impl Fn(io::Error) -> FastPathError {
        move |error| FastPathError { operation, error }
    }
}

#[cfg(test)]
mod tests;
