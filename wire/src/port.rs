//! The port: the interface that frames enter and leave by.

use crate::batch::Batch;
use crate::pool::Pool;

/// An interface that frames enter and leave by: a capture file, memory, or a live network interface.
pub trait Port {
    /// The interface's name, as the policy has it.
    fn name(&self) -> &str;

    /// Appends received frames to `batch`, in slots taken from `pool`, each with
    /// [`Meta::received`](crate::Meta::received) set.
    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError>;

    /// Sends the frames of `batch`, first to last, and gives their slots to `pool`. Frames that could not
    /// be taken now stay in the batch, in order.
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError>;
}

/// Result of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Number of frames received, at least one.
    Frames(usize),
    /// No frames now; more may come.
    Nothing,
    /// End of input: no frames now or later.
    End,
}

/// A port's input or output failed.
#[derive(Debug, thiserror::Error)]
#[error("{port}: could not {operation}: {cause}")]
pub struct PortError {
    /// The interface or file.
    pub port: String,
    /// Operation that failed, as in "could not {operation}".
    pub operation: &'static str,
    /// Underlying error.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}
