//! Live host: the data plane on this machine's interfaces, with Linux as its control plane.
//!
//! [`Supervisor`] starts [`worker`]s, one thread each, which do all packet processing; follows [`linux`]; recompiles
//! tables when the policy or Linux changes ([`reload`]); and serves requests of [`server`]. Only workers touch packets,
//! and workers never block, lock or log.

pub mod about;
pub mod api;
pub mod balance;
pub mod capture;
pub mod client;
pub mod clock;
pub mod drops;
pub mod effective;
pub mod event;
pub mod flows;
pub mod guard;
pub mod health;
pub mod history;
pub mod ipfix;
pub mod linux;
pub mod log;
pub mod metrics;
pub mod multicast;
pub mod near;
pub mod page;
pub mod peer;
pub mod port;
pub mod port_mapping;
pub mod privilege;
pub mod reload;
pub mod request;
pub mod sa;
pub mod server;
mod service;
pub mod set;
pub mod signal;
mod stamp;
pub mod store;
mod stream;
pub mod subscriber;
pub mod supervisor;
pub mod sync;
pub mod view;
pub mod wan;
pub mod worker;
pub mod xfrm;

pub use client::{Client, ClientError};
pub use supervisor::{Options, Supervisor};
