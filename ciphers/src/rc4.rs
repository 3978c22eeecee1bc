//! RC4 (after Schneier, "Applied Cryptography", 17.1): a permutation of 256 bytes, which each byte of the stream
//! shuffles further.

use tally::Region;

use crate::machine::{Entries, Layout, Machine, Pick};
use crate::stream::{StreamCipher, UNIT, UNIT_WORDS, Units};
use crate::word::Word;
use crate::{About, Cipher, KeyLength, Kind, Published, Scope, TableAbout};

/// Registry entry of RC4.
pub static CIPHER: Cipher = Cipher {
    about: About {
        name: "rc4",
        kind: Kind::Stream,
        block_bits: None,
        rounds: None,
        key_bytes: 16,
        tables: &[TableAbout {
            name: "permutation",
            region: Region::CipherTable,
            scope: Scope::Flow,
            at: 0,
            bytes: 256,
            aligned_bytes: 1024,
            published: Published::Counted,
        }],
    },
    run: crate::measure::stream::<Rc4>,
};

/// An expanded key, and the position in its stream.
#[derive(Clone)]
pub struct Rc4 {
    permutation: [u8; 256],
    /// The two indices, of which only the low bytes count, so that nothing needs to be masked off.
    i: u32,
    j: u32,
}

impl StreamCipher for Rc4 {
    fn new(key: &[u8]) -> Result<Rc4, KeyLength> {
        if key.is_empty() || key.len() > 256 {
            return Err(KeyLength(key.len()));
        }
        let mut permutation = std::array::from_fn(|index| index as u8);
        let mut j = 0u8;
        for i in 0..256 {
            j = j.wrapping_add(permutation[i]).wrapping_add(key[i % key.len()]);
            permutation.swap(i, usize::from(j));
        }
        Ok(Rc4 { permutation, i: 0, j: 0 })
    }

    fn apply_units<M: Machine>(&mut self, machine: M, text: &mut [u8]) {
        let mut units = Units::new(machine);
        let (mut i, mut j) = (machine.constant(self.i), machine.constant(self.j));
        for unit in machine.blocks(0..text.len() / UNIT) {
            let plain = units.read(text, unit * UNIT);
            let mut stream = plain;
            for number in machine.rounds(0..UNIT_WORDS) {
                let mut word = None;
                for _ in machine.written_out(0..4) {
                    i = i.plus_constant(1);
                    let low = self.look_up(machine, i);
                    j = j.plus(low);
                    let high = self.look_up(machine, j);
                    self.write(machine, i, high);
                    self.write(machine, j, low);
                    let byte = self.look_up(machine, low.plus(high));
                    word = Some(match word {
                        None => byte,
                        Some(word) => byte.or_shifted(word, 8),
                    });
                }
                if let Some(word) = word {
                    stream[number] = machine.indexed(word);
                }
            }
            units.write(text, unit * UNIT, plain, stream);
        }
        (self.i, self.j) = (i.value(), j.value());
    }
}

impl Rc4 {
    fn entries(&self) -> Entries<'_> {
        let layout = Layout::Planned;
        Entries { region: Region::CipherTable, bits: 8, entries: &self.permutation, layout }
    }

    #[track_caller]
    fn look_up<M: Machine>(&self, machine: M, index: M::Word) -> M::Word {
        machine.look_up_entry(self.entries(), 0, Pick { word: index, shift: 0, bits: 8 })
    }

    #[track_caller]
    fn write<M: Machine>(&mut self, machine: M, index: M::Word, value: M::Word) {
        let written = machine.write_entry(self.entries(), Pick { word: index, shift: 0, bits: 8 }, value);
        self.permutation[written.index] = written.value;
    }
}
