//! The contract of both programs, written down once more: with the parsers of `wire`, checksums summed over all bytes, and flows in a list.

use std::net::IpAddr;

use wire::checksum::{Delta, Sum, verifies};
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::segment::Plan;
use wire::{Bytes, Dscp, ipv4, ipv6, tcp, udp};

use crate::fast_path::layout::Fall;
use crate::fast_path::{Account, Entry, FallThrough, Tuple, Window};
use crate::offload;
use crate::sys::bpf::tests::Context;

use super::{BACKLOG, Checksums};

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Passed to Linux, the punt having marked it.
    Delivered,
    /// Received by the worker.
    Kept,
    /// Sent on, with these bytes.
    Gone(Vec<u8>),
    /// Dropped, the worker being far behind.
    Lost,
}

/// All that the programs remember.
pub(super) struct Oracle {
    pub(super) sides: Vec<Side>,
    pub(super) passed: u64,
    pub(super) taken: u64,
    pub(super) falls: FallThrough,
    pub(super) mark: u32,
    pub(super) checksums: Checksums,
    /// True if packets have tags beside their bytes; else none does, and a packet that would leave with one is kept.
    pub(super) has_tags: bool,
}

/// One direction of a flow. Directions of one flow are neighbours in the list.
pub(super) struct Side {
    pub(super) entry: Entry,
    pub(super) is_published: bool,
    /// Number of the last packet kept; `None` right after publication.
    pub(super) last: Option<u64>,
    pub(super) window: Option<Window>,
    pub(super) account: Account,
    /// Packets that have waited for others of the flow while the worker was far behind.
    pub(super) waited: u32,
}

/// Reason to keep a packet, and its flow if that is known.
struct Kept(Fall, Option<usize>);

/// A packet that goes by.
struct Going {
    side: usize,
    /// Bytes of the IP packet.
    length: usize,
    account: Account,
}

impl Oracle {
    pub(super) fn packet(&mut self, frame: &[u8], context: Context) -> Fate {
        if context.mark == self.mark {
            return Fate::Delivered;
        }
        match self.decide(frame, context) {
            Ok(going) => {
                let side = &mut self.sides[going.side];
                let (sum, more) = (&mut side.account, going.account);
                sum.packets += more.packets;
                sum.bytes += more.bytes;
                sum.frame_bytes += more.frame_bytes;
                let mut frame = frame[..14 + going.length].to_vec();
                if self.checksums == Checksums::Bare {
                    // As a line of AF_XDP does.
                    offload::complete_bare(&mut frame);
                }
                Fate::Gone(rewritten(&side.entry, &frame))
            }
            Err(Kept(Fall::Order, Some(side))) if self.is_lost(side) => {
                self.falls.overload += 1;
                Fate::Lost
            }
            Err(Kept(reason, side)) => {
                self.passed += 1;
                if let Some(side) = side {
                    self.sides[side].last = Some(self.passed);
                }
                let counter = match reason {
                    Fall::Unplain => &mut self.falls.unplain,
                    Fall::Unknown => &mut self.falls.unknown,
                    Fall::TooBig => &mut self.falls.too_big,
                    Fall::Window => &mut self.falls.window,
                    Fall::Order => &mut self.falls.order,
                    Fall::Stale => &mut self.falls.stale,
                    Fall::Overload => &mut self.falls.overload,
                };
                *counter += 1;
                Fate::Kept
            }
        }
    }

    /// True if a packet that has to wait is dropped: from the 17th on, up to the 4,097th, that waits while the worker is behind by so many.
    fn is_lost(&mut self, side: usize) -> bool {
        let waited = &mut self.sides[side].waited;
        if self.passed - self.taken < BACKLOG.into() || *waited > 4_096 {
            return false;
        }
        *waited += 1;
        *waited > 16
    }

    fn decide(&mut self, frame: &[u8], context: Context) -> Result<Going, Kept> {
        let unplain = Kept(Fall::Unplain, None);
        let Some((header, packet)) = frame.split_first_chunk::<14>() else { return Err(unplain) };
        // The address of the loopback interface.
        if header[..6] != [0; 6] {
            return Err(unplain);
        }
        let vlan = match context.tag {
            None => 0,
            Some(tag) if tag.tpid == EtherType::VLAN => tag.id(),
            Some(_) => return Err(unplain),
        };
        let (is_v4, at) = match header[12..] {
            [0x08, 0x00] => (true, 20),
            [0x86, 0xdd] => (false, 40),
            _ => return Err(unplain),
        };
        let Some(ports) = packet.get(at..at + 8) else { return Err(unplain) };
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let (source, destination, protocol, ds_field) = if is_v4 {
            let Ok(ip) = ipv4::parse_prefix(packet) else { return Err(self.lying(packet, vlan)) };
            let ip = ip.header;
            if ip.header_len() != 20 || ip.flags_and_offset() & !0x4000 != 0 {
                return Err(unplain);
            }
            (IpAddr::V4(ip.src()), IpAddr::V4(ip.dst()), ip.protocol(), ip.ds_field())
        } else {
            let Some(ip) = ipv6::Header::of(packet).filter(|ip| ip.version() == 6) else {
                return Err(unplain);
            };
            (IpAddr::V6(ip.src()), IpAddr::V6(ip.dst()), ip.next_header(), ip.ds_field())
        };
        if protocol != Protocol::TCP && protocol != Protocol::UDP {
            return Err(unplain);
        }
        let key = Tuple { source, destination, sport: port(0), dport: port(2) };
        let side = self.find(key, protocol, vlan).ok_or(Kept(Fall::Unknown, None))?;
        let entry = self.sides[side].entry;
        let kept = |reason| Err(Kept(reason, Some(side)));
        let whole = if is_v4 {
            ipv4::parse(packet).ok().filter(|ip| ip.header.ttl() > 1).map(|ip| ip.header.total_len().into())
        } else {
            let ip = ipv6::parse(packet).ok().filter(|ip| ip.header.hop_limit() > 1);
            ip.map(|ip| 40 + usize::from(ip.header.payload_len()))
        };
        let Some(length) = whole else { return kept(Fall::Unplain) };
        let Some(transport) = packet.get(at..length) else { return kept(Fall::Unplain) };
        let (headers, segment) = if protocol == Protocol::TCP {
            let Ok(segment) = tcp::parse(transport) else { return kept(Fall::Unplain) };
            let flags = segment.header.flags();
            let unwanted =
                [tcp::Flags::SYN, tcp::Flags::FIN, tcp::Flags::RST, tcp::Flags::URG, tcp::Flags::CWR];
            if !flags.contains(tcp::Flags::ACK) || unwanted.iter().any(|flag| flags.intersects(*flag)) {
                return kept(Fall::Unplain);
            }
            (at + segment.header.header_len(), Some(segment))
        } else {
            match udp::parse(transport) {
                Ok(datagram) if datagram.covered.len() == transport.len() => (at + 8, None),
                _ => return kept(Fall::Unplain),
            }
        };
        if !entry.dscp.has(Dscp::of_field(ds_field)) {
            return kept(Fall::Unplain);
        }
        let tag = if context.tag.is_some() { 4 } else { 0 };
        let account = match context.gso_size as usize {
            0 if length > entry.mtu.into() => return kept(Fall::TooBig),
            0 => (1, length, frame.len() + tag),
            size if headers + size > entry.mtu.into() => return kept(Fall::TooBig),
            size if length - headers <= size || frame.len() != 14 + length => return kept(Fall::Unplain),
            size => {
                let segments = Plan::new(frame, size as u16).unwrap().segments();
                let (count, bytes) = (segments.count, segments.bytes as usize);
                (count, bytes - 14 * count as usize, bytes + tag * count as usize)
            }
        };
        if let (Some(segment), Some(own)) = (segment, self.sides[side].window) {
            let peer = self.sides[side ^ 1].window.unwrap();
            match follow(own, peer, &segment) {
                Some(next) => self.sides[side].window = Some(next),
                None => return kept(Fall::Window),
            }
        }
        if self.sides[side].last.is_none_or(|last| last > self.taken) {
            return kept(Fall::Order);
        }
        if entry.tag.is_some() && !self.has_tags {
            return kept(Fall::Unplain);
        }
        let (packets, bytes, frame_bytes) = account;
        let account = Account {
            packets,
            bytes: Bytes(bytes as u64),
            frame_bytes: Bytes(frame_bytes as u64),
            ..Account::default()
        };
        Ok(Going { side, length, account })
    }

    /// Reason to keep an IPv4 packet whose total length is below that of its header: its flow is found all the same.
    fn lying(&self, packet: &[u8], vlan: u16) -> Kept {
        let mut honest = packet.to_vec();
        honest[2..4].copy_from_slice(&(packet.len() as u16).to_be_bytes());
        let Ok(ip) = ipv4::parse_prefix(&honest) else { return Kept(Fall::Unplain, None) };
        let (ip, is_known) = (ip.header, |protocol| [Protocol::TCP, Protocol::UDP].contains(&protocol));
        if ip.header_len() != 20 || ip.flags_and_offset() & !0x4000 != 0 || !is_known(ip.protocol()) {
            return Kept(Fall::Unplain, None);
        }
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let key =
            Tuple { source: ip.src().into(), destination: ip.dst().into(), sport: port(20), dport: port(22) };
        match self.find(key, ip.protocol(), vlan) {
            Some(side) => Kept(Fall::Unplain, Some(side)),
            None => Kept(Fall::Unknown, None),
        }
    }

    fn find(&self, key: Tuple, protocol: Protocol, vlan: u16) -> Option<usize> {
        self.sides.iter().position(|side| {
            let entry = &side.entry;
            // The index of the loopback interface.
            let is_of = entry.from == key && entry.protocol == protocol && entry.vlan == vlan;
            side.is_published && is_of && entry.ifindex == 1
        })
    }
}

/// Window of the sender after its segment, if that lies inside. Numbers are compared as integers, unwrapped around those of the flow.
fn follow(own: Window, peer: Window, segment: &tcp::Segment<'_>) -> Option<Window> {
    let near = |number: u32, base: u32| i64::from(number.wrapping_sub(base) as i32);
    let base = own.end;
    let seq = near(segment.header.seq(), base);
    let end = seq + segment.payload.len() as i64;
    if end > near(peer.grants, base) || seq < -i64::from(peer.max_window) {
        return None;
    }
    let behind = -near(segment.header.ack(), peer.end);
    if behind < 0 || behind > i64::from(own.max_window.max(66_000)) {
        return None;
    }
    let offered = (u32::from(segment.header.window()) << own.scale).max(1);
    let grants = segment.header.ack().wrapping_add(offered);
    Some(Window {
        end: if end > 0 { base.wrapping_add(end as u32) } else { base },
        max_window: own.max_window.max(offered),
        grants: if near(grants, own.grants) > 0 { grants } else { own.grants },
        scale: own.scale,
    })
}

/// The frame as the worker sends it.
fn rewritten(entry: &Entry, frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    out[..12].copy_from_slice(&entry.link);
    let packet = &mut out[14..];
    let (at, field) = (if entry.from.source.is_ipv4() { 20 } else { 40 }, entry.protocol == Protocol::TCP);
    let field = at + if field { 16 } else { 6 };
    let marked = |field: u8| entry.mark.map_or(field, |mark| field & 3 | mark.value() << 2);
    let was_right = sum(&entry.from, entry.protocol, &packet[at..]).verifies();
    match (entry.to.source, entry.to.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet[8] -= 1;
            packet[1] = marked(packet[1]);
            packet[12..16].copy_from_slice(&source.octets());
            packet[16..20].copy_from_slice(&destination.octets());
            packet[10..12].fill(0);
            let checksum = Sum::of(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert!(verifies(&packet[..20]));
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet[7] -= 1;
            let ds_field = marked(packet[0] << 4 | packet[1] >> 4);
            packet[0] = packet[0] & 0xf0 | ds_field >> 4;
            packet[1] = packet[1] & 0x0f | ds_field << 4;
            packet[8..24].copy_from_slice(&source.octets());
            packet[24..40].copy_from_slice(&destination.octets());
        }
        _ => panic!("of two versions"),
    }
    packet[at..at + 2].copy_from_slice(&entry.to.sport.to_be_bytes());
    packet[at + 2..at + 4].copy_from_slice(&entry.to.dport.to_be_bytes());
    let old = u16::from_be_bytes([packet[field], packet[field + 1]]);
    let is_udp = entry.protocol == Protocol::UDP;
    let new = if is_udp && old == 0 {
        0
    } else if was_right {
        packet[field..field + 2].fill(0);
        match sum(&entry.to, entry.protocol, &packet[at..]).checksum() {
            0 if is_udp => 0xffff,
            // A packet that nothing is changed in keeps its zero.
            0 if old == 0xffff && entry.from == entry.to => old,
            checksum => checksum,
        }
    } else {
        let delta = change(entry);
        if is_udp { delta.apply_udp(old) } else { delta.apply(old) }
    };
    packet[field..field + 2].copy_from_slice(&new.to_be_bytes());
    if let Some(tag) = entry.tag {
        out.splice(12..12, [tag.tpid.0.to_be_bytes(), tag.tci.to_be_bytes()].concat());
    }
    out
}

/// Sum of pseudo header and transport.
pub(super) fn sum(tuple: &Tuple, protocol: Protocol, transport: &[u8]) -> Sum {
    let length = transport.len();
    let pseudo = match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Sum::pseudo_v4(source, destination, protocol, length as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum::pseudo_v6(source, destination, protocol, length as u32)
        }
        _ => panic!("of two versions"),
    };
    pseudo.and(transport)
}

/// Change of a checksum that is wrong, and must stay so.
fn change(entry: &Entry) -> Delta {
    let bits = |address| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    Delta::NONE
        .change128(bits(entry.from.source), bits(entry.to.source))
        .change128(bits(entry.from.destination), bits(entry.to.destination))
        .change16(entry.from.sport, entry.to.sport)
        .change16(entry.from.dport, entry.to.dport)
}
