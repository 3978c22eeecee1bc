//! AES-GCM. Its functions keep nothing between calls but what lies in the expanded key, so that threads share one table of them.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::slice;

use zeroize::Zeroize;

use crate::functions::{Functions, Table};
use crate::packet::Packet;

/// Alignment of an expanded key (`struct gcm_key_data`; glue.c asserts it).
const ALIGN: usize = 64;

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    safe fn wirerate_gcm_key_bytes() -> usize;
    fn wirerate_gcm_expand(functions: *const Functions, key: *const u8, key_len: usize, expanded: *mut u8);
    fn wirerate_gcm_seal(
        functions: *const Functions,
        expanded: *const u8,
        key_len: usize,
        packets: *const Packet<'_>,
        count: usize,
    );
    fn wirerate_gcm_open(
        functions: *const Functions,
        expanded: *const u8,
        key_len: usize,
        packets: *const Packet<'_>,
        count: usize,
    );
}

/// A key of AES-GCM, expanded; cleared when dropped.
pub struct GcmKey {
    table: Table,
    expanded: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: the expanded key is owned, and written to by `new` and `drop` alone.
unsafe impl Send for GcmKey {}
// SAFETY: as above; `seal` and `open` read it.
unsafe impl Sync for GcmKey {}

impl GcmKey {
    /// Expands a key of 16 or 32 bytes. `None` for one of another length, and where the library [cannot be used](crate::is_usable).
    pub fn new(key: &[u8]) -> Option<GcmKey> {
        let table = Table::shared().filter(|_| matches!(key.len(), 16 | 32))?;
        let layout = Layout::from_size_align(wirerate_gcm_key_bytes(), ALIGN).ok()?;
        // SAFETY: the structure has members, so the size is not zero.
        let expanded = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let own = GcmKey { table, expanded, layout, len: key.len() };
        // SAFETY: `key` has the length that is given, and `expanded` room for the structure, with its alignment.
        unsafe { wirerate_gcm_expand(table.as_ptr(), key.as_ptr(), key.len(), expanded.as_ptr()) };
        Some(own)
    }

    /// Encrypts texts, and writes their tags.
    #[inline]
    pub fn seal(&self, packets: &mut [Packet<'_>]) {
        let (table, expanded) = (self.table.as_ptr(), self.expanded.as_ptr());
        // SAFETY: each packet's places are of the lengths that it says, and borrowed for as long as it lives: text and tag by nobody else. The
        // key has been expanded for this length.
        unsafe { wirerate_gcm_seal(table, expanded, self.len, packets.as_ptr(), packets.len()) }
    }

    /// Decrypts texts, and writes the tags that genuine packets have. Whoever calls compares, and clears the texts of the others.
    #[inline]
    pub fn open(&self, packets: &mut [Packet<'_>]) {
        let (table, expanded) = (self.table.as_ptr(), self.expanded.as_ptr());
        // SAFETY: as in `seal`.
        unsafe { wirerate_gcm_open(table, expanded, self.len, packets.as_ptr(), packets.len()) }
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        // SAFETY: this memory is owned, was initialised when it was allocated, and is not used afterwards.
        unsafe {
            slice::from_raw_parts_mut(self.expanded.as_ptr(), self.layout.size()).zeroize();
            alloc::dealloc(self.expanded.as_ptr(), self.layout);
        }
    }
}
