//! Search of the trees of both families.

use tally::Tally;
use wire::Family;

use super::account::Account;
use super::forest::Forest;
use super::kernel::{Kernel, Plain};
use super::layout::{Shape, V4, V6};
use super::search::{AT_ONCE, Order, Visit};
#[cfg(target_arch = "x86_64")]
use crate::classify::simd_tree::Avx2;
use crate::classify::{Header, NO_MATCH, Position};

/// Instructions of the processor that a search makes use of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processor {
    /// The processor has the instructions of the fast kernel.
    #[cfg(target_arch = "x86_64")]
    fast: Option<Avx2>,
}

impl Processor {
    /// Asks the processor.
    pub(super) fn detect() -> Processor {
        Processor {
            #[cfg(target_arch = "x86_64")]
            fast: Avx2::found(),
        }
    }
}

/// Trees of both families, to be searched.
pub(super) struct Families<'a, O, M> {
    pub v4: &'a Forest<V4>,
    pub v6: &'a Forest<V6>,
    /// Positions of rules.
    pub order: O,
    /// Tells if a header matches the pattern of the rule of a number.
    pub matches: M,
}

impl<O: Order, M: Fn(&Header, u32) -> bool + Copy> Families<'_, O, M> {
    #[inline(always)]
    pub(super) fn classify(&self, processor: Processor, header: &Header) -> Option<Position> {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = processor.fast {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find(kernel, header, |_| ()),
            );
        }
        let _ = processor;
        self.find(Plain, header, |_| ())
    }

    #[inline(always)]
    pub(super) fn classify_bulk(&self, processor: Processor, headers: &[Header], positions: &mut [Position]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = processor.fast {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find_all(kernel, headers, positions),
            );
        }
        let _ = processor;
        self.find_all(Plain, headers, positions);
    }

    /// [`Families::classify`], told to a tally: trees in front, then the map from numbers to positions, where there is one.
    pub(super) fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        let mut account = Account::new(tally);
        let map = self.v4.bytes() + self.v6.bytes();
        match header.family {
            Family::V4 => self.find(Plain, header, |visit| account.add::<V4, O>(self.v4, 0, map, visit)),
            Family::V6 => {
                let begin = self.v4.bytes();
                self.find(Plain, header, |visit| account.add::<V6, O>(self.v6, begin, map, visit))
            }
            Family::Other => None,
        }
    }

    #[inline(always)]
    pub(super) fn find_all<K: Kernel>(&self, kernel: K, headers: &[Header], positions: &mut [Position]) {
        for (headers, positions) in headers.chunks(AT_ONCE).zip(positions.chunks_mut(AT_ONCE)) {
            if headers.iter().all(|header| header.family == Family::V4) {
                let found = self.v4.find_all(kernel, self.order, headers, self.matches);
                positions.copy_from_slice(&found[..headers.len()]);
            } else {
                positions.fill(NO_MATCH);
                self.find_some(kernel, self.v4, headers, positions);
                self.find_some(kernel, self.v6, headers, positions);
            }
        }
    }

    /// Finds the first match of those headers that are of the trees' family.
    #[inline(always)]
    fn find_some<K: Kernel, S: Shape>(
        &self,
        kernel: K,
        forest: &Forest<S>,
        headers: &[Header],
        positions: &mut [Position],
    ) {
        let mut own = [Header::default(); AT_ONCE];
        let mut places = [0; AT_ONCE];
        let mut count = 0;
        for (place, header) in headers.iter().enumerate().filter(|(_, header)| header.family == S::FAMILY) {
            (own[count], places[count]) = (*header, place);
            count += 1;
        }
        if count == 0 {
            return;
        }
        let found = forest.find_all(kernel, self.order, &own[..count], self.matches);
        for (place, found) in places[..count].iter().zip(found) {
            positions[*place] = found;
        }
    }

    #[inline(always)]
    fn find<K: Kernel>(&self, kernel: K, header: &Header, visit: impl FnMut(Visit)) -> Option<Position> {
        let matches = |number| (self.matches)(header, number);
        let found = match header.family {
            Family::V4 => self.v4.find(kernel, self.order, &V4::key::<true>(header), matches, visit),
            Family::V6 => self.v6.find(kernel, self.order, &V6::key::<true>(header), matches, visit),
            Family::Other => NO_MATCH,
        };
        (found != NO_MATCH).then_some(found)
    }
}
