//! Block ciphers, and cipher block chaining, the mode in which Yin, Tan et al. run all of them.

use crate::KeyLength;
use crate::machine::{Machine, word_of};

/// A cipher on blocks of `N` words.
pub trait BlockCipher<const N: usize>: Sized {
    /// Expands a key, once per key and without account.
    ///
    /// # Errors
    ///
    /// [`KeyLength`] if the cipher has no keys of that length.
    fn new(key: &[u8]) -> Result<Self, KeyLength>;

    /// Encrypts a block, read with the most significant byte of each word first.
    fn encrypt_block<M: Machine>(&self, machine: M, block: [M::Word; N]) -> [M::Word; N];

    /// Decrypts a block.
    fn decrypt_block<M: Machine>(&self, machine: M, block: [M::Word; N]) -> [M::Word; N];
}

/// Encrypts `text` in place, chained from `iv` (NIST SP 800-38A, 6.2). Bytes after the last whole block stay unchanged:
/// padding is the caller's affair.
pub fn encrypt<const N: usize, C: BlockCipher<N>, M: Machine>(
    cipher: &C,
    machine: M,
    iv: [u32; N],
    text: &mut [u8],
) {
    let size = 4 * N;
    let blocks = text.len() / size;
    let mut chain = machine.constants(iv);
    let mut ahead = None;
    for block in machine.blocks(0..blocks) {
        let at = block * size;
        let mut plain = match ahead.take() {
            Some(plain) => plain,
            None => machine.read_text::<N>(text, at),
        };
        if machine.reads_ahead() && block + 1 < blocks {
            ahead = Some(machine.read_text::<N>(text, at + size));
        }
        for word in machine.written_out(0..N) {
            plain[word] = plain[word] ^ chain[word];
        }
        chain = cipher.encrypt_block(machine, plain);
        machine.write_text(text, at, chain);
    }
}

/// Decrypts `text` in place, chained from `iv`.
pub fn decrypt<const N: usize, C: BlockCipher<N>, M: Machine>(
    cipher: &C,
    machine: M,
    iv: [u32; N],
    text: &mut [u8],
) {
    let size = 4 * N;
    let mut chain = machine.constants(iv);
    for block in machine.blocks(0..text.len() / size) {
        let sealed = machine.read_text::<N>(text, block * size);
        let mut plain = cipher.decrypt_block(machine, sealed);
        for word in machine.written_out(0..N) {
            plain[word] = plain[word] ^ chain[word];
        }
        machine.write_text(text, block * size, plain);
        chain = sealed;
    }
}

/// The bytes of a block as words, most significant byte first.
///
/// # Panics
///
/// If there are fewer than `4 * N` bytes.
pub fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    std::array::from_fn(|word| word_of(bytes, 4 * word))
}

/// The key of a cipher that takes `N` words, most significant byte first.
pub(crate) fn key_words<const N: usize>(key: &[u8]) -> Result<[u32; N], KeyLength> {
    if key.len() == 4 * N { Ok(words(key)) } else { Err(KeyLength(key.len())) }
}
