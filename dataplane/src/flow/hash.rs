//! The keyed hash of flow keys.
//!
//! MULTILINEAR-HM of Lemire and Kaser, "Strongly universal string hashing is fast" (The Computer Journal
//! 57(11), 2014): for 32-bit words w and secret random 64-bit numbers k,
//!
//!   h = (k0 + (k1 + w0)(k2 + w1) + (k3 + w2)(k4 + w3) + ... mod 2^64) >> 32
//!
//! is strongly universal: for any two different keys every pair of 32-bit hashes is equally likely over the
//! choice of k. Keys of IPv4 are padded with zero words, and what those add is worked out beforehand, so that
//! they cost two multiplications. A fixed one-to-one mixing follows; it keeps the property, and breaks up the
//! regular spacing that hashes of consecutive ports or addresses would have.
//!
//! Promise: a sender of packets who does not know k finds no set of n keys of which more than n 2^-32 are expected to
//! share the hash of another key, nor more than n / buckets the bucket. Assumption: k is secret, and neither hashes nor
//! times that depend on them are shown to senders. The hash is no message authentication: whoever sees hashes can solve
//! for k.

use super::key::Key;

/// The secret numbers, and the hash.
#[derive(Clone)]
pub(crate) struct Hasher {
    /// For each pair of words two numbers: ends, then the four address words.
    pairs: [[u64; 2]; 5],
    /// k0, for keys of IPv6.
    v6: u64,
    /// k0 plus the contribution of the zero words behind an IPv4 key.
    v4: u64,
}

impl Hasher {
    /// Secret numbers from a seed. Random in a live host, fixed in a replay.
    pub(crate) fn new(seed: [u64; 2]) -> Hasher {
        let half = [seed[0] as u32, (seed[0] >> 32) as u32, seed[1] as u32, (seed[1] >> 32) as u32];
        let key = [half[0], half[1], half[2], half[3], half[0], half[1], half[2], half[3]];
        let mut stream = [0u64; 16];
        for (counter, block) in stream.chunks_mut(8).enumerate() {
            let words = chacha20_block(&key, counter as u32, &[0; 3]);
            for (number, pair) in block.iter_mut().zip(words.chunks(2)) {
                *number = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            }
        }
        let pairs = [
            [stream[1], stream[2]],
            [stream[3], stream[4]],
            [stream[5], stream[6]],
            [stream[7], stream[8]],
            [stream[9], stream[10]],
        ];
        let padding = pairs[2..].iter().fold(0u64, |sum, k| sum.wrapping_add(k[0].wrapping_mul(k[1])));
        Hasher { pairs, v6: stream[0], v4: stream[0].wrapping_add(padding) }
    }

    /// The hash: 32 good bits in the upper half, the same bits in the lower half.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let (addresses, ends) = key.words();
        let first = product(self.pairs[0], ends).wrapping_add(product(self.pairs[1], addresses[0]));
        let sum = if key.is_v4() {
            first.wrapping_add(self.v4)
        } else {
            let second =
                product(self.pairs[2], addresses[1]).wrapping_add(product(self.pairs[3], addresses[2]));
            let third = product(self.pairs[4], addresses[3]).wrapping_add(self.v6);
            first.wrapping_add(second).wrapping_add(third)
        };
        let mixed = mix((sum >> 32) as u32);
        u64::from(mixed) << 32 | u64::from(mixed)
    }
}

#[inline(always)]
fn product(k: [u64; 2], words: u64) -> u64 {
    let (high, low) = (words >> 32, words & 0xffff_ffff);
    k[0].wrapping_add(high).wrapping_mul(k[1].wrapping_add(low))
}

/// One-to-one: each of the three steps can be undone.
#[inline(always)]
const fn mix(h: u32) -> u32 {
    let h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
    h ^ (h >> 15)
}

/// The ChaCha20 block function (RFC 8439, section 2.3), to stretch a seed into secret numbers.
pub(crate) fn chacha20_block(key: &[u32; 8], counter: u32, nonce: &[u32; 3]) -> [u32; 16] {
    let mut start =
        [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574, 0, 0, 0, 0, 0, 0, 0, 0, counter, 0, 0, 0];
    start[4..12].copy_from_slice(key);
    start[13..].copy_from_slice(nonce);
    let mut x = start;
    for _ in 0..10 {
        for column in 0..4 {
            quarter_round(&mut x, [column, column + 4, column + 8, column + 12]);
        }
        for row in 0..4 {
            quarter_round(&mut x, [row, (row + 1) % 4 + 4, (row + 2) % 4 + 8, (row + 3) % 4 + 12]);
        }
    }
    for (word, first) in x.iter_mut().zip(start) {
        *word = word.wrapping_add(first);
    }
    x
}

fn quarter_round(x: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn chacha20_gives_the_block_of_rfc_8439_section_2_3_2() {
        let key: [u32; 8] = std::array::from_fn(|i| 0x0302_0100 + 0x0404_0404 * i as u32);
        let block = chacha20_block(&key, 1, &[0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(block[..4], [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]);
        assert_eq!(block[12..], [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]);
    }

    /// The formula of the module header, word by word in 128 bits.
    #[test]
    fn the_hash_is_the_formula() {
        let hasher = Hasher::new([1, 2]);
        for key in [Key::v4(1, u32::MAX, 3, 4, 6), Key::v6(u128::MAX - 9, 77 << 90, 65_535, 1, 17)] {
            let (addresses, ends) = key.words();
            let mut sum = u128::from(hasher.v6);
            for (k, word) in
                hasher.pairs.iter().zip([ends, addresses[0], addresses[1], addresses[2], addresses[3]])
            {
                let left = (u128::from(k[0]) + u128::from(word >> 32)) % (1 << 64);
                let right = (u128::from(k[1]) + u128::from(word as u32)) % (1 << 64);
                sum = (sum + left * right % (1 << 64)) % (1 << 64);
            }
            assert_eq!((hasher.hash(&key) >> 32) as u32, mix((sum >> 32) as u32));
        }
    }

    #[test]
    fn seeds_give_different_hashes_and_one_seed_the_same() {
        let key = Key::v4(1, 2, 3, 4, 6);
        assert_eq!(Hasher::new([5, 6]).hash(&key), Hasher::new([5, 6]).hash(&key));
        assert_ne!(Hasher::new([5, 6]).hash(&key), Hasher::new([5, 7]).hash(&key));
        assert_ne!(Hasher::new([5, 6]).hash(&key), Hasher::new([6, 5]).hash(&key));
    }

    /// Regular keys must spread about as random ones do: consecutive ports, consecutive addresses, and both.
    #[test]
    fn regular_keys_spread_like_random_ones() {
        let families: [fn(u32) -> Key; 4] = [
            |i| Key::v4(0x0a00_0001, 0xc633_6407, i as u16, (i >> 16) as u16, 6),
            |i| Key::v4(0x0a00_0000 + i, 0xc633_6407, 50_000, 443, 6),
            |i| Key::v4(0x0a00_0000 + (i & 255), 0xc633_6407, (i >> 8) as u16, 443, 6),
            |i| Key::v6(0x2001_0db8 << 96, u128::from(i) << 64, 50_000, 443, 6),
        ];
        let (keys, buckets) = (65_536u32, 8_192u64);
        for seed in 0..20 {
            let hasher = Hasher::new([seed, 99]);
            for family in families {
                let mut load = HashMap::new();
                for i in 0..keys {
                    *load.entry(((hasher.hash(&family(i)) >> 32) * buckets) >> 32).or_insert(0u32) += 1;
                }
                // Poisson of mean 8: 30 or more in one of 8,192 buckets happens once in 10^5 trials.
                let most = load.values().max().copied().unwrap_or(0);
                assert!(most < 30, "seed {seed}: {most} in one bucket");
            }
        }
    }
}
