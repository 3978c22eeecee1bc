//! Outer packets that were captured in fragments, put together (RFC 791, section 3.2; RFC 8200, section 4.5).
//!
//! [`MOST`] datagrams are under way at most, each for [`TERM`]; the oldest gives way. Where fragments overlap, nothing comes of them
//! (RFC 5722).

use std::collections::VecDeque;

use wire::esp::{Front, NAT_PORT};
use wire::header::{Fragment, Protocol};
use wire::{Nanos, ipv4, ipv6, udp};

/// Datagrams under way, at most.
const MOST: usize = 256;

/// Time for all fragments of a datagram (RFC 8200, section 4.5).
const TERM: Nanos = Nanos::from_secs(60);

/// Addresses, protocol and identification of a datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    source: u128,
    destination: u128,
    protocol: Protocol,
    id: u32,
    is_v4: bool,
}

/// Fragment of a datagram.
struct Part<'a> {
    key: Key,
    fragment: Fragment,
    /// Header that the whole packet has, but for its lengths.
    header: Vec<u8>,
    payload: &'a [u8],
}

/// Datagram under way.
struct Datagram {
    key: Key,
    since: Nanos,
    header: Option<Vec<u8>>,
    /// Bytes that have come, by their offset.
    pieces: Vec<(usize, Vec<u8>)>,
    total: Option<usize>,
}

/// Datagrams under way.
#[derive(Default)]
pub(super) struct Fragments {
    list: VecDeque<Datagram>,
    /// Fragments of ESP that nothing has come of.
    lost: u64,
}

/// True for a fragment of ESP, or of UDP that may have it.
pub(super) fn is_one(packet: &[u8]) -> bool {
    Part::of(packet).is_some()
}

impl Fragments {
    /// Keeps a packet that is a fragment of ESP, or of UDP that may have it. Returns the whole one that it completes.
    pub(super) fn take(&mut self, packet: &[u8], now: Nanos) -> Option<Vec<u8>> {
        let Part { key, fragment, header, payload } = Part::of(packet)?;
        while self.list.front().is_some_and(|oldest| now.0.saturating_sub(oldest.since.0) > TERM.0) {
            self.drop(0);
        }
        let place = match self.list.iter().position(|datagram| datagram.key == key) {
            Some(place) => place,
            None => {
                if self.list.len() == MOST {
                    self.drop(0);
                }
                let (pieces, header) = (Vec::new(), None);
                self.list.push_back(Datagram { key, since: now, header, pieces, total: None });
                self.list.len() - 1
            }
        };
        let datagram = &mut self.list[place];
        let (begin, end) = (usize::from(fragment.offset), usize::from(fragment.offset) + payload.len());
        let overlaps = |(at, bytes): &(usize, Vec<u8>)| begin < at + bytes.len() && *at < end;
        let is_past = datagram.total.is_some_and(|total| end > total || !fragment.more && end != total);
        if payload.is_empty()
            || is_past
            || end > usize::from(u16::MAX)
            || datagram.pieces.iter().any(overlaps)
        {
            // Once more, and no more, if it is the same.
            if !datagram.pieces.iter().any(|(at, bytes)| *at == begin && bytes == payload) {
                datagram.pieces.push((begin, payload.to_vec()));
                self.drop(place);
            }
            return None;
        }
        if !fragment.more {
            datagram.total = Some(end);
        }
        if begin == 0 {
            datagram.header = Some(header);
        }
        datagram.pieces.push((begin, payload.to_vec()));
        let come: usize = datagram.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        if datagram.total != Some(come) {
            return None;
        }
        self.list.remove(place)?.whole()
    }

    /// Number of fragments of ESP that nothing has come of.
    pub(super) fn left(&self) -> u64 {
        self.lost + self.list.iter().map(Datagram::fragments).sum::<u64>()
    }

    fn drop(&mut self, place: usize) {
        self.lost += self.list.remove(place).map_or(0, |datagram| datagram.fragments());
    }
}

impl Datagram {
    /// Number of its fragments, if it has ESP, as far as they show.
    fn fragments(&self) -> u64 {
        let mut first = self.pieces.iter().filter(|(at, _)| *at == 0);
        let has_port = |bytes: &[u8]| {
            udp::Header::of(bytes).is_some_and(|header| [header.sport(), header.dport()].contains(&NAT_PORT))
        };
        let is_esp = self.key.protocol == Protocol::ESP || first.any(|(_, bytes)| has_port(bytes));
        if is_esp { self.pieces.len() as u64 } else { 0 }
    }

    /// The packet, of which all has come.
    fn whole(mut self) -> Option<Vec<u8>> {
        self.pieces.sort_by_key(|(at, _)| *at);
        let mut packet = self.header?;
        self.pieces.iter().for_each(|(_, bytes)| packet.extend_from_slice(bytes));
        let len = u16::try_from(packet.len()).ok()?;
        if self.key.is_v4 {
            let mut header = ipv4::HeaderMut::of(&mut packet)?;
            header.set_total_len(len);
            header.set_flags_and_offset(0);
            ipv4::fill_checksum(&mut packet);
        } else {
            ipv6::HeaderMut::of(&mut packet)?.set_payload_len(len - ipv6::HEADER_LEN as u16);
        }
        Some(packet)
    }
}

impl Part<'_> {
    /// `None` for a packet that is no fragment, or of another protocol.
    fn of(packet: &[u8]) -> Option<Part<'_>> {
        let is_v4 = packet.first()? >> 4 == 4;
        let part = if is_v4 {
            let parsed = ipv4::parse_prefix(packet).ok()?;
            let (header, fragment) = (parsed.header, parsed.header.fragment()?);
            let (source, destination) = (header.src_bits().into(), header.dst_bits().into());
            let key = Key { source, destination, protocol: header.protocol(), id: fragment.id, is_v4 };
            let header = packet.get(..header.header_len())?.to_vec();
            Part { key, fragment, header, payload: parsed.payload }
        } else {
            let parsed = ipv6::parse_prefix(packet).ok()?;
            let found = parsed.extensions.fragment.filter(|found| !found.fragment.is_atomic())?;
            let at = ipv6::HEADER_LEN + usize::from(found.at);
            let (front, rest) = packet.split_at_checked(at)?;
            let (own, _) = rest.split_first_chunk::<{ ipv6::FRAGMENT_HEADER_LEN }>()?;
            // What the fragment header names stands in the place of the fragment header.
            let mut header = front.to_vec();
            let named = Front::ending_at(packet, at as u16)?;
            named.lead_to(&mut header, Protocol(own[0]));
            let (source, destination) = (parsed.header.src_bits(), parsed.header.dst_bits());
            let key = Key { source, destination, protocol: Protocol(own[0]), id: found.fragment.id, is_v4 };
            let end = ipv6::HEADER_LEN + usize::from(parsed.header.payload_len());
            let payload = packet.get(at + ipv6::FRAGMENT_HEADER_LEN..end.min(packet.len()))?;
            Part { key, fragment: found.fragment, header, payload }
        };
        matches!(part.key.protocol, Protocol::ESP | Protocol::UDP).then_some(part)
    }
}
