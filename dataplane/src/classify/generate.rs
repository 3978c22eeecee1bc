//! Rules and headers made from a seed, for benchmarks and tests: the same seed gives the same on every machine.

mod trace;

pub use trace::{Locality, trace};
