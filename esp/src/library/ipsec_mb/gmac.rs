//! AES-GMAC (RFC 4543): AES-GCM without text, all of the packet authenticated beside it.

use ipsecmb::{GcmKey, NONCE, TAG};
use wire::esp::Suite;
use zeroize::Zeroize;

use super::{NAME, SALT};
use crate::packet::{GMAC_IV, Packet, are_equal, covered};
use crate::transform::{Forged, Transform};

pub(super) struct Gmac {
    suite: &'static Suite,
    key: GcmKey,
    salt: [u8; SALT],
}

impl Gmac {
    pub(super) fn new(suite: &'static Suite, key: GcmKey, salt: &[u8; SALT]) -> Gmac {
        Gmac { suite, key, salt: *salt }
    }

    /// The tag of these bytes.
    fn tag(&self, iv: &[u8], covered: &[u8]) -> [u8; TAG] {
        let mut nonce = [0; NONCE];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(iv);
        let mut tag = [0; TAG];
        self.key.seal(&mut [ipsecmb::Packet::new(&mut [], &nonce, covered, &mut tag)]);
        tag
    }
}

impl Transform for Gmac {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn library(&self, _: usize) -> &'static str {
        NAME
    }

    fn seal(&self, packet: Packet<'_>) {
        let Packet { number, esn, .. } = packet;
        let (body, icv) = match packet.body(self.suite) {
            Ok(split) => split,
            Err(bytes) => return bytes.fill(0),
        };
        let iv = number.to_be_bytes();
        body[GMAC_IV].copy_from_slice(&iv);
        let tag = covered(body, number, esn, |covered| self.tag(&iv, covered));
        icv.copy_from_slice(&tag);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let Packet { number, esn, .. } = packet;
        let (body, icv) = packet.body(self.suite).map_err(|_| Forged)?;
        let mut iv = [0; GMAC_IV.end - GMAC_IV.start];
        iv.copy_from_slice(&body[GMAC_IV]);
        let tag = covered(body, number, esn, |covered| self.tag(&iv, covered));
        if are_equal(icv, &tag) { Ok(()) } else { Err(Forged) }
    }
}

impl Drop for Gmac {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}
