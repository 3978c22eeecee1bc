//! CLAT, the customer side of 464XLAT (RFC 6877): decisions on a flow of an IPv4 host that leaves as IPv6.
//!
//! A CLAT is the mirror of NAT64 (`nat64.rs`). A packet to an IPv4 address that no route of IPv4 leads to, and that nothing else translates, opens a
//! flow whose replies are IPv6: `dnat` embeds the address in the prefix of a PLAT (RFC 6052), routes are looked up for what comes of that,
//! and `snat` chooses an IPv6 endpoint of the gateway, so that one IPv6 address does for all hosts (RFC 6877, section 6.3). Rules see both ends as
//! the IPv4 host does. `rewrite` translates packets as those of NAT64.

use std::net::Ipv4Addr;

use tally::{Op, Tally};
use wire::{Family, Frame};

use super::route::is_link_local;
use super::{Cx, Step, nat64};
use crate::tables::{Address, DestinationAction, Tables, Target, Translator, VrfId, Xlat};
use crate::verdict::Reason;

/// Source of errors from routers of IPv6 whose address has none of IPv4 in it: the dummy address that RFC 7600, section 4.8, sets aside for
/// them (RFC 6791 asks for one that is not a host's).
pub(super) const ROUTER_OF_V6: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Decides on the destination of a first packet of IPv4; `place` is that of the translation, counted from 1.
pub(super) fn open<T: Tally>(
    frame: &mut Frame,
    place: u16,
    translator: Translator,
    cx: &mut Cx<'_, T>,
) -> Step {
    // Kinds of the address, 12; it among four words, 12; protocol and type, 8; the opening's update, 8.
    cx.tally.instructions(40);
    cx.tally.execute(Op::Branch, 10);
    let is_translatable = nat64::is_translatable(frame);
    let Some(opening) = cx.shard.openings.of_mut(&frame.meta) else { return Step::Next };
    let destination = opening.destination();
    let host = Ipv4Addr::from_bits(destination.bits as u32); // IPv4 in the low 32 bits
    if !nat64::may_be_reached(translator.prefix, host) {
        return Step::Answer(Reason::Nat64Address);
    }
    if !is_translatable {
        return Step::Drop(Reason::Nat64Packet);
    }
    opening.dnat = place;
    opening.across = translator.destination(destination);
    Step::Next
}

/// True if a destination translation leaves a packet alone: a CLAT has what IPv4 cannot carry as it is. Routes of IPv4 come first, and so
/// do the gateway's own addresses, those of its pools, and those of a link.
pub(super) fn leaves_alone<T: Tally>(
    action: &DestinationAction,
    destination: Address,
    tables: &Tables,
    tally: &mut T,
) -> bool {
    if action.translator().is_none_or(|translator| translator.xlat != Xlat::Clat) {
        return false;
    }
    // Kinds of addresses and the target by place and bound, 24. The route tells its own.
    tally.instructions(24);
    tally.execute(Op::Branch, 8);
    if is_link_local(destination) || tables.nat.is_outside(destination) {
        return true;
    }
    match tables.route(VrfId::DEFAULT, destination, tally) {
        None => false,
        // While one of them is up that carries IPv4.
        Some(Target::Wans) => tables.wans.share(Family::V4, 0, tally).is_some(),
        Some(_) => true,
    }
}
