//! RC6-32/20/16 (Rivest, Robshaw, Sidney, Yin, "The RC6 Block Cipher"): RC5 on four words, with a multiplication that
//! says how far to rotate. Words are little-endian, so the engine reverses their bytes.

use tally::Region;

use crate::block::BlockCipher;
use crate::machine::{Machine, Table};
use crate::rc5::expand;
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

const ROUNDS: usize = 20;
const SUBKEYS: usize = 2 * ROUNDS + 4;

/// Registry entry of RC6.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "rc6",
        kind: Kind::Block,
        block_bits: Some(128),
        rounds: Some(ROUNDS as u32),
        key_bytes: 16,
        tables: &[TableAbout {
            name: "subkeys",
            region: Region::CipherKey,
            scope: Scope::Flow,
            at: 0,
            bytes: 4 * SUBKEYS,
            aligned_bytes: 4 * SUBKEYS,
            published: Published::Counted,
        }],
    },
    run: crate::measure::block::<4, Rc6>,
};

/// An expanded key.
#[derive(Clone)]
pub struct Rc6 {
    subkeys: [u32; SUBKEYS],
}

impl BlockCipher<4> for Rc6 {
    fn new(key: &[u8]) -> Result<Rc6, KeyLength> {
        Ok(Rc6 { subkeys: expand(key)? })
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 4]) -> [M::Word; 4] {
        let [mut a, mut b, mut c, mut d] = reversed(machine, 0, block);
        let [first, second] = machine.read::<2>(self.keys(), 0);
        b = b.plus(first);
        d = d.plus(second);
        for round in machine.rounds(1..ROUNDS + 1) {
            let [first, second] = machine.read::<2>(self.keys(), 2 * round);
            let t = amount(machine, 0, b);
            let u = amount(machine, 1, d);
            a = (a ^ t).rotl_by(u).plus(first);
            c = (c ^ u).rotl_by(t).plus(second);
            [a, b, c, d] = machine.rename([b, c, d, a]);
        }
        let [first, second] = machine.read::<2>(self.keys(), SUBKEYS - 2);
        a = a.plus(first);
        c = c.plus(second);
        reversed(machine, 1, [a, b, c, d])
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 4]) -> [M::Word; 4] {
        let [mut a, mut b, mut c, mut d] = reversed(machine, 0, block);
        let [first, second] = machine.read::<2>(self.keys(), SUBKEYS - 2);
        a = a.minus(first);
        c = c.minus(second);
        for round in machine.rounds(0..ROUNDS) {
            let [first, second] = machine.read::<2>(self.keys(), 2 * (ROUNDS - round));
            [a, b, c, d] = machine.rename([d, a, b, c]);
            let t = amount(machine, 0, b);
            let u = amount(machine, 1, d);
            a = a.minus(first).rotr_by(u) ^ t;
            c = c.minus(second).rotr_by(t) ^ u;
        }
        let [first, second] = machine.read::<2>(self.keys(), 0);
        b = b.minus(first);
        d = d.minus(second);
        reversed(machine, 1, [a, b, c, d])
    }
}

impl Rc6 {
    fn keys(&self) -> Table<'_> {
        Table { region: Region::CipherKey, at: 0, words: &self.subkeys }
    }
}

/// x(2x + 1), rotated by log₂ 32.
fn amount<M: Machine>(machine: M, copy: usize, word: M::Word) -> M::Word {
    let _copy = machine.inlined(copy);
    word.times((word << 1).plus_constant(1)).rotl(5)
}

fn reversed<M: Machine>(machine: M, copy: usize, mut block: [M::Word; 4]) -> [M::Word; 4] {
    let _copy = machine.inlined(copy);
    for word in machine.written_out(0..4) {
        block[word] = block[word].swap_bytes();
    }
    block
}
