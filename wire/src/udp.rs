//! UDP (RFC 768).

use crate::checksum::{Delta, Sum};
use crate::header::{Ports, be16, put};

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// Reason why a datagram is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 8 bytes.
    #[error("shorter than a UDP header")]
    TooShort,
    /// The length field is below 8.
    #[error("UDP length below that of its header")]
    LengthBelowHeader,
    /// The length field reaches past the end of the IP payload.
    #[error("UDP length past the end of the packet")]
    LengthPastEnd,
}

/// A datagram, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header<'a>,
    /// Header and payload up to the length field: the bytes that the checksum covers.
    pub covered: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Payload, from the header up to the length field.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.covered.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Verifies the checksum, given the sum of the pseudo header with the length field's value.
    #[inline]
    pub fn check(&self, pseudo: Sum) -> Check {
        if self.header.checksum() == 0 {
            Check::None
        } else if pseudo.and(self.covered).verifies() {
            Check::Right
        } else {
            Check::Wrong
        }
    }
}

/// Result of verifying a datagram's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The field is zero: the sender computed none. IPv6 forbids it outside of tunnels (RFC 8200,
    /// section 8.1; RFC 6935).
    None,
    /// The checksum verifies.
    Right,
    /// The checksum does not verify.
    Wrong,
}

/// Takes a datagram apart. Bytes past the length field are ignored (RFC 768 lets IP be longer); a length field of zero
/// is no exception, since jumbograms (RFC 2675) are not carried.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Datagram<'_>, Malformed> {
    let Some(header) = Header::of(payload) else { return Err(Malformed::TooShort) };
    let length = usize::from(header.length());
    if length < HEADER_LEN {
        return Err(Malformed::LengthBelowHeader);
    }
    let Some(covered) = payload.get(..length) else { return Err(Malformed::LengthPastEnd) };
    Ok(Datagram { header, covered })
}

/// The header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The header at the start of `payload`, or `None` where it is too short.
    #[inline]
    pub fn of(payload: &'a [u8]) -> Option<Header<'a>> {
        payload.first_chunk().map(Header)
    }

    /// Source port; 0 where the sender has none.
    #[inline]
    pub fn sport(self) -> u16 {
        be16(self.0, 0)
    }

    /// Destination port.
    #[inline]
    pub fn dport(self) -> u16 {
        be16(self.0, 2)
    }

    /// Both ports.
    #[inline]
    pub fn ports(self) -> Ports {
        Ports { sport: self.sport(), dport: self.dport() }
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn length(self) -> u16 {
        be16(self.0, 4)
    }

    /// The checksum; 0 where the sender computed none.
    #[inline]
    pub fn checksum(self) -> u16 {
        be16(self.0, 6)
    }
}

/// The header, to change.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The header at the start of `payload`, or `None` where it is too short.
    #[inline]
    pub fn of(payload: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        payload.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the source port; the checksum is the caller's.
    #[inline]
    pub fn set_sport(&mut self, sport: u16) {
        put(self.0, 0, sport.to_be_bytes());
    }

    /// Sets the destination port; the checksum is the caller's.
    #[inline]
    pub fn set_dport(&mut self, dport: u16) {
        put(self.0, 2, dport.to_be_bytes());
    }

    /// Sets the length of header and payload.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        put(self.0, 4, length.to_be_bytes());
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0, 6, checksum.to_be_bytes());
    }

    /// Adjusts the checksum for fields that changed, where there is one.
    #[inline]
    pub fn adjust_checksum(&mut self, delta: Delta) {
        let checksum = delta.apply_udp(self.view().checksum());
        self.set_checksum(checksum);
    }
}

#[cfg(test)]
mod tests;
