//! AF_PACKET: a copy of what comes in by an interface, and sending past Linux's queues.
//!
//! Receives by a ring of TPACKET_V2. V3 hands over blocks of frames, and a block that is not full only after a timer,
//! of a millisecond at least and of 4 on kernels with 250 ticks a second: each frame of a quiet line would be as late.
//!
//! What the card or a virtual device left undone, a header in front of each frame says, and it is done here
//! ([`crate::offload`]). What is longer than a slot of the ring, packets of many segments, Linux queues beside it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wire::ethernet::EtherType;
use wire::vlan::Tag;
use wire::{Batch, Pool, Port, PortError, Received};

use crate::line::{Identity, Line, Statistics, is_busy};
use crate::open::Target;
use crate::pending::{Begun, Pending, finish};
use crate::program;
use crate::refusal::Cause;
use crate::sys::packet::{Ring, Slot, VnetHeader};
use crate::sys::{clock, packet, socket};

/// One worker's sockets on an interface.
pub(crate) struct PacketLine {
    identity: Identity,
    ring: Ring,
    pending: Pending,
    inlet: OwnedFd,
    outlet: OwnedFd,
    /// Calls that found nothing, since the socket was last asked for an error.
    idle: u32,
    statistics: Statistics,
}

/// What lies in front of a frame in its slot, at most: header, address, offload header, alignment.
const SLOT_OVERHEAD: usize = 128;
/// Bytes of big packets that may wait beside the ring, and of frames that are being sent.
const SOCKET_BYTES: i32 = 8 << 20;
/// After how many calls that found nothing the socket is asked for an error.
const PATIENCE: u32 = 32;

impl PacketLine {
    /// Opens one line for each of `workers` on an interface. What bears the mark is not received.
    pub(crate) fn open(target: &Target, mark: u32, workers: usize) -> Result<Vec<PacketLine>, Cause> {
        let mut lines = Vec::with_capacity(workers);
        for _ in 0..workers {
            lines.push(PacketLine::open_one(target)?);
        }
        if lines.len() > 1 {
            share(&lines).map_err(Cause::step("spread frames over workers"))?;
        }
        for line in &lines {
            // Only now, so that no frame came to two of them before they were a group.
            socket::filter(line.inlet.as_fd(), &mut program::keep_unmarked(mark))
                .map_err(Cause::step("set the socket's filter"))?;
        }
        Ok(lines)
    }

    fn open_one(target: &Target) -> Result<PacketLine, Cause> {
        let step = Cause::step;
        let ifindex = target.identity.ifindex;
        let inlet = packet::new().map_err(step("open a packet socket"))?;
        let fd = inlet.as_fd();
        socket::filter(fd, &mut program::keep_nothing()).map_err(step("set the socket's filter"))?;
        for (option, value) in [
            (libc::PACKET_VERSION, V2),
            (libc::PACKET_VNET_HDR, 1),
            (libc::PACKET_IGNORE_OUTGOING, 1),
            (libc::PACKET_COPY_THRESH, 1),
        ] {
            socket::set(fd, libc::SOL_PACKET, option, value).map_err(step("set up the packet socket"))?;
        }
        socket::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BYTES)
            .map_err(step("set the size of the socket's queue"))?;
        let slot_bytes = (target.longest + SLOT_OVERHEAD).next_power_of_two().max(2048);
        let ring = Ring::new(fd, target.depth as usize, slot_bytes)
            .map_err(step("make a ring of received frames"))?;
        packet::bind(fd, ifindex, libc::ETH_P_ALL).map_err(step("bind the packet socket"))?;

        let outlet = packet::new().map_err(step("open a packet socket"))?;
        let fd = outlet.as_fd();
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(step("send past the queueing discipline"))?;
        socket::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES)
            .map_err(step("set the size of the socket's queue"))?;
        packet::bind(fd, ifindex, 0).map_err(step("bind the packet socket"))?;

        let identity = target.identity.clone();
        let (pending, idle, statistics) = (Pending::new(target.offload), 0, Statistics::default());
        Ok(PacketLine { identity, ring, pending, inlet, outlet, idle, statistics })
    }

    /// Makes a frame of the slot in `frame`, or begins to cut it: `None` if it is neither, which has been counted.
    fn take(&mut self, slot: &Slot, frame: &mut wire::Frame) -> Option<Begun> {
        let header = slot.header;
        let tag = tag_of(&header);
        let length = header.tp_len as usize;
        if header.tp_status & libc::TP_STATUS_COPY != 0 {
            return self.take_queued(length, tag, frame);
        }
        if header.tp_snaplen < header.tp_len {
            // Too long for a slot, and no room beside the ring either.
            self.statistics.lost += 1;
            return None;
        }
        let taken = self.take_slot(slot, length, tag, frame);
        if taken.is_none() {
            self.statistics.unusable += 1;
        }
        taken
    }

    fn take_slot(
        &mut self,
        slot: &Slot,
        length: usize,
        tag: Option<Tag>,
        frame: &mut wire::Frame,
    ) -> Option<Begun> {
        let undone = self.ring.vnet_header(slot)?;
        let at = usize::from(slot.header.tp_mac);
        if undone.gso_type == 0 {
            let bytes = frame.prepare(length)?;
            let whole =
                self.ring.copy_to(slot, at, bytes) && finish(frame, &undone, tag, &mut self.statistics);
            return whole.then_some(Begun::Frame);
        }
        let buffer = self.pending.buffer().get_mut(..length)?;
        if !self.ring.copy_to(slot, at, buffer) {
            return None;
        }
        self.pending.begin(length, &undone, tag, frame, &mut self.statistics)
    }

    /// Takes a packet that was too long for its slot from the socket's queue.
    fn take_queued(&mut self, length: usize, tag: Option<Tag>, frame: &mut wire::Frame) -> Option<Begun> {
        let mut undone = [0; VnetHeader::LEN];
        let read = loop {
            match socket::receive(self.inlet.as_fd(), &mut undone, self.pending.buffer()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let taken = match read {
            Ok(read) if read == VnetHeader::LEN + length => {
                let header = VnetHeader::from_bytes(undone);
                self.pending.begin(length, &header, tag, frame, &mut self.statistics)
            }
            _ => None,
        };
        if taken.is_none() {
            self.statistics.unusable += 1;
        }
        taken
    }

    /// Asks the socket whether the interface went away, every so many calls.
    fn check(&mut self) -> Result<(), PortError> {
        self.idle += 1;
        if self.idle < PATIENCE {
            return Ok(());
        }
        self.idle = 0;
        socket::take_error(self.inlet.as_fd()).map_err(|error| self.identity.failed("receive", error))
    }
}

impl Port for PacketLine {
    fn name(&self) -> &str {
        &self.identity.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        if self.pending.is_empty() && self.ring.front().is_none() {
            self.check()?;
            return Ok(Received::Nothing);
        }
        self.idle = 0;
        let now = clock::now();
        let before = batch.len();
        loop {
            self.pending.cut(batch, pool, now, &mut self.statistics);
            if batch.is_full() || !self.pending.is_empty() {
                break;
            }
            let Some(slot) = self.ring.front() else { break };
            let Some(mut frame) = pool.take() else { break };
            frame.meta.received = now;
            let taken = self.take(&slot, &mut frame);
            self.ring.release();
            let back = match taken {
                Some(Begun::Frame) => batch.push(frame).err(),
                Some(Begun::Segments) | None => Some(frame),
            };
            if let Some(frame) = back {
                pool.put(frame);
            }
        }
        self.statistics.receive(&batch[before..]);
        match batch.len() - before {
            0 => Ok(Received::Nothing),
            frames => Ok(Received::Frames(frames)),
        }
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        while !batch.is_empty() {
            match socket::send_many(self.outlet.as_fd(), batch.iter().map(wire::Frame::bytes)) {
                Ok(sent) => {
                    self.statistics.sent += sent as u64;
                    for frame in batch.drain_front(sent) {
                        self.statistics.sent_bytes += frame.len() as u64;
                        pool.put(frame);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) => {
                    self.statistics.refused += 1;
                    break;
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL)) => {
                    self.statistics.unsendable += 1;
                    batch.drain_front(1).for_each(|frame| pool.put(frame));
                }
                Err(error) => return Err(self.identity.failed("send", error)),
            }
        }
        Ok(())
    }
}

impl Line for PacketLine {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inlet.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        // The kernel begins to count anew each time it is asked.
        let counted =
            socket::get::<libc::tpacket_stats>(self.inlet.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
        if let Ok(counted) = counted {
            self.statistics.lost += u64::from(counted.tp_drops);
        }
        self.statistics
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

/// `TPACKET_V2`
const V2: i32 = 1;

/// Makes the lines' sockets a group of which one gets each frame, by a hash of the flow.
fn share(lines: &[PacketLine]) -> io::Result<()> {
    let mut group = None;
    for line in lines {
        let fd = line.inlet.as_fd();
        let wanted = match group {
            // Linux chooses a number that no other group has.
            None => (libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
            Some(id) => libc::PACKET_FANOUT_HASH << 16 | id,
        };
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, wanted)?;
        if group.is_none() {
            group = Some(socket::get::<u32>(fd, libc::SOL_PACKET, libc::PACKET_FANOUT)? & 0xffff);
        }
    }
    Ok(())
}

/// The tag that Linux took out of the frame.
fn tag_of(header: &libc::tpacket2_hdr) -> Option<Tag> {
    if header.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        EtherType::VLAN
    } else {
        EtherType(header.tp_vlan_tpid)
    };
    Some(Tag { tpid, tci: header.tp_vlan_tci })
}

#[cfg(test)]
mod tests;
