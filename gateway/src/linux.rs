//! Linux as the control plane: its state is followed, and the policy's wishes are requested of it, by netlink over
//! blocking sockets, in a thread of its own.
//!
//! [`watch`](watch()) reports every change of interfaces, addresses, routes and neighbours; [`Writer`] sends requests
//! for changes; [`Desired`] plans them, and [`Probe`] schedules neighbour requests. No message of Linux causes a panic;
//! after a malformed or lost message, the state is listed again.

pub(crate) mod beside;
pub mod cow;
pub mod desired;
pub(crate) mod egress;
pub mod interface;
pub mod link;
mod list;
pub mod listener;
pub mod message;
pub mod multicast;
pub mod probe;
pub mod route;
pub(crate) mod socket;
pub mod state;
mod watch;
mod write;

pub use desired::{Desired, OURS};
pub use interface::LinkIndex;
pub use probe::Probe;
pub use socket::{Error, Operation};
pub use state::{Neighbour, NeighbourChange, NeighbourKey, State};
pub use watch::{Newest, News, Options, Watch, watch};
pub use write::Writer;

/// Lists interfaces, addresses, routes and neighbours once, in the network namespace of the calling thread. Needs no privileges.
///
/// # Errors
/// No netlink socket, or a failed dump.
pub fn snapshot() -> Result<State, Error> {
    list::state(&mut socket::Socket::open()?)
}
