//! The line: one queue of a port, for one worker.

use std::io;
use std::os::fd::BorrowedFd;

#[cfg(doc)]
use wire::Frame;
use wire::segment::{Plan, Segments};
use wire::{LinkKind, Pool, Port, PortError};

use crate::spec::Offload;
use crate::sys::interface;

/// One queue of a live interface, or of the path to Linux behind one, for one worker. Each call must be given the pool
/// that the line was opened with; received frames come from it.
pub trait Line: Port + Send {
    /// Descriptor to poll: readable (`POLLIN`) when frames wait, or when the next call will return an error.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Counters since the line was opened.
    fn statistics(&mut self) -> Statistics;

    /// True if the line takes this packet of many segments whole ([`Frame::is_big`]): the device cuts it, or nobody needs to. What a
    /// line does not take is for the caller to cut ([`wire::segment`]). May change with the device's features, even while such a packet
    /// waits to be sent.
    fn takes_whole(&mut self, _packet: &Plan) -> bool {
        false
    }

    /// Gives `pool` the slots of frames that the card has sent. Sending does so too; this is for a worker that is about
    /// to sleep.
    fn reclaim(&mut self, pool: &mut Pool);

    /// Number of frames that [`Port::transmit`] took and that the kernel has yet to take.
    fn unsent(&self) -> usize {
        0
    }

    /// Marks the frames received so far, for [`Line::settled`].
    fn mark(&mut self) {}

    /// Tells the [fast path](crate::FastPath) that all frames received before the last [`Line::mark`] have been sent on or dropped, those too that
    /// another worker was to handle: the next packets of their flows may go by without overtaking them.
    fn settled(&mut self) {}
}

/// Counters of a [`Line`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames received; a packet of many segments counts as these.
    pub received: u64,
    /// Bytes of received frames.
    pub received_bytes: u64,
    /// Frames handed to the device; a packet of many segments counts as these.
    pub sent: u64,
    /// Bytes of sent frames.
    pub sent_bytes: u64,
    /// Frames dropped by the kernel before receipt for want of room: the worker did not keep up.
    pub lost: u64,
    /// Frames received and dropped because no Ethernet frame can be made of their form.
    pub unusable: u64,
    /// Number of times that the device refused further frames for now. Such frames stay with the worker.
    pub refused: u64,
    /// Frames handed over that the device dropped instead of sending, or that had no slot.
    pub dropped: u64,
    /// Frames dropped instead of sent because they are longer or shorter than the device takes.
    pub unsendable: u64,
    /// Packets of many segments (GSO, GRO) that were segmented into frames.
    pub segmented: u64,
    /// Packets of many segments received whole.
    pub whole: u64,
    /// Frames whose checksum was completed here.
    pub completed: u64,
}

impl Statistics {
    /// Counts frames received, as segments.
    pub(crate) fn receive(&mut self, frames: &[wire::Frame]) {
        for frame in frames {
            let Segments { count, bytes } = Segments::of(frame);
            self.received += count;
            self.received_bytes += bytes;
        }
    }

    /// Counts a frame handed to the device.
    #[inline]
    pub(crate) fn send(&mut self, frame: &wire::Frame) {
        let Segments { count, bytes } = Segments::of(frame);
        self.sent += count;
        self.sent_bytes += bytes;
    }
}

/// Unusable interface, as the cause of a [`PortError`]: see [`Gone::of`]. The port must be reopened once the interface
/// is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// Removed, or moved to another network namespace.
    #[error("the interface is gone")]
    Removed,
    /// Set down.
    #[error("the interface is down")]
    Down,
}

impl Gone {
    /// Returns the `Gone` that caused a port's error, if any.
    pub fn of(error: &PortError) -> Option<Gone> {
        error.cause.downcast_ref().copied()
    }

    /// Returns the `Gone` that an error of the kernel stands for, if any.
    fn meant_by(error: &io::Error) -> Option<Gone> {
        match error.raw_os_error()? {
            libc::ENETDOWN | libc::EIO => Some(Gone::Down),
            libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EFAULT => Some(Gone::Removed),
            _ => None,
        }
    }
}

/// Interface to open lines on, with the properties that all drivers need.
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

/// Interface of a line.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Name of the interface when it was opened.
    pub(crate) name: String,
    /// Index of the interface: constant, and never reused for another.
    pub(crate) ifindex: u32,
}

impl Identity {
    /// Builds the port's error, with the kernel's error turned into [`Gone`] where it stands for that.
    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, error: io::Error) -> PortError {
        let cause: Box<dyn std::error::Error + Send + Sync> = match Gone::meant_by(&error) {
            // The kernel says "down" of an interface that was removed too.
            Some(Gone::Down) if !interface::exists(self.ifindex) => Box::new(Gone::Removed),
            Some(gone) => Box::new(gone),
            None => Box::new(error),
        };
        PortError { port: self.name.clone(), operation, cause }
    }
}

/// True if the kernel means "not now".
pub(crate) fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY))
}
