use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::{prop_assert_eq, proptest};
use tally::{Count, NoTally, Region};

use super::generate::{bgp_like4, bgp_like6, destinations4, destinations6};
use super::{Fib4, Fib6, FibError, MAX_ROUTES, MAX_VALUE, NO_ROUTE, Route4, Route6, check, range};

/// The oracle: every route is looked at, the longest that matches wins, the last of equals holds.
fn naive6(routes: &[Route6], destination: u128, width: u32) -> Option<u32> {
    let matches = |route: &&Route6| {
        let host = width - u32::from(route.length);
        host >= 128 || route.address >> host == destination >> host
    };
    routes.iter().filter(matches).max_by_key(|route| route.length).map(|route| route.value)
}

fn naive4(routes: &[Route4], destination: u32) -> Option<u32> {
    let wide: Vec<Route6> = routes
        .iter()
        .map(|route| Route6 { address: route.address.into(), length: route.length, value: route.value })
        .collect();
    naive6(&wide, destination.into(), 32)
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
    let wide: Vec<Route6> = routes
        .iter()
        .map(|route| Route6 { address: route.address.into(), length: route.length, value: route.value })
        .collect();
    corners6(&wide, 32).into_iter().map(|corner| corner as u32).collect()
}

#[track_caller]
fn agree4(routes: &[Route4], destinations: &[u32]) {
    let fib = Fib4::new(routes).unwrap();
    let mut hops = vec![0; destinations.len()];
    fib.lookup_bulk(destinations, &mut hops);
    for (destination, hop) in destinations.iter().zip(hops) {
        let expected = naive4(routes, *destination);
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
        let expected = naive6(routes, *destination, 128);
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

    /// Both widths of the root, by way of the builder, on the same routes.
    #[test]
    fn root_width_does_not_matter(routes in routes4(60), wide in routes6(60)) {
        let narrow = Fib4::with_root_bits(&routes, 12).unwrap();
        let broad = Fib4::with_root_bits(&routes, 18).unwrap();
        for destination in corners4(&routes) {
            prop_assert_eq!(narrow.lookup(destination, &mut NoTally), naive4(&routes, destination));
            prop_assert_eq!(broad.lookup(destination, &mut NoTally), naive4(&routes, destination));
        }
        let narrow = Fib6::with_root_bits(&wide, 0).unwrap();
        let broad = Fib6::with_root_bits(&wide, 16).unwrap();
        for destination in corners6(&wide, 128) {
            prop_assert_eq!(narrow.lookup(destination, &mut NoTally), naive6(&wide, destination, 128));
            prop_assert_eq!(broad.lookup(destination, &mut NoTally), naive6(&wide, destination, 128));
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

#[test]
fn a_million_prefixes_work() {
    // A linear scan for each destination would take too long: a few, and all ranges of the sweep.
    let routes = bgp_like4(1_000_000, 3);
    agree4(&routes, &destinations4(&routes, 60, 4));
    let routes = bgp_like6(1_000_000, 3);
    agree6(&routes, &destinations6(&routes, 60, 4));
}

#[test]
fn every_range_of_a_full_table_is_found() {
    let fib = |count| {
        let routes = bgp_like4(count, 11);
        let fib = Fib4::new(&routes).unwrap();
        let prefixes = routes
            .iter()
            .map(|route| range::Prefix {
                address: route.address.into(),
                length: route.length,
                value: route.value,
            })
            .collect();
        (fib, range::flatten(prefixes, 32))
    };
    for count in [100, 200_000] {
        let (fib, ranges) = fib(count);
        for (index, range) in ranges.iter().enumerate() {
            let last = ranges.get(index + 1).map_or(u32::MAX, |next| (next.start - 1) as u32);
            let expected = (range.value != NO_ROUTE).then_some(range.value);
            assert_eq!(fib.lookup(range.start as u32, &mut NoTally), expected);
            assert_eq!(fib.lookup(last, &mut NoTally), expected);
        }
    }
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
    assert!(Fib4::new(&routes).unwrap().memory_bytes() < 128 << 10);
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

/// What a chip model is told to read lies inside the table.
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

#[test]
fn generated_tables_repeat_and_have_the_shares_they_promise() {
    let routes = bgp_like4(50_000, 5);
    assert_eq!(routes, bgp_like4(50_000, 5));
    assert_ne!(routes, bgp_like4(50_000, 6));
    let of_24 = routes.iter().filter(|route| route.length == 24).count();
    assert!((28_000..35_000).contains(&of_24), "{of_24}");
    let routes = bgp_like6(50_000, 5);
    assert_eq!(routes, bgp_like6(50_000, 5));
    let of_48 = routes.iter().filter(|route| route.length == 48).count();
    assert!((20_000..26_000).contains(&of_48), "{of_48}");
}
