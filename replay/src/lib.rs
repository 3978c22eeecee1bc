//! Captures played through a policy in their own time: the host's outside, around [`dataplane::Replay`].
//!
//! [`Captures`] reads files and finds the interface that each packet comes in by; a [`Player`] plays them through the policy's tables,
//! packet by packet, and tells a [`Witness`](dataplane::replay::Witness) the fate of each; an [`Observer`] measures on the way, and a
//! [`Summary`] says what became of all. The command and the Python package are made of the same parts.

pub mod capture;
pub mod fate;
pub mod measurement;
pub mod number;
mod player;
pub mod summary;

pub use capture::{Captures, Named, Readdress};
pub use measurement::Observer;
pub use player::Player;
pub use summary::Summary;
