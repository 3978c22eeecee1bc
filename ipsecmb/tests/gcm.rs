//! Test case 4 of the GCM specification (McGrew and Viega), through the library; the suites of ESP are compared in crate `esp`.
#![cfg(feature = "linked")]
#![allow(clippy::unwrap_used)]

use ipsecmb::{GcmKey, Packet};

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn a_published_packet_is_sealed_and_opened() {
    assert!(ipsecmb::is_usable(), "needs a processor with AES-NI");
    let key = GcmKey::new(&hex("feffe9928665731c6d6a8f9467308308")).unwrap();
    let nonce: [u8; 12] = hex("cafebabefacedbaddecaf888").try_into().unwrap();
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let clear = hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5\
                     aa0de657ba637b39",
    );
    let sealed = hex(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b39\
                      6a0aac973d58e091",
    );
    let wanted = hex("5bc94fbc3221a5db94fae95ae7121a47");
    let mut texts = [clear.clone(), clear.clone()];
    let mut tags = [[0; 16]; 2];
    let packets = texts.iter_mut().zip(&mut tags);
    let mut packets: Vec<_> = packets.map(|(text, tag)| Packet::new(text, &nonce, &aad, tag)).collect();
    key.seal(&mut packets);
    drop(packets);
    assert_eq!(texts, [sealed.clone(), sealed.clone()]);
    assert_eq!(tags, [&wanted[..]; 2]);

    let mut text = sealed;
    let mut tag = [0; 16];
    key.open(&mut [Packet::new(&mut text, &nonce, &aad, &mut tag)]);
    assert_eq!((text, &tag[..]), (clear, &wanted[..]));
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for len in [0, 15, 17, 24, 33] {
        assert!(GcmKey::new(&vec![0; len]).is_none(), "{len}");
    }
    assert!(GcmKey::new(&[0; 32]).is_some());
}
