//! AF_XDP driver: a program in the driver redirects each frame of a queue to a socket, which puts it into a slot of the
//! worker's pool, past Linux. Frames are sent from their slots.
//!
//! A line has each `workers`-th queue of the interface, so that the interface needs at least one queue for each worker.
//!
//! Virtual interfaces (those without a bus: veth, TAP) hand over frames as the sender's stack left them, with checksums
//! for a card to complete, and XDP does not say which. On such interfaces a TCP or UDP checksum that equals the sum of
//! its pseudo header alone, and an SCTP checksum of zero, is completed, without harm to other packets
//! ([`crate::offload::complete_bare`]).
//!
//! A frame that is longer than a driver's buffer of one page, or that may lie in a slot longer than a page, comes and goes in several
//! buffers, and is copied: see [`staging`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use wire::ethernet;
use wire::{Batch, Pool, PoolError, PoolMemory, Port, PortError, Received};

use crate::fast_path::{Bypass, FastPath, FastPathError, LineCount, Settled};
use crate::line::{Identity, Line, Statistics, Target, is_busy};
use crate::offload as undone;
use crate::program::fast::{Checksums, Front};
use crate::program::{self, Instruction};
use crate::refusal::{ATTACH_XDP, Cause};
use crate::spec::Tagged;
use crate::sys::bpf::{self, Hook};
use crate::sys::clock;
use crate::sys::interface::{Asker, offload};
use crate::sys::socket::Waiter;
use crate::sys::xsk::{Buffers, Part, Queue};

mod staging;

use staging::Staging;

/// Lines and program of an interface opened by AF_XDP.
pub(crate) struct Xdp {
    /// One line for each worker.
    pub(crate) lines: Vec<XdpLine>,
    /// Links that hold the program, and the map of sockets.
    pub(crate) links: Vec<OwnedFd>,
    /// True if no queue copies frames.
    pub(crate) zero_copy: bool,
    /// Frames of a card have their tags in them, those of another stack lose them.
    pub(crate) tagged: Tagged,
    pub(crate) bypass: Bypass,
}

/// One worker's queues.
pub(crate) struct XdpLine {
    identity: Identity,
    queues: Vec<Queue>,
    /// Index of the queue to ask first.
    turn: usize,
    /// Descriptor to wait for all queues.
    waiter: Waiter,
    /// Bytes of the longest frame that may be sent.
    longest: usize,
    origin: Origin,
    idle: u32,
    statistics: Statistics,
    /// Counts of the queues' frames for the fast path, in their order; none where it has none.
    fast: Vec<FastQueue>,
    /// Buffers of frames that come and go in several; none where frames lie in their slots.
    staging: Option<Staging>,
}

/// A queue on the fast path.
struct FastQueue {
    count: LineCount,
    /// Frames dropped by the queue that the count has.
    lost: u64,
}

/// Source of an interface's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A wire: checksums are complete.
    Card,
    /// Another stack: checksums may be left to complete.
    Stack,
}

/// Number of calls that find nothing before the kernel is called, to see errors.
const PATIENCE: u32 = 64;
/// Least number of entries of a ring: a batch.
const FEWEST: u32 = 64;
/// Largest size of a buffer, in bytes.
const PAGE: usize = 4096;
/// Bytes of the longest frame that drivers have in one buffer: a page, without what XDP has in front of frames and Linux behind them.
const LONGEST_OF_ONE_BUFFER: usize = PAGE - 256 - 320;

impl Xdp {
    /// Opens all queues of an interface for `memories`, those of the workers' pools.
    pub(crate) fn open(
        target: &Target,
        tagged: Tagged,
        asker: &Asker,
        memories: &[PoolMemory],
        fast_path: Option<&Arc<FastPath>>,
    ) -> Result<Xdp, Cause> {
        let Identity { name, ifindex } = &target.identity;
        let ifindex = *ifindex;
        let receiving = asker.queues(name);
        let workers = memories.len();
        if (receiving as usize) < workers {
            return Err(Cause::TooFewQueues { queues: receiving, workers });
        }
        let is_long =
            |memory: &PoolMemory| memory.slot_bytes() > PAGE || target.longest > LONGEST_OF_ONE_BUFFER;
        let buffers = if memories.iter().any(is_long) { Buffers::Several } else { Buffers::One };
        let origin = if asker.is_virtual(name) { Origin::Stack } else { Origin::Card };
        if origin == Origin::Stack && tagged == Tagged::Yes {
            return Err(Cause::TagsApart);
        }
        let map = bpf::socket_map(receiving).map_err(Cause::step("make a map of sockets"))?;
        if origin == Origin::Card && asker.offloads(name).is_ok_and(|on| on & offload::VLAN_RECEIVE != 0) {
            return Err(Cause::TagsTaken);
        }
        // A pool is for all ports of its worker, and for frames under way: none takes more than an eighth of it to
        // receive into.
        let size_of = |worker: usize, memory: &PoolMemory| {
            let mine = (receiving as usize - worker).div_ceil(workers) as u32;
            let depth = target.depth.min(memory.slots() / 8) / mine;
            depth.max(FEWEST).next_power_of_two()
        };
        let sizes: Vec<u32> = (0..).zip(memories).map(|(worker, memory)| size_of(worker, memory)).collect();
        // Some drivers must have the program before they give up a queue.
        let hook = match buffers {
            Buffers::One => Hook::Xdp,
            Buffers::Several => Hook::XdpFragments,
        };
        let attach = |program: &[Instruction]| bpf::attach(hook, ifindex, program);
        let mut counts: Vec<Option<LineCount>> = Vec::new();
        let mut bypass = Bypass::Off;
        let mut link = None;
        if let Some(path) = fast_path {
            let least = sizes.iter().copied().min().unwrap_or(FEWEST);
            let front = |path: &Arc<FastPath>| {
                let counts = LineCount::several(path, receiving as usize, 0)?;
                let refused = FastPathError::step("attach the program that forwards frames on the fast path");
                let program = path.front(&Front {
                    sockets: map.as_fd(),
                    queues: receiving,
                    first_line: counts.first().map_or(0, LineCount::number),
                    backlog: (least / 2).max(1),
                    mac: asker.mac(name).map_err(&refused)?,
                    checksums: if origin == Origin::Stack { Checksums::Bare } else { Checksums::Complete },
                })?;
                Ok((attach(&program).map_err(refused)?, counts))
            };
            match front(path) {
                Ok((attached, lines)) => {
                    bypass = Bypass::On;
                    counts.extend(lines.into_iter().map(Some));
                    link = Some(attached);
                }
                Err(error) => bypass = Bypass::Refused(error),
            }
        }
        let link = match link {
            Some(link) => link,
            None => attach(&program::to_sockets(map.as_fd())).map_err(Cause::step(ATTACH_XDP))?,
        };
        let no_memory =
            |error| Cause::step("allocate buffers for long frames")(io::Error::other::<PoolError>(error));
        // A frame of several buffers is copied here.
        let mut zero_copy = buffers == Buffers::One;
        let mut lines = Vec::with_capacity(workers);
        for (worker, (memory, size)) in memories.iter().zip(sizes).enumerate() {
            let (mut queues, mut fast) = (Vec::new(), Vec::new());
            let mine = (worker as u32..receiving).step_by(workers);
            let staging = match buffers {
                Buffers::One => None,
                Buffers::Several => Some(Staging::new(mine.len(), size, target.longest).map_err(no_memory)?),
            };
            let own = staging.as_ref().map(Staging::memory);
            for number in mine {
                let queue = Queue::open(ifindex, number, own.as_ref().unwrap_or(memory), size, buffers)
                    .map_err(Cause::step("open an AF_XDP socket on its queue"))?;
                bpf::map_socket(map.as_fd(), number, queue.fd())
                    .map_err(Cause::step("enter the socket for its queue"))?;
                zero_copy &= queue.is_zero_copy();
                queues.push(queue);
                let count = counts.get_mut(number as usize).and_then(Option::take);
                fast.extend(count.map(|count| FastQueue { count, lost: 0 }));
            }
            let waiter =
                Waiter::new(queues.iter().map(Queue::fd)).map_err(Cause::step("wait for several queues"))?;
            lines.push(XdpLine {
                identity: target.identity.clone(),
                queues,
                turn: 0,
                waiter,
                longest: target.longest,
                origin,
                idle: 0,
                statistics: Statistics::default(),
                fast,
                staging,
            });
        }
        let tagged = if origin == Origin::Card { Tagged::Yes } else { Tagged::No };
        Ok(Xdp { lines, links: vec![link, map], zero_copy, tagged, bypass })
    }
}

impl XdpLine {
    /// Receives waiting frames from the queues.
    #[inline]
    fn take(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let mut frames = 0;
        for step in 0..self.queues.len() {
            let number = (self.turn + step) % self.queues.len();
            let queue = &mut self.queues[number];
            let mut dropped = 0;
            let received = match &mut self.staging {
                None => {
                    queue.refill(pool);
                    queue.receive(batch)
                }
                Some(staging) => {
                    staging.refill(queue);
                    let staged = staging.receive(number, queue, batch, pool);
                    dropped = staged.too_long;
                    staged.frames
                }
            };
            self.statistics.unusable += dropped as u64;
            if let Some(fast) = self.fast.get_mut(number) {
                fast.count.take((received + dropped) as u64);
            }
            frames += received;
        }
        self.turn = self.turn.wrapping_add(1) % self.queues.len();
        frames
    }

    /// Calls the kernel for frames if the driver needs it, and every [`PATIENCE`] calls to see a removed interface.
    fn call_idle(&mut self) -> Result<(), PortError> {
        self.idle += 1;
        let asking = self.idle >= PATIENCE;
        if asking {
            self.idle = 0;
        }
        for queue in &self.queues {
            if asking || queue.wants_call_to_receive() {
                match queue.call_to_receive() {
                    Err(error) if !is_busy(&error) && error.kind() != io::ErrorKind::Interrupted => {
                        return Err(self.identity.failed("receive", error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Calls the kernel to send the frames in the ring, as far as it does now.
    fn call_to_send(&mut self) -> Result<(), PortError> {
        let Some(queue) = self.queues.first() else { return Ok(()) };
        if !queue.wants_call_to_send() {
            return Ok(());
        }
        // Each call sends some 32 frames, or one that the device drops.
        let mut waiting = queue.waiting();
        let calls = 1 + waiting;
        for _ in 0..calls {
            let Err(error) = queue.call_to_send() else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EBUSY) => self.statistics.dropped += 1,
                Some(libc::EAGAIN) if queue.waiting() < waiting => waiting = queue.waiting(),
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.statistics.refused += 1;
                    return Ok(());
                }
                _ => return Err(self.identity.failed("send", error)),
            }
        }
        Ok(())
    }

    /// Puts the first frames of the batch into the ring; returns their number.
    fn load(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(queue) = self.queues.first_mut() else { return 0 };
        let wanted = batch.len() as u32;
        let room = match &self.staging {
            None => queue.room(wanted),
            Some(staging) => staging.room(queue, wanted),
        };
        let frames = room.min(wanted) as usize;
        for frame in batch.drain_front(frames) {
            let bytes = frame.len();
            if bytes > self.longest || bytes < ethernet::HEADER_LEN {
                self.statistics.unsendable += 1;
                pool.put(frame);
                continue;
            }
            if let Some(staging) = &mut self.staging {
                if staging.send(queue, frame.bytes()) {
                    self.statistics.sent += 1;
                    self.statistics.sent_bytes += bytes as u64;
                } else {
                    self.statistics.dropped += 1;
                }
                pool.put(frame);
                continue;
            }
            let sent = queue.send(frame, Part::Last).or_else(|foreign| {
                // Of another worker's pool: a copy goes, as the kernel knows only this one's memory.
                let copy =
                    pool.take().map(|mut copy| if copy.fill(foreign.bytes()) { Ok(copy) } else { Err(copy) });
                pool.put(foreign);
                match copy {
                    Some(Ok(copy)) => queue.send(copy, Part::Last).map_err(Some),
                    Some(Err(copy)) => Err(Some(copy)),
                    None => Err(None),
                }
            });
            match sent {
                Ok(()) => {
                    self.statistics.sent += 1;
                    self.statistics.sent_bytes += bytes as u64;
                }
                Err(frame) => {
                    self.statistics.dropped += 1;
                    if let Some(frame) = frame {
                        pool.put(frame);
                    }
                }
            }
        }
        queue.submit();
        frames
    }
}

impl Port for XdpLine {
    fn name(&self) -> &str {
        &self.identity.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let before = batch.len();
        let frames = self.take(batch, pool);
        if frames == 0 {
            if !batch.is_full() {
                self.call_idle()?;
            }
            return Ok(Received::Nothing);
        }
        self.idle = 0;
        let now = clock::now();
        for frame in &mut batch[before..] {
            frame.meta.received = now;
            if self.origin == Origin::Stack && undone::complete_bare(frame.bytes_mut()) {
                self.statistics.completed += 1;
            }
        }
        self.statistics.receive(&batch[before..]);
        Ok(Received::Frames(frames))
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        self.reclaim(pool);
        while !batch.is_empty() {
            let loaded = self.load(batch, pool);
            self.call_to_send()?;
            if loaded == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Line for XdpLine {
    fn fd(&self) -> BorrowedFd<'_> {
        match &self.queues[..] {
            [only] => only.fd(),
            _ => self.waiter.as_fd(),
        }
    }

    fn statistics(&mut self) -> Statistics {
        let mut statistics = self.statistics;
        for counted in self.queues.iter().filter_map(|queue| queue.statistics().ok()) {
            statistics.lost += counted.rx_dropped + counted.rx_ring_full;
        }
        statistics
    }

    fn reclaim(&mut self, pool: &mut Pool) {
        for queue in &mut self.queues {
            match &mut self.staging {
                None => queue.reclaim(pool),
                Some(staging) => staging.reclaim(queue),
            }
        }
    }

    fn unsent(&self) -> usize {
        self.queues.first().map_or(0, |queue| queue.waiting() as usize)
    }

    fn mark(&mut self) {
        self.fast.iter_mut().for_each(|fast| fast.count.mark());
    }

    fn settled(&mut self) {
        for (fast, queue) in self.fast.iter_mut().zip(&self.queues) {
            if fast.count.settle() == Settled::Short {
                // What the ring has dropped is nobody's to send on.
                if let Ok(counted) = queue.statistics() {
                    let lost = counted.rx_dropped + counted.rx_ring_full;
                    fast.count.drop(lost - fast.lost);
                    fast.lost = lost;
                }
            }
        }
    }
}
