//! Any bytes as an ESP packet, under a key of every suite: forged, or text whose trailer is read. And what was sealed, changed inside,
//! comes out as it was put in, or not at all.
//!
//! The first byte chooses the suite, the second the case, the next eight are the number; the rest is the packet.
#![no_main]

use std::sync::LazyLock;

use esp::format;
use esp::{Forged, Keys, Packet, SPARE, Transform, expand};
use libfuzzer_sys::fuzz_target;
use wire::esp::{Direction, Esn, HEADER_LEN, SUITES, Secret, Suite};

static TRANSFORMS: LazyLock<Vec<Box<dyn Transform>>> = LazyLock::new(|| {
    let key = |len: u8| Secret::new((0..len).collect());
    let keys = |suite: &Suite| Keys { cipher: key(suite.key + suite.salt), auth: key(suite.auth_key) };
    SUITES.iter().filter_map(|suite| expand(suite, &keys(suite), Direction::In).ok()).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, case, ref number @ ..], rest)) = data.split_first_chunk::<10>() else { return };
    let number = u64::from_be_bytes(*number);
    let transform = &TRANSFORMS[usize::from(choice) % TRANSFORMS.len()];
    let suite = transform.suite();
    let esn = if case & 1 == 0 { Esn::Off } else { Esn::On };

    let mut bytes = rest.to_vec();
    match transform.open(Packet { bytes: &mut bytes, number, esn }) {
        Err(Forged) => {}
        Ok(()) => {
            assert_eq!(bytes[..SPARE + HEADER_LEN], rest[..SPARE + HEADER_LEN]);
            read(text(suite, &bytes));
        }
    }

    // The same bytes sealed: text of any kind under a right ICV. Bytes that are no packet are wiped.
    let mut bytes = rest.to_vec();
    transform.seal(Packet { bytes: &mut bytes, number, esn });
    let sealed = bytes.clone();
    if transform.open(Packet { bytes: &mut bytes, number, esn }).is_ok() {
        assert_eq!(text(suite, &bytes), text(suite, rest));
        read(text(suite, &bytes));
    } else {
        assert!(sealed.iter().all(|byte| *byte == 0));
    }
});

fn text<'a>(suite: &Suite, bytes: &'a [u8]) -> &'a [u8] {
    &bytes[SPARE + HEADER_LEN + usize::from(suite.iv)..bytes.len() - usize::from(suite.icv)]
}

fn read(text: &[u8]) {
    if let Ok(trailer) = format::untrail(text) {
        assert!(trailer.before + 2 <= text.len());
    }
}
