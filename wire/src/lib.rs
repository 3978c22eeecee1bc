//! What is on the wire: protocols, checksums, frames, ports and capture files.
//!
//! One file per protocol, each a view over bytes that somebody else owns: no copy, no allocation, and no
//! panic whatever the bytes. [`Frame`] is one packet in memory, unique owner of its slot in a [`Pool`];
//! frames travel in [`Batch`]es and enter and leave by a [`Port`].

pub mod unit;

pub use unit::{BitRate, Bytes, Dscp, Nanos};
