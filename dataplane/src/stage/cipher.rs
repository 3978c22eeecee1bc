//! Cost of the ciphers of tunnels, in software on a network processor's engine.

use tally::{Region, Tally};
use wire::esp::Suite;

use crate::sa::SA_BYTES;

/// Size of the program: a round of AES, 53; its first and last step, 29; counter block, 6; one nibble of GHASH, 20; loops, 12.
pub(super) const PROGRAM: u32 = 120;

/// Tells what it took to encrypt or decrypt `len` bytes of a frame from `at` on by AES-GCM: each block of 16 bytes once by AES in counter
/// mode with tables of 4 KiB (`ciphers` counts a block by hand the same), and once by GHASH with a table of 16 multiples of its key, four
/// bits at a time (NIST SP 800-38D, section 6.3; Shoup's method).
pub(super) fn tell<T: Tally>(suite: &Suite, spi: u32, len: usize, at: usize, tally: &mut T) {
    if !tally.is_kept() {
        return;
    }
    let keys = spi as usize % 64 * SA_BYTES;
    // One block more is for the mask of the tag, and one for the lengths.
    for _ in 0..len.div_ceil(16) + 1 {
        // The counter, 6; chain and first key, 8; the masks of the last round, 16; loop, 5.
        tally.instructions(35);
        for round in 0..usize::from(suite.key) / 4 + 6 {
            // Of 16 bytes: index, reference, exclusive or.
            tally.instructions(48);
            tally.read(Region::CipherTable, round * 64, 64);
        }
        tally.read(Region::CipherKey, keys + 64, u32::from(suite.key) * 4 + 112);
        for nibble in 0..32 {
            // Index, 2; the product shifted by four bits, 8; the table's four words added, 4; what was shifted out, reduced, 4; loop, 2.
            tally.instructions(20);
            tally.read(Region::CipherKey, keys + 256 + nibble % 16 * 16, 16);
        }
    }
    tally.read(Region::Frame, at, len as u32);
    tally.write(Region::Frame, at, len as u32);
}
