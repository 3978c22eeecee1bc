//! IDEA (Lai, "On the Design and Security of Block Ciphers"): eight rounds and an output transformation, which makes
//! nine in Yin, Tan et al., table 1. Four 16-bit words, each in a register of its own; no table.

use tally::Region;

use crate::block::{BlockCipher, key_words};
use crate::machine::{Machine, Table};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

const ROUNDS: usize = 8;
const SUBKEYS: usize = 6 * ROUNDS + 4;

/// Registry entry of IDEA.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "idea",
        kind: Kind::Block,
        block_bits: Some(64),
        rounds: Some(ROUNDS as u32 + 1),
        key_bytes: 16,
        tables: &[TableAbout {
            name: "subkeys",
            region: Region::CipherKey,
            scope: Scope::Flow,
            at: 0,
            bytes: 4 * SUBKEYS,
            aligned_bytes: 4 * SUBKEYS,
            published: Published::LeftOut,
        }],
    },
    run: crate::measure::block::<2, Idea>,
};

/// An expanded key: 16-bit subkeys, one to a word.
#[derive(Clone)]
pub struct Idea {
    encrypting: [u32; SUBKEYS],
    decrypting: [u32; SUBKEYS],
}

impl BlockCipher<2> for Idea {
    fn new(key: &[u8]) -> Result<Idea, KeyLength> {
        let key = key_words::<4>(key)?.into_iter().fold(0, |key, word| key << 32 | u128::from(word));
        let encrypting: [u32; SUBKEYS] = std::array::from_fn(|number| {
            let turned = key.rotate_left(25 * (number as u32 / 8));
            (turned >> (112 - 16 * (number % 8))) as u32 & 0xffff
        });
        let mut decrypting = [0; SUBKEYS];
        for round in 0..=ROUNDS {
            let from = &encrypting[6 * (ROUNDS - round)..];
            let to = &mut decrypting[6 * round..];
            // The middle two words change places between rounds, but not at either end.
            let (second, third) = if round == 0 || round == ROUNDS { (1, 2) } else { (2, 1) };
            to[0] = inverse(from[0]);
            to[1] = from[second].wrapping_neg() & 0xffff;
            to[2] = from[third].wrapping_neg() & 0xffff;
            to[3] = inverse(from[3]);
            if round < ROUNDS {
                let before = &encrypting[6 * (ROUNDS - round) - 2..];
                to[4] = before[0];
                to[5] = before[1];
            }
        }
        Ok(Idea { encrypting, decrypting })
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.encrypting, block)
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.decrypting, block)
    }
}

fn crypt<M: Machine>(machine: M, subkeys: &[u32; SUBKEYS], [high, low]: [M::Word; 2]) -> [M::Word; 2] {
    let keys = Table { region: Region::CipherKey, at: 0, words: subkeys };
    let [mut a, mut b, mut c, mut d] = [high >> 16, high.low_half(), low >> 16, low.low_half()];
    for round in machine.rounds(0..ROUNDS) {
        let key = machine.read::<6>(keys, 6 * round);
        a = multiply(machine, 0, a, key[0]);
        b = b.plus(key[1]).low_half();
        c = c.plus(key[2]).low_half();
        d = multiply(machine, 1, d, key[3]);
        let first = multiply(machine, 2, a ^ c, key[4]);
        let second = multiply(machine, 3, (b ^ d).plus(first).low_half(), key[5]);
        let first = first.plus(second).low_half();
        a = a ^ second;
        d = d ^ first;
        [b, c] = machine.rename([c ^ second, b ^ first]);
    }
    let key = machine.read::<4>(keys, 6 * ROUNDS);
    let a = multiply(machine, 4, a, key[0]);
    let second = c.plus(key[1]).low_half();
    let third = b.plus(key[2]).low_half();
    let d = multiply(machine, 5, d, key[3]);
    [second.or_shifted(a, 16), d.or_shifted(third, 16)]
}

/// The product modulo 2¹⁶ + 1, where 0 stands for 2¹⁶. It branches on the data.
fn multiply<M: Machine>(machine: M, copy: usize, a: M::Word, b: M::Word) -> M::Word {
    let _copy = machine.inlined(copy);
    let product = a.times_halves(b);
    if machine.is_zero(product) {
        // One of them is 2¹⁶, or -1: the product is 1 less the other, the zero being no matter.
        return (!a.plus(b)).plus_constant(2).low_half();
    }
    // 2¹⁶ is -1: the low half less the high half, and once the modulus where that is negative.
    let difference = product.low_half().minus(product >> 16);
    difference.plus(difference >> 31).low_half()
}

/// The inverse modulo 2¹⁶ + 1, by Fermat.
fn inverse(value: u32) -> u32 {
    let modulus = 0x1_0001;
    let mut inverse = 1;
    for _ in 0..0xffff {
        inverse = inverse * if value == 0 { 0x1_0000 } else { u64::from(value) } % modulus;
    }
    inverse as u32 & 0xffff
}
