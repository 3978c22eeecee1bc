//! IPv6 addresses with an IPv4 address in them (RFC 6052).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// IPv6 prefix under which IPv4 addresses lie: of 32, 40, 48, 56, 64 or 96 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: u128,
    length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Length {
    L32 = 32,
    L40 = 40,
    L48 = 48,
    L56 = 56,
    L64 = 64,
    L96 = 96,
}

/// Reason why a prefix cannot have IPv4 addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// Another length than one of the six (RFC 6052, section 2.2).
    #[error("a prefix for IPv4 addresses has 32, 40, 48, 56, 64 or 96 bits")]
    Length,
    /// Bits past the prefix are set.
    #[error("bits past the prefix are set")]
    HostBits,
    /// Bits 64 to 71, which are zero in all such addresses (RFC 6052, section 2.2).
    #[error("bits 64 to 71 of a prefix for IPv4 addresses must be zero")]
    ReservedBits,
}

impl Prefix {
    /// `64:ff9b::/96`, which every network may use for the public IPv4 addresses (RFC 6052, section 2.1).
    pub const WELL_KNOWN: Prefix = Prefix { address: 0x0064_ff9b << 96, length: Length::L96 };

    /// Makes a prefix of `length` bits.
    ///
    /// # Errors
    /// Another length, or bits that must be zero are not.
    pub fn new(address: Ipv6Addr, length: u8) -> Result<Prefix, BadPrefix> {
        let length = match length {
            32 => Length::L32,
            40 => Length::L40,
            48 => Length::L48,
            56 => Length::L56,
            64 => Length::L64,
            96 => Length::L96,
            _ => return Err(BadPrefix::Length),
        };
        let address = address.to_bits();
        if address << length as u32 != 0 {
            return Err(BadPrefix::HostBits);
        }
        if address >> 56 & 0xff != 0 {
            return Err(BadPrefix::ReservedBits);
        }
        Ok(Prefix { address, length })
    }

    /// Address of the prefix, the bits past it zero.
    pub fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.address)
    }

    /// Length in bits.
    pub fn length(self) -> u8 {
        self.length as u8
    }

    /// True if `address` lies under the prefix.
    #[inline]
    pub fn contains(self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.address) >> (128 - self.length as u32) == 0
    }

    /// Address under the prefix that stands for `address`; the bits past both are zero.
    #[inline]
    pub fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let address = u128::from(address.to_bits());
        let bits = match self.length {
            Length::L96 => address,
            Length::L64 => address << 24,
            _ => {
                // Those in front of bits 64 to 71, and those behind.
                let behind = self.length as u32 - 32;
                let front = address >> behind << 64;
                let rest = address & ((1 << behind) - 1);
                front | rest << (56 - behind)
            }
        };
        Ipv6Addr::from_bits(self.address | bits)
    }

    /// IPv4 address that `address` stands for; `None` where `address` does not lie under the prefix. The bits past both are not looked
    /// at (RFC 6052, section 2.2: reserved for later use).
    #[inline]
    pub fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.contains(address) {
            return None;
        }
        let bits = address.to_bits();
        let address = match self.length {
            Length::L96 => bits,
            Length::L64 => bits >> 24,
            _ => {
                let behind = self.length as u32 - 32;
                let rest = bits >> (56 - behind) & ((1 << behind) - 1);
                bits >> 64 << behind | rest
            }
        };
        Some(Ipv4Addr::from_bits(address as u32)) // the lower 32 bits
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length())
    }
}
