//! Captures, merged by time, each with the interface by which its packets come in.
//!
//! A TCP packet that is larger than its link carries was coalesced before it was captured (GRO, GSO): it comes in as the segments that were
//! on the wire, as far as that can be known, of the size that the interface's MTU allows.
//!
//! Streams: of each file one packet is in memory at a time. Time never goes back: where a file's does, the
//! packet gets the time of the one before it, and is counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dataplane::replay::{Readdressed, Witness};
use dataplane::{Replay, Tables};
use wire::capture::link::{LinkType, to_ethernet};
use wire::capture::{CaptureError, CutShort, Reader, Record};
use wire::ethernet::{HEADER_LEN, Header, HeaderMut, Mac};
use wire::segment::{Plan, Transport};
use wire::{Nanos, PortId};

use home::Homes;
pub use home::{How, default_route};
use window::Bounds;
pub use window::{Moment, NoMoment, Window};

mod home;
mod window;

/// `[IFACE=]CAPTURE`, as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The interface, if it was said.
    pub interface: Option<String>,
    /// The capture.
    pub path: PathBuf,
}

impl FromStr for Named {
    type Err = std::convert::Infallible;

    /// A file whose own name has a `=` is found by its whole name.
    fn from_str(text: &str) -> Result<Named, Self::Err> {
        let whole = || Named { interface: None, path: text.into() };
        if Path::new(text).exists() {
            return Ok(whole());
        }
        Ok(match text.split_once('=') {
            Some((interface, path)) if !interface.contains('/') => {
                Named { interface: Some(interface.to_owned()), path: path.into() }
            }
            _ => whole(),
        })
    }
}

/// Treatment of frames to the link-layer addresses of other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readdress {
    /// Readdressed to the gateway where the interface was inferred from addresses: the capture is of another gateway, or of
    /// a host.
    Inferred,
    /// Readdressed on every interface.
    Always,
}

/// All captures of a replay, merged.
pub struct Captures {
    sources: Vec<Source>,
    homes: Homes,
    /// The source whose packet was taken last, and whose next one must be fetched.
    taken: Option<usize>,
    readdress: Readdress,
    /// Packets before the next one.
    arrivals: u64,
}

/// A packet, with where and when it comes in.
pub struct Packet<'a> {
    /// Number among the packets of all captures, from 0; those outside a window of time count, too.
    pub arrival: u64,
    /// Place of the capture on the command line.
    pub source: usize,
    /// Number of the packet in the capture, from 1.
    pub number: u64,
    /// Time of arrival; never before the packet before it.
    pub at: Nanos,
    /// Interface of arrival.
    pub ingress: PortId,
    /// Evidence for the interface.
    pub how: How,
    /// The Ethernet frame, as it comes in.
    pub bytes: &'a [u8],
    /// The Ethernet frame, as captured.
    pub captured: &'a [u8],
    /// Length on the wire, in bytes.
    pub original_len: u32,
}

/// The packet that was taken last.
struct Taken {
    /// Place of its source.
    place: usize,
    ingress: PortId,
    how: How,
    arrival: u64,
}

/// A packet that was coalesced, and its segments.
struct Coalesced {
    packet: Vec<u8>,
    plan: Plan,
    /// Index of the segment in the head.
    index: usize,
}

impl<'a> Packet<'a> {
    /// True if it may be an answer in a capture that was taken inside, and then is addressed to another than the far
    /// end would have addressed it to.
    pub fn may_be_inside(&self) -> bool {
        matches!(self.how, How::DefaultRoute | How::PrivateSource)
    }

    /// The frame as the far end would have sent it: one from beyond the default route may be an answer in a capture
    /// that was taken inside, and then is addressed to what the far end knows of the flow. What the gateway has
    /// to do before that can be said is told to `witness`.
    pub fn as_sent(
        &self,
        replay: &mut Replay,
        witness: &mut impl Witness,
        space: &'a mut Vec<u8>,
    ) -> (&'a [u8], Readdressed) {
        if !self.may_be_inside() {
            return (self.bytes, Readdressed::No);
        }
        space.clear();
        space.extend_from_slice(self.bytes);
        match replay.readdress(space, witness) {
            Readdressed::Yes => (space, Readdressed::Yes),
            Readdressed::No => (self.bytes, Readdressed::No),
        }
    }
}

/// One capture, with its statistics.
pub struct Source {
    /// The file.
    pub path: PathBuf,
    reader: Reader,
    /// The interface that all of its packets come in by, where that is known from names.
    entry: Option<(PortId, How)>,
    /// Port by interface of the capture, once met.
    entries: Vec<Option<PortId>>,
    /// Moment behind the last packet that is played.
    to: Option<Nanos>,
    head: Head,
    scratch: Vec<u8>,
    /// Number of packets received by each interface, by evidence for the interface.
    pub entered: BTreeMap<(How, PortId), u64>,
    /// Number of packets with a time before that of an earlier packet.
    pub backwards: u64,
    /// Packets that were not captured whole.
    pub snapped: u64,
    /// Packets to other machines' link-layer addresses that were taken as if to the gateway.
    pub readdressed: u64,
    /// Answers to inside hosts that were addressed to the translation that the far end knows.
    pub answers: u64,
    /// Error that ended the reading of the file.
    pub problem: Option<CaptureError>,
    /// Packets that were coalesced before they were captured, and come in as segments.
    pub coalesced: u64,
    /// Packets that could not be read.
    pub unreadable: u64,
    /// Size of the file, in bytes, and the approximate number of bytes read.
    pub size: u64,
    read: u64,
}

/// The packet of a source that comes next.
#[derive(Default)]
struct Head {
    number: u64,
    at: Nanos,
    original_len: u32,
    link: Link,
    interface: usize,
    bytes: Vec<u8>,
    /// The bytes with another destination; empty if there is no need.
    readdressed: Vec<u8>,
    /// The packet as captured, where the bytes are a segment of it.
    coalesced: Option<Coalesced>,
    faults: Faults,
    present: Presence,
}

/// Faults of a captured packet, which are counted if it is played.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// Bytes are missing from its end.
    snapped: bool,
    /// Time before that of an earlier packet.
    backwards: bool,
}

/// Link header of a captured packet.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Ethernet,
    /// The header was put in front, without a receiver.
    Other,
}

/// Presence of a packet.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    Ended,
    There,
}

/// Reason for refusing captures before the first packet.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The policy has no interface of that name.
    #[error("the policy has no interface \"{name}\"")]
    NoInterface {
        /// The name.
        name: String,
        /// Names that there are.
        known: Vec<String>,
    },
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(CaptureError),
}

/// No packet is in a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no packet of the captures is in that window of time: the first is at {first}")]
pub struct NoPackets {
    /// Time of the first packet of all.
    pub first: Moment,
}

impl Captures {
    /// Opens all of them.
    ///
    /// # Errors
    /// A file cannot be read, is no capture or has no packet that can be read, or the policy lacks an interface.
    pub fn open(named: &[Named], tables: &Tables, readdress: Readdress) -> Result<Captures, OpenError> {
        let mut sources = Vec::with_capacity(named.len());
        for Named { interface, path } in named {
            let entry = match interface {
                Some(name) => {
                    let id = tables.interface_named(name).ok_or_else(|| OpenError::NoInterface {
                        name: name.clone(),
                        known: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
                    })?;
                    Some((id, How::Given))
                }
                None => path
                    .file_stem()
                    .and_then(|stem| tables.interface_named(&stem.to_string_lossy()))
                    .map(|id| (id, How::FileName)),
            };
            let reader = Reader::open(path).map_err(OpenError::Capture)?;
            let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
            let mut source = Source {
                path: path.clone(),
                reader,
                entry,
                entries: Vec::new(),
                to: None,
                head: Head::default(),
                scratch: Vec::new(),
                entered: BTreeMap::new(),
                backwards: 0,
                snapped: 0,
                readdressed: 0,
                answers: 0,
                problem: None,
                coalesced: 0,
                unreadable: 0,
                size,
                read: 0,
            };
            source.advance();
            // A pcap file of a link type that cannot be read has nothing to replay.
            match source.problem.take() {
                Some(error) if source.head.present == Presence::Ended => {
                    return Err(OpenError::Capture(error));
                }
                problem => source.problem = problem,
            }
            sources.push(source);
        }
        Ok(Captures { sources, homes: Homes::new(tables), taken: None, readdress, arrivals: 0 })
    }

    /// Leaves out the packets outside a window of time. To be called before the first packet is taken. The others have the numbers and
    /// interfaces that they have among all packets.
    ///
    /// # Errors
    /// No packet is left.
    pub fn select(&mut self, window: Window, tables: &Tables) -> Result<(), NoPackets> {
        if window.is_whole() {
            return Ok(());
        }
        let start = self.start();
        let Bounds { from, to } = window.bounds(start);
        self.sources.iter_mut().for_each(|source| source.end_at(to));
        while self.peek().is_some_and(|at| at < from) {
            self.take(tables);
        }
        match self.peek() {
            Some(_) => Ok(()),
            None => Err(NoPackets { first: Moment::At(start) }),
        }
    }

    /// The packet that comes next, by time; of several at one time, that of the capture named first.
    pub fn next(&mut self, tables: &Tables) -> Option<Packet<'_>> {
        let Taken { place, ingress, how, arrival } = self.take(tables)?;
        let source = &mut self.sources[place];
        source.count(ingress, how);
        source.receive(ingress, how, self.readdress, tables);
        let head = &source.head;
        Some(Packet {
            arrival,
            source: place,
            number: head.number,
            at: head.at,
            ingress,
            how,
            bytes: if head.readdressed.is_empty() { &head.bytes } else { &head.readdressed },
            captured: &head.bytes,
            original_len: head.original_len,
        })
    }

    /// Takes the packet that comes next, which stays the head of its source.
    fn take(&mut self, tables: &Tables) -> Option<Taken> {
        let place = self.earliest()?;
        self.taken = Some(place);
        let source = &mut self.sources[place];
        let (ingress, how) = source.ingress(&mut self.homes, tables);
        source.segment(ingress, tables);
        let arrival = self.arrivals;
        self.arrivals += 1;
        Some(Taken { place, ingress, how, arrival })
    }

    /// Returns the time of the next packet.
    pub fn peek(&mut self) -> Option<Nanos> {
        self.earliest().map(|place| self.sources[place].head.at)
    }

    /// The source of the packet that comes next.
    fn earliest(&mut self) -> Option<usize> {
        if let Some(taken) = self.taken.take() {
            self.sources[taken].advance();
        }
        let there = |source: &&Source| source.head.present == Presence::There;
        (0..self.sources.len())
            .filter(|place| there(&&self.sources[*place]))
            .min_by_key(|place| self.sources[*place].head.at)
    }

    /// The packet taken last was addressed to the translation of the flow that it answers.
    pub fn count_answer(&mut self) {
        if let Some(taken) = self.taken {
            self.sources[taken].answers += 1;
        }
    }

    /// The captures, with what is known about them so far.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.sources.iter().map(|source| source.size).sum()
    }

    /// Returns the approximate number of bytes read.
    pub fn read(&self) -> u64 {
        self.sources.iter().map(|source| source.read).sum()
    }

    /// Returns the time of the first packet.
    pub fn start(&self) -> Nanos {
        let there = self.sources.iter().filter(|source| source.head.present == Presence::There);
        there.map(|source| source.head.at).min().unwrap_or_default()
    }
}

impl Source {
    /// Returns the place where the file broke off.
    pub fn cut_short(&self) -> Option<CutShort> {
        self.reader.cut_short()
    }

    /// Leaves out packets from a moment on; the first packet is at hand.
    fn end_at(&mut self, to: Option<Nanos>) {
        self.to = to;
        if to.is_some_and(|to| self.head.at >= to) {
            self.head.present = Presence::Ended;
        }
    }

    /// Counts the packet at hand, or the segment of it.
    fn count(&mut self, ingress: PortId, how: How) {
        *self.entered.entry((how, ingress)).or_default() += 1;
        let head = &mut self.head;
        if head.coalesced.as_ref().is_some_and(|coalesced| coalesced.index == 0) {
            self.coalesced += 1;
        }
        let Faults { snapped, backwards } = std::mem::take(&mut head.faults);
        self.snapped += u64::from(snapped);
        self.backwards += u64::from(backwards);
    }

    /// Fetches the next packet, or the next segment of the one at hand.
    fn advance(&mut self) {
        let Source { reader, head, scratch, .. } = self;
        if let Some(Coalesced { packet, plan, index }) = &mut head.coalesced {
            *index += 1;
            if let Some(segment) = plan.segment(packet, *index) {
                head.bytes = segment;
                head.original_len = head.bytes.len() as u32;
                head.readdressed.clear();
                return;
            }
            head.coalesced = None;
        }
        let before = head.at;
        head.present = Presence::Ended;
        head.readdressed.clear();
        loop {
            match reader.next() {
                Ok(Some(record)) => {
                    self.read += record.bytes.len() as u64 + 32;
                    if self.to.is_some_and(|to| record.at.max(before) >= to) {
                        return;
                    }
                    head.faults = Faults { snapped: record.is_cut(), backwards: record.at < before };
                    let link = record.link;
                    let Record { at, number, interface, bytes, original_len, .. } =
                        to_ethernet(record, Mac::ZERO, scratch);
                    // A frame that was bridged has a header and a receiver of its own.
                    let has_receiver = Header::of(bytes).is_none_or(|header| header.dst() != Mac::ZERO);
                    head.link =
                        if link == LinkType::ETHERNET || has_receiver { Link::Ethernet } else { Link::Other };
                    (head.number, head.interface, head.original_len) = (number, interface, original_len);
                    head.bytes.clear();
                    head.bytes.extend_from_slice(bytes);
                    head.at = at.max(before);
                    head.present = Presence::There;
                    return;
                }
                Ok(None) => return,
                // The reader goes on behind a packet that cannot be read, or says that it is at its end.
                Err(error) => {
                    self.unreadable += 1;
                    self.problem.get_or_insert(error);
                }
            }
        }
    }

    /// Puts the first segment of a packet into its place that is larger than the link carries, if it is one of TCP.
    fn segment(&mut self, ingress: PortId, tables: &Tables) {
        let head = &mut self.head;
        let Some(interface) = tables.interface(ingress).filter(|_| head.coalesced.is_none()) else { return };
        if head.bytes.len() <= usize::from(interface.mtu) + HEADER_LEN {
            return;
        }
        // No size of segments is in a capture: it is the largest that the link carries.
        let plan = |size: usize| Plan::new(&head.bytes, u16::try_from(size).ok()?);
        let Some(plan) = plan(1).and_then(|packet| {
            let headers = packet.headers() - packet.network();
            plan(usize::from(interface.mtu).checked_sub(headers)?)
        }) else {
            return;
        };
        if plan.transport() != Transport::Tcp || plan.count() < 2 {
            return;
        }
        let Some(first) = plan.segment(&head.bytes, 0) else { return };
        head.original_len = first.len() as u32;
        let packet = std::mem::replace(&mut head.bytes, first);
        head.coalesced = Some(Coalesced { packet, plan, index: 0 });
    }

    /// The interface that the packet comes in by, and how that is known.
    fn ingress(&mut self, homes: &mut Homes, tables: &Tables) -> (PortId, How) {
        let known = match self.entry {
            Some((id, How::Given)) => Some((id, How::Given)),
            entry => {
                let described = self.reader.interfaces();
                for interface in described.iter().skip(self.entries.len()) {
                    let name = interface.name.as_deref();
                    self.entries.push(name.and_then(|name| tables.interface_named(name)));
                }
                let by_name = self.entries.get(self.head.interface).copied().flatten();
                by_name.map(|id| (id, How::CaptureName)).or(entry)
            }
        };
        match known {
            Some((id, how)) => (home::carrier(&self.head.bytes, id, tables), how),
            None => homes.find(&self.head.bytes, tables),
        }
    }

    /// Gives the packet the destination that makes the gateway take it, where that is wanted.
    fn receive(&mut self, ingress: PortId, how: How, readdress: Readdress, tables: &Tables) {
        let Some(interface) = tables.interface(ingress) else { return };
        let head = &mut self.head;
        if head.link == Link::Other {
            if let Some(mut header) = HeaderMut::of(&mut head.bytes) {
                if header.view().dst() == Mac::ZERO {
                    header.set_dst(interface.mac);
                }
            }
            return;
        }
        let wanted = readdress == Readdress::Always || how.is_by_address();
        let own = home::receiver(&head.bytes, ingress, tables);
        let destination = Header::of(&head.bytes).map(Header::dst);
        if !wanted || destination.is_none_or(|destination| destination.is_multicast() || destination == own) {
            return;
        }
        head.readdressed.extend_from_slice(&head.bytes);
        if let Some(mut header) = HeaderMut::of(&mut head.readdressed) {
            header.set_dst(own);
        }
        self.readdressed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Named;

    #[test]
    fn an_interface_may_be_said_before_the_capture() {
        let named = |text: &str| text.parse::<Named>().unwrap();
        assert_eq!(named("lan=a.pcap"), Named { interface: Some("lan".to_owned()), path: "a.pcap".into() });
        assert_eq!(named("a.pcap"), Named { interface: None, path: "a.pcap".into() });
        assert_eq!(named("dir/x=y.pcap"), Named { interface: None, path: "dir/x=y.pcap".into() });
    }
}
