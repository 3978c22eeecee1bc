//! Format of an ESP packet (RFC 4303, section 2) and of the outer header in front of it.
//!
//! `outer IP | UDP? | SPI, number | IV | inner packet | TFC padding | padding 1, 2, 3.. | pad length | next header | ICV`, where *text* is
//! all from the inner packet to the next header.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::esp::{HEADER_LEN, Suite, TRAILER_LEN, Tfc};
use wire::header::Protocol;
use wire::{ipv4, ipv6};

/// Hops that an outer packet may make.
pub const HOPS: u8 = 64;

/// Lengths of an ESP packet, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Padding, without that for traffic flow confidentiality.
    pub pad: u8,
    /// Padding for traffic flow confidentiality (RFC 4303, section 2.7).
    pub tfc: u16,
    /// Bytes that are encrypted: inner packet, all padding, trailer.
    pub text: u16,
    /// ESP header, IV, text and ICV.
    pub total: u16,
}

/// Lays out a packet that carries `inner` bytes. TFC padding makes them no more than `most`, the tunnel's MTU. `None` if the whole
/// does not fit the length field of an IP header.
pub fn layout(inner: usize, suite: &Suite, tfc: Tfc, most: u16) -> Option<Layout> {
    let inner = u16::try_from(inner).ok()?;
    let aim = match tfc {
        Tfc::Off => inner,
        Tfc::Multiple(of) => {
            u16::try_from(u32::from(inner).next_multiple_of(u32::from(of.max(1)))).unwrap_or(most).min(most)
        }
        Tfc::Mtu => most,
    };
    let tfc = aim.saturating_sub(inner);
    let unpadded = inner.checked_add(tfc)?.checked_add(TRAILER_LEN as u16)?;
    // A power of two.
    let mask = u16::from(suite.align) - 1;
    let text = unpadded.checked_add(mask)? & !mask;
    let around = HEADER_LEN as u16 + u16::from(suite.iv) + u16::from(suite.icv);
    let total = text.checked_add(around)?;
    // Room for the largest header in front, with UDP.
    total.checked_add((ipv4::MIN_HEADER_LEN + wire::udp::HEADER_LEN) as u16)?;
    Some(Layout { pad: (text - unpadded) as u8, tfc, text, total })
}

/// Writes all padding and the trailer behind the inner packet, at the end of `text`, which is `layout.text` bytes long.
pub fn trailer(text: &mut [u8], layout: &Layout, next: Protocol) {
    let (pad, tfc) = (usize::from(layout.pad), usize::from(layout.tfc));
    let Some(inner) = text.len().checked_sub(tfc + pad + TRAILER_LEN) else { return };
    let (tfc, rest) = text[inner..].split_at_mut(tfc);
    if !tfc.is_empty() {
        // Not what the slot held before: that belongs to others.
        tfc.fill(0);
    }
    let (padding, trailer) = rest.split_at_mut(pad);
    for (byte, value) in padding.iter_mut().zip(1..) {
        *byte = value;
    }
    trailer.copy_from_slice(&[layout.pad, next.0]);
}

/// End of a text, as [`untrail`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes before the padding: the inner packet, and padding for traffic flow confidentiality that only its own length tells from it.
    pub before: usize,
    /// Protocol of the inner packet.
    pub next: Protocol,
}

/// Padding longer than the text, or other than 1, 2, 3.. (RFC 4303, section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("padding that cannot be")]
pub struct BadTrailer;

/// Takes the trailer off a text that has been opened.
pub fn untrail(text: &[u8]) -> Result<Trailer, BadTrailer> {
    let (rest, &[pad, next]) = text.split_last_chunk().ok_or(BadTrailer)?;
    let before = rest.len().checked_sub(usize::from(pad)).ok_or(BadTrailer)?;
    let right = rest[before..].iter().zip(1..).all(|(byte, value): (_, u8)| *byte == value);
    if right { Ok(Trailer { before, next: Protocol(next) }) } else { Err(BadTrailer) }
}

/// The outer packet's "don't fragment". IPv6 has no such bit: there routers never fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DontFragment {
    /// Routers may fragment.
    Clear,
    /// Routers may not.
    Set,
}

impl DontFragment {
    /// Flags and offset of an IPv4 header: of a packet that is no fragment.
    pub fn flags_and_offset(self) -> u16 {
        match self {
            DontFragment::Clear => 0,
            DontFragment::Set => 0x4000,
        }
    }
}

/// Fields of an outer header, for addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer<A> {
    /// This end.
    pub local: A,
    /// The peer's end.
    pub remote: A,
    /// Code point and congestion notification.
    pub ds_field: u8,
    /// Don't fragment; of no effect in IPv6.
    pub df: DontFragment,
    /// Identification; of no effect in IPv6.
    pub id: u16,
    /// ESP, or UDP in front of it.
    pub protocol: Protocol,
    /// Bytes behind this header.
    pub payload_len: u16,
}

/// Writes an IPv4 header, with its checksum. A payload too long for its length field is cut down there; [`layout`] makes none.
pub fn outer_v4(into: &mut [u8; ipv4::MIN_HEADER_LEN], of: &Outer<Ipv4Addr>) {
    into.fill(0);
    if let Some(mut header) = ipv4::HeaderMut::of(into) {
        header.set_header_len(ipv4::MIN_HEADER_LEN);
        header.set_ds_field(of.ds_field);
        header.set_total_len(of.payload_len.saturating_add(ipv4::MIN_HEADER_LEN as u16));
        header.set_id(of.id);
        header.set_flags_and_offset(of.df.flags_and_offset());
        header.set_ttl(HOPS);
        header.set_protocol(of.protocol);
        header.set_src(of.local);
        header.set_dst(of.remote);
    }
    ipv4::fill_checksum(into);
}

/// Writes an IPv6 header, without a flow label.
pub fn outer_v6(into: &mut [u8; ipv6::HEADER_LEN], of: &Outer<Ipv6Addr>) {
    if let Some(mut header) = ipv6::HeaderMut::of(into) {
        header.set_first_word(of.ds_field, 0);
        header.set_payload_len(of.payload_len);
        header.set_next_header(of.protocol);
        header.set_hop_limit(HOPS);
        header.set_src(of.local);
        header.set_dst(of.remote);
    }
}

#[cfg(test)]
mod tests;
