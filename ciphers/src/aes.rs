//! AES with keys of 128 bits (FIPS 197), by five tables of 1 KiB: four that merge SubBytes, ShiftRows and MixColumns,
//! each for one row, and one for the last round, which has no MixColumns.

use tally::Region;

use crate::block::{BlockCipher, key_words};
use crate::machine::{Machine, Pick, Table};
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

const ROUNDS: usize = 10;

/// Registry entry of AES.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "aes",
        kind: Kind::Block,
        block_bits: Some(128),
        rounds: Some(ROUNDS as u32),
        key_bytes: 16,
        tables: &[
            table("te0", 0),
            table("te1", 1024),
            table("te2", 2048),
            table("te3", 3072),
            table("te4", 4096),
            TableAbout {
                name: "subkeys",
                region: Region::CipherKey,
                scope: Scope::Flow,
                at: 0,
                bytes: 176,
                aligned_bytes: 176,
                published: Published::LeftOut,
            },
        ],
    },
    run: crate::measure::block::<4, Aes>,
};

const fn table(name: &'static str, at: usize) -> TableAbout {
    TableAbout {
        name,
        region: Region::CipherTable,
        scope: Scope::Constant,
        at,
        bytes: 1024,
        aligned_bytes: 1024,
        published: Published::Counted,
    }
}

/// An expanded key.
#[derive(Clone)]
pub struct Aes {
    subkeys: [u32; 44],
    /// For the equivalent inverse cipher (FIPS 197, 5.3.5).
    inverse: [u32; 44],
}

impl BlockCipher<4> for Aes {
    fn new(key: &[u8]) -> Result<Aes, KeyLength> {
        let mut subkeys = [0; 44];
        subkeys[..4].copy_from_slice(&key_words::<4>(key)?);
        let mut constant = 1;
        for word in 4..44 {
            let mut last = subkeys[word - 1];
            if word % 4 == 0 {
                last = last
                    .rotate_left(8)
                    .to_be_bytes()
                    .into_iter()
                    .fold(0, |sum, byte| sum << 8 | u32::from(SBOX[usize::from(byte)]));
                last ^= u32::from(constant) << 24;
                constant = double(constant);
            }
            subkeys[word] = subkeys[word - 4] ^ last;
        }
        let inverse = std::array::from_fn(|word| {
            let subkey = subkeys[4 * (ROUNDS - word / 4) + word % 4];
            if !(4..40).contains(&word) {
                return subkey;
            }
            // TD merges the inverse S-box with InvMixColumns; the S-box before it leaves the latter.
            (0..4).fold(0, |sum, row| {
                sum ^ TD[row][usize::from(SBOX[(subkey >> (24 - 8 * row) & 0xff) as usize])]
            })
        });
        Ok(Aes { subkeys, inverse })
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 4]) -> [M::Word; 4] {
        crypt(machine, &self.subkeys, &TE, 1, block)
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 4]) -> [M::Word; 4] {
        crypt(machine, &self.inverse, &TD, 3, block)
    }
}

/// The rounds. Row `n` of an output column is taken from the input column `n * step` further on.
fn crypt<M: Machine>(
    machine: M,
    subkeys: &[u32; 44],
    tables: &'static [[u32; 256]; 5],
    step: usize,
    block: [M::Word; 4],
) -> [M::Word; 4] {
    let keys = Table { region: Region::CipherKey, at: 0, words: subkeys };
    let tables: [Table<'_>; 5] = std::array::from_fn(|number| Table {
        region: Region::CipherTable,
        at: 1024 * number,
        words: &tables[number],
    });
    let whitening = machine.read::<4>(keys, 0);
    let mut state = block;
    for column in machine.written_out(0..4) {
        state[column] = state[column] ^ whitening[column];
    }
    for round in machine.rounds(1..ROUNDS) {
        let mut next = machine.read::<4>(keys, 4 * round);
        for column in machine.written_out(0..4) {
            let rows: [M::Word; 4] = std::array::from_fn(|row| {
                let _copy = machine.inlined(row);
                let word = state[(column + row * step) % 4];
                machine.look_up(tables[row], Pick { word, shift: 24 - 8 * row as u32, bits: 8 })
            });
            next[column] = next[column] ^ rows[0] ^ rows[1] ^ rows[2] ^ rows[3];
        }
        state = machine.rename(next);
    }
    let mut last = machine.read::<4>(keys, 4 * ROUNDS);
    for column in machine.written_out(0..4) {
        let rows: [M::Word; 4] = std::array::from_fn(|row| {
            let _copy = machine.inlined(row);
            let word = state[(column + row * step) % 4];
            machine.look_up(tables[4], Pick { word, shift: 24 - 8 * row as u32, bits: 8 })
        });
        for row in machine.written_out(0..4) {
            last[column] = last[column] ^ (rows[row] & (0xff00_0000 >> (8 * row)));
        }
    }
    last
}

static SBOX: [u8; 256] = sbox();
static TE: [[u32; 256]; 5] = tables(&sbox(), [2, 1, 1, 3]);
static TD: [[u32; 256]; 5] = tables(&inverse_sbox(), [14, 9, 13, 11]);

/// Tables 0 to 3: the column that a byte of row 0 to 3 contributes to, its own factors from `column` on; 4: the
/// S-box's byte, four times.
const fn tables(sbox: &[u8; 256], column: [u8; 4]) -> [[u32; 256]; 5] {
    let mut tables = [[0; 256]; 5];
    let mut index = 0;
    while index < 256 {
        let byte = sbox[index];
        let word = u32::from_be_bytes([
            multiply(byte, column[0]),
            multiply(byte, column[1]),
            multiply(byte, column[2]),
            multiply(byte, column[3]),
        ]);
        let mut row = 0;
        while row < 4 {
            tables[row][index] = word.rotate_right(8 * row as u32);
            row += 1;
        }
        tables[4][index] = u32::from_be_bytes([byte; 4]);
        index += 1;
    }
    tables
}

/// The inverse in GF(2⁸), then the affine map (FIPS 197, 5.1.1), walking the field by the generator 3.
const fn sbox() -> [u8; 256] {
    let mut sbox = [0; 256];
    let (mut power, mut inverse) = (1u8, 1u8);
    loop {
        power ^= double(power);
        // Divided by 3, which is multiplied by 0xf6.
        inverse = multiply(inverse, 0xf6);
        sbox[power as usize] = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4)
            ^ 0x63;
        if power == 1 {
            break;
        }
    }
    sbox[0] = 0x63;
    sbox
}

const fn inverse_sbox() -> [u8; 256] {
    let sbox = sbox();
    let mut inverse = [0; 256];
    let mut index = 0;
    while index < 256 {
        inverse[sbox[index] as usize] = index as u8;
        index += 1;
    }
    inverse
}

/// Twice an element of GF(2⁸).
const fn double(byte: u8) -> u8 {
    (byte << 1) ^ (0x1b * (byte >> 7))
}

const fn multiply(mut byte: u8, mut by: u8) -> u8 {
    let mut product = 0;
    while by != 0 {
        if by & 1 == 1 {
            product ^= byte;
        }
        byte = double(byte);
        by >>= 1;
    }
    product
}
