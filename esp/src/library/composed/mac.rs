//! Integrity of a packet, by HMAC (RFC 2104) or not at all.

use hmac::{EagerHash, Hmac, KeyInit, Mac as _};

use crate::transform::Forged;

/// An integrity algorithm, keys expanded. Covers bytes of the packet, then some that are not sent.
pub(super) trait Mac: Send + Sync {
    fn sign(&self, covered: &[u8], implied: &[u8], icv: &mut [u8]);
    /// Takes the same time whatever the ICV is.
    fn verify(&self, covered: &[u8], implied: &[u8], icv: &[u8]) -> Result<(), Forged>;
}

/// No integrity.
pub(super) struct Unsigned;

impl Mac for Unsigned {
    fn sign(&self, _: &[u8], _: &[u8], _: &mut [u8]) {}

    fn verify(&self, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), Forged> {
        Ok(())
    }
}

/// Expands a key for HMAC by a hash.
pub(super) fn hmac<D>(key: &[u8]) -> Box<dyn Mac>
where
    D: EagerHash + 'static,
    Hmac<D>: Send + Sync + Clone,
{
    // Both blocks of the key are hashed here; a packet begins with a copy of the two states.
    Box::new(Keyed(<Hmac<D> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length")))
}

struct Keyed<M>(M);

impl<D: EagerHash> Mac for Keyed<Hmac<D>>
where
    Hmac<D>: Send + Sync + Clone,
{
    fn sign(&self, covered: &[u8], implied: &[u8], icv: &mut [u8]) {
        let code = self.0.clone().chain_update(covered).chain_update(implied).finalize().into_bytes();
        // As many of the first bytes as the suite has.
        for (byte, code) in icv.iter_mut().zip(code) {
            *byte = code;
        }
    }

    fn verify(&self, covered: &[u8], implied: &[u8], icv: &[u8]) -> Result<(), Forged> {
        let code = self.0.clone().chain_update(covered).chain_update(implied);
        code.verify_truncated_left(icv).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Hi There", the first data of RFC 2202 and RFC 4868, under a key of 0x0b: as many bytes of key and of code as a suite has.
    #[test]
    fn codes_of_the_rfcs() {
        let cases: [(Box<dyn Mac>, &str); 5] = [
            (hmac::<md5::Md5>(&[0x0b; 16]), "9294727a3638bb1c13f48ef8"),
            (hmac::<sha1::Sha1>(&[0x0b; 20]), "b617318655057264e28bc0b6"),
            (hmac::<sha2::Sha256>(&[0x0b; 32]), "198a607eb44bfbc69903a0f1cf2bbdc5"),
            (hmac::<sha2::Sha384>(&[0x0b; 48]), "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973"),
            (
                hmac::<sha2::Sha512>(&[0x0b; 64]),
                "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8",
            ),
        ];
        for (mac, code) in cases {
            let code = wire::esp::Secret::of_hex(code).unwrap();
            let mut icv = vec![0; code.len()];
            mac.sign(b"Hi ", b"There", &mut icv);
            assert_eq!(icv, code.expose());
            assert_eq!(mac.verify(b"Hi There", b"", &icv), Ok(()));
            icv[0] ^= 1;
            assert_eq!(mac.verify(b"Hi There", b"", &icv), Err(Forged));
        }
    }
}
