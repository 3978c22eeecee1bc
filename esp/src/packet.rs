//! An ESP packet in memory, as transforms take it.

use subtle::ConstantTimeEq;
use wire::esp::{Esn, HEADER_LEN, Suite};

/// Bytes in front of the ESP header that a transform may use meanwhile; it leaves them as they were.
pub const SPARE: usize = 4;

/// An ESP packet in memory.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Four spare bytes, SPI and sequence number, IV, text with padding and trailer, ICV; nothing else. What lies in the spare bytes,
    /// as the end of the outer header, is the same before and after.
    pub bytes: &'a mut [u8],
    /// The whole sequence number; its lower half stands in the header.
    pub number: u64,
    /// Extended numbers: with them the upper half is authenticated too.
    pub esn: Esn,
}

/// A packet, taken apart.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// The ESP header.
    pub(crate) header: &'a mut [u8; HEADER_LEN],
    pub(crate) iv: &'a mut [u8],
    pub(crate) text: &'a mut [u8],
    pub(crate) icv: &'a mut [u8],
}

/// A packet of a combined cipher with an IV of 8 bytes, taken apart but for its check value.
#[derive(Debug)]
pub(crate) struct Tail<'a> {
    /// The ESP header.
    pub(crate) header: &'a mut [u8; HEADER_LEN],
    pub(crate) iv: &'a mut [u8; 8],
    /// Text and, behind it, the integrity check value.
    pub(crate) sealed: &'a mut [u8],
}

impl Default for Packet<'_> {
    /// No bytes: no packet of any suite.
    fn default() -> Self {
        Packet { bytes: &mut [], number: 0, esn: Esn::Off }
    }
}

impl<'a> Packet<'a> {
    /// The same packet, for a while.
    pub(crate) fn again(&mut self) -> Packet<'_> {
        Packet { bytes: self.bytes, number: self.number, esn: self.esn }
    }

    /// Splits the packet by the lengths of `suite`. Returns its bytes undivided where they cannot be a packet of that suite: too
    /// short, or the text no multiple of the alignment.
    pub(crate) fn parts(self, suite: &Suite) -> Result<Parts<'a>, &'a mut [u8]> {
        let (body, icv) = self.body(suite)?;
        let (header, rest) = body[SPARE..].split_first_chunk_mut().expect("`body` leaves the header");
        let (iv, text) = rest.split_at_mut(usize::from(suite.iv));
        Ok(Parts { header, iv, text, icv })
    }

    /// Splits the packet as [`Packet::parts`] does, text and check value together.
    pub(crate) fn tail(self, suite: &Suite) -> Result<Tail<'a>, &'a mut [u8]> {
        if !self.is_of(suite) {
            return Err(self.bytes);
        }
        let (header, rest) = self.bytes[SPARE..].split_first_chunk_mut().expect("longer than its parts");
        let (iv, sealed) = rest.split_first_chunk_mut().expect("longer than its parts");
        Ok(Tail { header, iv, sealed })
    }

    /// Splits the packet into all up to its text, spare bytes too, and its ICV. Refuses what [`Packet::parts`] does.
    pub(crate) fn body(self, suite: &Suite) -> Result<(&'a mut [u8], &'a mut [u8]), &'a mut [u8]> {
        if !self.is_of(suite) {
            return Err(self.bytes);
        }
        let end = self.bytes.len() - usize::from(suite.icv);
        Ok(self.bytes.split_at_mut(end))
    }

    /// True if the packet has the length of one of `suite`.
    #[inline(always)]
    pub(crate) fn is_of(&self, suite: &Suite) -> bool {
        let text = self.text_len(suite);
        text > 0 && suite.is_whole(text)
    }

    /// Bytes of text in a packet of `suite`; 0 where there is no packet.
    #[inline(always)]
    pub(crate) fn text_len(&self, suite: &Suite) -> usize {
        let around = SPARE + HEADER_LEN + usize::from(suite.iv) + usize::from(suite.icv);
        self.bytes.len().saturating_sub(around)
    }
}

/// Additional authenticated data of the combined ciphers: SPI, upper half of an extended number, lower half (RFC 4106, section 5).
#[derive(Clone, Copy)]
pub(crate) struct Aad {
    bytes: [u8; HEADER_LEN + 4],
    len: usize,
}

impl Aad {
    pub(crate) fn of(header: &[u8; HEADER_LEN], number: u64, esn: Esn) -> Aad {
        let mut bytes = [0; HEADER_LEN + 4];
        bytes[..4].copy_from_slice(&header[..4]);
        match esn {
            Esn::Off => {
                bytes[4..8].copy_from_slice(&header[4..]);
                Aad { bytes, len: HEADER_LEN }
            }
            Esn::On => {
                bytes[4..8].copy_from_slice(&high(number));
                bytes[8..].copy_from_slice(&header[4..]);
                Aad { bytes, len: HEADER_LEN + 4 }
            }
        }
    }
}

impl AsRef<[u8]> for Aad {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The nonce of a combined cipher (RFC 4106, section 4): salt, then IV.
#[inline(always)]
pub(crate) fn nonce(salt: &[u8; 4], iv: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(iv);
    nonce
}

/// True if a packet's integrity check value is `tag`, in a time that does not depend on either. As one number: byte by byte it takes as
/// long as the hash.
#[inline]
pub(crate) fn are_equal(icv: &[u8], tag: &[u8; 16]) -> bool {
    let Ok(icv) = icv.try_into() else { return false };
    let differ = u128::from_ne_bytes(icv) ^ u128::from_ne_bytes(*tag);
    ((differ >> 64) as u64 | differ as u64).ct_eq(&0).into()
}

/// True if a tag begins with an integrity check value of whole words, in a time that depends on the length alone.
#[cfg(feature = "ipsec-mb")]
#[inline]
pub(crate) fn begins_with(tag: &[u8], icv: &[u8]) -> bool {
    if tag.len() < icv.len() || icv.len() % 4 != 0 {
        return false;
    }
    let words = tag.chunks_exact(4).zip(icv.chunks_exact(4));
    let differ = words.fold([0; 4], |differ: [u8; 4], (tag, icv)| {
        std::array::from_fn(|at| differ[at] | (tag[at] ^ icv[at]))
    });
    u32::from_ne_bytes(differ).ct_eq(&0).into()
}

/// The upper half of a number, as authenticated.
pub(crate) fn high(number: u64) -> [u8; 4] {
    ((number >> 32) as u32).to_be_bytes()
}
