//! Expected connections (netfilter: `nf_conntrack_expect`), found by the two addresses and the destination port of a first packet.
//!
//! All memory is taken at the start. Expectations are in the order in which they are due: connections and media wait equally long, and
//! registrations, each as long as it says, are in a list of their own. Where several workers share the flows, an expectation is in their flow
//! steering table, so that its first packet comes to the worker that expects it.

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

/// The same where calls of PPTP are expected: a call has four.
const MOST_WITH_CALLS: u32 = 16_384;

/// Bytes of a segment or datagram that is rewritten.
const SCRATCH: usize = 1 << 16;

/// An expectation by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectationId(u32);

/// Kind of an expected connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data connection, which comes once.
    Data,
    /// Medium of a call, which comes once.
    Media,
    /// Signalling to a registered contact: as often as it comes, a control connection like the one that it was registered by.
    Signalling,
    /// GRE of a PPTP call that has been asked for. Nothing comes before the call is connected.
    Requested,
    /// GRE of a PPTP call: as often as its flow has to be made, until the call ends.
    Call,
    /// No packet, but the quote of one in an ICMP error: of the flow that is noted as control connection.
    Quote,
}

impl Kind {
    /// List in the order of time.
    fn list(self) -> usize {
        match self {
            Kind::Data | Kind::Media | Kind::Requested => 0,
            Kind::Signalling => 1,
            Kind::Call | Kind::Quote => 2,
        }
    }

    /// True if a packet may open an expected connection of this kind.
    pub(crate) fn is_opened(self) -> bool {
        !matches!(self, Kind::Requested | Kind::Quote)
    }
}

/// Number of lists in the order of time.
const LISTS: usize = 3;

/// An expected connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// Kind.
    pub(crate) kind: Kind,
    /// Hash of the call that a medium is of; the call ID of packets that answer, of GRE; the direction of the error, of a quote.
    pub(crate) call: u32,
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
    /// The next one in its bucket of control connections.
    sibling: u32,
}

const NONE: u32 = u32::MAX;

/// A list in the order of time.
#[derive(Clone, Copy, Debug)]
struct List {
    oldest: u32,
    youngest: u32,
}

/// Expectations of a shard.
pub(crate) struct Expectations {
    places: Box<[Place]>,
    buckets: Box<[u32]>,
    /// The same by control connection.
    masters: Box<[u32]>,
    free: u32,
    lists: [List; LISTS],
    due: Nanos,
    /// Bytes of a segment or datagram under way.
    pub(crate) scratch: Box<[u8]>,
}

impl Expectations {
    /// Takes the memory that the tables ask for: none where no rule names a helper.
    pub(crate) fn new(tables: &Tables) -> Expectations {
        if tables.filter.has_helpers { Expectations::anyway(tables) } else { Expectations::of(0) }
    }

    /// Takes memory also where no rule names a helper, for connections that have one from rules before.
    pub(crate) fn anyway(tables: &Tables) -> Expectations {
        Expectations::of(most_flows(tables).min(if tables.filter.has_calls { MOST_WITH_CALLS } else { MOST }))
    }

    fn of(many: u32) -> Expectations {
        let place = |next| Place { expectation: None, next, older: NONE, younger: NONE, sibling: NONE };
        let buckets = vec![NONE; if many == 0 { 0 } else { many.next_power_of_two() as usize }];
        Expectations {
            places: (1..=many).map(|next| place(if next == many { NONE } else { next })).collect(),
            masters: buckets.clone().into(),
            buckets: buckets.into(),
            free: if many == 0 { NONE } else { 0 },
            lists: [List { oldest: NONE, youngest: NONE }; LISTS],
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
        size_of_val(&*self.places) + 2 * size_of_val(&*self.buckets) + self.scratch.len()
    }

    /// True if nothing is expected.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.oldest == NONE)
    }

    /// True if an expectation is to be given up.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// The first expectation of all, list by list.
    pub(crate) fn first(&self) -> Option<ExpectationId> {
        self.first_from(0)
    }

    /// The first expectation of this list and those behind it.
    fn first_from(&self, list: usize) -> Option<ExpectationId> {
        let mut oldest = self.lists.iter().skip(list).map(|list| list.oldest);
        oldest.find(|oldest| *oldest != NONE).map(ExpectationId)
    }

    /// The expectation behind another.
    pub(crate) fn next(&self, id: ExpectationId) -> Option<ExpectationId> {
        let place = self.places.get(id.0 as usize)?;
        match place.younger {
            NONE => self.first_from(place.expectation?.kind.list() + 1),
            next => Some(ExpectationId(next)),
        }
    }

    /// An expectation that is to be given up.
    pub(crate) fn overdue(&self, now: Nanos) -> Option<ExpectationId> {
        let is_overdue = |id: &ExpectationId| self.get(*id).is_some_and(|of| of.until <= now);
        self.lists.iter().map(|list| ExpectationId(list.oldest)).find(is_overdue)
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

    /// Expectations of a control connection, the last first.
    pub(crate) fn of_master(&self, master: FlowId) -> impl Iterator<Item = (ExpectationId, &Expectation)> {
        let mut at = self.masters.get(self.bucket_of(master)).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let place = self.places.get(at as usize)?;
            let id = ExpectationId(at);
            at = place.sibling;
            Some((id, place.expectation.as_ref()?))
        })
        .filter(move |(_, expectation)| expectation.master == master)
    }

    /// Takes in an expectation; `None` if there is no room.
    pub(crate) fn insert(&mut self, expectation: Expectation) -> Option<ExpectationId> {
        let at = self.free;
        let bucket = self.bucket(expectation.hash);
        self.places.get(at as usize)?;
        let list = expectation.kind.list();
        // Most are the last of their list.
        let mut older = self.lists[list].youngest;
        while self.get(ExpectationId(older)).is_some_and(|before| before.until > expectation.until) {
            older = self.places[older as usize].older;
        }
        let younger = match self.places.get(older as usize) {
            Some(before) => before.younger,
            None => self.lists[list].oldest,
        };
        let of_master = self.bucket_of(expectation.master);
        let place = self.places.get_mut(at as usize)?;
        self.free = place.next;
        let next = std::mem::replace(self.buckets.get_mut(bucket)?, at);
        let sibling = std::mem::replace(self.masters.get_mut(of_master)?, at);
        *place = Place { expectation: Some(expectation), next, older, younger, sibling };
        match self.places.get_mut(older as usize) {
            Some(before) => before.younger = at,
            None => self.lists[list].oldest = at,
        }
        match self.places.get_mut(younger as usize) {
            Some(behind) => behind.older = at,
            None => self.lists[list].youngest = at,
        }
        self.note_due();
        Some(ExpectationId(at))
    }

    /// Has an expectation hold until another time.
    pub(crate) fn hold_until(&mut self, id: ExpectationId, until: Nanos) {
        // The place that has become free is the next one taken.
        if let Some(expectation) = self.remove(id) {
            let _ = self.insert(Expectation { until, ..expectation });
        }
    }

    /// Notes that a call is connected, with the call ID of packets that answer.
    pub(crate) fn connect(&mut self, id: ExpectationId, call: u16) {
        if let Some(expectation) = self.remove(id) {
            let (kind, until) = (Kind::Call, Nanos(u64::MAX));
            let _ = self.insert(Expectation { kind, call: call.into(), until, ..expectation });
        }
    }

    /// Takes an expectation out.
    pub(crate) fn remove(&mut self, ExpectationId(at): ExpectationId) -> Option<Expectation> {
        let place = self.places.get_mut(at as usize)?;
        let expectation = place.expectation.take()?;
        let Place { next, older, younger, sibling, .. } = *place;
        *place = Place { expectation: None, next: self.free, older: NONE, younger: NONE, sibling: NONE };
        self.free = at;
        self.leave_master(expectation.master, at, sibling);
        match self.places.get_mut(older as usize) {
            Some(place) => place.younger = younger,
            None => self.lists[expectation.kind.list()].oldest = younger,
        }
        match self.places.get_mut(younger as usize) {
            Some(place) => place.older = older,
            None => self.lists[expectation.kind.list()].youngest = older,
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

    /// Takes a place out of its bucket of control connections.
    fn leave_master(&mut self, master: FlowId, at: u32, sibling: u32) {
        let bucket = self.bucket_of(master);
        let Some(first) = self.masters.get_mut(bucket) else { return };
        let mut link = *first;
        if link == at {
            *first = sibling;
            return;
        }
        while let Some(place) = self.places.get_mut(link as usize) {
            if place.sibling == at {
                place.sibling = sibling;
                return;
            }
            link = place.sibling;
        }
    }

    fn bucket_of(&self, master: FlowId) -> usize {
        master.0 as usize & self.masters.len().wrapping_sub(1)
    }

    fn note_due(&mut self) {
        let first = |list: &List| self.get(ExpectationId(list.oldest)).map(|expectation| expectation.until);
        self.due = self.lists.iter().filter_map(first).min().unwrap_or(Nanos(u64::MAX));
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.buckets.len().wrapping_sub(1)
    }
}

/// Key of a first packet from one address to another and a port, whatever its source port is; of GRE, with a call ID in the place of the port.
pub(crate) fn key_to(
    protocol: Protocol,
    from: IpAddr,
    (to, port): (IpAddr, u16),
    ct_zone: u16,
) -> Option<Key> {
    let sport = if protocol == Protocol::GRE { Key::CALL } else { 0 };
    let key = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Key::v4(from.to_bits(), to.to_bits(), sport, port, protocol.0),
        (IpAddr::V6(from), IpAddr::V6(to)) => Key::v6(from.to_bits(), to.to_bits(), sport, port, protocol.0),
        _ => return None,
    };
    Some(key.in_ct_zone(ct_zone))
}

#[cfg(test)]
mod tests;
