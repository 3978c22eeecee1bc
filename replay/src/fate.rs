//! Fates of packets, one by one: a row for each packet received.
//!
//! Rows come in the order in which fates are known, which is that of arrival but for packets that waited. In memory are the packets
//! under way, as many as the policy's queues hold, and the flows of the flow table. Packets whose arrival was not noted have no row, and
//! cost nothing.

use std::collections::HashMap;
use std::net::IpAddr;

use dataplane::replay::Witness;
use dataplane::stage::parse::vlan;
use dataplane::{Reason, Tables, Verdict, flag};
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::vlan::Tags;
use wire::{Frame, Meta, Nanos, PortId, ethernet, ipv4, ipv6, udp};

use crate::capture::Packet;

/// A packet and its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Number of the packet among those of all captures, from 0.
    pub number: u64,
    /// Time of arrival.
    pub at: Nanos,
    /// Interface of arrival.
    pub ingress: PortId,
    /// Interface that the packet, or the answer to it, left by.
    pub egress: Option<PortId>,
    /// Length on the wire, in bytes.
    pub length: u32,
    /// Addresses and ports on arrival; none of what is not IP.
    pub ends: Option<PacketEnds>,
    /// The verdict; none where the packet was still held at the end.
    pub verdict: Option<Verdict>,
    /// Rule that decided on the packet, or that let its flow in, by place.
    pub rule: Option<u32>,
    /// Translations, as [`NatTables::names`](dataplane::tables::NatTables::names) takes them.
    pub nat: u16,
    /// Traffic class, from 1 on; 0 for none.
    pub class: u16,
    /// Flow, by the number of the packet that opened it.
    pub flow: Option<u64>,
    /// Time at which the packet's transmission began.
    pub departure: Option<Nanos>,
}

/// Addresses, protocol and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEnds {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Source and destination port; none where the protocol, or the fragment, has none.
    pub ports: Option<wire::header::Ports>,
}

impl PacketEnds {
    /// Ends of the packet in an Ethernet frame.
    pub fn of(frame: &[u8]) -> Option<PacketEnds> {
        let layer = ethernet::parse(frame).ok()?;
        match layer.ethertype {
            EtherType::IPV4 => {
                // Also of what is malformed, and dropped for it.
                let header = ipv4::Header::of(layer.payload).filter(|header| header.version() == 4)?;
                let (protocol, payload) = (header.protocol(), layer.payload.get(header.header_len()..));
                let has_head = header.fragment().is_none_or(|fragment| fragment.offset == 0);
                Some(PacketEnds {
                    source: header.src().into(),
                    destination: header.dst().into(),
                    protocol,
                    ports: payload.filter(|_| has_head).and_then(|payload| ports(protocol, payload)),
                })
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::of(layer.payload).filter(|header| header.version() == 6)?;
                let packet = ipv6::parse_prefix(layer.payload).ok();
                let protocol = packet.map_or(header.next_header(), |packet| packet.protocol());
                let head = packet.filter(|packet| {
                    packet.extensions.fragment.is_none_or(|header| header.fragment.offset == 0)
                });
                Some(PacketEnds {
                    source: header.src().into(),
                    destination: header.dst().into(),
                    protocol,
                    ports: head.and_then(|packet| ports(protocol, packet.payload)),
                })
            }
            _ => None,
        }
    }
}

/// Ports at the head of a transport header.
fn ports(protocol: Protocol, payload: &[u8]) -> Option<wire::header::Ports> {
    // All protocols with ports begin with them, as UDP does.
    if protocol.has_ports() { udp::Header::of(payload).map(udp::Header::ports) } else { None }
}

/// Witness of a replay that makes a row of each packet.
pub struct Fates {
    /// VLANs carried, by place of the interface.
    vlans: Vec<Vec<(u16, u16, PortId)>>,
    /// Packets under way, by number.
    pending: HashMap<u32, Pending>,
    /// Rows of this step, whose flows are not known yet.
    settling: Vec<(Fate, Seen)>,
    /// Numbers of packets that were queued in this step, likewise.
    queued: Vec<(u32, Seen)>,
    rows: Vec<Fate>,
    /// Flows that were opened in this step.
    opened: Vec<Opened>,
    /// Numbers of the flows that were opened last before this step, by their places in the flow table.
    flows: HashMap<u32, u64>,
}

/// Place of a packet's flow, which another flow may take within a step, and the order of packets there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    place: u32,
    turn: u64,
}

/// Flow that a packet has opened.
#[derive(Clone, Copy)]
struct Opened {
    seen: Seen,
    /// Number of that packet.
    number: u64,
}

/// Packet under way.
#[derive(Clone, Copy)]
struct Pending {
    number: u64,
    at: Nanos,
    ingress: PortId,
    length: u32,
    ends: Option<PacketEnds>,
    /// Order among packets: the number, or of a fragment that waited, that of the first one of its datagram.
    turn: u64,
    flow: Option<u64>,
}

impl Fates {
    /// No packet yet.
    pub fn new(tables: &Tables) -> Fates {
        Fates {
            vlans: tables.interfaces.iter().map(|interface| interface.vlans.clone()).collect(),
            pending: HashMap::new(),
            settling: Vec::new(),
            queued: Vec::new(),
            rows: Vec::new(),
            opened: Vec::new(),
            flows: HashMap::new(),
        }
    }

    /// Notes a packet that arrives under a number.
    pub fn arrives(&mut self, number: u32, packet: &Packet<'_>) {
        let Packet { arrival, at, ingress, original_len: length, .. } = *packet;
        let ends = PacketEnds::of(packet.captured);
        let pending = Pending { number: arrival, at, ingress, length, ends, turn: arrival, flow: None };
        self.pending.insert(number, pending);
    }

    /// Ends a step of the replay: rows of it are complete.
    pub fn settle(&mut self) {
        let Fates { opened, flows, pending, .. } = self;
        opened.sort_unstable_by_key(|opened| (opened.seen, opened.number));
        let flow = |seen: Seen| {
            let count = opened.partition_point(|opened| opened.seen <= seen);
            let last = opened.get(..count).and_then(|before| before.last());
            let last = last.filter(|opened| opened.seen.place == seen.place).map(|opened| opened.number);
            last.or_else(|| flows.get(&seen.place).copied())
        };
        for (number, seen) in self.queued.drain(..) {
            if let Some(pending) = pending.get_mut(&number) {
                pending.flow = pending.flow.or_else(|| flow(seen));
            }
        }
        for (mut row, seen) in self.settling.drain(..) {
            row.flow = row.flow.or_else(|| flow(seen));
            self.rows.push(row);
        }
        flows.extend(opened.drain(..).map(|opened| (opened.seen.place, opened.number)));
    }

    /// Ends the replay: packets that have no fate yet are held.
    pub fn finish(&mut self) {
        self.settle();
        let mut held: Vec<Pending> = self.pending.drain().map(|(_, pending)| pending).collect();
        held.sort_by_key(|pending| pending.number);
        self.rows.extend(held.into_iter().map(|pending| pending.fate(None)));
    }

    /// Number of complete rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if no row is complete.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes all complete rows.
    pub fn take(&mut self) -> impl Iterator<Item = Fate> {
        self.rows.drain(..)
    }

    /// Notes the flow that a frame opens. Its other packets may be told of before it, within a step.
    fn note(&mut self, meta: &Meta) {
        if meta.flow == u32::MAX || meta.flags & flag::OPENS == 0 {
            return;
        }
        let Some(pending) = self.pending.get_mut(&meta.number).filter(|pending| pending.flow.is_none())
        else {
            return;
        };
        pending.flow = Some(pending.number);
        let seen = Seen { place: meta.flow, turn: pending.turn };
        self.opened.push(Opened { seen, number: pending.number });
    }

    fn end(&mut self, frame: &Frame, egress: Option<PortId>, departure: Option<Nanos>, verdict: Verdict) {
        let meta = &frame.meta;
        let Some(pending) = self.pending.remove(&meta.number) else { return };
        // The interface is that of the VLAN, once the tags have been read.
        let ingress =
            if usize::from(meta.ingress.0) < self.vlans.len() { meta.ingress } else { pending.ingress };
        let row = Fate {
            ingress,
            egress,
            rule: (meta.rule != Meta::NO_RULE).then_some(meta.rule),
            nat: meta.nat,
            class: meta.class,
            departure,
            ..pending.fate(Some(verdict))
        };
        self.settling.push((row, Seen { place: meta.flow, turn: pending.turn }));
    }
}

impl Pending {
    fn fate(self, verdict: Option<Verdict>) -> Fate {
        let Pending { number, at, ingress, length, ends, flow, .. } = self;
        Fate {
            number,
            at,
            ingress,
            egress: None,
            length,
            ends,
            verdict,
            rule: None,
            nat: 0,
            class: 0,
            flow,
            departure: None,
        }
    }
}

impl Witness for Fates {
    fn queued(&mut self, _: PortId, frame: &Frame) {
        let Meta { number, flow: place, .. } = frame.meta;
        let Some(turn) = self.pending.get(&number).map(|pending| pending.turn) else { return };
        self.note(&frame.meta);
        self.queued.push((number, Seen { place, turn }));
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        let Some(verdict) = verdict.filter(|_| !self.pending.is_empty()) else { return };
        let vlans = self.vlans.get(usize::from(port.0)).map_or(&[][..], Vec::as_slice);
        let egress = left_by(port, vlans, frame.bytes());
        self.end(frame, Some(egress), Some(at), verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        if self.pending.is_empty() {
            return;
        }
        self.note(&frame.meta);
        self.end(frame, None, None, verdict);
    }

    fn ended_at(&mut self, _: Nanos, frame: &Frame, verdict: Verdict) {
        self.end(frame, None, None, verdict);
    }

    fn released(&mut self, number: u32, first: u32) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.turn += u64::from(first.wrapping_sub(number));
        }
    }

    fn refused(&mut self, number: u32, _: PortId, reason: Reason) {
        if let Some(pending) = self.pending.remove(&number) {
            self.rows.push(pending.fate(Some(Verdict::Dropped(reason))));
        }
    }
}

/// The interface that a frame left by: of the VLANs that the port carries that of its tags, or the port's own.
pub fn left_by(port: PortId, vlans: &[(u16, u16, PortId)], frame: &[u8]) -> PortId {
    if vlans.is_empty() {
        return port;
    }
    let tags = ethernet::parse(frame).map_or(Tags::NONE, |layer| layer.tags);
    vlan(port, vlans, &tags).unwrap_or(port)
}
