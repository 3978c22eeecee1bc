//! What is on the wire: protocols, checksums, frames, ports and capture files.
//!
//! One file per protocol, each a view over bytes that somebody else owns: no copy, no allocation, and no
//! panic whatever the bytes. [`Frame`] is one packet in memory, unique owner of its slot in a [`Pool`];
//! frames travel in [`Batch`]es and enter and leave by a [`Port`].

pub mod arp;
pub mod build;
pub mod checksum;
pub mod esp;
pub mod ethernet;
pub mod header;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;
pub mod unit;
pub mod vlan;

pub use unit::{BitRate, Bytes, Dscp, Nanos};
