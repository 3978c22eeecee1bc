//! Wycheproof's vectors, by each library, as far as packets of ESP can carry them: texts of whole words, nonces of 12 bytes, keys and check
//! values of the suites' lengths.
//!
//! Beside the text a combined cipher authenticates SPI and number, 8 or 12 bytes: a vector with that many is a packet, of any other the
//! encrypted text alone is compared. Those of AES-GMAC are no packets: there the IV is authenticated as part of the message, which is not
//! the vectors' own. HMACs are those of the suites without encryption.
#![allow(clippy::unwrap_used)] // A failure here is the test's.

use esp::{Keys, Packet, SPARE, Transform, expand_by_each};
use wire::esp::{Direction, Esn, HEADER_LEN, Secret, Suite};
use wycheproof::{TestResult, aead, cipher, mac};

fn by_each(
    suite: &'static Suite,
    cipher: &[u8],
    auth: &[u8],
    direction: Direction,
) -> Vec<Box<dyn Transform>> {
    let keys = Keys { cipher: Secret::new(cipher.into()), auth: Secret::new(auth.into()) };
    expand_by_each(suite, &keys, direction).unwrap()
}

/// A packet of these parts, with spare bytes in front.
fn packet(parts: &[&[u8]]) -> Vec<u8> {
    [&[[0x5a; SPARE].as_slice()], parts].concat().concat()
}

/// Place of the text in a packet.
fn text_of(suite: &Suite, packet: &[u8]) -> std::ops::Range<usize> {
    SPARE + HEADER_LEN + usize::from(suite.iv)..packet.len() - usize::from(suite.icv)
}

/// Header, whole number and kind of numbers that what is authenticated says, if it can be that of a packet.
fn header(aad: &[u8]) -> Option<([u8; HEADER_LEN], u64, Esn)> {
    let word = |at: usize| u32::from_be_bytes(*aad[at..].first_chunk().unwrap());
    match aad.len() {
        8 => Some((aad.try_into().unwrap(), word(4).into(), Esn::Off)),
        12 => {
            let header = [&aad[..4], &aad[8..]].concat().try_into().unwrap();
            Some((header, u64::from(word(4)) << 32 | u64::from(word(8)), Esn::On))
        }
        _ => None,
    }
}

/// Vectors of a combined cipher: so many encrypted texts, and so many whole packets.
fn combined(name: aead::TestName, suites: &[&str]) -> (usize, usize) {
    let (mut texts, mut packets) = (0, 0);
    for group in aead::TestSet::load(name).unwrap().test_groups {
        let mut named = suites.iter().map(|name| Suite::named(name, None).unwrap());
        let suite = named.find(|suite| usize::from(suite.key) * 8 == group.key_size);
        let Some(suite) = suite.filter(|_| group.nonce_size == 96 && group.tag_size == 128) else { continue };
        for test in group.tests {
            if test.pt.is_empty() || test.pt.len() % usize::from(suite.align) != 0 {
                continue;
            }
            let (salt, iv) = test.nonce.split_at(usize::from(suite.salt));
            let key = [&test.key[..], salt].concat();
            if test.result == TestResult::Valid {
                texts += 1;
                for seal in by_each(suite, &key, &[], Direction::Out) {
                    let mut bytes = packet(&[&[0; HEADER_LEN], &[0; 8], &test.pt, &[0; 16]]);
                    let number = u64::from_be_bytes(iv.try_into().unwrap());
                    seal.seal(Packet { bytes: &mut bytes, number, esn: Esn::Off });
                    let place = text_of(suite, &bytes);
                    assert_eq!(bytes[place], test.ct[..], "{} {}", test.tc_id, seal.library(test.pt.len()));
                }
            }
            let Some((header, number, esn)) = header(&test.aad) else { continue };
            packets += 1;
            for open in by_each(suite, &key, &[], Direction::In) {
                let mut bytes = packet(&[&header, iv, &test.ct, &test.tag]);
                let opened = open.open(Packet { bytes: &mut bytes, number, esn });
                let name = format!("{} {}", test.tc_id, open.library(test.ct.len()));
                assert_eq!(opened.is_ok(), test.result == TestResult::Valid, "{name}");
                let place = text_of(suite, &bytes);
                assert_eq!(bytes[place] == test.pt[..], opened.is_ok(), "{name}");
            }
        }
    }
    (texts, packets)
}

#[test]
fn aes_gcm() {
    let (texts, packets) = combined(aead::TestName::AesGcm, &["aes128-gcm", "aes256-gcm"]);
    assert!(texts >= 30 && packets >= 3, "{texts} {packets}");
}

#[test]
fn chacha20_poly1305() {
    let (texts, packets) = combined(aead::TestName::ChaCha20Poly1305, &["chacha20-poly1305"]);
    assert!(texts >= 60 && packets >= 13, "{texts} {packets}");
}

/// With the padding of the vectors as part of the text.
#[test]
fn aes_cbc() {
    let mut count = 0;
    for group in cipher::TestSet::load(cipher::TestName::AesCbcPkcs5).unwrap().test_groups {
        let name = format!("aes{}-cbc", group.key_size);
        let suite = Suite::named(&name, Some("none")).unwrap();
        for test in group.tests {
            // What is wrong with the others is their padding alone.
            if test.result != TestResult::Valid {
                continue;
            }
            count += 1;
            let pad = test.ct.len() - test.pt.len();
            let clear = [&test.pt[..], &vec![pad as u8; pad]].concat();
            for open in by_each(suite, &test.key, &[], Direction::In) {
                let mut bytes = packet(&[&[0; HEADER_LEN], &test.nonce, &test.ct]);
                open.open(Packet { bytes: &mut bytes, number: 1, esn: Esn::Off }).unwrap();
                let place = text_of(suite, &bytes);
                assert_eq!(bytes[place], clear, "{name} {}", test.tc_id);
            }
        }
    }
    assert_eq!(count, 72);
}

#[test]
fn hmacs() {
    let all = [
        (mac::TestName::HmacSha1, "hmac-sha1-96"),
        (mac::TestName::HmacSha256, "hmac-sha256-128"),
        (mac::TestName::HmacSha384, "hmac-sha384-192"),
        (mac::TestName::HmacSha512, "hmac-sha512-256"),
    ];
    for (set, name) in all {
        let suite = Suite::named("null", Some(name)).unwrap();
        let (mut genuine, mut forged) = (0, 0);
        for group in mac::TestSet::load(set).unwrap().test_groups {
            let bits = usize::from(suite.icv) * 8;
            if group.key_size != usize::from(suite.auth_key) * 8 || group.tag_size < bits {
                continue;
            }
            for test in group.tests {
                let is_valid = test.result == TestResult::Valid;
                // Behind its first bytes a longer value may be wrong as it likes.
                let is_told = is_valid || group.tag_size == bits;
                if test.msg.len() <= HEADER_LEN || test.msg.len() % usize::from(suite.align) != 0 || !is_told
                {
                    continue;
                }
                *if is_valid { &mut genuine } else { &mut forged } += 1;
                for open in by_each(suite, &[], &test.key, Direction::In) {
                    let mut bytes = packet(&[&test.msg, &test.tag[..usize::from(suite.icv)]]);
                    let opened = open.open(Packet { bytes: &mut bytes, number: 1, esn: Esn::Off });
                    assert_eq!(opened.is_ok(), is_valid, "{name} {}", test.tc_id);
                }
            }
        }
        let least = if name == "hmac-sha1-96" { (7, 0) } else { (14, 27) };
        assert!(genuine >= least.0 && forged >= least.1, "{name}: {genuine} {forged}");
    }
}
