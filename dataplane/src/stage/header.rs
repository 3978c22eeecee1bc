//! What a packet shows to rules and translations.

use tally::Tally;
use wire::header::Protocol;
use wire::{Dscp, Family, Frame, ipv4, ipv6};

use super::Cx;
use super::parse::flag;
use crate::classify::Header;
use crate::hop::LOCAL_HOP;
use crate::tables::{Address, SELF};

/// Source and destination address of the packet, as its bytes have them now.
#[inline(always)]
pub(super) fn addresses(frame: &Frame) -> (Address, Address) {
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

/// Zones of origin and destination.
#[inline(always)]
pub(super) fn zones<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> (u8, u8) {
    let zone = |id| cx.tables.interface(id).map_or(SELF, |interface| interface.zone);
    let to = if frame.meta.hop == LOCAL_HOP { SELF } else { zone(frame.meta.egress) };
    (zone(frame.meta.ingress), to)
}

/// What the rules see: addresses before source translation and, where one has been chosen, after destination
/// translation; zones by the interfaces that it came in by and, once routed, leaves by.
#[inline]
pub(super) fn of<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Header {
    let meta = &frame.meta;
    let (source, destination) = addresses(frame);
    let (from, to) = zones(frame, cx);
    let is_tcp = meta.protocol == Protocol::TCP.0;
    let mut header = Header {
        source: source.bits,
        destination: destination.bits,
        sport: meta.sport,
        dport: meta.dport,
        protocol: meta.protocol,
        tcp_flags: if is_tcp { meta.tcp_flags } else { 0 },
        dscp: Dscp::of_field(meta.ds_field).value(),
        family: meta.family,
        from,
        to,
        ingress: meta.ingress.0,
        egress: meta.egress.0,
    };
    if meta.flags & flag::OPENS != 0 {
        let pending = &cx.shard.pending;
        header.destination = pending.destination.bits;
        if meta.flags & flag::QUERY == 0 {
            header.dport = pending.dport;
        }
    }
    header
}
