//! Log records of what the stages decide.

use lookup::classify::Header;
use policy::model::Logging;
use tally::Tally;
use wire::{Frame, PortId};

use super::{Cx, Step};
use crate::flag;
use crate::flow::{Ends, FlowId};
use crate::log::{Connection, Opened, Record, RuleHit};
use crate::tables::Address;
use crate::verdict::Verdict;

/// Notes that a packet met a rule, where the rule has `log = true`.
#[inline(always)]
pub(super) fn note_hit<T: Tally>(
    place: Option<u32>,
    seen: &Header,
    step: Step,
    frame: &Frame,
    cx: &mut Cx<'_, T>,
) {
    if cx.shard.log.wants_rules() {
        note_logged_hit(place, seen, step, frame, cx);
    }
}

#[cold]
fn note_logged_hit<T: Tally>(
    place: Option<u32>,
    seen: &Header,
    step: Step,
    frame: &Frame,
    cx: &mut Cx<'_, T>,
) {
    let found = place.and_then(|place| Some((place, cx.tables.filter.rules.get(place as usize)?)));
    let Some((rule, _)) = found.filter(|(_, rule)| rule.log == Logging::On) else { return };
    // What waited for a neighbour has met its rule before.
    if frame.meta.flags & flag::WAITED != 0 {
        return;
    }
    let fate = match step {
        Step::Answer(reason) => Verdict::Answered(reason).to_fate(),
        Step::Drop(reason) => Verdict::Dropped(reason).to_fate(),
        Step::Next | Step::Forward | Step::Deliver | Step::Hold(_) => 0,
    };
    let address = |bits| Address { bits, v6: seen.family == wire::Family::V6 }.to_ip();
    let ends = Ends {
        source: address(seen.source),
        destination: address(seen.destination),
        sport: seen.sport,
        dport: seen.dport,
        protocol: seen.protocol,
    };
    cx.shard.log.note(Record::Rule(RuleHit {
        rule,
        fate,
        ingress: PortId(seen.ingress),
        egress: PortId(seen.egress),
        zones: [seen.from, seen.to],
        ends,
        bytes: frame.meta.end.saturating_sub(frame.meta.network),
        tcp_flags: seen.tcp_flags,
    }));
}

/// Notes that a connection has begun.
#[cold]
pub(super) fn note_opened<T: Tally>(id: FlowId, frame: &Frame, cx: &mut Cx<'_, T>) {
    let (Some(flow), Some(cold)) = (cx.shard.flows.flow(id), cx.shard.flows.cold(id)) else { return };
    let connection = Connection::of(flow, cold);
    cx.shard.log.note(Record::Opened(Opened { connection, rule: flow.rule, egress: frame.meta.egress }));
}
