//! Bytes of a packet in words. Fields not stated have the values that a careful host would send: right lengths and
//! checksums, a time to live of 64. Stated fields are written as stated, however wrong.

use std::net::IpAddr;

use dataplane::Tables;
use dataplane::tables::is_linux;
use wire::capture::link::NOBODY;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Mac};
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::vlan::{DropEligible, Priority, Tag, Tags};
use wire::{Pcp, PortId, icmpv4, icmpv6};

use super::fault::What;
use super::field::{Field, Fields, Value, is_error};
use super::packet::{Packet, Variables};

/// Ingress port of frames, and their link-layer header where a packet does not state one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// By this port.
    pub(crate) port: PortId,
    /// From this address.
    pub(crate) source: Mac,
    /// To this one.
    pub(crate) destination: Mac,
    /// With these tags.
    pub(crate) tags: Tags,
}

impl Link {
    /// Returns the link of an interface, from a sender that nobody is; `None` if there is no such interface.
    pub(crate) fn of(tables: &Tables, id: PortId) -> Option<Link> {
        let (port, interface) = match tables.interface(id) {
            _ if is_linux(id) => (id, &tables.itself),
            interface => (interface?.root, interface?),
        };
        Some(Link { port, source: NOBODY, destination: interface.mac, tags: interface.tags })
    }
}

/// The frame, or why it cannot be made.
pub(crate) fn frame(packet: &Packet, link: &Link, variables: &Variables, turn: u64) -> Result<Vec<u8>, What> {
    if let Some(raw) = &packet.raw {
        return Ok(raw.clone());
    }
    let fields = packet.fields(variables, turn).map_err(What::Unbound)?;
    let mac = |field: Field, otherwise: Mac| match fields.get(&field) {
        Some(Value::Mac(mac)) => *mac,
        _ => otherwise,
    };
    let mut bytes = Vec::new();
    let destination = match fields.get(&Field::Destination) {
        Some(Value::Address(IpAddr::V4(all))) if all.is_broadcast() => Mac::BROADCAST,
        Some(Value::Address(group)) if group.is_multicast() => Mac::of_group(*group),
        _ => link.destination,
    };
    bytes.extend(mac(Field::EthDestination, destination).0);
    let source = mac(Field::EthSource, link.source);
    bytes.extend(source.0);
    for tag in tags(&fields, link) {
        bytes.extend(tag.tpid.0.to_be_bytes());
        bytes.extend(tag.tci.to_be_bytes());
    }
    match number(&fields, Field::Ethertype) {
        Some(0x0806) => {
            bytes.extend(0x0806_u16.to_be_bytes());
            bytes.extend([0, 1, 8, 0, 6, 4]);
            bytes.extend((number(&fields, Field::Type).unwrap_or(1) as u16).to_be_bytes());
            bytes.extend(source.0);
            bytes.extend(octets4(&fields, Field::Source));
            bytes.extend([0; 6]);
            bytes.extend(octets4(&fields, Field::Destination));
        }
        Some(ethertype) => {
            bytes.extend((ethertype as u16).to_be_bytes());
            bytes.extend(payload(&fields));
        }
        None => {
            let EtherType(ethertype) = if is_v6(&fields) { EtherType::IPV6 } else { EtherType::IPV4 };
            bytes.extend(ethertype.to_be_bytes());
            bytes.extend(network(packet, &fields, variables, turn)?);
        }
    }
    if let Some(least) = number(&fields, Field::Pad) {
        bytes.resize(bytes.len().max(least as usize), 0);
    }
    if let Some(most) = number(&fields, Field::Cut) {
        bytes.truncate(most as usize);
    }
    Ok(bytes)
}

/// The VLAN tags, outermost first: those of the link, unless others are stated, with the priority stated. A priority by itself is in a
/// tag of VLAN 0.
fn tags(fields: &Fields, link: &Link) -> Vec<Tag> {
    let mut tags: Vec<Tag> = match fields.get(&Field::Vlans) {
        Some(Value::Vlans(ids)) => {
            let service = |place: usize| place == 0 && ids.len() > 1;
            let ids = ids.iter().enumerate();
            ids.map(|(place, id)| if service(place) { Tag::service(*id) } else { Tag::customer(*id) })
                .collect()
        }
        _ => link.tags.as_slice().to_vec(),
    };
    let points: &[u16] = match fields.get(&Field::Pcp) {
        Some(Value::Vlans(points)) => points,
        _ => &[],
    };
    let eligible = match fields.get(&Field::Dei) {
        Some(Value::Word("yes")) => DropEligible::Yes,
        _ => DropEligible::No,
    };
    if tags.is_empty() && (fields.contains_key(&Field::Pcp) || eligible == DropEligible::Yes) {
        tags.push(Tag::customer(0));
    }
    for (place, tag) in tags.iter_mut().enumerate() {
        let point = points.get(place).or(points.last()).and_then(|point| Pcp::new(*point as u8));
        *tag = tag.with_priority(Priority::new(point.unwrap_or_default(), eligible));
    }
    tags
}

/// The IP packet.
fn network(packet: &Packet, fields: &Fields, variables: &Variables, turn: u64) -> Result<Vec<u8>, What> {
    if is(fields, Field::Source, IpAddr::is_ipv6) && is(fields, Field::Destination, IpAddr::is_ipv4)
        || is(fields, Field::Source, IpAddr::is_ipv4) && is(fields, Field::Destination, IpAddr::is_ipv6)
    {
        return Err(What::Families);
    }
    let quoted = match &packet.quoted {
        None => None,
        Some(quoted) => {
            let inner = quoted.fields(variables, turn).map_err(What::Unbound)?;
            let mut bytes = network(quoted, &inner, variables, turn)?;
            // RFC 1812, section 4.3.2.3; RFC 4443, section 3.
            let most = if is_v6(fields) { 1232 } else { 548 };
            bytes.truncate(number(fields, Field::Quote).unwrap_or(most) as usize);
            Some(bytes)
        }
    };
    let mut data = quoted.unwrap_or_else(|| payload(fields));
    if let Some(length) = number(fields, Field::IpLength) {
        let (length, least) = (length as usize, ip(packet, fields, &data).len());
        let more = length.checked_sub(least).ok_or(What::Length { length, least })?;
        data.resize(data.len() + more, 0);
    }
    Ok(ip(packet, fields, &data))
}

/// The IP packet with this data behind its last header.
fn ip(packet: &Packet, fields: &Fields, data: &[u8]) -> Vec<u8> {
    let mut piece = if is_later(fields) { data.to_vec() } else { transport(fields, data) };
    let id = number(fields, Field::Ipid).unwrap_or(0) as u32;
    let fragment = match number(fields, Field::From).zip(number(fields, Field::Until)) {
        Some((from, until)) => {
            let more = until < piece.len() as u64;
            piece.truncate(until as usize);
            piece.drain(..piece.len().min(from as usize));
            Some(Fragment { id, offset: from as u16, more })
        }
        None => number(fields, Field::Offset).map(|offset| Fragment {
            id,
            offset: offset as u16,
            more: said_yes(fields, Field::More),
        }),
    };
    if is_v6(fields) { v6(packet, fields, fragment, &piece) } else { v4(fields, fragment, &piece) }
}

fn v4(fields: &Fields, part: Option<Fragment>, payload: &[u8]) -> Vec<u8> {
    let options = match fields.get(&Field::IpOptions) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        _ => Vec::new(),
    };
    let header_len = 20 + options.len().next_multiple_of(4);
    let said_len = number(fields, Field::HeaderLength).map_or(header_len, |bytes| bytes as usize);
    let total = number(fields, Field::TotalLength).unwrap_or((header_len + payload.len()) as u64);
    let mut fragment = if said_yes(fields, Field::Df) { 0x4000 } else { 0 };
    if let Some(Fragment { offset, more, .. }) = part {
        fragment |= (offset / 8) | if more { 0x2000 } else { 0 };
    }
    let mut header = vec![0; header_len];
    header[0] = (number(fields, Field::Version).unwrap_or(4) << 4) as u8 | (said_len / 4) as u8;
    header[1] = ds_field(fields);
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[4..6].copy_from_slice(&(number(fields, Field::Ipid).unwrap_or(0) as u16).to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[8] = number(fields, Field::Ttl).unwrap_or(64) as u8;
    header[9] = number(fields, Field::Protocol).unwrap_or(0) as u8;
    header[12..16].copy_from_slice(&octets4(fields, Field::Source));
    header[16..20].copy_from_slice(&octets4(fields, Field::Destination));
    header[20..20 + options.len()].copy_from_slice(&options);
    let checksum = said(fields, Field::HeaderChecksum, Sum::of(&header).checksum());
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header.extend(payload);
    header
}

fn v6(packet: &Packet, fields: &Fields, fragment: Option<Fragment>, payload: &[u8]) -> Vec<u8> {
    let mut protocol = Protocol(number(fields, Field::Protocol).unwrap_or(59) as u8);
    // From the last header to the first, each naming the one behind it.
    let mut behind = payload.to_vec();
    if let Some(Fragment { id, offset, more }) = fragment {
        let mut header = vec![protocol.0, 0];
        header.extend((offset | u16::from(more)).to_be_bytes());
        header.extend(id.to_be_bytes());
        header.extend(behind);
        behind = header;
        protocol = Protocol::FRAGMENT;
    }
    for (kind, body) in packet.extensions.iter().rev() {
        let len = (body.len() + 2).next_multiple_of(8);
        let mut header = vec![protocol.0, (len / 8 - 1) as u8];
        header.extend(body);
        header.resize(len, 0);
        header.extend(behind);
        behind = header;
        protocol = *kind;
    }
    let total = number(fields, Field::TotalLength).unwrap_or(behind.len() as u64);
    let mut header = vec![0; 40];
    let version = number(fields, Field::Version).unwrap_or(6) as u8;
    let class = ds_field(fields);
    header[0] = version << 4 | class >> 4;
    header[1] = class << 4;
    header[4..6].copy_from_slice(&(total as u16).to_be_bytes());
    header[6] = protocol.0;
    header[7] = number(fields, Field::Ttl).unwrap_or(64) as u8;
    header[8..24].copy_from_slice(&octets6(fields, Field::Source));
    header[24..40].copy_from_slice(&octets6(fields, Field::Destination));
    header.extend(behind);
    header
}

/// Transport header and payload, whole.
pub(crate) fn transport(fields: &Fields, payload: &[u8]) -> Vec<u8> {
    let protocol = Protocol(number(fields, Field::Protocol).unwrap_or(0) as u8);
    let get = |field: Field| number(fields, field).unwrap_or(0);
    let ports = [get(Field::Sport) as u16, get(Field::Dport) as u16].map(u16::to_be_bytes).concat();
    let mut bytes = Vec::new();
    let at = match protocol {
        Protocol::TCP => {
            let options = tcp_options(fields);
            let flags = number(fields, Field::Flags).unwrap_or(Flags::SYN.0.into());
            let header_len = number(fields, Field::DataOffset).unwrap_or(20 + options.len() as u64);
            bytes.extend(ports);
            bytes.extend((get(Field::Seq) as u32).to_be_bytes());
            bytes.extend((get(Field::Ack) as u32).to_be_bytes());
            bytes.extend([((header_len / 4) as u8) << 4, flags as u8]);
            bytes.extend((number(fields, Field::Window).unwrap_or(65_535) as u16).to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(options);
            16
        }
        Protocol::UDP => {
            let length = number(fields, Field::UdpLength).unwrap_or(8 + payload.len() as u64);
            bytes.extend(ports);
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([0; 2]);
            6
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let request = match protocol {
                Protocol::ICMP => icmpv4::Type::ECHO_REQUEST.0,
                _ => icmpv6::Type::ECHO_REQUEST.0,
            };
            let kind = number(fields, Field::Type).unwrap_or(request.into());
            bytes.extend([kind as u8, get(Field::Code) as u8, 0, 0]);
            match number(fields, Field::Mtu) {
                Some(mtu) => bytes.extend((mtu as u32).to_be_bytes()),
                None => {
                    bytes.extend((get(Field::IcmpId) as u16).to_be_bytes());
                    bytes.extend((get(Field::IcmpSeq) as u16).to_be_bytes());
                }
            }
            2
        }
        protocol => {
            if protocol.has_ports() {
                bytes.extend(ports);
            }
            bytes.extend(payload);
            return bytes;
        }
    };
    bytes.extend(payload);
    // A UDP length that fits says what the checksum covers; the rest of the packet is not the datagram's.
    let said_len = number(fields, Field::UdpLength).filter(|_| protocol == Protocol::UDP);
    let covered = said_len.map_or(bytes.len(), |len| len as usize);
    let covered = if (8..=bytes.len()).contains(&covered) { covered } else { bytes.len() };
    let sum = match (protocol, fields.get(&Field::Source), fields.get(&Field::Destination)) {
        (Protocol::ICMP, ..) => Sum::ZERO,
        (_, Some(Value::Address(IpAddr::V4(from))), Some(Value::Address(IpAddr::V4(to)))) => {
            Sum::pseudo_v4(*from, *to, protocol, covered as u16)
        }
        (_, Some(Value::Address(IpAddr::V6(from))), Some(Value::Address(IpAddr::V6(to)))) => {
            Sum::pseudo_v6(*from, *to, protocol, covered as u32)
        }
        _ => Sum::ZERO,
    };
    let sum = sum.and(&bytes[..covered]);
    let right = if protocol == Protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
    bytes[at..at + 2].copy_from_slice(&said(fields, Field::Checksum, right).to_be_bytes());
    bytes
}

fn tcp_options(fields: &Fields) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(mss) = number(fields, Field::Mss) {
        options.extend([2, 4]);
        options.extend((mss as u16).to_be_bytes());
    }
    if let Some(shift) = number(fields, Field::WindowScale) {
        options.extend([3, 3, shift as u8]);
    }
    if let Some(Value::Bytes(bytes)) = fields.get(&Field::TcpOptions) {
        options.extend(bytes);
    }
    options.resize(options.len().next_multiple_of(4), 0);
    options
}

/// The payload: what `data` says, then as much of a pattern as `len` asks for.
pub(crate) fn payload(fields: &Fields) -> Vec<u8> {
    let mut bytes = match fields.get(&Field::Data) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        _ if !fields.contains_key(&Field::Length) => rest_of_header(fields),
        _ => Vec::new(),
    };
    if let Some(len) = number(fields, Field::Length) {
        // A prime period, so that a part in the wrong place shows.
        bytes.extend((bytes.len()..len as usize).map(|place| (place % 251) as u8));
    }
    bytes
}

/// Returns zeros for the header behind the ports, of a protocol whose header is not built: that of SCTP (RFC 9260,
/// section 3) is the longest that a rule looks into.
fn rest_of_header(fields: &Fields) -> Vec<u8> {
    match number(fields, Field::Protocol).map(|number| Protocol(number as u8)) {
        None | Some(Protocol::TCP | Protocol::UDP) => Vec::new(),
        Some(protocol) if protocol.has_ports() && !is_later(fields) => vec![0; 8],
        Some(_) => Vec::new(),
    }
}

/// True if the message that these fields describe quotes a packet.
pub(crate) fn quotes(fields: &Fields) -> bool {
    let icmp = match number(fields, Field::Protocol) {
        Some(1) => Some(false),
        Some(58) => Some(true),
        _ => None,
    };
    icmp.zip(number(fields, Field::Type)).is_some_and(|(v6, kind)| is_error(v6, kind))
}

/// True if the fields are of a fragment without a transport header.
fn is_later(fields: &Fields) -> bool {
    number(fields, Field::Offset).is_some_and(|offset| offset > 0)
}

pub(crate) fn is_v6(fields: &Fields) -> bool {
    is(fields, Field::Source, IpAddr::is_ipv6)
}

/// True if a field is an address of that kind.
fn is(fields: &Fields, field: Field, kind: fn(&IpAddr) -> bool) -> bool {
    matches!(fields.get(&field), Some(Value::Address(address)) if kind(address))
}

fn ds_field(fields: &Fields) -> u8 {
    (number(fields, Field::Dscp).unwrap_or(0) << 2 | number(fields, Field::Ecn).unwrap_or(0)) as u8
}

/// A checksum as it is asked for.
fn said(fields: &Fields, field: Field, right: u16) -> u16 {
    match fields.get(&field) {
        Some(Value::Word("bad")) => match right ^ 0x1234 {
            // Zero would say that there is none.
            0 => 1,
            wrong => wrong,
        },
        Some(Value::Word("none")) => 0,
        _ => right,
    }
}

fn said_yes(fields: &Fields, field: Field) -> bool {
    fields.get(&field) == Some(&Value::Word("yes"))
}

/// A field's number.
pub(crate) fn number(fields: &Fields, field: Field) -> Option<u64> {
    match fields.get(&field) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

/// An IPv4 address; zeros where there is none.
fn octets4(fields: &Fields, field: Field) -> [u8; 4] {
    match fields.get(&field) {
        Some(Value::Address(IpAddr::V4(address))) => address.octets(),
        _ => [0; 4],
    }
}

/// An IPv6 address; zeros where there is none.
fn octets6(fields: &Fields, field: Field) -> [u8; 16] {
    match fields.get(&field) {
        Some(Value::Address(IpAddr::V6(address))) => address.octets(),
        _ => [0; 16],
    }
}
