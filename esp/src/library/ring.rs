//! The combined ciphers of `ring`: AES-GCM (RFC 4106), ChaCha20-Poly1305 (RFC 7634), and AES-GMAC (RFC 4543), which is AES-GCM without
//! text.

use std::hint::black_box;

use ring::aead::{self, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use wire::esp::{Cipher, Direction, Suite};
use zeroize::Zeroize;

use super::gmac::{self, Gmac};
use crate::packet::{Aad, Packet, nonce};
use crate::transform::{Forged, Keys, Transform};

/// Name of the library.
const NAME: &str = "ring";

/// Version of the library, which does not tell it.
const VERSION: &str = "0.17";

/// Bytes of the salt.
const SALT: usize = 4;

pub(super) fn name() -> String {
    format!("{NAME} {VERSION}")
}

pub(super) fn has(suite: &Suite) -> bool {
    algorithm(suite).is_some()
}

fn algorithm(suite: &Suite) -> Option<&'static Algorithm> {
    match (suite.cipher, suite.key) {
        (Cipher::Gcm | Cipher::Gmac, 16) => Some(&aead::AES_128_GCM),
        (Cipher::Gcm | Cipher::Gmac, 32) => Some(&aead::AES_256_GCM),
        (Cipher::ChaCha20Poly1305, 32) => Some(&aead::CHACHA20_POLY1305),
        _ => None,
    }
}

pub(super) fn expand(suite: &'static Suite, keys: &Keys, _: Direction) -> Box<dyn Transform> {
    let algorithm = algorithm(suite).expect("asked for a suite that `has` has");
    let key = Key::new(algorithm, keys.cipher.expose());
    match suite.cipher {
        Cipher::Gmac => Box::new(Gmac { suite, key }),
        _ => Box::new(Aead { suite, key }),
    }
}

struct Aead {
    suite: &'static Suite,
    key: Key,
}

impl Transform for Aead {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn library(&self, _: usize) -> &'static str {
        NAME
    }

    fn seal(&self, packet: Packet<'_>) {
        let Packet { number, esn, .. } = packet;
        let parts = match packet.parts(self.suite) {
            Ok(parts) => parts,
            Err(bytes) => return bytes.fill(0),
        };
        parts.iv.copy_from_slice(&number.to_be_bytes());
        let aad = aead::Aad::from(Aad::of(parts.header, number, esn));
        match self.key.expanded.seal_in_place_separate_tag(self.key.nonce(parts.iv), aad, parts.text) {
            Ok(tag) => parts.icv.copy_from_slice(tag.as_ref()),
            // For texts of gigabytes only.
            Err(_) => parts.text.fill(0),
        }
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let Packet { number, esn, .. } = packet;
        let parts = packet.parts(self.suite).map_err(|_| Forged)?;
        let aad = aead::Aad::from(Aad::of(parts.header, number, esn));
        let tag = Tag::try_from(&*parts.icv).map_err(|_| Forged)?;
        let nonce = self.key.nonce(parts.iv);
        let opened = self.key.expanded.open_in_place_separate_tag(nonce, aad, tag, parts.text, 0..);
        opened.map(|_| ()).map_err(|_| Forged)
    }
}

impl gmac::Key for Key {
    const LIBRARY: &'static str = NAME;

    fn tag(&self, iv: &[u8], covered: &[u8]) -> Option<[u8; 16]> {
        let aad = aead::Aad::from(covered);
        let tag = self.expanded.seal_in_place_separate_tag(self.nonce(iv), aad, &mut []).ok()?;
        tag.as_ref().try_into().ok()
    }
}

/// An expanded key with its salt, cleared when dropped. `ring` does not clear its keys; so this one lies on the heap, is never
/// moved, and is overwritten in place. Copies that its making may leave on the stack are not cleared.
struct Key {
    expanded: Box<LessSafeKey>,
    salt: [u8; SALT],
}

impl Key {
    /// Expands key and salt, of the lengths that [`expand`] of the crate has checked.
    fn new(algorithm: &'static Algorithm, key_and_salt: &[u8]) -> Key {
        let (key, salt) = key_and_salt.split_last_chunk().expect("salt behind the key");
        let key = UnboundKey::new(algorithm, key).expect("a key of the algorithm's length");
        Key { expanded: Box::new(LessSafeKey::new(key)), salt: *salt }
    }

    fn nonce(&self, iv: &[u8]) -> Nonce {
        Nonce::assume_unique_for_key(nonce(&self.salt, iv))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.salt.zeroize();
        let algorithm = self.expanded.algorithm();
        if let Ok(zeros) = UnboundKey::new(algorithm, &[0; 32][..algorithm.key_len()]) {
            *self.expanded = LessSafeKey::new(zeros);
            // Somebody might look: the store has to happen.
            black_box(&*self.expanded);
        }
    }
}
