//! Live interfaces: where frames really enter and leave, on Linux 6.6 or newer.
//!
//! [`open`] opens a port by the fastest driver that works on it, with one [`Line`] for each worker. [`Punt`] is the way
//! to Linux's own stack behind it, [`Tap`] an interface of Linux whose other end is ours. Opening is for any thread,
//! a line for the one that has the pool whose memory it was opened with.
//!
//! Nothing of ours stays in the kernel when the process ends, however it ends: programs are held by open links, devices
//! by open queues; a copy of a [bolt](Guard::bolt) that another process holds stays as long as that. An interface that goes down or away shows as an error that says so ([`Gone`]).

mod crc32c;
mod line;
mod offload;
mod open;
mod packet;
mod pending;
mod program;
mod punt;
mod refusal;
mod sys;
mod tap;
mod xdp;

pub use line::{Gone, Line, Statistics};
pub use open::{Copying, Driver, Guard, MARK, Offload, Opened, Spec, Tagged, Wish, kind_of, open, unbolt};
pub use punt::{Punt, PuntGuard};
pub use refusal::{Cause, OpenError, Refusal};
pub use tap::{Tap, TapLine};
