//! Security policies and packets (RFC 4301): which tunnel is to protect a packet, and must it have come protected?
//!
//! A packet is looked at as it leaves: the source before its translation, the destination after, as rules see it. What comes back is what
//! the flow's first packet was to be answered by, and what comes in is as it came. IKE, which makes the security associations, goes in
//! clear between the ends.

use tally::Tally;
use wire::Frame;
use wire::esp::{Direction as Side, NAT_PORT};
use wire::header::Protocol;

use super::{Cx, Step, selector};
use crate::flag;
use crate::flow::{Direction, Flow};
use crate::opening::Opening;
use crate::tables::{Ends, Ports, Protection, Target, is_linux};
use crate::tunnel;
use crate::verdict::Reason;

/// UDP port of IKE (RFC 7296, section 2). Behind a NAT it is [`NAT_PORT`].
const IKE_PORT: u16 = 500;

/// Takes a packet that opens a flow, or is of none, into the tunnel that is to protect it: returns the target in the place of `routed`.
///
/// # Errors
/// The packet came in clear and must not, or it cannot be told whether it is to be protected.
#[inline(never)]
pub(super) fn target<T: Tally>(
    frame: &Frame,
    routed: Option<Target>,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Target>, Step> {
    // Whose side, and the fields of both headers, 30.
    cx.tally.instructions(30);
    let opening = cx.shard.openings.of(&frame.meta);
    let opens = opening.is_some();
    let came =
        opening.map_or_else(|| selector::ends(frame, Side::In), |of| selector::of_key(&of.key, Side::In));
    let leaves = opening.map_or_else(|| selector::ends(frame, Side::Out), leaving);
    let is_own = is_linux(frame.meta.ingress) || frame.meta.flags & flag::OWN != 0;
    if !is_own && frame.meta.tunnel & tunnel::IN == 0 {
        in_clear(&came, cx)?;
    }
    if is_own && is_ike(&leaves, cx) {
        return Ok(routed);
    }
    match by(&leaves, cx).map_err(Step::Drop)? {
        None if !opens => match selector::quoted(frame, Side::Out) {
            Some(quoted) => Ok(instead(routed, by(&quoted, cx).map_err(Step::Drop)?)),
            None => Ok(routed),
        },
        tunnel => Ok(instead(routed, tunnel)),
    }
}

/// The same for a direction of a flow.
///
/// # Errors
/// Ports that selectors ask for are not known.
#[inline(never)]
pub(super) fn of_flow<T: Tally>(
    flow: &Flow,
    direction: Direction,
    routed: Option<Target>,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Target>, Reason> {
    cx.tally.instructions(16);
    let leaves = match direction {
        Direction::Original => Ends {
            remote: flow.reply().source().into(),
            ports: Some(Ports { local: flow.original().sport(), remote: flow.reply().sport() }),
            ..selector::of_key(flow.original(), Side::Out)
        },
        // As the first packet's sender expects it.
        Direction::Reply => selector::of_key(flow.original(), Side::In),
    };
    if is_ike(&leaves, cx) {
        return Ok(routed);
    }
    Ok(instead(routed, by(&leaves, cx)?))
}

/// Refuses what came in clear although selectors say that it must be protected (RFC 4301, section 5.2.1).
pub(super) fn in_clear<T: Tally>(came: &Ends, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    match cx.tables.tunnels.spd.find(came, cx.tally) {
        Protection::None => Ok(()),
        _ if is_ike(came, cx) => Ok(()),
        Protection::By(_) | Protection::Unknown => Err(Step::Drop(Reason::TunnelRequired)),
    }
}

fn by<T: Tally>(leaves: &Ends, cx: &mut Cx<'_, T>) -> Result<Option<Target>, Reason> {
    match cx.tables.tunnels.spd.find(leaves, cx.tally) {
        Protection::None => Ok(None),
        Protection::By(number) => {
            let tunnel = cx.tables.tunnels.list.get(usize::from(number));
            Ok(tunnel.map(|tunnel| Target::Link(tunnel.interface)))
        }
        Protection::Unknown => Err(Reason::TunnelSelector),
    }
}

/// Target in the place of the routed one: packets for the gateway itself, or for everybody on a link, do not leave.
fn instead(routed: Option<Target>, tunnel: Option<Target>) -> Option<Target> {
    match routed {
        Some(Target::Local | Target::Broadcast(_)) => routed,
        _ => tunnel.or(routed),
    }
}

/// Fields of the packet that opens a flow, as rules see it.
fn leaving(opening: &Opening) -> Ends {
    Ends {
        remote: opening.destination(),
        ports: Some(Ports { local: opening.key.sport(), remote: opening.dport }),
        ..selector::of_key(&opening.key, Side::Out)
    }
}

/// True for IKE between the ends of a tunnel.
fn is_ike<T>(ends: &Ends, cx: &Cx<'_, T>) -> bool {
    let port = ends.ports.map_or(0, |ports| ports.local);
    ends.protocol == Protocol::UDP
        && (port == IKE_PORT || port == NAT_PORT)
        && cx.tables.tunnels.is_local(ends.local)
}
