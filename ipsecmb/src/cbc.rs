//! AES in cipher block chaining: texts are encrypted abreast, as a block has to wait for the one before it in its own text alone.

use std::marker::PhantomData;

use zeroize::Zeroize;

use crate::LONGEST;
use crate::functions::{Functions, Table};
use crate::queues::{Queues, Unfinished, Way, finished};

/// Bytes of a block.
pub const BLOCK: usize = 16;

/// Bytes of round keys: those of AES-256 in one direction.
const ROUNDS: usize = 15 * BLOCK;

/// A block and the text behind it, as glue.c takes them: `struct wirerate_text`.
#[repr(C)]
pub struct Text<'a> {
    block: *mut u8,
    len: u64,
    borrowed: PhantomData<&'a mut [u8]>,
}

const _: () = assert!(size_of::<Text<'_>>() == 16, "as in glue.c");

impl<'a> Text<'a> {
    /// A block and the text behind it. `None` unless both together are whole blocks, two or more, of at most [`LONGEST`] bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Option<Text<'a>> {
        let len = bytes.len();
        let fits = len % BLOCK == 0 && (2 * BLOCK..=LONGEST).contains(&len);
        fits.then_some(Text { block: bytes.as_mut_ptr(), len: len as u64, borrowed: PhantomData })
    }
}

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    fn wirerate_cbc_expand(
        functions: *const Functions,
        key: *const u8,
        key_len: usize,
        encrypt: *mut u8,
        decrypt: *mut u8,
    );
    fn wirerate_cbc(
        functions: *mut Functions,
        encrypt: *const u8,
        decrypt: *const u8,
        key_len: usize,
        texts: *const Text<'_>,
        count: usize,
        decrypts: u32,
    ) -> usize;
}

/// Round keys of both directions, aligned as the library has them.
#[repr(align(64))]
struct Rounds {
    encrypt: [u8; ROUNDS],
    decrypt: [u8; ROUNDS],
}

/// A key of AES for cipher block chaining, expanded; cleared when dropped.
pub struct CbcKey {
    rounds: Box<Rounds>,
    len: usize,
}

impl CbcKey {
    /// Expands a key of 16, 24 or 32 bytes. `None` for one of another length, and where the library [cannot be used](crate::is_usable).
    pub fn new(key: &[u8]) -> Option<CbcKey> {
        Queues::prepare()?;
        let table = Table::shared().filter(|_| matches!(key.len(), 16 | 24 | 32))?;
        let mut rounds = Box::new(Rounds { encrypt: [0; ROUNDS], decrypt: [0; ROUNDS] });
        let (encrypt, decrypt) = (rounds.encrypt.as_mut_ptr(), rounds.decrypt.as_mut_ptr());
        // SAFETY: `key` has the length that is given, and there is room for the round keys of the longest one.
        unsafe { wirerate_cbc_expand(table.as_ptr(), key.as_ptr(), key.len(), encrypt, decrypt) };
        Some(CbcKey { rounds, len: key.len() })
    }

    /// Encrypts each block, which makes it the IV, and the text chained to it.
    #[inline]
    pub fn encrypt(&self, queues: &mut Queues, texts: &mut [Text<'_>]) -> Result<(), Unfinished> {
        self.run(queues, texts, Way::Encrypt)
    }

    /// Decrypts each text, chained to the block before it, which is the IV and stays.
    #[inline]
    pub fn decrypt(&self, queues: &mut Queues, texts: &mut [Text<'_>]) -> Result<(), Unfinished> {
        self.run(queues, texts, Way::Decrypt)
    }

    #[inline]
    fn run(&self, queues: &mut Queues, texts: &mut [Text<'_>], way: Way) -> Result<(), Unfinished> {
        let Rounds { encrypt, decrypt } = &*self.rounds;
        let (encrypt, decrypt, count) = (encrypt.as_ptr(), decrypt.as_ptr(), texts.len());
        // SAFETY: the queues are this thread's alone, and empty again afterwards. Each text is of the length that it says, which `Text::new` has
        // checked, and borrowed for as long as it lives, by nobody else. The round keys are of the key's length.
        let done = unsafe {
            wirerate_cbc(queues.table(), encrypt, decrypt, self.len, texts.as_ptr(), count, way as u32)
        };
        finished(done, texts)
    }
}

impl Drop for CbcKey {
    fn drop(&mut self) {
        self.rounds.encrypt.zeroize();
        self.rounds.decrypt.zeroize();
    }
}
