//! SEAL 3.0 (Rogaway and Coppersmith, "A Software-Optimized Encryption Algorithm", Journal of Cryptology 11, 1998):
//! 64 passes make a kilobyte of stream from two tables, and a third says how the next kilobyte begins.
//!
//! The stream is that of position number 0. Each position has 64 KiB, which makes the third table as large as it can
//! be; then the next position's stream follows.

use tally::Region;

use crate::block::key_words;
use crate::machine::{Machine, Table};
use crate::sha1;
use crate::stream::{StreamCipher, UNIT, UNIT_WORDS, Units};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

/// Bytes of stream between two initialisations.
const CHUNK: usize = 1024;
/// Initialisations for each position.
const CHUNKS: usize = 64;
const T: usize = 512;
const S: usize = 256;
const R: usize = 4 * CHUNKS;
/// Passes of the inner loop for a unit of text.
const PASSES: usize = UNIT_WORDS / 4;

/// Registry entry of SEAL.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "seal",
        kind: Kind::Stream,
        block_bits: None,
        rounds: Some(66),
        key_bytes: 20,
        tables: &[table("t", 0, 4 * T), table("s", 4 * T, 4 * S), table("r", 4 * (T + S), 4 * R)],
    },
    run: crate::measure::stream::<Seal>,
};

const fn table(name: &'static str, at: usize, bytes: usize) -> TableAbout {
    TableAbout {
        name,
        region: Region::CipherTable,
        scope: Scope::Flow,
        at,
        bytes,
        aligned_bytes: bytes,
        published: Published::Counted,
    }
}

/// An expanded key, and the position in its stream.
#[derive(Clone)]
pub struct Seal {
    /// T, S and R, one after the other.
    words: Vec<u32>,
    position: u32,
    /// Units of stream used of this position.
    used: usize,
    /// State of the inner loop after the last chunk: a, b, c, d, n1 to n4.
    state: [u32; 8],
}

impl Seal {
    /// The same key, with the stream of another position.
    pub fn at(mut self, position: u32) -> Seal {
        self.position = position;
        self.used = 0;
        self
    }

    fn table(&self, from: usize, words: usize) -> Table<'_> {
        Table { region: Region::CipherTable, at: 4 * from, words: &self.words[from..from + words] }
    }

    /// Initial state of a chunk of stream.
    fn begin<M: Machine>(&self, machine: M, chunk: usize) -> State<M::Word> {
        let position = machine.constant(self.position);
        let [mut a, mut b, mut c, mut d] = machine.read::<4>(self.table(T + S, R), 4 * chunk);
        a = a ^ position;
        b = b ^ position.rotl(24);
        c = c ^ position.rotl(16);
        d = d ^ position.rotl(8);
        let mut kept = [d, b, a, c];
        for pass in machine.written_out(0..3) {
            if pass == 2 {
                kept = [d, b, a, c];
            }
            b = b.plus(self.t(machine, a & OFFSET));
            a = a.rotl(23);
            c = c.plus(self.t(machine, b & OFFSET));
            b = b.rotl(23);
            d = d.plus(self.t(machine, c & OFFSET));
            c = c.rotl(23);
            a = a.plus(self.t(machine, d & OFFSET));
            d = d.rotl(23);
        }
        State { now: [a, b, c, d], kept }
    }

    /// One pass of the inner loop: four words of stream.
    fn pass<M: Machine>(&self, machine: M, state: &mut State<M::Word>, number: usize) -> [M::Word; 4] {
        let [mut a, mut b, mut c, mut d] = state.now;
        let mut p = a & OFFSET;
        a = a.rotl(23);
        b = b.plus(self.t(machine, p)) ^ a;
        let mut q = b & OFFSET;
        b = b.rotl(23);
        c = (c ^ self.t(machine, q)).plus(b);
        p = p.plus(c) & OFFSET;
        c = c.rotl(23);
        d = d.plus(self.t(machine, p)) ^ c;
        q = q.plus(d) & OFFSET;
        d = d.rotl(23);
        a = (a ^ self.t(machine, q)).plus(d);
        p = p.plus(a) & OFFSET;
        b = b ^ self.t(machine, p);
        a = a.rotl(23);
        q = q.plus(b) & OFFSET;
        c = c.plus(self.t(machine, q));
        b = b.rotl(23);
        p = p.plus(c) & OFFSET;
        d = d ^ self.t(machine, p);
        c = c.rotl(23);
        q = q.plus(d) & OFFSET;
        d = d.rotl(23);
        a = a.plus(self.t(machine, q));
        let [s0, s1, s2, s3] = machine.read::<4>(self.table(T, S), 4 * number);
        let stream = [b.plus(s0), c ^ s1, d.plus(s2), a ^ s3];
        let [n1, n2, n3, n4] = state.kept;
        let [first, second] = if number % 2 == 0 { [n1, n2] } else { [n3, n4] };
        state.now = [a.plus(first), b.plus(second), c ^ first, d ^ second];
        stream
    }

    /// The word of T at a byte offset.
    #[track_caller]
    fn t<M: Machine>(&self, machine: M, offset: M::Word) -> M::Word {
        machine.look_up_at(self.table(0, T), offset)
    }
}

/// The bits of a word that are a byte offset in T.
const OFFSET: u32 = 4 * (T as u32 - 1);

struct State<W> {
    now: [W; 4],
    /// n1 to n4.
    kept: [W; 4],
}

impl StreamCipher for Seal {
    fn new(key: &[u8]) -> Result<Seal, KeyLength> {
        let key = key_words::<5>(key)?;
        let words = (0..T)
            .map(|index| index as u32)
            .chain((0..S).map(|index| 0x1000 + index as u32))
            .chain((0..R).map(|index| 0x2000 + index as u32))
            .map(|index| gamma(key, index))
            .collect();
        Ok(Seal { words, position: 0, used: 0, state: [0; 8] })
    }

    fn apply_units<M: Machine>(&mut self, machine: M, text: &mut [u8]) {
        const IN_A_CHUNK: usize = CHUNK / UNIT;
        let mut units = Units::new(machine);
        // What registers hold while the loop goes on. A chunk that was broken off is taken up again.
        let [a, b, c, d, n1, n2, n3, n4] = machine.constants(self.state);
        let mut state = State { now: [a, b, c, d], kept: [n1, n2, n3, n4] };
        for unit in machine.blocks(0..text.len() / UNIT) {
            if self.used == CHUNKS * IN_A_CHUNK {
                self.position = self.position.wrapping_add(1);
                self.used = 0;
            }
            if self.used % IN_A_CHUNK == 0 {
                state = self.begin(machine, self.used / IN_A_CHUNK);
            }
            let plain = units.read(text, unit * UNIT);
            let mut stream = plain;
            for pair in machine.rounds(0..PASSES / 2) {
                for half in machine.written_out(0..2) {
                    let pass = 2 * pair + half;
                    let number = self.used % IN_A_CHUNK * PASSES + pass;
                    stream[4 * pass..][..4].copy_from_slice(&self.pass(machine, &mut state, number));
                }
            }
            units.write(text, unit * UNIT, plain, stream);
            self.used += 1;
        }
        for (kept, word) in self.state.iter_mut().zip(state.now.into_iter().chain(state.kept)) {
            *kept = word.value();
        }
    }
}

/// The word that a key and an index make: one of the five of SHA-1's compression function, with the key as its
/// state and a block that numbers groups of five.
fn gamma(key: [u32; 5], index: u32) -> u32 {
    let mut block = [0; 16];
    block[0] = index / 5;
    sha1::compress_plain(key, block)[index as usize % 5]
}
