//! Lifetimes of security associations (RFC 4301, section 4.4.2.1): what has been used, and how much may be.
//!
//! Bytes are those that the cipher is applied to: inner packet, padding, trailer. One worker never passes a bound: a packet that would pass
//! the hard one ends the security association. Several workers may pass it by a packet each. What a packet meets follows from the packets
//! before and the moment of its receipt alone.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;
use policy::model::Lifetime;
use wire::Nanos;

use super::SaErrors;
use crate::verdict::Reason;

/// Use of a key, which all workers count together.
#[derive(Debug)]
pub struct Used {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Moment of the first use by a shard; `u64::MAX` before.
    since: AtomicU64,
    /// Highest bound that a shard has told of, in the two lowest bits, and whose bounds that was.
    told: AtomicU64,
    /// Packets refused, in the order of [`SaErrors::named`]. Apart, as what is counted for each packet is on one cache line.
    refused: Box<[AtomicU64; SaErrors::COUNT]>,
}

/// Use of a key at one moment: what a restart goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets protected, or accepted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets refused.
    pub errors: SaErrors,
    /// Time since the first use; `None` before.
    pub age: Option<Nanos>,
}

impl Default for Used {
    fn default() -> Used {
        Used::going_on(&Usage::default(), Nanos(0))
    }
}

impl Used {
    /// Goes on from the use of another process, which is of that age at `now`.
    pub fn going_on(usage: &Usage, now: Nanos) -> Used {
        let since = usage.age.map_or(u64::MAX, |age| now.since(age).0);
        let [packets, bytes, since, told] = [usage.packets, usage.bytes, since, 0].map(AtomicU64::new);
        let refused = Box::new(usage.errors.named().map(|(_, count)| AtomicU64::new(count)));
        Used { packets, bytes, since, told, refused }
    }

    /// Use up to `now`.
    pub fn usage(&self, now: Nanos) -> Usage {
        let has_begun = self.since.load(Ordering::Relaxed) != u64::MAX;
        Usage {
            packets: self.packets(),
            bytes: self.bytes(),
            errors: self.errors(),
            age: has_begun.then(|| self.age(now)),
        }
    }

    /// Packets protected, or accepted.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets refused.
    pub fn errors(&self) -> SaErrors {
        SaErrors::of(self.refused.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Counts a packet that was refused.
    #[cold]
    pub(super) fn refuse(&self, reason: Reason) {
        if let Some(count) = SaErrors::place(reason).and_then(|place| self.refused.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts packets and their bytes.
    #[inline]
    pub(super) fn add(&self, packets: u64, bytes: u64) {
        // Relaxed: these are counters, and order nothing else.
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins its time, unless that has begun.
    pub(crate) fn begin(&self, now: Nanos) {
        let _ = self.since.compare_exchange(u64::MAX, now.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True for the first to tell of a bound: all that use the key tell of it once. `bounds` tells lifetimes apart.
    fn tell(&self, bounds: u64, bound: Bound) -> bool {
        let own = bounds & !3 | (bound as u64 + 1);
        let is_news = |told: u64| (told & !3 != own & !3 || told < own).then_some(own);
        // Relaxed: nothing else hangs on it.
        self.told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_news).is_ok()
    }

    fn age(&self, now: Nanos) -> Nanos {
        now.since(Nanos(self.since.load(Ordering::Relaxed)))
    }
}

/// Bounds of a security association's use.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    soft: Lifetime,
    hard: Lifetime,
    /// A packet would have passed a hard bound.
    is_spent: bool,
    /// Highest bound that has been told of.
    told: Option<Bound>,
    /// Tells its bounds from others.
    name: u64,
    /// True if there is a bound of any kind.
    has_bounds: bool,
    /// True if there is a bound that a packet may reach, or meet.
    is_bound: bool,
}

/// Bound of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Time for a new security association.
    Soft,
    /// No packet passes any more.
    Hard,
}

impl Bound {
    /// The bound's word in policies and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Soft => "soft",
            Bound::Hard => "hard",
        }
    }
}

/// The hard lifetime has been reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired;

impl Life {
    pub(super) fn new(soft: Lifetime, hard: Lifetime) -> Life {
        let bounds = |of: Lifetime| (of.bytes, of.packets, of.time.map(|time| time.0));
        let name = FixedState::default().hash_one((bounds(soft), bounds(hard)));
        let has_bounds = (soft, hard) != (Lifetime::UNBOUNDED, Lifetime::UNBOUNDED);
        // A soft bound of time is nothing to a packet: the clock tells of it. All SAs of IKE daemons have one.
        let of_packets = Lifetime { time: None, ..soft };
        let is_bound = (of_packets, hard) != (Lifetime::UNBOUNDED, Lifetime::UNBOUNDED);
        Life { soft, hard, is_spent: false, told: None, name, has_bounds, is_bound }
    }

    /// Takes over what has come of the same bounds.
    pub(super) fn go_on(&mut self, old: &Life) {
        if (self.soft, self.hard) == (old.soft, old.hard) {
            (self.is_spent, self.told) = (old.is_spent, old.told);
        }
    }

    /// Refuses a packet of after the end.
    #[inline]
    pub(super) fn check(&self, used: &Used, now: Nanos) -> Result<(), Expired> {
        let is_over = self.hard.time.is_some_and(|time| used.age(now) >= time);
        if is_over || self.is_spent { Err(Expired) } else { Ok(()) }
    }

    /// Takes a packet with so many bytes into account.
    #[inline]
    pub(super) fn spend(&mut self, used: &Used, bytes: usize, now: Nanos) -> Result<(), Expired> {
        self.admit(used, bytes, now)?;
        used.add(1, bytes as u64);
        Ok(())
    }

    /// Refuses a packet that would pass a hard bound, which ends the association. Takes nothing into account.
    #[inline]
    pub(super) fn admit(&mut self, used: &Used, bytes: usize, now: Nanos) -> Result<(), Expired> {
        self.check(used, now)?;
        let is_past = |used: u64, bound: Option<u64>| bound.is_some_and(|bound| used > bound);
        let bytes = bytes as u64;
        if is_past(used.packets() + 1, self.hard.packets) || is_past(used.bytes() + bytes, self.hard.bytes) {
            self.is_spent = true;
            return Err(Expired);
        }
        Ok(())
    }

    /// Highest bound that has been reached.
    pub(super) fn reached(&self, used: &Used, now: Nanos) -> Option<Bound> {
        let is_reached = |used: u64, bound: Option<u64>| bound.is_some_and(|bound| used >= bound);
        let has = |of: &Lifetime| {
            is_reached(used.packets(), of.packets)
                || is_reached(used.bytes(), of.bytes)
                || of.time.is_some_and(|time| used.age(now) >= time)
        };
        if self.is_spent || has(&self.hard) {
            Some(Bound::Hard)
        } else {
            has(&self.soft).then_some(Bound::Soft)
        }
    }

    /// A bound that has been reached and not been told of yet, by any shard. A hard one comes without the soft one, where both were reached
    /// together.
    #[inline]
    pub(super) fn news(&mut self, used: &Used, now: Nanos) -> Option<Bound> {
        if !self.has_bounds {
            return None;
        }
        let reached = self.reached(used, now);
        if reached <= self.told {
            return None;
        }
        self.told = reached;
        reached.filter(|bound| used.tell(self.name, *bound))
    }

    /// True if there is a bound that a packet may reach, or meet.
    #[inline]
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(since: u64) -> Used {
        let used = Used::default();
        used.begin(Nanos(since));
        used.begin(Nanos(since + 7));
        used
    }

    #[test]
    fn a_hard_bound_is_never_passed() {
        let hard = Lifetime { bytes: Some(100), packets: Some(3), time: Some(Nanos(1_000)) };
        let life = || (Life::new(Lifetime::UNBOUNDED, hard), used(50));
        let (mut by_packets, used) = life();
        for _ in 0..3 {
            assert_eq!(by_packets.spend(&used, 10, Nanos(60)), Ok(()));
        }
        assert_eq!((by_packets.spend(&used, 10, Nanos(60)), used.packets()), (Err(Expired), 3));
        let (mut by_bytes, used) = life();
        assert_eq!(by_bytes.spend(&used, 60, Nanos(60)), Ok(()));
        // It would have been 101; nor does a smaller one pass behind it.
        assert_eq!(by_bytes.spend(&used, 41, Nanos(60)), Err(Expired));
        assert_eq!((by_bytes.spend(&used, 1, Nanos(60)), used.bytes()), (Err(Expired), 60));
        let (mut by_time, used) = life();
        assert_eq!(by_time.spend(&used, 1, Nanos(1_049)), Ok(()));
        assert_eq!(by_time.check(&used, Nanos(1_050)), Err(Expired));
        assert_eq!(by_time.spend(&used, 1, Nanos(1_050)), Err(Expired));
    }

    #[test]
    fn each_bound_is_told_of_once() {
        let soft = Lifetime { packets: Some(2), ..Lifetime::UNBOUNDED };
        let hard = Lifetime { packets: Some(3), time: Some(Nanos(500)), ..Lifetime::UNBOUNDED };
        let (mut life, counts) = (Life::new(soft, hard), used(0));
        let told: Vec<Option<Bound>> = (0..5)
            .map(|_| {
                let _ = life.spend(&counts, 1, Nanos(1));
                life.news(&counts, Nanos(1))
            })
            .collect();
        assert_eq!(told, [None, Some(Bound::Soft), Some(Bound::Hard), None, None]);
        // Another shard's, under the same key: it has been told. Under other bounds, as of a reload, it has not.
        assert_eq!(Life::new(soft, hard).news(&counts, Nanos(1)), None);
        let wider = Lifetime { packets: Some(1), ..Lifetime::UNBOUNDED };
        let mut others = [Life::new(wider, hard), Life::new(wider, hard)];
        assert_eq!(others.each_mut().map(|life| life.news(&counts, Nanos(1))), [Some(Bound::Hard), None]);
        // Shards that reach bounds by turns tell of each once.
        let counts = used(0);
        let mut shards = [Life::new(soft, hard), Life::new(soft, hard)];
        let told: Vec<Option<Bound>> = (0..8)
            .map(|turn| {
                let life = &mut shards[turn % 2];
                let _ = life.spend(&counts, 1, Nanos(1));
                life.news(&counts, Nanos(1))
            })
            .collect();
        assert_eq!(told.into_iter().flatten().collect::<Vec<_>>(), [Bound::Soft, Bound::Hard]);
        // A soft bound of time comes without a packet, and none has to be looked at for it.
        let time = |time| Lifetime { time: Some(Nanos(time)), ..Lifetime::UNBOUNDED };
        let (mut timed, counts) = (Life::new(time(300), Lifetime::UNBOUNDED), used(0));
        assert!(!timed.is_bound() && Life::new(time(300), time(500)).is_bound());
        let told = [299, 300, 301].map(|now| timed.news(&counts, Nanos(now)));
        assert_eq!(
            (told, timed.reached(&counts, Nanos(301))),
            ([None, Some(Bound::Soft), None], Some(Bound::Soft))
        );
        let (mut idle, counts) = (Life::new(soft, hard), used(0));
        let told = [499, 500, 501].map(|now| idle.news(&counts, Nanos(now)));
        assert_eq!(told, [None, Some(Bound::Hard), None]);
    }
}
