//! Shares of the memory for fragments: a bound for each source and each side.
//!
//! One source may have a sixteenth of the datagrams under way and a quarter of the frames held; all that is received by
//! one interface, or by interfaces that may stand in for one another, three quarters of each. Sources are counted by the
//! hash of their address, in a fixed number of places: two may share one, unpredictably without the seed. Tables of few
//! entries are shared by all.

use policy::model::FragmentLimits;

/// Places for the counts of sources.
const SOURCES: usize = 1 << 12;
/// Places for the counts of conntrack zones; further zones share places.
pub(super) const CT_ZONES: usize = 64;
/// Number of entries that every owner may have.
const LEAST: u32 = 16;

/// Numbers of datagrams under way, and of frames held for them: in all, or of one source or conntrack zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Datagrams.
    pub datagrams: u32,
    /// Frames held.
    pub held: u32,
}

/// Owner of a datagram in the counts: a source and a conntrack zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    source: u16,
    ct_zone: u8,
}

impl Owner {
    /// The place of its conntrack zone, below [`CT_ZONES`].
    pub(super) fn ct_zone(self) -> usize {
        usize::from(self.ct_zone)
    }
}

/// Counts and shares of all owners.
pub(super) struct Shares {
    sources: Vec<Count>,
    ct_zones: Vec<Count>,
    of_source: Count,
    of_ct_zone: Count,
    /// Numbers in all, and the highest that each has been.
    all: Count,
    peak: Count,
}

impl Shares {
    pub(super) fn new(limits: &FragmentLimits) -> Shares {
        let mut shares = Shares {
            all: Count::default(),
            peak: Count::default(),
            sources: vec![Count::default(); SOURCES],
            ct_zones: vec![Count::default(); CT_ZONES],
            of_source: Count::default(),
            of_ct_zone: Count::default(),
        };
        shares.set(limits);
        shares
    }

    /// Sets the shares by other limits.
    pub(super) fn set(&mut self, limits: &FragmentLimits) {
        let (datagrams, held) = (limits.datagrams, limits.held);
        let most = |share: u32| share.max(LEAST);
        self.of_source = Count { datagrams: most(datagrams / 16), held: most(held / 4) };
        self.of_ct_zone = Count { datagrams: most(datagrams - datagrams / 4), held: most(held - held / 4) };
    }

    /// Lifts the shares, for tests of other bounds.
    #[cfg(test)]
    pub(super) fn lift(&mut self) {
        (self.of_source, self.of_ct_zone) =
            (Count { datagrams: u32::MAX, held: u32::MAX }, Count { datagrams: u32::MAX, held: u32::MAX });
    }

    /// Returns the owner of a datagram, by the hash of its source.
    pub(super) fn owner(hash: u32, ct_zone: u16) -> Owner {
        Owner { source: (hash as usize % SOURCES) as u16, ct_zone: (usize::from(ct_zone) % CT_ZONES) as u8 }
    }

    /// True if the owner's source may have one more datagram.
    pub(super) fn has_source_room(&self, owner: Owner) -> bool {
        self.counts(owner).0.datagrams < self.of_source.datagrams
    }

    /// True if the owner's conntrack zone may have one more datagram.
    pub(super) fn has_ct_zone_room(&self, owner: Owner) -> bool {
        self.counts(owner).1.datagrams < self.of_ct_zone.datagrams
    }

    /// True if one more frame of the owner may wait.
    pub(super) fn may_wait(&self, owner: Owner) -> bool {
        let (source, ct_zone) = self.counts(owner);
        source.held < self.of_source.held && ct_zone.held < self.of_ct_zone.held
    }

    /// Highest number of datagrams, and of frames held, at one time so far.
    pub(super) fn peak(&self) -> Count {
        self.peak
    }

    /// Numbers that every owner may have.
    pub(super) fn of_each(&self) -> Count {
        let Shares { of_source, of_ct_zone, .. } = self;
        Count {
            datagrams: of_source.datagrams.min(of_ct_zone.datagrams),
            held: of_source.held.min(of_ct_zone.held),
        }
    }

    /// Counts a datagram that has begun.
    pub(super) fn begin(&mut self, owner: Owner) {
        self.change(owner, |count| count.datagrams += 1);
        self.peak.datagrams = self.peak.datagrams.max(self.all.datagrams);
    }

    /// Counts off a datagram that is forgotten.
    pub(super) fn end(&mut self, owner: Owner) {
        self.change(owner, |count| count.datagrams = count.datagrams.saturating_sub(1));
    }

    /// Counts a frame that waits.
    pub(super) fn wait(&mut self, owner: Owner) {
        self.change(owner, |count| count.held += 1);
        self.peak.held = self.peak.held.max(self.all.held);
    }

    /// Counts off frames that are no longer held.
    pub(super) fn go_on(&mut self, owner: Owner, frames: u8) {
        self.change(owner, |count| count.held = count.held.saturating_sub(frames.into()));
    }

    /// Begins to count anew.
    pub(super) fn clear(&mut self) {
        self.sources.fill(Count::default());
        self.ct_zones.fill(Count::default());
        self.all = Count::default();
    }

    /// True if nothing is counted.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.sources.iter().chain(&self.ct_zones).all(|count| count.datagrams == 0 && count.held == 0)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.sources) + size_of_val(&*self.ct_zones)
    }

    fn counts(&self, owner: Owner) -> (Count, Count) {
        (self.sources[usize::from(owner.source)], self.ct_zones[usize::from(owner.ct_zone)])
    }

    fn change(&mut self, owner: Owner, change: impl Fn(&mut Count)) {
        change(&mut self.sources[usize::from(owner.source)]);
        change(&mut self.ct_zones[usize::from(owner.ct_zone)]);
        change(&mut self.all);
    }
}
