//! Takes a frame that came out apart into the fields of the format, and verifies its lengths and checksums by
//! computing them anew. Reads as far as it can; what is wrong is in [`Dissected::faults`].

use std::net::IpAddr;

use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::tcp::TcpOption;
use wire::vlan::DropEligible;
use wire::{arp, ethernet, ipv4, ipv6, tcp};

use super::build::quotes;
use super::field::{Field, Fields, Value};

/// A frame, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dissected {
    /// Its fields.
    pub(crate) fields: Fields,
    /// The packet that it quotes.
    pub(crate) quoted: Option<Box<Dissected>>,
    /// Lengths that do not fit.
    pub(crate) faults: Vec<&'static str>,
}

/// Takes a frame apart.
pub(crate) fn frame(bytes: &[u8]) -> Dissected {
    let mut found = Dissected::default();
    let Ok(layer) = ethernet::parse(bytes) else {
        found.faults.push("it is shorter than an Ethernet header");
        return found;
    };
    found.set(Field::EthSource, Value::Mac(layer.header.src()));
    found.set(Field::EthDestination, Value::Mac(layer.header.dst()));
    let ids = layer.tags.as_slice().iter().map(|tag| tag.id()).collect();
    found.set(Field::Vlans, Value::Vlans(ids));
    let priorities = || layer.tags.as_slice().iter().map(|tag| tag.priority());
    if let Some(outer) = priorities().next() {
        let mut points: Vec<u16> =
            priorities().map(|priority| priority.code_point().value().into()).collect();
        points.dedup();
        found.set(Field::Pcp, Value::Vlans(points));
        found.bit(Field::Dei, outer.eligible() == DropEligible::Yes);
    }
    match layer.ethertype {
        EtherType::IPV4 | EtherType::IPV6 => {
            let end = network(layer.payload, &mut found, Extent::Whole);
            if end < layer.payload.len() {
                found.faults.push("bytes follow the IP packet");
            }
        }
        EtherType(other) => {
            if let (EtherType::ARP, Ok(packet)) = (layer.ethertype, arp::parse(layer.payload)) {
                found.set(Field::Source, Value::Address(packet.sender_ip().into()));
                found.set(Field::Destination, Value::Address(packet.target_ip().into()));
                found.number(Field::Type, packet.operation().0);
            }
            found.number(Field::Ethertype, other);
            found.set(Field::Length, Value::Number(layer.payload.len() as u64));
            found.set(Field::Data, Value::Bytes(layer.payload.to_vec()));
        }
    }
    found
}

/// Extent of the bytes at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The whole packet.
    Whole,
    /// Possibly the beginning alone (a quote in an ICMP error).
    Quote,
}

impl Dissected {
    fn set(&mut self, field: Field, value: Value) {
        self.fields.insert(field, value);
    }

    fn number(&mut self, field: Field, number: impl Into<u64>) {
        self.set(field, Value::Number(number.into()));
    }

    fn bit(&mut self, field: Field, bit: bool) {
        self.set(field, Value::Word(if bit { "yes" } else { "no" }));
    }
}

/// Takes an IP packet apart, and says where it ends.
fn network(bytes: &[u8], found: &mut Dissected, extent: Extent) -> usize {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => v4(bytes, found, extent),
        Some(6) => v6(bytes, found, extent),
        _ => {
            found.faults.push("the IP version is neither 4 nor 6");
            bytes.len()
        }
    }
}

fn v4(bytes: &[u8], found: &mut Dissected, extent: Extent) -> usize {
    let Some(header) = ipv4::Header::of(bytes) else {
        found.faults.push("it is shorter than an IPv4 header");
        return bytes.len();
    };
    let header_len = header.header_len();
    let total = usize::from(header.total_len());
    found.number(Field::Protocol, header.protocol().0);
    found.set(Field::Source, Value::Address(IpAddr::V4(header.src())));
    found.set(Field::Destination, Value::Address(IpAddr::V4(header.dst())));
    found.number(Field::Ttl, header.ttl());
    found.number(Field::Dscp, header.dscp().value());
    found.number(Field::Ecn, bytes[1] & 3);
    found.bit(Field::Df, header.dont_fragment());
    found.number(Field::Ipid, header.id());
    found.number(Field::TotalLength, header.total_len());
    found.number(Field::HeaderLength, header_len as u64);
    found.number(Field::Version, 4_u8);
    let fragment = header.fragment();
    let (offset, more) = fragment.map_or((0, false), |fragment| (fragment.offset, fragment.more));
    found.number(Field::Offset, offset);
    found.bit(Field::More, more);
    let Some(whole_header) = bytes.get(..header_len).filter(|_| header_len >= 20 && header_len <= total)
    else {
        found.faults.push("the IPv4 header length does not fit");
        return bytes.len();
    };
    found.set(Field::IpOptions, Value::Bytes(whole_header[20..].to_vec()));
    let right = Sum::of(whole_header).verifies();
    found.set(Field::HeaderChecksum, Value::Word(if right { "right" } else { "bad" }));
    if extent == Extent::Whole && total > bytes.len() {
        found.faults.push("the IPv4 total length is more than there is");
    }
    let is_whole = offset == 0 && !more && total <= bytes.len();
    let payload = bytes.get(header_len..total.min(bytes.len())).unwrap_or(&[]);
    let protocol = header.protocol();
    let ends = (header.src().into(), header.dst().into());
    transport(found, payload, Transport { protocol, ends, v6: false, is_whole, is_later: offset > 0 });
    total
}

fn v6(bytes: &[u8], found: &mut Dissected, extent: Extent) -> usize {
    let Some(header) = ipv6::Header::of(bytes) else {
        found.faults.push("it is shorter than an IPv6 header");
        return bytes.len();
    };
    let total = 40 + usize::from(header.payload_len());
    found.set(Field::Source, Value::Address(IpAddr::V6(header.src())));
    found.set(Field::Destination, Value::Address(IpAddr::V6(header.dst())));
    found.number(Field::Ttl, header.hop_limit());
    found.number(Field::Dscp, header.dscp().value());
    found.number(Field::Ecn, header.ds_field() & 3);
    found.number(Field::TotalLength, header.payload_len());
    found.number(Field::Version, 6_u8);
    if extent == Extent::Whole && total > bytes.len() {
        found.faults.push("the IPv6 payload length is more than there is");
    }
    let Ok(packet) = ipv6::parse_prefix(bytes) else {
        found.faults.push("its IPv6 extension headers cannot be followed");
        return total;
    };
    let protocol = packet.protocol();
    found.number(Field::Protocol, protocol.0);
    let fragment = packet.extensions.fragment.map(|header| header.fragment);
    if let Some(fragment) = fragment {
        found.number(Field::Ipid, fragment.id);
    }
    let (offset, more) = fragment.map_or((0, false), |fragment| (fragment.offset, fragment.more));
    found.number(Field::Offset, offset);
    found.bit(Field::More, more);
    let is_whole = offset == 0 && !more && total <= bytes.len();
    let payload = packet.payload;
    let ends = (header.src().into(), header.dst().into());
    transport(found, payload, Transport { protocol, ends, v6: true, is_whole, is_later: offset > 0 });
    total
}

/// Network layer's facts on the transport layer's bytes.
struct Transport {
    protocol: Protocol,
    ends: (IpAddr, IpAddr),
    v6: bool,
    is_whole: bool,
    is_later: bool,
}

impl Transport {
    /// The sum of the pseudo header for so many bytes.
    fn pseudo(&self, len: usize) -> Sum {
        match self.ends {
            _ if self.protocol == Protocol::ICMP => Sum::ZERO,
            (IpAddr::V4(from), IpAddr::V4(to)) => Sum::pseudo_v4(from, to, self.protocol, len as u16),
            (IpAddr::V6(from), IpAddr::V6(to)) => Sum::pseudo_v6(from, to, self.protocol, len as u32),
            _ => Sum::ZERO,
        }
    }
}

fn transport(found: &mut Dissected, bytes: &[u8], about: Transport) {
    let at = if about.is_later { 0 } else { header(found, bytes, &about) };
    let payload = bytes.get(at..).unwrap_or(&[]);
    if !about.is_later && quotes(&found.fields) {
        let mut inner = Dissected::default();
        network(payload, &mut inner, Extent::Quote);
        found.quoted = Some(Box::new(inner));
    }
    found.number(Field::Length, payload.len() as u64);
    found.set(Field::Data, Value::Bytes(payload.to_vec()));
}

/// Reads the transport header and says how long it is. Of a quoted one there may be the first 8 bytes alone.
fn header(found: &mut Dissected, bytes: &[u8], about: &Transport) -> usize {
    let word = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    if about.protocol.has_ports() {
        for (field, at) in [(Field::Sport, 0), (Field::Dport, 2)] {
            if let Some(port) = word(at) {
                found.number(field, port);
            }
        }
    }
    let sum = about.pseudo(bytes.len()).and(bytes);
    let mut checksum = None;
    let len = match about.protocol {
        Protocol::TCP => {
            if let (Some(high), Some(low)) = (word(4), word(6)) {
                found.number(Field::Seq, u32::from(high) << 16 | u32::from(low));
            }
            let Some(header) = tcp::Header::of(bytes) else { return bytes.len() };
            found.number(Field::Ack, header.ack());
            found.number(Field::Flags, header.flags().0);
            found.number(Field::Window, header.window());
            found.number(Field::DataOffset, header.header_len() as u64);
            if let Ok(segment) = tcp::parse(bytes) {
                found.set(Field::TcpOptions, Value::Bytes(segment.options.to_vec()));
                for option in segment.options().flatten() {
                    match option {
                        TcpOption::Mss(mss) => found.number(Field::Mss, mss),
                        TcpOption::WindowScale(shift) => found.number(Field::WindowScale, shift),
                        _ => {}
                    }
                }
            }
            checksum = Some(if sum.verifies() { "right" } else { "bad" });
            header.header_len()
        }
        Protocol::UDP => {
            if let Some(length) = word(4) {
                found.number(Field::UdpLength, length);
                // It may be less than there is (RFC 768).
                if about.is_whole && !(8..=bytes.len()).contains(&usize::from(length)) {
                    found.faults.push("the UDP length is not the packet's");
                }
            }
            let covered = usize::from(word(4).unwrap_or(0)).min(bytes.len());
            let sum = about.pseudo(covered).and(&bytes[..covered]);
            checksum = word(6).map(|written| match written {
                0 => "none",
                _ if sum.verifies() => "right",
                _ => "bad",
            });
            if about.v6 && checksum == Some("none") {
                found.faults.push("over IPv6, UDP must have a checksum");
            }
            8
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let (Some([kind, code, ..]), Some(id), Some(seq)) = (bytes.first_chunk::<4>(), word(4), word(6))
            else {
                return bytes.len();
            };
            found.number(Field::Type, *kind);
            found.number(Field::Code, *code);
            if quotes(&found.fields) {
                found.number(Field::Mtu, u32::from(id) << 16 | u32::from(seq));
            } else {
                found.number(Field::IcmpId, id);
                found.number(Field::IcmpSeq, seq);
            }
            checksum = Some(if sum.verifies() { "right" } else { "bad" });
            8
        }
        protocol if protocol.has_ports() => 4,
        _ => 0,
    };
    // That there is none a first fragment says by itself.
    if let Some(word) = checksum.filter(|word| about.is_whole || *word == "none") {
        found.set(Field::Checksum, Value::Word(word));
    }
    len
}
