//! ATM cells at the user-network interface (ITU-T I.361), and the check of their headers (ITU-T I.432.1).
//!
//! A cell has 53 bytes: five of header, the last of which is the header error control (HEC), and 48 of payload. Errors in
//! headers are detected, never corrected: I.432.1 corrects single bits where errors are single, as on optical fibre; on a DSL line they
//! come in bursts, and a correction would now and then put a cell into another virtual channel.
//!
//! The pipeline takes only frames with an Ethernet header: a cell gets a [stand-in](stand_in), as bare IP packets do
//! ([`crate::link_kind`]).

use std::fmt;
use std::str::FromStr;

use crc::{CRC_8_I_432_1, Crc, Table};

use crate::ethernet::Mac;
use crate::ethertype::EtherType;
use crate::link_kind::{FAR, STAND_IN};

/// Bytes of a cell.
pub const CELL_LEN: usize = HEADER_LEN + PAYLOAD_LEN;

/// Bytes of a cell's header, its check among them.
pub const HEADER_LEN: usize = 5;

/// Bytes of a cell's payload.
pub const PAYLOAD_LEN: usize = 48;

/// Bytes of a cell behind its stand-in header.
pub const FRAME_LEN: usize = STAND_IN + CELL_LEN;

/// x^8 + x^2 + x + 1, and 0x55 added, so that a run of zeros is no header (I.432.1, section 4.3.2.2).
static HEC: Crc<u8, Table<1>> = Crc::<u8, Table<1>>::new(&CRC_8_I_432_1);

/// Returns the header error control of the four bytes in front of it.
pub fn hec(header: [u8; 4]) -> u8 {
    HEC.checksum(&header)
}

/// Virtual channel on a link: its path and channel identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vc {
    /// Virtual path identifier.
    pub vpi: u8,
    /// Virtual channel identifier. Those below [`Vc::LEAST_VCI`] are reserved.
    pub vci: u16,
}

impl Vc {
    /// Lowest identifier of a channel for users (I.361, section 2.2.3).
    pub const LEAST_VCI: u16 = 32;

    /// Identifiers of cells that carry nothing: unassigned and idle cells (I.361, table 1).
    pub const NONE: Vc = Vc { vpi: 0, vci: 0 };
}

impl fmt::Display for Vc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vpi, self.vci)
    }
}

/// Text that names no virtual channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a virtual channel is VPI/VCI, 0 to 255 and 0 to 65535")]
pub struct NoVc;

impl FromStr for Vc {
    type Err = NoVc;

    fn from_str(text: &str) -> Result<Vc, NoVc> {
        let (vpi, vci) = text.split_once('/').ok_or(NoVc)?;
        // `parse` takes a sign, too.
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(vpi) || !is_number(vci) {
            return Err(NoVc);
        }
        Ok(Vc { vpi: vpi.parse().map_err(|_| NoVc)?, vci: vci.parse().map_err(|_| NoVc)? })
    }
}

/// Virtual connection at a line: one channel, or a path with all its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// Virtual channel: VPI and VCI.
    Channel(Vc),
    /// Virtual path: VPI alone.
    Path(u8),
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connection::Channel(vc) => vc.fmt(f),
            Connection::Path(vpi) => vpi.fmt(f),
        }
    }
}

impl FromStr for Connection {
    type Err = NoVc;

    fn from_str(text: &str) -> Result<Connection, NoVc> {
        match text.contains('/') {
            true => text.parse().map(Connection::Channel),
            // As in `Vc`.
            false if text.starts_with('+') => Err(NoVc),
            false => text.parse().map(Connection::Path).map_err(|_| NoVc),
        }
    }
}

/// Payload type of a cell (I.361, section 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadType {
    /// User data. Congestion is not told apart.
    User(Last),
    /// OAM of the channel, of its segment or end to end: flow F5 of [I.610](crate::oam).
    Oam,
    /// Resource management, or reserved.
    Management,
}

/// Place of a cell in its AAL5 PDU: the ATM-user-to-ATM-user indication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Further cells of the PDU follow.
    No,
    /// Last cell of a PDU.
    Yes,
}

/// Cell whose header is intact.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a>(&'a [u8; CELL_LEN]);

/// Error in the header of a cell: the HEC does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header error control of the cell is wrong")]
pub struct HecError;

impl<'a> Cell<'a> {
    /// Verifies the header of a cell.
    ///
    /// # Errors
    /// The HEC does not fit the header.
    pub fn of(bytes: &'a [u8; CELL_LEN]) -> Result<Cell<'a>, HecError> {
        let [a, b, c, d, check, ..] = *bytes;
        if hec([a, b, c, d]) == check { Ok(Cell(bytes)) } else { Err(HecError) }
    }

    /// Virtual channel.
    pub fn vc(self) -> Vc {
        let [a, b, c, d, ..] = *self.0;
        Vc { vpi: a << 4 | b >> 4, vci: u16::from(b & 0x0f) << 12 | u16::from(c) << 4 | u16::from(d >> 4) }
    }

    /// Payload type.
    pub fn payload_type(self) -> PayloadType {
        match self.0[3] >> 1 & 0b111 {
            0b000 | 0b010 => PayloadType::User(Last::No),
            0b001 | 0b011 => PayloadType::User(Last::Yes),
            0b100 | 0b101 => PayloadType::Oam,
            _ => PayloadType::Management,
        }
    }

    /// Payload.
    pub fn payload(self) -> &'a [u8; PAYLOAD_LEN] {
        self.0.last_chunk().unwrap_or(&[0; PAYLOAD_LEN])
    }
}

/// Returns the header of a cell of user data: no flow control, no congestion, high priority.
pub fn header(vc: Vc, last: Last) -> [u8; HEADER_LEN] {
    let fields = u32::from(vc.vpi) << 20 | u32::from(vc.vci) << 4 | u32::from(last == Last::Yes) << 1;
    let [a, b, c, d] = fields.to_be_bytes();
    [a, b, c, d, hec([a, b, c, d])]
}

/// Puts a cell on another virtual connection: the identifiers that the connection has, and a header error control to them. Payload type, loss
/// priority and payload stay; so does the VCI on a path. The generic flow control, which has no meaning beyond a line (I.361, section 2.2.2),
/// is cleared.
pub fn switch(cell: &mut [u8; CELL_LEN], onto: Connection) {
    let [a, b, c, d, check, ..] = cell;
    let old = u32::from_be_bytes([*a, *b, *c, *d]);
    let new = match onto {
        Connection::Channel(Vc { vpi, vci }) => u32::from(vpi) << 20 | u32::from(vci) << 4 | old & 0xf,
        Connection::Path(vpi) => u32::from(vpi) << 20 | old & 0x000f_ffff,
    };
    [*a, *b, *c, *d] = new.to_be_bytes();
    *check = hec(new.to_be_bytes());
}

/// Returns the cell, as received, behind the Ethernet header that stands in for none: to whoever is at the end of the link.
pub fn stand_in(cell: &[u8; CELL_LEN]) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    let [high, low] = EtherType::CELL.0.to_be_bytes();
    frame[..6].copy_from_slice(&Mac::BROADCAST.0);
    frame[6..12].copy_from_slice(&FAR.0);
    frame[12..STAND_IN].copy_from_slice(&[high, low]);
    frame[STAND_IN..].copy_from_slice(cell);
    frame
}

/// Returns the cell behind a stand-in, writable; `None` for other frames.
pub fn cell_of_mut(frame: &mut [u8]) -> Option<&mut [u8; CELL_LEN]> {
    cell_of(frame)?;
    frame.last_chunk_mut()
}

/// Returns the cell behind a stand-in; `None` for other frames.
pub fn cell_of(frame: &[u8]) -> Option<&[u8; CELL_LEN]> {
    content_of(frame)?.try_into().ok()
}

/// True for a frame with the stand-in of cells, whatever the length of its content.
pub fn claims_cell(frame: &[u8]) -> bool {
    content_of(frame).is_some()
}

/// Returns what is behind a stand-in of cells; `None` for other frames.
fn content_of(frame: &[u8]) -> Option<&[u8]> {
    let (header, content) = frame.split_first_chunk::<STAND_IN>()?;
    (header[12..] == EtherType::CELL.0.to_be_bytes()).then_some(content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The division of I.432.1, bit by bit.
    fn hec_by_division(header: [u8; 4]) -> u8 {
        let mut rest = 0_u8;
        for bit in header.iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)) {
            let carry = rest >> 7 ^ bit;
            rest = rest << 1 ^ if carry == 1 { 0b0000_0111 } else { 0 };
        }
        rest ^ 0b0101_0101
    }

    #[test]
    fn idle_and_unassigned_cells_have_the_check_of_the_recommendation() {
        // I.432.1, table 3: idle cell. I.361, table 1: unassigned cell, whose check follows from its header.
        assert_eq!(hec([0, 0, 0, 1]), 0x52);
        assert_eq!(hec([0, 0, 0, 0]), 0x55);
    }

    #[test]
    fn fields_are_where_wireshark_finds_them() {
        // 8/35, last cell of a PDU; 0x0080_0232 begins a cell of most DSL lines.
        let mut bytes = [0x77; CELL_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&[0x00, 0x80, 0x02, 0x32, hec_by_division([0, 0x80, 2, 0x32])]);
        assert_eq!(header(Vc { vpi: 8, vci: 35 }, Last::Yes), bytes[..HEADER_LEN]);
        let cell = Cell::of(&bytes).unwrap();
        assert_eq!(cell.vc(), Vc { vpi: 8, vci: 35 });
        assert_eq!(cell.payload_type(), PayloadType::User(Last::Yes));
        assert_eq!(cell.payload(), &[0x77; PAYLOAD_LEN]);
    }

    #[test]
    fn payload_types_are_those_of_the_recommendation() {
        let of = |pti: u8| {
            let mut bytes = [0; CELL_LEN];
            bytes[3] = pti << 1;
            bytes[4] = hec([0, 0, 0, pti << 1]);
            Cell::of(&bytes).unwrap().payload_type()
        };
        assert_eq!([0, 1, 2, 3].map(of), [Last::No, Last::Yes, Last::No, Last::Yes].map(PayloadType::User));
        assert_eq!([4, 5].map(of), [PayloadType::Oam; 2]);
        assert_eq!([6, 7].map(of), [PayloadType::Management; 2]);
    }

    #[test]
    fn channels_are_written_as_path_and_channel() {
        assert_eq!("8/35".parse(), Ok(Vc { vpi: 8, vci: 35 }));
        assert_eq!(Vc { vpi: 255, vci: 65_535 }.to_string(), "255/65535");
        for text in ["", "8", "8/", "/35", "256/1", "1/65536", "+8/35", "8/35/1", "8.35", "a/b"] {
            assert_eq!(text.parse::<Vc>(), Err(NoVc), "{text}");
        }
    }

    #[test]
    fn connections_are_written_as_channels_or_paths() {
        let channel = Connection::Channel(Vc { vpi: 8, vci: 35 });
        assert_eq!("8/35".parse(), Ok(channel));
        assert_eq!("255".parse(), Ok(Connection::Path(255)));
        assert_eq!([channel, Connection::Path(0)].map(|one| one.to_string()), ["8/35", "0"]);
        for text in ["", "256", "+8", "-1", "8/", "8/35/1", "8 35"] {
            assert_eq!(text.parse::<Connection>(), Err(NoVc), "{text}");
        }
    }

    #[test]
    fn a_cell_comes_back_from_behind_its_stand_in() {
        let cell: [u8; CELL_LEN] = std::array::from_fn(|place| place as u8);
        let frame = stand_in(&cell);
        assert_eq!(cell_of(&frame), Some(&cell));
        assert_eq!(cell_of(&frame[..FRAME_LEN - 1]), None);
        assert_eq!(cell_of(&[&frame[..], &[0]].concat()), None);
        assert_eq!(cell_of(&[0; FRAME_LEN]), None);
    }

    proptest! {
        #[test]
        fn the_check_is_the_remainder_of_the_division(header: [u8; 4]) {
            prop_assert_eq!(hec(header), hec_by_division(header));
        }

        /// Hamming distance 4: any one, two or three wrong bits of a header are seen.
        #[test]
        fn up_to_three_wrong_bits_are_seen(vpi: u8, vci: u16, bits in prop::collection::hash_set(0..40_usize, 1..4)) {
            let mut bytes = [0; CELL_LEN];
            bytes[..HEADER_LEN].copy_from_slice(&header(Vc { vpi, vci }, Last::No));
            prop_assert_eq!(Cell::of(&bytes).unwrap().vc(), Vc { vpi, vci });
            for bit in bits {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assert_eq!(Cell::of(&bytes).err(), Some(HecError));
        }

        /// The header of a switched cell, by fields that are taken apart and put together by hand.
        #[test]
        fn a_switched_cell_has_new_identifiers_and_keeps_the_rest(
            header: [u8; 4],
            payload: u8,
            vpi: u8,
            vci: u16,
            is_path: bool,
        ) {
            let mut bytes = [payload; CELL_LEN];
            bytes[..4].copy_from_slice(&header);
            bytes[4] = hec(header);
            let old = Cell::of(&bytes).unwrap().vc();
            let mut new = bytes;
            switch(&mut new, if is_path { Connection::Path(vpi) } else { Connection::Channel(Vc { vpi, vci }) });
            let vci = if is_path { old.vci } else { vci };
            let bits = format!("0000{vpi:08b}{vci:016b}{:04b}", header[3] & 0xf);
            let expected: [u8; 4] =
                std::array::from_fn(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).unwrap());
            prop_assert_eq!(&new[..4], &expected);
            prop_assert_eq!(new[4], hec_by_division(expected));
            prop_assert_eq!(&new[5..], &bytes[5..]);
        }

        #[test]
        fn text_of_a_channel_reads_as_that_channel(vpi: u8, vci: u16) {
            prop_assert_eq!(Vc { vpi, vci }.to_string().parse(), Ok(Vc { vpi, vci }));
        }
    }
}
