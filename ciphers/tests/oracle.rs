//! Each cipher against RustCrypto's, over made-up keys and messages; and counting words against plain ones.
#![allow(clippy::unwrap_used)]

use cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, StreamCipher as _};
use ciphers::block::{self, BlockCipher, words};
use ciphers::hash;
use ciphers::machine::Native;
use ciphers::stream::StreamCipher;
use ciphers::{ALL, Cipher, Optimisation};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::sample::select;
use tally::NoTally;

/// Encrypts by ours and theirs, both chained, and decrypts again.
fn agree<const N: usize, C: BlockCipher<N>, O: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt>(
    cipher: &Cipher,
    key: &[u8],
    text: &[u8],
) {
    let size = 4 * N;
    let text = &text[..text.len() / size * size];
    let ours = C::new(key).unwrap();
    let mut sealed = text.to_vec();
    block::encrypt(&ours, Native, [0; N], &mut sealed);

    let theirs = O::new_from_slice(key).unwrap();
    let mut chain = vec![0; size];
    for (plain, sealed) in text.chunks(size).zip(sealed.chunks(size)) {
        let mixed: Vec<u8> = plain.iter().zip(&chain).map(|(a, b)| a ^ b).collect();
        let mut expected = Block::<O>::try_from(&mixed[..]).unwrap();
        theirs.encrypt_block(&mut expected);
        assert_eq!(sealed, &expected[..]);
        let mut back = expected.clone();
        theirs.decrypt_block(&mut back);
        let ours = ours.decrypt_block(Native, words::<N>(&expected));
        assert_eq!(words::<N>(&back), ours);
        chain = sealed.to_vec();
    }

    for optimisation in Optimisation::ALL {
        let mut counted = text.to_vec();
        cipher.measure(optimisation, key, &mut counted, &mut NoTally).unwrap();
        assert_eq!(counted, sealed, "{}", optimisation.name());
    }
    block::decrypt(&ours, Native, [0; N], &mut sealed);
    assert_eq!(sealed, text);
}

proptest! {
    // Each case is five runs, four of them on counting words.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn des(key in vec(any::<u8>(), 8), text in vec(any::<u8>(), 0..100)) {
        agree::<2, ciphers::des::Des, des::Des>(&ciphers::des::CIPHER, &key, &text);
        agree::<2, ciphers::des::Textbook, des::Des>(&ciphers::des::TEXTBOOK, &key, &text);
    }

    #[test]
    fn aes(key in vec(any::<u8>(), 16), text in vec(any::<u8>(), 0..100)) {
        agree::<4, ciphers::aes::Aes, aes::Aes128>(&ciphers::aes::CIPHER, &key, &text);
    }

    /// Keys and texts with many zeros too: IDEA takes zero for 2¹⁶.
    #[test]
    fn idea(key in vec(select(vec![0u8, 0, 1, 0x80, 0xff, 0x5a]), 16), text in vec(select(vec![0u8, 0, 1, 0xff, 7]), 0..100)) {
        agree::<2, ciphers::idea::Idea, idea::Idea>(&ciphers::idea::CIPHER, &key, &text);
    }

    #[test]
    fn idea_at_random(key in vec(any::<u8>(), 16), text in vec(any::<u8>(), 0..100)) {
        agree::<2, ciphers::idea::Idea, idea::Idea>(&ciphers::idea::CIPHER, &key, &text);
    }

    #[test]
    fn rc5(key in vec(any::<u8>(), 16), text in vec(any::<u8>(), 0..100)) {
        agree::<2, ciphers::rc5::Rc5, rc5::RC5<u32, cipher::consts::U16, cipher::consts::U16>>(&ciphers::rc5::CIPHER, &key, &text);
    }

    #[test]
    fn rc6(key in vec(any::<u8>(), 16), text in vec(any::<u8>(), 0..100)) {
        agree::<4, ciphers::rc6::Rc6, rc6::RC6_32_20_16>(&ciphers::rc6::CIPHER, &key, &text);
    }

    #[test]
    fn blowfish(key in vec(any::<u8>(), 4..=56), text in vec(any::<u8>(), 0..100)) {
        agree::<2, ciphers::blowfish::Blowfish, blowfish::Blowfish>(&ciphers::blowfish::CIPHER, &key, &text);
    }

    #[test]
    fn rc4(key in vec(any::<u8>(), 16), text in vec(any::<u8>(), 0..300)) {
        let mut expected = text.clone();
        rc4::Rc4::new_from_slice(&key).unwrap().apply_keystream(&mut expected);
        let mut ours = text.clone();
        ciphers::rc4::Rc4::new(&key).unwrap().apply(Native, &mut ours);
        prop_assert_eq!(&ours, &expected);
        for optimisation in Optimisation::ALL {
            let mut counted = text.clone();
            ciphers::rc4::CIPHER.measure(optimisation, &key, &mut counted, &mut NoTally).unwrap();
            prop_assert_eq!(&counted, &expected);
        }
    }

    /// There is no other SEAL to compare with: known answers hold plain words, and plain words hold counted ones.
    /// A stream taken in parts is the same stream.
    #[test]
    fn seal(key in vec(any::<u8>(), 20), text in vec(any::<u8>(), 0..2400), first in 0usize..32) {
        let mut expected = text.clone();
        ciphers::seal::Seal::new(&key).unwrap().apply(Native, &mut expected);
        for optimisation in Optimisation::ALL {
            let mut counted = text.clone();
            ciphers::seal::CIPHER.measure(optimisation, &key, &mut counted, &mut NoTally).unwrap();
            prop_assert_eq!(&counted, &expected);
        }
        let mut parts = ciphers::seal::Seal::new(&key).unwrap();
        let mut ours = text.clone();
        let middle = ours.len().min(64 * first);
        let (before, after) = ours.split_at_mut(middle);
        parts.apply(Native, before);
        parts.apply(Native, after);
        prop_assert_eq!(&ours, &expected);
    }

    #[test]
    fn md5(text in vec(any::<u8>(), 0..300)) {
        let expected = <md5::Md5 as md5::Digest>::digest(&text).to_vec();
        let ours = hash::digest::<4, ciphers::md5::Md5, _>(Native, &text);
        prop_assert_eq!(hash::bytes::<4, ciphers::md5::Md5>(ours), expected.clone());
        counted_digest(&ciphers::md5::CIPHER, &text, &expected);
    }

    #[test]
    fn sha1(text in vec(any::<u8>(), 0..300)) {
        let expected = <sha1::Sha1 as sha1::Digest>::digest(&text).to_vec();
        let ours = hash::digest::<5, ciphers::sha1::Sha1, _>(Native, &text);
        prop_assert_eq!(hash::bytes::<5, ciphers::sha1::Sha1>(ours), expected.clone());
        counted_digest(&ciphers::sha1::CIPHER, &text, &expected);
    }
}

fn counted_digest(cipher: &Cipher, text: &[u8], expected: &[u8]) {
    for optimisation in Optimisation::ALL {
        let mut counted = text.to_vec();
        let report = cipher.measure(optimisation, &[], &mut counted, &mut NoTally).unwrap();
        assert_eq!(report.digest, expected);
        assert_eq!(counted, text, "a hash function leaves its text");
    }
}

#[test]
fn a_key_that_cannot_be_is_refused() {
    for cipher in ALL.into_iter().filter(|cipher| cipher.about.key_bytes > 0) {
        let refused = cipher.measure(Optimisation::Raw, &[0; 300], &mut [0; 64], &mut NoTally);
        assert!(refused.is_err(), "{}", cipher.about.name);
    }
}
