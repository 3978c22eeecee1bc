//! `dnat`: where is it really going?
//!
//! Chooses the destination translation of a flow's first packet: a port forward or one-to-one translation of
//! the policy, else the inside endpoint of a mapping that the outside address already has
//! (endpoint-independent mapping, RFC 4787, section 4.1). Whether the packet may go there is for `filter` to
//! say. Changes no byte: `rewrite` carries it out.

use policy::model::Mode;
use tally::{Op, Region, Tally};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Frame, PortId};

use super::{About, Cx, Packets, Stage, Step, clat, header, helper, nat64};
use crate::explain::Membership;
use crate::flag;
use crate::nat::Endpoint;
use crate::opening::Opening;
use crate::tables::{Address, Asker, DNAT, Destination, Tables, VrfId, Xlat};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dnat;

impl Stage for Dnat {
    const ABOUT: About = About {
        name: "dnat",
        asks: "Where is it really going?",
        reads: Fields::SEEN.and(Fields::OPENING).and(Fields::INGRESS),
        writes: Fields::OPENING,
    };

    fn packets(tables: &Tables) -> Packets {
        let translates = !tables.nat.destinations.is_empty() || !tables.nat.outside.is_empty();
        // Networks that are translated one by one need no pool.
        let translates = translates || tables.filter.has_helpers && !tables.nat.sources.is_empty();
        if translates && tables.mode == Mode::Stateful { Packets::First } else { Packets::None }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::OPENS != 0
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        let tables = cx.tables;
        let is_query = frame.meta.flags & flag::QUERY != 0;
        // What the gateway itself sends is not translated.
        if frame.meta.flags & (flag::TO_GROUP | flag::OWN) != 0 {
            return Step::Next;
        }
        if let Some(expectation) = cx.shard.openings.of(&frame.meta).and_then(|of| helper::of_opening(of, cx))
        {
            let (destination, port) = (expectation.destination, expectation.port);
            let Some(opening) = cx.shard.openings.of_mut(&frame.meta) else { return Step::Next };
            cx.tally.instructions(20);
            set_destination(opening, destination, port, frame);
            return Step::Next;
        }
        let Some(opening) = cx.shard.openings.of(&frame.meta) else { return Step::Next };
        let mut seen = opening.seen;
        header::ask_sets(&mut seen, tables.set_questions.of_destinations, frame.meta.received, cx);
        let Some(opening) = cx.shard.openings.of_mut(&frame.meta) else { return Step::Next };
        let outside = opening.destination();
        // The opening by its place, 4; the header's fourteen fields in two families, 42; whether the address is the gateway's own, the
        // port, each of the two searches, and the opening's update, 24.
        cx.tally.instructions(70);
        cx.tally.execute(Op::Branch, 20);
        let found = tables.nat.destination(&seen, cx.tally);
        let found = found.filter(|(_, rule)| !clat::leaves_alone(&rule.action, outside, tables, cx.tally));
        if let Some((place, rule)) = found {
            cx.tally.read(Region::RuleTable, usize::from(place) * 32, 32);
            if let Some(translator) = rule.action.translator() {
                return match translator.xlat {
                    Xlat::Plat => nat64::open_to_v4(frame, place, translator, cx),
                    Xlat::Clat => clat::open(frame, place, translator, cx),
                };
            }
            let arrived = Destination { address: outside, port: opening.dport };
            let asker = Asker {
                source: opening.source,
                ingress: frame.meta.ingress,
                hash: (opening.hash >> 32) as u32,
            };
            let to = match rule.action.translate(arrived, asker, cx.tally) {
                Ok(to) => to,
                Err(Reason::NoServer) => return Step::Answer(Reason::NoServer),
                Err(reason) => return Step::Drop(reason),
            };
            set_destination(opening, to.address, to.port, frame);
            opening.dnat = place;
            // One that it has already is none that conntrack has a status for, either.
            if to != arrived {
                opening.seen.sets |= DNAT;
            }
            opening.turned = rule.action.turned(outside, seen.from);
            return Step::Next;
        }
        // Outside is the default VRF.
        let is_of_vrf = tables.vrf_of(frame.meta.ingress) != VrfId::DEFAULT;
        if is_of_vrf || !tables.nat.is_outside(outside) || !has_port(frame) {
            return Step::Next;
        }
        let port = if is_query { seen.sport } else { seen.dport };
        let endpoint = Endpoint { port, protocol: seen.protocol, ..Endpoint::new(outside.to_ip(), 0, 0) };
        let mappings = &cx.shard.mappings;
        // A port that was lent is the gateway's own for all that is of no flow.
        let found =
            mappings.inside_of(&endpoint, cx.tally).filter(|(mapping, _)| !mappings.is_service(*mapping));
        if let Some((mapping, inside)) = found {
            if inside.family != outside.family() {
                return nat64::open_inward(frame, mapping, inside, cx);
            }
            let to = Address { bits: inside.address, v6: outside.v6 };
            if is_query {
                set_destination(opening, to, opening.dport, frame);
                opening.sport = inside.port;
            } else {
                set_destination(opening, to, inside.port, frame);
            }
            // Held at once: making room for this flow may end the one that the mapping lives by.
            opening.inward = cx.shard.mappings.retain(mapping, cx.tally).map(|mapped| mapped.id);
            let home = home_of(tables, outside);
            if home != Some(frame.meta.ingress) {
                opening.turned = home;
            }
        }
        Step::Next
    }

    fn program(tables: &Tables) -> u32 {
        // This stage, 35; an inside endpoint's mapping, 35; one of several servers, 40; and the search through its rules.
        let servers = if tables.nat.server_bytes() > 0 { 40 } else { 0 };
        // An IPv4 address in an IPv6 destination and the other way, 92; an endpoint of the other IP version, 40; what a CLAT leaves alone, 24.
        let nat64 = if tables.nat.has_translator { 156 } else { 0 };
        let sets = if tables.set_questions.of_destinations != 0 { header::SETS } else { 0 };
        70 + servers + nat64 + sets + tables.nat.destination_search.program()
    }
}

/// The dynamic sets that a first packet's addresses are in before translation, of those that destination translations ask for.
pub(crate) fn memberships<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Vec<Membership> {
    let Some(opening) = cx.shard.openings.of(&frame.meta).filter(|_| Dnat::takes(frame)) else {
        return Vec::new();
    };
    let asked = cx.tables.set_questions.of_destinations;
    header::memberships(opening.seen, asked, frame.meta.received, cx)
}

/// Sets destination and port after translation. The rules see both; of an ICMP query they see its kind.
fn set_destination(opening: &mut Opening, to: Address, dport: u16, frame: &Frame) {
    opening.seen.destination = to.bits;
    opening.dport = dport;
    if frame.meta.flags & flag::QUERY == 0 {
        opening.seen.dport = dport;
    }
}

/// True if the packet has a port, or an identifier that stands for one, by which mappings are told apart.
pub(super) fn has_port(frame: &Frame) -> bool {
    match Protocol(frame.meta.protocol) {
        Protocol::TCP | Protocol::UDP => true,
        _ => frame.meta.flags & flag::QUERY != 0,
    }
}

/// The interface of the default VRF on whose network an outside address is: of several, that with the longest prefix.
pub(super) fn home_of(tables: &Tables, address: Address) -> Option<PortId> {
    let ip = address.to_ip();
    let mut found: Option<(u8, PortId)> = None;
    let interfaces = (0..).map(PortId).zip(&tables.interfaces);
    for (place, interface) in interfaces.filter(|(place, _)| tables.vrf_of(*place) == VrfId::DEFAULT) {
        for network in interface.networks.iter().filter(|network| network.contains(&ip)) {
            if found.is_none_or(|(length, _)| length < network.prefix_len()) {
                found = Some((network.prefix_len(), place));
            }
        }
    }
    found.map(|(_, place)| place)
}
