//! Stream ciphers: a key stream, and text combined with it.

use crate::KeyLength;
use crate::machine::Machine;

/// Bytes of text that are read, combined with key stream and written at a time: a burst of RDRAM. Stream ciphers
/// have no block of their own.
pub const UNIT: usize = 64;
/// Words of a unit.
pub const UNIT_WORDS: usize = UNIT / 4;

/// A stream cipher.
pub trait StreamCipher: Sized {
    /// Expands a key and sets the stream to its beginning, once per key and without account.
    ///
    /// # Errors
    ///
    /// [`KeyLength`] if the cipher has no keys of that length.
    fn new(key: &[u8]) -> Result<Self, KeyLength>;

    /// Combines `text` with the stream from its current position, in place, in steps of [`UNIT`]. A shorter last part
    /// uses up a whole unit of the stream.
    fn apply<M: Machine>(&mut self, machine: M, text: &mut [u8]) {
        let whole = text.len() / UNIT;
        let (units, rest) = text.split_at_mut(whole * UNIT);
        self.apply_units(machine, units);
        if !rest.is_empty() {
            let mut unit = [0; UNIT];
            unit[..rest.len()].copy_from_slice(rest);
            self.apply_units(machine, &mut unit);
            rest.copy_from_slice(&unit[..rest.len()]);
        }
    }

    /// As [`StreamCipher::apply`], for whole units.
    fn apply_units<M: Machine>(&mut self, machine: M, text: &mut [u8]);
}

/// Reads the units of a text, one ahead if that saves time.
pub(crate) struct Units<M: Machine> {
    machine: M,
    ahead: Option<[M::Word; UNIT_WORDS]>,
}

impl<M: Machine> Units<M> {
    pub(crate) fn new(machine: M) -> Units<M> {
        Units { machine, ahead: None }
    }

    /// The words of the unit that begins at byte `at`.
    pub(crate) fn read(&mut self, text: &[u8], at: usize) -> [M::Word; UNIT_WORDS] {
        let unit = match self.ahead.take() {
            Some(unit) => unit,
            None => self.machine.read_text(text, at),
        };
        if self.machine.reads_ahead() && at + 2 * UNIT <= text.len() {
            self.ahead = Some(self.machine.read_text(text, at + UNIT));
        }
        unit
    }

    /// Writes the combination of text and stream.
    pub(crate) fn write(
        &self,
        text: &mut [u8],
        at: usize,
        mut unit: [M::Word; UNIT_WORDS],
        stream: [M::Word; UNIT_WORDS],
    ) {
        for word in self.machine.written_out(0..UNIT_WORDS) {
            unit[word] = unit[word] ^ stream[word];
        }
        self.machine.write_text(text, at, unit);
    }
}
