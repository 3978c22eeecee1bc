//! Fragmentation of IPv6 packets that the gateway itself sends (RFC 8200, section 4.5): a source may fragment, a router must not.

use arrayvec::ArrayVec;
use tally::{Region, Tally};
use wire::header::Protocol;
use wire::ipv6::{self, FRAGMENT_HEADER_LEN, HEADER_LEN, HeaderMut};
use wire::{Frame, Part, Pool};

use crate::verdict::Reason;

const MORE: u16 = 1;

/// Fragments the IPv6 packet whose header, without extension headers, lies at `network` in `frame` into fragments of at most `mtu` bytes, under
/// this identification. `frame` becomes the first fragment; the further ones, in order, are added to `fragments`. Returns how many
/// these are: 0 where the packet is small enough as it is.
///
/// # Errors
/// The frame, `fragments` and `pool` are as they were. [`Reason::SlotTooSmall`]: slots are too few or too small, or `fragments` is.
/// [`Reason::PacketTooBig`]: `mtu` has no room for headers and 8 bytes. Reasons of a malformed header.
pub(crate) fn fragment_own<T: Tally, const N: usize>(
    frame: &mut Frame,
    network: usize,
    mtu: u16,
    identification: u32,
    pool: &mut Pool,
    fragments: &mut ArrayVec<Frame, N>,
    tally: &mut T,
) -> Result<usize, Reason> {
    let packet = frame.bytes().get(network..).ok_or(Reason::Ipv6Truncated)?;
    let header = ipv6::Header::of(packet).ok_or(Reason::Ipv6Truncated)?;
    let (end, protocol) = (HEADER_LEN + usize::from(header.payload_len()), header.next_header());
    if end > packet.len() {
        return Err(Reason::Ipv6PayloadLength);
    }
    if end <= usize::from(mtu) {
        return Ok(0);
    }
    let room = usize::from(mtu).saturating_sub(HEADER_LEN + FRAGMENT_HEADER_LEN) & !7;
    if room == 0 {
        return Err(Reason::PacketTooBig);
    }
    let own = Own { network, end: network + end, room, protocol, identification };
    let before = fragments.len();
    let made = own.make_fragments(frame, pool, fragments, tally);
    if made.is_err() {
        for fragment in fragments.drain(before..) {
            pool.put(fragment);
        }
    }
    made?;
    own.shorten(frame, tally);
    Ok(fragments.len() - before)
}

/// Fragmentation of one packet.
struct Own {
    network: usize,
    /// End of the packet in the frame.
    end: usize,
    /// Bytes of payload in each fragment but the last: a multiple of 8.
    room: usize,
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
        let payload = self.network + HEADER_LEN;
        let mut at = payload + self.room;
        while at < self.end {
            let len = self.room.min(self.end - at);
            let mut fragment = pool.take().ok_or(Reason::SlotTooSmall)?;
            let front = payload + FRAGMENT_HEADER_LEN;
            let Some(bytes) = fragment.push_back(front + len) else {
                pool.put(fragment);
                return Err(Reason::SlotTooSmall);
            };
            bytes[..payload].copy_from_slice(&frame.bytes()[..payload]);
            bytes[front..].copy_from_slice(&frame.bytes()[at..at + len]);
            self.head(bytes, at - payload, if at + len == self.end { 0 } else { MORE });
            fragment.meta = frame.meta.clone();
            fragment.meta.part = Part::Later;
            fragment.meta.transport = front as u16;
            fragment.meta.end = (front + len) as u16;
            // Headers: ten words copied, eight fields; body: load and store of each word.
            tally.instructions(34 + fragment.len() as u32 / 2);
            tally.read(Region::Frame, at, len as u32);
            tally.write(Region::Frame, 0, fragment.len() as u32);
            if let Err(full) = fragments.try_push(fragment) {
                pool.put(full.element());
                return Err(Reason::SlotTooSmall);
            }
            at += len;
        }
        Ok(())
    }

    /// Makes the frame the first fragment. With the fragment header it is no longer than the MTU, and so than the packet was: bytes
    /// move to where others were.
    fn shorten<T: Tally>(&self, frame: &mut Frame, tally: &mut T) {
        let payload = self.network + HEADER_LEN;
        let end = payload + self.room;
        frame.truncate(end + FRAGMENT_HEADER_LEN);
        let bytes = frame.bytes_mut();
        bytes.copy_within(payload..end, payload + FRAGMENT_HEADER_LEN);
        self.head(bytes, 0, MORE);
        frame.meta.transport += FRAGMENT_HEADER_LEN as u16;
        frame.meta.end = frame.len() as u16;
        frame.meta.part = Part::First;
        tally.instructions(16 + self.room as u32 / 2);
        tally.write(Region::Frame, self.network, (HEADER_LEN + FRAGMENT_HEADER_LEN + self.room) as u32);
    }

    /// Writes the fields of the fixed header that differ, and the fragment header.
    fn head(&self, bytes: &mut [u8], offset: usize, more: u16) {
        let payload_len = (bytes.len() - self.network - HEADER_LEN) as u16;
        let packet = &mut bytes[self.network..];
        if let Some(mut header) = HeaderMut::of(packet) {
            header.set_payload_len(payload_len);
            header.set_next_header(Protocol::FRAGMENT);
        }
        let header = &mut packet[HEADER_LEN..HEADER_LEN + FRAGMENT_HEADER_LEN];
        header[..2].copy_from_slice(&[self.protocol.0, 0]);
        // A multiple of 8, in units of 8, above three bits.
        header[2..4].copy_from_slice(&(offset as u16 | more).to_be_bytes());
        header[4..].copy_from_slice(&self.identification.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
