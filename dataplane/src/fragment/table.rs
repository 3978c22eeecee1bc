//! Datagrams under way: found by their key, in the order in which they began.

use lookup::memory::MemoryError;
use tally::{Region, Tally};
use wire::{Family, Nanos};

use super::hash::Hasher;
use super::held::{List, filled};
use super::range::Ranges;
use super::share::{CT_ZONES, Owner};
use super::{DatagramKey, Kept, NONE};

/// Value of `total` before the last fragment has come.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// A fixed number of datagrams, in chains by the hash of their keys and in one queue by age.
pub(super) struct Table {
    hasher: Hasher,
    /// First datagram of each chain; a power of two of them.
    heads: Vec<u32>,
    datagrams: Vec<Datagram>,
    /// First of the datagrams that are not used, through `next`.
    free: u32,
    ages: Queue,
    /// The queue of each conntrack zone by itself.
    ct_zones: Vec<Queue>,
}

/// Datagrams in the order in which they began, linked through their [`Links`].
#[derive(Clone, Copy)]
struct Queue {
    oldest: u32,
    youngest: u32,
}

/// Neighbours in a queue.
#[derive(Clone, Copy)]
struct Links {
    older: u32,
    younger: u32,
}

impl Queue {
    const EMPTY: Queue = Queue { oldest: NONE, youngest: NONE };

    fn push(&mut self, at: u32, datagrams: &mut [Datagram], links: fn(&mut Datagram) -> &mut Links) {
        *links(&mut datagrams[at as usize]) = Links { older: self.youngest, younger: NONE };
        match datagrams.get_mut(self.youngest as usize) {
            Some(youngest) => links(youngest).younger = at,
            None => self.oldest = at,
        }
        self.youngest = at;
    }

    fn remove(&mut self, at: u32, datagrams: &mut [Datagram], links: fn(&mut Datagram) -> &mut Links) {
        let Links { older, younger } = *links(&mut datagrams[at as usize]);
        match datagrams.get_mut(older as usize) {
            Some(older) => links(older).younger = younger,
            None => self.oldest = younger,
        }
        match datagrams.get_mut(younger as usize) {
            Some(younger) => links(younger).older = older,
            None => self.youngest = older,
        }
    }
}

/// A datagram of which some fragment has come, or a free place for one.
#[derive(Clone, Copy)]
pub(super) struct Datagram {
    key: DatagramKey,
    /// Ranges received.
    pub(super) ranges: Ranges,
    pub(super) stage: Stage,
    /// Frames in `held`.
    pub(super) waiting: u8,
    /// Fields of the first fragment.
    pub(super) kept: Kept,
    pub(super) deadline: Nanos,
    /// Bytes of the whole payload, or [`UNKNOWN`].
    pub(super) total: u32,
    /// The chain.
    next: u32,
    age: Links,
    ct_zone: Links,
    /// Frames that wait for the first fragment.
    pub(super) held: List,
    /// Owner in the counts.
    pub(super) owner: Owner,
}

/// Stage of a datagram, which decides the fate of later fragments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first fragment has not come: later ones are held.
    Waits,
    /// The first fragment has come: later ones pass.
    Follows,
    /// Fragments overlapped: later ones are refused.
    Refused,
}

impl Table {
    pub(super) fn new(count: u32, seed: [u64; 2]) -> Result<Table, MemoryError> {
        Ok(Table {
            hasher: Hasher::new(seed),
            heads: filled((2 * count).next_power_of_two(), |_| NONE)?,
            datagrams: filled(count, Datagram::free)?,
            free: if count == 0 { NONE } else { 0 },
            ages: Queue::EMPTY,
            ct_zones: vec![Queue::EMPTY; CT_ZONES],
        })
    }

    /// The datagram with this key.
    pub(super) fn search<T: Tally>(&self, key: &DatagramKey, tally: &mut T) -> Option<u32> {
        let head = self.head(key);
        tally.hash(if key.family == Family::V4 { 16 } else { 40 });
        tally.read(Region::FragmentTable, head * 4, 4);
        let mut at = self.heads[head];
        while let Some(datagram) = self.datagrams.get(at as usize) {
            // Load and compare ten words, branch, follow the chain.
            tally.instructions(22);
            tally.read(Region::FragmentTable, self.place(at), 64);
            if datagram.key == *key {
                return Some(at);
            }
            at = datagram.next;
        }
        None
    }

    /// Begins a datagram, known by the caller to be absent. `None` if there is no room.
    pub(super) fn make<T: Tally>(
        &mut self,
        key: &DatagramKey,
        owner: Owner,
        deadline: Nanos,
        tally: &mut T,
    ) -> Option<u32> {
        let at = self.free;
        let head = self.head(key);
        let datagram = self.datagrams.get_mut(at as usize)?;
        self.free = datagram.next;
        *datagram = Datagram {
            key: *key,
            deadline,
            owner,
            next: std::mem::replace(&mut self.heads[head], at),
            ..Datagram::free(NONE)
        };
        self.ages.push(at, &mut self.datagrams, |datagram| &mut datagram.age);
        self.ct_zones[owner.ct_zone()].push(at, &mut self.datagrams, |datagram| &mut datagram.ct_zone);
        // Ten words of key, eight of state, six of links, and six of the conntrack zone's.
        tally.instructions(36);
        tally.write(Region::FragmentTable, self.place(at), 96);
        tally.write(Region::FragmentTable, head * 4, 4);
        Some(at)
    }

    /// Removes a datagram; the caller has seen to the frames held for it.
    pub(super) fn forget<T: Tally>(&mut self, at: u32, tally: &mut T) {
        let Datagram { key, next, owner, .. } = self.datagrams[at as usize];
        self.ages.remove(at, &mut self.datagrams, |datagram| &mut datagram.age);
        self.ct_zones[owner.ct_zone()].remove(at, &mut self.datagrams, |datagram| &mut datagram.ct_zone);
        let head = self.head(&key);
        if self.heads[head] == at {
            self.heads[head] = next;
        } else {
            let mut before = self.heads[head];
            while let Some(datagram) = self.datagrams.get_mut(before as usize) {
                if datagram.next == at {
                    datagram.next = next;
                    break;
                }
                before = datagram.next;
            }
        }
        self.datagrams[at as usize] = Datagram::free(self.free);
        self.free = at;
        // Five links to mend, each load, compare and store; the chain is one long, as a rule.
        tally.instructions(36);
        tally.hash(if key.family == Family::V4 { 16 } else { 40 });
        tally.write(Region::FragmentTable, self.place(at), 16);
        tally.write(Region::FragmentTable, head * 4, 4);
    }

    /// Returns all datagrams, oldest first.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + '_ {
        let there = |at: &u32| self.datagrams.get(*at as usize).is_some();
        let first = Some(self.ages.oldest).filter(there);
        std::iter::successors(first, move |at| Some(self.datagrams[*at as usize].age.younger).filter(there))
    }

    /// Returns the oldest datagram of a conntrack zone.
    pub(super) fn oldest_of(&self, owner: Owner) -> Option<u32> {
        Some(self.ct_zones[owner.ct_zone()].oldest).filter(|at| *at != NONE)
    }

    /// Returns the key of a datagram.
    pub(super) fn key(&self, at: u32) -> DatagramKey {
        self.datagrams[at as usize].key
    }

    /// Returns the oldest datagram.
    pub(super) fn oldest(&self) -> Option<(u32, &Datagram)> {
        self.datagrams.get(self.ages.oldest as usize).map(|datagram| (self.ages.oldest, datagram))
    }

    /// A datagram that was found or made.
    pub(super) fn get(&self, at: u32) -> &Datagram {
        &self.datagrams[at as usize]
    }

    /// Returns a datagram that was found or made, mutably.
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Datagram {
        &mut self.datagrams[at as usize]
    }

    /// True if there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Returns the offset of a datagram in the region, in bytes.
    pub(super) fn place(&self, at: u32) -> usize {
        size_of_val(&*self.heads) + at as usize * size_of::<Datagram>()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.datagrams) + size_of_val(&*self.ct_zones)
    }

    /// The keyed hash of a datagram.
    pub(super) fn hash(&self, key: &DatagramKey) -> u32 {
        self.hasher.hash(key)
    }

    fn head(&self, key: &DatagramKey) -> usize {
        self.hash(key) as usize & (self.heads.len() - 1)
    }
}

impl Datagram {
    /// Takes the state of another datagram, but for the frames held.
    pub(super) fn go_on_as(&mut self, other: &Datagram) {
        (self.ranges, self.stage, self.kept, self.total) =
            (other.ranges, other.stage, other.kept, other.total);
    }

    fn free(next: u32) -> Datagram {
        let nothing =
            DatagramKey { source: 0, destination: 0, id: 0, protocol: 0, family: Family::Other, ct_zone: 0 };
        Datagram {
            key: nothing,
            ranges: Ranges::default(),
            stage: Stage::Waits,
            waiting: 0,
            kept: Kept::default(),
            deadline: Nanos(0),
            total: UNKNOWN,
            next,
            age: Links { older: NONE, younger: NONE },
            ct_zone: Links { older: NONE, younger: NONE },
            held: List::EMPTY,
            owner: Owner::default(),
        }
    }

    /// True if all of it has come.
    pub(super) fn is_complete(&self) -> bool {
        // At most 65,535 / 8, rounded up.
        self.total != UNKNOWN && self.ranges.reach(self.total.div_ceil(8) as u16)
    }
}
