//! Nothing is allocated for packets, by any library, from a thread's first packet on.
#![allow(clippy::unwrap_used)] // A failure here is the test's.

use allocation_counter::measure;
use esp::{Forged, Keys, Packet, SPARE, expand_by_each};
use wire::esp::{Direction, Esn, HEADER_LEN, SUITES, Secret};

/// Packets together.
const TOGETHER: usize = 40;

fn packets(bytes: &mut [Vec<u8>]) -> Vec<Packet<'_>> {
    bytes.iter_mut().zip(1..).map(|(bytes, number)| Packet { bytes, number, esn: Esn::On }).collect()
}

#[test]
fn no_packet_makes_a_library_allocate() {
    for suite in &SUITES {
        let key = |len: usize| Secret::new((0..len as u8).map(|at| at.wrapping_mul(37)).collect());
        let keys =
            Keys { cipher: key(usize::from(suite.key + suite.salt)), auth: key(usize::from(suite.auth_key)) };
        let seals = expand_by_each(suite, &keys, Direction::Out).unwrap();
        let opens = expand_by_each(suite, &keys, Direction::In).unwrap();
        for (seal, open) in seals.iter().zip(&opens) {
            let name = format!("{} {}", suite.name(), seal.library(100));
            let around = SPARE + HEADER_LEN + usize::from(suite.iv) + usize::from(suite.icv);
            // Short and long, and some that are no packets.
            let len = |place: usize| around + [16, 320, 1, 1408][place % 4];
            let mut bytes: Vec<Vec<u8>> = (0..TOGETHER).map(|place| vec![0x5a; len(place)]).collect();
            let mut outcomes = [Err(Forged); TOGETHER];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut sealed = packets(&mut bytes);
                    let info = measure(|| seal.seal_many(&mut sealed));
                    assert_eq!(info.count_total, 0, "{name}");
                });
            });
            let mut sealed = packets(&mut bytes);
            let info = measure(|| open.open_many(&mut sealed, &mut outcomes));
            assert_eq!(info.count_total, 0, "{name}");
            assert!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() >= TOGETHER / 4 * 3, "{name}");
        }
    }
}
