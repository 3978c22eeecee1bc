//! AES-GCM (RFC 4106) and ChaCha20-Poly1305 (RFC 7634): inputs of both are the same.

use arrayvec::ArrayVec;
use ipsecmb::{ChaChaKey, GcmKey, NONCE, Queues, TAG, Unfinished};
use wire::esp::{Esn, Suite};
use zeroize::Zeroize;

use super::{NAME, SALT, TOGETHER};
use crate::packet::{Aad, Packet, Parts, are_equal, nonce};
use crate::transform::{Forged, Transform};

/// A key of a combined cipher.
pub(super) trait Key: Send + Sync {
    /// Memory of the library's that a call needs for itself.
    type Claim;

    /// Claims that memory. Where there is none, returns the transform that does without.
    fn claim(&self) -> Result<Self::Claim, &dyn Transform>;

    /// Encrypts texts, and writes their tags.
    fn seal(&self, claim: &mut Self::Claim, packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished>;

    /// Decrypts texts, and writes the tags that genuine packets have.
    fn open(&self, claim: &mut Self::Claim, packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished>;
}

impl Key for GcmKey {
    type Claim = ();

    fn claim(&self) -> Result<(), &dyn Transform> {
        Ok(())
    }

    fn seal(&self, (): &mut (), packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished> {
        GcmKey::seal(self, packets);
        Ok(())
    }

    fn open(&self, (): &mut (), packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished> {
        GcmKey::open(self, packets);
        Ok(())
    }
}

/// A key of ChaCha20-Poly1305, and the same key by another library for when all queues are claimed.
pub(super) struct ChaCha {
    pub(super) key: ChaChaKey,
    pub(super) rest: Box<dyn Transform>,
}

impl Key for ChaCha {
    type Claim = Queues;

    fn claim(&self) -> Result<Queues, &dyn Transform> {
        Queues::claim().ok_or(&*self.rest)
    }

    fn seal(&self, queues: &mut Queues, packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished> {
        self.key.seal(queues, packets)
    }

    fn open(&self, queues: &mut Queues, packets: &mut [ipsecmb::Packet<'_>]) -> Result<(), Unfinished> {
        self.key.open(queues, packets)
    }
}

/// A combined cipher.
pub(super) struct Combined<K> {
    suite: &'static Suite,
    key: K,
    salt: [u8; SALT],
}

impl<K> Combined<K> {
    pub(super) fn new(suite: &'static Suite, key: K, salt: &[u8; SALT]) -> Combined<K> {
        Combined { suite, key, salt: *salt }
    }
}

/// Inputs of the library beside the text of a packet, and the tag that it writes.
struct Around {
    nonce: [u8; NONCE],
    aad: Aad,
    tag: [u8; TAG],
}

impl Around {
    #[inline(always)]
    fn new(salt: &[u8; SALT], parts: &Parts<'_>, packet: (u64, Esn)) -> Around {
        let nonce = nonce(salt, parts.iv);
        Around { nonce, aad: Aad::of(parts.header, packet.0, packet.1), tag: [0; TAG] }
    }
}

impl<K: Key> Transform for Combined<K> {
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
        let mut claim = match self.key.claim() {
            Ok(claim) => claim,
            Err(other) => return other.seal_many(packets),
        };
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
            let sealed = self.key.seal(&mut claim, &mut packets.collect::<ArrayVec<_, TOGETHER>>());
            for (parts, around) in &mut opened {
                match sealed {
                    Ok(()) => parts.icv.copy_from_slice(&around.tag),
                    // Nothing leaves in clear.
                    Err(Unfinished) => {
                        [&mut *parts.text, parts.icv].into_iter().for_each(|part| part.fill(0))
                    }
                }
            }
        }
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        let mut claim = match self.key.claim() {
            Ok(claim) => claim,
            Err(other) => return other.open_many(packets, outcomes),
        };
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
            let opened = self.key.open(&mut claim, &mut packets.collect::<ArrayVec<_, TOGETHER>>());
            for (parts, around, outcome) in &mut sealed {
                if opened.is_ok() && are_equal(parts.icv, &around.tag) {
                    **outcome = Ok(());
                } else {
                    parts.text.fill(0);
                }
            }
        }
    }
}

impl<K> Drop for Combined<K> {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}
