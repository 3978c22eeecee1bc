//! What a worker has of a port: one queue of it.

use std::io;
use std::os::fd::BorrowedFd;

use wire::{Pool, Port, PortError};

use crate::sys::interface;

/// One queue of a live interface, or of the way to Linux behind one, for one worker. Frames that it receives come from
/// the pool that it was opened with, and that pool it must be given in each call.
pub trait Line: Port + Send {
    /// To sleep on: readable (`POLLIN`) when frames wait, or when something is wrong that the next call will tell.
    fn fd(&self) -> BorrowedFd<'_>;

    /// What has been counted since it was opened.
    fn statistics(&mut self) -> Statistics;

    /// Gives `pool` the slots of frames that the card has sent by now. Sending does so too; this is for a worker that
    /// is about to sleep.
    fn reclaim(&mut self, pool: &mut Pool);
}

/// What a [`Line`] counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames received, after segmentation.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that were handed to the device.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames that the kernel had for us and dropped for want of room: the worker did not keep up.
    pub lost: u64,
    /// Frames that the kernel had for us in a form that we cannot make frames of a wire from, and that were dropped.
    pub unusable: u64,
    /// How often the device took no more frames for now. They stay with the worker.
    pub refused: u64,
    /// Frames of those that the device dropped instead of sending, or that there was no slot for.
    pub dropped: u64,
    /// Frames dropped instead of sent, as they are longer or shorter than the device takes.
    pub unsendable: u64,
    /// Packets of many segments that were cut into frames.
    pub segmented: u64,
    /// Frames whose checksum we completed.
    pub completed: u64,
}

impl Statistics {
    /// Counts frames received.
    pub(crate) fn receive(&mut self, frames: &[wire::Frame]) {
        self.received += frames.len() as u64;
        self.received_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }
}

/// The interface is not there to be used: found as the cause of a [`PortError`] by [`Gone::of`]. The port must be opened
/// anew once the interface is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// It was removed, or moved to another network namespace.
    #[error("the interface is gone")]
    Removed,
    /// It was taken down.
    #[error("the interface is down")]
    Down,
}

impl Gone {
    /// Whether that is why a port failed.
    pub fn of(error: &PortError) -> Option<Gone> {
        error.cause.downcast_ref().copied()
    }

    /// Whether that is what an error of the kernel means.
    fn meant_by(error: &io::Error) -> Option<Gone> {
        match error.raw_os_error()? {
            libc::ENETDOWN | libc::EIO => Some(Gone::Down),
            libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EFAULT => Some(Gone::Removed),
            _ => None,
        }
    }
}

/// Which interface a line is of.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Its name when it was opened.
    pub(crate) name: String,
    /// Its index, which stays, and is not given to another.
    pub(crate) ifindex: u32,
}

impl Identity {
    /// The error of this interface, with what the kernel said turned into [`Gone`] where it means that.
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
