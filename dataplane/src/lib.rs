//! What happens to a frame: stages, flows, NAT, routes, classification, the pipeline.

pub mod fib;
