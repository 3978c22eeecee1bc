//! AES-CBC, or text in clear, with an HMAC of SHA-1 or SHA-2: two passes over a group of packets, each of which the library finishes. Text is
//! encrypted, then authenticated (RFC 4303, section 3.3.2); what is not genuine is not decrypted.

use arrayvec::ArrayVec;
use ipsecmb::{BLOCK, CbcKey, HmacKey, LONGEST, LONGEST_TAG, Message, Queues, Text, Unfinished};
use wire::esp::{Cipher, Esn, HEADER_LEN, Suite};

use super::{EXPANDED, NAME, TOGETHER, hash};
use crate::packet::{Packet, SPARE, begins_with, high};
use crate::transform::{Forged, Keys, Transform};

pub(super) struct Composed {
    suite: &'static Suite,
    /// `None` for text in clear.
    cipher: Option<CbcKey>,
    /// `None` without integrity.
    mac: Option<HmacKey>,
    /// The same keys by a library without queues: for packets that are too long, and for when all queues are claimed.
    rest: Box<dyn Transform>,
}

/// A packet, header first.
struct Lane<'a> {
    bytes: &'a mut [u8],
    /// Place of the integrity check value.
    end: usize,
    number: u64,
    esn: Esn,
    /// Tag that the library writes.
    tag: [u8; LONGEST_TAG],
}

type Lanes<'a> = ArrayVec<Lane<'a>, TOGETHER>;
type Texts<'a> = ArrayVec<Text<'a>, TOGETHER>;

impl Composed {
    pub(super) fn new(suite: &'static Suite, keys: &Keys, rest: Box<dyn Transform>) -> Composed {
        let cipher =
            (suite.cipher == Cipher::AesCbc).then(|| CbcKey::new(keys.cipher.expose()).expect(EXPANDED));
        let mac = hash(suite).map(|hash| HmacKey::new(hash, keys.auth.expose()).expect(EXPANDED));
        Composed { suite, cipher, mac, rest }
    }

    /// The packet as a lane, if it is one. `Err` for what is no packet, or too long for the library.
    #[inline(always)]
    fn lane<'a>(&self, packet: Packet<'a>) -> Result<Lane<'a>, Packet<'a>> {
        if !packet.is_of(self.suite) || packet.bytes.len() > LONGEST {
            return Err(packet);
        }
        let Packet { bytes, number, esn } = packet;
        let bytes = &mut bytes[SPARE..];
        let end = bytes.len() - usize::from(self.suite.icv);
        Ok(Lane { bytes, end, number, esn, tag: [0; LONGEST_TAG] })
    }

    /// Writes the tags of packets into their lanes. The check values stay as they are.
    #[inline(always)]
    fn sign(&self, queues: &mut Queues, lanes: &mut [Lane<'_>]) -> Result<(), Unfinished> {
        let Some(mac) = &self.mac else { return Ok(()) };
        // The upper half of a number is authenticated behind the text without being sent (RFC 4303, section 2.2.1): meanwhile it lies where
        // the check value does.
        let mut icvs = ArrayVec::<[u8; IMPLIED], TOGETHER>::new();
        let mut messages = ArrayVec::<Message<'_>, TOGETHER>::new();
        for Lane { bytes, end, number, esn, tag } in &mut *lanes {
            let behind = bytes[*end..].first_chunk_mut().expect("check values are longer");
            icvs.push(*behind);
            let covered = match esn {
                Esn::Off => *end,
                Esn::On => {
                    *behind = high(*number);
                    *end + IMPLIED
                }
            };
            messages.push(Message::new(&bytes[..covered], tag).ok_or(Unfinished)?);
        }
        let signed = mac.sign(queues, &mut messages);
        drop(messages);
        for (lane, icv) in lanes.iter_mut().zip(icvs) {
            lane.bytes[lane.end..][..IMPLIED].copy_from_slice(&icv);
        }
        signed
    }

    #[inline(always)]
    fn seal_lanes(&self, queues: &mut Queues, lanes: &mut Lanes<'_>) -> Result<(), Unfinished> {
        if let Some(cipher) = &self.cipher {
            // The IV is the number, encrypted as a block of its own (NIST SP 800-38A, appendix C): the first one of the chain.
            let texts = lanes.iter_mut().map(|lane| {
                let text = &mut lane.bytes[HEADER_LEN..lane.end];
                text[..BLOCK].copy_from_slice(&u128::from(lane.number).to_be_bytes());
                Text::new(text)
            });
            let mut texts: Texts<'_> = texts.collect::<Option<_>>().ok_or(Unfinished)?;
            cipher.encrypt(queues, &mut texts)?;
        }
        self.sign(queues, lanes)?;
        for lane in lanes {
            let icv = &mut lane.bytes[lane.end..];
            icv.copy_from_slice(&lane.tag[..icv.len()]);
        }
        Ok(())
    }

    #[inline(always)]
    fn open_lanes(
        &self,
        queues: &mut Queues,
        lanes: &mut Lanes<'_>,
        outcomes: &mut [&mut Result<(), Forged>],
    ) -> Result<(), Unfinished> {
        self.sign(queues, lanes)?;
        for (lane, outcome) in lanes.iter().zip(&mut *outcomes) {
            if begins_with(&lane.tag, &lane.bytes[lane.end..]) {
                **outcome = Ok(());
            }
        }
        let Some(cipher) = &self.cipher else { return Ok(()) };
        let genuine = lanes.iter_mut().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
        let texts = genuine.map(|(lane, _)| Text::new(&mut lane.bytes[HEADER_LEN..lane.end]));
        let mut texts: Texts<'_> = texts.collect::<Option<_>>().ok_or(Unfinished)?;
        cipher.decrypt(queues, &mut texts)
    }
}

/// Bytes authenticated without being sent.
const IMPLIED: usize = 4;

impl Transform for Composed {
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
        let Some(mut queues) = Queues::claim() else { return self.rest.seal_many(packets) };
        for group in packets.chunks_mut(TOGETHER) {
            let mut lanes = Lanes::new();
            for packet in group {
                match self.lane(packet.again()) {
                    Ok(lane) => lanes.push(lane),
                    // Wipes what is no packet.
                    Err(other) => self.rest.seal(other),
                }
            }
            if self.seal_lanes(&mut queues, &mut lanes).is_err() {
                // Nothing leaves in clear.
                lanes.iter_mut().for_each(|lane| lane.bytes[HEADER_LEN..].fill(0));
            }
        }
    }

    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        let Some(mut queues) = Queues::claim() else { return self.rest.open_many(packets, outcomes) };
        for (group, outcomes) in packets.chunks_mut(TOGETHER).zip(outcomes.chunks_mut(TOGETHER)) {
            let mut lanes = Lanes::new();
            let mut places = ArrayVec::<&mut Result<(), Forged>, TOGETHER>::new();
            for (packet, outcome) in group.iter_mut().zip(outcomes) {
                match self.lane(packet.again()) {
                    Ok(lane) => {
                        *outcome = Err(Forged);
                        lanes.push(lane);
                        places.push(outcome);
                    }
                    Err(other) => *outcome = self.rest.open(other),
                }
            }
            if self.open_lanes(&mut queues, &mut lanes, &mut places).is_err() {
                places.iter_mut().for_each(|outcome| **outcome = Err(Forged));
            }
        }
    }
}
