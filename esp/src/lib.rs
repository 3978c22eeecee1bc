//! ESP (RFC 4303) by itself: packets are laid out ([`format`](mod@format)), sealed and opened ([`Transform`]), their numbers judged ([`Window`]), their
//! congestion marks carried across ([`ecn`]), their keys read and written as Wireshark does ([`wireshark`]).
//!
//! Cryptography is that of libraries, each behind [`Transform`] in a file of its own (`library/`). Keys are expanded once for an SA
//! ([`expand`]); from there on nothing is allocated, and no input panics: what is not genuine is [`Forged`], without a reason.
//! SAs, their lifetimes and their selectors are the data plane's.

pub mod ecn;
mod fingerprint;
pub mod format;
mod library;
mod packet;
pub mod sequence;
mod transform;
mod window;
pub mod wireshark;

pub use fingerprint::Fingerprint;
pub use library::names as libraries;
pub use packet::{Packet, SPARE};
pub use transform::{Forged, KeyError, Keys, Transform, expand, expand_by_each, locked};
pub use window::{Place, Window};
