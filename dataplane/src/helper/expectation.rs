//! Expected connections (netfilter: `nf_conntrack_expect`), found by the two addresses and the destination port of a first packet.
//!
//! All memory is taken at the start. The oldest is the first to be due, as all wait equally long. Where several workers share the flows, an
//! expectation is in their flow steering table, so that its first packet comes to the worker that expects it.

use std::net::IpAddr;

use wire::Nanos;
use wire::header::Protocol;

use crate::flow::{FlowId, Key};
use crate::shard::most_flows;
use crate::tables::{Address, Tables};

/// Time for which a connection is expected, as in netfilter.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(300);

/// Expectations of a shard, at most.
const MOST: u32 = 4096;

/// Bytes of a segment that is rewritten.
const SCRATCH: usize = 1 << 16;

/// An expectation by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectationId(u32);

/// An expected connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// Key of its first packet as it arrives, without a source port.
    pub(crate) key: Key,
    /// Hash of `key`.
    pub(crate) hash: u64,
    /// Control connection.
    pub(crate) master: FlowId,
    /// Number of the rule that lets in the control connection.
    pub(crate) rule: u32,
    /// Destination after translation.
    pub(crate) destination: Address,
    /// Destination port after translation.
    pub(crate) port: u16,
    /// Source after translation.
    pub(crate) source: Address,
    /// NAT mapping whose outside port is expected to be called; `u32::MAX` for none.
    pub(crate) mapping: u32,
    /// Time at which it is given up.
    pub(crate) until: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    expectation: Option<Expectation>,
    /// The next one in its bucket; of a free place, the next free one.
    next: u32,
    older: u32,
    younger: u32,
}

const NONE: u32 = u32::MAX;

/// Expectations of a shard.
pub(crate) struct Expectations {
    places: Box<[Place]>,
    buckets: Box<[u32]>,
    free: u32,
    oldest: u32,
    youngest: u32,
    due: Nanos,
    /// Bytes of a segment under way.
    pub(crate) scratch: Box<[u8]>,
}

impl Expectations {
    /// Takes the memory that the tables ask for: none where no rule names a helper.
    pub(crate) fn new(tables: &Tables) -> Expectations {
        Expectations::of(if tables.filter.has_helpers { most_flows(tables).min(MOST) } else { 0 })
    }

    /// Takes memory also where no rule names a helper, for connections that have one from rules before.
    pub(crate) fn anyway(tables: &Tables) -> Expectations {
        Expectations::of(most_flows(tables).min(MOST))
    }

    fn of(many: u32) -> Expectations {
        let place = |next| Place { expectation: None, next, older: NONE, younger: NONE };
        Expectations {
            places: (1..=many).map(|next| place(if next == many { NONE } else { next })).collect(),
            buckets: vec![NONE; if many == 0 { 0 } else { many.next_power_of_two() as usize }].into(),
            free: if many == 0 { NONE } else { 0 },
            oldest: NONE,
            youngest: NONE,
            due: Nanos(u64::MAX),
            scratch: vec![0; if many == 0 { 0 } else { SCRATCH }].into(),
        }
    }

    /// True if memory has been taken.
    pub(crate) fn has_room(&self) -> bool {
        !self.places.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.buckets) + self.scratch.len()
    }

    /// True if nothing is expected.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// True if an expectation is to be given up.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// The oldest expectation.
    pub(crate) fn oldest(&self) -> Option<ExpectationId> {
        (self.oldest != NONE).then_some(ExpectationId(self.oldest))
    }

    /// The next younger expectation.
    pub(crate) fn younger(&self, id: ExpectationId) -> Option<ExpectationId> {
        let younger = self.places.get(id.0 as usize)?.younger;
        (younger != NONE).then_some(ExpectationId(younger))
    }

    /// An expectation by its place.
    pub(crate) fn get(&self, id: ExpectationId) -> Option<&Expectation> {
        self.places.get(id.0 as usize)?.expectation.as_ref()
    }

    /// All expectations, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Expectation> {
        self.places.iter().filter_map(|place| place.expectation.as_ref())
    }

    /// The expectation with this key and its hash.
    pub(crate) fn find(&self, key: &Key, hash: u64) -> Option<ExpectationId> {
        let mut at = *self.buckets.get(self.bucket(hash))?;
        while let Some(place) = self.places.get(at as usize) {
            if place.expectation.is_some_and(|expectation| expectation.key == *key) {
                return Some(ExpectationId(at));
            }
            at = place.next;
        }
        None
    }

    /// The expectation of a control connection.
    pub(crate) fn of_master(&self, master: FlowId) -> Option<ExpectationId> {
        let mut at = self.youngest;
        while let Some(place) = self.places.get(at as usize) {
            if place.expectation.is_some_and(|expectation| expectation.master == master) {
                return Some(ExpectationId(at));
            }
            at = place.older;
        }
        None
    }

    /// Takes in an expectation with the latest `until` of all; `None` if there is no room.
    pub(crate) fn insert(&mut self, expectation: Expectation) -> Option<ExpectationId> {
        let at = self.free;
        let bucket = self.bucket(expectation.hash);
        let place = self.places.get_mut(at as usize)?;
        self.free = place.next;
        let next = std::mem::replace(self.buckets.get_mut(bucket)?, at);
        *place = Place { expectation: Some(expectation), next, older: self.youngest, younger: NONE };
        match self.places.get_mut(self.youngest as usize) {
            Some(before) => before.younger = at,
            None => self.oldest = at,
        }
        self.youngest = at;
        self.note_due();
        Some(ExpectationId(at))
    }

    /// Takes an expectation out.
    pub(crate) fn remove(&mut self, ExpectationId(at): ExpectationId) -> Option<Expectation> {
        let place = self.places.get_mut(at as usize)?;
        let expectation = place.expectation.take()?;
        let (next, older, younger) = (place.next, place.older, place.younger);
        (place.next, place.older, place.younger) = (self.free, NONE, NONE);
        self.free = at;
        match self.places.get_mut(older as usize) {
            Some(place) => place.younger = younger,
            None => self.oldest = younger,
        }
        match self.places.get_mut(younger as usize) {
            Some(place) => place.older = older,
            None => self.youngest = older,
        }
        let bucket = self.bucket(expectation.hash);
        let mut link = self.buckets.get(bucket).copied().unwrap_or(NONE);
        if link == at {
            self.buckets[bucket] = next;
        }
        while let Some(place) = self.places.get_mut(link as usize).filter(|_| link != at) {
            if place.next == at {
                place.next = next;
                break;
            }
            link = place.next;
        }
        self.note_due();
        Some(expectation)
    }

    fn note_due(&mut self) {
        let oldest = self.places.get(self.oldest as usize).and_then(|place| place.expectation);
        self.due = oldest.map_or(Nanos(u64::MAX), |expectation| expectation.until);
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.buckets.len().wrapping_sub(1)
    }
}

/// Key of a first packet from one address to another and a port, whatever its source port is.
pub(crate) fn key_to(from: IpAddr, to: IpAddr, port: u16, ct_zone: u16) -> Option<Key> {
    let tcp = Protocol::TCP.0;
    let key = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Key::v4(from.to_bits(), to.to_bits(), 0, port, tcp),
        (IpAddr::V6(from), IpAddr::V6(to)) => Key::v6(from.to_bits(), to.to_bits(), 0, port, tcp),
        _ => return None,
    };
    Some(key.in_ct_zone(ct_zone))
}

#[cfg(test)]
mod tests;
