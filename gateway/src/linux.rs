//! Linux as the control plane: what it has is followed, what the policy wants of it is asked for. By netlink, over blocking
//! sockets, in a thread of its own.
//!
//! [`watch`](watch()) tells of every change of interfaces, addresses, routes and neighbours; [`Writer`] asks Linux to
//! change something; [`Desired`] says what, and [`Probe`] which neighbours are to be asked for. Whatever Linux says, nothing here panics; what was not understood or not heard is asked for again.

pub(crate) mod beside;
pub mod cow;
pub mod desired;
pub mod link;
mod list;
pub mod listener;
pub mod message;
pub mod probe;
pub mod route;
mod socket;
pub mod state;
mod watch;
mod write;

pub use desired::{Desired, OURS};
pub use probe::Probe;
pub use socket::{Error, Operation};
pub use state::{LinkIndex, Neighbour, NeighbourChange, NeighbourKey, State};
pub use watch::{Newest, News, Options, Watch, watch};
pub use write::Writer;
