//! The keyed hash of datagrams: MULTILINEAR-HM, as for flows (see `flow/hash.rs`), over all ten words of a key
//! (fragments are few, so IPv4 is not treated apart). The mixing at the end is needed here too: identifications
//! count up, and the bare sum sends them to every second or fourth chain for some secret numbers.

use super::DatagramKey;

/// The secret numbers: one to begin with, then one for each word.
pub(super) struct Hasher([u64; 11]);

impl Hasher {
    pub(super) fn new(seed: [u64; 2]) -> Hasher {
        let (mut counter, spice) = (seed[0], finish(seed[1]));
        Hasher(std::array::from_fn(|_| {
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            finish(finish(counter) ^ spice)
        }))
    }

    pub(super) fn hash(&self, key: &DatagramKey) -> u32 {
        let rest = u64::from(key.id) << 32
            | u64::from(key.protocol) << 24
            | (key.family as u64) << 16
            | u64::from(key.ct_zone);
        let words = [
            (key.source >> 64) as u64,
            key.source as u64,
            (key.destination >> 64) as u64,
            key.destination as u64,
            rest,
        ];
        let [start, pairs @ ..] = &self.0;
        let sum = words.iter().zip(pairs.chunks_exact(2)).fold(*start, |sum, (word, k)| {
            let (high, low) = (word >> 32, word & 0xffff_ffff);
            sum.wrapping_add(k[0].wrapping_add(high).wrapping_mul(k[1].wrapping_add(low)))
        });
        let h = (sum >> 32) as u32;
        let h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
        h ^ (h >> 15)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
const fn finish(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
