//! Known answers, from the documents that define the algorithms.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use ciphers::aes::Aes;
use ciphers::block::{self, BlockCipher, words};
use ciphers::blowfish::Blowfish;
use ciphers::des::Des;
use ciphers::hash::{self, Hash};
use ciphers::idea::Idea;
use ciphers::machine::Native;
use ciphers::md5::Md5;
use ciphers::rc4::Rc4;
use ciphers::rc5::Rc5;
use ciphers::rc6::Rc6;
use ciphers::seal::Seal;
use ciphers::sha1::Sha1;
use ciphers::stream::StreamCipher;

/// Encrypts and decrypts one block.
fn holds<const N: usize, C: BlockCipher<N>>(key: &str, plain: &str, sealed: &str) {
    let cipher = C::new(&bytes(key)).unwrap();
    let (plain, sealed) = (words::<N>(&bytes(plain)), words::<N>(&bytes(sealed)));
    assert_eq!(cipher.encrypt_block(Native, plain), sealed, "key {key}");
    assert_eq!(cipher.decrypt_block(Native, sealed), plain, "key {key}");
}

/// NBS Special Publication 500-20 and the worked example that goes round with FIPS 46.
#[test]
fn des() {
    holds::<2, Des>("133457799bbcdff1", "0123456789abcdef", "85e813540f0ab405");
    holds::<2, Des>("10316e028c8f3b4a", "0000000000000000", "82dcbafbdeab6602");
    holds::<2, Des>("7ca110454a1a6e57", "01a1d6d039776742", "690f5b0d9a26939b");
}

/// FIPS 197, appendices B and C.1.
#[test]
fn aes() {
    holds::<4, Aes>(
        "2b7e151628aed2a6abf7158809cf4f3c",
        "3243f6a8885a308d313198a2e0370734",
        "3925841d02dc09fbdc118597196a0b32",
    );
    holds::<4, Aes>(
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "69c4e0d86a7b0430d8cdb78070b4c55a",
    );
}

/// Lai's example: key 1 to 8 in 16 bits each, text 0 to 3.
#[test]
fn idea() {
    holds::<2, Idea>("00010002000300040005000600070008", "0000000100020003", "11fbed2b01986de5");
}

/// RFC 2040, section 9: CBC, of which the first block shows the cipher.
#[test]
fn rc5() {
    for (key, sealed) in
        [("0102030405060708 1020304050607080", "dad6bda9dfe8f7e8"), ("00", "545f7f32a5fc3836")]
    {
        let cipher = Rc5::new(&bytes(key)).unwrap();
        let mut text = bytes("1020304050607080");
        block::encrypt(&cipher, Native, words(&bytes("0102030405060708")), &mut text);
        assert_eq!(text, bytes(sealed), "key {key}");
        block::decrypt(&cipher, Native, words(&bytes("0102030405060708")), &mut text);
        assert_eq!(text, bytes("1020304050607080"), "key {key}");
    }
}

/// Rivest, Robshaw, Sidney, Yin, "The RC6 Block Cipher", appendix.
#[test]
fn rc6() {
    holds::<4, Rc6>(
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "8fc3a53656b1f778c129df4e9848a41e",
    );
    holds::<4, Rc6>(
        "0123456789abcdef0112233445566778",
        "02132435465768798a9bacbdcedfe0f1",
        "524e192f4715c6231f51f6367ea43f18",
    );
}

/// Eric Young's vectors, which Schneier's page points to.
#[test]
fn blowfish() {
    holds::<2, Blowfish>("0000000000000000", "0000000000000000", "4ef997456198dd78");
    holds::<2, Blowfish>("3000000000000000", "1000000000000001", "7d856f9a613063f2");
    holds::<2, Blowfish>("fedcba9876543210", "0123456789abcdef", "0aceab0fc6a0a28d");
}

/// RFC 6229: bytes 0 and 240 on, of two keys.
#[test]
fn rc4() {
    for (key, first, later) in [
        ("0102030405", "b2396305f03dc027ccc3524a0a1118a8", "28cb1132c96ce286421dcaadb8b69eae"),
        (
            "0102030405060708090a0b0c0d0e0f10",
            "9ac7cc9a609d1ef7b2932899cde41b97",
            "065902e4b620f6cc36c8589f66432f2b",
        ),
    ] {
        let mut text = vec![0; 256];
        Rc4::new(&bytes(key)).unwrap().apply(Native, &mut text);
        assert_eq!(text[..16], bytes(first), "key {key}");
        assert_eq!(text[240..], bytes(later), "key {key}");
    }
}

/// Rogaway and Coppersmith, appendix: the beginning of the stream of their example.
#[test]
fn seal() {
    let mut text = vec![0; 16];
    let key = bytes("67452301efcdab8998badcfe10325476c3d2e1f0");
    Seal::new(&key).unwrap().at(0x0135_77af).apply(Native, &mut text);
    assert_eq!(text, bytes("37a005959b84c49ca4be1e050673530f"));
}

/// Four kilobytes of a stream, from Crypto++'s vectors.
#[test]
fn seal_at_length() {
    let Some(path) = data("vectors/seal.txt") else { return };
    let text = std::fs::read_to_string(path).unwrap().replace('\r', "");
    let mut sections = 0;
    for section in text.split("AlgorithmType:").filter(|section| section.contains("Name: SEAL-3.0-BE")) {
        let joined = section.replace("\\\n", "");
        let value = |name: &str| {
            let line = joined.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        let sealed = bytes(&value("Ciphertext:"));
        assert_eq!(value("Plaintext:"), "r1024 00000000", "this test knows no other text");
        let mut text = vec![0; sealed.len()];
        let position = u32::from_str_radix(&value("IV:"), 16).unwrap();
        Seal::new(&bytes(&value("Key:"))).unwrap().at(position).apply(Native, &mut text);
        assert!(text == sealed, "the streams differ");
        sections += 1;
    }
    assert!(sections > 0, "no vectors in the file");
}

/// RFC 1321, A.5.
#[test]
fn md5() {
    for (message, digest) in [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ] {
        assert_eq!(digest_of::<4, Md5>(message), bytes(digest), "{message:?}");
    }
}

/// RFC 3174, 7.3, and FIPS 180's empty message.
#[test]
fn sha1() {
    for (message, digest) in [
        ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        ),
    ] {
        assert_eq!(digest_of::<5, Sha1>(message), bytes(digest), "{message:?}");
    }
}

fn digest_of<const N: usize, H: Hash<N>>(message: &str) -> Vec<u8> {
    hash::bytes::<N, H>(hash::digest::<N, H, _>(Native, message.as_bytes()))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// A file of test data, or a loud word that it is missing.
fn data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("WIRERATE_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there; set WIRERATE_DATA to the folder of test data", path.display());
    None
}
