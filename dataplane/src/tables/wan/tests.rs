use lookup::classify::Header;
use policy::model::{OnFailure, Sticky, WanState};
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use tally::NoTally;
use wire::{Family, PortId};

use super::{Asked, Grounds, Path, Wan, WanId, Wans};
use crate::tables::Address;
use crate::tables::SLOTS;
use crate::verdict::Reason;

fn wan(name: &str, interface: u16, weight: u8, tier: u8) -> Wan {
    Wan {
        name: name.to_owned(),
        interface: PortId(interface),
        own: vec![Address::v4(u32::from(interface))],
        paths: [Path::Router(interface.into()), Path::None],
        weight,
        tier,
        state: WanState::Up,
        on_failure: OnFailure::Kill,
    }
}

fn made(list: &[Wan]) -> Wans {
    Wans::new(list.to_vec(), Vec::new(), None, 8, Sticky::Connection)
}

fn owner(wans: &Wans, hash: u32) -> Option<&str> {
    let id = wans.share(Family::V4, hash, &mut NoTally)?;
    wans.get(id).map(|wan| wan.name.as_str())
}

#[test]
fn shares_are_as_the_weights_within_a_twentieth() {
    let list = [wan("fibre", 1, 5, 1), wan("cable", 2, 3, 1), wan("dsl", 3, 2, 1), wan("lte", 4, 200, 2)];
    let shares = made(&list).shares(Family::V4);
    for (share, of_ten) in shares.iter().zip([5.0, 3.0, 2.0, 0.0]) {
        let wanted = SLOTS as f64 * of_ten / 10.0;
        assert!((*share as f64 - wanted).abs() <= wanted / 20.0, "{shares:?}");
    }
    assert_eq!(shares.iter().sum::<usize>(), SLOTS);
    assert_eq!(made(&list).shares(Family::V6), [0; 4], "no router of IPv6");
}

#[test]
fn a_lower_tier_serves_while_one_of_it_is_up() {
    let mut list = [wan("fibre", 1, 1, 1), wan("lte", 2, 1, 2), wan("sat", 3, 1, 3)];
    assert_eq!(made(&list).shares(Family::V4), [SLOTS, 0, 0]);
    list[0].state = WanState::Down;
    assert_eq!(made(&list).shares(Family::V4), [0, SLOTS, 0]);
    list[1].state = WanState::Down;
    assert_eq!(made(&list).shares(Family::V4), [0, 0, SLOTS]);
    list[2].state = WanState::Down;
    let wans = made(&list);
    assert_eq!(owner(&wans, 7), None);
    let mut asked = Asked { family: Family::V4, own_source: None, hash: 7 };
    assert_eq!(wans.choose(asked, |_| Header::default(), &mut NoTally), Err(Reason::RouteMissing));
    // The gateway itself asks by a WAN that is down whether it is back.
    asked.own_source = Some(Address::v4(2));
    let choice = wans.choose(asked, |_| Header::default(), &mut NoTally).unwrap();
    assert_eq!((choice.wan, choice.grounds), (WanId(1), Grounds::Source));
}

/// All flows of an address have one hash, and the hashes of neighbouring addresses are spread as the weights say.
#[test]
fn sources_are_spread_as_flows_are() {
    let list = [wan("fibre", 1, 3, 1), wan("cable", 2, 1, 1)];
    let wans = Wans::new(list.to_vec(), Vec::new(), None, 8, Sticky::Source);
    let spread = |source: u32, hash| wans.spread(Address::v4(source), hash, &mut NoTally);
    let (mut by_fibre, hosts) = (0, 4_000);
    for source in (0xc0a8_0000..).take(hosts) {
        assert_eq!(spread(source, 1), spread(source, 0xffff_0000));
        by_fibre += usize::from(owner(&wans, spread(source, 7)) == Some("fibre"));
    }
    assert!(by_fibre.abs_diff(hosts * 3 / 4) < hosts / 20, "{by_fibre} of {hosts}");
    assert_eq!(made(&list).spread(Address::v4(9), 7, &mut NoTally), 7);
}

proptest! {
    /// Resilient hashing: a WAN that goes moves its own flows and no other, wherever it stands and whatever its weight.
    #[test]
    fn a_wan_that_goes_moves_only_its_own_flows(
        weights in vec(1..=20_u8, 2..6),
        gone in any::<proptest::sample::Index>(),
        hashes in vec(any::<u32>(), 500),
    ) {
        let list: Vec<Wan> =
            (1..).zip(&weights).map(|(place, weight)| wan(&format!("wan{place}"), place, *weight, 1)).collect();
        let gone = gone.index(list.len());
        let name = list[gone].name.clone();
        let before = made(&list);
        let mut down = list.clone();
        down[gone].state = WanState::Down;
        let mut without = list.clone();
        without.remove(gone);
        for after in [made(&down), made(&without)] {
            for hash in &hashes {
                let (was, is) = (owner(&before, *hash), owner(&after, *hash));
                if was == Some(&name) {
                    prop_assert!(is.is_some_and(|other| other != name));
                } else {
                    prop_assert_eq!(was, is);
                }
            }
        }
    }

    /// A WAN of another weight takes flows from the others, or gives them some: none moves between the others.
    #[test]
    fn another_weight_moves_flows_to_or_from_its_wan_alone(weight in 1..=255_u8, hashes in vec(any::<u32>(), 300)) {
        let list = [wan("a", 1, 20, 1), wan("b", 2, 30, 1), wan("c", 3, 10, 1)];
        let mut changed = list.to_vec();
        changed[1].weight = weight;
        let (before, after) = (made(&list), made(&changed));
        for hash in hashes {
            let (was, is) = (owner(&before, hash), owner(&after, hash));
            prop_assert!(was == is || was == Some("b") || is == Some("b"));
        }
    }

    /// The order of the policy decides nothing.
    #[test]
    fn slots_are_of_names(hashes in vec(any::<u32>(), 100)) {
        let list = [wan("a", 1, 2, 1), wan("b", 2, 3, 1), wan("c", 3, 1, 1)];
        let turned: Vec<Wan> = list.iter().rev().cloned().collect();
        let (one, other) = (made(&list), made(&turned));
        for hash in hashes {
            prop_assert_eq!(owner(&one, hash), owner(&other, hash));
        }
    }
}
