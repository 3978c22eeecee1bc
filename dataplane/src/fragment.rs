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
//! Nobody has all of the memory: each source and each side has its share. Where there is no room, or a side has its
//! share, the datagram that began first makes it: honest ones are complete within moments, and those of a flood from made-up
//! sources never are.
//!
//! What it promises: all memory is taken at start; nobody can aim datagrams at one place of the table without
//! knowing the seed; the work per call is bounded; no fragment passes before its first, and no byte of a datagram
//! passes twice while the datagram is remembered. Time may go backwards: a datagram then waits longer, at most twice its time.
//!
//! What it leaves to the caller: whether the first fragment has the whole transport header
//! ([`Reason::FragmentTiny`] otherwise; RFC 1858), and to call [`Fragments::expire`] as long as
//! [`Fragments::is_due`], before the fragments of that moment are shown: then what happens does not depend on how
//! often the host came by. IPv6 datagrams in one fragment (RFC 6946) need not be shown; they pass.

mod hash;
pub(crate) mod held;
mod range;
mod reload;
mod share;
mod table;

use policy::model::FragmentLimits;
use tally::{Region, Tally};
use wire::{Family, Frame, Nanos};

use crate::verdict::Reason;
use held::{Held, List};
use lookup::memory::MemoryError;
use range::Added;
pub(crate) use reload::{FragmentsPlan, Moved};
use share::Shares;
use table::{Datagram, Stage, Table, UNKNOWN};

/// How many fragments of one datagram may wait for its first: as many as the largest makes on Ethernet, and some.
pub const WAITING: u8 = 64;

/// Steps of one call of [`Fragments::expire`].
const STEPS: u32 = 64;
/// Bytes of an IPv4 header, which count against the largest datagram; an IPv6 header does not.
const V4_HEADER: u32 = 20;
/// No datagram is longer, whatever the policy says: offset and length fields do not go further.
const LARGEST: u32 = 65_535;
/// More datagrams or frames than this are not under way anywhere.
const MOST: u32 = 1 << 30;
/// End of a list, and no place.
const NONE: u32 = u32::MAX;

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
    /// For which interfaces it holds, as in [`Key::in_ct_zone`](crate::flow::Key::in_ct_zone).
    pub ct_zone: u16,
}

/// Which bytes of the fragmented payload a fragment brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes: a multiple of 8.
    pub offset: u32,
    /// Number of them, without IP and fragment headers.
    pub len: u32,
    /// True if more follow.
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
    table: Table,
    held: Held,
    shares: Shares,
    timeout: Nanos,
    /// Bytes of the largest datagram.
    largest: u32,
}

impl Fragments {
    /// Takes the memory for as many datagrams and frames as `limits` say. `timeout` is how long a datagram may take
    /// from the fragment that comes first; `seed` keys the hash: random and secret in a live host, fixed in a replay.
    ///
    /// # Errors
    /// The system has not enough memory to give.
    pub fn new(limits: &FragmentLimits, timeout: Nanos, seed: [u64; 2]) -> Result<Fragments, MemoryError> {
        Ok(Fragments {
            table: Table::new(limits.datagrams.clamp(1, MOST), seed)?,
            held: Held::new(limits.held.min(MOST))?,
            shares: Shares::new(limits),
            timeout,
            largest: largest(limits),
        })
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
        let datagram = self.table.get_mut(at);
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
            None if self.held.is_full() => return Err(Reason::FragmentTableFull),
            None if !self.shares.may_wait(self.owner(key)) => return Err(Reason::FragmentTableFull),
            None => self.make(key, now, tally)?,
        };
        let datagram = self.table.get(at);
        let is_spent = self.held.is_full() || !self.shares.may_wait(datagram.owner);
        let no_room = is_spent || datagram.waiting == WAITING;
        if datagram.stage == Stage::Waits && no_room {
            return Err(Reason::FragmentTableFull);
        }
        self.note(at, span, tally)?;
        let Datagram { stage, kept, .. } = *self.table.get(at);
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
        let Some(at) = self.table.search(key, tally) else { return Err(frame) };
        let datagram = self.table.get_mut(at);
        if datagram.stage != Stage::Waits || datagram.waiting == WAITING {
            return Err(frame);
        }
        self.held.push(&mut datagram.held, frame)?;
        datagram.waiting += 1;
        self.shares.wait(datagram.owner);
        // Take a place off the free list, fill it, append it.
        tally.instructions(12);
        tally.write(Region::FragmentTable, self.table.place(at), 12);
        Ok(())
    }

    /// The next frame that waited for the first fragment of its datagram, which has come; in the order of arrival.
    pub fn release<T: Tally>(&mut self, key: &DatagramKey, tally: &mut T) -> Option<Frame> {
        let at = self.table.search(key, tally)?;
        let datagram = self.table.get_mut(at);
        if datagram.stage != Stage::Follows {
            return None;
        }
        let frame = self.held.pop(&mut datagram.held)?;
        datagram.waiting -= 1;
        self.shares.go_on(datagram.owner, 1);
        // Take a place off the list, empty it, free it.
        tally.instructions(12);
        tally.write(Region::FragmentTable, self.table.place(at), 12);
        self.forget_if_done(at, tally);
        Some(frame)
    }

    /// True if [`Fragments::expire`] has something to do.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.held.has_doomed() || self.over(now).is_some()
    }

    /// Forgets datagrams whose time is over, and gives back frames that waited in vain, with the reason for which
    /// they are dropped: [`Reason::FragmentTimeout`], [`Reason::FragmentOverlap`] or [`Reason::FragmentTableFull`]. Does a bounded part of the
    /// work; call it as long as [`Fragments::is_due`].
    pub fn expire<T: Tally>(&mut self, now: Nanos, tally: &mut T, mut give: impl FnMut(Frame, Reason)) {
        for _ in 0..STEPS {
            if let Some((frame, reason)) = self.held.give() {
                give(frame, reason);
            } else if let Some(at) = self.over(now) {
                self.forget(at, tally);
            } else {
                return;
            }
        }
    }

    /// Frames that are held: that wait, or are to be given back.
    pub fn held(&self) -> u32 {
        self.held.count()
    }

    /// Bytes of memory, which never change.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.held.bytes() + self.shares.bytes()
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
        let place = self.table.place(at);
        let datagram = self.table.get_mut(at);
        if datagram.stage == Stage::Refused {
            return Err(Reason::FragmentOverlap);
        }
        // Compare with half of the ranges of a usual datagram, which are one or two; store one.
        tally.instructions(12);
        tally.write(Region::FragmentTable, place, 8);
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
                self.shares.go_on(datagram.owner, std::mem::take(&mut datagram.waiting));
                self.held.doom(&mut datagram.held, Reason::FragmentOverlap);
                Err(Reason::FragmentOverlap)
            }
        }
    }

    /// The datagram, unless its time is over, in which case it is forgotten.
    fn find<T: Tally>(&mut self, key: &DatagramKey, now: Nanos, tally: &mut T) -> Option<u32> {
        let at = self.table.search(key, tally)?;
        if self.is_over(self.table.get(at), now) {
            self.forget(at, tally);
            return None;
        }
        Some(at)
    }

    /// Begins a datagram, of which the caller knows that it is not there. Where there is no room the oldest makes it, of the
    /// same side where that has its share; a source that has its own gets no more.
    fn make<T: Tally>(&mut self, key: &DatagramKey, now: Nanos, tally: &mut T) -> Result<u32, Reason> {
        if let Some(at) = self.over(now).filter(|_| self.table.is_full()) {
            self.forget(at, tally);
        }
        let owner = self.owner(key);
        if !self.shares.has_source_room(owner) {
            return Err(Reason::FragmentTableFull);
        }
        if !self.shares.has_ct_zone_room(owner) {
            let oldest = self.table.oldest_of(owner).ok_or(Reason::FragmentTableFull)?;
            self.evict(oldest, tally);
        } else if self.table.is_full() {
            let (oldest, _) = self.table.oldest().ok_or(Reason::FragmentTableFull)?;
            self.evict(oldest, tally);
        }
        let at = self.table.make(key, owner, now + self.timeout, tally).ok_or(Reason::FragmentTableFull)?;
        self.shares.begin(owner);
        Ok(at)
    }

    /// Whose a datagram is.
    fn owner(&self, key: &DatagramKey) -> share::Owner {
        let source = DatagramKey { destination: 0, id: 0, protocol: 0, ct_zone: 0, ..*key };
        Shares::owner(self.table.hash(&source), key.ct_zone)
    }

    /// Forgets a datagram that is complete and for which no frame waits.
    fn forget_if_done<T: Tally>(&mut self, at: u32, tally: &mut T) {
        let datagram = self.table.get(at);
        if datagram.stage == Stage::Follows && datagram.held.is_empty() && datagram.is_complete() {
            self.forget(at, tally);
        }
    }

    /// Forgets a datagram whose time is over; frames that wait for it are to be given back.
    fn forget<T: Tally>(&mut self, at: u32, tally: &mut T) {
        self.remove(at, Reason::FragmentTimeout, tally);
    }

    /// Forgets a datagram in favour of another.
    #[cold]
    fn evict<T: Tally>(&mut self, at: u32, tally: &mut T) {
        self.remove(at, Reason::FragmentTableFull, tally);
    }

    fn remove<T: Tally>(&mut self, at: u32, reason: Reason, tally: &mut T) {
        let datagram = self.table.get_mut(at);
        self.held.doom(&mut datagram.held, reason);
        self.shares.go_on(datagram.owner, datagram.waiting);
        self.shares.end(datagram.owner);
        self.table.forget(at, tally);
    }

    /// The oldest datagram, if its time is over.
    fn over(&self, now: Nanos) -> Option<u32> {
        self.table.oldest().filter(|(_, oldest)| self.is_over(oldest, now)).map(|(at, _)| at)
    }

    /// True if a datagram's time is over; also where the clock was set back by more than the timeout, or such a
    /// datagram would stay for as long as that.
    fn is_over(&self, datagram: &Datagram, now: Nanos) -> bool {
        let left = datagram.deadline.since(now);
        left == Nanos(0) || left > self.timeout + self.timeout
    }
}

/// Bytes of the largest datagram that is let through.
fn largest(limits: &FragmentLimits) -> u32 {
    u32::try_from(limits.datagram.0).map_or(LARGEST, |bytes| bytes.min(LARGEST))
}

#[cfg(test)]
mod tests;
