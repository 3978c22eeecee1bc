//! Packets that sessions send, until the pipeline makes frames of them.

use arrayvec::ArrayVec;
use wire::ethernet::Mac;
use wire::ppp::{self, Protocol};

/// Most packets at one time. One event makes no more than six; what finds no room is lost as on the wire, and sent again by its timer.
pub const MOST: usize = 64;

/// Most bytes of all packets together.
const ROOM: usize = 16_384;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PPPoE discovery, of that code: the bytes are tags.
    Discovery(u8),
    /// PPP, of that protocol: the bytes are behind the protocol field.
    Ppp(Protocol),
}

/// Packet to be sent, without headers of its carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Place of the session in [`Tables::sessions`](crate::tables::Tables::sessions).
    pub place: u16,
    /// Destination of PPP over Ethernet.
    pub to: Mac,
    /// PPPoE session identifier.
    pub session: u16,
    /// Kind.
    pub kind: Kind,
    /// Bytes.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u16,
    to: Mac,
    session: u16,
    kind: Kind,
    end: usize,
}

/// Packets to be sent, in their order. Memory is allocated at the start.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Number of entries that are done.
    taken: usize,
    /// Session and peer that packets are for: [`Outbox::address`].
    place: u16,
    to: Mac,
    session: u16,
}

impl Outbox {
    /// Allocates the memory.
    pub(super) fn new() -> Outbox {
        Outbox { bytes: Vec::with_capacity(ROOM), entries: Vec::with_capacity(MOST), ..Outbox::default() }
    }

    /// Says whose packets follow, and to whom.
    pub(super) fn address(&mut self, place: u16, to: Mac, session: u16) {
        (self.place, self.to, self.session) = (place, to, session);
    }

    /// Adds a packet, as the parts that it is made of.
    pub(super) fn push(&mut self, kind: Kind, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.entries.len() >= MOST || self.bytes.len() + len > ROOM {
            return;
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let Outbox { place, to, session, .. } = *self;
        self.entries.push(Entry { place, to, session, kind, end: self.bytes.len() });
    }

    /// Adds a control packet of PPP.
    pub(super) fn control(&mut self, protocol: Protocol, code: u8, id: u8, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        let header = ppp::header(code, id, len);
        let mut all = ArrayVec::<&[u8], 5>::new();
        all.push(&header);
        all.extend(parts.iter().copied().take(4));
        self.push(Kind::Ppp(protocol), &all);
    }

    /// True if nothing is to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.entries.len()
    }

    /// Takes the next packet.
    pub(super) fn take(&mut self) -> Option<Outgoing<'_>> {
        if self.is_empty() {
            self.bytes.clear();
            self.entries.clear();
            self.taken = 0;
            return None;
        }
        let start = match self.taken.checked_sub(1) {
            Some(before) => self.entries.get(before)?.end,
            None => 0,
        };
        let Entry { place, to, session, kind, end } = *self.entries.get(self.taken)?;
        self.taken += 1;
        Some(Outgoing { place, to, session, kind, bytes: self.bytes.get(start..end)? })
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}
