//! Units as types, so that a duration is not mistaken for an instant, nor bits for bytes.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// A moment or a span of time in nanoseconds. As a moment it counts from an epoch that the host chooses
/// (a capture's timestamps count from 1970); 64 bits last 584 years.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Pod, Zeroable,
)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The last representable moment: later than all others.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// The span from `earlier` to here, zero if time went backwards.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds, as a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

/// A rate in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s", self.0)
    }
}

/// A DiffServ code point, 0 to 63 (RFC 2474, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point in the upper six bits of a DS field (the former TOS or traffic class byte).
    pub const fn of_field(field: u8) -> Dscp {
        Dscp(field >> 2)
    }

    /// The code point `value`, or `None` past 63.
    pub const fn new(value: u8) -> Option<Dscp> {
        if value < 64 { Some(Dscp(value)) } else { None }
    }

    /// 0 to 63.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// All code points, in order.
    pub fn all() -> impl Iterator<Item = Dscp> {
        (0..64).map(Dscp)
    }
}

/// A set of DiffServ code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DscpSet(u64);

impl DscpSet {
    /// All code points.
    pub const ALL: DscpSet = DscpSet(u64::MAX);

    /// True if a code point is in the set.
    pub const fn has(self, dscp: Dscp) -> bool {
        self.0 >> dscp.0 & 1 != 0
    }

    /// A bit for each code point, the lowest that of code point 0.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl FromIterator<Dscp> for DscpSet {
    fn from_iter<I: IntoIterator<Item = Dscp>>(all: I) -> DscpSet {
        DscpSet(all.into_iter().fold(0, |bits, dscp| bits | 1 << dscp.0))
    }
}

/// A priority code point of a VLAN tag, 0 to 7 (IEEE 802.1Q, 9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pcp(u8);

impl Pcp {
    /// The code point in the upper three bits of a tag's control information.
    pub const fn of_tci(tci: u16) -> Pcp {
        Pcp((tci >> 13) as u8)
    }

    /// The class selector of a DiffServ code point: its upper three bits (RFC 2474, section 4.2.2).
    pub const fn of_dscp(dscp: Dscp) -> Pcp {
        Pcp(dscp.0 >> 3)
    }

    /// The code point `value`, or `None` past 7.
    pub const fn new(value: u8) -> Option<Pcp> {
        if value < 8 { Some(Pcp(value)) } else { None }
    }

    /// 0 to 7.
    pub const fn value(self) -> u8 {
        self.0
    }
}
