//! Events of security associations and tunnels, which a host takes from a shard: a bounded number, the excess only counted.

use std::collections::VecDeque;

use wire::Nanos;
use wire::esp::Direction;

use super::{Bound, Inbound, PathNews, Sas};
use crate::tables::Ends;

/// Number of events kept, at most.
const MOST: usize = 256;

/// Time between two events of packets received before, of one security association.
const REPEATS: Nanos = Nanos::from_secs(1);

/// Time between two events of packets that nothing carries, of one tunnel.
const MISSES: Nanos = Nanos::from_millis(50);

/// Time between two events of packets that an association of all workers carries for the lack of one of the worker's own, of one tunnel.
const FALLBACKS: Nanos = Nanos::from_secs(1);

/// Security associations looked at for bounds of time, at one turn of the clock.
const AT_ONCE: usize = 64;

/// News of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaEvent {
    /// Moment.
    pub at: Nanos,
    /// Number of the tunnel.
    pub tunnel: u16,
    /// The news.
    pub news: SaNews,
}

/// Kinds of news of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaNews {
    /// A security association has reached a bound of its lifetime.
    Bound {
        /// Direction.
        direction: Direction,
        /// Security parameters index.
        spi: u32,
        /// The bound.
        bound: Bound,
    },
    /// The way to the peer is another one.
    Path(PathNews),
    /// No security association out carries a packet of a tunnel whose security associations are an IKE daemon's.
    Missing(Ends),
    /// A packet was carried by an association of all workers, and the worker is to ask an IKE daemon for one of its own (RFC 9611).
    Fallback(Ends),
    /// Packets were refused, as their numbers had been received or were left of the window.
    Replayed {
        /// Security parameters index.
        spi: u32,
        /// Number of them since the last such event.
        packets: u64,
    },
}

/// Events not yet taken.
#[derive(Default)]
pub(super) struct Events {
    list: VecDeque<SaEvent>,
    lost: u64,
    /// The next security association to look at.
    place: usize,
}

impl Events {
    pub(super) fn new() -> Events {
        Events { list: VecDeque::with_capacity(MOST), ..Events::default() }
    }

    /// Keeps the events of tunnels that are in other tables, too, with their numbers there.
    pub(super) fn renumber(&mut self, becomes: impl Fn(u16) -> Option<u16>) {
        self.list.retain_mut(|event| becomes(event.tunnel).map(|tunnel| event.tunnel = tunnel).is_some());
    }

    fn push(&mut self, event: SaEvent) {
        if self.list.len() < MOST {
            self.list.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    /// Takes in an event that others come before: a flood of them leaves these their room.
    fn push_minor(&mut self, event: Option<SaEvent>) {
        if let Some(event) = event.filter(|_| self.list.len() < MOST / 2) {
            self.list.push_back(event);
        }
    }
}

impl Sas {
    /// Takes the events since the last call, oldest first.
    pub fn take_events(&mut self) -> impl Iterator<Item = SaEvent> + '_ {
        self.events.list.drain(..)
    }

    /// True if there is an event to take.
    #[inline(always)]
    pub fn has_events(&self) -> bool {
        !self.events.list.is_empty()
    }

    /// Number of events for which there was no room.
    pub fn events_lost(&self) -> u64 {
        self.events.lost
    }

    /// Notes a bound that a packet has reached.
    #[inline]
    pub(crate) fn note_bound(&mut self, event: Option<SaEvent>) {
        if let Some(event) = event {
            self.note(event);
        }
    }

    pub(super) fn note(&mut self, event: SaEvent) {
        self.events.push(event);
    }

    /// Notes a packet for a tunnel that no security association carries: the first, and then one of many.
    pub(crate) fn note_missing(&mut self, tunnel: u16, ends: Ends, at: Nanos) {
        self.note_need(tunnel, SaNews::Missing(ends), at, MISSES);
    }

    /// Notes a packet that an association of all workers carries for the lack of one of the worker's own: the first, and then one of many.
    pub(crate) fn note_fallback(&mut self, tunnel: u16, ends: Ends, at: Nanos) {
        self.note_need(tunnel, SaNews::Fallback(ends), at, FALLBACKS);
    }

    fn note_need(&mut self, tunnel: u16, news: SaNews, at: Nanos, seldom: Nanos) {
        let Some(missed) = self.missed.get_mut(usize::from(tunnel)) else { return };
        if missed.is_some_and(|before| before <= at && at.since(before) < seldom) {
            return;
        }
        *missed = Some(at);
        self.events.push_minor(Some(SaEvent { at, tunnel, news }));
    }

    /// Looks for bounds of time, which no packet has to reach: at some each time, in turns.
    pub(crate) fn note_bounds_of_time(&mut self, now: Nanos) {
        let out: usize = self.outbound.iter().map(Vec::len).sum();
        let all = out + self.inbound.len();
        for _ in 0..all.min(AT_ONCE) {
            let place = self.events.place % all;
            self.events.place = place + 1;
            let event = match place.checked_sub(out) {
                None => self.outbound.iter_mut().flatten().nth(place).and_then(|sa| sa.news(now)),
                Some(place) => self.inbound.get_mut(place).and_then(|sa| sa.news(now)),
            };
            self.note_bound(event);
            let replays = place.checked_sub(out).and_then(|place| self.inbound.get_mut(place)?.replays(now));
            self.events.push_minor(replays);
        }
    }
}

impl Inbound {
    /// Packets refused since the last event about them, if that was long enough ago.
    fn replays(&mut self, now: Nanos) -> Option<SaEvent> {
        let (told, at) = self.replays_told;
        let replayed = self.sequence.used.errors().replayed;
        let packets = replayed.saturating_sub(told);
        if packets == 0 || at.is_some_and(|at| at <= now && now.since(at) < REPEATS) {
            return None;
        }
        self.replays_told = (replayed, Some(now));
        Some(SaEvent { at: now, tunnel: self.tunnel, news: SaNews::Replayed { spi: self.spi, packets } })
    }
}
