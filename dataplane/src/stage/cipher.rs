//! Cost of the ciphers of tunnels, in software on a network processor's engine.
//!
//! Counted by hand from their definitions, for 32-bit words.

use tally::{Region, Tally};
use wire::esp::{Cipher, HEADER_LEN, Integrity, SUITES, Suite};

use crate::sa::SA_BYTES;
use crate::tables::Tables;

/// Instructions around a loop over a packet's blocks.
const LOOP: u32 = 6;

/// Work of a cipher or hash on one block: so many rounds, each the same loop.
struct Block {
    /// Bytes of a block.
    bytes: usize,
    /// Instructions for each block, beside those of the rounds; none of references.
    once: u32,
    /// Rounds of a block.
    rounds: usize,
    /// Instructions of a round.
    round: u32,
    /// References of a round to the cipher's tables, in words.
    tables: u32,
    /// References of a round to expanded keys, in words.
    keys: u32,
}

/// AES by tables of 4 KiB, in counter mode or chained: counter or chain and first key, 14; the masks of the last round, 16; loop, 5. Of
/// each round 16 bytes with index, reference, exclusive or.
const fn aes(key: u8) -> Block {
    Block { bytes: 16, once: 35, rounds: key as usize / 4 + 6, round: 48, tables: 16, keys: 4 }
}

/// GHASH with a table of 16 multiples of its key, four bits at a time (NIST SP 800-38D, section 6.3; Shoup's method). For each of 32
/// nibbles: index, 2; the product shifted by four bits, 8; the table's four words added, 4; what was shifted out, reduced, 4; loop, 2.
const GHASH: Block = Block { bytes: 16, once: 0, rounds: 32, round: 20, tables: 0, keys: 4 };

/// ChaCha20: 32 for the text and 16 for the state. In two rounds, 8 quarters of 4 additions, 4 exclusive ors, 4 rotations, and the loop, 2
/// (RFC 8439, section 2.3).
const CHACHA: Block = Block { bytes: 64, once: 48, rounds: 10, round: 98, tables: 0, keys: 1 };

/// Poly1305 in five limbs of 26 bits: load, 10; carries, 20; of each limb of the key five products and sums (RFC 8439, section 2.5).
const POLY: Block = Block { bytes: 16, once: 30, rounds: 5, round: 10, tables: 0, keys: 2 };

/// DES by eight tables: both permutations, 60; of each round eight times index, reference, exclusive or, and 6 more.
const DES: Block = Block { bytes: 8, once: 60, rounds: 16, round: 30, tables: 8, keys: 2 };

/// DES three times, permuted once.
const TRIPLE_DES: Block = Block { rounds: 48, ..DES };

/// MD5: 16 times four steps of 9 instructions, and the sums at the end.
const MD5: Block = Block { bytes: 64, once: 8, rounds: 16, round: 36, tables: 4, keys: 0 };

/// SHA-1: 80 steps of 11 instructions, with their words of schedule, 5.
const SHA1: Block = Block { bytes: 64, once: 10, rounds: 80, round: 16, tables: 0, keys: 0 };

/// SHA-256: 64 steps of 24 instructions, with their words of schedule, 11.
const SHA256: Block = Block { bytes: 64, once: 16, rounds: 64, round: 35, tables: 1, keys: 0 };

/// SHA-384 and SHA-512: 80 steps as those of SHA-256, on two words each with carries: 2.6 times as many.
const SHA512: Block = Block { bytes: 128, once: 42, rounds: 80, round: 91, tables: 2, keys: 0 };

/// Cipher of a suite: its block, and its blocks beside those of the text, as the mask of a tag.
fn cipher(suite: &Suite) -> Option<(Block, usize)> {
    match suite.cipher {
        Cipher::Gcm => Some((aes(suite.key), 1)),
        // The mask alone: the text stays.
        Cipher::Gmac => None,
        Cipher::ChaCha20Poly1305 => Some((CHACHA, 1)),
        Cipher::AesCbc => Some((aes(suite.key), 0)),
        Cipher::DesCbc => Some((DES, 0)),
        Cipher::TripleDesCbc => Some((TRIPLE_DES, 0)),
        Cipher::Null => None,
    }
}

/// Integrity of a suite: its block, and its blocks beside those of the text: lengths, padding, the outer hash of an HMAC.
fn integrity(suite: &Suite) -> Option<(Block, usize)> {
    match (suite.integrity, suite.cipher) {
        (Integrity::Combined, Cipher::ChaCha20Poly1305) => Some((POLY, 2)),
        (Integrity::Combined, _) => Some((GHASH, 1)),
        (Integrity::HmacSha1_96, _) => Some((SHA1, 2)),
        (Integrity::HmacSha256_128, _) => Some((SHA256, 2)),
        (Integrity::HmacSha384_192 | Integrity::HmacSha512_256, _) => Some((SHA512, 2)),
        (Integrity::HmacMd5_96, _) => Some((MD5, 2)),
        (Integrity::None, _) => None,
    }
}

/// Size of the program of all suites that these tables use.
pub(super) fn program(tables: &Tables) -> u32 {
    let of = |suite: &Suite| {
        let parts = [cipher(suite), integrity(suite)].into_iter().flatten();
        parts
            .map(|(Block { once, round, tables, keys, .. }, _)| once + round + tables + keys + LOOP)
            .sum::<u32>()
    };
    let sas = tables.tunnels.list.iter().flat_map(|tunnel| tunnel.out.iter().chain(&tunnel.inward));
    // Of one cipher with keys of several lengths, one program.
    let mut suites: Vec<&Suite> = sas.map(|sa| sa.transform.suite()).collect();
    suites.sort_unstable_by_key(|suite| suite.cipher as u8 * 8 + suite.integrity as u8);
    suites.dedup_by_key(|suite| (suite.cipher, suite.integrity));
    // No less than for AES-GCM, which any tunnel may be given.
    suites.into_iter().map(of).sum::<u32>().max(of(&SUITES[0]))
}

/// Tells what it took to encrypt or decrypt `len` bytes of a frame from `at` on, and to authenticate them.
pub(super) fn tell<T: Tally>(suite: &Suite, spi: u32, len: usize, at: usize, tally: &mut T) {
    if !tally.is_kept() {
        return;
    }
    let keys = spi as usize % 64 * SA_BYTES;
    let parts = [(cipher(suite), len, 64), (integrity(suite), HEADER_LEN + len, 256)];
    for (part, len, key) in parts {
        let Some((block, more)) = part else { continue };
        for _ in 0..len.div_ceil(block.bytes) + more {
            tally.instructions(block.once);
            for round in 0..block.rounds {
                tally.instructions(block.round);
                if block.tables > 0 {
                    tally.read(Region::CipherTable, round * 64, block.tables * 4);
                }
                if block.keys > 0 {
                    tally.read(Region::CipherKey, keys + key + round % 16 * 16, block.keys * 4);
                }
            }
        }
    }
    tally.read(Region::Frame, at, len as u32);
    tally.write(Region::Frame, at, len as u32);
}
