//! RC5-32/16/16 (Rivest, "The RC5 Encryption Algorithm"; RFC 2040): 16 rounds on words of 32 bits. Its table is the
//! expanded key. Words are little-endian, so the engine reverses their bytes.

use tally::Region;

use crate::block::BlockCipher;
use crate::machine::{Machine, Table};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

const ROUNDS: usize = 16;
const SUBKEYS: usize = 2 * ROUNDS + 2;

/// Registry entry of RC5.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "rc5",
        kind: Kind::Block,
        block_bits: Some(64),
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
    run: crate::measure::block::<2, Rc5>,
};

/// An expanded key.
#[derive(Clone)]
pub struct Rc5 {
    subkeys: [u32; SUBKEYS],
}

impl BlockCipher<2> for Rc5 {
    fn new(key: &[u8]) -> Result<Rc5, KeyLength> {
        Ok(Rc5 { subkeys: expand(key)? })
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        let [first, second] = machine.read::<2>(self.keys(), 0);
        let mut a = block[0].swap_bytes().plus(first);
        let mut b = block[1].swap_bytes().plus(second);
        for round in machine.rounds(1..ROUNDS + 1) {
            let [first, second] = machine.read::<2>(self.keys(), 2 * round);
            a = (a ^ b).rotl_by(b).plus(first);
            b = (b ^ a).rotl_by(a).plus(second);
        }
        [a.swap_bytes(), b.swap_bytes()]
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        let mut a = block[0].swap_bytes();
        let mut b = block[1].swap_bytes();
        for round in machine.rounds(0..ROUNDS) {
            let [first, second] = machine.read::<2>(self.keys(), 2 * (ROUNDS - round));
            b = b.minus(second).rotr_by(a) ^ a;
            a = a.minus(first).rotr_by(b) ^ b;
        }
        let [first, second] = machine.read::<2>(self.keys(), 0);
        [a.minus(first).swap_bytes(), b.minus(second).swap_bytes()]
    }
}

impl Rc5 {
    fn keys(&self) -> Table<'_> {
        Table { region: Region::CipherKey, at: 0, words: &self.subkeys }
    }
}

/// The key schedule of RC5 and RC6: the key is mixed into a row of pseudo-random words.
///
/// # Errors
///
/// [`KeyLength`] if the key is longer than 255 bytes.
pub(crate) fn expand<const N: usize>(key: &[u8]) -> Result<[u32; N], KeyLength> {
    const P: u32 = 0xb7e1_5163;
    const Q: u32 = 0x9e37_79b9;
    if key.len() > 255 {
        return Err(KeyLength(key.len()));
    }
    let mut secret = vec![0u32; key.len().div_ceil(4).max(1)];
    for (number, byte) in key.iter().enumerate() {
        secret[number / 4] |= u32::from(*byte) << (8 * (number % 4));
    }
    let mut subkeys: [u32; N] = std::array::from_fn(|number| P.wrapping_add(Q.wrapping_mul(number as u32)));
    let (mut a, mut b) = (0u32, 0u32);
    for step in 0..3 * N.max(secret.len()) {
        let subkey = &mut subkeys[step % N];
        a = subkey.wrapping_add(a).wrapping_add(b).rotate_left(3);
        *subkey = a;
        let word = step % secret.len();
        let sum = a.wrapping_add(b);
        b = secret[word].wrapping_add(sum).rotate_left(sum & 31);
        secret[word] = b;
    }
    Ok(subkeys)
}
