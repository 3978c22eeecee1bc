//! TAP devices: interfaces of Linux whose other end is wirerate.
//!
//! Packets that Linux sends by a device are received here, and packets sent here are received by Linux. A TUN device
//! carries bare IP packets, which get a stand-in for the Ethernet header here ([`wire::link_kind`]). The device
//! vanishes when the last of its queues is closed, so that nothing of it remains when the process ends, however it
//! ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wire::ethernet::{self, Mac};
use wire::link_kind::{self, STAND_IN};
use wire::segment::Plan;
use wire::vlan::TAG_LEN;
use wire::{Batch, Frame, HEADROOM, LinkKind, Pool, Port, PortError, Received};

use crate::line::{Identity, Line, Statistics, is_busy};
use crate::offload;
use crate::pending::{Begun, Pending, Undone, finish};
use crate::program::{self, FORWARDED_BARE};
use crate::refusal::{Cause, OpenError};
use crate::spec::Offload;
use crate::sys::bpf::{self, Hook};
use crate::sys::link::{Change, Stack};
use crate::sys::packet::VnetHeader;
use crate::sys::{clock, interface, link, tun};

/// A soft interface: an interface of Linux, with one queue a worker.
#[derive(Debug)]
pub struct Tap {
    /// Index of the interface.
    pub ifindex: u32,
    /// A queue for each worker.
    pub lines: Vec<TapLine>,
    /// Holds the program that marks packets forwarded by Linux; `None` if not asked for, or if the process may not load
    /// programs.
    pub held: Option<TapHeld>,
}

/// Holds the program on a TAP device.
#[derive(Debug)]
pub struct TapHeld {
    _link: OwnedFd,
}

impl Tap {
    /// Creates the device `name`, brings it up, and opens a queue for each of `workers`. Linux's stack uses it as any
    /// other interface; its addresses are not set here. `mtu` is in bytes of an IP packet; without `mac` Linux draws a
    /// hardware address. In a user namespace, where nobody may load programs, packets that Linux forwards by the device
    /// are not marked.
    ///
    /// # Errors
    /// A device of that name exists already, or the device cannot be created.
    pub fn open(name: &str, mtu: u16, mac: Option<Mac>, workers: usize) -> Result<Tap, OpenError> {
        Tap::used(
            name,
            Change { mtu: mtu.into(), mac, kind: LinkKind::Ethernet, stack: Stack::Used },
            workers,
        )
    }

    /// The same of a TUN device, whose packets are bare. Linux gives it no link-local address.
    ///
    /// # Errors
    /// As for [`Tap::open`].
    pub fn bare(name: &str, mtu: u16, workers: usize) -> Result<Tap, OpenError> {
        Tap::used(
            name,
            Change { mtu: mtu.into(), mac: None, kind: LinkKind::Ip, stack: Stack::Used },
            workers,
        )
    }

    fn used(name: &str, change: Change, workers: usize) -> Result<Tap, OpenError> {
        // What Linux sends is taken, whatever else may come large: it would not send smaller ones instead.
        let opened = Tap::make(name, change, workers, Offload::Whole).and_then(|tap| {
            match bpf::attach(Hook::TcxEgress, tap.ifindex, &program::mark(change.kind)) {
                Ok(link) => Ok(Tap { held: Some(TapHeld { _link: link }), ..tap }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(tap),
                Err(error) => Err(Cause::step("attach the program that marks what Linux forwards")(error)),
            }
        });
        opened.map_err(|cause| OpenError::of_tap(name, cause))
    }

    pub(crate) fn make(name: &str, change: Change, workers: usize, offload: Offload) -> Result<Tap, Cause> {
        let mut lines = Vec::with_capacity(workers);
        let longest = match change.kind {
            LinkKind::Ethernet => change.mtu as usize,
            // Out of a tunnel come larger packets than go into it, put together from fragments; Linux takes them.
            LinkKind::Ip => usize::from(u16::MAX),
        } + ethernet::HEADER_LEN
            + 2 * TAG_LEN;
        let mut identity = Identity { name: name.to_owned(), ifindex: 0 };
        for _ in 0..workers {
            let first = lines.is_empty();
            let fd = match tun::open(name, change.kind, workers > 1, first) {
                Err(error) if first && error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(Cause::NameTaken);
                }
                other => other.map_err(Cause::step("make a TAP device"))?,
            };
            tun::offload(fd.as_fd()).map_err(Cause::step("set up the TAP device"))?;
            if first {
                identity.ifindex = interface::index(name).map_err(Cause::step("find the TAP device"))?;
            }
            lines.push(TapLine {
                identity: identity.clone(),
                device: first.then_some(identity.ifindex),
                fd,
                kind: change.kind,
                pending: Pending::new(offload),
                longest,
                statistics: Statistics::default(),
            });
        }
        link::change(identity.ifindex, change).map_err(Cause::step("bring the TAP device up"))?;
        Ok(Tap { ifindex: identity.ifindex, lines, held: None })
    }
}

/// One queue of a TAP device.
pub struct TapLine {
    identity: Identity,
    fd: OwnedFd,
    /// Link kind of the device.
    kind: LinkKind,
    pending: Pending,
    /// Index of the device, at the one queue that reports the losses of the device as a whole.
    device: Option<u32>,
    /// Bytes of the longest frame that may be sent.
    longest: usize,
    statistics: Statistics,
}

impl std::fmt::Debug for TapLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapLine")
            .field("name", &self.identity.name)
            .field("statistics", &self.statistics)
            .finish()
    }
}

impl TapLine {
    /// Reads one frame into `frame`, or begins to segment it; `Ok(None)` if unusable, already counted.
    fn read(&mut self, frame: &mut Frame, pool: &mut Pool) -> io::Result<Option<Begun>> {
        let mut header = [0; VnetHeader::LEN];
        let room = pool.slot_bytes() - HEADROOM;
        let bytes = frame.prepare(room).unwrap_or_default();
        let buffer = self.pending.buffer();
        // What does not fit the frame goes to where it is wanted in the buffer.
        let rest = &mut buffer[room..];
        let before = match self.kind {
            LinkKind::Ethernet => 0,
            LinkKind::Ip => STAND_IN,
        };
        let (front, packet) = bytes.split_at_mut_checked(before).unwrap_or_default();
        let read = tun::read(self.fd.as_fd(), [&mut header, packet, rest])?;
        let length = before + read.saturating_sub(VnetHeader::LEN);
        let header = VnetHeader::from_bytes(header).behind(before);
        if self.kind == LinkKind::Ip {
            let within = packet.len().min(length - before);
            let read = &mut packet[..within];
            let forwarded = read.first().is_some_and(|first| first & FORWARDED_BARE != 0);
            if let Some(first) = read.first_mut() {
                *first &= !FORWARDED_BARE;
            }
            let Some(mut stand_in) = link_kind::originated(read) else {
                self.statistics.unusable += 1;
                return Ok(None);
            };
            // As the guard of an Ethernet interface marks it.
            stand_in[6] |= u8::from(forwarded);
            front.copy_from_slice(&stand_in);
        }
        let begun = if header.gso_type == 0 && length <= room {
            frame.truncate(length);
            finish(frame, &header, None, &mut self.statistics).then_some(Begun::Frame)
        } else {
            frame.truncate(length);
            buffer[..frame.len()].copy_from_slice(frame.bytes());
            self.pending.begin(length, &Undone { header, tag: None }, frame, pool, &mut self.statistics)
        };
        if begun.is_none() {
            self.statistics.unusable += 1;
        }
        Ok(begun)
    }
}

impl Port for TapLine {
    fn name(&self) -> &str {
        &self.identity.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let now = clock::now();
        let before = batch.len();
        let result = loop {
            self.pending.cut(batch, pool, now, &mut self.statistics);
            if batch.is_full() || !self.pending.is_empty() {
                break Ok(());
            }
            let Some(mut frame) = pool.take() else { break Ok(()) };
            frame.meta.received = now;
            let back = match self.read(&mut frame, pool) {
                Ok(Some(Begun::Frame)) => batch.push(frame).err(),
                Ok(Some(Begun::Whole(mut whole))) => {
                    whole.meta.received = now;
                    pool.put(frame);
                    batch.push(whole).err()
                }
                Ok(Some(Begun::Segments) | None) => Some(frame),
                Err(error) => {
                    pool.put(frame);
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    break if is_busy(&error) { Ok(()) } else { Err(error) };
                }
            };
            if let Some(frame) = back {
                pool.put(frame);
            }
        };
        self.statistics.receive(&batch[before..]);
        match (batch.len() - before, result) {
            // What came before the error is handed over first; it will be met again.
            (0, Err(error)) => Err(self.identity.failed("receive", error)),
            (0, Ok(())) => Ok(Received::Nothing),
            (frames, _) => Ok(Received::Frames(frames)),
        }
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        let mut done = 0;
        let mut result = Ok(());
        while let Some(frame) = batch.get_mut(done) {
            let description = if frame.is_big() { self.describe(frame) } else { Some(VnetHeader::default()) };
            let is_too_long = frame.len() > self.longest && !frame.is_big();
            let Some(description) = description.filter(|_| !is_too_long) else {
                self.statistics.unsendable += 1;
                done += 1;
                continue;
            };
            let bytes = match self.kind {
                LinkKind::Ethernet => Some(frame.bytes()),
                LinkKind::Ip => link_kind::bare(frame.bytes()).map(|bare| bare.packet),
            };
            let Some(bytes) = bytes else {
                self.statistics.unsendable += 1;
                done += 1;
                continue;
            };
            match tun::write(self.fd.as_fd(), [&description.to_bytes(), bytes]) {
                Ok(_) => {
                    self.statistics.send(frame);
                    done += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) => {
                    self.statistics.refused += 1;
                    break;
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.statistics.unsendable += 1;
                    done += 1;
                }
                // Switched off, or on its way into another namespace: it may be up again any moment, and is still ours.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    self.statistics.dropped += 1;
                    done += 1;
                }
                Err(error) => {
                    result = Err(self.identity.failed("send", error));
                    break;
                }
            }
        }
        pool.put_all(batch.drain_front(done));
        result
    }
}

impl TapLine {
    /// Prepares a packet of many segments for Linux: where its link-layer header is a stand-in, offsets are those of the bare packet.
    fn describe(&self, frame: &mut Frame) -> Option<VnetHeader> {
        let plan = Plan::of(frame)?;
        let header = offload::describe(frame.bytes_mut(), &plan)?;
        Some(match self.kind {
            LinkKind::Ethernet => header,
            LinkKind::Ip => header.without(plan.network()),
        })
    }
}

impl Line for TapLine {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        let lost = self.device.and_then(|device| link::lost(device).ok());
        Statistics { lost: lost.unwrap_or(0), ..self.statistics }
    }

    fn takes_whole(&mut self, _: &Plan) -> bool {
        // Linux's stack needs none of them cut, and what it forwards it cuts itself.
        true
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}
