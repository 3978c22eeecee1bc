//! HMAC (RFC 2104) by SHA-1 and SHA-2, truncated as in ESP (RFC 2404, RFC 4868), of several messages abreast.

use std::marker::PhantomData;

use zeroize::Zeroize;

use crate::LONGEST;
use crate::functions::{Functions, Table};
use crate::queues::{Queues, Unfinished, finished};

/// Bytes of the longest tag: half of SHA-512's.
pub const LONGEST_TAG: usize = 32;

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)] // As glue.c knows them.
pub enum Hash {
    /// SHA-1; 12 bytes of tag.
    Sha1 = 1,
    /// SHA-256; 16 bytes of tag.
    Sha256 = 256,
    /// SHA-384; 24 bytes of tag.
    Sha384 = 384,
    /// SHA-512; 32 bytes of tag.
    Sha512 = 512,
}

impl Hash {
    /// Bytes of a block.
    fn block(self) -> usize {
        match self {
            Hash::Sha1 | Hash::Sha256 => 64,
            Hash::Sha384 | Hash::Sha512 => 128,
        }
    }
}

/// A message and the place of its tag, as glue.c takes them: `struct wirerate_message`.
#[repr(C)]
pub struct Message<'a> {
    bytes: *const u8,
    len: u64,
    tag: *mut u8,
    borrowed: PhantomData<(&'a [u8], &'a mut [u8])>,
}

const _: () = assert!(size_of::<Message<'_>>() == 24, "as in glue.c");

impl<'a> Message<'a> {
    /// A message, and where the first bytes become its tag. `None` for a message of no bytes, or of more than [`LONGEST`].
    #[inline]
    pub fn new(bytes: &'a [u8], tag: &'a mut [u8; LONGEST_TAG]) -> Option<Message<'a>> {
        let len = bytes.len();
        let message = || Message {
            bytes: bytes.as_ptr(),
            len: len as u64,
            tag: tag.as_mut_ptr(),
            borrowed: PhantomData,
        };
        (1..=LONGEST).contains(&len).then(message)
    }
}

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    fn wirerate_hmac_hash_block(functions: *const Functions, hash: u32, block: *const u8, state: *mut u8);
    fn wirerate_hmac_sign(
        functions: *mut Functions,
        hash: u32,
        inner: *const u8,
        outer: *const u8,
        messages: *const Message<'_>,
        count: usize,
    ) -> usize;
}

/// States of the hash after the first block, inside and outside, aligned as the library has them.
#[repr(align(64))]
struct States {
    inner: [u8; 64],
    outer: [u8; 64],
}

/// A key of HMAC, expanded; cleared when dropped.
pub struct HmacKey {
    hash: Hash,
    states: Box<States>,
}

impl HmacKey {
    /// Expands a key no longer than a block of the hash. `None` for a longer one, and where the library
    /// [cannot be used](crate::is_usable).
    pub fn new(hash: Hash, key: &[u8]) -> Option<HmacKey> {
        Queues::prepare()?;
        let table = Table::shared().filter(|_| key.len() <= hash.block())?;
        let mut states = Box::new(States { inner: [0; 64], outer: [0; 64] });
        let mut block = [0; 128];
        for (pad, state) in [(0x36, &mut states.inner), (0x5c, &mut states.outer)] {
            block.fill(pad);
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            // SAFETY: there is room for the longest block and the longest state.
            unsafe {
                wirerate_hmac_hash_block(table.as_ptr(), hash as u32, block.as_ptr(), state.as_mut_ptr());
            }
        }
        block.zeroize();
        Some(HmacKey { hash, states })
    }

    /// Writes the tags of messages: the first bytes of each place, as many as the [hash](enum@Hash) gives.
    #[inline]
    pub fn sign(&self, queues: &mut Queues, messages: &mut [Message<'_>]) -> Result<(), Unfinished> {
        let States { inner, outer } = &*self.states;
        let (inner, outer, hash) = (inner.as_ptr(), outer.as_ptr(), self.hash as u32);
        // SAFETY: the queues are this thread's alone, and empty again afterwards. Each message is of the length that it says, which
        // `Message::new` has checked, and borrowed for as long as it lives; its tag, long enough for any, by nobody else. The states are of
        // this hash.
        let done = unsafe {
            wirerate_hmac_sign(queues.table(), hash, inner, outer, messages.as_ptr(), messages.len())
        };
        finished(done, messages)
    }
}

impl Drop for HmacKey {
    fn drop(&mut self) {
        self.states.inner.zeroize();
        self.states.outer.zeroize();
    }
}
