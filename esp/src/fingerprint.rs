//! Fingerprint of a key: recognises a key that was used before, without keeping it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wire::esp::Direction;

use crate::transform::Keys;

/// Fingerprint of the key of one direction of an SA. Sequence numbers belong to a key, whatever has it: SPI, ends and suite are no part.
///
/// HMAC-SHA-256 under the key itself, of which 128 bits are kept: nothing about a key is learnt from it but by trying all keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; Fingerprint::LEN]);

impl Fingerprint {
    /// Number of bytes.
    pub const LEN: usize = 16;

    /// Fingerprint of the keys of an SA: of the cipher's, whose numbers must not be used twice; of the integrity algorithm's where the
    /// cipher has none.
    pub fn of(keys: &Keys, direction: Direction) -> Fingerprint {
        let key = if keys.cipher.is_empty() { &keys.auth } else { &keys.cipher };
        let purpose: &[u8] = match direction {
            Direction::In => b"sequence numbers received",
            Direction::Out => b"sequence numbers sent",
        };
        let mut hmac = Hmac::<Sha256>::new_from_slice(key.expose()).expect("a key of any length");
        hmac.update(purpose);
        let mut bytes = [0; Fingerprint::LEN];
        bytes.copy_from_slice(&hmac.finalize().into_bytes()[..Fingerprint::LEN]);
        Fingerprint(bytes)
    }

    /// The fingerprint with these bytes.
    pub const fn from_bytes(bytes: [u8; Fingerprint::LEN]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; Fingerprint::LEN] {
        self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

#[cfg(test)]
mod tests {
    use wire::esp::Secret;

    use super::*;

    /// Python: `hmac.new(b"\x0b" * 20, b"sequence numbers sent", "sha256").digest()[:16]`.
    const OUT: [u8; Fingerprint::LEN] =
        [0x00, 0xe7, 0x8b, 0xdc, 0xee, 0x81, 0x59, 0x75, 0x36, 0x44, 0x88, 0x19, 0xba, 0x44, 0xd3, 0xe7];

    #[test]
    fn fingerprints_are_hmac_sha_256() {
        let keys = Keys { cipher: Secret::new(vec![0x0b; 20].into()), auth: Secret::new(Box::default()) };
        assert_eq!(Fingerprint::of(&keys, Direction::Out).to_bytes(), OUT);
        assert_ne!(Fingerprint::of(&keys, Direction::In).to_bytes(), OUT);
    }

    #[test]
    fn fingerprints_tell_keys_apart_and_not_what_has_them() {
        let keys = |cipher: &[u8], auth: &[u8]| Keys {
            cipher: Secret::new(cipher.into()),
            auth: Secret::new(auth.into()),
        };
        let of = |cipher: &[u8], auth: &[u8]| Fingerprint::of(&keys(cipher, auth), Direction::Out);
        assert_eq!(of(&[1; 16], &[2; 20]), of(&[1; 16], &[3; 20]), "an IV belongs to the cipher's key");
        assert_ne!(of(&[1; 16], &[]), of(&[2; 16], &[]));
        assert_ne!(of(&[], &[1; 20]), of(&[], &[2; 20]));
        assert_eq!(format!("{:?}", of(&[0xc0; 16], &[])), "Fingerprint");
    }
}
