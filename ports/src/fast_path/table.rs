//! The table of published flows: slots in memory shared with the programs, found by an index of buckets.
//!
//! A slot passes from free to claimed, published, retracted and free again by its version, by which a program tells one publication from
//! another. Slots that are free form a stack, so that those in use lie close together (see [`layout`]). Workers need no lock among each
//! other: slots, entries of the index and versions each change hands by one exchange.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use wire::checksum::Delta;
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::{Bytes, Nanos};

use super::hash::{Hasher, VLAN_SHIFT};
use super::layout::{self, BUCKET, Fall, INDEX_BITS, Layout, last, slot};
use super::{Account, Entry, FallThrough, Place, Tuple, Window};
use crate::program::MOST_VLAN;
use crate::sys::mapping::Words;

/// The table.
pub(crate) struct Table {
    words: Words,
    layout: Layout,
    hasher: Hasher,
    in_use: AtomicU32,
    /// Top of the stack of free slots: its index, 0 if there is none, and above it a number that each change makes another one, so that a worker
    /// that was interrupted takes no slot whose successor has changed.
    free: AtomicU64,
    /// Slots from here on have never been used.
    fresh: AtomicU32,
}

/// Step from a version that is free to the next that is claimed, and so on: see [`slot::VERSION`].
const CLAIM: u32 = 2;
const PUBLISH: u32 = 1;
const FREE: u32 = 2;
const STATE: u32 = 3;
const PUBLISHED: u32 = 3;

impl Table {
    /// The table in zeroed memory of that layout.
    pub(crate) fn new(words: Words, layout: Layout, hasher: Hasher) -> Table {
        let (in_use, free, fresh) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU32::new(1));
        Table { words, layout, hasher, in_use, free, fresh }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Slots that are claimed, published or retracted.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The generation that programs accept.
    pub(crate) fn generation(&self) -> u32 {
        self.words.word(layout::GENERATION).load(Ordering::Acquire)
    }

    /// Takes back all publications at once.
    pub(crate) fn advance_generation(&self) -> u32 {
        self.words.word(layout::GENERATION).fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Publishes both directions of a flow, or neither.
    pub(crate) fn publish(&self, entries: &[Entry; 2]) -> Option<[Place; 2]> {
        let keys = [Key::of(&entries[0])?, Key::of(&entries[1])?];
        if keys[0] == keys[1] {
            return None;
        }
        let generation = self.generation();
        let first = self.claim(&keys[0], generation)?;
        let Some(second) = self.claim(&keys[1], generation) else {
            self.clear(first);
            return None;
        };
        let places = [first, second];
        for (this, (entry, key)) in entries.iter().zip(&keys).enumerate() {
            self.write(places[this], places[1 - this], key, entry, generation);
        }
        for place in places {
            // Release: whoever sees the version sees both slots.
            self.slot_word(place.index, slot::VERSION).store(place.version, Ordering::Release);
        }
        Some(places)
    }

    /// Takes a publication back.
    pub(crate) fn retract(&self, place: Place) {
        let version = self.slot_word(place.index, slot::VERSION);
        // It may be retracted already.
        let _ =
            version.compare_exchange(place.version, place.retracted(), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Frees a retracted slot.
    pub(crate) fn free(&self, place: Place) {
        if self.slot_word(place.index, slot::VERSION).load(Ordering::Acquire) == place.retracted() {
            self.clear(place);
        }
    }

    pub(crate) fn is_live(&self, place: Place) -> bool {
        self.slot_word(place.index, slot::VERSION).load(Ordering::Acquire) == place.version
            && self.slot_word(place.index, slot::GENERATION).load(Ordering::Relaxed) == self.generation()
    }

    /// Counters of a publication, until its slot is freed.
    pub(crate) fn account(&self, place: Place) -> Account {
        let count = |field| self.slot_long(place.index, field).load(Ordering::Relaxed);
        let account = Account {
            packets: count(slot::PACKETS),
            bytes: Bytes(count(slot::BYTES)),
            frame_bytes: Bytes(count(slot::FRAME_BYTES)),
            seen: Nanos(count(slot::SEEN)),
        };
        if self.holds(place) { account } else { Account::default() }
    }

    /// TCP windows of a publication.
    pub(crate) fn window(&self, place: Place) -> Option<Window> {
        let word = |field| self.slot_word(place.index, field).load(Ordering::Relaxed);
        let window = Window {
            end: word(slot::END),
            max_window: word(slot::MAX_WINDOW),
            grants: word(slot::GRANTS),
            scale: word(slot::SCALE) as u8,
        };
        let has_window = word(slot::FLAGS) & slot::HAS_WINDOW != 0;
        (has_window && self.holds(place)).then_some(window)
    }

    /// Sets the window of a publication, but for its scale, while no packet of the direction can go by.
    pub(crate) fn set_window(&self, place: Place, window: Window) {
        if self.holds(place) {
            let fields = [
                (slot::END, window.end),
                (slot::MAX_WINDOW, window.max_window),
                (slot::GRANTS, window.grants),
            ];
            for (field, value) in fields {
                self.slot_word(place.index, field).store(value, Ordering::Relaxed);
            }
        }
    }

    /// Packets of all CPUs that fell through.
    pub(crate) fn fall_through(&self) -> FallThrough {
        let sum = |reason| self.sum(layout::fall(reason));
        FallThrough {
            unplain: sum(Fall::Unplain),
            unknown: sum(Fall::Unknown),
            too_big: sum(Fall::TooBig),
            window: sum(Fall::Window),
            order: sum(Fall::Order),
            stale: sum(Fall::Stale),
            overload: sum(Fall::Overload),
            unsent: self.sum(layout::frame::UNSENT),
        }
    }

    /// Frames that the program at XDP redirected, and that their device refused.
    pub(crate) fn refused(&self) -> u64 {
        self.sum(layout::frame::REFUSED)
    }

    /// Sum of a counter of all CPUs.
    fn sum(&self, at: i16) -> u64 {
        let cpus = 0..self.layout.cpus();
        let counts = cpus.map(|cpu| self.words.long(self.layout.cpu_word(cpu, at)).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Number of packets that the filter has kept for a line.
    #[inline]
    pub(crate) fn passed(&self, line: usize) -> u64 {
        self.words.long(layout::passed(line)).load(Ordering::Acquire)
    }

    /// Tells the filter up to which of a line's packets all have been sent on.
    #[inline]
    pub(crate) fn set_taken(&self, line: usize, taken: u64) {
        self.words.long(layout::taken(line)).store(taken, Ordering::Release);
    }

    /// True if the slot is the publication's, still in force or retracted.
    fn holds(&self, place: Place) -> bool {
        fence(Ordering::Acquire);
        let version = self.slot_word(place.index, slot::VERSION).load(Ordering::Relaxed);
        version == place.version || version == place.retracted()
    }

    /// Claims a slot and an entry of the index for a key; `None` where none is free, or the key is published already.
    fn claim(&self, key: &Key, generation: u32) -> Option<Place> {
        let hash = self.hasher.hash(&key.pairs()[..key.len()]);
        let first = self.layout.bucket(hash) * BUCKET as u32;
        let (tag, entries) = (hash << INDEX_BITS, first..first + BUCKET as u32);
        let is_it = |entry: u32| self.is_published(index_of(entry), key, generation);
        if entries.clone().any(|number| is_it(self.entry(number).load(Ordering::Acquire))) {
            return None;
        }
        let index = self.take_slot()?;
        let takes = |number: &u32| {
            let (entry, own) = (self.entry(*number), tag | index);
            let old = entry.load(Ordering::Relaxed);
            (old == 0 || self.is_outdated(old, generation))
                && entry.compare_exchange(old, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(number) = entries.into_iter().find(takes) else {
            self.give_slot(index);
            return None;
        };
        let version = self.slot_word(index, slot::VERSION);
        let claimed = version.load(Ordering::Relaxed).wrapping_add(CLAIM);
        version.store(claimed, Ordering::Relaxed);
        self.slot_word(index, slot::INDEX).store(index, Ordering::Relaxed);
        self.slot_word(index, slot::ENTRY).store(number, Ordering::Relaxed);
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Some(Place { index, version: claimed.wrapping_add(PUBLISH) })
    }

    /// Frees a claimed or retracted slot, and its entry of the index.
    fn clear(&self, place: Place) {
        let number = self.slot_word(place.index, slot::ENTRY).load(Ordering::Relaxed);
        let entry = self.entry(number);
        let own = entry.load(Ordering::Relaxed);
        if index_of(own) == place.index {
            // Unless a key of a later generation has it by now.
            let _ = entry.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        let free = place.retracted().wrapping_add(FREE);
        self.slot_word(place.index, slot::VERSION).store(free, Ordering::Release);
        self.give_slot(place.index);
    }

    /// Takes a slot that is free: the one that was freed last, or one that has never been used.
    fn take_slot(&self) -> Option<u32> {
        let mut top = self.free.load(Ordering::Acquire);
        while top as u32 != 0 {
            let next = self.slot_word(top as u32, slot::ENTRY).load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(top, after(top, next), Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(top as u32),
                Err(now) => top = now,
            }
        }
        let slots = self.layout.slots() as u32;
        let more = |fresh| (fresh < slots).then_some(fresh + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
    }

    /// Puts a free slot on top of the stack.
    fn give_slot(&self, index: u32) {
        let mut top = self.free.load(Ordering::Relaxed);
        loop {
            self.slot_word(index, slot::ENTRY).store(top as u32, Ordering::Relaxed);
            match self.free.compare_exchange_weak(top, after(top, index), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// True for an entry of a slot that an earlier generation published: no program finds the slot by it any more.
    fn is_outdated(&self, entry: u32, generation: u32) -> bool {
        let index = index_of(entry);
        let is_published = self.slot_word(index, slot::VERSION).load(Ordering::Acquire) & STATE == PUBLISHED;
        is_published && self.slot_word(index, slot::GENERATION).load(Ordering::Relaxed) != generation
    }

    fn is_published(&self, index: u32, key: &Key, generation: u32) -> bool {
        self.slot_word(index, slot::VERSION).load(Ordering::Acquire) & STATE == PUBLISHED
            && self.slot_word(index, slot::GENERATION).load(Ordering::Relaxed) == generation
            && self.fields(index, slot::SOURCE).zip(key.0).all(|(word, own)| {
                // The key is the beginning of the slot.
                word.load(Ordering::Relaxed) == own
            })
    }

    /// Writes all of a claimed slot but its version.
    fn write(&self, place: Place, peer: Place, key: &Key, entry: &Entry, generation: u32) {
        let words = |field, values: &[u32]| {
            for (word, value) in self.fields(place.index, field).zip(values) {
                word.store(*value, Ordering::Relaxed);
            }
        };
        let (to, change) = (&entry.to, Change::of(entry));
        words(slot::SOURCE, &key.0);
        words(slot::GENERATION, &[generation]);
        words(slot::PEER, &[peer.index]);
        words(slot::NEW_SOURCE, &address(to.source));
        words(slot::NEW_DESTINATION, &address(to.destination));
        words(slot::NEW_PORTS, &[to.ports()]);
        words(slot::HEADER_SUM, &[pair(change.header.to_ne_bytes(), entry.mtu.to_ne_bytes())]);
        words(slot::ADDRESS_SUM, &[change.addresses.into(), change.ports.into()]);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = entry.link;
        words(slot::LINK, &[[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_ne_bytes));
        words(slot::OUT, &[entry.out]);
        for field in [slot::PACKETS, slot::BYTES, slot::FRAME_BYTES, slot::SEEN] {
            self.slot_long(place.index, field).store(0, Ordering::Relaxed);
        }
        words(slot::WAITED, &[0]);
        // Later than any: so the first packet goes to the worker, and its number, stored then, follows those of packets
        // whose look-up was before the publication.
        self.slot_long(place.index, slot::LAST).store(last::NEVER, Ordering::Relaxed);
        let window = entry.window.unwrap_or_default();
        words(slot::END, &[window.end, window.max_window, window.grants]);
        let has_mark = entry.mark.map_or(0, |_| slot::HAS_MARK);
        let has_window = entry.window.map_or(0, |_| slot::HAS_WINDOW);
        words(
            slot::FLAGS,
            &[has_mark | has_window, entry.tag.map_or(0, |tag| slot::HAS_TAG | u32::from(tag.tci))],
        );
        self.slot_long(place.index, slot::DSCP).store(entry.dscp.bits(), Ordering::Relaxed);
        words(slot::MARK, &[mark(entry)]);
        words(slot::SCALE, &[window.scale.min(MOST_SCALE).into(), peer.version]);
    }

    /// Entry of the index, by its number.
    fn entry(&self, number: u32) -> &AtomicU32 {
        self.words.word(self.layout.entry(number))
    }

    /// Words of a slot, from a field on.
    fn fields(&self, index: u32, field: i16) -> impl Iterator<Item = &AtomicU32> {
        (field..layout::SLOT as i16).step_by(4).map(move |field| self.slot_word(index, field))
    }

    #[inline]
    fn slot_word(&self, index: u32, field: i16) -> &AtomicU32 {
        self.words.word(self.layout.field(index, field))
    }

    #[inline]
    fn slot_long(&self, index: u32, field: i16) -> &AtomicU64 {
        self.words.long(self.layout.field(index, field))
    }
}

/// Index of the slot of an entry.
fn index_of(entry: u32) -> u32 {
    entry & ((1 << INDEX_BITS) - 1)
}

/// The stack of free slots with another top.
fn after(top: u64, index: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(index)
}

impl Place {
    /// Version of the slot once the publication is retracted.
    fn retracted(self) -> u32 {
        self.version.wrapping_sub(PUBLISH)
    }
}

impl Tuple {
    /// Both ports, as they lie in a packet.
    fn ports(&self) -> u32 {
        pair(self.sport.to_be_bytes(), self.dport.to_be_bytes())
    }
}

/// Highest window scale (RFC 7323, section 2.3).
const MOST_SCALE: u8 = 14;

/// Key of a flow's direction, as it lies in a slot: addresses, ports, interface, protocol, family and VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key([u32; 11]);

impl Key {
    /// Key of an entry; `None` where addresses are of different versions, the protocol is neither TCP nor UDP, or a tag is none of 802.1Q.
    fn of(entry: &Entry) -> Option<Key> {
        if entry.protocol != Protocol::TCP && entry.protocol != Protocol::UDP {
            return None;
        }
        if entry.vlan > MOST_VLAN || entry.tag.is_some_and(|tag| tag.tpid != EtherType::VLAN) {
            return None;
        }
        let Tuple { source, destination, .. } = entry.from;
        let to = entry.to;
        let is_v4 = source.is_ipv4();
        if [destination, to.source, to.destination].iter().any(|address| address.is_ipv4() != is_v4) {
            return None;
        }
        let family = if is_v4 { layout::V4 } else { layout::V6 };
        let mut words = [0; 11];
        words[..4].copy_from_slice(&address(source));
        words[4..8].copy_from_slice(&address(destination));
        words[8..].copy_from_slice(&[
            entry.from.ports(),
            entry.ifindex,
            pair([entry.protocol.0, family], entry.vlan.to_ne_bytes()),
        ]);
        Some(Key(words))
    }

    /// Pairs of words that are hashed.
    fn pairs(&self) -> [[u32; 2]; 5] {
        let [a, b, c, d, e, f, g, h, ports, ifindex, kind] = self.0;
        let [protocol, _, low, high] = kind.to_ne_bytes();
        let vlan = u16::from_ne_bytes([low, high]);
        let first = [ports, ifindex ^ u32::from(protocol) << 24 ^ u32::from(vlan) << VLAN_SHIFT];
        if self.is_v4() {
            [first, [a, e], [0; 2], [0; 2], [0; 2]]
        } else {
            [first, [a, b], [c, d], [e, f], [g, h]]
        }
    }

    /// Number of these pairs.
    fn len(&self) -> usize {
        if self.is_v4() { 2 } else { 5 }
    }

    fn is_v4(&self) -> bool {
        let [_, family, ..] = self.0[10].to_ne_bytes();
        family == layout::V4
    }
}

/// Differences of one's complement sums, 16 bits in memory order each.
struct Change {
    /// Of the IP header, TTL or hop limit included.
    header: u16,
    /// Of the pseudo header.
    addresses: u16,
    ports: u16,
}

impl Change {
    fn of(entry: &Entry) -> Change {
        let (from, to) = (&entry.from, &entry.to);
        let addresses = [(from.source, to.source), (from.destination, to.destination)];
        let addresses = addresses.iter().fold(Delta::NONE, |delta, (old, new)| match (old, new) {
            (IpAddr::V4(old), IpAddr::V4(new)) => delta.change32((*old).into(), (*new).into()),
            (IpAddr::V6(old), IpAddr::V6(new)) => delta.change128((*old).into(), (*new).into()),
            // Such an entry has no key.
            _ => delta,
        });
        let ports = Delta::NONE.change16(from.sport, to.sport).change16(from.dport, to.dport);
        // Time to live is the upper byte of its word, hop limit the lower.
        let header = addresses.change16(if from.source.is_ipv4() { 0x0100 } else { 0x0001 }, 0);
        let memory = |delta: Delta| delta.to_bits().to_be();
        Change { header: memory(header), addresses: memory(addresses), ports: memory(ports) }
    }
}

/// Code point that packets are given, as it lies in a slot.
fn mark(entry: &Entry) -> u32 {
    let value = entry.mark.unwrap_or_default().value();
    let first = if entry.from.source.is_ipv4() { [0, value << 2] } else { [0x60 | value >> 2, value << 6] };
    pair(first, [0; 2])
}

fn pair([a, b]: [u8; 2], [c, d]: [u8; 2]) -> u32 {
    u32::from_ne_bytes([a, b, c, d])
}

/// An address as it lies in a slot.
fn address(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            let word =
                |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
            [word(0), word(4), word(8), word(12)]
        }
    }
}

#[cfg(test)]
impl Place {
    /// Index of the slot.
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

#[cfg(test)]
impl Table {
    /// Has slots that have never been used begin with another one.
    pub(crate) fn use_slots_from(&self, index: u32) {
        self.fresh.store(index, Ordering::Relaxed);
    }

    /// Line and number of the last packet of a publication that was kept.
    pub(crate) fn last(&self, place: Place) -> Option<(usize, u64)> {
        let last = self.slot_long(place.index, slot::LAST).load(Ordering::Relaxed);
        let line = last % (1 << last::SHIFT);
        (last != last::NEVER).then_some((line as usize, last >> last::SHIFT))
    }

    /// Number of a line's packets that the filter knows to have been sent on.
    pub(crate) fn taken(&self, line: usize) -> u64 {
        self.words.long(layout::taken(line)).load(Ordering::Relaxed)
    }

    /// Counts packets kept for a line, as the filter does.
    pub(crate) fn pass(&self, line: usize, packets: u64) {
        self.words.long(layout::passed(line)).fetch_add(packets, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
