//! Reassembly of outer packets that came in fragments (RFC 791, section 3.2; RFC 8200, section 4.5): only a whole one can be opened.
//!
//! Bytes are copied as fragments come; the last one to come gets the whole packet. Memory is taken at start: [`DATAGRAMS`] packets of at
//! most [`LONGEST`] bytes. A fragment that overlaps others makes its datagram refused until its time is over (RFC 5722, and for IPv4
//! alike: what two receivers put together differently is an attack). A source has a share of the table, and the oldest datagram gives
//! way in a full one: fragments without their others hold nothing up for long.

use policy::model::Timeouts;
use wire::Nanos;
use wire::header::Protocol;

use crate::fragment::{Added, DatagramKey, Ranges, Span};
use crate::fragmentation::MAX_HEADER_LEN;

/// Datagrams under way, at most.
const DATAGRAMS: usize = 64;

/// Datagrams of one source at once.
const OF_A_SOURCE: usize = 16;

/// Bytes of the longest packet, without its IP header.
pub(crate) const LONGEST: usize = 10_240;

/// Datagrams whose fragments are under way.
#[derive(Default)]
pub(crate) struct Reassembly {
    list: Vec<Datagram>,
    timeout: Nanos,
}

/// Datagram of which fragments have come.
struct Datagram {
    key: Option<DatagramKey>,
    deadline: Nanos,
    ranges: Ranges,
    /// Length, once the last fragment has come.
    total: Option<usize>,
    standing: Standing,
    /// Header of the first fragment.
    header: [u8; MAX_HEADER_LEN],
    header_len: usize,
    /// Protocol of the payload, as the first fragment says.
    protocol: Protocol,
    congestion: Congestion,
    payload: Box<[u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Open,
    /// Fragments have overlapped.
    Refused,
}

/// Congestion that routers have marked on fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestion {
    None,
    /// On one at least: the whole packet is marked then (RFC 3168, section 5.3).
    Marked,
}

/// Fragment of an outer packet.
pub(crate) struct Fragment<'a> {
    pub(crate) key: DatagramKey,
    pub(crate) span: Span,
    /// IP header that the whole packet would have if this is the first fragment, but for its length.
    pub(crate) header: &'a [u8],
    pub(crate) protocol: Protocol,
    pub(crate) payload: &'a [u8],
    pub(crate) congestion: Congestion,
}

/// Datagram that is complete.
pub(crate) struct Whole<'a> {
    pub(crate) header: &'a [u8],
    pub(crate) protocol: Protocol,
    pub(crate) payload: &'a [u8],
    pub(crate) congestion: Congestion,
}

/// Refusal of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

impl Reassembly {
    /// Takes the memory.
    pub(super) fn new(timeouts: &Timeouts) -> Reassembly {
        let list = (0..DATAGRAMS).map(|_| Datagram::new()).collect();
        Reassembly { list, timeout: timeouts.fragment }
    }

    /// True if a fragment of this datagram has come.
    pub(crate) fn knows(&self, key: &DatagramKey, now: Nanos) -> bool {
        self.find(key, now).is_some()
    }

    /// Adds a fragment, and returns the whole datagram if that is complete now.
    ///
    /// # Errors
    /// The fragment has come before, overlaps another, contradicts what has come, or is of a datagram that is too long or was refused.
    pub(crate) fn add(&mut self, fragment: &Fragment<'_>, now: Nanos) -> Result<Option<Whole<'_>>, Unusable> {
        let Fragment { key, span, .. } = fragment;
        let (begin, end) = (span.offset as usize, span.offset as usize + span.len as usize);
        // RFC 8200, section 4.5: all but the last are of whole units.
        let is_odd = begin % 8 != 0 || span.more && end % 8 != 0;
        if end > LONGEST || begin == end || is_odd || fragment.payload.len() != end - begin {
            return Err(Unusable);
        }
        let place = self.find(key, now).or_else(|| self.begin(key, now)).ok_or(Unusable)?;
        let datagram = self.list.get_mut(place).ok_or(Unusable)?;
        datagram.note(begin, end, span.more)?;
        if begin == 0 {
            let header = datagram.header.get_mut(..fragment.header.len()).ok_or(Unusable)?;
            header.copy_from_slice(fragment.header);
            (datagram.header_len, datagram.protocol) = (fragment.header.len(), fragment.protocol);
        }
        if fragment.congestion == Congestion::Marked {
            datagram.congestion = Congestion::Marked;
        }
        datagram.payload.get_mut(begin..end).ok_or(Unusable)?.copy_from_slice(fragment.payload);
        let Some(total) = datagram.total.filter(|total| datagram.ranges.reach(total.div_ceil(8) as u16))
        else {
            return Ok(None);
        };
        datagram.key = None;
        let header = datagram.header.get(..datagram.header_len).ok_or(Unusable)?;
        let payload = datagram.payload.get(..total).ok_or(Unusable)?;
        Ok(Some(Whole { header, protocol: datagram.protocol, payload, congestion: datagram.congestion }))
    }

    fn find(&self, key: &DatagramKey, now: Nanos) -> Option<usize> {
        self.list.iter().position(|one| one.key == Some(*key) && self.is_under_way(one, now))
    }

    /// Begins a datagram: in a free place, else in that of the oldest, of the same source where that has its share.
    fn begin(&mut self, key: &DatagramKey, now: Nanos) -> Option<usize> {
        let is_of_source = |one: &Datagram| one.key.is_some_and(|other| other.source == key.source);
        let under_way = || self.list.iter().enumerate().filter(|(_, one)| self.is_under_way(one, now));
        let oldest_first = |(_, one): &(usize, &Datagram)| one.deadline;
        let place = if under_way().filter(|(_, one)| is_of_source(one)).count() >= OF_A_SOURCE {
            under_way().filter(|(_, one)| is_of_source(one)).min_by_key(oldest_first)
        } else {
            let mut all = self.list.iter().enumerate();
            all.find(|(_, one)| !self.is_under_way(one, now)).or_else(|| under_way().min_by_key(oldest_first))
        };
        let place = place?.0;
        let deadline = now + self.timeout;
        let datagram = self.list.get_mut(place)?;
        (datagram.key, datagram.deadline, datagram.ranges) = (Some(*key), deadline, Ranges::default());
        (datagram.total, datagram.standing) = (None, Standing::Open);
        (datagram.header_len, datagram.congestion) = (0, Congestion::None);
        Some(place)
    }

    /// True until a datagram is complete or its time is over; it is over also where the clock was set back by more than that.
    fn is_under_way(&self, datagram: &Datagram, now: Nanos) -> bool {
        let left = datagram.deadline.since(now);
        datagram.key.is_some() && left > Nanos(0) && left <= self.timeout + self.timeout
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.list.capacity() * (size_of::<Datagram>() + LONGEST)
    }
}

impl Datagram {
    fn new() -> Datagram {
        Datagram {
            key: None,
            deadline: Nanos(0),
            ranges: Ranges::default(),
            total: None,
            standing: Standing::Open,
            header: [0; MAX_HEADER_LEN],
            header_len: 0,
            protocol: Protocol::NO_NEXT,
            congestion: Congestion::None,
            payload: vec![0; LONGEST].into(),
        }
    }

    /// Notes a byte range, or refuses it, and the whole datagram where it overlaps others.
    fn note(&mut self, begin: usize, end: usize, more: bool) -> Result<(), Unusable> {
        if self.standing == Standing::Refused {
            return Err(Unusable);
        }
        let is_contradiction = match (more, self.total) {
            // What has come already goes as far.
            (false, None) => usize::from(self.ranges.furthest()) * 8 >= end,
            (false, Some(total)) => end != total,
            (true, Some(total)) => end >= total,
            (true, None) => false,
        };
        let added = if is_contradiction {
            Added::Overlap
        } else {
            self.ranges.add((begin / 8) as u16, end.div_ceil(8) as u16)
        };
        match added {
            Added::New => {
                if !more {
                    self.total = Some(end);
                }
                Ok(())
            }
            // Links do repeat packets.
            Added::Again | Added::Full => Err(Unusable),
            Added::Overlap => {
                self.standing = Standing::Refused;
                Err(Unusable)
            }
        }
    }
}

#[cfg(test)]
mod tests;
