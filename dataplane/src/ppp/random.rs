//! Numbers that nobody can guess: magic numbers, challenges, cookies, session identifiers. SipHash-2-4 of a counter, under the seed of the
//! shard, which a live host keeps secret and a replay does not change.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Generator of a session.
#[derive(Clone, Debug)]
pub(super) struct Random {
    key: [u64; 2],
    /// Number that tells this generator from others under the key.
    stream: u64,
    count: u64,
}

impl Random {
    /// The generator of that stream.
    pub(super) fn new(seed: [u64; 2], stream: u64) -> Random {
        Random { key: seed, stream, count: 0 }
    }

    /// A generator of its own for what follows.
    pub(super) fn split(&mut self) -> Random {
        Random { key: self.key, stream: self.number(), count: 0 }
    }

    /// Any number.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.hash(&[self.stream, self.count])
    }

    /// A magic number: not 0.
    pub(super) fn magic(&mut self) -> u32 {
        (self.number() as u32).max(1)
    }

    /// A session identifier: neither 0 nor the reserved 0xffff.
    pub(super) fn session(&mut self) -> u16 {
        (self.number() as u16).clamp(1, u16::MAX - 1)
    }

    /// An interface identifier: not 0, and not one that a manufacturer has given (RFC 4291, section 2.5.1).
    pub(super) fn identifier(&mut self) -> u64 {
        (self.number() & !(2 << 56)).max(1)
    }

    /// A number that belongs to these words, each time the same.
    pub(super) fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }
}
