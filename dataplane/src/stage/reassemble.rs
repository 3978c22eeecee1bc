//! `reassemble`: is it the last cell of a PDU, and is the PDU whole?
//!
//! Finds the interface whose ATM virtual channel a cell is of, among those of the line; puts the cells of the channel together (AAL5, ITU-T
//! I.363.5), and lets the packet in the PDU (RFC 2684) go on in the frame of the last cell, as if it had come in by the interface as it is.
//! Each cell is a frame, and has its verdict: the cells before the last one are dropped as [`Reason::Aal5Reassembly`], their bytes being kept;
//! a PDU that is not whole is dropped with its last cell, for the reason that it has. A cell of a cross-connection is forwarded as a cell, with
//! the header of the other end (ITU-T I.361); an OAM loopback is answered (ITU-T I.610). Frames of a link without cells, and captured PDUs,
//! pass `parse` and are not taken here.

use tally::{Offload, Op, Region, Tally};
use wire::atm::{self, CELL_LEN, Cell, PAYLOAD_LEN, PayloadType, Vc};
use wire::ethernet::EtherType;
use wire::link_kind::{self, STAND_IN};
use wire::meta::Fields;
use wire::rfc2684::{self, Payload};
use wire::{Family, Frame, aal5, oam};

use super::parse::Parse;
use super::{About, Cx, Packets, Stage, Step};
use crate::hop::CELL_HOP;
use crate::tables::{Circuit, Interface, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reassemble;

impl Stage for Reassemble {
    const ABOUT: About = About {
        name: "reassemble",
        asks: "Is it the last cell of a PDU, and is the PDU whole?",
        reads: Fields::PACKET.and(Fields::HEADERS).and(Fields::INGRESS),
        writes: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::FLAGS)
            .and(Fields::INGRESS)
            .and(Fields::EGRESS)
            .and(Fields::HOP),
    };

    fn packets(tables: &Tables) -> Packets {
        let has_cells = tables.interfaces.iter().any(|interface| interface.channel.is_some());
        if has_cells { Packets::Every } else { Packets::None }
    }

    /// Frames that `parse` lets through are IP, but for cells and those of PPP sessions. A session's frames that came in whole, out of a
    /// capture or from a driver of Linux, go on to `terminate`.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.family == Family::Other && frame.meta.fate == 0 && atm::claims_cell(frame.bytes())
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        match take(frame, cx) {
            Ok(Taken::Packet) => match Parse::step(frame, cx) {
                // A bridged frame that pretends to be a cell.
                Step::Next if atm::cell_of(frame.bytes()).is_some() => {
                    Step::Drop(Reason::EthertypeUnsupported)
                }
                step => step,
            },
            // Before it leaves, `queue` looks for room.
            Ok(Taken::Cell) => Step::Forward,
            Ok(Taken::Loopback) => Step::Answer(Reason::AtmLoopback),
            Err(reason) => Step::Drop(reason),
        }
    }

    fn program(_: &Tables) -> u32 {
        // What is told, the loop over a payload once, 112; a PDU too long, 6; other encapsulations, 24; a check sequence, 20; other channels
        // and management, 8; switching, 30; OAM, 40. The packet's headers are read by the program of `parse`.
        240
    }
}

/// Frame that a cell has become.
enum Taken {
    /// The packet of the PDU that the cell ends.
    Packet,
    /// A cell of another connection, which leaves.
    Cell,
    /// An OAM cell that is to be looped here.
    Loopback,
}

/// Takes a cell, and puts the packet of the PDU that the cell ends in its place, or the cell as it leaves by a cross-connection.
///
/// # Errors
/// There is no such packet, for this reason.
fn take<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<Taken, Reason> {
    let (bytes, meta) = frame.view();
    let port = cx.tables.interface(meta.ingress).ok_or(Reason::InterfaceGone)?;
    if port.channel.is_none() {
        return Err(Reason::EthertypeUnsupported);
    }
    let bytes: &[u8; CELL_LEN] = atm::cell_of(bytes).ok_or(Reason::LinkTruncated)?;
    // The header's check by a table: four bytes of six instructions each, and the comparison, 26; channel, payload type, and that it is no
    // idle cell, 12; the interface, its channel and its PDU, 14.
    cx.tally.instructions(52);
    cx.tally.execute(Op::Branch, 8);
    let cell = Cell::of(bytes).map_err(|_| Reason::AtmHec)?;
    if cell.vc() == Vc::NONE {
        return Err(Reason::AtmIdle);
    }
    match circuit(port, cell.vc(), cx.tally) {
        Some(Circuit::Interface(interface)) => meta.ingress = interface,
        None if is_of_path(port, cell.vc()) => return manage(cell.payload(), cx.tally),
        None => return Err(Reason::AtmVcUnknown),
        Some(Circuit::Switched { port, onto }) => {
            (meta.egress, meta.hop) = (port, CELL_HOP);
            // Identifiers into the header, 5; its check, 17; egress, 4.
            cx.tally.instructions(26);
            cx.tally.write(Region::Frame, 0, 8);
            let cell = atm::cell_of_mut(frame.bytes_mut()).ok_or(Reason::LinkTruncated)?;
            atm::switch(cell, onto);
            return Ok(Taken::Cell);
        }
    }
    let interface = cx.tables.interface(meta.ingress).ok_or(Reason::InterfaceGone)?;
    let (Some(channel), Some(reassembly)) = (interface.channel, cx.shard.channels.of(meta.ingress)) else {
        return Err(Reason::InterfaceGone);
    };
    let last = match cell.payload_type() {
        PayloadType::User(last) => last,
        PayloadType::Oam => return manage(cell.payload(), cx.tally),
        PayloadType::Management => return Err(Reason::AtmManagement),
    };
    // Each word to its place, 2.
    cx.tally.instructions(2 * PAYLOAD_LEN as u32 / 4);
    cx.tally.begin_offload(Offload::Crc { bytes: PAYLOAD_LEN as u32 });
    check(cell.payload(), cx.tally);
    cx.tally.end_offload();
    cx.tally.write(Region::Frame, reassembly.pending(), PAYLOAD_LEN as u32);
    let pdu = reassembly.push(cell.payload(), last).map_err(failure)?.ok_or(Reason::Aal5Reassembly)?;
    // Trailer, 12; encapsulation and stand-in, 20.
    cx.tally.instructions(32);
    cx.tally.execute(Op::Branch, 6);
    let is_ppp = interface.ppp.is_some();
    let payload = if is_ppp {
        rfc2684::ppp(pdu, channel.encapsulation).map(|packet| Payload::Ip(EtherType::PPP, packet))
    } else {
        rfc2684::payload(pdu, channel.encapsulation, interface.link)
    };
    let payload = payload.map_err(|fault| match fault {
        rfc2684::Fault::Encapsulation => Reason::AtmEncapsulation,
        rfc2684::Fault::Fcs => Reason::AtmBridgedFcs,
    })?;
    let is_filled = match payload {
        Payload::Ethernet(bridged) => frame.fill(bridged),
        Payload::Ip(ethertype, packet) => frame.prepare(STAND_IN + packet.len()).is_some_and(|bytes| {
            let (header, behind) = bytes.split_at_mut(STAND_IN);
            header.copy_from_slice(&link_kind::received_as(ethertype));
            behind.copy_from_slice(packet);
            true
        }),
    };
    if is_filled { Ok(Taken::Packet) } else { Err(Reason::SlotTooSmall) }
}

/// Destination of a channel's cells, among those that come by the port.
fn circuit<T: Tally>(port: &Interface, vc: Vc, tally: &mut T) -> Option<Circuit> {
    let (mut first, mut behind) = (0, port.circuits.len());
    while first < behind {
        // Middle of what is left, comparison, the half, 6.
        tally.instructions(6);
        tally.execute(Op::Branch, 1);
        let middle = first.midpoint(behind);
        tally.read(Region::RouteTable, middle * size_of::<(Vc, Circuit)>(), 8);
        if port.circuits.get(middle).is_some_and(|(other, _)| *other <= vc) {
            first = middle + 1;
        } else {
            behind = middle;
        }
    }
    // Is it that one, by its numbers or its path, 6; what is there, 4.
    tally.instructions(10);
    tally.execute(Op::Branch, 3);
    let (found, circuit) = port.circuits.get(behind.checked_sub(1)?)?;
    // All channels of a path, of which none has an entry.
    let is_path = found.vpi == vc.vpi && found.vci == 0;
    (*found == vc || is_path).then_some(*circuit)
}

/// True for the OAM flow of a path that ends here: some of its channels have destinations of their own.
fn is_of_path(port: &Interface, vc: Vc) -> bool {
    oam::F4.contains(&vc.vci) && port.circuits.iter().any(|(other, _)| other.vpi == vc.vpi)
}

/// Takes an OAM cell: a loopback is to be answered.
///
/// # Errors
/// The cell is no such one, for this reason.
#[cold]
fn manage<T: Tally>(payload: &[u8; PAYLOAD_LEN], tally: &mut T) -> Result<Taken, Reason> {
    check(payload, tally);
    if !oam::is_intact(payload) {
        return Err(Reason::AtmOamCrc);
    }
    if oam::is_loopback_request(payload) { Ok(Taken::Loopback) } else { Err(Reason::AtmManagement) }
}

/// Tallies a payload's way into a CRC by a table of 256 words. Each byte: out of its word, 1; with the sum an index, 2; the address, 1; the sum
/// shifted, and the entry added, 2; and the reference.
#[inline(always)]
fn check<T: Tally>(payload: &[u8; PAYLOAD_LEN], tally: &mut T) {
    if !tally.is_kept() {
        return;
    }
    for byte in payload {
        tally.instructions(6);
        tally.read(Region::CipherTable, usize::from(*byte) * 4, 4);
    }
}

fn failure(fault: aal5::Fault) -> Reason {
    match fault {
        aal5::Fault::TooLong => Reason::Aal5TooLong,
        aal5::Fault::Length => Reason::Aal5Length,
        aal5::Fault::Crc => Reason::Aal5Crc,
        aal5::Fault::Aborted => Reason::Aal5Aborted,
    }
}
