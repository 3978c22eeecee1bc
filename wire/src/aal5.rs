//! AAL5 (ITU-T I.363.5): PDUs in cells of one virtual channel, segmented and reassembled.
//!
//! A PDU is its payload, padding up to the end of a cell, and a trailer of eight bytes: user-to-user byte, common part indicator,
//! length of the payload, and a CRC-32 of all before. The last cell of a PDU says so in its header; nothing numbers the cells. A lost
//! cell shows by the length, or by the CRC; a lost last cell joins two PDUs, and both are lost.

use crc::{CRC_32_BZIP2, Crc, Table};

use crate::atm::{self, CELL_LEN, HEADER_LEN, Last, PAYLOAD_LEN, Vc};

/// Bytes of the trailer.
pub const TRAILER_LEN: usize = 8;

/// Most bytes of a PDU's payload.
pub const MOST_PAYLOAD: usize = 65_535;

/// CRC-32 of AAL5 (I.363.5, section 9.2.1.2): the polynomial of Ethernet with the highest bit of each byte first. The catalogue of CRCs
/// files it under bzip2's name.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_BZIP2);

/// Returns the CRC-32 of AAL5 of the parts of a PDU in front of it, end to end.
fn crc<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = CRC.digest();
    parts.into_iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// Number of cells of a PDU whose payload has `bytes` bytes.
pub const fn cells(bytes: usize) -> usize {
    (bytes + TRAILER_LEN).div_ceil(PAYLOAD_LEN)
}

/// Segmentation of one PDU: an iterator over its cells.
#[derive(Clone, Debug)]
pub struct Segmentation<'a> {
    vc: Vc,
    head: &'a [u8],
    packet: &'a [u8],
    trailer: [u8; TRAILER_LEN],
    /// Cells left.
    left: usize,
}

impl<'a> Segmentation<'a> {
    /// Begins a PDU on a virtual channel whose payload is `head` and then `packet`. `None` where both together are longer than
    /// [`MOST_PAYLOAD`].
    pub fn new(vc: Vc, head: &'a [u8], packet: &'a [u8]) -> Option<Segmentation<'a>> {
        let bytes = head.len() + packet.len();
        let length = u16::try_from(bytes).ok()?.to_be_bytes();
        let left = cells(bytes);
        let padding = left * PAYLOAD_LEN - bytes - TRAILER_LEN;
        let [a, b] = length;
        let front = [0, 0, a, b];
        let crc = crc([head, packet, [0; PAYLOAD_LEN].get(..padding)?, &front]);
        let mut trailer = [0; TRAILER_LEN];
        trailer[..4].copy_from_slice(&front);
        trailer[4..].copy_from_slice(&crc.to_be_bytes());
        Some(Segmentation { vc, head, packet, trailer, left })
    }
}

impl Iterator for Segmentation<'_> {
    type Item = [u8; CELL_LEN];

    fn next(&mut self) -> Option<[u8; CELL_LEN]> {
        self.left = self.left.checked_sub(1)?;
        let last = if self.left == 0 { Last::Yes } else { Last::No };
        let mut cell = [0; CELL_LEN];
        let (header, mut room) = cell.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&atm::header(self.vc, last));
        for part in [&mut self.head, &mut self.packet] {
            let (now, later) = part.split_at(part.len().min(room.len()));
            let (place, behind) = room.split_at_mut(now.len());
            place.copy_from_slice(now);
            (*part, room) = (later, behind);
        }
        if last == Last::Yes {
            if let Some(place) = room.last_chunk_mut() {
                *place = self.trailer;
            }
        }
        Some(cell)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Segmentation<'_> {}

/// Reassembly of the PDUs of one virtual channel. Memory for one PDU is allocated at the start; nothing grows later, so that a PDU that
/// never ends costs no more than any other, and needs no timer.
#[derive(Debug)]
pub struct Reassembly {
    buffer: Box<[u8]>,
    /// Bytes of the present PDU that are there; more than the buffer has while one that is too long passes.
    filled: usize,
    most: usize,
}

/// Failure of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// More cells than the longest payload has: of each cell from the first in excess to the PDU's last.
    #[error("the PDU is longer than the channel's longest")]
    TooLong,
    /// The length does not fit the number of cells: cells were lost, or came in from another PDU.
    #[error("the length of the PDU does not fit its cells")]
    Length,
    /// The CRC is wrong: bits or whole cells are not those that were sent.
    #[error("the CRC of the PDU is wrong")]
    Crc,
    /// The length is 0: the sender gave the PDU up.
    #[error("the sender aborted the PDU")]
    Aborted,
}

impl Reassembly {
    /// Allocates memory for PDUs with a payload of up to `most` bytes ([`MOST_PAYLOAD`] at most).
    pub fn new(most: usize) -> Reassembly {
        let most = most.min(MOST_PAYLOAD);
        Reassembly { buffer: vec![0; cells(most) * PAYLOAD_LEN].into(), filled: 0, most }
    }

    /// Takes the payload of the next cell. Returns the payload of the PDU that the cell ends; `None` while more cells follow.
    ///
    /// # Errors
    /// The PDU is lost: the cell is its last, or one that the PDU must not have.
    pub fn push(&mut self, payload: &[u8; PAYLOAD_LEN], last: Last) -> Result<Option<&[u8]>, Fault> {
        let end = self.filled + PAYLOAD_LEN;
        let place = self.buffer.get_mut(self.filled..end);
        self.filled = match (&place, last) {
            (_, Last::Yes) => 0,
            (Some(_), Last::No) => end,
            (None, Last::No) => self.filled,
        };
        place.ok_or(Fault::TooLong)?.copy_from_slice(payload);
        match last {
            Last::No => Ok(None),
            Last::Yes => payload_of(self.buffer.get(..end).unwrap_or_default(), self.most).map(Some),
        }
    }

    /// Bytes of the PDU under way: a multiple of 48.
    pub fn pending(&self) -> usize {
        self.filled
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.buffer.len()
    }
}

/// The payload of a whole PDU of at most `most` bytes, once the trailer has been verified. The user-to-user byte and the common part
/// indicator mean nothing here, and may be anything, as in Linux.
fn payload_of(pdu: &[u8], most: usize) -> Result<&[u8], Fault> {
    let (front, trailer) = pdu.split_last_chunk::<TRAILER_LEN>().ok_or(Fault::Length)?;
    let [_, _, a, b, sum @ ..] = *trailer;
    let length = usize::from(u16::from_be_bytes([a, b]));
    // The length first: it tells a lost cell from a wrong bit.
    if length != 0 && cells(length) * PAYLOAD_LEN != pdu.len() {
        return Err(Fault::Length);
    }
    if crc([pdu.get(..pdu.len() - sum.len()).unwrap_or_default()]) != u32::from_be_bytes(sum) {
        return Err(Fault::Crc);
    }
    match length {
        0 => Err(Fault::Aborted),
        length if length > most => Err(Fault::TooLong),
        length => front.get(..length).ok_or(Fault::Length),
    }
}

#[cfg(test)]
mod tests;
