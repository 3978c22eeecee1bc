//! The packet that keeps a NAT on the way to a tunnel's peer open (RFC 3948, sections 2.3 and 4).

use tally::{Op, Region, Tally};
use wire::{Frame, Meta, Nanos};

use super::head::{DontFragment, Head, Varying};
use super::sealer::hop;
use crate::stage::decap::KEEPALIVE;
use crate::stage::{Cx, link};
use crate::tables::LOCAL;
use crate::tunnel;

/// Makes the keepalive of the tunnel of that number, with the link-layer header of its way. `number` is that of the frame by which time has
/// passed. `None` if there is no security association out, no way to the peer is known, or no slot is free.
#[cold]
pub(crate) fn keepalive<T: Tally>(tunnel: u16, now: Nanos, number: u32, cx: &mut Cx<'_, T>) -> Option<Frame> {
    // Headers as of a packet: what is written into the outer one and its sum, 40; the way, 6; the byte, the slot and the queue, 14.
    cx.tally.instructions(60);
    cx.tally.execute(Op::Branch, 8);
    cx.tally.write(Region::Frame, 0, 48);
    let mut frame = cx.pool.take()?;
    frame.meta = Meta { received: now, ingress: LOCAL, number, ..Meta::default() };
    if write(&mut frame, tunnel, cx).is_some() {
        return Some(frame);
    }
    cx.pool.put(frame);
    None
}

/// Writes the packet.
fn write<T: Tally>(frame: &mut Frame, number: u16, cx: &mut Cx<'_, T>) -> Option<()> {
    let of = cx.tables.tunnels.list.get(usize::from(number))?;
    let hop = hop(of.interface, frame, cx).ok()?;
    (frame.meta.egress, frame.meta.hop) = (cx.shard.hops.get(hop)?.interface, hop);
    let head = Head::new(None, of, cx.shard.sas.outbound(number)?);
    let bytes = frame.prepare(head.len(None) + KEEPALIVE.len())?;
    bytes.fill(0);
    bytes.last_chunk_mut().map(|last| *last = KEEPALIVE)?;
    let payload_len = KEEPALIVE.len() as u16;
    let fields = Varying { ds_field: 0, df: DontFragment::Set, id: 0, payload_len, kept: None };
    head.write(bytes, &fields);
    head.describe(frame, &fields);
    frame.meta.tunnel |= tunnel::KEEPALIVE;
    link::replace(frame, cx).then_some(())
}
