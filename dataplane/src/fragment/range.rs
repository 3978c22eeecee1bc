//! Byte ranges received of a datagram: a short sorted list of ranges that neither overlap nor touch.

/// Highest number of ranges of a datagram. The fragments of the largest datagram on Ethernet are 45, so that no order of
/// them makes more than 23.
pub(super) const RANGES: usize = 24;

/// Half-open range `begin..end` of the payload, in units of 8 bytes, at most 8,192.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    begin: u16,
    end: u16,
}

/// Ranges received of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ranges {
    list: [Range; RANGES],
    count: u8,
}

/// Outcome of adding a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The whole range is new, and has been noted.
    New,
    /// The whole range had come before.
    Again,
    /// Part of the range had come before.
    Overlap,
    /// The range is new, but there is no room to note it.
    Full,
}

impl Ranges {
    /// Adds `begin..end`, which is not empty.
    pub(crate) fn add(&mut self, begin: u16, end: u16) -> Added {
        let count = usize::from(self.count);
        let Some(list) = self.list.get_mut(..count) else { return Added::Full };
        // The first range that is not wholly before the new one, with a gap between.
        let at = list.iter().position(|range| range.end >= begin).unwrap_or(count);
        let next = list.get(at + 1).copied();
        let Some(here) = list.get_mut(at).filter(|here| here.begin <= end) else {
            return self.insert(at, Range { begin, end });
        };
        if here.begin <= begin && end <= here.end {
            return Added::Again;
        }
        if here.begin == end {
            here.begin = begin;
            return Added::New;
        }
        if here.end > begin {
            return Added::Overlap;
        }
        // It follows directly on `here`; it may reach up to the next one.
        match next {
            Some(next) if next.begin < end => Added::Overlap,
            Some(next) if next.begin == end => {
                here.end = next.end;
                self.list.copy_within(at + 2..count, at + 1);
                self.count -= 1;
                Added::New
            }
            _ => {
                here.end = end;
                Added::New
            }
        }
    }

    fn insert(&mut self, at: usize, range: Range) -> Added {
        let count = usize::from(self.count);
        if count == RANGES {
            return Added::Full;
        }
        self.list.copy_within(at..count, at + 1);
        self.list[at] = range;
        self.count += 1;
        Added::New
    }

    /// The end of the last range; 0 while there is none.
    pub(crate) fn furthest(&self) -> u16 {
        usize::from(self.count)
            .checked_sub(1)
            .and_then(|last| self.list.get(last))
            .map_or(0, |range| range.end)
    }

    /// True if everything from 0 to `end` has come.
    pub(crate) fn reach(&self, end: u16) -> bool {
        self.count == 1 && self.list[0] == Range { begin: 0, end }
    }
}
