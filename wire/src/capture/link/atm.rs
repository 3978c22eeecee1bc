//! Link types of ATM: PDUs of AAL5 that the capturing machine reassembled, and cells.
//!
//! - RFC 1483 (100): the payload of a PDU, from its LLC header on.
//! - SunATM (123): a byte of flags (direction; kind of traffic in the lower half), VPI, VCI, and the payload of a PDU.
//! - ERF (197), the records of Endace's cards: a header, and behind it a cell without its check (type 3) or an Ethernet frame (type 2).
//!
//! PDUs are without padding and trailer. A frame check sequence behind a bridged frame stays, as behind any other captured frame.

use super::{NO_TYPE, Parts};
use crate::atm::{self, PAYLOAD_LEN};
use crate::ethernet;
use crate::ethertype::EtherType;
use crate::ppp::Protocol;
use crate::rfc2684::{self, Llc, PAD_LEN};
use crate::unit::Nanos;

/// Bytes of the header in front of a SunATM PDU.
pub(crate) const SUNATM_LEN: usize = 4;

/// SunATM's kinds of traffic: a PDU with VC multiplexing, and one with LLC.
pub(crate) const RAW: u8 = 0;
pub(crate) const LLC: u8 = 2;

/// Content of a record.
pub(super) enum Content<'a> {
    /// A packet, or one cut in its header.
    Packet(Option<Parts<'a>>),
    /// An Ethernet frame.
    Frame(&'a [u8]),
    /// A cell: its header with the check, and its payload, if it is whole.
    Cell([u8; atm::HEADER_LEN], &'a [u8]),
}

/// Content of an RFC 1483 record.
pub(super) fn rfc1483(pdu: &[u8]) -> Content<'_> {
    match rfc2684::llc(pdu) {
        Some(Llc::Routed(EtherType(kind @ (super::IPV4 | super::IPV6 | PPP)), packet)) => {
            Content::Packet(Some(Parts::of(kind, packet)))
        }
        Some(Llc::Bridged(frame) | Llc::BridgedFcs(frame)) => Content::Frame(frame),
        _ => Content::Packet(Some(Parts::of(NO_TYPE, pdu))),
    }
}

/// EtherType of PPP, in front of a packet from its protocol field on.
const PPP: u16 = EtherType::PPP.0;

/// Content of a SunATM record. Of VC multiplexing nothing says the kind: what has the version of IP is routed, what has the two bytes that
/// align a bridged frame is one, and what has the number of a protocol of PPP is that.
pub(super) fn sunatm(bytes: &[u8]) -> Content<'_> {
    let Some(([flags, ..], pdu)) = bytes.split_first_chunk::<SUNATM_LEN>() else {
        return Content::Packet(None);
    };
    match flags & 0x0f {
        LLC => rfc1483(pdu),
        RAW if pdu.starts_with(&[0; PAD_LEN]) && pdu.len() >= PAD_LEN + ethernet::HEADER_LEN => {
            Content::Frame(&pdu[PAD_LEN..])
        }
        RAW if pdu.first_chunk().is_some_and(|field| Protocol(u16::from_be_bytes(*field)).is_known()) => {
            Content::Packet(Some(Parts::of(PPP, pdu)))
        }
        RAW => Content::Packet(Some(Parts::of(super::by_version(pdu), pdu))),
        _ => Content::Packet(Some(Parts::of(NO_TYPE, pdu))),
    }
}

/// Bytes in front of the payload of a cell in an ERF record.
pub(crate) const ERF_CELL_LEN: usize = ERF_LEN + 4;

/// Header of the ERF record of a cell, and the cell's own without its check.
pub(crate) fn erf_cell(at: Nanos, cell: [u8; 4]) -> [u8; ERF_CELL_LEN] {
    const SECOND: u64 = 1_000_000_000;
    const VARYING_LENGTH: u8 = 0x04;
    // Seconds, and their fraction in units of 2^-32.
    let fraction = ((at.0 % SECOND) << 32) / SECOND;
    let time = (at.0 / SECOND) << 32 | fraction;
    let on_wire = 4 + PAYLOAD_LEN as u16;
    let mut record = [0; ERF_CELL_LEN];
    record[..8].copy_from_slice(&time.to_le_bytes());
    record[8..10].copy_from_slice(&[ERF_CELL, VARYING_LENGTH]);
    // Length of the record; cells lost before it, none; length on the wire.
    record[10..12].copy_from_slice(&(ERF_LEN as u16 + on_wire).to_be_bytes());
    record[14..16].copy_from_slice(&on_wire.to_be_bytes());
    record[ERF_LEN..].copy_from_slice(&cell);
    record
}

/// Bytes of an ERF record's header, without further ones.
const ERF_LEN: usize = 16;

/// Type of ERF records that are cells.
const ERF_CELL: u8 = 3;

/// Content of an ERF record. Its header has the type at byte 8, and is 16 bytes long; eight more follow while the first bit of the type, and
/// then of each eight, says so.
pub(super) fn erf(bytes: &[u8]) -> Content<'_> {
    const FURTHER: usize = 8;
    let Some(kind) = bytes.get(8) else { return Content::Packet(None) };
    let (mut at, mut more) = (ERF_LEN, kind & 0x80 != 0);
    while more {
        more = bytes.get(at).is_some_and(|first| first & 0x80 != 0);
        at += FURTHER;
    }
    let Some(content) = bytes.get(at..) else { return Content::Packet(None) };
    match kind & 0x7f {
        // An offset and padding come first.
        2 => content.get(2..).map_or(Content::Packet(None), Content::Frame),
        ERF_CELL => match content.split_first_chunk::<4>() {
            Some((header, payload)) => {
                let [a, b, c, d] = *header;
                Content::Cell([a, b, c, d, atm::hec(*header)], payload.get(..PAYLOAD_LEN).unwrap_or(payload))
            }
            None => Content::Packet(None),
        },
        _ => Content::Packet(Some(Parts::of(NO_TYPE, content))),
    }
}
