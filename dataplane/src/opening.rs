//! Openings: decisions on a flow while its first packet goes through the stages.
//!
//! An opening goes with its frame, as the second part of the frame's metadata: `track` creates the opening, the later stages
//! write their decisions there, and `snat` takes the opening and creates the flow. Packets of existing flows have no opening.
//! Openings therefore lie apart from the cache line of metadata that every frame has, as many as a batch has frames;
//! [`Meta::opening`] is the index of a frame's opening.
//!
//! An opening holds references to mappings and counts. It is taken when its flow is created, or else when its frame ends or
//! begins to wait (`Shard::abandon_opening`): no frame takes one out of the pipeline.

use lookup::classify::Header;
use wire::{BATCH, Family, Meta, PortId};

use crate::flow::Key;
use crate::helper::ExpectationId;
use crate::limiter::CountId;
use crate::nat::{Endpoint, Mapped, MappingId, PoolId};
use crate::tables::{Address, Kind, VrfNumber};

/// Decisions on the flow that a packet opens, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Flow key of the packet.
    pub key: Key,
    /// Hash of `key`.
    pub hash: u64,
    /// Header fields that rules and translations match on, with the destination after translation.
    pub seen: Header,
    /// Destination port after translation; for an ICMP query, the second value of [`Key::query_ports`].
    pub dport: u16,
    /// Place of the destination translation in the tables, counted from 1; 0 for none.
    pub dnat: u16,
    /// The mapping whose inside endpoint is the destination.
    pub inward: Option<MappingId>,
    /// The interface that the packet would have left by, had it not been turned back inside (hairpin).
    pub turned: Option<PortId>,
    /// Count against the rule's limit on connections.
    pub count: Option<CountId>,
    /// Count against the limit on flows of one source.
    pub source_count: Option<CountId>,
    /// Source address after translation.
    pub source: Address,
    /// Source port after translation; for an ICMP query, its identifier.
    pub sport: u16,
    /// Place of the source translation in the tables, counted from 1; 0 for none.
    pub snat: u16,
    /// The mapping that translates the source.
    pub mapping: Option<MappingId>,
    /// Traffic class of the packet.
    pub class: u16,
    /// Kind of code point and VLAN priority that the class was found for.
    pub(crate) class_kind: Kind,
    /// SYN cookie that the client has acknowledged, where the gateway has answered its SYN.
    pub cookie: Option<u32>,
    /// The expectation that the packet meets.
    pub expected: Option<ExpectationId>,
    /// Destination of the other IP version, where packets leave as that: the address embedded in an IPv6 destination (NAT64), or the one that
    /// an IPv4 destination is embedded in (CLAT).
    pub across: Option<Address>,
    /// NAT pool of the source's mapping, where ports are translated, and the port of the inside endpoint.
    pub pool: Option<(PoolId, u16)>,
}

impl Opening {
    /// The destination after translation.
    #[inline(always)]
    pub fn destination(&self) -> Address {
        let seen = Address { bits: self.seen.destination, v6: self.seen.family == Family::V6 };
        self.across.unwrap_or(seen)
    }

    /// True if the packet leaves as one of the other IP version.
    #[inline(always)]
    pub fn is_across(&self) -> bool {
        self.across.is_some() || self.seen.family != self.key.family()
    }

    /// The inside endpoint of the source, in its VRF and with a port.
    pub(crate) fn inside(&self, port: u16, vrf: VrfNumber) -> Endpoint {
        let Header { source, mut protocol, family, .. } = self.seen;
        if let Some(destination) = self.across {
            // Identifiers are those of the address outside.
            protocol = Key::across(0, protocol, destination.family()).1;
        }
        Endpoint { address: source, port, protocol, family, vrf }
    }

    /// Translates the source to the outside endpoint of a mapping.
    pub(crate) fn map_source(&mut self, mapped: Mapped) {
        self.mapping = Some(mapped.id);
        self.source = Address { bits: mapped.outside.address, v6: mapped.outside.family == Family::V6 };
        self.sport = mapped.outside.port;
    }
}

/// Openings of the frames under way.
#[derive(Debug)]
pub struct Openings {
    places: Box<[Opening; BATCH]>,
    /// The free places, a bit for each.
    free: u64,
}

const _: () = assert!(BATCH == u64::BITS as usize);

/// Refusal of an opening: more frames than a batch holds would open flows at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace;

impl Default for Openings {
    fn default() -> Openings {
        Openings { places: Box::new([Opening::default(); BATCH]), free: u64::MAX }
    }
}

impl Openings {
    /// Gives an opening, to be written, to the frame of `meta`, which has none.
    #[inline(always)]
    pub(crate) fn give(&mut self, meta: &mut Meta) -> Result<&mut Opening, NoPlace> {
        debug_assert!(meta.opening == Meta::NO_OPENING, "a frame has one opening");
        if self.free == 0 {
            return Err(NoPlace);
        }
        let place = self.free.trailing_zeros();
        self.free &= self.free - 1;
        meta.opening = place as u8;
        Ok(&mut self.places[place as usize % BATCH])
    }

    /// The opening of the frame of `meta`, if it has one.
    #[inline(always)]
    pub fn of(&self, meta: &Meta) -> Option<&Opening> {
        self.places.get(usize::from(meta.opening))
    }

    /// The opening of the frame of `meta`, to be written.
    #[inline(always)]
    pub(crate) fn of_mut(&mut self, meta: &Meta) -> Option<&mut Opening> {
        self.places.get_mut(usize::from(meta.opening))
    }

    /// Takes the opening from the frame of `meta`, if it has one.
    #[inline(always)]
    pub(crate) fn take(&mut self, meta: &mut Meta) -> Option<Opening> {
        let opening = *self.of(meta)?;
        self.free |= 1 << meta.opening;
        meta.opening = Meta::NO_OPENING;
        Some(opening)
    }

    /// Number of frames with an opening; 0 between batches.
    pub fn len(&self) -> u32 {
        self.free.count_zeros()
    }

    /// True if no frame has an opening.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_of_a_batch_has_its_own_until_it_is_taken() {
        let mut openings = Openings::default();
        let mut metas = vec![Meta::default(); BATCH];
        assert_eq!(openings.of(&metas[0]), None);
        for (number, meta) in (0..).zip(&mut metas) {
            openings.give(meta).expect("there is a place").sport = number;
        }
        let mut further = Meta::default();
        assert_eq!(openings.give(&mut further), Err(NoPlace));
        assert_eq!((further.opening, openings.len()), (Meta::NO_OPENING, 64));
        assert_eq!(openings.take(&mut metas[9]).map(|opening| opening.sport), Some(9));
        assert_eq!((openings.take(&mut metas[9]), openings.len()), (None, 63));
        openings.give(&mut further).expect("there is a place").sport = 99;
        for (number, meta) in (0..).zip(&mut metas).filter(|(number, _)| *number != 9) {
            assert_eq!(openings.take(meta).map(|opening| opening.sport), Some(number));
        }
        assert_eq!(openings.take(&mut further).map(|opening| opening.sport), Some(99));
        assert!(openings.is_empty());
    }
}
