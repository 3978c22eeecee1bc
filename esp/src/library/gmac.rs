//! AES-GMAC (RFC 4543), by whichever library has AES-GCM: there is no text, and all of the packet is authenticated beside it.

use std::ops::Range;

use wire::esp::{Esn, HEADER_LEN, Suite};

use crate::packet::{Packet, SPARE, are_equal, high};
use crate::transform::{Forged, Transform};

/// A key of AES-GCM with its salt.
pub(super) trait Key: Send + Sync {
    /// Name of the library.
    const LIBRARY: &'static str;

    /// The tag of no text beside these bytes. `None` where there are too many of them: gigabytes.
    fn tag(&self, iv: &[u8], covered: &[u8]) -> Option<[u8; 16]>;
}

pub(super) struct Gmac<K> {
    pub(super) suite: &'static Suite,
    pub(super) key: K,
}

impl<K: Key> Gmac<K> {
    /// The tag of a packet, whose IV is there.
    fn tag(&self, body: &mut [u8], number: u64, esn: Esn) -> Option<[u8; 16]> {
        let iv: [u8; IV.end - IV.start] = *body[IV].first_chunk().expect("as long as its place");
        covered(body, number, esn, |covered| self.key.tag(&iv, covered))
    }
}

impl<K: Key> Transform for Gmac<K> {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn library(&self, _: usize) -> &'static str {
        K::LIBRARY
    }

    fn seal(&self, packet: Packet<'_>) {
        let Packet { number, esn, .. } = packet;
        let (body, icv) = match packet.body(self.suite) {
            Ok(split) => split,
            Err(bytes) => return bytes.fill(0),
        };
        body[IV].copy_from_slice(&number.to_be_bytes());
        match self.tag(body, number, esn) {
            Some(tag) => icv.copy_from_slice(&tag),
            None => body.fill(0),
        }
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let Packet { number, esn, .. } = packet;
        let (body, icv) = packet.body(self.suite).map_err(|_| Forged)?;
        let tag = self.tag(body, number, esn).ok_or(Forged)?;
        if are_equal(icv, &tag) { Ok(()) } else { Err(Forged) }
    }
}

/// Place of the IV in a packet, spare bytes in front.
const IV: Range<usize> = SPARE + HEADER_LEN..SPARE + HEADER_LEN + 8;

/// Hands over the authenticated bytes in one slice (RFC 4543, section 3.3): SPI, upper half of an extended number, lower half,
/// IV, text.
///
/// The upper half is not on the wire. Where it counts, SPI and number move to the front by the spare bytes, and back.
fn covered<R>(body: &mut [u8], number: u64, esn: Esn, f: impl FnOnce(&[u8]) -> R) -> R {
    match esn {
        Esn::Off => f(&body[SPARE..]),
        Esn::On => {
            let before: [u8; SPARE * 2] = *body.first_chunk().expect("spare bytes and SPI");
            body.copy_within(SPARE..SPARE * 2, 0);
            body[SPARE..SPARE * 2].copy_from_slice(&high(number));
            let result = f(body);
            body[..SPARE * 2].copy_from_slice(&before);
            result
        }
    }
}
