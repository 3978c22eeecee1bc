//! What a shard remembers, given little by little.

use std::ops::Range;

use tally::NoTally;
use wire::Nanos;

use super::{Ends, FlowFilter, FlowRecord, Item, MappingRecord, OwnRecord, Standing, Through};
use crate::flow::{FlowId, Tick};
use crate::log::Cause;
use crate::nat::MappingId;
use crate::shard::{NOTHING, Shard};
use crate::tables::{NO_NUMBER, Tables};

/// How far one has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    part: Part,
    place: u32,
}

/// What is gone through, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Flows,
    Rules,
    Sources,
    Own,
}

impl Shard {
    /// Gives what is remembered from a cursor on, the default one at first, and says where to go on; `None` when that was
    /// all. Looks at `most` places of tables, in which there may be nothing: some thousand take well under a millisecond.
    /// `tables` are those that the shard works with.
    pub fn export(
        &self,
        tables: &Tables,
        now: Nanos,
        from: Cursor,
        most: u32,
        mut give: impl FnMut(Item),
    ) -> Option<Cursor> {
        let end = from.place.saturating_add(most.max(1));
        let (part, all) = match from.part {
            Part::Flows => {
                for place in from.place..end.min(self.flows.used()) {
                    if let Some(flow) = self.flow_record(tables, FlowId(place), now) {
                        give(Item::Flow(flow));
                    }
                }
                (Part::Rules, self.flows.used())
            }
            Part::Rules => {
                let rules = tables.filter.rules.len() as u32;
                for debt in
                    (from.place..end.min(rules)).filter_map(|rule| self.limiter.debt_of_rule(rule, now))
                {
                    give(Item::Debt(debt));
                }
                (Part::Sources, rules)
            }
            Part::Sources => {
                let places = self.limiter.source_places();
                let by_source = |place| self.limiter.debt_of_source(tables, place, now);
                (from.place..end.min(places)).filter_map(by_source).for_each(|debt| give(Item::Debt(debt)));
                (Part::Own, places)
            }
            Part::Own => {
                give(Item::Own(OwnRecord { next_id: self.next_id, errors: self.limiter.errors_owed(now) }));
                return None;
            }
        };
        Some(if end < all { Cursor { place: end, ..from } } else { Cursor { part, place: 0 } })
    }

    /// Gives the flows in a range of places that `filter` admits, and says where to go on; `None` when those were all.
    pub fn list_flows(
        &self,
        tables: &Tables,
        now: Nanos,
        places: Range<u32>,
        filter: &FlowFilter,
        mut give: impl FnMut(FlowRecord),
    ) -> Option<FlowId> {
        let end = places.end.max(places.start.saturating_add(1)).min(self.flows.used());
        let flows = (places.start..end).filter_map(|place| self.flow_record(tables, FlowId(place), now));
        flows.filter(|flow| filter.admits(flow)).for_each(&mut give);
        (end < self.flows.used()).then_some(FlowId(end))
    }

    /// A flow, unless there is none in that place or it is over.
    pub fn flow_record(&self, tables: &Tables, id: FlowId, now: Nanos) -> Option<FlowRecord> {
        let (flow, cold) = (self.flows.flow(id)?, self.flows.cold(id)?);
        let tick = self.flows.tick(now);
        if self.flows.is_expired(flow, tick) {
            return None;
        }
        let standing = if self.flows.is_stale(flow) { Standing::Waits } else { Standing::Validated };
        let through = |number, place: Option<u16>| match place {
            _ if number == NO_NUMBER => Through::None,
            Some(place) => Through::Nat(place),
            None => Through::Gone,
        };
        let is_known = standing == Standing::Validated && flow.rule != u32::MAX;
        Some(FlowRecord {
            id,
            original: Ends::of(flow.original()),
            reply: Ends::of(flow.reply()),
            ingress: tables.interface_numbered(cold.ingress),
            state: flow.state(),
            windows: flow.windows(),
            idle: self.flows.idle(flow, now),
            age: Nanos(u64::from(tick.since(Tick(cold.created))) * Tick::LENGTH.0),
            standing,
            rule: is_known.then_some(flow.rule),
            destination: through(cold.dnat, tables.destination_numbered(cold.dnat)),
            source: through(cold.snat, tables.source_numbered(cold.snat)),
            mapping: self.mapping_record(tables, cold.mapping),
            inward: self.mapping_record(tables, cold.inward),
            kind: cold.kind,
            ds_field: cold.ds_field,
            tcp_flags: cold.tcp_flags,
            mac: self.flows.sender(id).map(|mac| mac.0),
            handshake: self.flows.handshake(id),
        })
    }

    fn mapping_record(&self, tables: &Tables, id: u32) -> Option<MappingRecord> {
        if id == NOTHING {
            return None;
        }
        let mapping = self.mappings.get(MappingId(id))?;
        let owner = mapping.pool.and_then(|pool| tables.nat.owners.get(usize::from(pool.0)));
        let nat = owner.map(|owner| owner.source);
        Some(MappingRecord { nat, inside: mapping.inside, outside: mapping.outside })
    }

    /// Ends a flow at once, if it is still the one with these ends.
    pub fn end_flow_of(&mut self, id: FlowId, original: &Ends) -> Ended {
        let is_it = self.flows.flow(id).is_some_and(|flow| Ends::of(flow.original()) == *original);
        if is_it {
            self.end_flow_for(id, Cause::Killed, &mut NoTally);
        }
        if is_it { Ended::Now } else { Ended::Before }
    }
}

/// Outcome: a flow was there to be ended, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has ended now.
    Now,
    /// It was gone already.
    Before,
}
