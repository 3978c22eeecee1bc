//! MD5 (RFC 1321). Its reference code writes the 64 steps out; so does this, at every step of optimisation. Words are
//! little-endian, so the engine reverses their bytes.

use crate::hash::{ByteOrder, Hash};
use crate::machine::Machine;
use crate::word::Word;
use crate::{About, Cipher, Kind};

/// Registry entry of MD5.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "md5",
        kind: Kind::Hash,
        block_bits: Some(512),
        rounds: Some(64),
        key_bytes: 0,
        tables: &[],
    },
    run: crate::measure::hash::<4, Md5>,
};

/// The function.
#[derive(Clone, Copy, Debug)]
pub enum Md5 {}

impl Hash<4> for Md5 {
    const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    const ORDER: ByteOrder = ByteOrder::Little;

    fn compress<M: Machine>(machine: M, state: [M::Word; 4], mut block: [M::Word; 16]) -> [M::Word; 4] {
        for word in machine.written_out(0..16) {
            block[word] = block[word].swap_bytes();
        }
        let [mut a, mut b, mut c, mut d] = state;
        for step in machine.written_out(0..64) {
            let (round, place) = (step / 16, step % 16);
            let (mixed, word) = match round {
                0 => (d ^ (b & (c ^ d)), place),
                1 => (c ^ (d & (b ^ c)), (5 * place + 1) % 16),
                2 => (b ^ c ^ d, (3 * place + 5) % 16),
                _ => (c ^ (b | !d), 7 * place % 16),
            };
            let sum = a.plus(mixed).plus(block[word]).plus_constant(K[step]);
            let next = b.plus(sum.rotl(ROTATIONS[round][place % 4]));
            [a, b, c, d] = [d, next, b, c];
        }
        let [a0, b0, c0, d0] = state;
        [a0.plus(a), b0.plus(b), c0.plus(c), d0.plus(d)]
    }
}

const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The whole part of 2³² |sin(n + 1)|, n in radians (RFC 1321, 3.4).
#[rustfmt::skip]
const K: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];
