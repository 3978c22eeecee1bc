//! Fragmentation of IPv4 packets that are too large for the link that they leave by (RFC 791, section 3.2).
//!
//! [`fragment`] makes the frame itself the first fragment and takes slots for the others. It promises: either all fragments, or
//! the frame as it was and every slot back. Fragments have the link-layer header, and of the options those that are to
//! be copied; a packet that is itself a fragment is fragmented like any other. It refuses what must not be fragmented.

use arrayvec::ArrayVec;
use tally::{Region, Tally};
use wire::checksum;
use wire::ipv4::{self, HeaderMut, MIN_HEADER_LEN};
use wire::{Frame, Meta, Part, Pool};

use crate::verdict::Reason;

pub(crate) mod own;

/// Further fragments of one packet: a 16 KiB slot fragmented for the smallest link that carries IPv6, and then some.
pub(crate) const MOST_PARTS: usize = 64;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
/// The bit of an option's type that says whether it goes into every fragment (RFC 791, section 3.1).
const COPIED: u8 = 0x80;
/// The most that header and options take.
pub(crate) const MAX_HEADER_LEN: usize = 60;

/// Fragments the IPv4 packet whose header lies at `network` in `frame` into fragments of at most `mtu` bytes, link-layer header
/// not counted. `frame` becomes the first fragment; the further ones, in order, are added to `fragments`. Returns how many
/// these are: 0 where the packet is small enough as it is. Their metadata are the frame's, made true where they differ.
///
/// # Errors
/// The frame, `fragments` and `pool` are as they were. [`Reason::PacketTooBig`]: the packet says "don't fragment", or
/// `mtu` has no room for header and 8 bytes. [`Reason::SlotTooSmall`]: slots are too few or too small, or `fragments` is.
/// [`Reason::FragmentOversize`]: the offset of a fragment would not fit its field. Reasons of a malformed header, which
/// no packet has that was parsed.
pub fn fragment<T: Tally, const N: usize>(
    frame: &mut Frame,
    network: usize,
    mtu: u16,
    pool: &mut Pool,
    fragments: &mut ArrayVec<Frame, N>,
    tally: &mut T,
) -> Result<usize, Reason> {
    let Some(plan) = Plan::of(frame, network, mtu)? else { return Ok(0) };
    let made =
        all_or_none(pool, fragments, |pool, fragments| plan.make_fragments(frame, pool, fragments, tally))?;
    plan.shorten(frame, tally);
    Ok(made)
}

/// Has `make` add further fragments, and returns how many these are; if it fails, those that it has added are given back.
fn all_or_none<const N: usize>(
    pool: &mut Pool,
    fragments: &mut ArrayVec<Frame, N>,
    make: impl FnOnce(&mut Pool, &mut ArrayVec<Frame, N>) -> Result<(), Reason>,
) -> Result<usize, Reason> {
    let before = fragments.len();
    let made = make(pool, fragments);
    if made.is_err() {
        for fragment in fragments.drain(before..) {
            pool.put(fragment);
        }
    }
    made.map(|()| fragments.len() - before)
}

/// Adds a further fragment: `write` appends its bytes to an empty slot, and says where its payload begins, or `None` if the slot is too
/// small. Its other metadata are those of the packet.
fn add<T: Tally, const N: usize>(
    meta: &Meta,
    pool: &mut Pool,
    fragments: &mut ArrayVec<Frame, N>,
    tally: &mut T,
    write: impl FnOnce(&mut Frame) -> Option<usize>,
) -> Result<(), Reason> {
    let mut fragment = pool.take().ok_or(Reason::SlotTooSmall)?;
    let Some(transport) = write(&mut fragment).filter(|_| !fragments.is_full()) else {
        pool.put(fragment);
        return Err(Reason::SlotTooSmall);
    };
    fragment.meta = meta.clone();
    fragment.meta.part = Part::Later;
    fragment.meta.transport = transport as u16;
    fragment.meta.end = fragment.len() as u16;
    // Of the body a load and a store of each word.
    tally.instructions(fragment.len() as u32 / 2);
    tally.write(Region::Frame, 0, fragment.len() as u32);
    fragments.push(fragment);
    Ok(())
}

/// Fragmentation of one IPv4 packet: lengths, offsets and the header of further fragments.
struct Plan {
    network: usize,
    /// Bytes of the header of the first fragment.
    header_len: usize,
    /// Bytes of the packet.
    total_len: usize,
    /// Bytes of payload in the first fragment: a multiple of 8.
    first: usize,
    /// Flags and offset of the packet.
    field: u16,
    /// The header of further fragments, fields that differ not yet set.
    header: ArrayVec<u8, MAX_HEADER_LEN>,
    mtu: usize,
}

impl Plan {
    /// `None` where there is nothing to fragment.
    fn of(frame: &Frame, network: usize, mtu: u16) -> Result<Option<Plan>, Reason> {
        let packet = frame.bytes().get(network..).ok_or(Reason::Ipv4Truncated)?;
        let parsed = ipv4::parse_prefix(packet).map_err(|malformed| match malformed {
            ipv4::Malformed::TooShort => Reason::Ipv4Truncated,
            ipv4::Malformed::Version => Reason::Ipv4Version,
            ipv4::Malformed::HeaderLength | ipv4::Malformed::HeaderPastEnd => Reason::Ipv4HeaderLength,
            _ => Reason::Ipv4TotalLength,
        })?;
        let (header_len, field) = (parsed.header.header_len(), parsed.header.flags_and_offset());
        let total_len = usize::from(parsed.header.total_len());
        let mtu = usize::from(mtu);
        if total_len > packet.len() {
            return Err(Reason::Ipv4TotalLength);
        }
        if total_len <= mtu {
            return Ok(None);
        }
        if field & DONT_FRAGMENT != 0 || mtu < header_len + 8 {
            return Err(Reason::PacketTooBig);
        }
        let end = usize::from(field & 0x1fff) * 8 + total_len - header_len;
        if end > usize::from(u16::MAX) {
            return Err(Reason::FragmentOversize);
        }
        let mut header = ArrayVec::new();
        // The room is that of the longest header, and copied options are not longer than all options.
        let fixed = packet.get(..MIN_HEADER_LEN).unwrap_or(&[]);
        let _ = header.try_extend_from_slice(fixed);
        // What a broken option is followed by cannot be told apart; it stays with the first fragment.
        for option in parsed.options().map_while(Result::ok).filter(|option| option.kind & COPIED != 0) {
            let whole = parsed.options.get(option.at..option.at + 2 + option.data.len()).unwrap_or(&[]);
            let _ = header.try_extend_from_slice(whole);
        }
        while header.len() % 4 != 0 {
            // End of options.
            let _ = header.try_push(0);
        }
        let first = (mtu - header_len) & !7;
        Ok(Some(Plan { network, header_len, total_len, first, field, header, mtu }))
    }

    fn make_fragments<T: Tally, const N: usize>(
        &self,
        frame: &Frame,
        pool: &mut Pool,
        fragments: &mut ArrayVec<Frame, N>,
        tally: &mut T,
    ) -> Result<(), Reason> {
        let payload = self.network + self.header_len;
        let end = self.network + self.total_len;
        let room = self.mtu - self.header.len();
        let mut at = payload + self.first;
        while at < end {
            let len = if end - at <= room { end - at } else { room & !7 };
            let last = at + len == end;
            let more = if last { self.field & MORE } else { MORE };
            // Below 2^13: `of` has seen to it.
            let field = more | ((self.field & 0x1fff) + ((at - payload) / 8) as u16);
            let link = frame.bytes().get(..self.network).unwrap_or(&[]);
            let body = frame.bytes().get(at..at + len).unwrap_or(&[]);
            add(&frame.meta, pool, fragments, tally, |fragment| self.write(fragment, link, field, body))?;
            // Ten words of checksum and six of fields.
            tally.instructions(40);
            tally.read(Region::Frame, at, len as u32);
            at += len;
        }
        Ok(())
    }

    /// Writes a further fragment, and returns the start of its payload; `None` if it does not fit the slot.
    fn write(&self, fragment: &mut Frame, link: &[u8], field: u16, body: &[u8]) -> Option<usize> {
        let total_len = self.header.len() + body.len();
        let bytes = fragment.push_back(link.len() + total_len)?;
        let (front, packet) = bytes.split_at_mut(link.len());
        let (head, rest) = packet.split_at_mut(self.header.len());
        front.copy_from_slice(link);
        head.copy_from_slice(&self.header);
        rest.copy_from_slice(body);
        if let Some(mut header) = HeaderMut::of(head) {
            header.set_header_len(self.header.len());
            header.set_total_len(total_len as u16);
            header.set_flags_and_offset(field);
        }
        ipv4::fill_checksum(head);
        Some(link.len() + self.header.len())
    }

    /// Makes the frame the first fragment.
    fn shorten<T: Tally>(&self, frame: &mut Frame, tally: &mut T) {
        let total_len = (self.header_len + self.first) as u16;
        frame.truncate(self.network + usize::from(total_len));
        let field = self.field | MORE;
        if let Some(mut header) = frame.bytes_mut().get_mut(self.network..).and_then(HeaderMut::of) {
            let delta =
                checksum::Delta::NONE.change16(self.total_len as u16, total_len).change16(self.field, field);
            header.set_total_len(total_len);
            header.set_flags_and_offset(field);
            header.adjust_checksum(delta);
        }
        frame.meta.end = frame.len() as u16;
        if frame.meta.part == Part::Whole {
            frame.meta.part = Part::First;
        }
        tally.instructions(16);
        tally.write(Region::Frame, self.network, MIN_HEADER_LEN as u32);
    }
}

#[cfg(test)]
mod tests;
