//! ChaCha20-Poly1305, by the library's jobs: quicker than its functions for one packet, which are made for texts in pieces.
//!
//! Only where the library works on 512 bits at a time. Its code for SSE reads behind the end of some texts (1.3.0: those of 145 bytes
//! and others), and with 256 bits it is slower than other libraries.

use zeroize::Zeroize;

use crate::functions::{Functions, is_wide};
use crate::packet::Packet;
use crate::queues::{Queues, Unfinished, Way, finished};

/// Bytes of a key.
const KEY: usize = 32;

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    fn wirerate_chacha(
        functions: *mut Functions,
        key: *const u8,
        packets: *const Packet<'_>,
        count: usize,
        decrypts: u32,
    ) -> usize;
}

/// A key of ChaCha20-Poly1305; cleared when dropped.
pub struct ChaChaKey(Box<[u8; KEY]>);

impl ChaChaKey {
    /// Takes a key of 32 bytes. `None` for one of another length, and where the library is not [wide](crate::is_wide).
    pub fn new(key: &[u8]) -> Option<ChaChaKey> {
        Queues::prepare().filter(|()| is_wide())?;
        let key: &[u8; KEY] = key.try_into().ok()?;
        let mut own = ChaChaKey(Box::new([0; KEY]));
        *own.0 = *key;
        Some(own)
    }

    /// Encrypts texts, and writes their tags.
    #[inline]
    pub fn seal(&self, queues: &mut Queues, packets: &mut [Packet<'_>]) -> Result<(), Unfinished> {
        self.run(queues, packets, Way::Encrypt)
    }

    /// Decrypts texts, and writes the tags that genuine packets have. Whoever calls compares, and clears the texts of the others.
    #[inline]
    pub fn open(&self, queues: &mut Queues, packets: &mut [Packet<'_>]) -> Result<(), Unfinished> {
        self.run(queues, packets, Way::Decrypt)
    }

    #[inline]
    fn run(&self, queues: &mut Queues, packets: &mut [Packet<'_>], way: Way) -> Result<(), Unfinished> {
        let (count, key) = (packets.len(), self.0.as_ptr());
        // SAFETY: the queues are this thread's alone, and empty again afterwards. Each packet's places are of the lengths that it says, and
        // borrowed for as long as it lives: text and tag by nobody else. The key has 32 bytes.
        let done = unsafe { wirerate_chacha(queues.table(), key, packets.as_ptr(), count, way as u32) };
        finished(done, packets)
    }
}

impl Drop for ChaChaKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
