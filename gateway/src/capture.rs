//! Packet capture at the capture points of the workers, with filters and verdicts.
//!
//! Workers copy frames and never block: chunks that the reader does not fetch in time are dropped from the capture and
//! counted. With no capture running, the cost on the packet path is one branch.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use dataplane::flow::{Ends, Flow, State};
use dataplane::pipeline::{self, STAGES};
use dataplane::stage::Packets;
use dataplane::{Reason, Tables, Verdict};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use wire::ethernet::{self, EtherType};
use wire::header::Ports;
use wire::{Meta, Nanos, Part, PortId, ipv4, ipv6};

use crate::flows::{NotKnown, interface_of, nats_of, net_of, protocol_number, rule_of};

pub(crate) mod record;

/// Bytes of copies queued for the reader of a capture, at most.
const MOST_WAITING: usize = 32 << 20;

/// Chunks of copies queued, at most.
pub(crate) const MOST_CHUNKS: usize = 8_192;

/// Snap length where none is given, in bytes.
const WHOLE: u32 = 65_535;

/// Query parameters of a capture: points and filter. An absent parameter matches everything; syntax as in
/// [`crate::flows::FlowQuery`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureQuery {
    /// Names of capture points, separated by commas: see [`Point::named`]. Default: `sent`, `delivered`, `dropped` and
    /// `held`, so that each packet is captured once, with its verdict.
    pub stage: Option<String>,
    /// Address or prefix of either end, before or after translation.
    pub host: Option<String>,
    /// Port of either end, before or after translation.
    pub port: Option<u16>,
    /// Protocol: `tcp`, `udp`, `icmp`, `icmpv6` or a number.
    pub protocol: Option<String>,
    /// Ingress or egress interface.
    pub interface: Option<String>,
    /// Name of the rule that decided.
    pub rule: Option<String>,
    /// Name of a translation that applies.
    pub nat: Option<String>,
    /// Verdict: `forwarded`, `delivered`, `answered`, `dropped` or `held`.
    pub verdict: Option<String>,
    /// Reason for the drop, answer or hold.
    pub reason: Option<String>,
    /// Snap length: bytes copied of each frame, at most.
    pub snap: Option<u32>,
    /// Packets of many segments go through whole and are captured so, where no other capture is to see segments. Default: they are cut first, as
    /// on a wire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// Capture point on a frame's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// On reception.
    Received,
    /// Before the stage of that index.
    Before(usize),
    /// After the stage of that index.
    After(usize),
    /// On transmission, forwarded or answered.
    Sent,
    /// On delivery to Linux.
    Delivered,
    /// On the drop.
    Dropped,
    /// On the hold.
    Held,
    /// Of a packet of a tunnel, before it is encrypted or when it has been decrypted.
    Inner,
    /// Of a packet of a tunnel, when it has been encrypted or before it is decrypted.
    Outer,
}

impl Point {
    /// Parses `received`, `sent`, `delivered`, `dropped` or `held`; `inner` or `outer`, of packets of tunnels; a stage's name, for the point after the stage;
    /// `before-` and a stage's name, for the point before it.
    pub fn named(word: &str) -> Option<Point> {
        let stage = |name: &str| pipeline::names().iter().position(|stage| *stage == name);
        match word {
            "received" => Some(Point::Received),
            "sent" => Some(Point::Sent),
            "delivered" => Some(Point::Delivered),
            "dropped" => Some(Point::Dropped),
            "held" => Some(Point::Held),
            "inner" => Some(Point::Inner),
            "outer" => Some(Point::Outer),
            _ => match word.strip_prefix("before-") {
                Some(name) => stage(name).map(Point::Before),
                None => stage(word).map(Point::After),
            },
        }
    }

    fn bit(self) -> u64 {
        let place = match self {
            Point::Received => 0,
            Point::Sent => 1,
            Point::Delivered => 2,
            Point::Dropped => 3,
            Point::Held => 4,
            Point::Inner => 5,
            Point::Outer => 6,
            Point::Before(stage) => 7 + stage,
            Point::After(stage) => 7 + STAGES + stage,
        };
        1 << place
    }
}

/// Set of capture points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Points(u64);

impl Points {
    pub(crate) fn has(self, point: Point) -> bool {
        self.0 & point.bit() != 0
    }
}

impl CaptureQuery {
    /// Returns the capture points of the query.
    pub(crate) fn points(&self) -> Result<Points, NotKnown> {
        let words = self.stage.as_deref().unwrap_or("sent,delivered,dropped,held");
        let named = |word: &str| NotKnown::or("point", word, Point::named(word).map(Point::bit));
        words.split(',').try_fold(0, |bits, word| Ok(bits | named(word.trim())?)).map(Points)
    }

    /// Returns the first stage among the points that is not in the pipeline of `tables`.
    pub(crate) fn left_out(&self, tables: &Tables) -> Option<&'static str> {
        let words = self.stage.as_deref().unwrap_or_default().split(',').map(str::trim);
        let mut names = words.map(|word| word.strip_prefix("before-").unwrap_or(word));
        names.find_map(|name| {
            let name = if matches!(name, "inner" | "outer") { "decap" } else { name };
            let stage = pipeline::stages().find(|stage| stage.about.name == name)?;
            ((stage.packets)(tables) == Packets::None).then_some(stage.about.name)
        })
    }

    /// Compiles the query to a filter for `tables`.
    ///
    /// # Errors
    /// Unknown name or malformed value.
    pub(crate) fn filter(&self, tables: &Tables) -> Result<Filter, NotKnown> {
        let mut filter = Filter { port: self.port, ..Filter::default() };
        if let Some(word) = &self.host {
            filter.host = Some(NotKnown::or("address or prefix", word, net_of(word))?);
        }
        if let Some(word) = &self.protocol {
            filter.protocol = Some(NotKnown::or("protocol", word, protocol_number(word))?);
        }
        if let Some(word) = &self.interface {
            filter.interface = Some(NotKnown::or("interface", word, interface_of(word, tables))?);
        }
        if let Some(word) = &self.rule {
            filter.rule = Some(NotKnown::or("rule", word, rule_of(word, tables))?);
        }
        if let Some(word) = &self.nat {
            filter.nat = Some(NotKnown::or("translation", word, nats_of(word, tables))?);
        }
        if let Some(word) = &self.verdict {
            let known = ["forwarded", "delivered", "answered", "dropped", "held"];
            let verdict = known.into_iter().find(|name| name == word);
            filter.verdict = Some(NotKnown::or("verdict", word, verdict)?);
        }
        if let Some(word) = &self.reason {
            filter.reason = Some(NotKnown::or("reason", word, Reason::of_name(word))?);
        }
        Ok(filter)
    }

    /// Returns the snap length in bytes.
    pub(crate) fn snap(&self) -> usize {
        self.snap.unwrap_or(WHOLE).clamp(1, WHOLE) as usize
    }
}

/// Header fields of a packet that a filter matches on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    source: IpAddr,
    destination: IpAddr,
    ports: Option<Ports>,
    protocol: u8,
}

impl Look {
    /// Parses a frame; `None` for non-IP frames.
    pub(crate) fn at(frame: &[u8]) -> Option<Look> {
        let layer = ethernet::parse(frame).ok()?;
        let ports = |protocol: wire::header::Protocol, payload| {
            if protocol.has_ports() { Ports::of(payload) } else { None }
        };
        match layer.ethertype {
            EtherType::IPV4 => {
                let header = ipv4::Header::of(layer.payload)?;
                let is_first = header.fragment().is_none_or(|fragment| fragment.is_first());
                let payload = layer.payload.get(header.header_len()..).filter(|_| is_first);
                Some(Look {
                    source: header.src().into(),
                    destination: header.dst().into(),
                    ports: ports(header.protocol(), payload.unwrap_or_default()),
                    protocol: header.protocol().0,
                })
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::of(layer.payload)?;
                let packet = ipv6::parse(layer.payload).ok();
                let protocol = packet.as_ref().map_or(header.next_header(), |packet| packet.protocol());
                let is_first = |packet: &ipv6::Packet<'_>| {
                    packet.extensions.fragment.is_none_or(|found| found.fragment.is_first())
                };
                let payload = packet.filter(is_first).map(|packet| packet.payload);
                Some(Look {
                    source: header.src().into(),
                    destination: header.dst().into(),
                    ports: ports(protocol, payload.unwrap_or_default()),
                    protocol: protocol.0,
                })
            }
            _ => None,
        }
    }
}

/// Compiled filter of packets; absent fields match every packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    host: Option<IpNet>,
    port: Option<u16>,
    protocol: Option<u8>,
    interface: Option<PortId>,
    rule: Option<u32>,
    /// Indices of a destination and of a source translation.
    nat: Option<(Option<usize>, Option<usize>)>,
    verdict: Option<&'static str>,
    reason: Option<Reason>,
}

impl Filter {
    /// True if a packet matches, by its headers on arrival, its metadata and its flow.
    pub(crate) fn admits(
        &self,
        look: Option<&Look>,
        meta: &Meta,
        flow: Option<&Flow>,
        tables: &Tables,
    ) -> bool {
        let ends = || flow.into_iter().flat_map(|flow| [Ends::of(flow.original()), Ends::of(flow.reply())]);
        let host = |net: IpNet| {
            look.is_some_and(|look| net.contains(&look.source) || net.contains(&look.destination))
                || ends().any(|ends| net.contains(&ends.source) || net.contains(&ends.destination))
        };
        let port = |port: u16| {
            let seen = look.and_then(|look| look.ports);
            seen.is_some_and(|seen| seen.sport == port || seen.dport == port)
                || ends().filter_map(|ends| ends.ports()).any(|own| own.sport == port || own.dport == port)
        };
        let nat = |(destination, source): (Option<usize>, Option<usize>)| {
            let applies = tables.nat.places(meta.nat);
            (destination.is_some() && applies.0 == destination) || (source.is_some() && applies.1 == source)
        };
        let verdict = Verdict::of_fate(meta.fate);
        self.host.is_none_or(host)
            && self.port.is_none_or(port)
            && self.protocol.is_none_or(|protocol| look.is_some_and(|look| look.protocol == protocol))
            && self.interface.is_none_or(|id| meta.ingress == id || egress(meta) == Some(id))
            && self.rule.is_none_or(|rule| meta.rule == rule)
            && self.nat.is_none_or(nat)
            && self.verdict.is_none_or(|name| verdict.is_some_and(|verdict| verdict.name() == name))
            && self.reason.is_none_or(|reason| verdict.and_then(Verdict::reason) == Some(reason))
    }
}

/// Returns the egress interface of a frame, once decided.
pub(crate) fn egress(meta: &Meta) -> Option<PortId> {
    let is_out = matches!(Verdict::of_fate(meta.fate), Some(Verdict::Forwarded | Verdict::Answered(_)));
    (meta.hop != Meta::NO_HOP || is_out).then_some(meta.egress)
}

/// A copy of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) point: Point,
    pub(crate) ingress: PortId,
    pub(crate) egress: Option<PortId>,
    pub(crate) fate: u16,
    pub(crate) rule: u32,
    pub(crate) nat: u16,
    /// Bits of the tunnels that the packet comes and goes by.
    pub(crate) tunnel: u8,
    /// Whole packet or fragment.
    pub(crate) part: Part,
    /// Flow of the packet, by its original direction.
    pub(crate) flow: Option<(Ends, State)>,
    /// Bytes copied.
    pub(crate) copied: u32,
    /// Bytes of the frame.
    pub(crate) length: u32,
}

/// Copies that a worker has made between two sends.
pub(crate) struct Chunk {
    /// Tables that indices in the copies refer to.
    pub(crate) tables: Arc<Tables>,
    /// Time of the copies, since 1970.
    pub(crate) at: Nanos,
    pub(crate) seen: Vec<Seen>,
    /// Bytes of all copies, concatenated.
    pub(crate) bytes: Vec<u8>,
}

impl Chunk {
    /// Returns the approximate memory, in bytes.
    fn weight(&self) -> usize {
        self.bytes.len() + self.seen.len() * size_of::<Seen>() + size_of::<Chunk>()
    }
}

/// Worker's sending end of a capture.
#[derive(Clone)]
pub struct Tap {
    pub(crate) query: Arc<CaptureQuery>,
    sender: SyncSender<Chunk>,
    account: Arc<Account>,
}

/// Counters of a capture.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Copies dropped, as the reader was too slow.
    lost: AtomicU64,
    /// Bytes queued.
    waiting: AtomicUsize,
}

/// Presence of the reader of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

impl Tap {
    /// Queues a chunk, or counts its copies as lost if the queue is full.
    pub(crate) fn put(&self, chunk: Chunk) -> Reader {
        let (weight, copies) = (chunk.weight(), chunk.seen.len() as u64);
        if self.account.waiting.load(Ordering::Relaxed) + weight <= MOST_WAITING {
            match self.sender.try_send(chunk) {
                Ok(()) => {
                    self.account.waiting.fetch_add(weight, Ordering::Relaxed);
                    return Reader::There;
                }
                Err(TrySendError::Disconnected(_)) => return Reader::Gone,
                Err(TrySendError::Full(_)) => {}
            }
        }
        self.account.lost.fetch_add(copies, Ordering::Relaxed);
        Reader::There
    }
}

#[cfg(test)]
mod tests;
