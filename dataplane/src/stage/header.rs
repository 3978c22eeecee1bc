//! Header fields of a packet that rules and translations match on.

use lookup::classify::Header;
use policy::model::Colour;
use tally::{Op, Region, Tally};
use wire::ethernet::{self, Mac};
use wire::{Dscp, Family, Frame, LinkKind, Nanos, PortId, ipv4, ipv6};

use super::Cx;
use crate::explain::Membership;
use crate::hop::LOCAL_HOP;
use crate::shard::Shard;
use crate::tables::{Address, DNAT, LOCAL, NO_MAC, SELF, Side, SourceMacs, Tables, is_linux};

/// Source and destination address of the packet, as its bytes have them now.
#[inline(always)]
pub(crate) fn addresses(frame: &Frame) -> (Address, Address) {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or(&[]);
    if frame.meta.family == Family::V4 {
        ipv4::Header::of(packet).map_or_else(Default::default, |header| {
            (Address::v4(header.src_bits()), Address::v4(header.dst_bits()))
        })
    } else {
        ipv6::Header::of(packet).map_or_else(Default::default, |header| {
            (Address::v6(header.src_bits()), Address::v6(header.dst_bits()))
        })
    }
}

/// Code point of the packet, as its bytes have it now.
#[inline(always)]
pub(crate) fn code_point(frame: &Frame) -> Dscp {
    Dscp::of_field(ds_field(frame))
}

/// Code point of the packet and bytes of the IP packet, as its header has them now: [`code_point`] and [`ip_length`] by one look.
#[inline(always)]
pub(crate) fn code_point_and_length(frame: &Frame) -> (Dscp, u32) {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or(&[]);
    let (field, said) = match (frame.meta.family, packet) {
        (Family::V4, [_, field, high, low, ..]) => (*field, usize::from(u16::from_be_bytes([*high, *low]))),
        (Family::V6, [first, second, _, _, high, low, ..]) => {
            (first << 4 | second >> 4, usize::from(u16::from_be_bytes([*high, *low])) + ipv6::HEADER_LEN)
        }
        _ => (ds_field(frame), packet.len()),
    };
    (Dscp::of_field(field), said.min(packet.len()) as u32)
}

/// Drop precedence of a packet: by its meter or its code point, whichever is the higher.
#[inline]
pub(crate) fn drop_precedence(frame: &Frame) -> Colour {
    Colour::ALL[usize::from(frame.meta.colour) % 3].max(Colour::of(code_point(frame)))
}

/// True for a packet of L4S, as its bytes are now: its sender is scalable (RFC 9331), ECT(1), or may be, CE.
#[inline(always)]
pub(crate) fn is_low_latency(frame: &Frame) -> bool {
    ds_field(frame) & 1 != 0
}

/// True for a packet whose transport knows marks (RFC 3168), as its bytes are now.
#[inline(always)]
pub(crate) fn is_ecn_capable(frame: &Frame) -> bool {
    ds_field(frame) & 3 != 0
}

/// DS field (traffic class) of the packet, with its ECN bits, as its bytes have it now.
#[inline(always)]
pub(crate) fn ds_field(frame: &Frame) -> u8 {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or(&[]);
    match (frame.meta.family, packet) {
        (Family::V4, [_, field, ..]) => *field,
        (Family::V6, [first, second, ..]) => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Bytes of the IP packet, as its header has them now.
#[inline(always)]
pub(crate) fn ip_length(frame: &Frame) -> u32 {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or(&[]);
    let said = match (frame.meta.family, packet) {
        (Family::V4, [_, _, high, low, ..]) => usize::from(u16::from_be_bytes([*high, *low])),
        (Family::V6, [_, _, _, _, high, low, ..]) => {
            usize::from(u16::from_be_bytes([*high, *low])) + ipv6::HEADER_LEN
        }
        _ => packet.len(),
    };
    said.min(packet.len()) as u32
}

/// Zones of origin and destination.
#[inline(always)]
pub(super) fn zones<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> (u8, u8) {
    (cx.tables.zone(frame.meta.ingress), destination_zone(frame, cx))
}

#[inline(always)]
fn destination_zone<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> u8 {
    if frame.meta.hop == LOCAL_HOP { SELF } else { cx.tables.zone(frame.meta.egress) }
}

/// Returns the fields that rules match on, for a packet that opens no flow: its addresses, and the zones of its ingress and
/// egress interfaces.
#[inline(always)]
pub(super) fn of<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Header {
    let mut header = on_arrival(frame, cx);
    set_egress(&mut header, frame, cx);
    header
}

/// Returns the fields that rules match on, for a routed packet: those of its opening, where it opens a flow, else its own.
#[inline(always)]
pub(super) fn routed<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Header {
    match cx.shard.openings.of(&frame.meta) {
        Some(opening) => {
            let mut seen = opening.seen;
            set_egress(&mut seen, frame, cx);
            seen
        }
        None => of(frame, cx),
    }
}

/// Returns the fields that rules match on before the routing decision: the destination's zone is not known yet.
#[cold]
pub(super) fn arrived(frame: &Frame, tables: &Tables) -> Header {
    let (source, destination) = addresses(frame);
    between(source.bits, destination.bits, frame.meta.family, frame, tables)
}

/// [`arrived`], on the packet path.
#[inline(always)]
pub(super) fn on_arrival<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Header {
    // One family at a time: a header of IPv4 takes an eighth of the words.
    if frame.meta.family == Family::V4 {
        let network = usize::from(frame.meta.network);
        let header = frame.bytes().get(network..network + ipv4::MIN_HEADER_LEN).and_then(ipv4::Header::of);
        let ends = header.map_or((0, 0), |header| (header.src_bits(), header.dst_bits()));
        between(ends.0.into(), ends.1.into(), Family::V4, frame, cx.tables)
    } else {
        on_arrival_v6(frame, cx)
    }
}

/// [`on_arrival`] of IPv6.
#[inline(never)]
fn on_arrival_v6<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Header {
    let (source, destination) = addresses(frame);
    between(source.bits, destination.bits, frame.meta.family, frame, cx.tables)
}

/// The fields of a packet between those addresses.
#[inline(always)]
fn between(source: u128, destination: u128, family: Family, frame: &Frame, tables: &Tables) -> Header {
    let meta = &frame.meta;
    Header {
        source,
        destination,
        sport: meta.sport,
        dport: meta.dport,
        protocol: meta.protocol,
        tcp_flags: meta.tcp_flags,
        dscp: Dscp::of_field(meta.ds_field).value(),
        family,
        from: tables.zone(meta.ingress),
        to: SELF,
        ingress: meta.ingress.0,
        egress: LOCAL.0,
        source_mac: source_mac(frame, tables),
        sets: 0,
    }
}

/// Size of the program that looks up memberships: two addresses, 12; the hash and the loops over lengths, places and elements, 70.
pub(super) const SETS: u32 = 82;

/// Adds the memberships of the addresses in dynamic sets at the moment `now`, where somebody asks for some of the bits `asked`.
#[inline(always)]
pub(super) fn ask_sets<T: Tally>(header: &mut Header, asked: u32, now: Nanos, cx: &mut Cx<'_, T>) {
    if asked != 0 {
        look_up_sets(header, now, cx.shard, cx.tables, cx.tally);
    }
}

/// [`ask_sets`] where the shard is lent already.
#[inline(always)]
pub(super) fn ask_sets_of<T: Tally>(
    header: &mut Header,
    asked: u32,
    now: Nanos,
    (shard, tables): (&Shard, &Tables),
    tally: &mut T,
) {
    if asked != 0 {
        look_up_sets(header, now, shard, tables, tally);
    }
}

/// Memberships of the ends of a header in the dynamic sets that the bits `asked` stand for.
pub(super) fn memberships<T: Tally>(
    mut header: Header,
    asked: u32,
    now: Nanos,
    cx: &mut Cx<'_, T>,
) -> Vec<Membership> {
    ask_sets(&mut header, asked, now, cx);
    let bits = header.sets & asked;
    let all =
        (0..cx.tables.sets.len() as u16).flat_map(|set| Side::BOTH.map(|side| Membership { set, side }));
    all.filter(|one| cx.tables.set_questions.bit(one.set, one.side) & bits != 0).collect()
}

#[inline(never)]
fn look_up_sets<T: Tally>(header: &mut Header, now: Nanos, shard: &Shard, tables: &Tables, tally: &mut T) {
    let v6 = header.family == Family::V6;
    let ends = [header.source, header.destination].map(|bits| Address { bits, v6 });
    header.sets = header.sets & DNAT | shard.sets.bits_of(tables, ends, now, tally);
}

/// Adds where `route` has found that the packet goes.
#[inline(always)]
pub(super) fn set_egress<T: Tally>(header: &mut Header, frame: &Frame, cx: &Cx<'_, T>) {
    header.to = destination_zone(frame, cx);
    header.egress = frame.meta.egress.0;
}

/// The class of the address that the frame came from.
#[inline]
fn source_mac(frame: &Frame, tables: &Tables) -> u16 {
    if tables.source_macs.is_none() { NO_MAC } else { class_of_sender(tables, frame) }
}

#[inline(never)]
fn class_of_sender(tables: &Tables, frame: &Frame) -> u16 {
    class_of(tables, frame.meta.ingress, sender(frame))
}

/// The class of the address `mac` by which a packet came in.
pub(super) fn class_of(tables: &Tables, ingress: PortId, mac: Mac) -> u16 {
    let Some(macs) = &tables.source_macs else { return NO_MAC };
    // Of what Linux sends the header is the pipeline's own, as is that of a link without Ethernet.
    let is_known = !is_linux(ingress)
        && tables.interface(ingress).is_some_and(|interface| interface.link == LinkKind::Ethernet);
    if is_known { macs.class(mac.to_bits()) } else { NO_MAC }
}

/// Tells what the class of an address took: for each step a half, the address there, its two words compared, the choice.
pub(super) fn tell_class<T: Tally>(macs: &SourceMacs, tally: &mut T) {
    for step in 0..macs.steps() {
        tally.read(Region::RuleTable, step as usize * 8, 8);
    }
    tally.instructions(6 * macs.steps());
    tally.execute(Op::Branch, 2 * macs.steps());
}

/// The source address in the Ethernet header that a frame came with.
#[inline(always)]
pub(super) fn sender(frame: &Frame) -> Mac {
    ethernet::Header::of(frame.bytes()).map_or(Mac::ZERO, |header| header.src())
}
