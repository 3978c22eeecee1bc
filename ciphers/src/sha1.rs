//! SHA-1 (FIPS 180-4, RFC 3174): 80 steps in four loops, after a loop that makes the schedule.

use crate::hash::{ByteOrder, Hash};
use crate::machine::{Machine, Native};
use crate::word::Word;
use crate::{About, Cipher, Kind};

/// Registry entry of SHA-1.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "sha1",
        kind: Kind::Hash,
        block_bits: Some(512),
        rounds: Some(80),
        key_bytes: 0,
        tables: &[],
    },
    run: crate::measure::hash::<5, Sha1>,
};

/// The function.
#[derive(Clone, Copy, Debug)]
pub enum Sha1 {}

impl Hash<5> for Sha1 {
    const INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    const ORDER: ByteOrder = ByteOrder::Big;

    fn compress<M: Machine>(machine: M, state: [M::Word; 5], block: [M::Word; 16]) -> [M::Word; 5] {
        // The schedule lies in local memory, or in registers once all is unrolled.
        let mut schedule = [block[0]; 80];
        for step in machine.rounds(0..16) {
            let [word] = machine.rename([block[step]]);
            schedule[step] = machine.indexed(word);
        }
        for step in machine.rounds(16..80) {
            let third = machine.indexed(schedule[step - 3]);
            let eighth = machine.indexed(schedule[step - 8]);
            let fourteenth = machine.indexed(schedule[step - 14]);
            let sixteenth = machine.indexed(schedule[step - 16]);
            schedule[step] = machine.indexed((third ^ eighth ^ fourteenth ^ sixteenth).rotl(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (quarter, constant) in K.into_iter().enumerate() {
            let _copy = machine.inlined(quarter);
            for step in machine.rounds(20 * quarter..20 * quarter + 20) {
                let mixed = match quarter {
                    0 => d ^ (b & (c ^ d)),
                    2 => (b & c) | (d & (b | c)),
                    _ => b ^ c ^ d,
                };
                let word = machine.indexed(schedule[step]);
                let next = a.rotl(5).plus(mixed).plus(e).plus(word).plus_constant(constant);
                [a, b, c, d, e] = machine.rename([next, a, b.rotl(30), c, d]);
            }
        }
        let [a0, b0, c0, d0, e0] = state;
        [a0.plus(a), b0.plus(b), c0.plus(c), d0.plus(d), e0.plus(e)]
    }
}

/// The compression function, for algorithms that build on it.
pub(crate) fn compress_plain(state: [u32; 5], block: [u32; 16]) -> [u32; 5] {
    Sha1::compress(Native, state, block)
}

const K: [u32; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];
