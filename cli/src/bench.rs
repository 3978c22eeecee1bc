//! Benchmarks: the machine's own speed, without I/O.

pub(crate) mod classify;
pub(crate) mod esp;
pub(crate) mod filter;
pub(crate) mod forward;
pub(crate) mod in_memory;
pub(crate) mod pace;
pub(crate) mod peer;
pub(crate) mod routes;
pub(crate) mod schedule;
pub(crate) mod workers;
