//! Processing of frames: stages, flows, NAT, routes, classification, the pipeline.
//!
//! [`Tables`] are a compiled policy, a [`Shard`] is the mutable memory of one worker, and a
//! [`Pipeline`] takes batches of frames through the stages, with both. Nothing here knows a clock, a file or an
//! interface: hosts bring frames and time.
//!
//! `cargo run -p wirerate-dataplane --example embed` takes two packets through a policy.

pub mod accounting;
pub mod channel;
pub mod client;
pub mod compile;
mod cookie;
pub mod counter;
pub mod describe;
pub mod egress;
pub mod explain;
pub mod extent;
pub mod fast_path;
pub mod flag;
pub mod flow;
pub mod fragment;
pub mod fragmentation;
pub mod handoff;
pub mod helper;
pub mod hop;
pub mod import;
pub mod limiter;
pub mod log;
pub mod meter;
pub mod multicast;
pub mod nat;
pub mod neighbour;
pub mod opening;
pub mod peer;
pub mod pipeline;
pub mod port_mapping;
pub mod ppp;
pub mod recorder;
pub mod reload;
pub mod replay;
pub mod sa;
pub mod set;
pub mod shard;
pub mod stage;
pub mod state;
pub mod sync;
pub mod tables;
pub mod tunnel;
pub mod verdict;

pub use hop::Delivery;
pub use pipeline::Pipeline;
pub use reload::ReloadPlan;
pub use replay::Replay;
pub use shard::Shard;
pub use tables::Tables;
pub use verdict::{Reason, Verdict};
