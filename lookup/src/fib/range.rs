//! Conversion of nested prefixes to flat ranges, which both families' structures are built from.
//!
//! The result covers the whole address space without gaps, in ascending order, and no two neighbours
//! have the same value. Where no route reaches, the value is [`NO_ROUTE`].

use super::NO_ROUTE;

/// A prefix with its value; `address` is right-aligned in `width` bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) address: u128,
    pub(super) length: u8,
    pub(super) value: u32,
}

/// The addresses from `start` up to the next range's start (or the end of the address space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u128,
    pub(super) value: u32,
}

/// A prefix that the sweep is inside of.
struct Open {
    last: u128,
    value: u32,
}

/// Flattens `prefixes` of addresses `width` bits wide (32 or 128). Bits past a prefix's length are
/// ignored; of equal prefixes the last one holds.
pub(super) fn flatten(mut prefixes: Vec<Prefix>, width: u8) -> Vec<Range> {
    for prefix in &mut prefixes {
        prefix.address &= !host_bits(prefix.length, width);
    }
    // Outer before inner; the sort is stable, so of equal prefixes the last given comes last.
    prefixes.sort_by_key(|prefix| (prefix.address, prefix.length));

    let mut sweep = Sweep { ranges: Vec::with_capacity(prefixes.len() * 2 + 1), open: Vec::new() };
    sweep.emit(0, NO_ROUTE);
    for prefix in &prefixes {
        sweep.close_before(prefix.address);
        sweep.emit(prefix.address, prefix.value);
        sweep.open.push(Open { last: prefix.address | host_bits(prefix.length, width), value: prefix.value });
    }
    sweep.close_all(host_bits(0, width));
    sweep.ranges.shrink_to_fit();
    sweep.ranges
}

/// The bits of an address `width` bits wide that a prefix of `length` bits leaves open.
fn host_bits(length: u8, width: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(128 - width + length)).unwrap_or(0)
}

struct Sweep {
    ranges: Vec<Range>,
    open: Vec<Open>,
}

impl Sweep {
    /// Begins a range, or changes the value of one that has just begun at the same place.
    fn emit(&mut self, start: u128, value: u32) {
        if self.ranges.last().is_some_and(|range| range.start == start) {
            self.ranges.pop();
        }
        if self.ranges.last().is_none_or(|range| range.value != value) {
            self.ranges.push(Range { start, value });
        }
    }

    /// Leaves the prefixes that end before `address`; the prefix around them takes over again.
    fn close_before(&mut self, address: u128) {
        while let Some(last) = self.open.last().map(|open| open.last).filter(|last| *last < address) {
            self.open.pop();
            self.emit(last + 1, self.enclosing());
        }
    }

    /// Leaves every prefix; one that ends with the address space has nothing behind it.
    fn close_all(&mut self, last_address: u128) {
        while let Some(inner) = self.open.pop() {
            if inner.last < last_address {
                self.emit(inner.last + 1, self.enclosing());
            }
        }
    }

    fn enclosing(&self) -> u32 {
        self.open.last().map_or(NO_ROUTE, |open| open.value)
    }
}
