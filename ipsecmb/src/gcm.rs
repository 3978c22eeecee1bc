//! The library's AES-GCM. Its functions keep nothing between calls but what lies in the expanded key, so that threads share one table of them.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;
use std::sync::OnceLock;

use zeroize::Zeroize;

/// Bytes of a nonce.
pub const NONCE: usize = 12;

/// Bytes of a tag.
pub const TAG: usize = 16;

/// Alignment of an expanded key (`struct gcm_key_data`; glue.c asserts it).
const ALIGN: usize = 64;

/// Places of one packet, as glue.c takes them: `struct wirerate_packet`.
#[repr(C)]
pub struct Packet<'a> {
    text: *mut u8,
    len: u64,
    nonce: *const u8,
    aad: *const u8,
    aad_len: u64,
    tag: *mut u8,
    borrowed: PhantomData<(&'a mut [u8], &'a [u8])>,
}

const _: () = assert!(size_of::<Packet<'_>>() == 48, "as in glue.c");

impl<'a> Packet<'a> {
    /// A packet: its text, encrypted or to be so, its nonce, what is authenticated beside the text, and where its tag is written to.
    #[inline]
    pub fn new(
        text: &'a mut [u8],
        nonce: &'a [u8; NONCE],
        aad: &'a [u8],
        tag: &'a mut [u8; TAG],
    ) -> Packet<'a> {
        Packet {
            len: text.len() as u64,
            text: text.as_mut_ptr(),
            nonce: nonce.as_ptr(),
            aad: aad.as_ptr(),
            aad_len: aad.len() as u64,
            tag: tag.as_mut_ptr(),
            borrowed: PhantomData,
        }
    }
}

/// The library's table of functions; opaque.
#[repr(C)]
struct Functions {
    opaque: [u8; 0],
}

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    fn wirerate_imb_key_bytes() -> usize;
    fn wirerate_imb_new() -> *mut Functions;
    fn wirerate_imb_is_wide(functions: *const Functions) -> i32;
    fn wirerate_imb_expand(functions: *const Functions, key: *const u8, key_len: usize, expanded: *mut u8);
    fn wirerate_imb_seal(
        functions: *const Functions,
        expanded: *const u8,
        key_len: usize,
        packets: *const Packet<'_>,
        count: usize,
    );
    fn wirerate_imb_open(
        functions: *const Functions,
        expanded: *const u8,
        key_len: usize,
        packets: *const Packet<'_>,
        count: usize,
    );
}

/// The table, once made and never changed or freed.
#[derive(Clone, Copy)]
struct Table(NonNull<Functions>);

// SAFETY: nobody writes to the table once it has been made; glue.c takes it as const.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The table for this processor; `None` where the processor lacks what the library needs.
fn table() -> Option<Table> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    // SAFETY: no arguments; the result is null or a table that is never freed.
    *TABLE.get_or_init(|| NonNull::new(unsafe { wirerate_imb_new() }).map(Table))
}

/// True where the processor has what the library needs.
pub fn is_usable() -> bool {
    table().is_some()
}

/// True where the library works on 512 bits at a time (AVX-512 with VAES).
pub fn is_wide() -> bool {
    // SAFETY: the table has been made, and is read only.
    table().is_some_and(|table| unsafe { wirerate_imb_is_wide(table.0.as_ptr()) } != 0)
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
    /// Expands a key of 16 or 32 bytes. `None` for one of another length, and where the library [cannot be used](is_usable).
    pub fn new(key: &[u8]) -> Option<GcmKey> {
        let table = table().filter(|_| matches!(key.len(), 16 | 32))?;
        // SAFETY: no arguments, no effect.
        let layout = Layout::from_size_align(unsafe { wirerate_imb_key_bytes() }, ALIGN).ok()?;
        // SAFETY: the structure has members, so the size is not zero.
        let expanded = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let own = GcmKey { table, expanded, layout, len: key.len() };
        // SAFETY: `key` has the length that is given, and `expanded` room for the structure, with its alignment.
        unsafe { wirerate_imb_expand(table.0.as_ptr(), key.as_ptr(), key.len(), expanded.as_ptr()) };
        Some(own)
    }

    /// Encrypts texts, and writes their tags.
    #[inline]
    pub fn seal(&self, packets: &mut [Packet<'_>]) {
        let (table, expanded) = (self.table.0.as_ptr(), self.expanded.as_ptr());
        // SAFETY: each packet's places are of the lengths that it says, and borrowed for as long as it lives: text and tag by nobody else. The
        // key has been expanded for this length.
        unsafe { wirerate_imb_seal(table, expanded, self.len, packets.as_ptr(), packets.len()) }
    }

    /// Decrypts texts, and writes the tags that genuine packets have. Whoever calls compares, and clears the texts of the others.
    #[inline]
    pub fn open(&self, packets: &mut [Packet<'_>]) {
        let (table, expanded) = (self.table.0.as_ptr(), self.expanded.as_ptr());
        // SAFETY: as in `seal`.
        unsafe { wirerate_imb_open(table, expanded, self.len, packets.as_ptr(), packets.len()) }
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
