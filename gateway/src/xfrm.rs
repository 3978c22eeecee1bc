//! XFRM: the netlink messages by which IKE daemons and `ip xfrm` give a kernel its security associations and policies, answered in
//! the kernel's place on a Unix socket.
//!
//! [`parse`] makes bytes requests, [`state`] carries them out on the databases of associations (SAD) and policies (SPD),
//! [`write`](mod@write) makes answers and events bytes, and [`server`] is the socket. [`linux`] has the databases follow Linux's own
//! instead. Either runs on a [`thread`]. [`association`] says in the project's own words what an association is, or why the data plane
//! cannot carry it.

pub mod association;
pub mod carried;
pub mod linux;
pub mod message;
pub mod parse;
pub mod selector;
pub mod server;
pub mod state;
pub mod thread;
pub mod write;
