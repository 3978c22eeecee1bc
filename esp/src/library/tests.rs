//! All suites: against published packets, and each for itself.

use proptest::prelude::*;
use wire::esp::{Direction, Esn, HEADER_LEN, HeaderMut, SUITES, Secret, Suite};

use super::*;
use crate::packet::{Packet, SPARE};
use crate::transform::{Forged, KeyError, expand};

mod together;
mod vector;

/// Bytes in front of an ESP header.
const IN_FRONT: [u8; SPARE] = [0xa1, 0xb2, 0xc3, 0xd4];

/// Suites that a library of this build has.
fn suites() -> Vec<&'static Suite> {
    SUITES.iter().filter(|suite| LIBRARIES.iter().any(|library| (library.has)(suite))).collect()
}

fn hex(digits: &str) -> Vec<u8> {
    Secret::of_hex(digits).unwrap().expose().to_vec()
}

fn keys(cipher: &str, auth: &str) -> Keys {
    Keys { cipher: Secret::of_hex(cipher).unwrap(), auth: Secret::of_hex(auth).unwrap() }
}

/// Keys of the right lengths, of bytes that follow from a seed.
fn made_up(suite: &Suite, seed: u8) -> Keys {
    let key =
        |len: usize, step: u8| Secret::new((0..len).map(|at| (at as u8).wrapping_mul(step) ^ seed).collect());
    Keys {
        cipher: key(usize::from(suite.key) + usize::from(suite.salt), 37),
        auth: key(usize::from(suite.auth_key), 59),
    }
}

fn both_ways(suite: &'static Suite, keys: &Keys) -> (Box<dyn Transform>, Box<dyn Transform>) {
    (expand(suite, keys, Direction::Out).unwrap(), expand(suite, keys, Direction::In).unwrap())
}

/// A packet with its header and text, yet unsealed, and the place of its text.
fn unsealed(suite: &Suite, spi: u32, number: u64, text: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let at = SPARE + HEADER_LEN + usize::from(suite.iv);
    let mut bytes = vec![0x55; at + text.len() + usize::from(suite.icv)];
    bytes[..SPARE].copy_from_slice(&IN_FRONT);
    let mut header = HeaderMut::of(&mut bytes[SPARE..]).unwrap();
    header.set_spi(spi);
    header.set_sequence(number as u32);
    bytes[at..at + text.len()].copy_from_slice(text);
    (bytes, at..at + text.len())
}

fn esn() -> impl Strategy<Value = Esn> {
    prop_oneof![Just(Esn::Off), Just(Esn::On)]
}

proptest! {
    /// Sealed packets are opened, by the same key and number only, and any changed bit is noticed. Spare bytes stay.
    #[test]
    fn what_is_sealed_is_opened(
        suite in prop::sample::select(suites()),
        seed in any::<u8>(),
        number in any::<u64>(),
        esn in esn(),
        blocks in 1..100_usize,
        flip in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let text: Vec<u8> = (0..blocks * usize::from(suite.align)).map(|at| (at as u8) ^ seed).collect();
        let (seal, open) = both_ways(suite, &made_up(suite, seed));
        let (mut bytes, place) = unsealed(suite, 0x1234_5678, number, &text);
        let header = bytes[..SPARE + HEADER_LEN].to_vec();
        seal.seal(Packet { bytes: &mut bytes, number, esn });
        prop_assert_eq!(&bytes[..SPARE + HEADER_LEN], &header[..]);
        let sealed = bytes.clone();

        prop_assert_eq!(open.open(Packet { bytes: &mut bytes, number, esn }), Ok(()));
        prop_assert_eq!(&bytes[..SPARE + HEADER_LEN], &header[..]);
        prop_assert_eq!(&bytes[place], &text[..]);

        if suite.icv > 0 {
            let mut changed = sealed.clone();
            let at = SPARE + flip.index(sealed.len() - SPARE);
            changed[at] ^= 1 << bit;
            prop_assert_eq!(open.open(Packet { bytes: &mut changed, number, esn }), Err(Forged));
            prop_assert_eq!(&changed[..SPARE], &IN_FRONT);
            // The upper half counts with extended numbers, and only then.
            let other = number ^ 1 << (32 + bit);
            let opened = open.open(Packet { bytes: &mut sealed.clone(), number: other, esn });
            prop_assert_eq!(opened.is_ok(), esn == Esn::Off);
            let (_, stranger) = both_ways(suite, &made_up(suite, seed ^ 1));
            prop_assert_eq!(stranger.open(Packet { bytes: &mut sealed.clone(), number, esn }), Err(Forged));
        }
    }

    /// Bytes of any length are no packet, and do no harm; what cannot be sealed does not stay in clear.
    #[test]
    fn any_bytes_are_forged_or_wiped(
        suite in prop::sample::select(suites()),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        number in any::<u64>(),
        esn in esn(),
    ) {
        let (seal, open) = both_ways(suite, &made_up(suite, 3));
        let around = SPARE + HEADER_LEN + usize::from(suite.iv) + usize::from(suite.icv);
        let text = bytes.len().checked_sub(around);
        let is_packet = text.is_some_and(|len| len > 0 && len % usize::from(suite.align) == 0);
        let opened = open.open(Packet { bytes: &mut bytes.clone(), number, esn });
        prop_assert!(opened == Err(Forged) || is_packet && suite.icv == 0);
        let mut sealed = bytes.clone();
        seal.seal(Packet { bytes: &mut sealed, number, esn });
        if !is_packet {
            prop_assert!(sealed.iter().all(|byte| *byte == 0));
        }
    }
}

/// Packets that are worked on together, at most: more than any library has at once.
const MOST: usize = 35;

/// Packets of one association that are worked on together: bytes of text, and whether a bit of each is changed on the way.
fn batch() -> impl Strategy<Value = Vec<(usize, Option<prop::sample::Index>)>> {
    // As many short ones as long ones: both kinds of libraries get some.
    let len = prop_oneof![0..=200_usize, 0..=9_000_usize];
    prop::collection::vec((len, prop::option::weighted(0.2, any::<prop::sample::Index>())), 1..=MOST)
}

/// The packets as `Transform`'s functions for many take them.
fn together(bytes: &mut [Vec<u8>], number: u64, esn: Esn) -> Vec<Packet<'_>> {
    bytes.iter_mut().zip(number..).map(|(bytes, number)| Packet { bytes, number, esn }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// All libraries that have a suite make the same packets, and open the same ones, alone and together; nothing of a packet that is not
    /// genuine is decrypted.
    #[test]
    fn libraries_agree(
        suite in prop::sample::select(suites()),
        seed in any::<u8>(),
        number in 0..u64::MAX - MOST as u64,
        esn in esn(),
        batch in batch(),
    ) {
        let keys = made_up(suite, seed);
        let text_of = |len: usize| -> Vec<u8> {
            let len = len.next_multiple_of(suite.align.into());
            (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
        };
        let clear: Vec<(Vec<u8>, std::ops::Range<usize>)> = batch
            .iter()
            .zip(number..)
            .map(|((len, _), number)| unsealed(suite, 0x1234_5678, number, &text_of(*len)))
            .collect();
        let alone = expand(suite, &keys, Direction::Out).unwrap();
        let mut sealed: Vec<Vec<u8>> = clear.iter().map(|(bytes, _)| bytes.clone()).collect();
        for packet in together(&mut sealed, number, esn) {
            alone.seal(packet);
        }
        let mut changed = sealed.clone();
        for (bytes, (_, change)) in changed.iter_mut().zip(&batch) {
            if let Some(place) = change.filter(|_| suite.icv > 0) {
                let at = SPARE + place.index(bytes.len() - SPARE);
                bytes[at] ^= 0x40;
            }
        }
        let genuine = |place: usize| {
            let (len, change) = &batch[place];
            *len > 0 && (suite.icv == 0 || change.is_none())
        };
        let all = |direction| {
            let mut all = each(suite, &keys, direction);
            all.push(expand(suite, &keys, direction).unwrap());
            all
        };
        for (seal, open) in all(Direction::Out).into_iter().zip(all(Direction::In)) {
            let name = format!("{} {}", suite.name(), seal.library(100));
            let mut made: Vec<Vec<u8>> = clear.iter().map(|(bytes, _)| bytes.clone()).collect();
            seal.seal_many(&mut together(&mut made, number, esn));
            prop_assert_eq!(&made, &sealed, "{}", &name);
            let mut opened = changed.clone();
            let mut outcomes = vec![Ok(()); opened.len()];
            open.open_many(&mut together(&mut opened, number, esn), &mut outcomes);
            for (place, (outcome, (bytes, text))) in outcomes.iter().zip(&clear).enumerate() {
                prop_assert_eq!(outcome.is_ok(), genuine(place), "{} {}", &name, place);
                if genuine(place) {
                    prop_assert_eq!(&opened[place][text.clone()], &bytes[text.clone()], "{}", &name);
                } else if text.len() >= 16 && suite.cipher != wire::esp::Cipher::Null && suite.cipher != wire::esp::Cipher::Gmac {
                    let clear = bytes[text.clone()].chunks(16).zip(opened[place][text.clone()].chunks(16));
                    prop_assert!(clear.into_iter().all(|(clear, opened)| clear.len() < 16 || clear != opened), "{}", &name);
                }
                prop_assert_eq!(&opened[place][..SPARE], &changed[place][..SPARE], "{}", &name);
                let mut one = changed[place].clone();
                let number = number + place as u64;
                let opened_alone = open.open(Packet { bytes: &mut one, number, esn });
                prop_assert_eq!(opened_alone, *outcome, "{}", &name);
                prop_assert_eq!(one == opened[place], true, "{}", &name);
            }
        }
    }
}

/// Two numbers never give one IV.
#[test]
fn ivs_differ() {
    for suite in suites().into_iter().filter(|suite| suite.iv > 0) {
        let (seal, _) = both_ways(suite, &made_up(suite, 9));
        let iv = |number| {
            let (mut bytes, place) = unsealed(suite, 1000, number, &[0; 16]);
            seal.seal(Packet { bytes: &mut bytes, number, esn: Esn::On });
            bytes[SPARE + HEADER_LEN..place.start].to_vec()
        };
        let numbers = [1, 2, 255, 256, 1 << 31, 1 << 32, (1 << 32) + 1, u64::MAX];
        let ivs: std::collections::BTreeSet<Vec<u8>> = numbers.into_iter().map(iv).collect();
        assert_eq!(ivs.len(), numbers.len(), "{}", suite.name());
    }
}

/// An IV of CBC must not be known beforehand. This one is E(0, 1), the tag of the first test case of the GCM specification.
#[test]
fn an_iv_of_cbc_is_an_encrypted_number() {
    let suite = Suite::named("aes128-cbc", Some("none")).unwrap();
    let seal = expand(suite, &keys(&"00".repeat(16), ""), Direction::Out).unwrap();
    let (mut bytes, place) = unsealed(suite, 1000, 1, &[0; 16]);
    seal.seal(Packet { bytes: &mut bytes, number: 1, esn: Esn::Off });
    assert_eq!(bytes[SPARE + HEADER_LEN..place.start], hex("58e2fccefa7e3061367f1d57a4e7455a"));
}

#[test]
fn keys_of_other_lengths_are_refused() {
    let refused = |suite, keys: Keys| expand(suite, &keys, Direction::Out).err();
    for suite in suites() {
        let right = made_up(suite, 0);
        let shorter =
            |secret: &Secret| secret.expose().split_last().map(|(_, rest)| Secret::new(rest.into()));
        let (wanted, name) = (right.cipher.len(), suite.name());
        if let Some(cipher) = shorter(&right.cipher) {
            let error = refused(suite, Keys { cipher, ..right.clone() });
            assert_eq!(error, Some(KeyError::Cipher { suite: name, wanted, given: wanted - 1 }));
            let words = error.map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(words.contains("salt"), suite.salt > 0, "{words}");
        }
        let longer = Secret::new([right.auth.expose(), &[1]].concat().into());
        let wanted = right.auth.len();
        let error = refused(suite, Keys { auth: longer, ..right });
        assert_eq!(error, Some(KeyError::Auth { suite: name, wanted, given: wanted + 1 }));
    }
}
