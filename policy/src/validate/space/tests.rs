use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};

use super::{Family, Interval, Space};

/// Spaces of the 64 lowest and highest IPv6 addresses, small enough to be counted out.
fn space() -> impl Strategy<Value = Space> {
    vec((0..64_u128, 0..64_u128, any::<bool>()), 0..6).prop_map(|pairs| {
        let interval = |(a, b, high): (u128, u128, bool)| {
            let (first, last) = (a.min(b), a.max(b));
            if high {
                Interval { first: u128::MAX - last, last: u128::MAX - first }
            } else {
                Interval { first, last }
            }
        };
        Space::of_intervals(Family::V6, pairs.into_iter().map(interval).collect())
    })
}

fn points() -> impl Iterator<Item = u128> {
    (0..70).chain((0..70).map(|below| u128::MAX - below))
}

fn has(space: &Space, point: u128) -> bool {
    space.intervals(Family::V6).iter().any(|interval| interval.first <= point && point <= interval.last)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_algebra_holds_point_by_point(a in space(), b in space()) {
        let union = a.clone().union(&b);
        let both = a.intersection(&b);
        let complement = a.complement();
        for point in points() {
            prop_assert_eq!(has(&union, point), has(&a, point) || has(&b, point));
            prop_assert_eq!(has(&both, point), has(&a, point) && has(&b, point));
            prop_assert_eq!(has(&a.without(&b), point), has(&a, point) && !has(&b, point));
            prop_assert_eq!(has(&complement, point), !a.is_empty() && !has(&a, point));
        }
        prop_assert_eq!(a.overlaps(&b), points().any(|point| has(&a, point) && has(&b, point)));
        prop_assert_eq!(a.covers(&b, Family::V6), points().all(|point| has(&a, point) || !has(&b, point)));
        prop_assert_eq!(a.count(Family::V6), points().filter(|point| has(&a, *point)).count() as u128);
    }
}
