//! Selectors and packets (RFC 4301): may a security association carry a packet?

use policy::model::{KeySource, Mode};
use tally::{Op, Tally};
use wire::esp::Direction;
use wire::header::{Ports as Header, Protocol};
use wire::{Family, Frame, Part, icmpv4, icmpv6};

use super::track::quoted_key;
use super::{Cx, header};
use crate::flow::Key;
use crate::sa::Outbound;
use crate::tables::{Address, Ends, Fit, Ports, Selectors, Tunnel};
use crate::verdict::Reason;

/// Returns the place of the security association that carries a packet out of the tunnel of that number, among those of the tunnel: the
/// newest whose selectors it matches, as its bytes are now.
///
/// # Errors
/// There is none: an IKE daemon is to be told.
#[inline]
pub(super) fn carrier<T: Tally>(frame: &Frame, tunnel: u16, cx: &mut Cx<'_, T>) -> Result<usize, Reason> {
    let found = place(frame, tunnel, cx);
    if found.is_err() {
        missing(frame, tunnel, cx);
    }
    found
}

/// The same, and nobody is told.
#[inline]
pub(super) fn place<T: Tally>(frame: &Frame, tunnel: u16, cx: &mut Cx<'_, T>) -> Result<usize, Reason> {
    let list = cx.shard.sas.outbounds(tunnel);
    match list.last() {
        Some(newest) if newest.selectors.is_empty() => Ok(list.len() - 1),
        Some(_) => matching(frame, list, cx.tables.mode, cx.tally).ok_or(Reason::TunnelSelector),
        None => Err(Reason::SaMissing),
    }
}

/// Notes a packet that an IKE daemon may have a security association for.
#[cold]
#[inline(never)]
fn missing<T>(frame: &Frame, tunnel: u16, cx: &mut Cx<'_, T>) {
    let is_daemons = |tunnel: &Tunnel| tunnel.keys == KeySource::Ike;
    if cx.tables.tunnels.list.get(usize::from(tunnel)).is_some_and(is_daemons) {
        cx.shard.sas.note_missing(tunnel, ends(frame, Direction::Out), frame.meta.received);
    }
}

/// Notes a packet that an association of all workers carries, where the worker is to ask for one of its own.
#[cold]
#[inline(never)]
pub(super) fn falls_back<T>(frame: &Frame, tunnel: u16, cx: &mut Cx<'_, T>) {
    cx.shard.sas.note_fallback(tunnel, ends(frame, Direction::Out), frame.meta.received);
}

#[inline(never)]
fn matching<T: Tally>(frame: &Frame, list: &[Outbound], mode: Mode, tally: &mut T) -> Option<usize> {
    list.iter()
        .rposition(|sa| sa.selectors.is_empty() || admits(&sa.selectors, frame, Direction::Out, mode, tally))
}

/// True if a security association with these selectors may carry the frame's packet, as its bytes are now. An ICMP error may be carried for
/// the packet that it quotes, too (RFC 4301, section 6.2): routers on the way to an end report by addresses of their own.
#[inline(never)]
pub(super) fn admits<T: Tally>(
    selectors: &Selectors,
    frame: &Frame,
    direction: Direction,
    mode: Mode,
    tally: &mut T,
) -> bool {
    // Addresses and ports, 16.
    tally.instructions(16);
    tally.execute(Op::Branch, 4);
    match selectors.find(&ends(frame, direction), tally) {
        Fit::At(_) => true,
        // A later fragment goes on only behind its first, which shows its ports (RFC 4301, section 7.3).
        Fit::Unknown => mode == Mode::Stateful,
        Fit::None => {
            quoted(frame, direction).is_some_and(|ends| matches!(selectors.find(&ends, tally), Fit::At(_)))
        }
    }
}

/// Fields of the frame's packet that selectors ask for, as its bytes are now.
pub(super) fn ends(frame: &Frame, direction: Direction) -> Ends {
    let meta = &frame.meta;
    let protocol = Protocol(meta.protocol);
    let ports = match meta.part {
        Part::Later => None,
        _ if protocol.has_ports() => {
            let range = usize::from(meta.transport)..usize::from(meta.end);
            let ports = frame.bytes().get(range).and_then(Header::of);
            Some(ports.map_or([0; 2], |ports| [ports.sport, ports.dport]))
        }
        _ => Some([0; 2]),
    };
    of(header::addresses(frame), protocol, ports, direction)
}

/// The same of packets with a flow's key.
pub(super) fn of_key(key: &Key, direction: Direction) -> Ends {
    let addresses = (key.source().into(), key.destination().into());
    of(addresses, Protocol(key.protocol()), Some([key.sport(), key.dport()]), direction)
}

fn of(
    (source, destination): (Address, Address),
    protocol: Protocol,
    ports: Option<[u16; 2]>,
    direction: Direction,
) -> Ends {
    match direction {
        Direction::Out => Ends {
            local: source,
            remote: destination,
            protocol,
            ports: ports.map(|[local, remote]| Ports { local, remote }),
        },
        Direction::In => Ends {
            local: destination,
            remote: source,
            protocol,
            ports: ports.map(|[remote, local]| Ports { local, remote }),
        },
    }
}

/// Fields of the packet that an ICMP error quotes, which went the other way.
#[cold]
pub(super) fn quoted(frame: &Frame, direction: Direction) -> Option<Ends> {
    let meta = &frame.meta;
    let message = frame.bytes().get(usize::from(meta.transport)..usize::from(meta.end))?;
    let kind = icmpv4::Header::of(message).filter(|_| meta.part != Part::Later)?.kind();
    let class = match (meta.family, Protocol(meta.protocol)) {
        (Family::V4, Protocol::ICMP) => kind.class(),
        (Family::V6, Protocol::ICMPV6) => icmpv6::Type(kind.0).class(),
        _ => return None,
    };
    let (key, _) = quoted_key(message.get(8..).filter(|_| class == icmpv4::Class::Error)?, meta.family)?;
    Some(of_key(&key.reversed(), direction))
}
