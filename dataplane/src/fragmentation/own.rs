//! Fragmentation of IPv6 packets that the gateway itself sends (RFC 8200, section 4.5): a source may fragment, a router must not.

use arrayvec::ArrayVec;
use tally::{Region, Tally};
use wire::esp::Front;
use wire::header::Protocol;
use wire::ipv6::{self, FRAGMENT_HEADER_LEN, HEADER_LEN};
use wire::{Frame, Part, Pool};

use super::{add, all_or_none};
use crate::verdict::Reason;

const MORE: u16 = 1;

/// Fragments the frame's IPv6 packet into fragments of at most `mtu` bytes, under this identification. What comes before the payload at
/// `meta.transport` is in each fragment: the header, and extension headers that stay in front. `frame` becomes the first fragment;
/// the further ones, in order, are added to `fragments`. Returns how many these are: 0 where the packet is small enough as it is.
///
/// # Errors
/// The frame, `fragments` and `pool` are as they were. [`Reason::SlotTooSmall`]: slots are too few or too small, or `fragments` is.
/// [`Reason::PacketTooBig`]: `mtu` has no room for headers and 8 bytes. Reasons of a malformed header.
pub(crate) fn fragment_own<T: Tally, const N: usize>(
    frame: &mut Frame,
    mtu: u16,
    identification: u32,
    pool: &mut Pool,
    fragments: &mut ArrayVec<Frame, N>,
    tally: &mut T,
) -> Result<usize, Reason> {
    let network = usize::from(frame.meta.network);
    let packet = frame.bytes().get(network..).ok_or(Reason::Ipv6Truncated)?;
    let header = ipv6::Header::of(packet).ok_or(Reason::Ipv6Truncated)?;
    if header.version() != 6 {
        return Err(Reason::Ipv6Version);
    }
    let end = HEADER_LEN + usize::from(header.payload_len());
    if end > packet.len() {
        return Err(Reason::Ipv6PayloadLength);
    }
    if end <= usize::from(mtu) {
        return Ok(0);
    }
    let payload = usize::from(frame.meta.transport);
    let len = payload.checked_sub(network).ok_or(Reason::Ipv6HeaderChain)?;
    let front = Front::ending_at(packet, len as u16).ok_or(Reason::Ipv6HeaderChain)?;
    let protocol = front.protocol(packet).ok_or(Reason::Ipv6HeaderChain)?;
    let room = (network + usize::from(mtu)).saturating_sub(payload + FRAGMENT_HEADER_LEN) & !7;
    if room == 0 {
        return Err(Reason::PacketTooBig);
    }
    let own = Own { network, front, end: network + end, room, protocol, identification };
    let made =
        all_or_none(pool, fragments, |pool, fragments| own.make_fragments(frame, pool, fragments, tally))?;
    own.shorten(frame, tally);
    Ok(made)
}

/// Fragmentation of one packet.
struct Own {
    network: usize,
    /// Headers that are in each fragment.
    front: Front,
    /// End of the packet in the frame.
    end: usize,
    /// Bytes of payload in each fragment but the last: a multiple of 8.
    room: usize,
    /// Protocol of the payload.
    protocol: Protocol,
    identification: u32,
}

impl Own {
    fn make_fragments<T: Tally, const N: usize>(
        &self,
        frame: &Frame,
        pool: &mut Pool,
        fragments: &mut ArrayVec<Frame, N>,
        tally: &mut T,
    ) -> Result<(), Reason> {
        let payload = self.payload();
        let mut at = payload + self.room;
        while at < self.end {
            let len = self.room.min(self.end - at);
            add(&frame.meta, pool, fragments, tally, |fragment| {
                let front = payload + FRAGMENT_HEADER_LEN;
                let bytes = fragment.push_back(front + len)?;
                bytes[..payload].copy_from_slice(&frame.bytes()[..payload]);
                bytes[front..].copy_from_slice(&frame.bytes()[at..at + len]);
                self.head(bytes, at - payload, if at + len == self.end { 0 } else { MORE });
                Some(front)
            })?;
            // Ten words of headers copied, eight fields.
            tally.instructions(34);
            tally.read(Region::Frame, at, len as u32);
            at += len;
        }
        Ok(())
    }

    /// Makes the frame the first fragment. With the fragment header it is no longer than the MTU, and so than the packet was: bytes
    /// move to where others were.
    fn shorten<T: Tally>(&self, frame: &mut Frame, tally: &mut T) {
        let payload = self.payload();
        let end = payload + self.room;
        frame.truncate(end + FRAGMENT_HEADER_LEN);
        let bytes = frame.bytes_mut();
        bytes.copy_within(payload..end, payload + FRAGMENT_HEADER_LEN);
        self.head(bytes, 0, MORE);
        frame.meta.transport += FRAGMENT_HEADER_LEN as u16;
        frame.meta.end = frame.len() as u16;
        frame.meta.part = Part::First;
        tally.instructions(16 + self.room as u32 / 2);
        tally.write(Region::Frame, self.network, (frame.len() - self.network) as u32);
    }

    /// Place of the payload in the frame.
    fn payload(&self) -> usize {
        self.network + usize::from(self.front.len)
    }

    /// Writes the fields of the headers that differ, and the fragment header.
    fn head(&self, bytes: &mut [u8], offset: usize, more: u16) {
        self.front.lead_to(&mut bytes[self.network..], Protocol::FRAGMENT);
        let header = &mut bytes[self.payload()..][..FRAGMENT_HEADER_LEN];
        header[..2].copy_from_slice(&[self.protocol.0, 0]);
        // A multiple of 8, in units of 8, above three bits.
        header[2..4].copy_from_slice(&(offset as u16 | more).to_be_bytes());
        header[4..].copy_from_slice(&self.identification.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
