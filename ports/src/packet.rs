//! AF_PACKET driver: receives copies of an interface's frames, and sends past Linux's queueing disciplines.
//!
//! Receives by a ring of TPACKET_V2. V3 hands over blocks of frames, and a partly filled block only after a timer, of a
//! millisecond at least and of 4 on kernels with 250 ticks a second: each frame of a quiet line would be as late.
//!
//! A worker may lose its core for tens of milliseconds. One ring of that capacity would be slow all the time, because
//! its slots are visited in turn and do not fit a core's cache. So there are two rings, and Linux fills the larger one
//! only while the small one is full (PACKET_FANOUT_FLAG_ROLLOVER).
//!
//! A header in front of each frame describes the offloads that the card or a virtual device left undone; they are done
//! here ([`crate::offload`]). Packets longer than a ring slot (many segments) are queued by Linux beside the ring. They stay whole where
//! the pool has slots for them, and are sent whole by a socket that puts such a header in front, if the device cuts them.
//!
//! Packets of an interface without a link-layer header get a stand-in header on receipt ([`wire::link_kind`]). They are
//! sent by a socket of another type: a socket for frames would take their first bytes for a device header where the
//! driver adds one (PPP).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use wire::ethernet::EtherType;
use wire::link_kind::{self, STAND_IN};
use wire::segment::{Plan, Transport};
use wire::vlan::Tag;
use wire::{Batch, LinkKind, Nanos, Pool, Port, PortError, Received};

use crate::fast_path::{Bypass, FastLine, FastPath, FastPathError, Settled};
use crate::line::{Identity, Line, Statistics, Target, is_busy};
use crate::offload;
use crate::pending::{Begun, Pending, Undone, finish};
use crate::program;
use crate::refusal::Cause;
use crate::sys::interface::Asker;
use crate::sys::packet::{Ring, Slot, VnetHeader};
use crate::sys::{clock, packet, socket};

/// One worker's sockets on an interface.
pub(crate) struct PacketLine {
    identity: Identity,
    /// The usual inlet, and a reserve for its overflow: only with a single worker, because among several Linux would
    /// pick another worker's inlet.
    inlets: Vec<Inlet>,
    pending: Pending,
    /// Time of arrival of the packet being segmented.
    arrived: Nanos,
    outlet: Outlet,
    /// Number of calls that found nothing since the socket was last asked for an error.
    idle: u32,
    statistics: Statistics,
    /// The line on the fast path, if it is on it.
    fast: Option<FastLine>,
}

/// Socket that packets are sent by.
struct Outlet {
    socket: OwnedFd,
    /// Socket for packets of many segments, whose messages begin with a description of the work left; past the queueing discipline as the
    /// other one, so that no packet overtakes another. None while the device cuts none.
    whole: Option<OwnedFd>,
    /// Packets of many segments that the device cuts.
    cuts: Cuts,
    /// Number of times in a row that such a packet was refused.
    refusals: u32,
    /// Number of such packets that the device is not offered.
    paused: u32,
    /// Number of such packets that the device did not cut since it was last asked for its features.
    uncut: u32,
    kind: LinkKind,
    /// Destination address of packets without a link-layer header, by IP version.
    to: [libc::sockaddr_ll; 2],
}

/// A socket and its ring.
struct Inlet {
    socket: OwnedFd,
    ring: Ring,
}

/// Most bytes in front of a frame in its slot: header, address, offload header, alignment.
const SLOT_OVERHEAD: usize = 128;
/// Socket buffer, in bytes: for big packets queued beside the ring, and for frames being sent.
const SOCKET_BYTES: i32 = 8 << 20;
/// Slots of the usual ring where there is a reserve: their touched lines fit a core's cache.
const USUAL: usize = 1024;
/// Slots of the reserve, as a multiple of those asked for, and its most bytes. Linux fills three quarters of it: beyond
/// that it takes a ring for nearly full.
const RESERVE: usize = 4;
const RESERVE_BYTES: usize = 32 << 20;
/// Number of packets of many segments that a device does not cut, after which it is asked for its features again: somebody may have switched
/// segmentation on. The answer takes less than a thousandth of the time that the packets take by segments.
const ASKED_AFTER: u32 = 256;
/// Number of refusals in a row after which a packet of many segments is not offered whole again, and number of such packets until then:
/// Linux says the same of a device that is busy and of one that cannot cut this packet (behind a VLAN tag, say).
const REFUSALS: u32 = 3;
const PAUSE: u32 = 256;
/// Number of calls that find nothing before the socket is asked for an error.
const PATIENCE: u32 = 32;

impl PacketLine {
    /// Opens one line for each of `workers` on an interface. Packets with the mark are not received, nor those that go by
    /// on the fast path.
    pub(crate) fn open(
        target: &Target,
        mark: u32,
        workers: usize,
        fast_path: Option<&Arc<FastPath>>,
    ) -> Result<(Vec<PacketLine>, Bypass), Cause> {
        let mut lines = Vec::with_capacity(workers);
        for _ in 0..workers {
            lines.push(PacketLine::open_one(target, workers)?);
        }
        // One line has two sockets, or each of many has one.
        let sockets = || lines.iter().flat_map(|line| &line.inlets).map(|inlet| inlet.socket.as_fd());
        let mode = if workers == 1 { SPARE_THE_REST } else { libc::PACKET_FANOUT_HASH };
        group(sockets(), mode).map_err(Cause::step("spread frames over sockets"))?;
        // Filters only now, so that no frame came to two of them before they were a group.
        let bypass = match fast_path.filter(|_| target.kind == LinkKind::Ethernet) {
            None => Bypass::Off,
            Some(path) => match lines.iter_mut().try_for_each(|line| line.bypass(path)) {
                Ok(()) => return Ok((lines, Bypass::On)),
                Err(error) => Bypass::Refused(error),
            },
        };
        for line in &mut lines {
            for inlet in &line.inlets {
                socket::filter(inlet.socket.as_fd(), &mut program::keep_unmarked(mark))
                    .map_err(Cause::step("set the socket's filter"))?;
            }
            line.fast = None;
        }
        Ok((lines, bypass))
    }

    /// Puts the line on the fast path.
    fn bypass(&mut self, path: &Arc<FastPath>) -> Result<(), FastPathError> {
        let slots = self.inlets.iter().map(|inlet| inlet.ring.slots()).sum();
        let fast = FastLine::new(path, slots)?;
        for inlet in &self.inlets {
            fast.filter(inlet.socket.as_fd())?;
        }
        self.fast = Some(fast);
        Ok(())
    }

    /// Counts frames that Linux dropped since it was last asked.
    fn count_lost(&mut self) {
        // The kernel begins to count anew each time it is asked.
        for inlet in &self.inlets {
            let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
            if let Ok(counted) = socket::get::<libc::tpacket_stats>(inlet.socket.as_fd(), level, name) {
                self.statistics.lost += u64::from(counted.tp_drops);
                if let Some(fast) = &mut self.fast {
                    fast.count.drop(counted.tp_drops.into());
                }
            }
        }
    }

    fn open_one(target: &Target, workers: usize) -> Result<PacketLine, Cause> {
        let step = Cause::step;
        let ifindex = target.identity.ifindex;
        let slot_bytes = (target.longest + SLOT_OVERHEAD).next_power_of_two().max(2048);
        let slots = target.depth as usize;
        let sizes = match workers {
            1 => vec![slots.min(USUAL), (slots * RESERVE).min(RESERVE_BYTES / slot_bytes)],
            _ => vec![slots],
        };
        let inlets = sizes.into_iter().map(|slots| Inlet::open(ifindex, slots, slot_bytes));
        let inlets = inlets.collect::<Result<_, Cause>>()?;

        let outlet = Outlet::new(target).map_err(step("open a packet socket"))?;
        for fd in [Some(&outlet.socket), outlet.whole.as_ref()].into_iter().flatten().map(AsFd::as_fd) {
            socket::set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
                .map_err(step("send past the queueing discipline"))?;
            socket::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES)
                .map_err(step("set the size of the socket's queue"))?;
            packet::bind(fd, ifindex, 0).map_err(step("bind the packet socket"))?;
        }

        let identity = target.identity.clone();
        let (pending, idle, statistics) = (Pending::new(target.offload), 0, Statistics::default());
        let arrived = Nanos(0);
        Ok(PacketLine { identity, inlets, pending, arrived, outlet, idle, statistics, fast: None })
    }

    /// The index of the inlet whose front frame arrived first, and that frame.
    #[inline]
    fn front(&self) -> Option<(usize, Slot)> {
        let fronts = self.inlets.iter().enumerate();
        let fronts = fronts.filter_map(|(place, inlet)| Some((place, inlet.ring.front()?)));
        fronts.min_by_key(|(_, slot)| (slot.header.tp_sec, slot.header.tp_nsec))
    }

    /// Puts the slot's frame into `frame`, or begins to segment it; `None` if unusable, already counted.
    fn take(&mut self, place: usize, slot: &Slot, frame: &mut wire::Frame, pool: &mut Pool) -> Option<Begun> {
        let header = slot.header;
        let tag = tag_of(&header);
        let length = header.tp_len as usize;
        if header.tp_status & libc::TP_STATUS_COPY != 0 {
            return self.take_queued(place, length, tag, frame, pool);
        }
        if header.tp_snaplen < header.tp_len {
            // Too long for a slot, and no room beside the ring either.
            self.statistics.lost += 1;
            return None;
        }
        let taken = self.take_slot(place, slot, tag, frame, pool);
        if taken.is_none() {
            self.statistics.unusable += 1;
        }
        taken
    }

    fn take_slot(
        &mut self,
        place: usize,
        slot: &Slot,
        tag: Option<Tag>,
        frame: &mut wire::Frame,
        pool: &mut Pool,
    ) -> Option<Begun> {
        let length = slot.header.tp_len as usize;
        let ring = &self.inlets.get(place)?.ring;
        let before = self.outlet.before();
        let undone = ring.vnet_header(slot)?.behind(before);
        let at = usize::from(slot.header.tp_mac);
        if undone.gso_type == 0 {
            let bytes = frame.prepare(before + length)?;
            let whole = ring.copy_to(slot, at, bytes.get_mut(before..)?)
                && stand_in(bytes, before)
                && finish(frame, &undone, tag, &mut self.statistics);
            return whole.then_some(Begun::Frame);
        }
        let buffer = self.pending.buffer().get_mut(..before + length)?;
        if !ring.copy_to(slot, at, buffer.get_mut(before..)?) || !stand_in(buffer, before) {
            return None;
        }
        self.pending.begin(
            before + length,
            &Undone { header: undone, tag },
            frame,
            pool,
            &mut self.statistics,
        )
    }

    /// Takes a packet too long for its slot from the socket's queue.
    fn take_queued(
        &mut self,
        place: usize,
        length: usize,
        tag: Option<Tag>,
        frame: &mut wire::Frame,
        pool: &mut Pool,
    ) -> Option<Begun> {
        let mut undone = [0; VnetHeader::LEN];
        let before = self.outlet.before();
        // Where it is to stay, so that it is not copied once more.
        let mut big = self.pending.take_big(before + length, pool);
        let socket = self.inlets.get(place)?.socket.as_fd();
        let bytes = match &mut big {
            Some(frame) => frame.bytes_mut(),
            None => self.pending.buffer(),
        };
        let read = loop {
            match socket::receive(socket, &mut undone, bytes.get_mut(before..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let is_usable = read.is_ok_and(|read| read == VnetHeader::LEN + length) && stand_in(bytes, before);
        let undone = Undone { header: VnetHeader::from_bytes(undone).behind(before), tag };
        let taken = match big {
            Some(big) if is_usable => match self.pending.keep(big, &undone, &mut self.statistics) {
                Ok(begun) => Some(begun),
                Err(big) => {
                    self.pending.fill(big.bytes());
                    pool.put(big);
                    self.pending.begin(before + length, &undone, frame, pool, &mut self.statistics)
                }
            },
            None if is_usable => {
                self.pending.begin(before + length, &undone, frame, pool, &mut self.statistics)
            }
            unusable => {
                unusable.into_iter().for_each(|big| pool.put(big));
                None
            }
        };
        if taken.is_none() {
            self.statistics.unusable += 1;
        }
        taken
    }

    /// Gives the front slot of an inlet back to Linux.
    #[inline]
    fn release(&mut self, place: usize) {
        let Some(inlet) = self.inlets.get_mut(place) else { return };
        inlet.ring.release();
        if let Some(fast) = &mut self.fast {
            fast.count.take(1);
        }
        if place > 0 && inlet.ring.front().is_none() {
            // Linux takes a ring for full, once it was, until somebody asks for what is in it.
            let _ = socket::is_readable(inlet.socket.as_fd());
        }
    }

    /// Asks the sockets for errors (a removed interface), once every [`PATIENCE`] calls.
    fn check(&mut self) -> Result<(), PortError> {
        self.idle += 1;
        if self.idle < PATIENCE {
            return Ok(());
        }
        self.idle = 0;
        let errors = self.inlets.iter().map(|inlet| socket::take_error(inlet.socket.as_fd()));
        errors.collect::<Result<(), _>>().map_err(|error| self.identity.failed("receive", error))
    }
}

impl Outlet {
    fn new(target: &Target) -> io::Result<Outlet> {
        let socket = match target.kind {
            LinkKind::Ethernet => packet::new()?,
            LinkKind::Ip => packet::new_bare()?,
        };
        let to =
            [EtherType::IPV4, EtherType::IPV6].map(|kind| packet::address(target.identity.ifindex, kind.0));
        let cuts = match target.kind {
            LinkKind::Ethernet => Cuts::of(&target.identity.name),
            // What is sent without a link-layer header has no description in front either.
            LinkKind::Ip => Cuts::NONE,
        };
        let mut outlet = Outlet {
            socket,
            whole: None,
            cuts: Cuts::NONE,
            refusals: 0,
            paused: 0,
            uncut: 0,
            kind: target.kind,
            to,
        };
        outlet.set_cuts(cuts)?;
        Ok(outlet)
    }

    /// Takes note of the packets of many segments that the device cuts, and opens a socket for them.
    fn set_cuts(&mut self, cuts: Cuts) -> io::Result<()> {
        if self.whole.is_none() && cuts != Cuts::NONE {
            let whole = packet::new()?;
            socket::set(whole.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
            self.whole = Some(whole);
        }
        self.cuts = cuts;
        Ok(())
    }

    /// True if the device cuts a packet of many segments, as far as is known.
    fn takes_whole(&mut self, packet: &Plan, interface: &str) -> bool {
        if self.paused > 0 {
            self.paused -= 1;
            return false;
        }
        if !self.cuts.includes(packet) && self.kind == LinkKind::Ethernet {
            self.uncut += 1;
            if self.uncut == ASKED_AFTER {
                self.ask_again(interface);
            }
        }
        self.cuts.includes(packet)
    }

    /// Asks for the features of the interface again. Where no socket can be had for what they are, nothing changes.
    #[cold]
    fn ask_again(&mut self, interface: &str) {
        self.uncut = 0;
        let _ = self.set_cuts(Cuts::of(interface));
    }

    /// Bytes of the stand-in header in front of the bytes that the link carries.
    #[inline]
    fn before(&self) -> usize {
        match self.kind {
            LinkKind::Ethernet => 0,
            LinkKind::Ip => STAND_IN,
        }
    }

    /// Sends the first frames of a batch: returns their number, at least one, or the error of the first.
    fn send(&self, batch: &mut Batch) -> io::Result<usize> {
        let socket = self.socket.as_fd();
        match self.kind {
            LinkKind::Ethernet => {
                if let Some(big) = batch.first_mut().filter(|frame| frame.is_big()) {
                    return self.send_whole(big).map(|()| 1);
                }
                let frames = batch.iter().take_while(|frame| !frame.is_big());
                socket::send_many(socket, frames.map(wire::Frame::bytes))
            }
            LinkKind::Ip => {
                let bare = batch.iter().map_while(|frame| link_kind::bare(frame.bytes()));
                let mut bare = bare
                    .map(|bare| {
                        let version = usize::from(bare.ethertype == EtherType::IPV6);
                        (bare.packet, Some(&self.to[version]))
                    })
                    .peekable();
                if bare.peek().is_none() {
                    // No IP packet: as if it were too short.
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                socket::send_many_to(socket, bare)
            }
        }
    }
}

impl Outlet {
    /// Notes that a packet of many segments was refused. Past the queueing discipline, Linux cuts nothing itself: it refuses what the device
    /// cannot cut, or cannot any more.
    #[cold]
    fn refuse_whole(&mut self, interface: &str) {
        if self.refusals == 0 {
            self.ask_again(interface);
        }
        self.refusals += 1;
        if self.refusals == REFUSALS {
            (self.refusals, self.paused) = (0, PAUSE);
        }
    }

    /// Sends a packet of many segments whole.
    fn send_whole(&self, frame: &mut wire::Frame) -> io::Result<()> {
        let unsendable = || io::Error::from_raw_os_error(libc::EINVAL);
        let plan = Plan::of(frame).ok_or_else(unsendable)?;
        let header = offload::describe(frame.bytes_mut(), &plan).ok_or_else(unsendable)?;
        let whole = self.whole.as_ref().ok_or_else(unsendable)?;
        socket::send_parts(whole.as_fd(), [&header.to_bytes(), frame.bytes()])
    }
}

/// Packets of many segments that a device cuts into frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cuts {
    /// TCP over IPv4.
    tcp4: bool,
    /// TCP over IPv6.
    tcp6: bool,
    /// UDP.
    udp: bool,
}

impl Cuts {
    const NONE: Cuts = Cuts { tcp4: false, tcp6: false, udp: false };

    /// Asks for the features of an interface.
    fn of(interface: &str) -> Cuts {
        let names = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"];
        let active = Asker::new().and_then(|asker| asker.active(interface, names.into_iter()));
        let active = active.unwrap_or_default();
        let [tcp4, tcp6, udp] = names.map(|name| active.contains(&name));
        Cuts { tcp4, tcp6, udp }
    }

    fn includes(self, packet: &Plan) -> bool {
        match (packet.transport(), packet.is_v6()) {
            (Transport::Tcp, false) => self.tcp4,
            (Transport::Tcp, true) => self.tcp6,
            (Transport::Udp, _) => self.udp,
        }
    }
}

impl Inlet {
    /// Opens an inlet that receives nothing until it gets another filter.
    fn open(ifindex: u32, slots: usize, slot_bytes: usize) -> Result<Inlet, Cause> {
        let step = Cause::step;
        let socket = packet::new().map_err(step("open a packet socket"))?;
        let fd = socket.as_fd();
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
        let ring = Ring::new(fd, slots, slot_bytes).map_err(step("make a ring of received frames"))?;
        packet::bind(fd, ifindex, libc::ETH_P_ALL).map_err(step("bind the packet socket"))?;
        Ok(Inlet { socket, ring })
    }
}

impl Port for PacketLine {
    fn name(&self) -> &str {
        &self.identity.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        if self.pending.is_empty() && self.front().is_none() {
            self.check()?;
            return Ok(Received::Nothing);
        }
        self.idle = 0;
        let (now, wall) = (clock::now(), clock::wall());
        let before = batch.len();
        loop {
            self.pending.cut(batch, pool, self.arrived, &mut self.statistics);
            if batch.is_full() || !self.pending.is_empty() {
                break;
            }
            let Some((place, slot)) = self.front() else { break };
            let Some(mut frame) = pool.take() else { break };
            self.arrived = arrival(&slot.header, now, wall);
            frame.meta.received = self.arrived;
            let taken = self.take(place, &slot, &mut frame, pool);
            self.release(place);
            let back = match taken {
                Some(Begun::Frame) => batch.push(frame).err(),
                Some(Begun::Whole(mut whole)) => {
                    whole.meta.received = self.arrived;
                    pool.put(frame);
                    batch.push(whole).err()
                }
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
            match self.outlet.send(batch) {
                Ok(sent) => {
                    for frame in batch.drain_front(sent) {
                        self.statistics.send(&frame);
                        if frame.is_big() {
                            self.outlet.refusals = 0;
                        }
                        pool.put(frame);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) => {
                    self.statistics.refused += 1;
                    if batch.first().is_some_and(wire::Frame::is_big) {
                        self.outlet.refuse_whole(&self.identity.name);
                    }
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
        // The reserve gets nothing while this has room.
        self.inlets[0].socket.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.count_lost();
        self.statistics
    }

    fn takes_whole(&mut self, packet: &Plan) -> bool {
        self.outlet.takes_whole(packet, &self.identity.name)
    }

    fn reclaim(&mut self, _: &mut Pool) {}

    fn mark(&mut self) {
        // Of a packet that is being segmented, some have yet to be received.
        if let Some(fast) = self.fast.as_mut().filter(|_| self.pending.is_empty()) {
            fast.count.mark();
        }
    }

    fn settled(&mut self) {
        let Some(fast) = self.fast.as_mut() else { return };
        if fast.count.settle() == Settled::Short {
            // What the rings have dropped is nobody's to send on.
            self.count_lost();
        }
    }
}

/// `TPACKET_V2`
const V2: i32 = 1;

/// Time of a frame's arrival by the monotonic clock; `now` on that clock is `wall` on the kernel's. If the kernel's
/// clock was set meanwhile, the frame counts as just arrived, or as waiting for at most [`LONGEST`].
fn arrival(header: &libc::tpacket2_hdr, now: Nanos, wall: Nanos) -> Nanos {
    let stamp = Nanos::from_secs(header.tp_sec.into()) + Nanos(header.tp_nsec.into());
    now - wall.since(stamp).min(LONGEST)
}

/// Longest time that a frame is taken to have waited in a ring: a polled ring is full long before.
const LONGEST: Nanos = Nanos::from_secs(1);

/// Fanout mode of a group: by a program, which is never loaded, and so to the first socket; to the next if that is
/// full.
const SPARE_THE_REST: u32 = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_ROLLOVER;

/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: what a socket ignores by itself, its group does not.
const IGNORE_OUTGOING: u32 = 0x4000;

/// Joins sockets to a fanout group, in which each received frame goes to one of them.
fn group<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, mode: u32) -> io::Result<()> {
    let mode = mode | IGNORE_OUTGOING;
    let mut group = None;
    for socket in sockets {
        let wanted = match group {
            // Linux chooses a number that no other group has.
            None => (mode | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
            Some(id) => mode << 16 | id,
        };
        socket::set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, wanted)?;
        if group.is_none() {
            group = Some(socket::get::<u32>(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)? & 0xffff);
        }
    }
    Ok(())
}

/// Puts a stand-in header in front of a received packet, which begins at byte `before`. `false` if the link has no
/// link-layer header and the packet is no IP packet.
#[inline]
#[must_use]
fn stand_in(bytes: &mut [u8], before: usize) -> bool {
    if before == 0 {
        return true;
    }
    let Some((front, packet)) = bytes.split_at_mut_checked(before) else { return false };
    let header = link_kind::received(packet);
    header.is_some_and(|header| {
        front.copy_from_slice(&header);
        true
    })
}

/// The VLAN tag that Linux took out of the frame.
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
