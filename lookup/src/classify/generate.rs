//! Rules and headers made from a seed, for benchmarks and tests: the same seed gives the same on every machine.
//!
//! Rules are like those of ClassBench (Taylor and Turner, ClassBench: A Packet Classification Benchmark, 2007): access
//! lists, firewalls, chains of a Linux router. Protocol and classes of ports are drawn together, then a pair of prefix
//! lengths that goes with them, then addresses by a walk down a tree that branches less and less evenly, so that rules
//! share addresses and nest. No two are alike, and the most specific come first, so that none hides another.

mod rule;
mod table;
#[cfg(test)]
mod tests;
mod trace;

pub use rule::{Filter, Like, Prefix, rules};
pub use trace::{Aimed, Locality, trace};
