//! Protocols, checksums, frames, ports and capture files: everything on the wire.
//!
//! One file per protocol, each a view over borrowed bytes: no copy, no allocation, and no panic whatever the bytes.
//! [`Frame`] is one packet in memory, unique owner of its slot in a [`Pool`]; frames travel in [`Batch`]es and enter
//! and leave by a [`Port`].
//!
//! A packet is written by [`build`], and read view by view, from the outer header to the inner:
//!
//! ```
//! use wire::ethernet::{EtherType, Mac};
//! use wire::header::Protocol;
//! use wire::{build, ethernet, ipv4, udp};
//!
//! let (host, router) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
//! let (client, server) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
//! let frame = build::ethernet(host, router).ipv4(client, server).udp(50000, 53).payload(b"query").to_vec();
//!
//! let layer = ethernet::parse(&frame).unwrap();
//! assert_eq!((layer.header.dst(), layer.ethertype), (router, EtherType::IPV4));
//! let packet = ipv4::parse(layer.payload).unwrap();
//! assert_eq!((packet.header.src(), packet.header.protocol()), (client, Protocol::UDP));
//! let datagram = udp::Header::of(packet.payload).unwrap();
//! assert_eq!(datagram.dport(), 53);
//! // Bytes that are no packet are an error that says what is wrong.
//! assert_eq!(ipv4::parse(&layer.payload[..19]).unwrap_err(), ipv4::Malformed::TooShort);
//! ```
//!
//! Frames in memory belong to a pool, which is as large as it will ever be:
//!
//! ```
//! use wire::{Batch, Pool};
//!
//! let mut pool = Pool::new(2, 2048)?;
//! let mut batch = Batch::new();
//! for bytes in [[1; 60], [2; 60], [3; 60]] {
//!     match batch.extend_from(&mut pool) {
//!         Some(frame) => assert!(frame.fill(&bytes)),
//!         None => assert_eq!(bytes[0], 3, "there are two slots"),
//!     }
//! }
//! batch.drain().for_each(|frame| pool.put(frame));
//! assert_eq!(pool.available(), 2);
//! # Ok::<(), wire::PoolError>(())
//! ```

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
