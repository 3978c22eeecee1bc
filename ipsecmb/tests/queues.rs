//! Published texts through the library's queues: AES-CBC of NIST SP 800-38A, section F.2, HMACs of RFC 2202 and RFC 4231.
#![cfg(feature = "linked")]
#![allow(clippy::unwrap_used)]

use ipsecmb::{BLOCK, CbcKey, ChaChaKey, Hash, HmacKey, LONGEST, LONGEST_TAG, Message, Queues, Text};

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Queues of this thread, when another test has put some back.
fn claim() -> Queues {
    loop {
        match Queues::claim() {
            Some(queues) => return queues,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn published_blocks_are_chained() {
    let iv = hex("000102030405060708090a0b0c0d0e0f");
    let clear = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
    for (key, sealed) in [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d",
        ),
    ] {
        let key = CbcKey::new(&hex(key)).unwrap();
        let sealed = [&iv[..], &hex(sealed)].concat();
        let mut opened = vec![sealed.clone(); 19];
        let mut texts: Vec<Text<'_>> = opened.iter_mut().map(|text| Text::new(text).unwrap()).collect();
        key.decrypt(&mut claim(), &mut texts).unwrap();
        drop(texts);
        assert!(opened.iter().all(|text| text[..BLOCK] == iv && text[BLOCK..] == clear));

        // The block that becomes this IV: the IV decrypted, as a text behind zeros.
        let mut block = [&[0; BLOCK][..], &iv].concat();
        key.decrypt(&mut claim(), &mut [Text::new(&mut block).unwrap()]).unwrap();
        let mut made = vec![[&block[BLOCK..], &clear].concat(); 19];
        let mut texts: Vec<Text<'_>> = made.iter_mut().map(|text| Text::new(text).unwrap()).collect();
        key.encrypt(&mut claim(), &mut texts).unwrap();
        drop(texts);
        assert!(made.iter().all(|text| *text == sealed));
    }
}

#[test]
fn published_messages_are_signed() {
    for (hash, tag) in [
        (Hash::Sha1, "b617318655057264e28bc0b6"),
        (Hash::Sha256, "b0344c61d8db38535ca8afceaf0bf12b"),
        (Hash::Sha384, "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec6"),
        (Hash::Sha512, "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"),
    ] {
        let key = HmacKey::new(hash, &[0x0b; 20]).unwrap();
        for count in [1, 5, 16, 17, 40] {
            let mut tags = vec![[0xee; LONGEST_TAG]; count];
            let mut messages: Vec<Message<'_>> =
                tags.iter_mut().map(|tag| Message::new(b"Hi There", tag).unwrap()).collect();
            key.sign(&mut claim(), &mut messages).unwrap();
            drop(messages);
            // Nothing is written behind a tag.
            let wanted = [&hex(tag)[..], &[0xee; LONGEST_TAG]].concat();
            assert!(tags.iter().all(|tag| tag[..] == wanted[..LONGEST_TAG]), "{hash:?}, {count}");
        }
    }
}

#[test]
fn other_lengths_are_refused() {
    for len in [0, 15, 17, 23, 33] {
        assert!(CbcKey::new(&vec![0; len]).is_none(), "{len}");
        assert!(ChaChaKey::new(&vec![0; len]).is_none(), "{len}");
    }
    assert!(
        HmacKey::new(Hash::Sha256, &[0; 65]).is_none() && HmacKey::new(Hash::Sha512, &[0; 129]).is_none()
    );
    let mut bytes = vec![0; 70_000];
    for len in [0, 15, 16, 33, LONGEST + 2] {
        assert!(Text::new(&mut bytes[..len]).is_none(), "{len}");
    }
    assert!(Text::new(&mut bytes[..32]).is_some());
    let mut tag = [0; LONGEST_TAG];
    assert!(
        Message::new(&bytes[..0], &mut tag).is_none() && Message::new(&bytes[..=LONGEST], &mut tag).is_none()
    );
    assert!(Message::new(&bytes[..LONGEST], &mut tag).is_some());
}

/// One set of queues for each processor, each claimed once, until it is put back.
#[test]
fn queues_are_claimed_once() {
    assert!(HmacKey::new(Hash::Sha1, &[0; 20]).is_some());
    let count = std::thread::available_parallelism().unwrap().get().min(64);
    let mut all: Vec<Queues> = (0..count).map(|_| claim()).collect();
    assert!(Queues::claim().is_none());
    drop(all.pop());
    all.push(claim());
    assert!(Queues::claim().is_none());
}
