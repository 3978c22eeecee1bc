//! Stamps of changes: which flows a change of a set may be about.
//!
//! Each change has a number. A change of an element of one address is stamped in one of 4,096 places, by a hash of the address; a
//! change of a wider prefix, and a flush, in one place for all. A flow keeps the number of the last change before it was validated,
//! with the places of its two addresses and its memberships then. A later stamp in one of them is a reason to look the memberships
//! up; the flow is validated again if it has gained one, or has lost one to a removal. One lost by expiry is no reason: a flow that a
//! set has admitted goes on.

use bytemuck::{Pod, Zeroable};
use lookup::set::Prefix;
use wire::{Family, Nanos};

use crate::tables::{Address, SetQuestions, Tables};

/// Places for stamps of single addresses.
const PLACES: usize = 4_096;

/// Sets with a bit.
const SETS: usize = 32;

/// Numbers of the last changes.
#[derive(Default)]
pub(crate) struct Stamps {
    /// Number of the last change of all.
    last: u64,
    /// Number of the last change of a prefix that is not one address.
    wide: u64,
    /// Numbers of the last changes of single addresses, then those of the last removal from each set; empty where nobody asks.
    places: Vec<u64>,
    /// Sets that rules or classes ask for, a bit each.
    asked: u32,
    /// Number of the last change that published flows were taken back for, and the moment before which they are not again.
    followed: u64,
    follow_at: Nanos,
}

/// Validation of a flow: beside the flow, where rules ask for sets.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Watch {
    /// Number of the last change before.
    change: u64,
    /// Memberships then, as headers have them.
    bits: u32,
    /// Places of the stamps of source and destination.
    places: [u16; 2],
}

impl Stamps {
    pub(crate) fn new(tables: &Tables) -> Stamps {
        let mut stamps = Stamps::default();
        stamps.ask(tables, &mut Stamps::places(tables));
        stamps
    }

    /// Memory for the stamps that the questions of tables need.
    pub(crate) fn places(tables: &Tables) -> Vec<u64> {
        vec![0; if tables.set_questions.are_watched() { PLACES + SETS } else { 0 }]
    }

    /// Stamps changes of the sets that the tables ask for from now on. Flows have to be validated by them; numbers go on.
    pub(crate) fn ask(&mut self, tables: &Tables, places: &mut Vec<u64>) {
        self.asked = tables.set_questions.watched_sets();
        // Places of sets may be others, and all flows are validated anew.
        std::mem::swap(&mut self.places, places);
        self.wide = 0;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.places.as_slice())
    }

    /// True if flows may have to notice changes since a watch.
    #[inline(always)]
    pub(crate) fn is_after(&self, watch: &Watch) -> bool {
        let stamp = |place: u16| self.places.get(usize::from(place)).copied().unwrap_or(0);
        let [source, destination] = watch.places;
        self.wide.max(stamp(source)).max(stamp(destination)) > watch.change
    }

    /// True if there were changes that flows have to notice which the kernel carries, and the last time that this was said is a second
    /// ago: says so once.
    pub(crate) fn is_to_follow(&mut self, now: Nanos) -> bool {
        let is_time = now >= self.follow_at;
        if self.followed == self.last || !is_time {
            return false;
        }
        (self.followed, self.follow_at) = (self.last, now + Nanos::from_secs(1));
        true
    }

    /// True if a flow with that watch has gained memberships, or lost them to a removal, now that it has `bits`.
    pub(crate) fn concern(&self, watch: &Watch, bits: u32, questions: &SetQuestions) -> bool {
        let watched = questions.watched();
        if bits & !watch.bits & watched != 0 {
            return true;
        }
        let lost = watch.bits & !bits & watched;
        let sets = questions.bits.iter().zip(self.places.iter().skip(PLACES));
        sets.into_iter().any(|(of, removed)| (of[0] | of[1]) & lost != 0 && *removed > watch.change)
    }

    /// Watch of a flow between these ends that is validated now.
    pub(crate) fn watch(&self, ends: [Address; 2], bits: u32) -> Watch {
        let places = ends.map(|end| place(Prefix::host(end.family(), end.bits)));
        Watch { change: self.last, bits, places }
    }

    pub(crate) fn note_added(&mut self, set: u16, prefix: Prefix) {
        if self.is_asked(set) {
            self.stamp(prefix);
        }
    }

    pub(crate) fn note_removed(&mut self, set: u16, prefix: Prefix) {
        if self.is_asked(set) {
            self.stamp(prefix);
            self.note_removal(set);
        }
    }

    pub(crate) fn note_flushed(&mut self, set: u16) {
        if self.is_asked(set) {
            self.last += 1;
            self.wide = self.last;
            self.note_removal(set);
        }
    }

    fn is_asked(&self, set: u16) -> bool {
        self.asked.checked_shr(set.into()).unwrap_or(0) & 1 != 0
    }

    fn stamp(&mut self, prefix: Prefix) {
        self.last += 1;
        let host = if prefix.is_host() { self.places.get_mut(usize::from(place(prefix))) } else { None };
        *host.unwrap_or(&mut self.wide) = self.last;
    }

    fn note_removal(&mut self, set: u16) {
        if let Some(removed) = self.places.get_mut(PLACES + usize::from(set)) {
            *removed = self.last;
        }
    }
}

/// Place of an address's stamp. Whoever finds addresses that share one makes flows look memberships up, and no more.
#[inline(always)]
fn place(host: Prefix) -> u16 {
    let bits = match host.family {
        Family::V6 => (host.bits >> 64) as u64 ^ (host.bits as u64).rotate_left(29),
        Family::V4 | Family::Other => host.bits as u64,
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u16
}
