//! Sets of numbers as sorted, disjoint ranges: ports and addresses, with exact union, intersection and complement. Importers
//! use the sets for negated conditions, and for overlap of rules.

/// Most ranges of one mask.
const MOST_MASKED: u64 = 128;

/// A set of numbers from 0 to `max`, as ranges that neither touch nor overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    max: u128,
    list: Vec<(u128, u128)>,
}

impl Ranges {
    /// Returns all numbers from 0 to `max`.
    pub(super) fn all(max: u128) -> Ranges {
        Ranges { max, list: vec![(0, max)] }
    }

    /// Returns the empty set within 0 to `max`.
    pub(super) fn none(max: u128) -> Ranges {
        Ranges { max, list: Vec::new() }
    }

    /// Returns the union of `ranges`, each first to last; a range whose ends are swapped is empty.
    pub(super) fn of(max: u128, ranges: impl IntoIterator<Item = (u128, u128)>) -> Ranges {
        let mut list: Vec<(u128, u128)> =
            ranges.into_iter().map(|(first, last)| (first, last.min(max))).filter(|(a, b)| a <= b).collect();
        list.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(list.len());
        for (first, last) in list {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Ranges { max, list: merged }
    }

    /// Returns the numbers whose bits of `mask` are those of `value`; `None` if these are more than [`MOST_MASKED`] ranges.
    pub(super) fn masked(max: u64, mask: u64, value: u64) -> Option<Ranges> {
        let mask = mask & max;
        if value & !mask != 0 {
            return Some(Ranges::none(u128::from(max)));
        }
        // Bits below the mask's lowest make one range of each value of the others.
        let below = max & !(u64::MAX << mask.trailing_zeros().min(63));
        let free = max & !mask & !below;
        if free.count_ones() > MOST_MASKED.ilog2() {
            return None;
        }
        let mut list = Vec::new();
        let mut bits = 0_u64;
        loop {
            let first = value | bits;
            list.push((u128::from(first), u128::from(first | below)));
            bits = bits.wrapping_sub(free) & free;
            if bits == 0 {
                return Some(Ranges::of(u128::from(max), list));
            }
        }
    }

    pub(super) fn is_all(&self) -> bool {
        self.list == [(0, self.max)]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Ranges in ascending order.
    pub(super) fn list(&self) -> &[(u128, u128)] {
        &self.list
    }

    /// Complement of the set.
    pub(super) fn complement(&self) -> Ranges {
        let mut list = Vec::with_capacity(self.list.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &self.list {
            if let Some(from) = next {
                if from < first {
                    list.push((from, first - 1));
                }
            }
            next = if last >= self.max { None } else { Some(last + 1) };
        }
        if let Some(from) = next {
            list.push((from, self.max));
        }
        Ranges { max: self.max, list }
    }

    /// Intersection of both sets.
    pub(super) fn and(&self, other: &Ranges) -> Ranges {
        if self.is_all() {
            return other.clone();
        }
        if other.is_all() {
            return self.clone();
        }
        let mut list = Vec::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.list.get(i), other.list.get(j)) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                list.push((first, last));
            }
            if a.1 < b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        Ranges { max: self.max, list }
    }

    /// True if every number of the set is in `other`.
    pub(super) fn is_within(&self, other: &Ranges) -> bool {
        other.is_all() || self.and(other) == *self
    }
}

/// A set of numbers below 256: protocols, ICMP types and codes, code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSet([u128; 2]);

impl ByteSet {
    pub(super) const ALL: ByteSet = ByteSet([u128::MAX; 2]);
    pub(super) const NONE: ByteSet = ByteSet([0; 2]);
    /// Set of all DiffServ code points.
    pub(super) const CODE_POINTS: ByteSet = ByteSet([u64::MAX as u128, 0]);

    /// Returns the set of `value` alone.
    pub(super) fn one(value: u8) -> ByteSet {
        let mut set = ByteSet::NONE;
        set.insert(value);
        set
    }

    pub(super) fn insert(&mut self, value: u8) {
        self.0[usize::from(value >> 7)] |= 1 << (value & 127);
    }

    pub(super) fn contains(self, value: u8) -> bool {
        self.0[usize::from(value >> 7)] >> (value & 127) & 1 == 1
    }

    pub(super) fn and(self, other: ByteSet) -> ByteSet {
        ByteSet([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    pub(super) fn complement(self) -> ByteSet {
        ByteSet([!self.0[0], !self.0[1]])
    }

    pub(super) fn is_all(self) -> bool {
        self == ByteSet::ALL
    }

    pub(super) fn is_empty(self) -> bool {
        self == ByteSet::NONE
    }

    pub(super) fn is_within(self, other: ByteSet) -> bool {
        self.and(other) == self
    }

    /// Numbers of the set, in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |&value| self.contains(value))
    }
}

impl FromIterator<u8> for ByteSet {
    fn from_iter<I: IntoIterator<Item = u8>>(values: I) -> ByteSet {
        let mut set = ByteSet::NONE;
        for value in values {
            set.insert(value);
        }
        set
    }
}
