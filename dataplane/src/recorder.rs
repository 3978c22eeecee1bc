//! The drop recorder: the last packets that were dropped or answered for each reason, with their first bytes.
//!
//! Each reason has a ring of its own, so that a flood for one reason displaces no packet of another. A packet is recorded when its
//! verdict is counted, as it is then: a packet dropped up to `snat` as it came in (of a tunnel, the inner packet), one dropped from
//! a queue as it would have left, an answered one before it was turned into its answer. A packet of many segments is one packet.
//!
//! Guarantees: all memory is allocated when a host has the recorder [kept](Recorder::keep), [`RECORD`] bytes a packet; no verdict
//! and no byte of a packet depends on it. Names of rules, interfaces and classes are those of the tables that the packet was decided by, also
//! after a reload.
//!
//! Not recorded, as no packet of theirs is counted by reason: further fragments of a packet that find a queue full, packets that
//! the gateway sends by itself, and what a device loses before or behind the gateway. PPP control packets are not, either: their
//! answers are what the pipeline sees.

use std::sync::Arc;

use wire::{Frame, Meta, Nanos, PortId};

use crate::shard::Shard;
use crate::stage::queue::ANSWERED;
use crate::tables::{LOCAL, OTHER, Renumbering, Tables};
use crate::verdict::{Reason, Verdict};

mod reload;
#[cfg(test)]
mod tests;

pub(crate) use reload::RecorderPlan;

/// Bytes of each packet that are recorded, at most.
pub const SNAP: usize = 192;

/// Bytes of memory that a recorded packet takes.
pub const RECORD: usize = size_of::<Slot>();

/// Interface of a packet that has none, or none any more.
pub const NOWHERE: PortId = PortId(u16::MAX - 2);

/// High byte of a dropped frame's fate.
const DROPPED: u16 = Verdict::Dropped(Reason::RuleDrop).to_fate() >> 8;

/// The last packets dropped and answered for each reason.
#[derive(Default)]
pub struct Recorder {
    keeping: Keeping,
    /// Packets remembered of each reason; 0 while none are recorded.
    each: u32,
    /// Rings of all reasons, one behind the other.
    slots: Vec<Slot>,
    /// Place in each ring that the next packet goes to.
    next: Vec<u32>,
    /// Number of packets recorded.
    sequence: u64,
    /// Names of recorded packets that the tables no longer have, ascending by slot.
    gone: Vec<Gone>,
}

/// A host's wish for records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeping {
    /// Nothing is recorded, whatever the policy says.
    #[default]
    Never,
    /// As many packets as the policy says.
    ByPolicy,
}

/// Recorded packet; four cache lines.
#[derive(Clone)]
#[repr(C, align(64))]
struct Slot {
    head: Head,
    bytes: [u8; SNAP],
}

const _: () = assert!(size_of::<Slot>() == 256, "a recorded packet is four cache lines");

/// Metadata of a recorded packet.
#[derive(Clone, Copy, Default)]
struct Head {
    /// Number of the packet among those recorded, from 1; 0 in an empty slot.
    sequence: u64,
    at: Nanos,
    rule: u32,
    length: u32,
    ingress: PortId,
    egress: PortId,
    nat: u16,
    class: u16,
    fate: u16,
    /// Bytes copied.
    copied: u16,
}

/// Names of a recorded packet that the tables no longer have.
#[derive(Clone, Debug, Default)]
struct Gone {
    slot: u32,
    /// Number of the packet: the slot may have another by now.
    sequence: u64,
    names: GoneNames,
}

/// Names that the tables no longer have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GoneNames {
    rule: Option<Arc<str>>,
    ingress: Option<Arc<str>>,
    egress: Option<Arc<str>>,
    class: Option<Arc<str>>,
}

/// A packet that was dropped or answered, out of a recorder. Its places are places in the tables of the shard.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Number of the packet among those that the shard has recorded.
    pub sequence: u64,
    /// Time of the verdict, on the clock of the shard.
    pub at: Nanos,
    /// Verdict, with its reason.
    pub verdict: Verdict,
    /// Bytes of the frame.
    pub length: u32,
    /// Translations that apply, as [`Meta::nat`] has them.
    pub nat: u16,
    rule: u32,
    ingress: PortId,
    egress: PortId,
    class: u16,
    gone: GoneNames,
    copied: u16,
    bytes: [u8; SNAP],
}

/// Interface of a recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface<'a> {
    /// Of this name.
    Named(&'a str),
    /// The gateway itself.
    Itself,
    /// One that the policy does not name.
    Other,
}

impl Recorder {
    /// Records packets from now on, as many of each reason as the policy says (`drop-record`): allocates their memory.
    pub fn keep(&mut self, tables: &Tables) {
        *self = Recorder::sized(tables.drop_record);
    }

    fn sized(each: u32) -> Recorder {
        let count = each as usize * Reason::COUNT;
        let empty = Slot { head: Head::default(), bytes: [0; SNAP] };
        Recorder {
            keeping: Keeping::ByPolicy,
            each,
            slots: vec![empty; count],
            next: vec![0; Reason::COUNT],
            sequence: 0,
            gone: Vec::with_capacity(count),
        }
    }

    /// Bytes of memory allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self)
            + size_of_val(self.slots.as_slice())
            + size_of_val(self.next.as_slice())
            + self.gone.capacity() * size_of::<Gone>()
    }

    /// Records a frame if its verdict is a drop. To be called once for each that is counted.
    #[inline(always)]
    pub(crate) fn note_dropped(&mut self, frame: &Frame, at: Nanos) {
        if self.each > 0 && frame.meta.fate >> 8 == DROPPED {
            self.note(&frame.meta, frame.bytes(), at);
        }
    }

    /// Records a frame that is about to be turned into its answer.
    pub(crate) fn note_answered(&mut self, frame: &Frame) {
        if self.each > 0 && frame.meta.fate >> 8 == ANSWERED {
            self.note(&frame.meta, frame.bytes(), frame.meta.received);
        }
    }

    /// Number of packets recorded so far.
    pub(crate) fn recorded(&self) -> u64 {
        self.sequence
    }

    /// Takes back the record of a packet, if it has been recorded since there were so many: it is not answered after all, and is recorded as
    /// dropped next.
    pub(crate) fn retract(&mut self, reason: Reason, before: u64) {
        if self.sequence == before {
            return;
        }
        if let Some(next) = self.next.get_mut(reason as usize) {
            *next = next.checked_sub(1).unwrap_or(self.each - 1);
            let slot = (reason as u32 * self.each + *next) as usize;
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.head.sequence = 0;
            }
        }
    }

    /// Records a frame that was dropped before it was taken in.
    pub(crate) fn note_refused(&mut self, bytes: &[u8], ingress: PortId, at: Nanos, reason: Reason) {
        if self.each > 0 {
            let fate = Verdict::Dropped(reason).to_fate();
            self.note(&Meta { ingress, fate, ..Meta::default() }, bytes, at);
        }
    }

    /// Records a packet under the reason of its verdict.
    fn note(&mut self, meta: &Meta, bytes: &[u8], at: Nanos) {
        let reason = meta.fate & 0xff;
        let Some(next) = self.next.get_mut(usize::from(reason)) else { return };
        let place = u32::from(reason) * self.each + *next;
        *next = if *next + 1 == self.each { 0 } else { *next + 1 };
        let Some(slot) = self.slots.get_mut(place as usize) else { return };
        self.sequence += 1;
        let copied = bytes.len().min(SNAP);
        slot.head = Head {
            sequence: self.sequence,
            at,
            rule: meta.rule,
            length: bytes.len() as u32,
            ingress: meta.ingress,
            egress: if meta.hop == Meta::NO_HOP { NOWHERE } else { meta.egress },
            nat: meta.nat,
            class: meta.class,
            fate: meta.fate,
            copied: copied as u16,
        };
        if let (Some(to), Some(from)) = (slot.bytes.get_mut(..copied), bytes.get(..copied)) {
            to.copy_from_slice(from);
        }
    }

    /// Packets recorded for these reasons, in no order but that of [`Recorded::sequence`]: of each reason at most as many as the policy says.
    pub fn packets(&self, reasons: &[Reason]) -> Vec<Recorded> {
        let most = self.each as usize;
        let mut packets = Vec::with_capacity(most * reasons.len());
        for reason in reasons {
            let first = *reason as usize * most;
            let ring = self.slots.get(first..first + most).unwrap_or_default();
            packets.extend((first as u32..).zip(ring).filter_map(|(place, slot)| self.packet(place, slot)));
        }
        packets
    }

    /// Packet in a slot, if there is one.
    fn packet(&self, place: u32, slot: &Slot) -> Option<Recorded> {
        let Head { sequence, at, rule, length, ingress, egress, nat, class, fate, copied } = slot.head;
        let verdict = Verdict::of_fate(fate).filter(|_| sequence > 0)?;
        let gone = names_of(&self.gone, place, sequence).cloned().unwrap_or_default();
        let bytes = slot.bytes;
        Some(Recorded {
            sequence,
            at,
            verdict,
            length,
            nat,
            rule,
            ingress,
            egress,
            class,
            gone,
            copied,
            bytes,
        })
    }
}

/// Names of the packet in a slot that are gone.
fn names_of(gone: &[Gone], slot: u32, sequence: u64) -> Option<&GoneNames> {
    let found = gone.get(gone.binary_search_by_key(&slot, |gone| gone.slot).ok()?)?;
    (found.sequence == sequence).then_some(&found.names)
}

impl Recorded {
    /// Bytes of the frame, from the link-layer header on, up to [`SNAP`] of them.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.copied)).unwrap_or_default()
    }

    /// Name of the rule that decided; `tables` are the shard's.
    pub fn rule<'a>(&'a self, tables: &'a Tables) -> Option<&'a str> {
        let there = || tables.filter.rules.get(self.rule as usize).map(|rule| rule.name.as_str());
        self.gone.rule.as_deref().or_else(there)
    }

    /// Interface that the packet came in by; `None` if unknown.
    pub fn ingress<'a>(&'a self, tables: &'a Tables) -> Option<Interface<'a>> {
        interface(self.gone.ingress.as_deref(), self.ingress, tables)
    }

    /// Interface that the packet was to leave by; `None` if none had been chosen.
    pub fn egress<'a>(&'a self, tables: &'a Tables) -> Option<Interface<'a>> {
        interface(self.gone.egress.as_deref(), self.egress, tables)
    }

    /// Name of the packet's traffic class, if it has been given one.
    pub fn class<'a>(&'a self, tables: &'a Tables) -> Option<&'a str> {
        let place = usize::from(self.class).checked_sub(1);
        let there = || Some(tables.classes.list.get(place?)?.name.as_str());
        self.gone.class.as_deref().or_else(there)
    }
}

fn interface<'a>(gone: Option<&'a str>, id: PortId, tables: &'a Tables) -> Option<Interface<'a>> {
    if let Some(name) = gone {
        return Some(Interface::Named(name));
    }
    match id {
        LOCAL => Some(Interface::Itself),
        OTHER => Some(Interface::Other),
        _ => tables.interface(id).map(|interface| Interface::Named(&interface.name)),
    }
}
