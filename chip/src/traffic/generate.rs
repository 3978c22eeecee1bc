//! Makes the frames of a stream.

use std::collections::VecDeque;
use std::net::IpAddr;

use dataplane::replay::Witness;
use dataplane::{Replay, Tables, Verdict};
use wire::build::{self, Packet};
use wire::ethernet::Mac;
use wire::header::Endpoint;
use wire::link_kind::LinkKind;
use wire::random::Random;
use wire::rfc2684::Channel;
use wire::tcp::Flags;
use wire::vlan::Tags;
use wire::{Frame, Nanos, PortId};

use super::address::{Addresses, Ends};
use super::clock::Clock;
use super::stream::{Begin, Flows, Size, Stream, Transport, Ways};
use super::{Lines, TrafficError};
use crate::host::{Entry, Traffic};

/// Generated frames.
pub struct Generator {
    size: Size,
    transport: Transport,
    addresses: Addresses,
    sides: [Side; 2],
    lanes: [Lane; 2],
    flows: Pool,
    random: Random,
    begin: Begin,
    /// Segments with data of each connection, until it is closed.
    segments: Option<u32>,
    /// Flow and direction of the frame given last.
    given: Option<(u64, Way)>,
    /// Bytes of data in it.
    carried: u32,
}

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// Ingress of the frames of one direction.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The interface whose port carries them.
    root: PortId,
    /// The ATM channel in whose cells they come.
    channel: Option<(Channel, LinkKind)>,
    mac: Mac,
    tags: Tags,
}

/// Frames of one direction.
#[derive(Clone, Debug)]
struct Lane {
    clock: Clock,
    left: u64,
}

/// The flows, and the state of each.
#[derive(Clone, Debug)]
enum Pool {
    /// A fixed number of flows.
    Fixed {
        flows: Vec<Flow>,
        /// Flows whose first packet got through, in that order.
        open: Vec<u32>,
    },
    /// One flow for every frame: the next number, and the last flows that got through and wait for their answer.
    Each { next: u64, waiting: VecDeque<(u64, Ends)> },
}

/// Flows that wait for an answer where every frame opens one; older ones never get theirs.
const WAITING: usize = 1024;

/// State of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    stage: Stage,
    /// Ends of the frame that left, by which an answer goes back.
    far: Option<Ends>,
    /// Place among those that are open.
    place: u32,
    /// Number of connections before this one.
    before: u32,
    /// Segments with data that the side has sent which opened it.
    segments: u32,
    /// Numbers of the sequence that each side has sent, beyond its SYN; none is counted of connections that are never closed.
    sent: [u32; 2],
}

/// Progress of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// No packet got through.
    #[default]
    Fresh,
    /// The first packet got through.
    Asked,
    /// The first answer got through, too.
    Answered,
    /// Either side has had an answer.
    Open,
    /// The side that opened it has closed it.
    Closing,
    /// Both have.
    Closed,
}

/// Sequence numbers that the two sides of a TCP connection begin with: all of them the same, so that nothing need be
/// remembered, and data of a connection that is never closed goes again and again.
const ISN: [u32; 2] = [1_000, 500_000];

/// Bytes of data, of arbitrary content.
const DATA: [u8; 9_216] = [0x5a; 9_216];

impl Generator {
    /// Frames of `stream`, from `start` on, on the lines of their interfaces. The same `seed` gives the same frames.
    pub fn new(
        stream: &Stream,
        tables: &Tables,
        lines: Lines<'_>,
        start: Nanos,
        seed: u64,
    ) -> Result<Generator, TrafficError> {
        let id = |name: &String| {
            tables.interface_named(name).ok_or_else(|| TrafficError::NoInterface {
                name: name.clone(),
                known: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            })
        };
        let (from, to) = (id(&stream.from)?, id(&stream.to)?);
        let one_way = stream.ways == Ways::One && stream.begin == Begin::Fresh;
        if stream.transport == Transport::Tcp && one_way && stream.flows != Flows::Each {
            return Err(TrafficError::OneWayTcp);
        }
        if stream.transport == Transport::Udp {
            let keys = [("segments", stream.segments.is_some()), ("stray", stream.begin == Begin::Stray)];
            if let Some((key, _)) = keys.into_iter().find(|(_, is_there)| *is_there) {
                return Err(TrafficError::OnlyTcp { key });
            }
        }
        let is_answered = stream.ways == Ways::Both && stream.begin != Begin::Stray;
        if stream.segments.is_some() && !(is_answered && stream.flows != Flows::Each) {
            return Err(TrafficError::NeverClosed);
        }
        let addresses = Addresses::choose(stream, from, to, tables)?;
        let sides = [from, to].map(|id| Side::of(id, tables));
        let least = least(&addresses, stream.transport, &sides);
        let smallest = stream.size.least();
        if smallest < least {
            return Err(TrafficError::TooSmall { size: smallest, least });
        }
        let mut random = Random::new(seed);
        let mut lane = |side: &Side, left| {
            let line = lines.of(side.root, side.channel);
            let random = Random::new(random.next_u64());
            Lane { clock: Clock::new(stream.rate, stream.arrivals, line, start, random), left }
        };
        let back = if stream.ways == Ways::Both { stream.frames } else { 0 };
        let lanes = [lane(&sides[0], stream.frames), lane(&sides[1], back)];
        let flows = match stream.flows {
            Flows::Fixed(flows) => {
                Pool::Fixed { flows: vec![Flow::default(); flows as usize], open: Vec::new() }
            }
            Flows::Each => Pool::Each { next: 0, waiting: VecDeque::new() },
        };
        Ok(Generator {
            size: stream.size,
            transport: stream.transport,
            addresses,
            sides,
            lanes,
            flows,
            random,
            begin: stream.begin,
            segments: stream.segments,
            given: None,
            carried: 0,
        })
    }

    /// Sets every flow up in `replay`, at `at`, without any of the stream's own frames. Where every frame opens a flow,
    /// there is none to set up.
    pub fn establish(&mut self, replay: &mut Replay, stream: &Stream, at: Nanos) -> Result<(), TrafficError> {
        let count = match &self.flows {
            Pool::Fixed { flows, .. } => flows.len() as u64,
            Pool::Each { .. } => 0,
        };
        let mut bytes = Vec::new();
        for flow in 0..count {
            // The handshake, or a datagram and its answer; then one more, for an answer to be an answer to.
            for way in [Way::There, Way::Back, Way::There] {
                self.carried = self.write(flow, way, self.empty(), &mut bytes);
                self.given = Some((flow, way));
                let before = self.stage(flow);
                let mut seen = Seen { generator: self, verdict: None };
                replay.receive(seen.generator.side(way).root, at, 0, &bytes, &mut seen);
                replay.drain(&mut seen);
                let verdict = seen.verdict;
                if self.stage(flow) == before && before < Stage::Open {
                    let Ends { source, destination, ports } =
                        if way == Way::There { self.there(flow) } else { self.back(flow) };
                    let protocol = match self.transport {
                        Transport::Udp => "udp",
                        Transport::Tcp => "tcp",
                    };
                    let to = if way == Way::There { &stream.to } else { &stream.from };
                    let from = Endpoint { address: source, port: Some(ports.sport) };
                    let towards = Endpoint { address: destination, port: Some(ports.dport) };
                    return Err(TrafficError::NotThrough {
                        packet: format!("{protocol} {from} > {towards}"),
                        to: to.clone(),
                        verdict,
                    });
                }
            }
        }
        self.given = None;
        Ok(())
    }

    fn side(&self, way: Way) -> Side {
        self.sides[way as usize]
    }

    fn stage(&self, flow: u64) -> Stage {
        self.flow(flow).stage
    }

    fn flow(&self, flow: u64) -> Flow {
        match &self.flows {
            Pool::Fixed { flows, .. } => flows.get(flow as usize).copied().unwrap_or_default(),
            Pool::Each { .. } => Flow::default(),
        }
    }

    /// Size of a frame without data: the least that Ethernet carries, or that the stream has.
    fn empty(&self) -> u16 {
        Size::LEAST.min(self.size.least())
    }

    /// The ends of a packet there.
    fn there(&self, flow: u64) -> Ends {
        match &self.flows {
            Pool::Fixed { flows, .. } => {
                let connection = u64::from(self.flow(flow).before) * flows.len() as u64 + flow;
                self.addresses.of(connection % self.addresses.most())
            }
            Pool::Each { .. } => self.addresses.of(flow),
        }
    }

    /// The ends of a packet back.
    fn back(&self, flow: u64) -> Ends {
        let far = match &self.flows {
            Pool::Fixed { flows, .. } => flows.get(flow as usize).and_then(|flow| flow.far),
            Pool::Each { waiting, .. } => {
                waiting.iter().find(|(number, _)| *number == flow).map(|(_, far)| *far)
            }
        };
        far.unwrap_or_else(|| self.there(flow)).turned()
    }

    /// Writes the next frame of a flow. Returns the number of bytes of data in it.
    fn write(&self, flow: u64, way: Way, size: u16, bytes: &mut Vec<u8>) -> u32 {
        let ends = if way == Way::There { self.there(flow) } else { self.back(flow) };
        let side = self.side(way);
        // The sender is anybody but the gateway.
        let mut packet = build::ethernet(Mac([2, 0, 0, 0, 1, way as u8]), side.mac);
        for tag in side.tags.as_slice() {
            packet = packet.vlan(*tag);
        }
        let packet = match (ends.source, ends.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => packet.ipv4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => packet.ipv6(source, destination),
            // Both ends are of one family.
            _ => packet,
        };
        let (packet, size) = self.transport(packet, ends, way, &self.flow(flow), size);
        let whole = usize::from(size - Size::CHECK);
        let headers = self.headers();
        let data = if size == self.empty() && self.transport == Transport::Tcp {
            &[][..]
        } else {
            &DATA[..whole.saturating_sub(headers).min(DATA.len())]
        };
        let packet = packet.payload(data).pad_to(whole);
        bytes.clear();
        bytes.resize(whole, 0);
        // There is room: sizes were compared with the headers, and all lengths fit their fields.
        let _ = packet.write(bytes);
        data.len() as u32
    }

    /// The transport header, and the size of a frame with it.
    fn transport<'a>(
        &self,
        packet: Packet<'a>,
        ends: Ends,
        way: Way,
        flow: &Flow,
        size: u16,
    ) -> (Packet<'a>, u16) {
        let Ends { ports, .. } = ends;
        if self.transport == Transport::Udp {
            return (packet.udp(ports.sport, ports.dport), size);
        }
        let [own, other] = match way {
            Way::There => [0, 1],
            Way::Back => [1, 0],
        };
        let (isn, next) = (ISN[own], (ISN[own] + 1).wrapping_add(flow.sent[own]));
        let (ack, empty) = ((ISN[other] + 1).wrapping_add(flow.sent[other]), self.empty());
        let is_over = self.segments.is_some_and(|most| flow.segments >= most);
        let fin = Flags::FIN.and(Flags::ACK);
        let (flags, seq, ack, size) = match (way, flow.stage) {
            (Way::There, Stage::Fresh) if self.begin == Begin::Stray => (Flags::ACK, next, ack, size),
            (Way::There, Stage::Fresh | Stage::Asked) => (Flags::SYN, isn, 0, empty),
            (Way::Back, Stage::Fresh | Stage::Asked | Stage::Answered) => {
                (Flags::SYN.and(Flags::ACK), isn, ack, empty)
            }
            (Way::There, Stage::Answered) if self.segments.is_some() => (Flags::ACK, next, ack, empty),
            (Way::There, Stage::Open) if is_over => (fin, next, ack, empty),
            (Way::There, Stage::Answered | Stage::Open) | (Way::Back, Stage::Open) => {
                (Flags::ACK, next, ack, size)
            }
            (Way::There, Stage::Closing | Stage::Closed) => (Flags::ACK, next, ack, empty),
            (Way::Back, Stage::Closing) => (fin, next, ack, empty),
            // Once more.
            (Way::Back, Stage::Closed) => (fin, next.wrapping_sub(1), ack, empty),
        };
        let header =
            build::Tcp { sport: ports.sport, dport: ports.dport, seq, ack, flags, ..Default::default() };
        (packet.tcp(header), size)
    }

    /// Bytes of all headers.
    fn headers(&self) -> usize {
        let tags = self.sides.iter().map(|side| side.tags.as_slice().len()).max().unwrap_or(0);
        headers(self.addresses.are_v6(), self.transport, tags)
    }

    /// A size by the stream's distribution.
    fn draw_size(&mut self) -> u16 {
        match self.size {
            Size::Fixed(size) => size,
            Size::Imix => {
                let all = Size::IMIX.iter().map(|(_, weight)| weight).sum();
                let mut at = self.random.below(all);
                for (size, weight) in Size::IMIX {
                    if at < weight {
                        return size;
                    }
                    at -= weight;
                }
                Size::LEAST
            }
            Size::Normal { mean, deviation, least, most } => loop {
                let size = i64::from(mean) + normal(&mut self.random, i64::from(deviation));
                let fits = |size: &u16| (least..=most).contains(size);
                if let Some(size) = u16::try_from(size).ok().filter(fits) {
                    return size;
                }
            },
        }
    }

    /// A flow for a frame of that way; where connections are closed, one whose turn it is, if one is soon found.
    fn draw_flow(&mut self, way: Way) -> u64 {
        const TRIES: usize = 8;
        let mut flow = self.draw_any(way);
        for _ in 0..TRIES {
            let waits = match way {
                Way::There => matches!(self.stage(flow), Stage::Asked | Stage::Closing),
                Way::Back => matches!(self.stage(flow), Stage::Answered | Stage::Closed),
            };
            if self.segments.is_none() || !waits {
                break;
            }
            flow = self.draw_any(way);
        }
        flow
    }

    /// A flow for a frame of that way, whatever its stage.
    fn draw_any(&mut self, way: Way) -> u64 {
        match (&mut self.flows, way) {
            (Pool::Fixed { flows, .. }, Way::There) => self.random.below(flows.len() as u64),
            (Pool::Fixed { open, .. }, Way::Back) => {
                self.random.pick(open).map_or(0, |flow| u64::from(*flow))
            }
            (Pool::Each { next, .. }, Way::There) => {
                *next += 1;
                *next - 1
            }
            (Pool::Each { waiting, .. }, Way::Back) => waiting.front().map_or(0, |(flow, _)| *flow),
        }
    }

    /// True if there is a flow to answer.
    fn can_answer(&self) -> bool {
        match &self.flows {
            Pool::Fixed { open, .. } => !open.is_empty(),
            Pool::Each { waiting, .. } => !waiting.is_empty(),
        }
    }

    /// The way of the next frame. An answer that there is no flow for is left out, and its time with it.
    fn next_way(&mut self) -> Option<Way> {
        loop {
            let [there, back] = &self.lanes;
            match (there.left > 0, back.left > 0) {
                (false, false) => return None,
                (true, false) => return Some(Way::There),
                (false, true) if !self.can_answer() => return None,
                (false, true) => return Some(Way::Back),
                (true, true) if there.clock.at() <= back.clock.at() => return Some(Way::There),
                (true, true) if self.can_answer() => return Some(Way::Back),
                (true, true) => {
                    let size = self.draw_size();
                    self.lanes[1].clock.advance(usize::from(size - Size::CHECK));
                }
            }
        }
    }

    /// Notes that the frame of that flow and direction left.
    fn note(&mut self, flow: u64, way: Way, far: Option<Ends>) {
        match &mut self.flows {
            Pool::Fixed { flows, open } => {
                let Some(of) = flows.get_mut(flow as usize) else { return };
                match (way, of.stage) {
                    (Way::There, Stage::Fresh) => {
                        (of.stage, of.far) = (Stage::Asked, far);
                        of.place = open.len() as u32;
                        open.push(flow as u32);
                    }
                    (Way::Back, Stage::Asked) => of.stage = Stage::Answered,
                    (Way::There, Stage::Answered) => of.stage = Stage::Open,
                    (Way::There, Stage::Closed) => {
                        let place = of.place;
                        *of = Flow { before: of.before.wrapping_add(1), ..Flow::default() };
                        open.swap_remove(place as usize);
                        if let Some(moved) =
                            open.get(place as usize).and_then(|flow| flows.get_mut(*flow as usize))
                        {
                            moved.place = place;
                        }
                    }
                    (_, Stage::Open | Stage::Closing) => of.go_on(way, self.segments, self.carried),
                    _ => {}
                }
            }
            Pool::Each { waiting, .. } => {
                if let (Way::There, Some(far)) = (way, far) {
                    if waiting.len() == WAITING {
                        waiting.pop_front();
                    }
                    waiting.push_back((flow, far));
                }
            }
        }
    }
}

impl Flow {
    /// A segment of an open connection has got through, with so many bytes of data, or its end: of connections that are closed after `most`
    /// segments with data.
    fn go_on(&mut self, way: Way, most: Option<u32>, data: u32) {
        let Some(most) = most else { return };
        let sent = &mut self.sent[way as usize];
        match (way, self.stage) {
            (Way::There, Stage::Open) if self.segments >= most => {
                *sent = sent.wrapping_add(1);
                self.stage = Stage::Closing;
            }
            (Way::Back, Stage::Closing) => {
                *sent = sent.wrapping_add(1);
                self.stage = Stage::Closed;
            }
            (_, Stage::Open) => {
                *sent = sent.wrapping_add(data);
                self.segments += u32::from(way == Way::There);
            }
            _ => {}
        }
    }
}

impl Traffic for Generator {
    fn peek(&mut self) -> Option<Nanos> {
        self.next_way().map(|way| self.lanes[way as usize].clock.at())
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let way = self.next_way()?;
        let size = self.draw_size();
        let flow = self.draw_flow(way);
        self.carried = self.write(flow, way, size, bytes);
        if let (Pool::Each { waiting, .. }, Way::Back) = (&mut self.flows, way) {
            waiting.pop_front();
        }
        let lane = &mut self.lanes[way as usize];
        let at = lane.clock.at();
        lane.left -= 1;
        lane.clock.advance(bytes.len());
        self.given = Some((flow, way));
        Some(Entry::new(at, self.side(way).root, bytes.len()))
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        let Some((flow, way)) = self.given else { return };
        let out = match way {
            Way::There => self.sides[1],
            Way::Back => self.sides[0],
        };
        // What leaves by another interface is an error message, or takes another way.
        if port == out.root {
            self.note(flow, way, Ends::of(frame));
        }
    }
}

/// Watches a flow being set up.
struct Seen<'a> {
    generator: &'a mut Generator,
    verdict: Option<Verdict>,
}

impl Witness for Seen<'_> {
    fn sent(&mut self, port: PortId, _: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.verdict = verdict;
        self.generator.left(port, frame.bytes());
    }

    fn ended(&mut self, _: &Frame, verdict: Verdict) {
        self.verdict = Some(verdict);
    }
}

impl Side {
    fn of(id: PortId, tables: &Tables) -> Side {
        match tables.interface(id) {
            Some(interface) => {
                let channel = interface.channel.map(|channel| (channel, interface.link));
                Side { root: interface.root, channel, mac: interface.mac, tags: interface.tags }
            }
            None => Side { root: id, channel: None, mac: Mac::ZERO, tags: Tags::NONE },
        }
    }
}

/// A number about 0, nearly normally distributed: the sum of twelve even ones, whose variance is 1, in whole numbers, so that it is the same on
/// every machine.
fn normal(random: &mut Random, deviation: i64) -> i64 {
    const HALF: i64 = 1 << 31;
    let sum: i64 = (0..12).map(|_| (random.next_u64() >> 32) as i64 - HALF).sum();
    // To the nearest.
    (sum * deviation + HALF) >> 32
}

/// The least size that has room for the headers.
fn least(addresses: &Addresses, transport: Transport, sides: &[Side; 2]) -> u16 {
    let tags = sides.iter().map(|side| side.tags.as_slice().len()).max().unwrap_or(0);
    headers(addresses.are_v6(), transport, tags) as u16 + Size::CHECK
}

fn headers(v6: bool, transport: Transport, tags: usize) -> usize {
    let network = if v6 { 40 } else { 20 };
    let transport = match transport {
        Transport::Udp => 8,
        Transport::Tcp => 20,
    };
    14 + 4 * tags + network + transport
}
