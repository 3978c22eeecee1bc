//! AES-GCM (RFC 4106) by RustCrypto, several packets abreast: the counter blocks of all are encrypted at once, eight at a time, as the
//! processor does eight in little more than the time of one. For packets of some 100 bytes, which alone have too few blocks for that.
//!
//! Longer texts are right, too, and slow: each goes by itself.

use std::hint::black_box;

use aes::{Aes128, Aes256};
use arrayvec::ArrayVec;
use cipher::array::Array;
use cipher::consts::U16;
use cipher::{BlockCipherEncrypt, KeyInit};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use wide::{u8x16, u32x4};
use wire::esp::{Cipher, Direction, Esn, Suite};
use zeroize::Zeroize;

use crate::packet::{Packet, Tail, are_equal, high};
use crate::transform::{Forged, Keys, Transform};

/// Name of the library.
pub(super) const NAME: &str = "RustCrypto";

/// Packets abreast, at most.
const ABREAST: usize = 8;

/// Blocks of text of packets that go abreast, at most.
const SHORT: usize = 10;

/// Bytes of the longest text that goes abreast.
pub(super) const LONGEST: usize = SHORT * BLOCK;

/// Bytes of a block.
const BLOCK: usize = 16;

/// Blocks hashed at once, at most: those of a short text, of what is authenticated before it, and of the lengths. The hash multiplies
/// four at a time.
const HASHED: usize = (SHORT + 2).next_multiple_of(4);

type Bytes = Array<u8, U16>;

pub(super) fn has(suite: &Suite) -> bool {
    suite.cipher == Cipher::Gcm
}

pub(super) fn expand(suite: &'static Suite, keys: &Keys, _: Direction) -> Box<dyn Transform> {
    let (key, salt) = keys.cipher.expose().split_last_chunk().expect("salt behind the key");
    match suite.key {
        16 => Box::new(Gcm { suite, key: Key::<Aes128>::new(key, salt) }),
        _ => Box::new(Gcm { suite, key: Key::<Aes256>::new(key, salt) }),
    }
}

struct Gcm<C> {
    suite: &'static Suite,
    key: Box<Key<C>>,
}

impl<C: BlockCipherEncrypt<BlockSize = U16> + Send + Sync> Transform for Gcm<C> {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn library(&self, _: usize) -> &'static str {
        NAME
    }

    fn seal(&self, packet: Packet<'_>) {
        self.seal_group::<1>(&mut [packet]);
    }

    fn open(&self, packet: Packet<'_>) -> Result<(), Forged> {
        let mut outcome = [Err(Forged)];
        self.open_group::<1>(&mut [packet], &mut outcome);
        outcome[0]
    }

    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        for group in packets.chunks_mut(ABREAST) {
            self.seal_group::<ABREAST>(group);
        }
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        for (group, outcomes) in packets.chunks_mut(ABREAST).zip(outcomes.chunks_mut(ABREAST)) {
            self.open_group::<ABREAST>(group, outcomes);
        }
    }
}

impl<C: BlockCipherEncrypt<BlockSize = U16>> Gcm<C> {
    /// Seals as many packets as go abreast.
    #[inline(always)]
    fn seal_group<const N: usize>(&self, packets: &mut [Packet<'_>]) {
        let mut stream = Stream::<N>::new();
        let mut lanes = ArrayVec::<Lane<'_>, N>::new();
        for packet in packets {
            let (number, esn) = (packet.number, packet.esn);
            let tail = match packet.again().tail(self.suite) {
                Ok(tail) => tail,
                Err(bytes) => {
                    bytes.fill(0);
                    continue;
                }
            };
            *tail.iv = number.to_be_bytes();
            lanes.push(Lane::new(tail, number, esn, &self.key.salt, &mut stream));
        }
        stream.encrypt(&self.key.cipher);
        for lane in &mut lanes {
            self.apply(lane, &stream);
            let tag = self.tag(lane, &stream);
            lane.icv().copy_from_slice(&tag);
        }
    }

    /// Opens as many packets as go abreast.
    #[inline(always)]
    fn open_group<const N: usize>(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        let mut stream = Stream::<N>::new();
        let mut lanes = ArrayVec::<(Lane<'_>, &mut Result<(), Forged>), N>::new();
        for (packet, outcome) in packets.iter_mut().zip(outcomes) {
            *outcome = Err(Forged);
            let (number, esn) = (packet.number, packet.esn);
            if let Ok(tail) = packet.again().tail(self.suite) {
                lanes.push((Lane::new(tail, number, esn, &self.key.salt, &mut stream), outcome));
            }
        }
        stream.encrypt(&self.key.cipher);
        for (lane, outcome) in &mut lanes {
            let tag = self.tag(lane, &stream);
            // What is not genuine is not decrypted.
            if are_equal(lane.icv(), &tag) {
                self.apply(lane, &stream);
                **outcome = Ok(());
            }
        }
    }

    /// Encrypts or decrypts a text.
    #[inline(always)]
    fn apply<const N: usize>(&self, lane: &mut Lane<'_>, stream: &Stream<N>) {
        if let Some(stream) = stream.text(lane) {
            lane.mix(0, stream);
            return;
        }
        let blocks = lane.len.div_ceil(BLOCK);
        for at in (0..blocks).step_by(ABREAST) {
            let mut stream = [Bytes::default(); ABREAST];
            let stream = &mut stream[..(blocks - at).min(ABREAST)];
            for (block, counter) in stream.iter_mut().zip(2 + at as u32..) {
                *block = bytes(lane.nonce | u32x4::new([0, 0, 0, counter.to_be()]));
            }
            self.key.cipher.encrypt_blocks(stream);
            lane.mix(at, stream);
        }
    }

    /// The integrity check value of a packet (NIST SP 800-38D, section 7.1).
    #[inline(always)]
    fn tag<const N: usize>(&self, lane: &Lane<'_>, stream: &Stream<N>) -> [u8; BLOCK] {
        let (whole, rest) = (lane.len / BLOCK, lane.len % BLOCK);
        let count = lane.len.div_ceil(BLOCK) + 2;
        let mut hash = self.key.hash.clone();
        let mut blocks = [Bytes::default(); HASHED];
        // Zeros in front change nothing, and make the rest come out in fours.
        let mut at = count.next_multiple_of(4) - count;
        let mut add = |block: Bytes| {
            if at == HASHED {
                hash.update(&blocks);
                at = 0;
            }
            blocks[at] = block;
            at += 1;
        };
        add(lane.aad);
        let text = Bytes::slice_as_chunks(lane.sealed).0;
        text[..whole].iter().for_each(|block| add(*block));
        if rest > 0 {
            add(masked(&text[whole], rest));
        }
        add(lengths(lane.aad_len, lane.len));
        hash.update(&blocks[..at]);
        (u8x16::new(hash.finalize().0) ^ u8x16::new(stream.mask(lane).0)).to_array()
    }
}

/// A packet among others.
struct Lane<'a> {
    /// Salt and IV, then zeros.
    nonce: u32x4,
    /// Data authenticated before the text, filled up with zeros, and its length.
    aad: Bytes,
    aad_len: usize,
    /// Text and, behind it, the integrity check value.
    sealed: &'a mut [u8],
    /// Bytes of text.
    len: usize,
    /// Place of its first block in the stream: the one that masks the check value.
    first: usize,
}

impl<'a> Lane<'a> {
    /// Takes a packet apart, and asks for its blocks of the stream: of a long one, for the first alone.
    #[inline(always)]
    fn new<const N: usize>(
        tail: Tail<'a>,
        number: u64,
        esn: Esn,
        salt: &[u8; 4],
        stream: &mut Stream<N>,
    ) -> Lane<'a> {
        let Tail { header, iv, sealed } = tail;
        let len = sealed.len() - BLOCK;
        let word = |bytes: &[u8], at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let nonce = u32x4::new([word(salt, 0), word(iv, 0), word(iv, 4), 0]);
        let (aad, aad_len) = match esn {
            Esn::Off => ([word(header, 0), word(header, 4), 0, 0], 8),
            Esn::On => ([word(header, 0), u32::from_ne_bytes(high(number)), word(header, 4), 0], 12),
        };
        let blocks = if len <= LONGEST { len.div_ceil(BLOCK) + 1 } else { 1 };
        let first = stream.ask(nonce, blocks);
        Lane { nonce, aad: bytes(u32x4::new(aad)), aad_len, sealed, len, first }
    }

    fn icv(&mut self) -> &mut [u8] {
        &mut self.sealed[self.len..]
    }

    /// Adds a stream to the text, from the block `at` on. Of the last block, no more than is text.
    #[inline(always)]
    fn mix(&mut self, at: usize, stream: &[Bytes]) {
        let text = &mut Bytes::slice_as_chunks_mut(self.sealed).0[at..];
        let whole = (self.len / BLOCK - at).min(stream.len());
        for (block, stream) in text[..whole].iter_mut().zip(stream) {
            *block = (u8x16::new(block.0) ^ u8x16::new(stream.0)).to_array().into();
        }
        if let Some(stream) = stream.get(whole) {
            let stream = masked(stream, self.len % BLOCK);
            text[whole] = (u8x16::new(text[whole].0) ^ u8x16::new(stream.0)).to_array().into();
        }
    }
}

/// Stream of the cipher for several packets: of each, the block that masks its check value, then those for its text.
struct Stream<const N: usize> {
    blocks: [[Bytes; SHORT + 1]; N],
    len: usize,
}

impl<const N: usize> Stream<N> {
    #[inline(always)]
    fn new() -> Stream<N> {
        Stream { blocks: [[Bytes::default(); SHORT + 1]; N], len: 0 }
    }

    /// Counter blocks for a packet: so many, from 1 on. Returns the place of the first one.
    #[inline(always)]
    fn ask(&mut self, nonce: u32x4, count: usize) -> usize {
        let first = self.len;
        self.len += count;
        let blocks = &mut self.blocks.as_flattened_mut()[first..self.len];
        for (block, counter) in blocks.iter_mut().zip(COUNTERS) {
            *block = bytes(nonce | counter);
        }
        first
    }

    /// Turns counter blocks into the stream.
    #[inline(always)]
    fn encrypt(&mut self, cipher: &impl BlockCipherEncrypt<BlockSize = U16>) {
        cipher.encrypt_blocks(&mut self.blocks.as_flattened_mut()[..self.len]);
    }

    /// The block that masks the check value of a packet.
    #[inline(always)]
    fn mask(&self, lane: &Lane<'_>) -> &Bytes {
        &self.blocks.as_flattened()[lane.first]
    }

    /// The blocks for the text of a packet; `None` for a long one.
    #[inline(always)]
    fn text(&self, lane: &Lane<'_>) -> Option<&[Bytes]> {
        let first = lane.first + 1;
        (lane.len <= LONGEST).then(|| &self.blocks.as_flattened()[first..first + lane.len.div_ceil(BLOCK)])
    }
}

/// Counters of a short packet's blocks, in the last four bytes of each.
const COUNTERS: [u32x4; SHORT + 1] = {
    let mut counters = [u32x4::new([0; 4]); SHORT + 1];
    let mut at = 0;
    while at < counters.len() {
        counters[at] = u32x4::new([0, 0, 0, (at as u32 + 1).to_be()]);
        at += 1;
    }
    counters
};

/// Of 16 bytes, all bits of so many of the first ones.
const MASKS: [u8x16; BLOCK] = {
    let mut masks = [[0; BLOCK]; BLOCK];
    let mut len = 0;
    while len < BLOCK {
        let mut at = 0;
        while at < len {
            masks[len][at] = 0xff;
            at += 1;
        }
        len += 1;
    }
    let mut all = [u8x16::new([0; BLOCK]); BLOCK];
    let mut len = 0;
    while len < BLOCK {
        all[len] = u8x16::new(masks[len]);
        len += 1;
    }
    all
};

/// The first `len` bytes of a block, then zeros.
#[inline(always)]
fn masked(block: &Bytes, len: usize) -> Bytes {
    (u8x16::new(block.0) & MASKS[len]).to_array().into()
}

/// Bytes in memory of four words, as they lie there.
#[inline(always)]
fn bytes(words: u32x4) -> Bytes {
    bytemuck::cast::<u32x4, [u8; BLOCK]>(words).into()
}

/// The last block that is hashed: both lengths, in bits.
#[inline(always)]
fn lengths(aad: usize, text: usize) -> Bytes {
    let bits = |len: usize| len as u64 * 8;
    let [upper, lower] = [(bits(text) >> 32) as u32, bits(text) as u32];
    bytes(u32x4::new([0, (bits(aad) as u32).to_be(), upper.to_be(), lower.to_be()]))
}

/// Keys expanded; cleared when dropped. They lie on the heap, and are never moved. `ghash` does not clear its own without clearing each copy,
/// one for a packet, byte by byte: so this one is overwritten in place.
struct Key<C> {
    cipher: C,
    hash: GHash,
    salt: [u8; 4],
}

impl<C: BlockCipherEncrypt<BlockSize = U16> + KeyInit> Key<C> {
    fn new(key: &[u8], salt: &[u8; 4]) -> Box<Key<C>> {
        let cipher = C::new_from_slice(key).expect("a key of the suite's length");
        let mut zeros = Bytes::default();
        cipher.encrypt_block(&mut zeros);
        let hash = GHash::new(&zeros);
        zeros.zeroize();
        Box::new(Key { cipher, hash, salt: *salt })
    }
}

impl<C> Drop for Key<C> {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.hash = GHash::new(&Bytes::default());
        // Somebody might look: the store has to happen.
        black_box(&self.hash);
    }
}
