//! AES-GCM of Intel's multi-buffer library for IPsec (`libipsec-mb`), behind a safe interface. The only crate that links it.
//!
//! Without the feature `linked` the crate is empty, and neither library nor header is needed.

#[cfg(feature = "linked")]
mod gcm;

#[cfg(feature = "linked")]
pub use gcm::{GcmKey, NONCE, Packet, TAG, is_usable, is_wide};
