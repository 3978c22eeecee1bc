//! Streams on ATM lines: their packets come as the cells of their PDUs.

use std::collections::VecDeque;

use dataplane::Tables;
use dataplane::tables::Interface;
use wire::aal5::Segmentation;
use wire::atm::{self, CELL_LEN, FRAME_LEN};
use wire::link_kind::LinkKind;
use wire::rfc2684::Channel;
use wire::{BitRate, Nanos, PortId};

use super::Lines;
use crate::host::{self, Entry, Traffic};

/// Returns `source` with its packets on ATM channels in cells (AAL5, RFC 2684), one behind the other at the rate of their line; other frames, and
/// what is in cells already, come as they are. Of a policy without channels it is the source itself.
///
/// The cells of packets that have begun are held, no more. A frame that leaves is told to the source only if no packet has begun since.
pub fn in_cells(source: Box<dyn Traffic>, tables: &Tables, lines: Lines<'_>) -> Box<dyn Traffic> {
    let line = |(id, interface): (u16, &Interface)| {
        let (channel, link) = (interface.channel?, interface.link);
        let port = host::line(tables, PortId(id));
        Some(Line { port, link, channel, rate: lines.rate_of(port), free: Nanos(0) })
    };
    let lines: Vec<Option<Line>> = (0..).zip(&tables.interfaces).map(line).collect();
    if lines.iter().all(Option::is_none) {
        return source;
    }
    Box::new(Segmented { source, lines, cells: VecDeque::new(), packet: Vec::new(), begun: 0, given: 0 })
}

/// A source whose packets come in cells.
struct Segmented {
    source: Box<dyn Traffic>,
    lines: Vec<Option<Line>>,
    cells: VecDeque<Waiting>,
    packet: Vec<u8>,
    /// Number of packets and frames that the source has given, and the number of that which was given last.
    begun: u64,
    given: u64,
}

/// Line of an interface's channel.
#[derive(Clone, Copy, Debug)]
struct Line {
    port: PortId,
    link: LinkKind,
    channel: Channel,
    rate: BitRate,
    /// Moment from which the line is free.
    free: Nanos,
}

/// A cell to come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    port: PortId,
    frame: [u8; FRAME_LEN],
    /// Number of its packet.
    packet: u64,
}

impl Segmented {
    /// Puts the cells of the packet that has come at `entry` among those to come; `false` if it comes as it is.
    fn segment(&mut self, entry: &Entry) -> bool {
        let Some(Some(line)) = self.lines.get_mut(usize::from(entry.ingress.0)) else { return false };
        if atm::cell_of(&self.packet).is_some() {
            return false;
        }
        let Some((head, packet)) = line.channel.pdu(line.link, &self.packet) else { return false };
        let Some(cells) = Segmentation::new(line.channel.vc, head.bytes(), packet) else { return false };
        let begins = entry.at.max(line.free);
        let after = |cells: u64| {
            let bits = cells * CELL_LEN as u64 * 8;
            let span = u128::from(bits) * 1_000_000_000 / u128::from(line.rate.0.max(1));
            Nanos(begins.0.saturating_add(u64::try_from(span).unwrap_or(u64::MAX)))
        };
        line.free = after(cells.len() as u64);
        for (number, cell) in (0..).zip(cells) {
            let (at, frame) = (after(number), atm::stand_in(&cell));
            let place = self.cells.partition_point(|other| other.at <= at);
            self.cells.insert(place, Waiting { at, port: line.port, frame, packet: self.begun });
        }
        true
    }

    /// Begins the packets that come no later than the first cell. Returns the entry of a frame that comes as it is, before that.
    fn begin(&mut self) -> Option<Entry> {
        loop {
            let next = self.source.peek()?;
            if self.cells.front().is_some_and(|cell| cell.at <= next) {
                return None;
            }
            let entry = self.source.next(&mut self.packet)?;
            self.begun += 1;
            if !self.segment(&entry) {
                return Some(entry);
            }
        }
    }
}

impl Traffic for Segmented {
    fn peek(&mut self) -> Option<Nanos> {
        let cell = self.cells.front().map(|cell| cell.at);
        cell.into_iter().chain(self.source.peek()).min()
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        if let Some(entry) = self.begin() {
            bytes.extend_from_slice(&self.packet);
            self.given = self.begun;
            return Some(entry);
        }
        let cell = self.cells.pop_front()?;
        bytes.extend_from_slice(&cell.frame);
        self.given = cell.packet;
        Some(Entry::new(cell.at, cell.port, FRAME_LEN))
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        if self.given == self.begun {
            self.source.left(port, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use dataplane::Tables;
    use wire::aal5::Reassembly;
    use wire::atm::{Cell, PayloadType, Vc};
    use wire::{BitRate, Bytes, Nanos};

    use super::super::{Generator, Lines, Merge, Stream};
    use super::{FRAME_LEN, atm, in_cells};
    use crate::description::{PortKind, Ports};
    use crate::host::{Traffic, Wiring};

    /// Two channels of one line, one of them bridged, and an Ethernet.
    const POLICY: &str = r#"
        [interface.lan]
        zone = "lan"
        addresses = ["10.0.0.1/24"]
        [interface.dsl]
        zone = "wan"
        addresses = ["203.0.113.2/24"]
        link = "ip"
        atm = { vc = "8/35" }
        [interface.voice]
        zone = "wan"
        addresses = ["198.51.100.2/24"]
        atm = { vc = "8/36", line = "dsl", encapsulation = "vc-mux" }
        [default]
        "any > any" = "accept"
    "#;

    const START: Nanos = Nanos::from_secs(1);

    fn tables() -> Tables {
        Tables::compile(&policy::check(POLICY, "test").policy.unwrap(), 1).unwrap()
    }

    fn ports() -> Ports {
        let kind = |rate| PortKind { name: None, count: 1, rate: BitRate(rate), gap: Bytes(0), fifo: None };
        Ports(vec![kind(100_000_000), kind(149_760_000)])
    }

    /// Frames of streams, in cells where they are on channels, and as their source has them.
    fn both(streams: &[&str]) -> [Vec<(Nanos, u16, Vec<u8>)>; 2] {
        let tables = tables();
        let (ports, wiring) = (ports(), Wiring::new(&tables, &[]));
        let lines = Lines { ports: &ports, wiring: &wiring };
        let source = || {
            let one = |text: &&str| -> Box<dyn Traffic> {
                let stream: Stream = text.parse().unwrap();
                Box::new(Generator::new(&stream, &tables, lines, START, 1).unwrap())
            };
            Box::new(Merge::new(streams.iter().map(one).collect()))
        };
        let drain = |mut source: Box<dyn Traffic>| {
            let (mut all, mut bytes) = (Vec::new(), Vec::new());
            while let Some(at) = source.peek() {
                bytes.clear();
                let entry = source.next(&mut bytes).unwrap();
                assert_eq!(entry.at, at);
                all.push((at, entry.ingress.0, bytes.clone()));
            }
            all
        };
        [drain(in_cells(source(), &tables, lines)), drain(source())]
    }

    #[test]
    fn two_channels_of_a_line_have_one_port() {
        let wiring = Wiring::new(&tables(), &[]);
        assert_eq!([0, 1, 2].map(|id| wiring.port(wire::PortId(id))), [0, 1, 1]);
    }

    #[test]
    fn cells_hold_the_packets_and_keep_the_order_of_time() {
        let [cells, packets] = both(&[
            "dsl>lan,size=300,frames=40,rate=30%,flows=each",
            "voice>lan,size=100,frames=60,rate=10%,flows=each",
            "lan>dsl,size=64,frames=50,rate=50%,flows=each",
        ]);
        assert!(cells.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in the order of time");
        // What comes by the Ethernet comes as it is.
        let of = |all: &[(Nanos, u16, Vec<u8>)], port: u16| -> Vec<_> {
            all.iter().filter(|(_, ingress, _)| *ingress == port).cloned().collect()
        };
        assert_eq!(of(&cells, 0), of(&packets, 0));
        assert!(of(&cells, 2).is_empty(), "the cells of the second channel come by the line of the first");
        let mut reassemblies = [(35, Reassembly::new(2_000)), (36, Reassembly::new(2_000))];
        let mut found = [Vec::new(), Vec::new()];
        for (_, _, frame) in of(&cells, 1) {
            assert_eq!(frame.len(), FRAME_LEN);
            let cell = Cell::of(atm::cell_of(&frame).unwrap()).unwrap();
            let PayloadType::User(last) = cell.payload_type() else { panic!("of no user") };
            let channel =
                reassemblies.iter_mut().position(|(vci, _)| cell.vc() == Vc { vpi: 8, vci: *vci }).unwrap();
            let pdu = reassemblies[channel].1.push(cell.payload(), last).unwrap();
            found[channel].extend(pdu.map(<[u8]>::to_vec));
        }
        // Behind LLC and SNAP the packet, without the header that stands in for none; behind two bytes of padding the frame.
        let routed: Vec<Vec<u8>> =
            of(&packets, 1).into_iter().map(|(_, _, frame)| frame[14..].to_vec()).collect();
        let bridged: Vec<Vec<u8>> = of(&packets, 2).into_iter().map(|(_, _, frame)| frame).collect();
        assert_eq!((routed.len(), bridged.len()), (40, 60));
        assert_eq!(found[0].iter().map(|pdu| &pdu[8..]).collect::<Vec<_>>(), routed);
        assert_eq!(found[1].iter().map(|pdu| &pdu[2..]).collect::<Vec<_>>(), bridged);
    }

    #[test]
    fn a_full_line_has_no_time_between_cells() {
        // 296 bytes of a frame are a packet of 282; with 16 more it has seven cells.
        let [cells, _] = both(&["dsl>lan,size=300,frames=100,flows=each"]);
        assert_eq!(cells.len(), 700);
        for (number, (at, _, _)) in (0..).zip(&cells) {
            let due = number as f64 * 53.0 * 8.0 / 149.76e6 * 1e9;
            assert!((at.since(START).0 as f64 - due).abs() < 2.0, "{number}: {at:?}, not {due}");
        }
    }
}
