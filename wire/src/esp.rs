//! ESP on the wire (RFC 4303): the part in clear (section 2: security parameters index and sequence number), algorithms with their
//! lengths, keys, and the place of ESP in transport mode.

mod secret;
mod suite;
mod transport;

pub use secret::{BadHex, Secret};
pub use suite::{
    Cipher, Direction, EcnUse, Esn, Integrity, LEAST_SPI, Mode, NAT_PORT, SUITES, Standing, Suite, SuiteName,
    TRAILER_LEN, Tfc, Udp,
};
pub use transport::{Front, Unfit};

use crate::header::{be32, put};

/// Bytes before the initialisation vector.
pub const HEADER_LEN: usize = 8;

/// SPI and sequence number.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The header at the start of `payload`, or `None` where it is too short.
    #[inline]
    pub fn of(payload: &'a [u8]) -> Option<Header<'a>> {
        payload.first_chunk().map(Header)
    }

    /// The security parameters index. 0 is never on the wire; 1 to 255 are reserved.
    #[inline]
    pub fn spi(self) -> u32 {
        be32(self.0, 0)
    }

    /// The lower 32 bits of the sequence number.
    #[inline]
    pub fn sequence(self) -> u32 {
        be32(self.0, 4)
    }
}

/// SPI and sequence number, to change.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The header at the start of `payload`, or `None` where it is too short.
    #[inline]
    pub fn of(payload: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        payload.first_chunk_mut().map(HeaderMut)
    }

    /// Sets the security parameters index.
    #[inline]
    pub fn set_spi(&mut self, spi: u32) {
        put(self.0, 0, spi.to_be_bytes());
    }

    /// Sets the lower 32 bits of the sequence number.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u32) {
        put(self.0, 4, sequence.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
