//! Blowfish (Schneier, "Description of a New Variable-Length Key, 64-Bit Block Cipher"): 16 rounds, 18 subkeys and
//! four S-boxes of 1 KiB, all made from the key and the digits of pi.

use std::sync::OnceLock;

use tally::Region;

use crate::block::BlockCipher;
use crate::machine::{Machine, Native, Pick, Table};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout, pi};

const ROUNDS: usize = 16;
const SUBKEYS: usize = ROUNDS + 2;

/// Registry entry of Blowfish.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "blowfish",
        kind: Kind::Block,
        block_bits: Some(64),
        rounds: Some(ROUNDS as u32),
        key_bytes: 16,
        tables: &[
            TableAbout {
                name: "s-boxes",
                region: Region::CipherTable,
                scope: Scope::Flow,
                at: 0,
                bytes: 4096,
                aligned_bytes: 4096,
                published: Published::Counted,
            },
            TableAbout {
                name: "subkeys",
                region: Region::CipherKey,
                scope: Scope::Flow,
                at: 0,
                bytes: 4 * SUBKEYS,
                aligned_bytes: 4 * SUBKEYS,
                published: Published::Counted,
            },
        ],
    },
    run: crate::measure::block::<2, Blowfish>,
};

/// An expanded key.
#[derive(Clone)]
pub struct Blowfish {
    subkeys: [u32; SUBKEYS],
    boxes: Box<[[u32; 256]; 4]>,
}

impl BlockCipher<2> for Blowfish {
    fn new(key: &[u8]) -> Result<Blowfish, KeyLength> {
        static DIGITS: OnceLock<Vec<u32>> = OnceLock::new();
        if !(4..=56).contains(&key.len()) {
            return Err(KeyLength(key.len()));
        }
        let digits = DIGITS.get_or_init(|| pi::fraction(SUBKEYS + 4 * 256));
        let mut key = key.iter().cycle();
        let mut cipher = Blowfish {
            subkeys: std::array::from_fn(|number| {
                digits[number]
                    ^ (0..4).fold(0, |word, _| word << 8 | key.next().copied().map_or(0, u32::from))
            }),
            boxes: Box::new(std::array::from_fn(|number| {
                std::array::from_fn(|entry| digits[SUBKEYS + 256 * number + entry])
            })),
        };
        // Every word is replaced, in order, by the output of the cipher as it is by then.
        let mut block = [0; 2];
        for pair in 0..SUBKEYS / 2 {
            block = cipher.encrypt_block(Native, block);
            cipher.subkeys[2 * pair..][..2].copy_from_slice(&block);
        }
        for pair in 0..4 * 128 {
            block = cipher.encrypt_block(Native, block);
            cipher.boxes[pair / 128][2 * (pair % 128)..][..2].copy_from_slice(&block);
        }
        Ok(cipher)
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        self.crypt(machine, block, |number| number)
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        self.crypt(machine, block, |number| SUBKEYS - 1 - number)
    }
}

impl Blowfish {
    /// The rounds, with the subkeys in the order given.
    fn crypt<M: Machine>(
        &self,
        machine: M,
        [mut left, mut right]: [M::Word; 2],
        order: impl Fn(usize) -> usize,
    ) -> [M::Word; 2] {
        let keys = Table { region: Region::CipherKey, at: 0, words: &self.subkeys };
        for round in machine.rounds(0..ROUNDS) {
            let [subkey] = machine.read::<1>(keys, order(round));
            left = left ^ subkey;
            right = right ^ self.f(machine, left);
            [left, right] = machine.rename([right, left]);
        }
        let [for_right] = machine.read::<1>(keys, order(ROUNDS));
        let [for_left] = machine.read::<1>(keys, order(ROUNDS + 1));
        [right ^ for_left, left ^ for_right]
    }

    fn f<M: Machine>(&self, machine: M, word: M::Word) -> M::Word {
        let [a, b, c, d]: [M::Word; 4] = std::array::from_fn(|number| {
            let _copy = machine.inlined(number);
            let table = Table { region: Region::CipherTable, at: 1024 * number, words: &self.boxes[number] };
            machine.look_up(table, Pick { word, shift: 24 - 8 * number as u32, bits: 8 })
        });
        (a.plus(b) ^ c).plus(d)
    }
}
