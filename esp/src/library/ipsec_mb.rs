//! Suites of Intel's multi-buffer library for IPsec, with the feature `ipsec-mb`: the combined ciphers, AES-CBC and text in clear with the
//! HMACs of SHA-1 and SHA-2. The library has DES, 3DES and MD5 in another form alone (its queues of jobs); they are RustCrypto's.

use ipsecmb::{ChaChaKey, GcmKey, Hash};
use wire::esp::{Cipher, Direction, Integrity, Suite};

use super::gmac::Gmac;
use super::{composed as rust_crypto, ring};
use crate::transform::{Keys, Transform};

mod combined;
mod composed;
mod gmac;

use combined::{ChaCha, Combined};
use composed::Composed;

/// Name of the library.
pub(super) const NAME: &str = "ipsec-mb";

/// Bytes of the salt.
const SALT: usize = 4;

/// Packets that the library is given at once: as many as it has lanes.
const TOGETHER: usize = 16;

pub(super) fn name() -> Option<String> {
    let width = if ipsecmb::is_wide() { " (AVX-512)" } else { "" };
    ipsecmb::is_usable().then(|| format!("{NAME} {}{width}", ipsecmb::version()))
}

pub(super) fn has(suite: &Suite) -> bool {
    let has = match suite.cipher {
        Cipher::Gcm | Cipher::Gmac => true,
        Cipher::ChaCha20Poly1305 => ipsecmb::is_wide(),
        Cipher::AesCbc | Cipher::Null => suite.integrity == Integrity::None || hash(suite).is_some(),
        Cipher::DesCbc | Cipher::TripleDesCbc => false,
    };
    has && ipsecmb::is_usable()
}

/// Bytes of the longest text that it is taken for: with 128 bits at a time ring passes it, which knows 256.
pub(super) fn longest(suite: &Suite) -> usize {
    if suite.cipher == Cipher::Gcm && !ipsecmb::is_wide() { 768 } else { usize::MAX }
}

/// Packets together from which on it is taken. The library works on all its lanes however few are filled, where RustCrypto hashes one packet
/// after another by the processor's own instructions for SHA-1 and SHA-256; for SHA-384 and SHA-512 there are none.
pub(super) fn least(suite: &Suite) -> usize {
    match suite.integrity {
        Integrity::HmacSha1_96 => 6,
        Integrity::HmacSha256_128 => 10,
        Integrity::HmacSha384_192 | Integrity::HmacSha512_256 => 2,
        Integrity::None => 8,
        Integrity::Combined | Integrity::HmacMd5_96 => 1,
    }
}

pub(super) fn expand(suite: &'static Suite, keys: &Keys, direction: Direction) -> Box<dyn Transform> {
    match suite.cipher {
        Cipher::AesCbc | Cipher::DesCbc | Cipher::TripleDesCbc | Cipher::Null => {
            Box::new(Composed::new(suite, keys, rust_crypto::expand(suite, keys, direction)))
        }
        Cipher::Gcm => {
            let (key, salt) = split(keys);
            Box::new(Combined::new(suite, GcmKey::new(key).expect(EXPANDED), salt))
        }
        Cipher::Gmac => {
            let (key, salt) = split(keys);
            let key = gmac::Key { key: GcmKey::new(key).expect(EXPANDED), salt: *salt };
            Box::new(Gmac { suite, key })
        }
        Cipher::ChaCha20Poly1305 => {
            let (key, salt) = split(keys);
            let key = ChaChaKey::new(key).expect(EXPANDED);
            let rest = ring::expand(suite, keys, direction);
            Box::new(Combined::new(suite, ChaCha { key, rest }, salt))
        }
    }
}

const EXPANDED: &str = "a key of the suite's length, and a library that `has` has";

fn split(keys: &Keys) -> (&[u8], &[u8; SALT]) {
    keys.cipher.expose().split_last_chunk().expect("salt behind the key")
}

/// The hash of a suite's HMAC, where the library has it.
fn hash(suite: &Suite) -> Option<Hash> {
    match suite.integrity {
        Integrity::HmacSha1_96 => Some(Hash::Sha1),
        Integrity::HmacSha256_128 => Some(Hash::Sha256),
        Integrity::HmacSha384_192 => Some(Hash::Sha384),
        Integrity::HmacSha512_256 => Some(Hash::Sha512),
        Integrity::HmacMd5_96 | Integrity::None | Integrity::Combined => None,
    }
}
