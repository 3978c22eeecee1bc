//! Longest-prefix match: from a destination address to a next-hop id.
//!
//! [`Fib4`] and [`Fib6`] are built once from routes and never change; a new set of routes is a new FIB. Both are made to
//! stay in the cache, since a look-up is little else than waiting for memory: an office gateway's few routes take some
//! KB, a full table of the Internet a few MB. `fib/v4.rs` and `fib/v6.rs` describe the structures. They lie on huge
//! pages where the system gives them: look-ups per second in a full table of IPv4 rose by a quarter on a processor with
//! a slow path to its page tables.
//!
//! Promises: the answer is that of a linear scan for the longest prefix that matches; every destination is
//! met with an answer; a look-up does not allocate.
//! Refuses: values that leave no room for the structure's own marks, lengths that the address does not
//! have, more routes than [`MAX_ROUTES`].

pub mod generate;
mod range;
mod v4;
mod v6;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::memory::MemoryError;

pub use v4::Fib4;
pub use v6::Fib6;

/// Value that `lookup_bulk` writes where no route matches. No route can have this value.
pub const NO_ROUTE: u32 = MAX_VALUE + 1;

/// The largest value that a route may have: 2^24 - 1.
pub const MAX_VALUE: u32 = (1 << 24) - 1;

/// The most routes that one FIB takes: 2^22. It keeps every index inside a FIB below 2^31.
pub const MAX_ROUTES: usize = 1 << 22;

/// An IPv4 prefix and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route4 {
    /// The prefix, in host order. Bits past `length` are ignored.
    pub address: u32,
    /// Prefix length, in bits: 0 to 32.
    pub length: u8,
    /// Result of a look-up, up to [`MAX_VALUE`]; in practice the id of a next hop.
    pub value: u32,
}

/// An IPv6 prefix and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route6 {
    /// The prefix, in host order. Bits past `length` are ignored.
    pub address: u128,
    /// Prefix length, in bits: 0 to 128.
    pub length: u8,
    /// Result of a look-up, up to [`MAX_VALUE`]; in practice the id of a next hop.
    pub value: u32,
}

/// Reason for refusing a list of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibError {
    /// The route at `index` has a prefix length that its address family does not have.
    Length {
        /// Place of the route in what was given.
        index: usize,
        /// Prefix length, in bits.
        length: u8,
    },
    /// The route at `index` has a value above [`MAX_VALUE`].
    Value {
        /// Place of the route in what was given.
        index: usize,
        /// Value of the route.
        value: u32,
    },
    /// More than [`MAX_ROUTES`] routes were given.
    Routes {
        /// Number of them.
        count: usize,
    },
    /// The system did not give the memory that the FIB needs.
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl From<MemoryError> for FibError {
    fn from(error: MemoryError) -> FibError {
        FibError::Memory { bytes: error.bytes }
    }
}

impl fmt::Display for FibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FibError::Length { index, length } => {
                write!(f, "route {index}: prefix length {length} is longer than the address")
            }
            FibError::Value { index, value } => {
                write!(f, "route {index}: value {value} is above the limit of {MAX_VALUE}")
            }
            FibError::Routes { count } => write!(f, "{count} routes are more than the limit of {MAX_ROUTES}"),
            FibError::Memory { bytes } => write!(f, "no memory for routes: {bytes} bytes were asked for"),
        }
    }
}

impl std::error::Error for FibError {}

/// Holds the routes to the stated limits, `width` being the bits of an address.
fn check(prefixes: &[range::Prefix], width: u8) -> Result<(), FibError> {
    if prefixes.len() > MAX_ROUTES {
        return Err(FibError::Routes { count: prefixes.len() });
    }
    for (index, prefix) in prefixes.iter().enumerate() {
        if prefix.length > width {
            return Err(FibError::Length { index, length: prefix.length });
        }
        if prefix.value > MAX_VALUE {
            return Err(FibError::Value { index, value: prefix.value });
        }
    }
    Ok(())
}
