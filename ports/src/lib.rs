//! Live interfaces: receiving and sending frames on Linux 6.6 or newer.
//!
//! [`open`](fn@open) opens a port by the fastest driver that works on it, with one [`Line`] for each worker. [`Punt`] is the
//! path to Linux's own stack behind a port, [`Tap`] an interface of Linux whose other end is wirerate. Any thread may
//! open a port; a line is for the thread that has the pool whose memory it was opened with.
//!
//! A [`FastPath`] has the kernel carry the packets of established flows.
//!
//! A [`Guard`] keeps an interface shut wherever no open port answers for it, and alone stays in the kernel when the
//! process ends, however it ends: other programs are held by open links, devices by open queues. An interface that is
//! down or removed shows as an error of its own ([`Gone`]).

mod cell;
mod fast_path;
mod guard;
mod line;
mod link_kind;
mod offload;
mod open;
mod packet;
mod pending;
mod program;
mod punt;
mod refusal;
mod spec;
mod sys;
mod tap;
mod xdp;

pub use cell::{CellLine, CellSocket, CellSpec, CellsIn, MOST_CELLS};
#[cfg(feature = "trial")]
pub use fast_path::trial::{Trial, Tried};
pub use fast_path::{
    Account, Bypass, Entry, FallThrough, FastEgress, FastHook, FastPath, FastPathError, FastPort, Place,
    Tuple, Window,
};
pub use guard::{Guard, GuardError, GuardLock, GuardSet, Shut, Unpinned};
pub use line::{Gone, Line, Statistics};
pub use link_kind::kind_of;
pub use open::{Copying, Held, Opened, open};
pub use program::alone::{ANSWER_SECONDS, Alone, Fate, Pace, Scope, SelfRule, Version};
pub use punt::{Punt, PuntHeld};
pub use refusal::{Cause, OpenError, Refusal};
pub use spec::{Driver, MARK, Offload, Spec, Tagged, Wish};
pub use sys::clock::now;
pub use sys::interface::{index as interface_index, name as interface_name, rate as interface_rate};
pub use sys::socket::unacknowledged;
pub use tap::{Tap, TapHeld, TapLine};
