//! Writes pcapng: one section, interfaces of Ethernet, of bare IP packets, of AAL5 PDUs or of ATM cells, nanoseconds, comments.
//!
//! The same calls give the same bytes: no clock, host name or operating system gets into the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::link::LinkType;
use super::link::atm::{ERF_CELL_LEN, LLC, RAW, SUNATM_LEN, erf_cell};
use super::pcapng::{
    BYTE_ORDER, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, SECTION_HEADER,
};
use super::{CaptureError, MAX_CAPTURED, Problem, Record};
use crate::atm;
use crate::ethertype::EtherType;
use crate::link_kind::{LinkKind, STAND_IN, header_len, routed};
use crate::rfc2684::{Channel, Encapsulation, Head, MOST_HEAD};
use crate::unit::Nanos;

/// Name of the program that wrote the file, for the section header.
const USER_APPLICATION: &str = "wirerate";

const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const SHB_USERAPPL: u16 = 4;
const IF_TSRESOL: u16 = 9;
const ISB_IFDROP: u16 = 5;

/// Writes a pcapng file; buffered, so [`finish`](PcapngWriter::finish) it.
#[derive(Debug)]
pub struct PcapngWriter<W: Write = File> {
    out: BufWriter<W>,
    file: String,
    /// One block, before it is written.
    block: Vec<u8>,
    /// Layout of each interface's packets.
    interfaces: Vec<Layout>,
    written: u64,
}

/// Layout of an interface's packets in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    kind: LinkKind,
    carried: Carried,
}

/// Form in which a frame is in the file.
#[derive(Clone, Copy, Debug)]
enum Carried {
    /// As on its link.
    Plain,
    /// In a PDU of a virtual channel.
    Pdu(Channel),
    /// As a cell, in a record of an Endace card.
    Cell,
}

impl PcapngWriter<File> {
    /// Creates the file at `path`, or empties it.
    pub fn create(path: impl AsRef<Path>) -> Result<PcapngWriter<File>, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match File::create(path) {
            Ok(file) => PcapngWriter::over(name, file),
            Err(error) => Err(CaptureError { file: name, offset: 0, problem: Problem::Output(error) }),
        }
    }
}

impl<W: Write> PcapngWriter<W> {
    /// Writes a capture into `out`, called `name` in errors, and begins with the section header.
    pub fn over(name: impl Into<String>, out: W) -> Result<PcapngWriter<W>, CaptureError> {
        let mut writer = PcapngWriter {
            out: BufWriter::with_capacity(1 << 16, out),
            file: name.into(),
            block: Vec::new(),
            interfaces: Vec::new(),
            written: 0,
        };
        writer.begin(SECTION_HEADER);
        writer.u32(BYTE_ORDER);
        // Version 1.0, and a section length that is not told.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&(-1i64).to_le_bytes());
        writer.option(SHB_USERAPPL, USER_APPLICATION.as_bytes());
        writer.end_of_options();
        writer.end()?;
        Ok(writer)
    }

    /// Describes an Ethernet interface; returns its index, for [`Record::interface`].
    pub fn interface(&mut self, name: &str) -> Result<usize, CaptureError> {
        self.interface_of(name, LinkKind::Ethernet)
    }

    /// Describes an interface of a link of that kind; returns its index. Packets of a link without Ethernet are written
    /// as raw IP, without their stand-in header.
    pub fn interface_of(&mut self, name: &str, kind: LinkKind) -> Result<usize, CaptureError> {
        let link = match kind {
            LinkKind::Ethernet => LinkType::ETHERNET,
            LinkKind::Ip => LinkType::RAW,
        };
        self.describe(name, link, Layout { kind, carried: Carried::Plain })
    }

    /// Describes an interface whose packets are in a virtual channel of ATM; returns its index. Packets are written as SunATM: each in
    /// an AAL5 PDU that was sent, without padding and trailer.
    pub fn interface_of_channel(
        &mut self,
        name: &str,
        kind: LinkKind,
        channel: Channel,
    ) -> Result<usize, CaptureError> {
        self.describe(name, LinkType::SUNATM, Layout { kind, carried: Carried::Pdu(channel) })
    }

    /// Describes an interface whose frames are [cells behind their stand-in](crate::atm::stand_in); returns its index. Cells are written as
    /// records of an Endace card (ERF, type 3), which have no header error control.
    pub fn interface_of_cells(&mut self, name: &str) -> Result<usize, CaptureError> {
        self.describe(name, LinkType::ERF, Layout { kind: LinkKind::Ip, carried: Carried::Cell })
    }

    fn describe(
        &mut self,
        name: &str,
        LinkType(link): LinkType,
        layout: Layout,
    ) -> Result<usize, CaptureError> {
        self.begin(INTERFACE_DESCRIPTION);
        // Link type, reserved, no snap length.
        self.u32(link.into());
        self.u32(0);
        self.option(IF_NAME, cut_text(name));
        self.option(IF_TSRESOL, &[9]);
        self.end_of_options();
        self.end()?;
        self.interfaces.push(layout);
        Ok(self.interfaces.len() - 1)
    }

    /// Writes a packet, an Ethernet frame. The record's number and link type are not looked at; a comment
    /// is cut to 65,535 bytes, which is all that the format holds.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), CaptureError> {
        let interface = u32::try_from(record.interface).unwrap_or(u32::MAX);
        let Some(Layout { kind, carried }) = self.interfaces.get(record.interface).copied() else {
            return Err(self.error(Problem::NoInterface(interface)));
        };
        let left_out = match (kind, carried) {
            (LinkKind::Ethernet, _) => 0,
            (LinkKind::Ip, Carried::Cell) => STAND_IN + atm::HEADER_LEN,
            (LinkKind::Ip, _) => header_len(record.bytes),
        };
        let head = match carried {
            Carried::Plain => Front::default(),
            Carried::Pdu(channel) => Front::of_pdu(channel, kind, record.bytes),
            Carried::Cell => Front::of_cell(record.at, record.bytes),
        };
        let bytes = record.bytes.get(left_out..).unwrap_or_default();
        let captured = head.bytes().len() + bytes.len();
        if captured > MAX_CAPTURED {
            let (length, limit) = (captured as u64, MAX_CAPTURED as u64);
            return Err(self.error(Problem::Oversize { length, limit }));
        }
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((record.at.0 >> 32) as u32);
        self.u32(record.at.0 as u32);
        self.u32(captured as u32);
        let original_len = record.original_len.saturating_sub(left_out as u32);
        self.u32(original_len.saturating_add(head.bytes().len() as u32));
        self.block.extend_from_slice(head.bytes());
        self.block.extend_from_slice(bytes);
        self.pad();
        if let Some(comment) = &record.comment {
            self.option(COMMENT, cut_text(comment));
            self.end_of_options();
        }
        self.end()
    }

    /// Writes interface statistics with a comment: total number of packets of an interface lost to the capture by a
    /// moment.
    pub fn lost(
        &mut self,
        interface: usize,
        at: Nanos,
        lost: u64,
        comment: &str,
    ) -> Result<(), CaptureError> {
        let number = u32::try_from(interface).unwrap_or(u32::MAX);
        if interface >= self.interfaces.len() {
            return Err(self.error(Problem::NoInterface(number)));
        }
        self.begin(INTERFACE_STATISTICS);
        self.u32(number);
        self.u32((at.0 >> 32) as u32);
        self.u32(at.0 as u32);
        self.option(COMMENT, cut_text(comment));
        self.option(ISB_IFDROP, &lost.to_le_bytes());
        self.end_of_options();
        self.end()
    }

    /// Writes out the buffered blocks, all of them whole.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.out.flush().map_err(|error| self.error(Problem::Output(error)))
    }

    /// The sink of the capture. Buffered bytes have not reached it.
    pub fn get_mut(&mut self) -> &mut W {
        self.out.get_mut()
    }

    /// Flushes the writer and returns the sink it wrote into.
    pub fn finish(mut self) -> Result<W, CaptureError> {
        self.flush()?;
        let PcapngWriter { out, file, written, .. } = self;
        out.into_inner().map_err(|error| CaptureError {
            file,
            offset: written,
            problem: Problem::Output(error.into_error()),
        })
    }

    /// The file, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Starts a block; its length is filled in by [`end`](PcapngWriter::end).
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    /// Writes the block, with its length in both places.
    fn end(&mut self) -> Result<(), CaptureError> {
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.block.extend_from_slice(&length);
        if let Some(place) = self.block.get_mut(4..8) {
            place.copy_from_slice(&length);
        }
        let result: io::Result<()> = self.out.write_all(&self.block);
        result.map_err(|error| self.error(Problem::Output(error)))?;
        self.written += self.block.len() as u64;
        Ok(())
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn end_of_options(&mut self) {
        self.u32(0);
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn error(&self, problem: Problem) -> CaptureError {
        CaptureError { file: self.file.clone(), offset: self.written, problem }
    }
}

/// Bytes in front of a packet that is written in a PDU, or of the payload of a cell: none for others.
#[derive(Default)]
struct Front {
    bytes: [u8; ERF_CELL_LEN],
    len: usize,
}

const _: () = assert!(SUNATM_LEN + MOST_HEAD <= ERF_CELL_LEN);

impl Front {
    /// SunATM's header and the encapsulation of a frame.
    fn of_pdu(channel: Channel, kind: LinkKind, frame: &[u8]) -> Front {
        const SENT: u8 = 0x80;
        let traffic = match channel.encapsulation {
            Encapsulation::Llc => LLC,
            Encapsulation::VcMux => RAW,
        };
        let [high, low] = channel.vc.vci.to_be_bytes();
        let ethertype = routed(frame).map_or(EtherType::default(), |bare| bare.ethertype);
        let head = Head::new(channel.encapsulation, kind, ethertype);
        let mut bytes = [0; ERF_CELL_LEN];
        let (front, behind) = bytes.split_at_mut(SUNATM_LEN);
        front.copy_from_slice(&[SENT | traffic, channel.vc.vpi, high, low]);
        behind.iter_mut().zip(head.bytes()).for_each(|(place, byte)| *place = *byte);
        Front { bytes, len: SUNATM_LEN + head.bytes().len() }
    }

    /// Header of a record of an Endace card, and that of the cell.
    fn of_cell(at: Nanos, frame: &[u8]) -> Front {
        let header = frame.get(STAND_IN..).and_then(|cell| cell.first_chunk().copied()).unwrap_or_default();
        Front { bytes: erf_cell(at, header), len: ERF_CELL_LEN }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// As much of `text` as an option holds, cut between characters.
fn cut_text(text: &str) -> &[u8] {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes().get(..end).unwrap_or_default()
}
