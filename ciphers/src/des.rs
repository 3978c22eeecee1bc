//! DES (FIPS 46-3), with the S-boxes packed, two entries to a byte: 256 bytes, as in Yin, Tan et al., table 1.
//!
//! Tables that merge the S-boxes with the permutation P would take 2 KiB; with 256 bytes P is left to the code. It
//! moves the bits that travel equally far together, by one rotation and mask for each of the distances. A textbook's DES, [`TEXTBOOK`],
//! moves them one by one, and has its S-boxes packed at every step of optimisation.

use tally::Region;

use crate::block::{BlockCipher, key_words};
use crate::machine::{Entries, Layout, Machine, Pick, Table};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

/// Registry entry of DES.
pub static CIPHER: Cipher =
    Cipher { about: about("des", &[s_boxes(2048), SUBKEYS]), run: crate::measure::block::<2, Des> };

/// DES as a textbook has it.
pub static TEXTBOOK: Cipher = Cipher {
    about: about("des-textbook", &[s_boxes(256), SUBKEYS]),
    run: crate::measure::block::<2, Textbook>,
};

const fn about(name: &'static str, tables: &'static [TableAbout]) -> About {
    About { name, kind: Kind::Block, block_bits: Some(64), rounds: Some(16), key_bytes: 8, tables }
}

const fn s_boxes(aligned_bytes: usize) -> TableAbout {
    TableAbout {
        name: "s-boxes",
        region: Region::CipherTable,
        scope: Scope::Constant,
        at: 0,
        bytes: 256,
        aligned_bytes,
        published: Published::Counted,
    }
}

const SUBKEYS: TableAbout = TableAbout {
    name: "subkeys",
    region: Region::CipherKey,
    scope: Scope::Flow,
    at: 0,
    bytes: 128,
    aligned_bytes: 128,
    published: Published::LeftOut,
};

/// An expanded key.
#[derive(Clone)]
pub struct Des {
    /// Two words a round: the subkey's six bits for S1, S3, S5, S7, then those for S2, S4, S6, S8, each group 2 bits
    /// above a byte's low end, the first in the highest byte.
    subkeys: [u32; 32],
}

/// An expanded key of a textbook's DES.
#[derive(Clone)]
pub struct Textbook(Des);

/// Code of the round's function.
#[derive(Clone, Copy)]
enum Code {
    /// P by distances, S-boxes as planned.
    Grouped,
    /// P bit by bit, S-boxes packed.
    Textbook,
}

impl BlockCipher<2> for Textbook {
    fn new(key: &[u8]) -> Result<Textbook, KeyLength> {
        Ok(Textbook(Des::new(key)?))
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.0.subkeys, block, Code::Textbook)
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.0.backwards(), block, Code::Textbook)
    }
}

impl Des {
    /// Returns the subkeys in the order of decryption.
    fn backwards(&self) -> [u32; 32] {
        std::array::from_fn(|word| self.subkeys[30 - word / 2 * 2 + word % 2])
    }
}

impl BlockCipher<2> for Des {
    fn new(key: &[u8]) -> Result<Des, KeyLength> {
        let [high, low] = key_words::<2>(key)?;
        let chosen = permute(u64::from(high) << 32 | u64::from(low), 64, &PC1);
        let (mut c, mut d) = (chosen >> 28, chosen & 0x0fff_ffff);
        let mut subkeys = [0; 32];
        for round in 0..16 {
            let by = if [0, 1, 8, 15].contains(&round) { 1 } else { 2 };
            c = (c << by | c >> (28 - by)) & 0x0fff_ffff;
            d = (d << by | d >> (28 - by)) & 0x0fff_ffff;
            let subkey = permute(c << 28 | d, 56, &PC2);
            for group in 0..8 {
                let six = (subkey >> (42 - 6 * group)) as u32 & 0x3f;
                subkeys[2 * round + group % 2] |= six << (26 - 8 * (group / 2));
            }
        }
        Ok(Des { subkeys })
    }

    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.subkeys, block, Code::Grouped)
    }

    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; 2]) -> [M::Word; 2] {
        crypt(machine, &self.backwards(), block, Code::Grouped)
    }
}

fn crypt<M: Machine>(machine: M, subkeys: &[u32; 32], block: [M::Word; 2], code: Code) -> [M::Word; 2] {
    let keys = Table { region: Region::CipherKey, at: 0, words: subkeys };
    let [mut left, mut right] = initial(machine, block);
    for round in machine.rounds(0..16) {
        let subkey = machine.read::<2>(keys, 2 * round);
        let changed = left ^ f(machine, right, subkey, code);
        [left, right] = machine.rename([right, changed]);
    }
    last(machine, [right, left])
}

/// The round's function: expansion, S-boxes, P.
fn f<M: Machine>(machine: M, right: M::Word, [odd, even]: [M::Word; 2], code: Code) -> M::Word {
    let layout = match code {
        Code::Grouped => Layout::Planned,
        Code::Textbook => Layout::Packed,
    };
    let boxes = Entries { region: Region::CipherTable, bits: 4, entries: &S, layout };
    // Rotated so, the six bits for S1 (or S2) are on top, and those for the next but one follow 8 bits below.
    let odd = right.rotl(31) ^ odd;
    let even = right.rotl(3) ^ even;
    let mut nibbles = [odd; 8];
    for (number, nibble) in nibbles.iter_mut().enumerate() {
        let _copy = machine.inlined(number);
        let word = if number % 2 == 0 { odd } else { even };
        let pick = Pick { word, shift: 26 - 8 * (number as u32 / 2), bits: 6 };
        *nibble = machine.look_up_entry(boxes, 64 * number, pick);
    }
    let mut joined = nibbles[7];
    for number in machine.written_out(0..7) {
        joined = joined.or_shifted(nibbles[number], 28 - 4 * number as u32);
    }
    let moves: &[Moved] = match code {
        Code::Grouped => &P_MOVES,
        Code::Textbook => &P_BITS,
    };
    let mut moved = joined.turned(moves[0].left, moves[0].mask);
    for number in machine.written_out(1..moves.len()) {
        moved = moved | joined.turned(moves[number].left, moves[number].mask);
    }
    moved
}

/// The initial permutation, by exchanges of ever smaller fields.
fn initial<M: Machine>(machine: M, [left, right]: [M::Word; 2]) -> [M::Word; 2] {
    let _copy = machine.inlined(0);
    let [left, right] = exchange(machine, left, right, 4, 0x0f0f_0f0f);
    let [left, right] = exchange(machine, left, right, 16, 0x0000_ffff);
    let [right, left] = exchange(machine, right, left, 2, 0x3333_3333);
    let [right, left] = exchange(machine, right, left, 8, 0x00ff_00ff);
    exchange(machine, left, right, 1, 0x5555_5555)
}

/// The inverse of the initial permutation.
fn last<M: Machine>(machine: M, [left, right]: [M::Word; 2]) -> [M::Word; 2] {
    let _copy = machine.inlined(0);
    let [left, right] = exchange(machine, left, right, 1, 0x5555_5555);
    let [right, left] = exchange(machine, right, left, 8, 0x00ff_00ff);
    let [right, left] = exchange(machine, right, left, 2, 0x3333_3333);
    let [left, right] = exchange(machine, left, right, 16, 0x0000_ffff);
    exchange(machine, left, right, 4, 0x0f0f_0f0f)
}

/// Exchanges the bits of `a` that are `by` above those of the mask with those of `b` in the mask.
fn exchange<M: Machine>(machine: M, a: M::Word, b: M::Word, by: u32, mask: u32) -> [M::Word; 2] {
    let _copy = machine.inlined(by as usize);
    let differ = ((a >> by) ^ b) & mask;
    [a ^ (differ << by), b ^ differ]
}

/// Bits that P moves by one distance.
#[derive(Clone, Copy)]
struct Moved {
    /// Distance, in bits to the left.
    left: u32,
    /// Mask of their positions after the move.
    mask: u32,
}

/// P bit by bit.
static P_BITS: [Moved; 32] = {
    let mut moves = [Moved { left: 0, mask: 0 }; 32];
    let mut bit = 0;
    while bit < 32 {
        moves[bit] = Moved { left: distance(bit) as u32, mask: 1 << (31 - bit) };
        bit += 1;
    }
    moves
};

/// Distance to the left of the bit that P moves to this place: bits are numbered from 1, the most significant first, and a bit goes left by
/// how much its number falls.
const fn distance(place: usize) -> usize {
    (P[place] as usize + 32 - (place + 1)) % 32
}

const P_DISTANCES: usize = distances().1;
static P_MOVES: [Moved; P_DISTANCES] = {
    let (all, _) = distances();
    let mut moves = [Moved { left: 0, mask: 0 }; P_DISTANCES];
    let (mut left, mut next) = (0, 0);
    while left < 32 {
        if all[left] != 0 {
            moves[next] = Moved { left: left as u32, mask: all[left] };
            next += 1;
        }
        left += 1;
    }
    moves
};

/// Mask of the bits that travel each distance, and number of distances.
const fn distances() -> ([u32; 32], usize) {
    let mut masks = [0; 32];
    let (mut bit, mut count) = (0, 0);
    while bit < 32 {
        let left = distance(bit);
        if masks[left] == 0 {
            count += 1;
        }
        masks[left] |= 1 << (31 - bit);
        bit += 1;
    }
    (masks, count)
}

/// Permutes `value`, `width` bits wide, by `choice`, which numbers bits from 1, the most significant first.
fn permute(value: u64, width: u32, choice: &[u8]) -> u64 {
    choice.iter().fold(0, |bits, &number| bits << 1 | (value >> (width - u32::from(number)) & 1))
}

const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, //
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];

const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44,
    36, //
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12,
    4,
];

const PC2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, //
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

/// The S-boxes, each indexed by its six bits as they come.
static S: [u8; 512] = {
    let mut entries = [0; 512];
    let mut index = 0;
    while index < 512 {
        let (number, six) = (index / 64, index % 64);
        let row = six >> 4 & 2 | six & 1;
        let column = six >> 1 & 15;
        entries[index] = BOXES[number][row * 16 + column];
        index += 1;
    }
    entries
};

/// As the standard prints them: four rows of sixteen.
#[rustfmt::skip]
const BOXES: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
        4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
        0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
        13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
        10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
        4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
        9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
        1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
        7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];
