//! Many packets at once: in groups of odd sizes, of many threads, and of lengths that libraries do not take.

use std::thread;

use super::*;

/// Of each library, both directions.
fn each_both(suite: &'static Suite, keys: &Keys) -> impl Iterator<Item = [Box<dyn Transform>; 2]> {
    let mut all = [Direction::Out, Direction::In].map(|direction| {
        let mut all = each(suite, keys, direction);
        all.push(expand(suite, keys, direction).unwrap());
        all
    });
    let opens = std::mem::take(&mut all[1]);
    std::mem::take(&mut all[0]).into_iter().zip(opens).map(|(seal, open)| [seal, open])
}

/// Packets with texts of these lengths, each sealed by itself by the library that stands last: RustCrypto's, or ring.
fn sealed_alone(
    suite: &'static Suite,
    keys: &Keys,
    lengths: &[usize],
    number: u64,
    esn: Esn,
) -> [Vec<Vec<u8>>; 2] {
    let texts = lengths.iter().zip(number..);
    let clear: Vec<_> =
        texts.map(|(len, number)| unsealed(suite, 0x1000, number, &vec![*len as u8; *len]).0).collect();
    let mut sealed = clear.clone();
    let alone = each(suite, keys, Direction::Out).pop().unwrap();
    together(&mut sealed, number, esn).into_iter().for_each(|packet| alone.seal(packet));
    [clear, sealed]
}

/// Seals and opens these packets together by each library, and compares. Every fourth one is changed before it is opened.
fn hold(suite: &'static Suite, lengths: &[usize], esn: Esn) {
    let (keys, number) = (made_up(suite, 7), u64::from(u32::MAX) - 3);
    let [clear, sealed] = sealed_alone(suite, &keys, lengths, number, esn);
    let is_packet = |len: usize| len > 0 && suite.is_whole(len);
    for [seal, open] in each_both(suite, &keys) {
        let name = format!("{} {} of {}", suite.name(), seal.library(100), lengths.len());
        let mut made = clear.clone();
        seal.seal_many(&mut together(&mut made, number, esn));
        assert!(made == sealed, "{name}");
        let is_changed = |place: usize| suite.icv > 0 && place % 4 == 1;
        let changed = made.iter_mut().enumerate().filter(|(place, _)| is_changed(*place));
        changed.for_each(|(_, bytes)| *bytes.last_mut().unwrap() ^= 1);
        // Whoever reads outcomes of before sees them overwritten.
        let mut outcomes = vec![Ok(()); made.len()];
        open.open_many(&mut together(&mut made, number, esn), &mut outcomes);
        for (place, outcome) in outcomes.iter().enumerate() {
            let is_genuine = is_packet(lengths[place]) && !is_changed(place);
            assert_eq!(outcome.is_ok(), is_genuine, "{name}: {place}");
            if is_genuine {
                let text =
                    SPARE + HEADER_LEN + usize::from(suite.iv)..made[place].len() - usize::from(suite.icv);
                assert!(made[place][text.clone()] == clear[place][text], "{name}: {place}");
            }
        }
    }
}

#[test]
fn groups_of_odd_sizes_are_as_one_after_another() {
    for suite in suites() {
        for size in [1_usize, 7, 16, 17, 33] {
            // Texts of many lengths, some of which no packet has: none, or parts of a block.
            let lengths: Vec<usize> = (0..size)
                .map(|place| match place % 6 {
                    5 => place * 5 % 19,
                    at => (place * 97 % 1500 + at * 16).next_multiple_of(suite.align.into()),
                })
                .collect();
            for esn in [Esn::Off, Esn::On] {
                hold(suite, &lengths, esn);
            }
        }
    }
}

/// Around 64 kB, where some libraries' counters end.
#[test]
fn texts_of_64_kb_are_as_any_others() {
    for suite in suites().into_iter().filter(|suite| suite.standing == wire::esp::Standing::Current) {
        let lengths: Vec<usize> = (65_408..65_600).step_by(16).collect();
        hold(suite, &lengths, Esn::On);
    }
}

/// One transform, and more threads than a library may have queues.
#[test]
fn threads_share_a_transform() {
    for name in [("aes128-cbc", Some("hmac-sha1-96")), ("aes256-gcm", None), ("chacha20-poly1305", None)] {
        let suite = Suite::named(name.0, name.1).unwrap();
        let keys = made_up(suite, 5);
        for [seal, open] in each_both(suite, &keys) {
            let (seal, open) = (&*seal, &*open);
            thread::scope(|scope| {
                for of in 0..8_usize {
                    let keys = &keys;
                    scope.spawn(move || {
                        let lengths: Vec<usize> = (1..=20).map(|at| at * (of + 1) * 16 % 1504 + 16).collect();
                        let number = 1000 * of as u64;
                        let [clear, sealed] = sealed_alone(suite, keys, &lengths, number, Esn::On);
                        for _ in 0..10 {
                            let mut made = clear.clone();
                            seal.seal_many(&mut together(&mut made, number, Esn::On));
                            assert!(made == sealed, "{}", suite.name());
                            let mut outcomes = vec![Err(Forged); made.len()];
                            open.open_many(&mut together(&mut made, number, Esn::On), &mut outcomes);
                            assert!(outcomes.iter().all(Result::is_ok), "{}", suite.name());
                        }
                    });
                }
            });
        }
    }
}

/// Another library stands in meanwhile.
#[cfg(feature = "ipsec-mb")]
#[test]
fn packets_are_sealed_while_all_queues_are_claimed() {
    for name in [("aes128-cbc", Some("hmac-sha256-128")), ("chacha20-poly1305", None)] {
        let suite = Suite::named(name.0, name.1).unwrap();
        if !ipsec_mb::has(suite) {
            continue;
        }
        drop(each(suite, &made_up(suite, 1), Direction::Out));
        // One for each processor. Tests beside this one have them for a moment.
        let mut claimed = Vec::new();
        while claimed.len() < thread::available_parallelism().unwrap().get().min(64) {
            claimed.extend(ipsecmb::Queues::claim());
        }
        hold(suite, &[16, 1408, 64, 0, 15, 256, 512], Esn::On);
    }
}
