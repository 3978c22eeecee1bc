//! Ciphers and HMACs of Intel's multi-buffer library for IPsec (`libipsec-mb`), behind a safe interface. The only crate that links it.
//!
//! `GcmKey`'s functions have no state, and any thread may call them. All others work on several packets abreast, in queues of the library's
//! that one thread at a time claims (`Queues`); each call finishes what it was given, so that nothing stays in a queue between calls.
//! Lengths are checked here, as the library does not: its functions are those that do not check.
//!
//! Without the feature `linked` the crate is empty, and neither library nor header is needed.
#![cfg_attr(feature = "linked", allow(unsafe_code))]

#[cfg(feature = "linked")]
mod cbc;
#[cfg(feature = "linked")]
mod chacha;
#[cfg(feature = "linked")]
mod functions;
#[cfg(feature = "linked")]
mod gcm;
#[cfg(feature = "linked")]
mod hmac;
#[cfg(feature = "linked")]
mod packet;
#[cfg(feature = "linked")]
mod queues;

#[cfg(feature = "linked")]
pub use self::{
    cbc::{BLOCK, CbcKey, Text},
    chacha::ChaChaKey,
    functions::{is_usable, is_wide, version},
    gcm::GcmKey,
    hmac::{Hash, HmacKey, LONGEST_TAG, Message},
    packet::{NONCE, Packet, TAG},
    queues::{Queues, Unfinished},
};

/// Bytes of the longest text or message that the library's queues take: they count in 16 bits.
#[cfg(feature = "linked")]
pub const LONGEST: usize = 65_534;
