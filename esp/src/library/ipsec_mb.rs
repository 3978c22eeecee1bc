//! AES-GCM (RFC 4106) by Intel's multi-buffer library for IPsec, with the feature `ipsec-mb`.

use arrayvec::ArrayVec;
use ipsecmb::{GcmKey, NONCE, TAG};
use wire::esp::{Cipher, Direction, Suite};
use zeroize::Zeroize;

use crate::packet::{Aad, Packet, Parts, are_equal};
use crate::transform::{Forged, Keys, Transform};

/// Name of the library.
const NAME: &str = "ipsec-mb";

/// Bytes of the salt.
const SALT: usize = 4;

/// Packets that the library is given at once.
const TOGETHER: usize = 16;

pub(super) fn has(suite: &Suite) -> bool {
    suite.cipher == Cipher::Gcm && ipsecmb::is_usable()
}

/// Bytes of the longest text that it is taken for: with 128 bits at a time ring passes it, which knows 256.
pub(super) fn longest() -> usize {
    if ipsecmb::is_wide() { usize::MAX } else { 768 }
}

pub(super) fn expand(suite: &'static Suite, keys: &Keys, _: Direction) -> Box<dyn Transform> {
    let (key, salt) = keys.cipher.expose().split_last_chunk().expect("salt behind the key");
    let key = GcmKey::new(key).expect("a key of the suite's length, and a library that `has` has");
    Box::new(Gcm { suite, key, salt: *salt })
}

struct Gcm {
    suite: &'static Suite,
    key: GcmKey,
    salt: [u8; SALT],
}

/// Inputs of the library beside the text of a packet, and the tag that it writes.
struct Around {
    nonce: [u8; NONCE],
    aad: Aad,
    tag: [u8; TAG],
}

impl Around {
    #[inline(always)]
    fn new(salt: &[u8; SALT], parts: &Parts<'_>, packet: (u64, wire::esp::Esn)) -> Around {
        let mut nonce = [0; NONCE];
        nonce[..SALT].copy_from_slice(salt);
        nonce[SALT..].copy_from_slice(parts.iv);
        Around { nonce, aad: Aad::of(parts.header, packet.0, packet.1), tag: [0; TAG] }
    }
}

impl Transform for Gcm {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn library(&self, _: usize) -> &'static str {
        NAME
    }

    fn seal(&self, packet: Packet<'_>) {
        self.seal_many(&mut [packet]);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let mut outcome = [Err(Forged)];
        self.open_many(&mut [packet], &mut outcome);
        outcome[0]
    }

    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        for group in packets.chunks_mut(TOGETHER) {
            let mut opened = ArrayVec::<(Parts<'_>, Around), TOGETHER>::new();
            for packet in group {
                let number = (packet.number, packet.esn);
                match packet.again().parts(self.suite) {
                    Ok(parts) => {
                        parts.iv.copy_from_slice(&number.0.to_be_bytes());
                        let around = Around::new(&self.salt, &parts, number);
                        opened.push((parts, around));
                    }
                    Err(bytes) => bytes.fill(0),
                }
            }
            let packets = opened.iter_mut().map(|(parts, Around { nonce, aad, tag })| {
                ipsecmb::Packet::new(parts.text, nonce, (*aad).as_ref(), tag)
            });
            self.key.seal(&mut packets.collect::<ArrayVec<_, TOGETHER>>());
            for (parts, around) in opened {
                parts.icv.copy_from_slice(&around.tag);
            }
        }
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        for (group, outcomes) in packets.chunks_mut(TOGETHER).zip(outcomes.chunks_mut(TOGETHER)) {
            let mut sealed = ArrayVec::<(Parts<'_>, Around, &mut Result<(), Forged>), TOGETHER>::new();
            for (packet, outcome) in group.iter_mut().zip(outcomes) {
                *outcome = Err(Forged);
                let number = (packet.number, packet.esn);
                if let Ok(parts) = packet.again().parts(self.suite) {
                    let around = Around::new(&self.salt, &parts, number);
                    sealed.push((parts, around, outcome));
                }
            }
            let packets = sealed.iter_mut().map(|(parts, Around { nonce, aad, tag }, _)| {
                ipsecmb::Packet::new(parts.text, nonce, (*aad).as_ref(), tag)
            });
            self.key.open(&mut packets.collect::<ArrayVec<_, TOGETHER>>());
            for (parts, around, outcome) in sealed {
                if are_equal(parts.icv, &around.tag) {
                    *outcome = Ok(());
                } else {
                    parts.text.fill(0);
                }
            }
        }
    }
}

impl Drop for Gcm {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}
