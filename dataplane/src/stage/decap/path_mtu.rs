//! MTU of the way to a tunnel's peer, as routers on it tell (RFC 1191, RFC 8201).
//!
//! Nothing of such a message is authentic but that its sender has seen a packet of the tunnel (RFC 4301, section 8.2): it must quote
//! one, SPI included. A floor and a term bound what a forged one can do.

use tally::{Op, Tally};
use wire::header::Protocol;
use wire::{Family, Frame, Part, icmpv4, icmpv6, ipv4, ipv6, udp};

use crate::flag;
use crate::stage::Cx;
use crate::stage::track::checksum_is_right;
use crate::tables::Address;

/// "Fragmentation needed and DF set", type and code.
const TOO_BIG_V4: u16 = 0x0304;
/// "Packet too big", type and code.
const TOO_BIG_V6: u16 = 0x0200;

/// Smallest MTU that is believed of a way across IPv4: every host takes in as much (RFC 1122, section 3.3.3).
const FLOOR_V4: u16 = 576;
/// That across IPv6.
const FLOOR_V6: u16 = ipv6::LEAST_MTU;

/// True for an ICMP error that tells an MTU.
#[inline(always)]
pub(super) fn is_told(frame: &Frame) -> bool {
    let kind = match frame.meta.family {
        Family::V4 => TOO_BIG_V4,
        _ => TOO_BIG_V6,
    };
    frame.meta.flags & flag::ERROR != 0 && frame.meta.dport == kind
}

/// Takes in the MTU that a message for `local`, an end of a tunnel, tells; `None` if the message is not about a tunnel.
#[cold]
#[inline(never)]
pub(super) fn learn<T: Tally>(frame: &Frame, local: Address, cx: &mut Cx<'_, T>) -> Option<()> {
    // As two headers' parse, and the tunnels' ends.
    cx.tally.instructions(70);
    cx.tally.execute(Op::Branch, 20);
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    let message = frame.bytes().get(range).filter(|_| frame.meta.part == Part::Whole)?;
    let quote = quoted(message.get(8..)?, local)?;
    let number = cx.shard.sas.quoted(&quote, local, cx.tables)?;
    if !checksum_is_right(frame, cx) {
        return None;
    }
    let told = match frame.meta.family {
        Family::V4 => icmpv4::Header::of(message)?.mtu().max(FLOOR_V4),
        _ => u16::try_from(icmpv6::Header::of(message)?.mtu()).unwrap_or(u16::MAX).max(FLOOR_V6),
    };
    let mtu = cx.tables.tunnels.list.get(usize::from(number))?.inner_mtu(told);
    cx.shard.sas.learn_path_mtu(number, mtu, frame.meta.received);
    Some(())
}

/// A packet of a tunnel, as an error quotes it.
pub(crate) struct Quote {
    /// Peer that it was for.
    pub(crate) remote: Address,
    /// UDP port that it left by; 0 without UDP.
    pub(crate) sport: u16,
    pub(crate) spi: u32,
}

/// Reads a quoted packet that `local` has sent.
fn quoted(quote: &[u8], local: Address) -> Option<Quote> {
    let (source, remote, protocol, payload) = if local.v6 {
        let header = ipv6::Header::of(quote)?;
        let ends = (Address::v6(header.src_bits()), Address::v6(header.dst_bits()));
        (ends.0, ends.1, header.next_header(), quote.get(ipv6::HEADER_LEN..)?)
    } else {
        // What follows another fragment's header is no SPI.
        let header = ipv4::Header::of(quote).filter(|header| header.flags_and_offset() & 0x1fff == 0)?;
        let ends = (Address::v4(header.src_bits()), Address::v4(header.dst_bits()));
        (ends.0, ends.1, header.protocol(), quote.get(header.header_len()..)?)
    };
    let (sport, esp) = match protocol {
        Protocol::ESP => (0, payload),
        Protocol::UDP => (udp::Header::of(payload)?.sport(), payload.get(udp::HEADER_LEN..)?),
        _ => return None,
    };
    // The sequence number may have been left out.
    let spi = u32::from_be_bytes(*esp.first_chunk()?);
    (source == local).then_some(Quote { remote, sport, spi })
}
