//! Routing tables that look like the Internet's, made from a seed: for benchmarks and tests.
//!
//! The shares of prefix lengths follow the global BGP tables of 2024 and 2025 (bgp.potaroo.net, "BGP in
//! 2024" by G. Huston): three fifths of the IPv4 prefixes are /24, nearly half of the IPv6 prefixes are
//! /48, and more than half of all are more specific than another one. The next hops are drawn at random
//! for each prefix, so that neighbours rarely share one: that is harder than any real table.
//!
//! Promises: the same count and seed give the same table; no prefix twice; host bits are zero.

use std::collections::HashSet;

use super::{Route4, Route6};

/// Next-hop ids run from 0 up to this number: as many as a router with a great many neighbours has.
pub const NEXT_HOPS: u32 = 256;

/// An IPv4 table of `count` prefixes, in no order. `count` must leave room: up to five million is fine.
pub fn bgp_like4(count: usize, seed: u64) -> Vec<Route4> {
    let mut random = Random(seed);
    let mut seen = HashSet::with_capacity(count);
    let mut routes: Vec<Route4> = Vec::with_capacity(count);
    // What a holder was allocated, and where its more-specifics go.
    let mut holders: Vec<Route4> = Vec::new();
    let mut previous: Option<Route4> = None;
    while routes.len() < count {
        let length = random.weighted(&LENGTHS4);
        let address = match (random.below(100), previous) {
            // A holder often announces its /24s side by side.
            (0..30, Some(previous)) if length == previous.length => {
                previous.address.wrapping_add(1 << (32 - u32::from(length)))
            }
            (0..65, _) if length > 20 && !holders.is_empty() => {
                let holder = holders[random.index(holders.len())];
                holder.address | (random.next() as u32 & mask4(length) & !mask4(holder.length))
            }
            _ => random.next() as u32 & mask4(length),
        };
        let route = Route4 { address, length, value: random.below(NEXT_HOPS) };
        if is_unicast4(address) && seen.insert((address, length)) {
            if (12..=20).contains(&length) {
                holders.push(route);
            }
            previous = Some(route);
            routes.push(route);
        }
    }
    routes
}

/// An IPv6 table of `count` prefixes, in no order. `count` must leave room: up to two million is fine.
pub fn bgp_like6(count: usize, seed: u64) -> Vec<Route6> {
    let mut random = Random(seed);
    let mut seen = HashSet::with_capacity(count);
    let mut routes: Vec<Route6> = Vec::with_capacity(count);
    let mut holders: Vec<Route6> = Vec::new();
    while routes.len() < count {
        let length = random.weighted(&LENGTHS6);
        let bits = random.next_wide();
        let address = if length > 32 && !holders.is_empty() && random.below(100) < 80 {
            // Holders differ greatly in how much they split: the square prefers the early ones.
            let holder = holders[random.index(holders.len()) * random.index(holders.len()) / holders.len()];
            // They count up from zero as well as spread, so that low subnets are denser.
            let spread = if random.below(2) == 0 { bits } else { bits & !(0xfff << (128 - 44)) };
            holder.address | (spread & mask6(length) & !mask6(holder.length))
        } else {
            let (block, block_length) = random.weighted(&BLOCKS6);
            if length < block_length {
                continue;
            }
            (block << 96) | (bits & mask6(length) & !mask6(block_length))
        };
        let route = Route6 { address, length, value: random.below(NEXT_HOPS) };
        if seen.insert((address, length)) {
            if (28..=32).contains(&length) {
                holders.push(route);
            }
            routes.push(route);
        }
    }
    routes
}

/// A random address inside a random prefix of `routes`, `count` times. Empty where `routes` is.
pub fn destinations4(routes: &[Route4], count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let count = if routes.is_empty() { 0 } else { count };
    let destination = |_| {
        let route = routes[random.index(routes.len())];
        route.address | (random.next() as u32 & !mask4(route.length))
    };
    (0..count).map(destination).collect()
}

/// A random address inside a random prefix of `routes`, `count` times. Empty where `routes` is.
pub fn destinations6(routes: &[Route6], count: usize, seed: u64) -> Vec<u128> {
    let mut random = Random(seed);
    let count = if routes.is_empty() { 0 } else { count };
    let destination = |_| {
        let route = routes[random.index(routes.len())];
        route.address | (random.next_wide() & !mask6(route.length))
    };
    (0..count).map(destination).collect()
}

/// Prefix lengths and how many of a million prefixes have them.
const LENGTHS4: [(u8, u32); 23] = [
    (8, 16),
    (9, 14),
    (10, 42),
    (11, 110),
    (12, 320),
    (13, 650),
    (14, 1_300),
    (15, 2_200),
    (16, 13_800),
    (17, 8_400),
    (18, 14_000),
    (19, 25_000),
    (20, 45_000),
    (21, 53_000),
    (22, 112_000),
    (23, 100_000),
    (24, 620_148),
    (25, 700),
    (26, 700),
    (27, 600),
    (28, 500),
    (30, 500),
    (32, 2_000),
];

/// As [`LENGTHS4`], for IPv6.
const LENGTHS6: [(u8, u32); 24] = [
    (20, 100),
    (22, 150),
    (24, 350),
    (26, 200),
    (28, 1_200),
    (29, 28_000),
    (30, 3_500),
    (31, 1_500),
    (32, 115_000),
    (33, 15_000),
    (34, 12_000),
    (35, 8_000),
    (36, 52_000),
    (38, 18_000),
    (40, 95_000),
    (42, 22_000),
    (44, 98_000),
    (45, 9_000),
    (46, 28_000),
    (47, 30_000),
    (48, 452_000),
    (56, 3_000),
    (64, 6_000),
    (128, 2_000),
];

/// The registries' blocks that hold nearly all that is announced: the upper 32 bits and the length, with
/// the share of prefixes (IANA IPv6 Global Unicast Address Assignments).
const BLOCKS6: [((u128, u8), u32); 9] = [
    ((0x2001_0000, 16), 130),
    ((0x2400_0000, 12), 220),
    ((0x2600_0000, 12), 190),
    ((0x2620_0000, 16), 60),
    ((0x2800_0000, 13), 110),
    ((0x2a00_0000, 12), 180),
    ((0x2a10_0000, 13), 80),
    ((0x2c00_0000, 12), 20),
    ((0x2401_0000, 16), 10),
];

fn mask4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

/// Addresses that are announced at all: no 0/8, 10/8, 127/8, multicast or above.
fn is_unicast4(address: u32) -> bool {
    let octet = address >> 24;
    (1..=223).contains(&octet) && octet != 10 && octet != 127
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, and good enough to draw tables with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn next_wide(&mut self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }

    /// Below `bound`, which is above zero.
    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    fn index(&mut self, length: usize) -> usize {
        ((u128::from(self.next()) * length as u128) >> 64) as usize
    }

    fn weighted<V: Copy>(&mut self, choices: &[(V, u32)]) -> V {
        let mut left = self.below(choices.iter().map(|choice| choice.1).sum());
        for &(value, weight) in choices {
            if left < weight {
                return value;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}
