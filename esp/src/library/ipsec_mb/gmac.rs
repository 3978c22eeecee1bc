//! AES-GMAC (RFC 4543), by the library's AES-GCM.

use ipsecmb::{GcmKey, TAG};
use zeroize::Zeroize;

use super::{NAME, SALT};
use crate::library::gmac;
use crate::packet::nonce;

/// A key with its salt.
pub(super) struct Key {
    pub(super) key: GcmKey,
    pub(super) salt: [u8; SALT],
}

impl gmac::Key for Key {
    const LIBRARY: &'static str = NAME;

    fn tag(&self, iv: &[u8], covered: &[u8]) -> Option<[u8; TAG]> {
        let (nonce, mut tag) = (nonce(&self.salt, iv), [0; TAG]);
        self.key.seal(&mut [ipsecmb::Packet::new(&mut [], &nonce, covered, &mut tag)]);
        Some(tag)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}
