use proptest::collection::vec;
use proptest::prelude::*;

use tally::NoTally;

use super::*;

/// Routers of the given weights; their places differ from their order.
fn routers(weights: &[u8]) -> Vec<Share> {
    let share = |(number, weight): (u32, &u8)| Share { router: 100 - number, weight: u32::from(*weight) };
    (1..).zip(weights).map(share).collect()
}

fn name(router: u32) -> String {
    format!("192.0.2.{router}%wan")
}

fn chosen(routers: &[Share], hashes: &[u32]) -> Vec<u32> {
    let mut ways = Ways::default();
    // Another target's run in front.
    ways.add(&routers[..1], name);
    let first = ways.add(routers, name);
    hashes.iter().map(|hash| ways.choose(first, routers.len() as u32, *hash, &mut NoTally).unwrap()).collect()
}

#[test]
fn a_run_has_each_router_once_and_one_router_needs_no_slots() {
    let list = routers(&[1, 5]);
    let mut ways = Ways::default();
    let (alone, both) = (ways.add(&list[..1], name), ways.add(&list, name));
    assert_eq!((ways.of(alone, 1), ways.of(both, 2)), (&[99][..], &[99, 98][..]));
    assert_eq!((both, ways.choose(alone, 1, u32::MAX, &mut NoTally)), (1, Some(99)));
}

#[test]
fn shares_are_as_the_weights_say() {
    let weights = [1, 2, 5];
    let list = routers(&weights);
    let hashes: Vec<u32> = (0..80_000_u32).map(|number| number.wrapping_mul(0x9e37_79b9)).collect();
    let chosen = chosen(&list, &hashes);
    for (share, weight) in list.iter().zip(weights) {
        let expected = hashes.len() * usize::from(weight) / 8;
        let count = chosen.iter().filter(|router| **router == share.router).count();
        assert!(count.abs_diff(expected) < hashes.len() / 40, "{count}, not {expected}");
    }
}

proptest! {
    /// RFC 2992's measure: of the flows of the others none moves, whichever router goes and wherever it stands.
    #[test]
    fn a_router_that_goes_moves_only_its_own_flows(
        weights in vec(1..=255_u8, 3..9),
        gone in any::<proptest::sample::Index>(),
        hashes in vec(any::<u32>(), 500),
    ) {
        let list = routers(&weights);
        let gone = gone.index(list.len());
        let mut rest = list.clone();
        let gone = rest.remove(gone).router;
        rest.rotate_left(1);
        for (was, is) in chosen(&list, &hashes).into_iter().zip(chosen(&rest, &hashes)) {
            let stays = was != gone;
            prop_assert_eq!(stays, was == is);
        }
    }
}
