//! Keyed hash of a flow's key, computed alike here and by the filter.
//!
//! MULTILINEAR-HM of Lemire and Kaser ("Strongly universal string hashing is fast", The Computer Journal 57(11), 2014),
//! as the flow table of the data plane has it: for 32-bit words w and secret 64-bit numbers k,
//!
//!   h = (k0 + (k1 + w0)(k2 + w1) + (k3 + w2)(k4 + w3) + ... mod 2^64) >> 32
//!
//! so that a sender who does not know k finds no keys that share a bucket more often than by chance. A fixed one-to-one
//! mixing then has each bit depend on all: the upper ones tell the bucket, the lower ones the tag.

/// Most pairs of words: ports and interface, and two addresses of IPv6.
pub(crate) const PAIRS: usize = 5;
/// Place of the VLAN in the word of the interface, below the protocol's.
pub(crate) const VLAN_SHIFT: u32 = 12;
/// Multiplier of the mixing.
pub(crate) const MIX: u32 = 0x7feb_352d;

/// The secret numbers.
#[derive(Clone)]
pub(crate) struct Hasher {
    /// k0.
    pub(crate) start: u64,
    /// The other numbers, by pairs of words.
    pub(crate) pairs: [[u64; 2]; PAIRS],
}

impl Hasher {
    /// Numbers drawn from a secret seed.
    pub(crate) fn new(seed: [u64; 2]) -> Hasher {
        let mut drawn = 0;
        let mut draw = || {
            drawn += 1;
            seed.iter().fold(0, |sum, half| split_mix(sum ^ half.wrapping_add(GOLDEN.wrapping_mul(drawn))))
        };
        Hasher { start: draw(), pairs: [(); PAIRS].map(|()| [draw(), draw()]) }
    }

    /// The hash of at most [`PAIRS`] pairs of words.
    #[inline]
    pub(crate) fn hash(&self, words: &[[u32; 2]]) -> u32 {
        let products = self
            .pairs
            .iter()
            .zip(words)
            .map(|(k, w)| k[0].wrapping_add(w[0].into()).wrapping_mul(k[1].wrapping_add(w[1].into())));
        let high = (products.fold(self.start, u64::wrapping_add) >> 32) as u32;
        let mixed = (high ^ high >> 16).wrapping_mul(MIX);
        mixed ^ mixed >> 15
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn split_mix(state: u64) -> u64 {
    let z = state.wrapping_add(GOLDEN);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
