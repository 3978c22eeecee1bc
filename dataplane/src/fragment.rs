//! Virtual reassembly: the fragments of a datagram follow its first one, which alone has the ports.
//!
//! No datagram is put together here. [`Fragments`] remembers what the first fragment said ([`Kept`]) and tells it
//! to those that come later; those that come before it wait ([`Fragments::hold`]) and are let go when it has come
//! ([`Fragments::release`]). Which bytes of a datagram have come is noted, and a fragment that would write over
//! others makes the whole datagram refused from then on (RFC 5722; RFC 8200, section 4.5), until it times out. A
//! fragment of which every byte has come before is refused alone, as in Linux: links do repeat packets, and what
//! came first has gone on. A datagram is forgotten when it is complete, or when its time is over, counted from
//! the fragment that came first.
//!
//! What it promises: all memory is taken at start; nobody can aim datagrams at one place of the table without
//! knowing the seed; the work per call is bounded; no fragment passes before its first, and no byte of a datagram
//! passes twice. Time may go backwards: a datagram then waits longer, at most twice its time.
//!
//! What it leaves to the caller: whether the first fragment has the whole transport header
//! ([`Reason::FragmentTiny`] otherwise; RFC 1858), and to call [`Fragments::expire`] as long as
//! [`Fragments::is_due`], before the fragments of that moment are shown: then what happens does not depend on how
//! often the host came by. IPv6 datagrams in one fragment (RFC 6946) need not be shown; they pass.

mod hash;
mod range;

use policy::model::FragmentLimits;
use tally::{Region, Tally};
use wire::{Family, Frame, Nanos};

use crate::memory::MemoryError;
use crate::verdict::Reason;
use hash::Hasher;
use range::{Added, Ranges};

/// How many fragments of one datagram may wait for its first: as many as the largest makes on Ethernet, and some.
pub const WAITING: u8 = 64;

/// Steps of one call of [`Fragments::expire`].
const STEPS: u32 = 64;
/// Bytes of an IPv4 header, which count against the largest datagram; an IPv6 header does not.
const V4_HEADER: u32 = 20;
/// No datagram is longer, whatever the policy says: offset and length fields do not go further.
const LARGEST: u32 = 65_535;
/// End of a list, and no place.
const NONE: u32 = u32::MAX;
/// The last fragment has not come.
const UNKNOWN: u32 = u32::MAX;

/// What all fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramKey {
    /// Source address, in host order; IPv4 in the lower 32 bits.
    pub source: u128,
    /// Destination address, in host order; IPv4 in the lower 32 bits.
    pub destination: u128,
    /// Identification.
    pub id: u32,
    /// IPv4: the protocol (RFC 791, section 2.3). IPv6: 0 (RFC 8200, section 4.5).
    pub protocol: u8,
    /// IPv4 or IPv6.
    pub family: Family,
    /// For which interfaces it holds, as in [`Key::in_realm`](crate::flow::Key::in_realm).
    pub realm: u16,
}

/// Which bytes of the fragmented payload a fragment brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes: a multiple of 8.
    pub offset: u32,
    /// How many there are, without IP and fragment headers.
    pub len: u32,
    /// Whether more follow.
    pub more: bool,
}

/// What later fragments need of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Source port, or what stands for it, as in [`Meta`](wire::Meta).
    pub sport: u16,
    /// Destination port, or what stands for it, as in [`Meta`](wire::Meta).
    pub dport: u16,
    /// The transport protocol, which in IPv6 only the first fragment tells for sure.
    pub protocol: u8,
    /// TCP flags.
    pub tcp_flags: u8,
    /// The caller's own.
    pub own: u16,
}

/// What becomes of a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// The first has come, and said this.
    Kept(Kept),
    /// The first has not come: [`Fragments::hold`] it, for which there is room.
    Wait,
    /// It must not pass.
    Refuse(Reason),
}

/// The datagrams of which fragments are under way, and the fragments that wait.
pub struct Fragments {
    hasher: Hasher,
    /// First datagram of each chain; a power of two of them.
    heads: Vec<u32>,
    datagrams: Vec<Datagram>,
    places: Vec<Place>,
    /// First of the datagrams that are not used, through `next`.
    free: u32,
    free_place: u32,
    /// Datagrams in the order in which they began.
    oldest: u32,
    youngest: u32,
    /// Frames that are to be given back.
    doomed: List,
    held: u32,
    timeout: Nanos,
    largest: u32,
}

/// A datagram of which some fragment has come, or a free place for one.
#[derive(Clone, Copy)]
struct Datagram {
    key: DatagramKey,
    ranges: Ranges,
    stage: Stage,
    waiting: u8,
    kept: Kept,
    deadline: Nanos,
    /// Bytes of the whole payload, once the last fragment has come.
    total: u32,
    next: u32,
    older: u32,
    younger: u32,
    held: List,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first fragment has not come.
    Waits,
    /// It has.
    Follows,
    /// Fragments overlapped.
    Refused,
}

/// Room for a frame that waits.
struct Place {
    frame: Option<Frame>,
    next: u32,
    /// Why it is given back, if it is.
    reason: Reason,
}

/// Places in the order of their frames' arrival.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE };
}

impl Fragments {
    /// Takes the memory for as many datagrams and frames as `limits` say. `timeout` is how long a datagram may take
    /// from the fragment that comes first; `seed` keys the hash: random and secret in a live host, fixed in a replay.
    ///
    /// # Errors
    /// The system has not enough memory to give.
    pub fn new(limits: &FragmentLimits, timeout: Nanos, seed: [u64; 2]) -> Result<Fragments, MemoryError> {
        let count = limits.datagrams.clamp(1, 1 << 30);
        let places = limits.held.min(1 << 30);
        let mut fragments = Fragments {
            hasher: Hasher::new(seed),
            heads: filled((2 * count as usize).next_power_of_two(), |_| NONE)?,
            datagrams: filled(count as usize, |at| Datagram::free(follower(at, count)))?,
            places: filled(places as usize, |at| Place::free(follower(at, places)))?,
            free: 0,
            free_place: NONE,
            oldest: NONE,
            youngest: NONE,
            doomed: List::EMPTY,
            held: 0,
            timeout,
            largest: u32::try_from(limits.datagram.0).map_or(LARGEST, |bytes| bytes.min(LARGEST)),
        };
        if places > 0 {
            fragments.free_place = 0;
        }
        Ok(fragments)
    }

    /// A first fragment has come, with its whole transport header. If it may pass, those that waited for it come
    /// out of [`Fragments::release`] now.
    ///
    /// # Errors
    /// It must not pass, and changes nothing for those that may: [`Reason::FragmentOverlap`] (also where it came a
    /// second time, or has a length that no other can follow on), [`Reason::FragmentOversize`],
    /// [`Reason::FragmentTiny`] (empty), [`Reason::FragmentTableFull`].
    pub fn first<T: Tally>(
        &mut self,
        key: &DatagramKey,
        span: Span,
        kept: Kept,
        now: Nanos,
        tally: &mut T,
    ) -> Result<(), Reason> {
        self.check(key, span)?;
        if span.offset == 0 && !span.more {
            return Ok(());
        }
        let at = match self.find(key, now, tally) {
            Some(at) => at,
            None => self.make(key, now, tally)?,
        };
        self.note(at, span, tally)?;
        let datagram = &mut self.datagrams[at as usize];
        datagram.kept = kept;
        datagram.stage = Stage::Follows;
        self.forget_if_done(at, tally);
        Ok(())
    }

    /// A fragment that is not the first has come.
    pub fn later<T: Tally>(&mut self, key: &DatagramKey, span: Span, now: Nanos, tally: &mut T) -> Later {
        match self.try_later(key, span, now, tally) {
            Ok(later) => later,
            Err(reason) => Later::Refuse(reason),
        }
    }

    fn try_later<T: Tally>(
        &mut self,
        key: &DatagramKey,
        span: Span,
        now: Nanos,
        tally: &mut T,
    ) -> Result<Later, Reason> {
        self.check(key, span)?;
        let at = match self.find(key, now, tally) {
            Some(at) => at,
            // It would have to wait: better not begin what cannot be gone on with.
            None if self.free_place == NONE => return Err(Reason::FragmentTableFull),
            None => self.make(key, now, tally)?,
        };
        let datagram = &self.datagrams[at as usize];
        let no_room = self.free_place == NONE || datagram.waiting == WAITING;
        if datagram.stage == Stage::Waits && no_room {
            return Err(Reason::FragmentTableFull);
        }
        self.note(at, span, tally)?;
        let Datagram { stage, kept, .. } = self.datagrams[at as usize];
        if stage == Stage::Waits {
            return Ok(Later::Wait);
        }
        self.forget_if_done(at, tally);
        Ok(Later::Kept(kept))
    }

    /// Keeps a frame that was told to [wait](Later::Wait).
    ///
    /// # Errors
    /// The frame, where that is not what it was told.
    pub fn hold<T: Tally>(&mut self, key: &DatagramKey, frame: Frame, tally: &mut T) -> Result<(), Frame> {
        let Some(at) = self.search(key, tally) else { return Err(frame) };
        let datagram = &mut self.datagrams[at as usize];
        let place = self.free_place;
        if place == NONE || datagram.stage != Stage::Waits || datagram.waiting == WAITING {
            return Err(frame);
        }
        // Take a place from the free list, put the frame there, append it.
        tally.instructions(10);
        tally.write(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 8);
        self.free_place = self.places[place as usize].next;
        self.places[place as usize].frame = Some(frame);
        datagram.waiting += 1;
        append(&mut self.places, &mut datagram.held, List { first: place, last: place });
        self.held += 1;
        Ok(())
    }

    /// The next frame that waited for the first fragment of its datagram, which has come; in the order of arrival.
    pub fn release<T: Tally>(&mut self, key: &DatagramKey, tally: &mut T) -> Option<Frame> {
        let at = self.search(key, tally)?;
        let datagram = &mut self.datagrams[at as usize];
        if datagram.stage != Stage::Follows || datagram.held.first == NONE {
            return None;
        }
        tally.instructions(10);
        tally.write(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 8);
        datagram.waiting -= 1;
        let place = pop(&self.places, &mut datagram.held)?;
        let frame = self.vacate(place);
        self.forget_if_done(at, tally);
        frame
    }

    /// Whether [`Fragments::expire`] has something to do.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.doomed.first != NONE
            || self.datagrams.get(self.oldest as usize).is_some_and(|oldest| self.is_over(oldest, now))
    }

    /// Forgets datagrams whose time is over, and gives back frames that waited in vain, with the reason for which
    /// they are dropped: [`Reason::FragmentTimeout`] or [`Reason::FragmentOverlap`]. Does a bounded part of the
    /// work; call it as long as [`Fragments::is_due`].
    pub fn expire<T: Tally>(&mut self, now: Nanos, tally: &mut T, mut give: impl FnMut(Frame, Reason)) {
        for _ in 0..STEPS {
            if let Some(place) = pop(&self.places, &mut self.doomed) {
                let reason = self.places[place as usize].reason;
                if let Some(frame) = self.vacate(place) {
                    give(frame, reason);
                }
            } else if self.is_due(now) {
                self.forget(self.oldest, Reason::FragmentTimeout, tally);
            } else {
                return;
            }
        }
    }

    /// Frames that are held: that wait, or are to be given back.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Bytes of memory, which never change.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.datagrams) + size_of_val(&*self.places)
    }

    /// What is wrong with a fragment whatever others there are.
    fn check(&self, key: &DatagramKey, span: Span) -> Result<(), Reason> {
        let header = if key.family == Family::V4 { V4_HEADER } else { 0 };
        let end = span.offset.saturating_add(span.len);
        if end > self.largest.saturating_sub(header) {
            Err(Reason::FragmentOversize)
        } else if span.len == 0 {
            Err(Reason::FragmentTiny)
        } else if span.offset % 8 != 0 || span.more && span.len % 8 != 0 {
            // RFC 8200, section 4.5. Whatever came next would overlap it, or leave a gap.
            Err(Reason::FragmentOverlap)
        } else {
            Ok(())
        }
    }

    /// Notes the bytes that have come, or refuses them, and the whole datagram where they contradict others.
    fn note<T: Tally>(&mut self, at: u32, span: Span, tally: &mut T) -> Result<(), Reason> {
        let datagram = &mut self.datagrams[at as usize];
        if datagram.stage == Stage::Refused {
            return Err(Reason::FragmentOverlap);
        }
        // Compare with half of the ranges of a usual datagram, which are one or two; store one.
        tally.instructions(12);
        tally.write(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 8);
        let end = span.offset + span.len;
        let contradiction = match (span.more, datagram.total) {
            // What has come already goes as far, and said that more follows.
            (false, UNKNOWN) => u32::from(datagram.ranges.furthest()) * 8 >= end,
            (false, total) => end != total,
            // None but the last ends where the datagram does.
            (true, total) => end >= total,
        };
        // At most 65,535 / 8, rounded up.
        let (begin, unit_end) = ((span.offset / 8) as u16, end.div_ceil(8) as u16);
        let added = if contradiction { Added::Overlap } else { datagram.ranges.add(begin, unit_end) };
        match added {
            Added::New => {
                if !span.more {
                    datagram.total = end;
                }
                Ok(())
            }
            Added::Again => Err(Reason::FragmentOverlap),
            Added::Full => Err(Reason::FragmentTableFull),
            Added::Overlap => {
                datagram.stage = Stage::Refused;
                self.doom(at, Reason::FragmentOverlap);
                Err(Reason::FragmentOverlap)
            }
        }
    }

    /// The datagram, unless its time is over, in which case it is forgotten.
    fn find<T: Tally>(&mut self, key: &DatagramKey, now: Nanos, tally: &mut T) -> Option<u32> {
        let at = self.search(key, tally)?;
        if self.is_over(&self.datagrams[at as usize], now) {
            self.forget(at, Reason::FragmentTimeout, tally);
            return None;
        }
        Some(at)
    }

    fn search<T: Tally>(&self, key: &DatagramKey, tally: &mut T) -> Option<u32> {
        let head = self.head(key);
        tally.hash(if key.family == Family::V4 { 16 } else { 40 });
        tally.read(Region::FragmentTable, head * 4, 4);
        let mut at = self.heads[head];
        while let Some(datagram) = self.datagrams.get(at as usize) {
            // Load and compare ten words.
            tally.instructions(12);
            tally.read(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 64);
            if datagram.key == *key {
                return Some(at);
            }
            at = datagram.next;
        }
        None
    }

    /// Begins a datagram, of which the caller knows that it is not there. Where there is no room the oldest makes
    /// it, if its time is over.
    fn make<T: Tally>(&mut self, key: &DatagramKey, now: Nanos, tally: &mut T) -> Result<u32, Reason> {
        if self.free == NONE && self.is_over(&self.datagrams[self.oldest as usize], now) {
            self.forget(self.oldest, Reason::FragmentTimeout, tally);
        }
        let at = self.free;
        let head = self.head(key);
        let Some(datagram) = self.datagrams.get_mut(at as usize) else {
            return Err(Reason::FragmentTableFull);
        };
        tally.instructions(30);
        tally.write(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 96);
        tally.write(Region::FragmentTable, head * 4, 4);
        self.free = datagram.next;
        *datagram = Datagram {
            key: *key,
            deadline: now + self.timeout,
            next: self.heads[head],
            older: self.youngest,
            ..Datagram::free(NONE)
        };
        self.heads[head] = at;
        match self.datagrams.get_mut(self.youngest as usize) {
            Some(youngest) => youngest.younger = at,
            None => self.oldest = at,
        }
        self.youngest = at;
        Ok(at)
    }

    /// Forgets a datagram that is complete and for which no frame waits.
    fn forget_if_done<T: Tally>(&mut self, at: u32, tally: &mut T) {
        let datagram = &self.datagrams[at as usize];
        let complete = datagram.total != UNKNOWN && datagram.ranges.reach(datagram.total.div_ceil(8) as u16);
        if complete && datagram.stage == Stage::Follows && datagram.held.first == NONE {
            self.forget(at, Reason::FragmentTimeout, tally);
        }
    }

    /// Takes a datagram out of the table; frames that wait for it are to be given back.
    fn forget<T: Tally>(&mut self, at: u32, reason: Reason, tally: &mut T) {
        self.doom(at, reason);
        let Datagram { key, next, older, younger, .. } = self.datagrams[at as usize];
        tally.instructions(24);
        tally.write(Region::FragmentTable, self.heads.len() * 4 + at as usize * size_of::<Datagram>(), 16);
        match self.datagrams.get_mut(older as usize) {
            Some(older) => older.younger = younger,
            None => self.oldest = younger,
        }
        match self.datagrams.get_mut(younger as usize) {
            Some(younger) => younger.older = older,
            None => self.youngest = older,
        }
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
    }

    /// Marks the frames that wait for a datagram to be given back.
    fn doom(&mut self, at: u32, reason: Reason) {
        let datagram = &mut self.datagrams[at as usize];
        datagram.waiting = 0;
        let list = std::mem::replace(&mut datagram.held, List::EMPTY);
        let mut at = list.first;
        // At most WAITING times.
        while let Some(place) = self.places.get_mut(at as usize) {
            place.reason = reason;
            at = place.next;
        }
        append(&mut self.places, &mut self.doomed, list);
    }

    /// Takes the frame out of a place that is on no list any more.
    fn vacate(&mut self, at: u32) -> Option<Frame> {
        let place = &mut self.places[at as usize];
        place.next = self.free_place;
        self.free_place = at;
        self.held -= 1;
        place.frame.take()
    }

    fn head(&self, key: &DatagramKey) -> usize {
        self.hasher.hash(key) as usize & (self.heads.len() - 1)
    }

    /// Whether a datagram's time is over; also where the clock was set back by more than the timeout, or such a
    /// datagram would stay for as long as that.
    fn is_over(&self, datagram: &Datagram, now: Nanos) -> bool {
        let left = datagram.deadline.since(now);
        left == Nanos(0) || left > self.timeout + self.timeout
    }
}

impl Datagram {
    fn free(next: u32) -> Datagram {
        Datagram {
            key: DatagramKey {
                source: 0,
                destination: 0,
                id: 0,
                protocol: 0,
                family: Family::Other,
                realm: 0,
            },
            ranges: Ranges::default(),
            stage: Stage::Waits,
            waiting: 0,
            kept: Kept::default(),
            deadline: Nanos(0),
            total: UNKNOWN,
            next,
            older: NONE,
            younger: NONE,
            held: List::EMPTY,
        }
    }
}

impl Place {
    fn free(next: u32) -> Place {
        Place { frame: None, next, reason: Reason::FragmentTimeout }
    }
}

/// Puts `list` behind `to`.
fn append(places: &mut [Place], to: &mut List, list: List) {
    let Some(last) = places.get_mut(list.last as usize) else { return };
    last.next = NONE;
    match places.get_mut(to.last as usize) {
        Some(last) => last.next = list.first,
        None => to.first = list.first,
    }
    to.last = list.last;
}

/// Takes the first place off a list.
fn pop(places: &[Place], list: &mut List) -> Option<u32> {
    let at = list.first;
    let place = places.get(at as usize)?;
    list.first = place.next;
    if list.first == NONE {
        list.last = NONE;
    }
    Some(at)
}

/// What follows on `at` in a list of all `count` places.
fn follower(at: usize, count: u32) -> u32 {
    let next = at as u32 + 1;
    if next < count { next } else { NONE }
}

/// A vector of `count` entries that will never grow.
fn filled<T>(count: usize, entry: impl FnMut(usize) -> T) -> Result<Vec<T>, MemoryError> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(count).map_err(|_| MemoryError {
        bytes: count.saturating_mul(size_of::<T>()),
        source: std::io::ErrorKind::OutOfMemory.into(),
    })?;
    entries.extend((0..count).map(entry));
    Ok(entries)
}

#[cfg(test)]
mod tests;
