//! The Internet checksum (RFC 1071): over bytes, over parts, over pseudo headers, and adjusted for a
//! changed field without looking at the rest (RFC 1624, equation 3).
//!
//! In one's complement there are two zeros, 0x0000 and 0xffff. What is promised about them:
//! - a checksum that verified before an adjustment verifies after it, with the one exception of a message
//!   whose every byte is zero afterwards, which IP and the pseudo headers exclude and [`crate::icmpv4`]
//!   handles;
//! - an adjustment that changes nothing returns the checksum unchanged, bit by bit;
//! - UDP's 0 ("no checksum") stays 0, and no UDP checksum becomes 0 ([`Delta::apply_udp`]).
//!
//! Sums are kept as the numbers that the wire's big-endian words stand for; the inner loop adds native
//! words, which RFC 1071, section 2(B) permits, and swaps once at the end.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::header::Protocol;

/// Checksum of `bytes`: the value for the checksum field, which must be zero in `bytes`.
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::of(bytes).checksum()
}

/// True if `bytes`, which include their checksum field, sum up to minus zero.
#[inline]
pub fn verifies(bytes: &[u8]) -> bool {
    Sum::of(bytes).verifies()
}

/// A one's complement sum that can be continued: over parts, of odd lengths too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    // Each part adds at most 32 bits: four thousand million parts fit.
    words: u64,
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum { words: 0, odd: false };

    /// The sum of `bytes`, the last one padded with zero where the length is odd.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum { words: u64::from(sum_words(bytes)), odd: bytes.len() % 2 == 1 }
    }

    /// Continues with `bytes`, as if they followed directly on the bytes summed so far.
    #[inline]
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Sum {
        let part = sum_words(bytes);
        // After an odd number of bytes the part's words straddle ours: each byte changes its place.
        let part = if self.odd { part.rotate_left(8) } else { part };
        Sum { words: self.words + u64::from(part), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Adds a word that lies at an even offset; it does not count as a part.
    #[inline]
    #[must_use]
    pub const fn and_word(self, word: u16) -> Sum {
        Sum { words: self.words + word as u64, odd: self.odd }
    }

    /// Adds 32 bits that lie at an even offset; they do not count as a part.
    #[inline]
    #[must_use]
    pub const fn and_long(self, long: u32) -> Sum {
        // 2^16 is 1 modulo 0xffff, so 32-bit halves need not be split before folding.
        Sum { words: self.words + long as u64, odd: self.odd }
    }

    /// The pseudo header of IPv4 (RFC 9293, section 3.1): `length` counts transport header and payload.
    #[inline]
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, length: u16) -> Sum {
        Sum::ZERO
            .and_long(src.to_bits())
            .and_long(dst.to_bits())
            .and_word(u16::from(protocol.0))
            .and_word(length)
    }

    /// The pseudo header of IPv6 (RFC 8200, section 8.1): `length` counts transport header and payload,
    /// `protocol` is that of the transport, whatever extension headers lie before it.
    #[inline]
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, length: u32) -> Sum {
        Sum::of(&src.octets()).and(&dst.octets()).and_word(u16::from(protocol.0)).and_long(length)
    }

    /// The sum in 16 bits, carries added in.
    #[inline]
    pub const fn fold(self) -> u16 {
        fold(self.words)
    }

    /// Value for the checksum field, which was zero in the sum.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Value for a UDP checksum field: 0 is sent as 0xffff (RFC 768).
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        nonzero(self.checksum())
    }

    /// True if the sum, which included the checksum field, is minus zero, as it must be.
    #[inline]
    pub const fn verifies(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The checksum after a 16-bit field at an even offset changed from `old` to `new`.
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    Delta::NONE.change16(old, new).apply(checksum)
}

/// The checksum after a 32-bit field at an even offset changed from `old` to `new`.
#[inline]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    Delta::NONE.change32(old, new).apply(checksum)
}

/// The checksum after a 16-byte field at an even offset, an IPv6 address, changed from `old` to `new`.
#[inline]
pub const fn update128(checksum: u16, old: u128, new: u128) -> u16 {
    Delta::NONE.change128(old, new).apply(checksum)
}

/// The checksum after fields at even offsets changed, given the sum of `!old` and `new` over their 32-bit words:
/// up to 2^24 words at once, folded only here.
#[inline(always)]
pub const fn adjust(checksum: u16, changes: u64) -> u16 {
    !fold(!checksum as u64 + changes)
}

/// True if a header verifies (RFC 791, section 3.1): the one's complement sum of its words of 16 bits is 0xffff. They are given four in
/// one, and in either order of bytes, which the sum does not depend on (RFC 1071, section 2). Carries are added where they arise, which
/// takes one more addition for each word.
#[inline(always)]
pub const fn words_verify<const N: usize>(words: [u64; N]) -> bool {
    let (mut sum, mut at) = (0_u64, 0);
    while at < N {
        let (added, carry) = sum.overflowing_add(words[at]);
        sum = added.wrapping_add(carry as u64);
        at += 1;
    }
    fold(sum) == 0xffff
}

/// The effect of changed fields on a checksum. A translation computes it once for a flow and applies it to
/// each packet's checksum, whatever the packet's other bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delta(
    // Never 0xffff: that zero is stored as 0, so that no change is told from its bits and `apply` of it
    // is the identity.
    u16,
);

impl Delta {
    /// Nothing changed.
    pub const NONE: Delta = Delta(0);

    /// The 16 bits as stored, never 0xffff: to keep in a table entry.
    #[inline]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Reads the result of [`Delta::to_bits`]; any other value is taken modulo 0xffff.
    #[inline]
    pub const fn from_bits(bits: u16) -> Delta {
        Delta::canonical(bits as u64)
    }

    /// And a 16-bit field at an even offset changed from `old` to `new`.
    #[inline]
    #[must_use]
    pub const fn change16(self, old: u16, new: u16) -> Delta {
        Delta::canonical(self.0 as u64 + !old as u64 + new as u64)
    }

    /// And a 32-bit field at an even offset changed from `old` to `new`.
    #[inline]
    #[must_use]
    pub const fn change32(self, old: u32, new: u32) -> Delta {
        // 2^16 is 1 modulo 0xffff, so 32-bit halves need not be split before folding.
        Delta::canonical(self.0 as u64 + !old as u64 + new as u64)
    }

    /// And a 16-byte field at an even offset changed from `old` to `new`.
    #[inline]
    #[must_use]
    pub const fn change128(self, old: u128, new: u128) -> Delta {
        let (old, new) = (fold_wide(!old) as u64, fold_wide(new) as u64);
        Delta::canonical(self.0 as u64 + old + new)
    }

    /// And a 16-bit field at an odd offset changed: each of its bytes is half of another word.
    #[inline]
    #[must_use]
    pub const fn change16_at_odd(self, old: u16, new: u16) -> Delta {
        self.change16(old.swap_bytes(), new.swap_bytes())
    }

    /// This and the changes of `other`.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Delta) -> Delta {
        Delta::canonical(self.0 as u64 + other.0 as u64)
    }

    /// The changes undone.
    #[inline]
    #[must_use]
    pub const fn inverse(self) -> Delta {
        Delta::canonical(!self.0 as u64)
    }

    /// The checksum of TCP, ICMPv6 or an IPv4 header after the changes.
    #[inline]
    pub const fn apply(self, checksum: u16) -> u16 {
        !fold(!checksum as u64 + self.0 as u64)
    }

    /// The checksum of UDP after the changes: 0 means "none" and stays 0, and what would become 0 is sent
    /// as 0xffff.
    #[inline]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 { 0 } else { nonzero(self.apply(checksum)) }
    }

    #[inline]
    const fn canonical(sum: u64) -> Delta {
        let folded = fold(sum);
        Delta(if folded == 0xffff { 0 } else { folded })
    }
}

/// True if the 20 bytes of an IPv4 header without options verify.
#[inline]
pub(crate) fn verifies_20(bytes: &[u8; 20]) -> bool {
    // Five loads and adds; native order, because 0xffff reads the same in both.
    let word =
        |at: usize| u64::from(u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
    fold(word(0) + word(4) + word(8) + word(12) + word(16)) == 0xffff
}

#[inline]
const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Adds the carries in: zero only for zero, otherwise 1 to 0xffff.
#[inline]
const fn fold(sum: u64) -> u16 {
    fold_word(fold32(sum))
}

/// As [`fold`], of 32 bits.
#[inline]
const fn fold_word(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Adds both halves, and the carry of that: zero only for zero. A number and its halves turned around, added, have in the lower
/// half what carries into the upper one.
#[inline]
const fn fold32(sum: u64) -> u32 {
    (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32
}

/// As [`fold32`], of both halves of 128 bits.
#[inline]
const fn fold_wide(sum: u128) -> u32 {
    fold32((sum.wrapping_add(sum.rotate_left(64)) >> 64) as u64)
}

/// The sum of big-endian words, zero-padded at the end, folded to 32 bits.
#[inline]
fn sum_words(bytes: &[u8]) -> u32 {
    // Two accumulators of 128 bits: their upper halves collect the carries, off the adders' critical path.
    let mut even: u128 = 0;
    let mut odd: u128 = 0;
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<32>() {
        even += word64(chunk, 0) + word64(chunk, 16);
        odd += word64(chunk, 8) + word64(chunk, 24);
        rest = tail;
    }
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        even += word64(chunk, 0);
        rest = tail;
    }
    if let Some((chunk, tail)) = rest.split_first_chunk::<4>() {
        odd += u128::from(u32::from_ne_bytes(*chunk));
        rest = tail;
    }
    if let Some((chunk, tail)) = rest.split_first_chunk::<2>() {
        odd += u128::from(u16::from_ne_bytes(*chunk));
        rest = tail;
    }
    if let [last] = *rest {
        odd += u128::from(u16::from_ne_bytes([last, 0]));
    }
    // The bytes of all words change places at once, and the words change theirs, which a sum does not see.
    u32::from_be(fold_wide(even + odd))
}

#[inline(always)]
fn word64<const N: usize>(chunk: &[u8; N], at: usize) -> u128 {
    u128::from(u64::from_ne_bytes(crate::header::array(chunk, at)))
}

#[cfg(test)]
mod tests;
