//! What happens to a frame: stages, flows, NAT, routes, classification, and the pipeline.

pub mod flow;
pub mod memory;
