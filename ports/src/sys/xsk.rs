//! AF_XDP: a socket on one queue of an interface, its four rings, and the slots lent to the kernel through it.
//!
//! The memory of the worker's pool is registered with each socket by itself. One registration could serve them all
//! (`XDP_SHARED_UMEM`), but then all of a worker's interfaces would have to copy if one of them does, and could not be
//! opened and closed independently.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use libc::{c_int, socklen_t, xdp_desc};
use wire::{Batch, Frame, Loan, Place, Pool, PoolMemory};

use super::ring::{self, Consumer, Producer};
use super::{Plain, check, socket};

// SAFETY: structures of integers without padding.
unsafe impl Plain for xdp_desc {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_xdp {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_options {}

/// A socket on one queue.
pub(crate) struct Queue {
    /// Dropped by `drop`, before the loan ends.
    rings: ManuallyDrop<Rings>,
    loan: Loan,
    ifindex: u32,
    queue: u32,
    /// Number of slots lent to be filled, and its limit.
    filling: u32,
    fill_target: u32,
    /// Number of slots lent to be sent.
    sending: u32,
    zero_copy: bool,
}

/// Buffers of a frame, each of which has a place of its own in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// One.
    One,
    /// As many as it takes (`XDP_USE_SG`, Linux 6.6).
    Several,
}

/// Part of a frame that a buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The frame, or its end.
    Last,
    /// The next buffer goes on.
    Continued,
}

/// A received buffer, with its part of a frame.
pub(crate) struct Piece {
    pub(crate) buffer: Frame,
    pub(crate) part: Part,
}

/// The socket and its rings. The socket is closed when all of them are.
struct Rings {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    received: Consumer<xdp_desc>,
    sent: Producer<xdp_desc>,
    socket: OwnedFd,
}

impl Queue {
    /// Opens a socket on `queue` of an interface, with rings of `size` entries, a power of two. Zero-copy if the driver
    /// can.
    pub(crate) fn open(
        ifindex: u32,
        queue: u32,
        memory: &PoolMemory,
        size: u32,
        buffers: Buffers,
    ) -> io::Result<Queue> {
        let socket = socket::new(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let fd = socket.as_fd();
        register(fd, memory)?;
        for option in
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
        {
            socket::set(fd, libc::SOL_XDP, option, size)?;
        }
        let offsets: libc::xdp_mmap_offsets = socket::get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let place = |page_offset: i64, offsets| ring::Place { page_offset, offsets, size };
        let fill = Producer::new(fd, place(libc::XDP_UMEM_PGOFF_FILL_RING as i64, offsets.fr))?;
        let completion = Consumer::new(fd, place(libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, offsets.cr))?;
        let received = Consumer::new(fd, place(libc::XDP_PGOFF_RX_RING, offsets.rx))?;
        let sent = Producer::new(fd, place(libc::XDP_PGOFF_TX_RING, offsets.tx))?;
        socket::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BYTES)?;
        let several = if buffers == Buffers::Several { libc::XDP_USE_SG } else { 0 };
        bind(fd, ifindex, queue, libc::XDP_USE_NEED_WAKEUP | several)?;
        let options: libc::xdp_options = socket::get(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(Queue {
            zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
            rings: ManuallyDrop::new(Rings { fill, completion, received, sent, socket }),
            loan: Loan::new(memory.clone()),
            ifindex,
            queue,
            filling: 0,
            fill_target: size,
            sending: 0,
        })
    }

    /// The socket.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.rings.socket.as_fd()
    }

    /// True if the card writes to the pool itself.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Lends the kernel slots to fill.
    #[inline]
    pub(crate) fn refill(&mut self, pool: &mut Pool) {
        let rings = &mut *self.rings;
        let missing = self.fill_target - self.filling;
        if missing == 0 {
            return;
        }
        let mut room = rings.fill.room(missing).min(missing);
        while room > 0 {
            let Some(address) = self.loan.lend_empty(pool) else { break };
            if !rings.fill.push(address) {
                break;
            }
            self.filling += 1;
            room -= 1;
        }
        rings.fill.submit();
    }

    /// Appends received frames of one buffer to the batch; returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &mut Batch) -> usize {
        let mut frames = 0;
        while !batch.is_full() {
            let Some(piece) = self.receive_piece() else { break };
            frames += usize::from(batch.push(piece.buffer).is_ok());
        }
        if frames > 0 {
            self.release_received();
        }
        frames
    }

    /// Takes the next buffer received. The ring has room for others after [`Queue::release_received`].
    #[inline]
    pub(crate) fn receive_piece(&mut self) -> Option<Piece> {
        let rings = &mut *self.rings;
        loop {
            let descriptor = rings.received.pop()?;
            let place = Place { address: descriptor.addr, len: descriptor.len };
            // SAFETY: the kernel has put the slot into the ring of received frames, and does not touch it any more.
            let Some(buffer) = (unsafe { self.loan.fetch(place) }) else { continue };
            self.filling = self.filling.saturating_sub(1);
            let is_continued = descriptor.options & libc::XDP_PKT_CONTD != 0;
            return Some(Piece { buffer, part: if is_continued { Part::Continued } else { Part::Last } });
        }
    }

    /// Gives the kernel the room of the buffers received.
    #[inline]
    pub(crate) fn release_received(&self) {
        self.rings.received.release();
    }

    /// Number of buffers that can be sent now, at least `wanted` if there is room for so many.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        self.rings.sent.room(wanted)
    }

    /// Puts a buffer with a frame or a part of one into the transmit ring, or gives it back if the ring is full or the buffer is of
    /// another pool.
    #[inline]
    pub(crate) fn send(&mut self, frame: Frame, part: Part) -> Result<(), Frame> {
        let rings = &mut *self.rings;
        if rings.sent.room(1) == 0 {
            return Err(frame);
        }
        let Place { address, len } = self.loan.lend(frame)?;
        let options = if part == Part::Continued { libc::XDP_PKT_CONTD } else { 0 };
        if rings.sent.push(xdp_desc { addr: address, len, options }) {
            self.sending += 1;
        }
        Ok(())
    }

    /// Shows the kernel the frames to send.
    #[inline]
    pub(crate) fn submit(&self) {
        self.rings.sent.submit();
    }

    /// Number of frames shown to the kernel and not yet taken.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.rings.sent.waiting()
    }

    /// Gives the pool the slots of frames that were sent.
    #[inline]
    pub(crate) fn reclaim(&mut self, pool: &mut Pool) {
        let rings = &mut *self.rings;
        if self.sending == 0 {
            return;
        }
        let before = self.sending;
        while let Some(address) = rings.completion.pop() {
            // SAFETY: the kernel has put the slot into the ring of frames sent, and does not touch it any more.
            if unsafe { self.loan.give_back(address, pool) } {
                self.sending = self.sending.saturating_sub(1);
            }
        }
        if self.sending != before {
            rings.completion.release();
        }
    }

    /// True if the kernel sends only when called.
    #[inline]
    pub(crate) fn wants_call_to_send(&self) -> bool {
        self.rings.sent.needs_wakeup()
    }

    /// True if the kernel looks for slots to fill only when called.
    #[inline]
    pub(crate) fn wants_call_to_receive(&self) -> bool {
        self.rings.fill.needs_wakeup()
    }

    /// Calls the kernel to send.
    #[inline]
    pub(crate) fn call_to_send(&self) -> io::Result<()> {
        let fd = self.fd();
        // SAFETY: no bytes are passed.
        let sent = unsafe {
            libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Calls the kernel to look for frames.
    #[inline]
    pub(crate) fn call_to_receive(&self) -> io::Result<()> {
        let fd = self.fd();
        // SAFETY: no bytes are passed.
        let received = unsafe {
            libc::recvfrom(
                fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Statistics of the kernel.
    pub(crate) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        socket::get(self.fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Frames on their way are sent from their slots: first let them go.
        for _ in 0..DRAINING {
            let rings = &mut *self.rings;
            while rings.completion.pop().is_some() {
                // The slot comes home with the others, below.
                self.sending = self.sending.saturating_sub(1);
            }
            rings.completion.release();
            if self.sending == 0 {
                break;
            }
            let _ = self.call_to_send();
            thread::sleep(MOMENT);
        }
        // SAFETY: dropped once, here, and not used below.
        unsafe { ManuallyDrop::drop(&mut self.rings) };
        // A card may write to slots until its driver has let go of the queue, which it does a while after the socket
        // was closed. A slot that is never known to be free is never used again.
        if !self.zero_copy || is_free(self.ifindex, self.queue) {
            // SAFETY: the socket is closed with its rings. Without a card's own access, the kernel copied to and from
            // slots only in calls and interrupts of this socket, of which none runs any more once it is closed; with
            // it, the driver has let go of the queue.
            unsafe { self.loan.end() };
        }
    }
}

/// Socket send buffer, in bytes.
const SEND_BYTES: c_int = 8 << 20;
/// Number of waits for a queue to drain (`DRAINING`) and to be released (`WAITING`), and duration of each (`MOMENT`).
const DRAINING: u32 = 50;
const WAITING: u32 = 500;
const MOMENT: Duration = Duration::from_millis(2);

/// Registers the memory of a pool.
fn register(fd: BorrowedFd<'_>, memory: &PoolMemory) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.base().as_ptr() as u64,
        len: memory.len() as u64,
        chunk_size: memory.slot_bytes() as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // SAFETY: the kernel reads the structure. To the memory it writes only in slots that are put into the ring of slots
    // to fill, which `Queue` lends from a pool of that memory; and it keeps the memory's pages for as long as it has to.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_UMEM_REG,
            (&raw const registration).cast(),
            size_of::<libc::xdp_umem_reg>() as socklen_t,
        )
    })
    .map(drop)
}

/// Binds to a queue. The kernel releases the queue of a closed socket with a delay, so this retries for a second.
fn bind(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let mut tries = 0;
    loop {
        match socket::bind(fd, &address) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < WAITING => {
                tries += 1;
                thread::sleep(MOMENT);
            }
            other => return other,
        }
    }
}

/// True if the queue has no socket any more, or the interface is gone; waits up to a second for it.
fn is_free(ifindex: u32, queue: u32) -> bool {
    let probe = || {
        let memory = Pool::new(1, 4096).map_err(io::Error::other)?.memory();
        let socket = socket::new(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let fd = socket.as_fd();
        register(fd, &memory)?;
        for option in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            socket::set(fd, libc::SOL_XDP, option, 1u32)?;
        }
        bind(fd, ifindex, queue, libc::XDP_COPY)
    };
    match probe() {
        Ok(()) => true,
        Err(error) => error.raw_os_error() == Some(libc::ENODEV),
    }
}
