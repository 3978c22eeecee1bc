//! Data records: values by element, and what they are made of.

use std::net::IpAddr;

use dataplane::accounting::{FlowReport, NatEvent, Session};
use dataplane::flow::{Direction, Ends};
use dataplane::nat::{BlockChange, BlockEvent, PortBlock};
use wire::Nanos;
use wire::header::Protocol;

use super::element::Element;
use super::template::{self, Template};

/// A data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data<'a> {
    /// Packets of one direction of a flow.
    Flow(Flow),
    /// Beginning or end of a translated connection.
    Session(Event),
    /// A host has taken a block of ports, or given one back.
    Block(Block),
    /// Sums of what was exported, and of what was not.
    Statistics(Statistics),
    /// Name of an interface.
    Interface(Interface<'a>),
    /// A source translation had no port left.
    Exhausted(Exhausted),
    /// Name of a source translation.
    Pool(Pool<'a>),
}

/// Packets of one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// Ends of packets as they arrive.
    pub(super) arrives: Ends,
    /// Ends of packets as they leave.
    pub(super) leaves: Ends,
    /// ICMP type << 8 | code, of ICMP.
    pub(super) icmp: Option<u16>,
    pub(super) ingress: u32,
    pub(super) egress: u32,
    /// flowEndReason.
    pub(super) end: u8,
    pub(super) octets: u64,
    pub(super) packets: u64,
    /// Milliseconds since 1970.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) tcp_flags: u8,
    pub(super) ds_field: u8,
}

/// Beginning or end of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    pub(super) session: Session,
    /// Ends of packets as they arrive.
    pub(super) arrives: Ends,
    /// Ends of packets as they leave.
    pub(super) leaves: Ends,
}

/// A block of ports that a host has taken, or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    /// Number of the translation; 0 where the policy no longer has it.
    pub(super) pool: u32,
    pub(super) event: BlockEvent,
}

/// Sums of what was exported, and of what was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statistics {
    pub(super) domain: u32,
    pub(super) octets: u64,
    pub(super) messages: u64,
    pub(super) records: u64,
    pub(super) lost: u64,
}

/// Name of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface<'a> {
    pub(super) index: u32,
    pub(super) name: &'a str,
}

/// A source translation had no port left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    /// Number of the translation.
    pub(super) pool: u32,
}

/// Name of a source translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool<'a> {
    pub(super) number: u32,
    pub(super) name: &'a str,
}

/// Conversion of the gateway's time to milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// Nanoseconds since 1970 at the gateway's time 0.
    pub(super) zero: u64,
}

impl Epoch {
    /// Milliseconds since 1970.
    pub(super) fn milliseconds(self, at: Nanos) -> u64 {
        self.zero.saturating_add(at.0) / 1_000_000
    }
}

impl Flow {
    /// The flow of one direction, if it had packets; `links` are the interfaces of the original direction: ingress and egress.
    pub(super) fn of(
        report: &FlowReport,
        direction: Direction,
        links: [u32; 2],
        epoch: Epoch,
    ) -> Option<Flow> {
        let count = report.counts.of(direction);
        if count.packets == 0 {
            return None;
        }
        let (original, reply) = (report.connection.original, report.connection.reply);
        let (arrives, back, [ingress, egress]) = match direction {
            Direction::Original => (original, reply, links),
            Direction::Reply => (reply, original, [links[1], links[0]]),
        };
        Some(Flow {
            arrives,
            leaves: reversed(&back),
            icmp: icmp(&arrives, report.kind, direction),
            ingress,
            egress,
            end: report.end as u8,
            octets: count.bytes,
            packets: count.packets,
            first: epoch.milliseconds(count.first()),
            last: epoch.milliseconds(count.last()),
            tcp_flags: count.tcp_flags,
            ds_field: count.ds_field,
        })
    }

    fn is_translated(&self) -> bool {
        let (a, b) = (&self.arrives, &self.leaves);
        let has_ports = a.ports().is_some();
        (a.source, a.destination) != (b.source, b.destination)
            || has_ports && (a.sport, a.dport) != (b.sport, b.dport)
    }
}

impl Event {
    pub(super) fn of(event: &NatEvent, at: u64) -> Event {
        let connection = &event.connection;
        let (arrives, leaves) = (connection.original, reversed(&connection.reply));
        Event { at, session: event.session, arrives, leaves }
    }

    /// natEvent (RFC 8158, section 5.1.6). Those for translated sessions name the versions of IP that they translate between, and none
    /// IPv6 on both sides; what came before them names none.
    fn number(&self) -> u8 {
        match (self.arrives.source.is_ipv4(), self.session) {
            (_, Session::Created) if is_across(&self.arrives, &self.leaves) => 6,
            (_, Session::Deleted) if is_across(&self.arrives, &self.leaves) => 7,
            (false, Session::Created) => 1,
            (false, Session::Deleted) => 2,
            (true, Session::Created) => 4,
            (true, Session::Deleted) => 5,
        }
    }
}

/// True if packets leave as those of the other IP version.
fn is_across(arrives: &Ends, leaves: &Ends) -> bool {
    arrives.source.is_ipv4() != leaves.source.is_ipv4()
}

/// Ends of packets as they leave, by those of their answers as these arrive.
fn reversed(back: &Ends) -> Ends {
    Ends {
        source: back.destination,
        destination: back.source,
        sport: back.dport,
        dport: back.sport,
        protocol: back.protocol,
    }
}

/// ICMP type << 8 | code of packets of a direction; `kind` is that of the first packet.
pub(super) fn icmp(ends: &Ends, kind: u16, direction: Direction) -> Option<u16> {
    let own = if ends.source.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
    let answer = match (direction, kind >> 8) {
        (Direction::Original, _) => kind,
        // Echo of IPv4, whose reply has a lower number; timestamps, information, masks, and queries of IPv6, with the next one.
        (Direction::Reply, 8) if own == Protocol::ICMP => 0,
        // Between IP versions, where echo alone is translated, the question is of the other one.
        (Direction::Reply, 128) if own == Protocol::ICMP => 0,
        (Direction::Reply, 8) if own == Protocol::ICMPV6 => 129 << 8,
        (Direction::Reply, query) => (query + 1) << 8,
    };
    (Protocol(ends.protocol) == own).then_some(answer)
}

impl Data<'_> {
    /// Template of the record.
    pub(super) fn template(&self) -> Template {
        match self {
            Data::Flow(flow) => {
                let is_v4 = flow.arrives.source.is_ipv4();
                if is_across(&flow.arrives, &flow.leaves) {
                    return match (is_v4, flow.icmp.is_some()) {
                        (false, false) => template::FLOW_V6_TO_V4,
                        (true, false) => template::FLOW_V4_TO_V6,
                        (false, true) => template::ICMP_V6_TO_V4,
                        (true, true) => template::ICMP_V4_TO_V6,
                    };
                }
                match (is_v4, flow.icmp.is_some(), flow.is_translated()) {
                    (true, false, false) => template::FLOW_V4,
                    (false, false, false) => template::FLOW_V6,
                    (true, false, true) => template::FLOW_V4_NAT,
                    (false, false, true) => template::FLOW_V6_NAT,
                    (true, true, false) => template::ICMP_V4,
                    (false, true, false) => template::ICMP_V6,
                    (true, true, true) => template::ICMP_V4_NAT,
                    (false, true, true) => template::ICMP_V6_NAT,
                }
            }
            Data::Session(event) if is_across(&event.arrives, &event.leaves) => {
                if event.arrives.source.is_ipv4() {
                    template::SESSION_V4_TO_V6
                } else {
                    template::SESSION_V6_TO_V4
                }
            }
            Data::Session(event) if event.arrives.source.is_ipv4() => template::SESSION_V4,
            Data::Session(_) => template::SESSION_V6,
            Data::Block(Block { event, .. }) => match (event.block.inside, event.block.outside) {
                (IpAddr::V4(_), _) => template::BLOCK_V4,
                (IpAddr::V6(_), IpAddr::V4(_)) => template::BLOCK_V6_TO_V4,
                (IpAddr::V6(_), IpAddr::V6(_)) => template::BLOCK_V6,
            },
            Data::Statistics(_) => template::STATISTICS,
            Data::Interface(_) => template::INTERFACE,
            Data::Exhausted(_) => template::EXHAUSTED,
            Data::Pool(_) => template::POOL,
        }
    }

    /// Writes the record, element by element.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for element in self.template().elements() {
            let begin = out.len();
            match self {
                Data::Flow(flow) => flow.put(element, out),
                Data::Session(event) => event.put(element, out),
                Data::Block(block) => block.put(element, out),
                Data::Statistics(sums) => sums.put(element, out),
                Data::Interface(interface) => interface.put(element, out),
                Data::Exhausted(event) => event.put(element, out),
                Data::Pool(pool) => pool.put(element, out),
            }
            debug_assert!(
                element.len() == super::element::VARIABLE || out.len() - begin == usize::from(element.len()),
                "{element:?} has {} bytes",
                out.len() - begin
            );
        }
    }
}

impl Flow {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        match element {
            Element::FlowStartMilliseconds => long(self.first, out),
            Element::FlowEndMilliseconds => long(self.last, out),
            Element::IcmpTypeCodeIpv4 | Element::IcmpTypeCodeIpv6 => {
                out.extend(self.icmp.unwrap_or(0).to_be_bytes());
            }
            Element::IpClassOfService => out.push(self.ds_field),
            Element::TcpControlBits => out.push(self.tcp_flags),
            Element::FlowEndReason => out.push(self.end),
            Element::IngressInterface => out.extend(self.ingress.to_be_bytes()),
            Element::EgressInterface => out.extend(self.egress.to_be_bytes()),
            Element::OctetDeltaCount => long(self.octets, out),
            Element::PacketDeltaCount => long(self.packets, out),
            other => put_ends(&self.arrives, &self.leaves, other, out),
        }
    }
}

impl Event {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        match element {
            Element::ObservationTimeMilliseconds => long(self.at, out),
            Element::NatEvent => out.push(self.number()),
            other => put_ends(&self.arrives, &self.leaves, other, out),
        }
    }
}

impl Block {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        let PortBlock { inside, outside, ports, .. } = self.event.block;
        match element {
            Element::ObservationTimeMilliseconds => long(self.at, out),
            Element::NatEvent => out.push(match self.event.change {
                BlockChange::Allocated => BLOCK_ALLOCATED,
                BlockChange::Freed => BLOCK_FREED,
            }),
            Element::SourceIpv4Address | Element::SourceIpv6Address => address(inside, out),
            Element::PostNatSourceIpv4Address | Element::PostNatSourceIpv6Address => address(outside, out),
            Element::PortRangeStart => out.extend(ports.first.to_be_bytes()),
            Element::PortRangeEnd => out.extend(ports.last.to_be_bytes()),
            // One port after the other.
            Element::PortRangeStepSize => out.extend(1_u16.to_be_bytes()),
            Element::PortRangeNumPorts => out.extend((ports.last - ports.first + 1).to_be_bytes()),
            _ => out.extend(self.pool.to_be_bytes()),
        }
    }
}

/// natEvent: port block allocation, and de-allocation.
const BLOCK_ALLOCATED: u8 = 16;
const BLOCK_FREED: u8 = 17;

impl Statistics {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        match element {
            Element::ExportedOctetTotalCount => long(self.octets, out),
            Element::ExportedMessageTotalCount => long(self.messages, out),
            Element::ExportedFlowRecordTotalCount => long(self.records, out),
            Element::NotSentFlowTotalCount => long(self.lost, out),
            _ => out.extend(self.domain.to_be_bytes()),
        }
    }
}

impl Interface<'_> {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        if element == Element::InterfaceName {
            text(self.name, out);
        } else {
            out.extend(self.index.to_be_bytes());
        }
    }
}

impl Exhausted {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        match element {
            Element::ObservationTimeMilliseconds => long(self.at, out),
            Element::NatEvent => out.push(PORTS_EXHAUSTED),
            _ => out.extend(self.pool.to_be_bytes()),
        }
    }
}

/// natEvent: NAT ports exhausted.
const PORTS_EXHAUSTED: u8 = 12;

impl Pool<'_> {
    fn put(&self, element: Element, out: &mut Vec<u8>) {
        if element == Element::NatPoolName {
            text(self.name, out);
        } else {
            out.extend(self.number.to_be_bytes());
        }
    }
}

/// Writes an element of variable length, the first 254 bytes of a text.
fn text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..bytes.len().min(254)).unwrap_or_default();
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

/// Writes an element of the ends of packets, as they arrive and as they leave.
fn put_ends(arrives: &Ends, leaves: &Ends, element: Element, out: &mut Vec<u8>) {
    match element {
        Element::SourceIpv4Address | Element::SourceIpv6Address => address(arrives.source, out),
        Element::DestinationIpv4Address | Element::DestinationIpv6Address => {
            address(arrives.destination, out)
        }
        Element::PostNatSourceIpv4Address | Element::PostNatSourceIpv6Address => address(leaves.source, out),
        Element::PostNatDestinationIpv4Address | Element::PostNatDestinationIpv6Address => {
            address(leaves.destination, out);
        }
        Element::SourceTransportPort => out.extend(arrives.sport.to_be_bytes()),
        Element::DestinationTransportPort => out.extend(port(arrives).to_be_bytes()),
        Element::PostNaptSourceTransportPort => out.extend(leaves.sport.to_be_bytes()),
        Element::PostNaptDestinationTransportPort => out.extend(port(leaves).to_be_bytes()),
        _ => out.push(arrives.protocol),
    }
}

/// Destination port; none of an ICMP query, which has the kind of query there.
fn port(ends: &Ends) -> u16 {
    ends.ports().map_or(0, |ports| ports.dport)
}

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

fn long(value: u64, out: &mut Vec<u8>) {
    out.extend(value.to_be_bytes());
}
