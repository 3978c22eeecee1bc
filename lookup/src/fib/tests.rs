use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::{prop_assert_eq, proptest};
use tally::{Count, NoTally, Region};

use super::generate::{bgp_like4, bgp_like6, destinations4, destinations6};
use super::{Fib4, Fib6, FibError, MAX_ROUTES, MAX_VALUE, NO_ROUTE, Route4, Route6, check, range};

/// The oracle: every route is looked at, the longest that matches wins, the last of equals holds.
fn naive(routes: &[Route6], destination: u128, width: u32) -> Option<u32> {
    let matches = |route: &&Route6| {
        let host = width - u32::from(route.length);
        host >= 128 || route.address >> host == destination >> host
    };
    routes.iter().filter(matches).max_by_key(|route| route.length).map(|route| route.value)
}

fn widen(routes: &[Route4]) -> Vec<Route6> {
    let widen =
        |route: &Route4| Route6 { address: route.address.into(), length: route.length, value: route.value };
    routes.iter().map(widen).collect()
}

/// First and last address of each prefix, the ones just outside, and one inside.
fn corners6(routes: &[Route6], width: u32) -> Vec<u128> {
    let all = u128::MAX >> (128 - width);
    let mut corners = vec![0, 1, all, all - 1, all / 2, all / 2 + 1];
    for route in routes {
        let host = all.checked_shr(u32::from(route.length)).unwrap_or(0);
        let (first, last) = (route.address & !host, route.address | host);
        corners.extend([first, last, route.address, first.wrapping_sub(1) & all, last.wrapping_add(1) & all]);
        corners.extend([(first + 1) & all, last.saturating_sub(1)]);
    }
    corners
}

fn corners4(routes: &[Route4]) -> Vec<u32> {
    corners6(&widen(routes), 32).into_iter().map(|corner| corner as u32).collect()
}

#[track_caller]
fn agree4(routes: &[Route4], destinations: &[u32]) {
    let fib = Fib4::new(routes).unwrap();
    let mut hops = vec![0; destinations.len()];
    fib.lookup_bulk(destinations, &mut hops);
    let wide = widen(routes);
    for (destination, hop) in destinations.iter().zip(hops) {
        let expected = naive(&wide, u128::from(*destination), 32);
        assert_eq!(fib.lookup(*destination, &mut NoTally), expected, "{destination:#x} in {routes:x?}");
        assert_eq!(hop, expected.unwrap_or(NO_ROUTE), "in bulk: {destination:#x} in {routes:x?}");
    }
}

#[track_caller]
fn agree6(routes: &[Route6], destinations: &[u128]) {
    let fib = Fib6::new(routes).unwrap();
    let mut hops = vec![0; destinations.len()];
    fib.lookup_bulk(destinations, &mut hops);
    for (destination, hop) in destinations.iter().zip(hops) {
        let expected = naive(routes, *destination, 128);
        assert_eq!(fib.lookup(*destination, &mut NoTally), expected, "{destination:#x} in {routes:x?}");
        assert_eq!(hop, expected.unwrap_or(NO_ROUTE), "in bulk: {destination:#x} in {routes:x?}");
    }
}

/// Lengths at and beside the places where the structures take their steps, and any others.
fn length4() -> impl Strategy<Value = u8> {
    prop_oneof![select(vec![0, 1, 11, 12, 13, 17, 18, 19, 23, 24, 25, 29, 30, 31, 32]), 0..=32_u8]
}

fn length6() -> impl Strategy<Value = u8> {
    let steps =
        vec![0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 80, 81, 95, 96, 97, 111, 112, 113];
    prop_oneof![select(steps), select(vec![126, 127, 128]), 0..=128_u8]
}

/// Addresses with few distinct bytes, so that prefixes nest, touch and repeat.
fn address(bytes: usize) -> impl Strategy<Value = u128> {
    let byte = select(vec![0_u8, 0, 1, 0x7f, 0x80, 0xff, 0xff]);
    prop_oneof![
        3 => vec(byte, bytes).prop_map(|bytes| bytes.iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))),
        1 => any::<u128>().prop_map(move |address| address >> (128 - 8 * bytes)),
    ]
}

/// Few values, so that neighbours often agree and merge, and the largest.
fn value() -> impl Strategy<Value = u32> {
    prop_oneof![0..3_u32, select(vec![MAX_VALUE, MAX_VALUE - 1])]
}

fn routes4(count: usize) -> impl Strategy<Value = Vec<Route4>> {
    let route = (address(4), length4(), value());
    vec(
        route.prop_map(|(address, length, value)| Route4 { address: address as u32, length, value }),
        0..count,
    )
}

fn routes6(count: usize) -> impl Strategy<Value = Vec<Route6>> {
    let route = (address(16), length6(), value());
    vec(route.prop_map(|(address, length, value)| Route6 { address, length, value }), 0..count)
}

proptest! {
    #[test]
    fn fib4_equals_naive(routes in routes4(60), others in vec(address(4), 0..40)) {
        let mut destinations = corners4(&routes);
        destinations.extend(others.iter().map(|&address| address as u32));
        agree4(&routes, &destinations);
    }

    #[test]
    fn fib6_equals_naive(routes in routes6(60), others in vec(address(16), 0..40)) {
        let mut destinations = corners6(&routes, 128);
        destinations.extend(&others);
        agree6(&routes, &destinations);
    }

    /// Enough routes for the 16-bit index and for search trees of more than one level.
    #[test]
    fn large_fib6_equals_naive(routes in routes6(700), others in vec(address(16), 0..40)) {
        let mut destinations = corners6(&routes, 128);
        destinations.truncate(600);
        destinations.extend(&others);
        agree6(&routes, &destinations);
    }
}

// Wide first steps take longer to make than all else here.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Both widths of the first step, on the same routes.
    #[test]
    fn first_step_does_not_matter(routes in routes4(60), wide in routes6(60)) {
        let fibs = [14, 18].map(|bits| Fib4::with_root_bits(&routes, bits).unwrap());
        for destination in corners4(&routes) {
            let expected = naive(&widen(&routes), destination.into(), 32);
            for fib in &fibs {
                prop_assert_eq!(fib.lookup(destination, &mut NoTally), expected);
            }
        }
        let fibs = [0, 16].map(|bits| Fib6::with_root_bits(&wide, bits).unwrap());
        for destination in corners6(&wide, 128) {
            let expected = naive(&wide, destination, 128);
            for fib in &fibs {
                prop_assert_eq!(fib.lookup(destination, &mut NoTally), expected);
            }
        }
    }

    /// The groups of a look-up in bulk, the wide first step and long prefixes together.
    #[test]
    fn bulk_equals_one_by_one(routes in routes4(60), wide in routes6(60)) {
        let fib = Fib4::with_root_bits(&routes, 18).unwrap();
        let destinations = corners4(&routes);
        let mut hops = vec![0; destinations.len()];
        fib.lookup_bulk(&destinations, &mut hops);
        for (destination, hop) in destinations.iter().zip(hops) {
            prop_assert_eq!(fib.lookup(*destination, &mut NoTally).unwrap_or(NO_ROUTE), hop);
        }
        let fib = Fib6::with_root_bits(&wide, 16).unwrap();
        let destinations = corners6(&wide, 128);
        let mut hops = vec![0; destinations.len()];
        fib.lookup_bulk(&destinations, &mut hops);
        for (destination, hop) in destinations.iter().zip(hops) {
            prop_assert_eq!(fib.lookup(*destination, &mut NoTally).unwrap_or(NO_ROUTE), hop);
        }
    }
}

#[test]
fn internet_like_tables_equal_naive() {
    for count in [1, 2, 1_000, 6_000] {
        let routes = bgp_like4(count, 7);
        let mut destinations = destinations4(&routes, 300, 8);
        destinations.extend(corners4(&routes[..routes.len().min(100)]));
        agree4(&routes, &destinations);

        let routes = bgp_like6(count, 7);
        let mut destinations = destinations6(&routes, 300, 8);
        destinations.extend(corners6(&routes[..routes.len().min(100)], 128));
        agree6(&routes, &destinations);
    }
}

/// Work, and stay in the cache: a flat table of all /24s alone would take 32 MB.
#[test]
fn a_million_prefixes_work() {
    // A linear scan of so many takes its time: few destinations.
    let routes = bgp_like4(1_000_000, 3);
    assert!(Fib4::new(&routes).unwrap().memory_bytes() < 12 << 20);
    agree4(&routes, &destinations4(&routes, 60, 4));
    let routes = bgp_like6(1_000_000, 3);
    agree6(&routes, &destinations6(&routes, 60, 4));
}

/// The sweep's ranges, which the properties above hold to a linear scan, make this quick enough for more.
#[test]
fn both_ends_of_every_range_are_found() {
    for count in [100, 200_000] {
        let routes = bgp_like4(count, 11);
        let fib = Fib4::new(&routes).unwrap();
        let prefix = |route: &Route6| range::Prefix {
            address: route.address,
            length: route.length,
            value: route.value,
        };
        let ranges = range::flatten(widen(&routes).iter().map(prefix).collect(), 32);
        for (index, range) in ranges.iter().enumerate() {
            let last = ranges.get(index + 1).map_or(u32::MAX, |next| (next.start - 1) as u32);
            let expected = (range.value != NO_ROUTE).then_some(range.value);
            assert_eq!(fib.lookup(range.start as u32, &mut NoTally), expected);
            assert_eq!(fib.lookup(last, &mut NoTally), expected);
        }

        let routes = bgp_like6(count, 11);
        let fib = Fib6::new(&routes).unwrap();
        let ranges = range::flatten(routes.iter().map(prefix).collect(), 128);
        for (index, range) in ranges.iter().enumerate() {
            let last = ranges.get(index + 1).map_or(u128::MAX, |next| next.start - 1);
            let expected = (range.value != NO_ROUTE).then_some(range.value);
            assert_eq!(fib.lookup(range.start, &mut NoTally), expected);
            assert_eq!(fib.lookup(last, &mut NoTally), expected);
        }
    }
}

#[test]
fn neighbours_with_one_value_become_one_range() {
    let prefix = |address, length, value| range::Prefix { address, length, value };
    let default = prefix(0, 0, 1);
    // Two halves of a /24 beside a /24, all alike; within them a hole that agrees with the default.
    let alike = [prefix(0x100, 25, 2), prefix(0x180, 25, 2), prefix(0x200, 24, 2), prefix(0x210, 28, 1)];
    let ranges = range::flatten([&[default], &alike[..]].concat(), 32);
    let ranges: Vec<_> = ranges.iter().map(|range| (range.start, range.value)).collect();
    assert_eq!(ranges, [(0, 1), (0x100, 2), (0x210, 1), (0x220, 2), (0x300, 1)]);
}

#[test]
fn an_empty_table_has_no_route() {
    agree4(&[], &[0, 1, u32::MAX]);
    agree6(&[], &[0, 1, u128::MAX]);
}

#[test]
fn a_default_route_catches_the_rest() {
    let default = Route4 { address: 0, length: 0, value: 9 };
    let host = Route4 { address: 0xc000_0201, length: 32, value: 1 };
    agree4(&[default, host], &[0, 0xc000_0200, 0xc000_0201, 0xc000_0202, u32::MAX]);
    let default = Route6 { address: 0, length: 0, value: 9 };
    let host = Route6 { address: u128::MAX, length: 128, value: 1 };
    agree6(&[host, default], &[0, u128::MAX - 1, u128::MAX]);
}

#[test]
fn the_last_of_equal_prefixes_holds() {
    let old = Route4 { address: 0x0a01_02ff, length: 24, value: 1 };
    let new = Route4 { address: 0x0a01_0200, length: 24, value: 2 };
    assert_eq!(Fib4::new(&[old, new]).unwrap().lookup(0x0a01_0203, &mut NoTally), Some(2));
    assert_eq!(Fib4::new(&[new, old]).unwrap().lookup(0x0a01_0203, &mut NoTally), Some(1));
}

#[test]
fn few_routes_take_little_memory() {
    let routes = bgp_like4(5, 1);
    assert!(Fib4::new(&routes).unwrap().memory_bytes() < 272 << 10);
    let routes = bgp_like6(5, 1);
    assert!(Fib6::new(&routes).unwrap().memory_bytes() < 8 << 10);
}

#[test]
fn limits_are_held() {
    let route = Route4 { address: 0, length: 33, value: 0 };
    assert_eq!(Fib4::new(&[route]).err(), Some(FibError::Length { index: 0, length: 33 }));
    let route = Route6 { address: 0, length: 129, value: 0 };
    assert_eq!(Fib6::new(&[route]).err(), Some(FibError::Length { index: 0, length: 129 }));
    let (good, bad) = (Route6 { address: 0, length: 0, value: MAX_VALUE }, MAX_VALUE + 1);
    assert_eq!(
        Fib6::new(&[good, Route6 { value: bad, ..good }]).err(),
        Some(FibError::Value { index: 1, value: bad })
    );
    let many = vec![range::Prefix { address: 0, length: 0, value: 0 }; MAX_ROUTES + 1];
    assert_eq!(check(&many, 32), Err(FibError::Routes { count: MAX_ROUTES + 1 }));
    assert_eq!(check(&many[1..], 32), Ok(()));
}

#[test]
fn bulk_stops_at_the_shorter_side() {
    let fib = Fib4::new(&[Route4 { address: 0, length: 0, value: 5 }]).unwrap();
    let mut hops = [77; 3];
    fib.lookup_bulk(&[1, 2], &mut hops);
    assert_eq!(hops, [5, 5, 77]);
    fib.lookup_bulk(&[1; 8], &mut hops);
    assert_eq!(hops, [5; 3]);
    let fib = Fib6::new(&[Route6 { address: 1, length: 128, value: 5 }]).unwrap();
    let mut hops = [77; 40];
    fib.lookup_bulk(&[1; 39], &mut hops);
    assert_eq!((hops[0], hops[38], hops[39]), (5, 5, 77));
    fib.lookup_bulk(&[0; 100], &mut hops[..33]);
    assert_eq!((hops[0], hops[32], hops[33]), (NO_ROUTE, NO_ROUTE, 5));
}

/// All reads reported to a chip model lie inside the table.
#[test]
fn the_tally_stays_inside_the_table() {
    struct Farthest(usize);
    impl tally::Tally for Farthest {
        fn execute(&mut self, _: tally::Op, _: u32) {}
        fn read(&mut self, region: Region, at: usize, bytes: u32) {
            assert_eq!(region, Region::RouteTable);
            self.0 = self.0.max(at + bytes as usize);
        }
        fn write(&mut self, _: Region, _: usize, _: u32) {
            panic!("a look-up writes nothing");
        }
        fn atomic(&mut self, _: Region, _: usize, _: u32) {
            panic!("a look-up writes nothing");
        }
        fn hash(&mut self, _: u32) {
            panic!("a look-up hashes nothing");
        }
    }
    let mut farthest = Farthest(0);
    let routes = bgp_like4(5_000, 1);
    let fib = Fib4::new(&routes).unwrap();
    for destination in destinations4(&routes, 5_000, 2) {
        fib.lookup(destination, &mut farthest);
    }
    assert!((fib.memory_bytes() / 2..=fib.memory_bytes()).contains(&farthest.0));
    let mut farthest = Farthest(0);
    let routes = bgp_like6(5_000, 1);
    let fib = Fib6::new(&routes).unwrap();
    for destination in destinations6(&routes, 5_000, 2) {
        fib.lookup(destination, &mut farthest);
    }
    assert!((fib.memory_bytes() / 2..=fib.memory_bytes()).contains(&farthest.0));
}

#[test]
fn a_route_of_24_bits_costs_two_reads() {
    let fib = Fib4::with_root_bits(&[Route4 { address: 0x0a01_0200, length: 24, value: 2 }], 18).unwrap();
    let mut count = Count::default();
    assert_eq!(fib.lookup(0x0a01_0203, &mut count), Some(2));
    assert_eq!(count.references(Region::RouteTable).reads, 2);
}

/// Returns the percentage of `routes` that lie inside another route.
fn nested(routes: &[Route6], width: u8) -> usize {
    let cut = |address: u128, length: u8| address.checked_shr(u32::from(width - length)).unwrap_or(0);
    let all: HashSet<(u128, u8)> =
        routes.iter().map(|route| (cut(route.address, route.length), route.length)).collect();
    let inside =
        |route: &&Route6| (0..route.length).any(|length| all.contains(&(cut(route.address, length), length)));
    routes.iter().filter(inside).count() * 100 / routes.len()
}

#[test]
fn generated_tables_repeat_and_look_as_they_promise() {
    let routes = bgp_like4(200_000, 5);
    assert_eq!(routes, bgp_like4(200_000, 5));
    assert_ne!(routes, bgp_like4(200_000, 6));
    let of_24 = routes.iter().filter(|route| route.length == 24).count();
    assert!((116_000..140_000).contains(&of_24), "{of_24}");
    let nested4 = nested(&widen(&routes), 32);
    assert!((40..75).contains(&nested4), "{nested4}");

    let routes = bgp_like6(200_000, 5);
    assert_eq!(routes, bgp_like6(200_000, 5));
    let of_48 = routes.iter().filter(|route| route.length == 48).count();
    assert!((80_000..104_000).contains(&of_48), "{of_48}");
    let nested6 = nested(&routes, 128);
    assert!((40..75).contains(&nested6), "{nested6}");
}
