//! The live host: the data plane on this machine's interfaces, with Linux as its control plane.

pub mod effective;
pub mod linux;
