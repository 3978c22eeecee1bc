//! `parse`: what is this frame, and is it well formed?
//!
//! Finds the interface (through VLAN tags), the IP header, the transport header and its ports, and writes
//! them into the metadata. Drops what is malformed or shows addresses that no packet on a link can have.
//! Verifies the IPv4 header checksum; transport checksums are left to `track`, which looks at them where a
//! packet would change state. Of what the gateway itself sends, what only concerns a link goes no further. Changes no
//! byte. Takes frames fresh from their pool: what their metadata do not say yet stays unsaid where a packet has none of
//! it.

use policy::model::Action;
use tally::{Branch, Op, Region, Tally};
use wire::checksum::words_verify;
use wire::ethernet::EtherType;
use wire::header::{Fragment, Protocol, le64};
use wire::meta::Fields;
use wire::vlan::Tags;
use wire::{Family, Frame, Meta, Part, PortId, gre, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

use super::{About, Cx, Stage, Step, option, proxy};
use crate::client;
use crate::flag;
use crate::flow::Key;
use crate::hop::LINK_HOP;
use crate::tables::{Hearing, Interface, LOCAL, OTHER, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parse;

impl Stage for Parse {
    const ABOUT: About = About {
        name: "parse",
        asks: "What is it, and is it well formed?",
        reads: Fields::PACKET.and(Fields::INGRESS),
        writes: Fields::HEADERS.and(Fields::FLAGS).and(Fields::INGRESS).and(Fields::HOP),
    };

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        cx.tally.read(Region::Frame, 0, 64);
        cx.tally.write(Region::Meta, 0, 32);
        let (bytes, meta) = frame.view();
        let found = link(bytes, meta, cx.tables);
        tell(meta, cx.tally);
        match found {
            Ok(Carried::Packet) => Step::Next,
            Ok(Carried::LinkControl) => {
                if frame.meta.flags & flag::OWN != 0 {
                    note_request(frame, cx);
                } else if proxy::is_asked(frame, cx.tables) {
                    return Step::Answer(Reason::NeighbourProxied);
                }
                Step::Deliver
            }
            Err(reason) => Step::Drop(reason),
        }
    }

    fn program(_: &Tables) -> u32 {
        // Headers without options, 195; tags, 19; extension headers, 30; options, 16.
        260
    }
}

/// Takes note where a DHCP client on the gateway itself asks everybody on its link.
#[cold]
fn note_request<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) {
    if let Some(family) = client::request_to_group(frame) {
        cx.shard.clients.ask(family, frame.meta.number, frame.meta.received);
    }
}

/// Tells what reading the headers took: counted in the source for words of 32 bits in network order, the frame's first
/// 64 bytes being in registers.
#[inline(always)]
fn tell<T: Tally>(meta: &Meta, tally: &mut T) {
    // Place and length of the frame, 5; type, 2; the interface by place and bound, 4; group, hearing, and the address in two words, the
    // second of which is half the sender's, 9. A branch for each comparison.
    tally.instructions(20);
    tally.execute(Op::Branch, 6);
    match meta.family {
        Family::V4 => {
            // Version, lengths, fragment, 7; sum, with carries, 8, folded and compared, 3; protocol among three, 4; metadata that are
            // not words of the header, 5; the mark for what must not be fragmented, 1; addresses, 8, and whether either is a group's or
            // they are equal, 3. Taken are the branches to the protocol, back, and past that mark.
            tally.instructions(39);
            tally.execute(Op::Branch, 16);
            tally.branch(Branch::Taken);
            tally.branch(Branch::Taken);
            tally.branch(Branch::Always);
        }
        Family::V6 => {
            // Two tags, 3; ten words to put together, 11; version, length, 5; the chain's header among six kinds, 6; metadata, 14;
            // addresses of four words each against 0 and 1, groups, and one another, 30; link control, 4.
            tally.instructions(73);
            tally.execute(Op::Branch, 31);
            tally.branch(Branch::Taken);
            tally.branch(Branch::Taken);
            tally.branch(Branch::Always);
        }
        _ => return,
    }
    match Protocol(meta.protocol) {
        // Length: shift, two bounds.
        Protocol::UDP => {
            tally.instructions(4);
            tally.execute(Op::Branch, 2);
        }
        // Where the data begin: 4, two bounds, 3; flags, 4.
        Protocol::TCP => {
            tally.instructions(11);
            tally.execute(Op::Branch, 4);
        }
        Protocol::ESP if meta.family == Family::V4 => tally.instructions(1),
        // No usual case of IPv4: its header is read once more, with the sum of ten half words; type, class, identifier.
        _ => {
            tally.instructions(if meta.family == Family::V4 { 60 } else { 12 });
            tally.execute(Op::Branch, if meta.family == Family::V4 { 18 } else { 6 });
        }
    }
}

/// Payload of a frame.
enum Carried {
    /// An IP packet that goes through the pipeline.
    Packet,
    /// Control traffic of the link only: ARP, neighbour discovery, multicast listener discovery.
    LinkControl,
}

/// Reads the headers, those of the usual case in fewer steps.
#[inline(always)]
fn link(bytes: &[u8], meta: &mut Meta, tables: &Tables) -> Result<Carried, Reason> {
    let port = tables.interfaces.get(usize::from(meta.ingress.0));
    if port.is_some_and(|port| is_plain(bytes, meta, port)) {
        Ok(Carried::Packet)
    } else {
        any(bytes, meta, tables)
    }
}

/// True if it is a plain packet of IPv4 ([`plain4`]), sent to the interface without a tag.
#[inline(always)]
fn is_plain(bytes: &[u8], meta: &mut Meta, port: &Interface) -> bool {
    let Some((frame, _)) = bytes.split_first_chunk::<42>() else { return false };
    let (_, packet) = bytes.split_at(14);
    // The destination, and two bytes of the source.
    let destination = le64(frame, 0);
    let is_ours = port.hearing != Hearing::Own || (destination ^ port.mac_bits) << 16 == 0;
    if destination & 1 != 0 || !is_ours || frame[12..14] != EtherType::IPV4.0.to_be_bytes() {
        return false;
    }
    meta.network = 14;
    plain4(packet, meta)
}

/// Reads the link-layer header, and on.
#[inline(never)]
fn any(bytes: &[u8], meta: &mut Meta, tables: &Tables) -> Result<Carried, Reason> {
    let (header, payload) = bytes.split_first_chunk::<14>().ok_or(Reason::LinkTruncated)?;
    let [.., high, low] = *header;
    let ethertype = EtherType(u16::from_be_bytes([high, low]));
    meta.network = 14;
    let Some(port) = tables.interfaces.get(usize::from(meta.ingress.0)) else {
        return own(bytes, meta, tables);
    };
    if ethertype.is_vlan() {
        return tagged(bytes, header, port, meta, tables);
    }
    network((header, ethertype, payload), port, meta, tables)
}

/// Reads a frame that Linux sends, in any VLAN. Frames that are not for one host beyond the link (groups, neighbour
/// discovery, other protocols than IP) are not parsed further.
#[cold]
fn own(bytes: &[u8], meta: &mut Meta, tables: &Tables) -> Result<Carried, Reason> {
    let is_judged = meta.ingress == OTHER;
    if !is_judged && meta.ingress != LOCAL {
        return Err(Reason::VlanUnknown);
    }
    if is_judged && tables.other.is_none() {
        return Err(Reason::OtherDrop);
    }
    meta.flags |= flag::OWN;
    let layer = wire::ethernet::parse(bytes).map_err(|_| Reason::LinkTruncated)?;
    let header = bytes.first_chunk::<14>().ok_or(Reason::LinkTruncated)?;
    if layer.ethertype == EtherType::CELL
        && tables.interface(meta.egress).is_some_and(|own| own.channel.is_some())
    {
        // A line sends it as a cell, and cells are switched alone.
        return Err(Reason::EthertypeUnsupported);
    }
    let is_ip = matches!(layer.ethertype, EtherType::IPV4 | EtherType::IPV6);
    meta.network = layer.payload_at as u16;
    if is_ip && !layer.header.dst().is_multicast() {
        let carried = network((header, layer.ethertype, layer.payload), &tables.itself, meta, tables)?;
        if matches!(carried, Carried::Packet) && meta.flags & flag::TO_GROUP == 0 {
            return Ok(carried);
        }
    }
    // Groups that Linux forwards to have no rules here.
    if is_judged && tables.other_groups != Action::Accept {
        return Err(Reason::OtherDrop);
    }
    meta.hop = LINK_HOP;
    Ok(Carried::LinkControl)
}

/// Reads an IP packet of that version, behind a link-layer header of 14 bytes, as if it were fresh from the interface. Control traffic of a
/// link has no business here.
#[inline(always)]
pub(super) fn packet(
    frame: &mut Frame,
    interface: PortId,
    family: Family,
    tables: &Tables,
) -> Result<(), Reason> {
    let (bytes, meta) = frame.view();
    (meta.ingress, meta.network) = (interface, 14);
    (meta.flags, meta.part, meta.tcp_flags, meta.sport, meta.dport) = (0, Part::Whole, 0, 0, 0);
    let packet = bytes.get(14..).unwrap_or_default();
    let carried = match family {
        Family::V4 if plain4(packet, meta) => Carried::Packet,
        Family::V4 => v4(packet, meta, tables)?,
        _ => v6(packet, meta, tables)?,
    };
    match carried {
        Carried::Packet => Ok(()),
        Carried::LinkControl => Err(Reason::LinkLocal),
    }
}

/// Finds the interface of a frame with VLAN tags, and goes on.
#[inline(never)]
fn tagged(
    bytes: &[u8],
    header: &[u8; 14],
    port: &Interface,
    meta: &mut Meta,
    tables: &Tables,
) -> Result<Carried, Reason> {
    let layer = wire::ethernet::parse(bytes).map_err(|_| Reason::LinkTruncated)?;
    meta.ingress = vlan(meta.ingress, &port.vlans, &layer.tags).ok_or(Reason::VlanUnknown)?;
    let interface = tables.interface(meta.ingress).ok_or(Reason::VlanUnknown)?;
    meta.network = layer.payload_at as u16;
    network((header, layer.ethertype, layer.payload), interface, meta, tables)
}

/// Looks whom the frame was sent to, and reads what it carries.
#[inline(always)]
fn network(
    (header, ethertype, payload): (&[u8; 14], EtherType, &[u8]),
    interface: &Interface,
    meta: &mut Meta,
    tables: &Tables,
) -> Result<Carried, Reason> {
    // The destination, and two bytes of the source.
    let [destination @ .., _, _, _, _, _, _] = *header;
    let destination = u64::from_le_bytes(destination);
    if destination & 1 != 0 {
        meta.flags |= flag::GROUP;
    } else if interface.hearing == Hearing::Own && (destination ^ interface.mac_bits) << 16 != 0 {
        return Err(Reason::OtherHost);
    }
    match ethertype {
        EtherType::IPV4 if meta.flags & flag::GROUP == 0 && plain4(payload, meta) => Ok(Carried::Packet),
        EtherType::IPV4 => v4(payload, meta, tables),
        EtherType::IPV6 => v6(payload, meta, tables),
        EtherType::CELL => cell(interface, meta),
        _ => other(ethertype, interface),
    }
}

/// Content that is neither an IP packet nor a cell.
#[cold]
fn other(ethertype: EtherType, interface: &Interface) -> Result<Carried, Reason> {
    match ethertype {
        EtherType::ARP => Ok(Carried::LinkControl),
        EtherType::PPPOE_DISCOVERY | EtherType::PPPOE_SESSION | EtherType::PPP => {
            session(ethertype, interface)
        }
        _ => Err(Reason::EthertypeUnsupported),
    }
}

/// Lets an ATM cell through to `reassemble`, on a link that has them. Its stand-in header is to everybody, which says nothing of the packet.
#[cold]
fn cell(interface: &Interface, meta: &mut Meta) -> Result<Carried, Reason> {
    interface.channel.ok_or(Reason::EthertypeUnsupported)?;
    meta.flags &= !flag::GROUP;
    Ok(Carried::Packet)
}

/// Lets a frame of PPP through to `terminate`, on a link that carries sessions.
fn session(ethertype: EtherType, interface: &Interface) -> Result<Carried, Reason> {
    let is_carrier = match ethertype {
        EtherType::PPP => interface.ppp.is_some() && interface.channel.is_some(),
        _ => !interface.sessions.is_empty(),
    };
    if is_carrier { Ok(Carried::Packet) } else { Err(Reason::EthertypeUnsupported) }
}

/// The interface of a frame's VLAN. A tag with the identifier 0 says a priority and no VLAN (IEEE 802.1Q, table 9-2): a frame
/// that bears no other is the port's own.
pub fn vlan(port: PortId, vlans: &[(u16, u16, PortId)], tags: &Tags) -> Option<PortId> {
    let mut ids = tags.as_slice().iter().map(|tag| tag.id()).filter(|id| *id != 0);
    let Some(outer) = ids.next() else { return Some(port) };
    let inner = ids.next().unwrap_or(0);
    vlans.iter().find(|(o, i, _)| (*o, *i) == (outer, inner)).map(|(_, _, id)| *id)
}

/// The usual case, in fewer steps than [`v4`] and to the same effect: a well-formed packet of TCP, UDP or ESP from one host to another, no
/// options, no fragment, on a link where it was sent to this host alone. `false`, and nothing said, if it is another.
#[inline(always)]
fn plain4(packet: &[u8], meta: &mut Meta) -> bool {
    let Some((header, _)) = packet.split_first_chunk::<28>() else { return false };
    // Version, type of service, length, identification and fragment; time to live, protocol, checksum and source; destination and
    // ports: as they lie in memory, the first byte lowest.
    let [first, second, third] = std::array::from_fn(|word| le64(header, 8 * word));
    let total = usize::from(((first >> 16) as u16).swap_bytes());
    let (source, destination) = ((second >> 32) as u32, third as u32);
    // Version and header length; more fragments, and the offset.
    let is_whole = first & 0xff3f_0000_0000_00ff == 0x45;
    if !is_whole || total > packet.len() || !words_verify([first, second, destination.into()]) {
        return false;
    }
    let is_special = SPECIAL[source as usize & 0xff] | SPECIAL[destination as usize & 0xff];
    if is_special || source == destination {
        return false;
    }
    let (protocol, mut ports) = ((second >> 8) as u8, ((third >> 32) as u32).swap_bytes());
    match Protocol(protocol) {
        Protocol::UDP => {
            let length = usize::from(u16::from_be_bytes([header[24], header[25]]));
            if length < 8 || length + 20 > total {
                return false;
            }
        }
        Protocol::TCP => {
            let Some(more) = packet.get(20..total).and_then(|rest| rest.first_chunk::<20>()) else {
                return false;
            };
            let header_len = usize::from(more[12] >> 4) * 4;
            if header_len < 20 || header_len + 20 > total {
                return false;
            }
            meta.tcp_flags = more[13];
        }
        Protocol::ESP if total >= 28 => ports = 0,
        _ => return false,
    }
    meta.family = Family::V4;
    meta.ds_field = (first >> 8) as u8;
    meta.protocol = protocol;
    meta.transport = meta.network + 20;
    meta.end = meta.network + total as u16;
    meta.sport = (ports >> 16) as u16;
    meta.dport = ports as u16;
    // Its bit in the header's byte is that of the flag.
    meta.flags |= (first >> 48) as u16 & flag::DONT_FRAGMENT;
    true
}

/// First bytes of addresses that [`addresses4`] looks at: of this network, of a host's own, of groups.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut first = 0;
    while first < special.len() {
        special[first] = matches!(first, 0 | 127 | 224..);
        first += 1;
    }
    special
};

#[inline(never)]
fn v4(bytes: &[u8], meta: &mut Meta, tables: &Tables) -> Result<Carried, Reason> {
    let packet = ipv4::parse(bytes).map_err(|malformed| match malformed {
        ipv4::Malformed::TooShort => Reason::Ipv4Truncated,
        ipv4::Malformed::Version => Reason::Ipv4Version,
        ipv4::Malformed::HeaderLength | ipv4::Malformed::HeaderPastEnd => Reason::Ipv4HeaderLength,
        ipv4::Malformed::TotalLengthBelowHeader | ipv4::Malformed::TotalLengthPastEnd => {
            Reason::Ipv4TotalLength
        }
        ipv4::Malformed::Checksum => Reason::Ipv4Checksum,
    })?;
    let header = packet.header;
    meta.family = Family::V4;
    meta.ds_field = header.ds_field();
    meta.protocol = header.protocol().0;
    meta.transport = meta.network + header.header_len() as u16;
    meta.end = meta.network + header.total_len();
    if header.dont_fragment() {
        meta.flags |= flag::DONT_FRAGMENT;
    }
    if !packet.options.is_empty() {
        option::check(packet.options)?;
    }
    let dport = udp::Header::of(packet.payload).map_or(0, udp::Header::dport);
    addresses4(header.src_bits(), header.dst_bits(), header.protocol().0, dport, meta)?;
    if header.is_fragment() {
        meta.part = part(header.fragment(), header.protocol())?;
    }
    transport(packet.payload, meta, tables)?;
    Ok(Carried::Packet)
}

/// Refuses addresses that no packet on a link can have (RFC 1812, section 5.3.7; RFC 6890).
fn addresses4(
    source: u32,
    destination: u32,
    protocol: u8,
    dport: u16,
    meta: &mut Meta,
) -> Result<(), Reason> {
    let (from, to) = ((source >> 24) as u8, (destination >> 24) as u8);
    if from == 0 || from == 127 || from >= 224 {
        // A host that asks for its first address has none yet (RFC 2131, section 4.1).
        let asks = source == 0 && destination == u32::MAX && protocol == Protocol::UDP.0 && dport == 67;
        if !asks {
            return Err(Reason::SourceMartian);
        }
    }
    if to >= 224 {
        if to >= 240 && destination != u32::MAX {
            return Err(Reason::DestinationMartian);
        }
        meta.flags |= flag::TO_GROUP;
    } else if to == 0 || to == 127 {
        return Err(Reason::DestinationMartian);
    } else if meta.flags & flag::GROUP != 0 {
        // Whether it is a network's broadcast address only the routes know; `route` looks again.
        return Ok(());
    }
    if source == destination { Err(Reason::Land) } else { Ok(()) }
}

#[inline(never)]
fn v6(bytes: &[u8], meta: &mut Meta, tables: &Tables) -> Result<Carried, Reason> {
    let packet = ipv6::parse(bytes).map_err(|malformed| match malformed {
        ipv6::Malformed::TooShort | ipv6::Malformed::ExtensionPastEnd => Reason::Ipv6Truncated,
        ipv6::Malformed::Version => Reason::Ipv6Version,
        ipv6::Malformed::PayloadPastEnd => Reason::Ipv6PayloadLength,
        ipv6::Malformed::TooManyExtensions
        | ipv6::Malformed::ExtensionsTooLong
        | ipv6::Malformed::MisplacedHopByHop
        | ipv6::Malformed::SecondFragmentHeader => Reason::Ipv6HeaderChain,
    })?;
    let header = packet.header;
    meta.family = Family::V6;
    meta.ds_field = header.ds_field();
    meta.protocol = packet.protocol().0;
    meta.transport = meta.network + packet.payload_at() as u16;
    meta.end = meta.network + 40 + header.payload_len();
    meta.flags |= flag::DONT_FRAGMENT;
    if packet.extensions.routing.is_some_and(|routing| routing.kind == 0) {
        return Err(Reason::Ipv6SourceRoute);
    }
    addresses6(header.src_bits(), header.dst_bits(), packet.protocol(), meta)?;
    if let Some(fragment) = packet.extensions.fragment.filter(|found| !found.fragment.is_atomic()) {
        meta.part = part(Some(fragment.fragment), packet.protocol())?;
    }
    transport(packet.payload, meta, tables)?;
    if meta.protocol == Protocol::ICMPV6.0 && is_link_control((meta.dport >> 8) as u8) {
        // RFC 4861, section 7.1: genuine ones have not crossed a router. Listener reports (RFC 2710) are
        // sent with a hop limit of 1.
        return match header.hop_limit() {
            255 | 1 => Ok(Carried::LinkControl),
            _ => Err(Reason::LinkLocal),
        };
    }
    Ok(Carried::Packet)
}

/// Neighbour discovery (RFC 4861) and multicast listeners (RFC 2710, RFC 3810).
fn is_link_control(kind: u8) -> bool {
    icmpv6::Type(kind).is_neighbor_discovery() || matches!(kind, 130..=132 | 143)
}

/// Refuses addresses that no packet on a link can have (RFC 4291, section 2; RFC 6890).
#[inline]
fn addresses6(source: u128, destination: u128, protocol: Protocol, meta: &mut Meta) -> Result<(), Reason> {
    let group = |address: u128| address >> 120 == 0xff;
    // A host that has no address yet asks neighbours whether it may have one (RFC 4862, section 5.4).
    let asks = source == 0 && group(destination) && protocol == Protocol::ICMPV6;
    // ::ffff:0:0/96, IPv4 addresses within a host: on a link they would pass for what they say (RFC 4942, section 2.2).
    let mapped = |address: u128| address >> 32 == 0xffff;
    if (source <= 1 && !asks) || group(source) || mapped(source) {
        return Err(Reason::SourceMartian);
    }
    if destination <= 1 || mapped(destination) {
        return Err(Reason::DestinationMartian);
    }
    if group(destination) {
        // Scope 0 is reserved, and scope 1 leaves no host (RFC 4291, section 2.7).
        if destination >> 112 & 0xf <= 1 {
            return Err(Reason::DestinationMartian);
        }
        meta.flags |= flag::TO_GROUP;
    } else if meta.flags & flag::GROUP != 0 {
        return Err(Reason::LinkBroadcast);
    }
    if source == destination { Err(Reason::Land) } else { Ok(()) }
}

/// Returns the part of its datagram that a packet is.
fn part(fragment: Option<Fragment>, protocol: Protocol) -> Result<Part, Reason> {
    match fragment {
        None => Ok(Part::Whole),
        Some(fragment) if fragment.is_first() => Ok(Part::First),
        // RFC 3128: a fragment at offset 8 would overwrite the TCP flags of the first.
        Some(fragment) if fragment.offset == 8 && protocol == Protocol::TCP => Err(Reason::FragmentTiny),
        Some(_) => Ok(Part::Later),
    }
}

/// Reads ports, or what stands for them.
#[inline(always)]
fn transport(payload: &[u8], meta: &mut Meta, tables: &Tables) -> Result<(), Reason> {
    if meta.part == Part::Later {
        return Ok(());
    }
    let short = || if meta.part == Part::First { Reason::FragmentTiny } else { Reason::TransportTruncated };
    match Protocol(meta.protocol) {
        Protocol::TCP => {
            let header = tcp::Header::of(payload).ok_or_else(short)?;
            if header.header_len() < 20 || header.header_len() > payload.len() {
                return Err(Reason::TransportLength);
            }
            meta.sport = header.sport();
            meta.dport = header.dport();
            meta.tcp_flags = header.flags().0;
        }
        Protocol::UDP => {
            let header = udp::Header::of(payload).ok_or_else(short)?;
            let length = usize::from(header.length());
            if length < 8 || (length > payload.len() && meta.part == Part::Whole) {
                return Err(Reason::TransportLength);
            }
            meta.sport = header.sport();
            meta.dport = header.dport();
        }
        Protocol::ICMP if meta.family == Family::V4 => {
            let header = icmpv4::Header::of(payload).ok_or_else(short)?;
            meta.dport = u16::from(header.kind().0) << 8 | u16::from(header.code());
            match header.kind().class() {
                icmpv4::Class::Request | icmpv4::Class::Reply => {
                    meta.sport = header.id();
                    meta.flags |= flag::QUERY;
                }
                icmpv4::Class::Error => meta.flags |= flag::ERROR,
                icmpv4::Class::Other => {}
            }
        }
        Protocol::ICMPV6 if meta.family == Family::V6 => {
            let header = icmpv6::Header::of(payload).ok_or_else(short)?;
            meta.dport = u16::from(header.kind().0) << 8 | u16::from(header.code());
            match header.kind().class() {
                icmpv6::Class::Request | icmpv6::Class::Reply => {
                    meta.sport = header.id();
                    meta.flags |= flag::QUERY;
                }
                icmpv6::Class::Error => meta.flags |= flag::ERROR,
                icmpv6::Class::Other => {}
            }
        }
        // Of a call, if `track` knows it.
        Protocol::GRE if tables.filter.has_calls => {
            if let Some(call) = gre::call_id(payload) {
                (meta.sport, meta.dport) = (Key::CALL, call);
            }
        }
        protocol if protocol.has_ports() => {
            let ports = wire::header::Ports::of(payload).ok_or_else(short)?;
            meta.sport = ports.sport;
            meta.dport = ports.dport;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
