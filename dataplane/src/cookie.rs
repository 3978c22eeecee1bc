//! SYN cookies: what a gateway that answers a SYN has to know of it later, in the sequence number of the answer (RFC 4987,
//! section 3.6), so that nothing is remembered until the client has shown that number.
//!
//! The upper 24 bits are a keyed hash (SipHash-2-4) of addresses, ports, the client's own number, the minute and the lower
//! eight bits; these hold a class of segment sizes, window scale, whether selective acknowledgements are permitted and the
//! parity of the minute, and are blinded by the hash, as FreeBSD does it. Timestamps are not needed for that, and are not
//! agreed on.
//!
//! Promises: a pure function of key, packet and time, so that every worker with the same key takes the cookies of all others; a
//! constant amount of work. A guess is right once in 2^24 times.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use wire::Nanos;

use crate::flow::Key;

/// Offer of a client's SYN, as far as a cookie keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The largest segment that the client takes; of a cookie, one of four sizes that is no larger.
    pub(crate) mss: u16,
    /// The client's window scale.
    pub(crate) scale: Option<u8>,
    /// Permission of selective acknowledgements.
    pub(crate) sack: Sack,
}

/// Permission of selective acknowledgements (RFC 2018, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sack {
    /// The SYN has the option.
    Permitted,
    /// The SYN lacks the option.
    Unknown,
}

/// Segment sizes that a cookie tells apart: those of Linux.
const SIZES4: [u16; 4] = [536, 1300, 1440, 1460];
const SIZES6: [u16; 4] = [1220, 1420, 1440, 8940];

/// In place of a window scale: there is none.
const NO_SCALE: u8 = 15;
/// The highest window scale (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;

/// Length of a minute here, in nanoseconds (64 s): a cookie is valid for one to two minutes.
const MINUTE: u64 = 64_000_000_000;

/// Set in odd minutes.
const PARITY: u8 = 1 << 7;
/// Set where selective acknowledgements are permitted.
const SACK: u8 = 1 << 6;

/// The key.
#[derive(Clone, Debug)]
pub(crate) struct Cookies {
    key: [u64; 2],
}

impl Cookies {
    /// A key from a seed: random and secret in a live host, the same for all workers, fixed in a replay.
    pub(crate) fn new(seed: [u64; 2]) -> Cookies {
        // Apart from whatever else is made from the seed.
        let of = |word: u64| sip(seed, [0x5359_4e20_636f_6f6b, word].into_iter());
        Cookies { key: [of(0), of(1)] }
    }

    /// The cookie for a SYN with this key and number.
    pub(crate) fn make(&self, key: &Key, isn: u32, offer: &Offer, now: Nanos) -> u32 {
        let minute = now.0 / MINUTE;
        let low = offer.to_bits(key.is_v4()) | if minute & 1 == 0 { 0 } else { PARITY };
        let mac = self.mac(key, isn, minute, low);
        mac << 8 | u32::from(low ^ blind(mac << 8))
    }

    /// Returns the offer of the SYN that this cookie was made for; `None` for a cookie of another SYN, or older than one
    /// to two minutes.
    pub(crate) fn open(&self, key: &Key, isn: u32, cookie: u32, now: Nanos) -> Option<Offer> {
        let low = cookie as u8 ^ blind(cookie);
        let minute = now.0 / MINUTE;
        let is_of_now = (minute & 1 == 0) == (low & PARITY == 0);
        let minute = if is_of_now { minute } else { minute.checked_sub(1)? };
        let is_right = self.mac(key, isn, minute, low) == cookie >> 8;
        is_right.then(|| Offer::of_bits(low, key.is_v4()))
    }

    /// Returns the offer in a cookie that has been validated before.
    pub(crate) fn read(cookie: u32, key: &Key) -> Offer {
        Offer::of_bits(cookie as u8 ^ blind(cookie), key.is_v4())
    }

    fn mac(&self, key: &Key, isn: u32, minute: u64, low: u8) -> u32 {
        let (addresses, ends) = key.words();
        let count = if key.is_v4() { 1 } else { 4 };
        let words = addresses.iter().take(count).copied();
        let rest = [ends, u64::from(isn) << 8 | u64::from(low), minute];
        (sip(self.key, words.chain(rest)) >> 40) as u32
    }
}

/// Instructions that making or opening a cookie takes on an engine of 32 bits: a round has four additions of 3, four
/// exclusive ors of 2, four rotations of 4 and two of none, 36; there are two for each word and for the length, and four.
pub(crate) const INSTRUCTIONS4: u32 = 14 * 36 + 24;
/// Instructions for IPv6.
pub(crate) const INSTRUCTIONS6: u32 = 20 * 36 + 24;

/// Mask over the lower bits: the uppermost eight.
const fn blind(cookie: u32) -> u8 {
    (cookie >> 24) as u8
}

impl Offer {
    fn to_bits(self, v4: bool) -> u8 {
        let sizes = sizes(v4);
        let class = sizes.iter().rposition(|size| *size <= self.mss).unwrap_or(0) as u8;
        let scale = self.scale.map_or(NO_SCALE, |scale| scale.min(MAX_SCALE));
        class | scale << 2 | if self.sack == Sack::Permitted { SACK } else { 0 }
    }

    fn of_bits(low: u8, v4: bool) -> Offer {
        let scale = low >> 2 & 15;
        Offer {
            mss: sizes(v4)[usize::from(low & 3)],
            scale: (scale != NO_SCALE).then_some(scale),
            sack: if low & SACK != 0 { Sack::Permitted } else { Sack::Unknown },
        }
    }
}

const fn sizes(v4: bool) -> [u16; 4] {
    if v4 { SIZES4 } else { SIZES6 }
}

/// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) of whole words.
fn sip(key: [u64; 2], words: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    words.for_each(|word| hasher.write_u64(word));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
    use wire::Nanos;

    use super::{Cookies, MINUTE, Offer, Sack, sip};
    use crate::flow::Key;

    #[test]
    fn the_hash_is_that_of_its_authors() {
        // vectors.h of the reference implementation: key 00..0f, input of 0, 8 and 16 bytes 00, 01, 02 ...
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(sip(key, [].into_iter()), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip(key, [0x0706_0504_0302_0100].into_iter()), 0x93f5_f579_9a93_2462);
        let two = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(sip(key, two.into_iter()), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn a_size_is_that_of_its_class_or_smaller() {
        let cookies = Cookies::new([3, 4]);
        let key = Key::v4(1, 2, 3, 4, 6);
        for (mss, kept) in [(0, 536), (536, 536), (1299, 536), (1300, 1300), (1452, 1440), (9000, 1460)] {
            let offer = Offer { mss, scale: Some(20), sack: Sack::Permitted };
            let cookie = cookies.make(&key, 7, &offer, Nanos(0));
            let opened = cookies.open(&key, 7, cookie, Nanos(0)).unwrap();
            assert_eq!(opened, Offer { mss: kept, scale: Some(14), sack: Sack::Permitted });
            assert_eq!(Cookies::read(cookie, &key), opened);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn a_cookie_holds_for_its_connection_and_two_minutes_only(
            (seed, source, destination, sport, dport) in any::<([u64; 2], u128, u128, u16, u16)>(),
            (isn, now, v4) in any::<(u32, u32, bool)>(),
            (age, class, scale, sack) in (0..4 * MINUTE, 0..4usize, 0..16u8, any::<bool>()),
            flip in 0..32u32,
        ) {
            let cookies = Cookies::new(seed);
            let key_of = |source: u128, destination: u128, sport, dport| match v4 {
                true => Key::v4(source as u32, destination as u32, sport, dport, 6),
                false => Key::v6(source, destination, sport, dport, 6),
            };
            let key = key_of(source, destination, sport, dport);
            let offer = Offer {
                mss: super::sizes(v4)[class],
                scale: (scale < 15).then_some(scale),
                sack: if sack { Sack::Permitted } else { Sack::Unknown },
            };
            let now = Nanos(u64::from(now) * 1_000_000_000);
            let cookie = cookies.make(&key, isn, &offer, now);
            prop_assert_eq!(cookies.open(&key, isn, cookie, now), Some(offer));
            let later = Nanos(now.0 + age);
            let minutes = later.0 / MINUTE - now.0 / MINUTE;
            prop_assert_eq!(cookies.open(&key, isn, cookie, later), (minutes < 2).then_some(offer));
            // Another connection's is not, but for one guess in 2^24.
            let bit = 1u128 << flip;
            let others = [
                key_of(source ^ bit, destination, sport, dport),
                key_of(source, destination ^ bit, sport, dport),
                key_of(source, destination, sport ^ 1, dport),
                key_of(source, destination, sport, dport ^ 1),
            ];
            let right = others.iter().filter(|key| cookies.open(key, isn, cookie, now).is_some()).count();
            let flipped = [(isn ^ bit as u32, cookie), (isn, cookie ^ bit as u32)];
            let forged = flipped.iter().filter(|(isn, cookie)| cookies.open(&key, *isn, *cookie, now).is_some());
            prop_assert!(right + forged.count() <= 1);
        }
    }
}
