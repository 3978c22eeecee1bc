//! Suites of a cipher and an integrity algorithm, both of RustCrypto: AES, 3DES and DES in cipher block chaining, or text in clear, with
//! one of the HMACs or, in laboratories, none. Text is encrypted, then authenticated (RFC 4303, section 3.3.2).
//!
//! Packets that are sealed together are chained abreast.
//!
//! Keys are cleared by the libraries when dropped (their feature `zeroize`).

use arrayvec::ArrayVec;
use wire::esp::{Cipher, Direction, Esn, HEADER_LEN, Integrity, Suite};

use crate::packet::{Packet, SPARE, high};
use crate::transform::{Forged, Keys, Transform};

mod block;
mod mac;

use block::{ABREAST, Clear, Open, Text};
use mac::{Mac, Unsigned};

/// Name of the library.
pub(super) const NAME: &str = "RustCrypto";

pub(super) fn has(suite: &Suite) -> bool {
    suite.integrity != Integrity::Combined
}

pub(super) fn expand(suite: &'static Suite, keys: &Keys, _: Direction) -> Box<dyn Transform> {
    let key = keys.cipher.expose();
    let text: Box<dyn Text> = match (suite.cipher, suite.key) {
        (Cipher::AesCbc, 16) => block::chained::<aes::Aes128>(key),
        (Cipher::AesCbc, 24) => block::chained::<aes::Aes192>(key),
        (Cipher::AesCbc, _) => block::chained::<aes::Aes256>(key),
        (Cipher::TripleDesCbc, _) => block::chained::<des::TdesEde3>(key),
        (Cipher::DesCbc, _) => block::chained::<des::Des>(key),
        (Cipher::Null | Cipher::Gcm | Cipher::Gmac | Cipher::ChaCha20Poly1305, _) => Box::new(Clear),
    };
    let key = keys.auth.expose();
    let mac: Box<dyn Mac> = match suite.integrity {
        Integrity::HmacSha1_96 => mac::hmac::<sha1::Sha1>(key),
        Integrity::HmacSha256_128 => mac::hmac::<sha2::Sha256>(key),
        Integrity::HmacSha384_192 => mac::hmac::<sha2::Sha384>(key),
        Integrity::HmacSha512_256 => mac::hmac::<sha2::Sha512>(key),
        Integrity::HmacMd5_96 => mac::hmac::<md5::Md5>(key),
        Integrity::None | Integrity::Combined => Box::new(Unsigned),
    };
    Box::new(Composed { suite, text, mac })
}

struct Composed {
    suite: &'static Suite,
    text: Box<dyn Text>,
    mac: Box<dyn Mac>,
}

impl Composed {
    /// Place of the text in a packet, behind the IV.
    fn text_at(&self) -> usize {
        SPARE + HEADER_LEN + usize::from(self.suite.iv)
    }
}

impl Transform for Composed {
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
        let (front, text) = body.split_at_mut(self.text_at());
        let iv = &mut front[SPARE + HEADER_LEN..];
        self.text.choose_iv(number, iv);
        self.text.encrypt(iv, text);
        self.mac.sign(&body[SPARE..], implied(&high(number), esn), icv);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let Packet { number, esn, .. } = packet;
        let (body, icv) = packet.body(self.suite).map_err(|_| Forged)?;
        self.mac.verify(&body[SPARE..], implied(&high(number), esn), icv)?;
        let (front, text) = body.split_at_mut(self.text_at());
        self.text.decrypt(&front[SPARE + HEADER_LEN..], text);
        Ok(())
    }

    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        for group in packets.chunks_mut(ABREAST) {
            let mut open = ArrayVec::<Open<'_>, ABREAST>::new();
            for packet in &mut *group {
                let number = packet.number;
                // What is no packet is wiped below.
                if let Ok((body, _)) = packet.again().body(self.suite) {
                    let (front, text) = body.split_at_mut(self.text_at());
                    open.push(Open { number, iv: &mut front[SPARE + HEADER_LEN..], text });
                }
            }
            self.text.encrypt_many(&mut open);
            drop(open);
            for packet in group {
                let (number, esn) = (packet.number, packet.esn);
                match packet.again().body(self.suite) {
                    Ok((body, icv)) => self.mac.sign(&body[SPARE..], implied(&high(number), esn), icv),
                    Err(bytes) => bytes.fill(0),
                }
            }
        }
    }
}

/// Bytes authenticated behind the text without being sent: the upper half of an extended number (RFC 4303, section 2.2.1).
fn implied(high: &[u8; 4], esn: Esn) -> &[u8] {
    match esn {
        Esn::Off => &[],
        Esn::On => high,
    }
}
