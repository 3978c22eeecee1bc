//! Protocols, checksums, frames, ports and capture files: everything on the wire.
//!
//! One file per protocol, each a view over borrowed bytes: no copy, no allocation, and no panic whatever the bytes.
//! [`Frame`] is one packet in memory, unique owner of its slot in a [`Pool`]; frames travel in [`Batch`]es and enter
//! and leave by a [`Port`].

pub mod aal5;
pub mod arp;
pub mod atm;
pub mod batch;
pub mod build;
pub mod capture;
pub mod checksum;
pub mod esp;
pub mod ethernet;
mod ethertype;
pub mod frame;
pub mod gre;
pub mod header;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod link_kind;
pub mod loan;
pub mod memory;
pub mod meta;
pub mod nat_pmp;
pub mod oam;
pub mod pcp;
pub mod pool;
pub mod port;
pub mod ppp;
pub mod pppoe;
pub mod prefetch;
pub mod random;
pub mod rfc2684;
pub mod segment;
pub mod siit;
pub mod tcp;
pub mod udp;
pub mod unit;
pub mod vlan;
pub mod vxlan;

pub use batch::{BATCH, Batch};
pub use frame::{Frame, LONGEST};
pub use link::Link;
pub use link_kind::LinkKind;
pub use loan::{Loan, Place};
pub use meta::{Family, Meta, Part, PortId};
pub use pool::{HEADROOM, Pool, PoolError, PoolMemory};
pub use port::{Port, PortError, Received};
pub use unit::{BitRate, Bytes, Dscp, DscpSet, Nanos, Pcp};
