//! Security association that a packet meets at a tunnel, as it is before the packet: without keys.

use esp::Place;
use tally::Count;
use wire::esp::{Direction, Header, SuiteName, Udp};
use wire::{Frame, PortId};

use crate::stage::decap::{self, Decap};
use crate::stage::encap::Encap;
use crate::stage::{Cx, Stage, header};

/// Security association of a packet of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaMet {
    /// None: an index that nothing has for the packet's destination.
    Unknown {
        /// Security parameters index.
        spi: u32,
    },
    /// That of a packet that comes in.
    In {
        /// The association.
        sa: SaBrief,
        /// Place of its sequence number in the window.
        place: Place,
        /// Highest number accepted.
        top: u64,
        /// Numbers told apart; 0 if nothing is checked.
        window: u32,
    },
    /// That of a packet that leaves.
    Out {
        /// The association.
        sa: SaBrief,
        /// Highest number sent.
        last: u64,
        /// Largest inner packet.
        mtu: u16,
    },
}

/// Name and algorithms of a security association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaBrief {
    /// Interface of its tunnel.
    pub interface: PortId,
    /// Security parameters index.
    pub spi: u32,
    /// UDP encapsulation.
    pub udp: Udp,
    /// Algorithms.
    pub suite: SuiteName,
}

impl SaMet {
    /// The association.
    pub fn sa(&self) -> Option<&SaBrief> {
        match self {
            SaMet::Unknown { .. } => None,
            SaMet::In { sa, .. } | SaMet::Out { sa, .. } => Some(sa),
        }
    }

    /// Direction.
    pub fn direction(&self) -> Direction {
        match self {
            SaMet::Unknown { .. } | SaMet::In { .. } => Direction::In,
            SaMet::Out { .. } => Direction::Out,
        }
    }
}

/// The association that a frame meets at a stage, if that is one of the two of tunnels.
pub(super) fn met(stage: &str, frame: &Frame, cx: &mut Cx<'_, Count>) -> Option<SaMet> {
    if stage == Decap::ABOUT.name {
        inward(frame, cx)
    } else if stage == Encap::ABOUT.name {
        outward(frame, cx)
    } else {
        None
    }
}

fn inward(frame: &Frame, cx: &mut Cx<'_, Count>) -> Option<SaMet> {
    let (_, destination) = header::addresses(frame);
    if !cx.tables.tunnels.is_local(destination) {
        return None;
    }
    let esp = Header::of(decap::esp_of(frame)?)?;
    let (spi, low) = (esp.spi(), esp.sequence());
    let Some(sa) = cx.shard.sas.inbound(spi, destination) else { return Some(SaMet::Unknown { spi }) };
    let interface = cx.tables.tunnels.list.get(usize::from(sa.tunnel))?.interface;
    Some(SaMet::In {
        sa: SaBrief { interface, spi, udp: sa.udp, suite: sa.transform.suite().name() },
        place: sa.window.place(low, sa.esn),
        top: sa.window.top(),
        window: sa.window.size(),
    })
}

fn outward(frame: &Frame, cx: &mut Cx<'_, Count>) -> Option<SaMet> {
    let interface = frame.meta.egress;
    let sa = cx.shard.sas.outbound(cx.tables.tunnel_of(interface)?)?;
    Some(SaMet::Out {
        sa: SaBrief { interface, spi: sa.spi, udp: sa.udp, suite: sa.transform.suite().name() },
        last: sa.sequence.last(),
        mtu: cx.shard.hops.get(frame.meta.hop).map_or(0, |hop| hop.mtu),
    })
}
