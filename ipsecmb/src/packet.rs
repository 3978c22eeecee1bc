//! Places of a packet of a combined cipher.

use std::marker::PhantomData;

/// Bytes of a nonce.
pub const NONCE: usize = 12;

/// Bytes of a tag.
pub const TAG: usize = 16;

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
