//! Virtual reassembly: the fragments of a datagram follow its first one, which alone has the ports.
//!
//! No datagram is reassembled here. [`Fragments`] keeps fields of the first fragment ([`Kept`]) for the later ones;
//! fragments that come before the first are held ([`Fragments::hold`]) and released when it has come
//! ([`Fragments::release`]). Byte ranges received are noted, and a fragment that overlaps others makes the whole
//! datagram refused from then on (RFC 5722; RFC 8200, section 4.5), until the datagram times out. A fragment of which
//! every byte has come before is refused alone, as in Linux: links do repeat packets, and the first copy has been
//! forwarded. A datagram is forgotten when it is complete, or on timeout, counted from the fragment that came first.
//!
//! No one owns all of the memory: each source and each side has its share. In a full table, or for a side at its share,
//! the oldest datagram is evicted: honest datagrams are complete within moments, those of a flood from forged sources
//! never are.
//!
//! Promises: all memory is taken at start; nobody can aim datagrams at one place of the table without knowing the seed;
//! the work per call is bounded; no fragment passes before its first, and no byte of a datagram passes twice while the
//! datagram is remembered. Time may go backwards: a datagram then waits longer, at most twice its timeout.
//!
//! Left to the caller: the check that the first fragment has the whole transport header ([`Reason::FragmentTiny`]
//! otherwise; RFC 1858), and calls of [`Fragments::expire`] as long as [`Fragments::is_due`], before the fragments of
//! that moment are shown: the outcome then does not depend on how often the host calls. IPv6 atomic fragments (RFC 6946)
//! need not be shown; they pass.

mod hash;
pub(crate) mod held;
mod range;
mod release;
mod reload;
mod share;
mod table;

use policy::model::FragmentLimits;
use tally::{Region, Tally};
use wire::{Family, Frame, Nanos};

use crate::verdict::Reason;
use held::{Held, List};
use lookup::memory::MemoryError;
pub(crate) use range::{Added, Ranges};
pub use release::{Release, Releases};
pub(crate) use reload::{FragmentsPlan, Moved};
pub use share::Count;
use share::Shares;
use table::{Datagram, Stage, Table, UNKNOWN};

/// Highest number of fragments of one datagram held for its first: as many as the largest makes on Ethernet, and some.
pub const WAITING: u8 = 64;

/// Steps of one call of [`Fragments::expire`].
const STEPS: u32 = 64;
/// Bytes of an IPv4 header, which count against the largest datagram; an IPv6 header does not.
const V4_HEADER: u32 = 20;
/// Length of the largest datagram, in bytes, whatever the policy says: offset and length fields go no further.
const LARGEST: u32 = 65_535;
/// Bound on datagrams and frames under way.
const MOST: u32 = 1 << 30;
/// End of a list, and the number of no place.
const NONE: u32 = u32::MAX;

/// Fields that all fragments of a datagram have in common.
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
    /// Conntrack zone, as in [`Key::in_ct_zone`](crate::flow::Key::in_ct_zone).
    pub ct_zone: u16,
}

/// Bytes of the payload that a fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte: a multiple of 8.
    pub offset: u32,
    /// Number of bytes, without IP and fragment headers.
    pub len: u32,
    /// True if more fragments follow.
    pub more: bool,
}

/// Fields of the first fragment that later ones need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Source port, or its substitute, as in [`Meta`](wire::Meta).
    pub sport: u16,
    /// Destination port, or its substitute, as in [`Meta`](wire::Meta).
    pub dport: u16,
    /// Transport protocol; in IPv6 only the first fragment tells it for sure.
    pub protocol: u8,
    /// TCP flags.
    pub tcp_flags: u8,
    /// Value of the caller's own.
    pub own: u16,
}

/// Outcome for a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// The first has come, with these fields.
    Kept(Kept),
    /// The first has not come, and there is room: [`Fragments::hold`] the frame.
    Wait,
    /// The fragment must not pass.
    Refuse(Reason),
}

/// The datagrams of which fragments are under way, and the fragments that wait.
pub struct Fragments {
    table: Table,
    held: Held,
    shares: Shares,
    timeout: Nanos,
    /// Length of the largest datagram, in bytes.
    largest: u32,
}

impl Fragments {
    /// Takes the memory for as many datagrams and frames as `limits` say. `timeout` runs from the fragment of a datagram
    /// that comes first; `seed` keys the hash: random and secret in a live host, fixed in a replay.
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

    /// Notes a first fragment with its whole transport header. If the fragment may pass, [`Fragments::release`] now
    /// returns those held for it.
    ///
    /// # Errors
    /// The fragment must not pass, and changes nothing for those that may: [`Reason::FragmentOverlap`] (also for a
    /// duplicate first fragment, and for a length that no other can follow on), [`Reason::FragmentOversize`],
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

    /// Notes a fragment other than the first.
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

    /// Holds a frame whose fragment got [`Later::Wait`].
    ///
    /// # Errors
    /// The frame, if its fragment did not get [`Later::Wait`].
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

    /// Returns the next frame held for the first fragment of its datagram, which has come; in the order of arrival.
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

    /// Highest number of datagrams under way, and of frames held, at one time so far.
    pub fn peak(&self) -> Count {
        self.shares.peak()
    }

    /// True if [`Fragments::expire`] has something to do.
    #[inline(always)]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.held.has_doomed() || self.over(now).is_some()
    }

    /// Forgets datagrams that have timed out, and gives back frames that were held in vain, with the reason for dropping
    /// them: [`Reason::FragmentTimeout`], [`Reason::FragmentOverlap`] or [`Reason::FragmentTableFull`]. Work per call is
    /// bounded; call it as long as [`Fragments::is_due`].
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

    /// Number of frames held, those to be given back included.
    pub fn held(&self) -> u32 {
        self.held.count()
    }

    /// Bytes of memory, which never change.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.held.bytes() + self.shares.bytes()
    }

    /// Validates a fragment by itself, whatever others there are.
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

    /// Notes a byte range, or refuses it, and the whole datagram where the range overlaps others.
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

    /// Returns the datagram, or forgets it after its timeout.
    fn find<T: Tally>(&mut self, key: &DatagramKey, now: Nanos, tally: &mut T) -> Option<u32> {
        let at = self.table.search(key, tally)?;
        if self.is_over(self.table.get(at), now) {
            self.forget(at, tally);
            return None;
        }
        Some(at)
    }

    /// Begins a datagram, known by the caller to be absent. In a full table the oldest datagram is evicted, of the same
    /// side where that side has its share; a source that has its share gets no more.
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

    /// Returns the owner of a datagram.
    fn owner(&self, key: &DatagramKey) -> share::Owner {
        let source = DatagramKey { destination: 0, id: 0, protocol: 0, ct_zone: 0, ..*key };
        Shares::owner(self.table.hash(&source), key.ct_zone)
    }

    /// Forgets a datagram that is complete and for which no frame is held.
    fn forget_if_done<T: Tally>(&mut self, at: u32, tally: &mut T) {
        let datagram = self.table.get(at);
        if datagram.stage == Stage::Follows && datagram.held.is_empty() && datagram.is_complete() {
            self.forget(at, tally);
        }
    }

    /// Forgets a datagram after its timeout; frames held for it are to be given back.
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

    /// Returns the oldest datagram, if it has timed out.
    fn over(&self, now: Nanos) -> Option<u32> {
        self.table.oldest().filter(|(_, oldest)| self.is_over(oldest, now)).map(|(at, _)| at)
    }

    /// True if a datagram has timed out; also if the clock was set back by more than the timeout, as the datagram would
    /// otherwise stay for as long as that.
    fn is_over(&self, datagram: &Datagram, now: Nanos) -> bool {
        let left = datagram.deadline.since(now);
        left == Nanos(0) || left > self.timeout + self.timeout
    }
}

/// Returns the numbers that every source may have: as long as there are no more in all, none is refused or evicted for another.
pub fn room(limits: &FragmentLimits) -> Count {
    let Count { datagrams, held } = Shares::new(limits).of_each();
    Count { datagrams: datagrams.min(limits.datagrams.clamp(1, MOST)), held: held.min(limits.held.min(MOST)) }
}

/// Returns the length of the largest datagram that passes, in bytes.
fn largest(limits: &FragmentLimits) -> u32 {
    u32::try_from(limits.datagram.0).map_or(LARGEST, |bytes| bytes.min(LARGEST))
}

#[cfg(test)]
mod tests;
