//! What happens to a frame: stages, flows, NAT, routes, classification, the pipeline.

pub mod classify;
pub mod fib;
pub mod flow;
pub mod memory;
pub mod nat;
pub mod tables;
pub mod verdict;

pub use tables::Tables;
pub use verdict::{Reason, Verdict};
