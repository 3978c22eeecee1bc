//! Flows, which outlive the tables, the memory and the process that they began with.

use std::net::IpAddr;
use std::ops::Range;

use lookup::memory::{Paging, Slab};
use policy::model::{IpfixRecord, Mode};
use tally::{NoTally, Region};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::siit::Prefix;
use wire::{Meta, Nanos, PortId};

use super::{Applying, Cursor, FlowRecord, Item, MappingRecord, Part, Plan, Reload, Standing, Through};
use crate::accounting::{Counts, counts};
use crate::flow::{
    Classified, Ends, FlowId, Former, Handshake, Key, Life, Refusal, State, Tick, Timeouts, Translated,
    records,
};
use crate::helper::{Expectations, Helped};
use crate::import::{Imports, Refused};
use crate::log::Cause;
use crate::nat::{BlockChange, BlockEvent, Endpoint};
use crate::set::Watch;
use crate::shard::{
    Shard, ShardError, most_flows, remembers_classes, remembers_wans, timeouts, watches_sets,
};
use crate::sync::Room;
use crate::tables::{Address, LOCAL, NO_NUMBER, OWN_ACCORD, SourceAction, Tables, Target, VrfId};

/// Flows, with their handshakes and MAC addresses.
pub(super) struct Flows;

/// Reload of flows: existing flows are of an earlier epoch from then on.
struct FlowsPlan {
    timeouts: Timeouts,
    /// Memory for handshakes, where the gateway has made none so far.
    handshakes: Option<Slab<u32>>,
    /// Memory for MAC addresses of flows, where no rule has asked for any so far.
    macs: Option<Slab<[u8; 6]>>,
    /// Memory for traffic classes of flows, where the policy has had none so far.
    classes: Option<Slab<Classified>>,
    /// Memory for the counts of flows that are exported, where none have been so far.
    counts: Option<Slab<Counts>>,
    /// Memory for the list of changes, where the bound on flows changes.
    changes: Option<Room>,
    /// Memory for WANs of flows, where the policy has had none so far.
    wans: Option<Slab<u32>>,
    /// Memory for validations of flows, where no rule has asked for a dynamic set so far.
    watches: Option<Slab<Watch>>,
    /// Memory for what helpers know of flows, and for what they expect, where no rule has named a helper so far.
    helped: Option<(Slab<Helped>, Expectations)>,
    /// The same, where it was not needed or has been replaced: another thread frees it.
    retired: Option<(Option<Slab<Helped>>, Expectations)>,
    /// Memory of all flows, if the bound on flows changes.
    renewed: Option<Box<Shard>>,
}

impl Part for Flows {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, setup, .. } = reload;
        let renewed =
            if most_flows(old) == most_flows(new) { None } else { Some(Box::new(Shard::new(new, *setup)?)) };
        // Whether connections have handshakes from tables before the old ones is not known here.
        let may_need = renewed.is_some() || !old.filter.has_syn_proxy && new.filter.has_syn_proxy;
        let may_ask = renewed.is_some() || old.source_macs.is_none() && new.source_macs.is_some();
        let may_class = renewed.is_none() && !remembers_classes(old) && remembers_classes(new);
        let may_count = renewed.is_some() || old.ipfix != new.ipfix;
        let may_leave = renewed.is_none() && !remembers_wans(old) && remembers_wans(new);
        let may_watch = renewed.is_none() && !watches_sets(old) && watches_sets(new);
        let may_help = renewed.is_some() || !old.filter.has_helpers && new.filter.has_helpers;
        let may_list = renewed.is_some() && new.synchronises;
        let flows = most_flows(new);
        Ok(Box::new(FlowsPlan {
            timeouts: timeouts(new),
            handshakes: may_need
                .then(|| records(flows, Paging::Prefault))
                .transpose()
                .map_err(ShardError::Memory)?,
            macs: may_ask
                .then(|| records(flows, Paging::Prefault))
                .transpose()
                .map_err(ShardError::Memory)?,
            classes: may_class
                .then(|| records(flows, Paging::Prefault))
                .transpose()
                .map_err(ShardError::Memory)?,
            counts: if may_count { counts(new).map_err(ShardError::Memory)? } else { None },
            watches: may_watch
                .then(|| records(flows, Paging::Prefault))
                .transpose()
                .map_err(ShardError::Memory)?,
            changes: may_list.then(|| Room::new(new)).transpose().map_err(ShardError::Memory)?,
            helped: match may_help {
                true => {
                    let expectations = Expectations::anyway(new);
                    Some((records(flows, Paging::Prefault).map_err(ShardError::Memory)?, expectations))
                }
                false => None,
            },
            retired: None,
            wans: may_leave
                .then(|| records(flows, Paging::Prefault))
                .transpose()
                .map_err(ShardError::Memory)?,
            renewed,
        }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.flows.memory_bytes()
            + shard.expectations.bytes()
            + shard.accounting.bytes()
            + shard.changes.bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        let [index, flows, timers] = shard.flows.parts_bytes();
        vec![(Region::FlowIndex, index), (Region::FlowTable, flows), (Region::Timer, timers)]
    }

    fn places(&self, shard: &Shard, _: &Tables) -> u32 {
        shard.flows.used()
    }

    fn export(&self, shard: &Shard, tables: &Tables, place: u32, now: Nanos) -> Option<Item> {
        let record = shard.flow_record(tables, FlowId(place), now)?;
        // The VRF of what the gateway itself began is in no record: the default one has its flows alone.
        let is_of_vrf = || {
            let flow = shard.flows.flow(record.id);
            flow.is_some_and(|flow| flow.original().ct_zone() != tables.itself.ct_zone)
        };
        (record.ingress != Some(LOCAL) || !is_of_vrf()).then_some(Item::Flow(record))
    }

    fn update(&self, shard: &mut Shard, places: Range<u32>) {
        shard.update_published(places);
    }

    fn import(
        &self,
        shard: &mut Shard,
        tables: &Tables,
        item: &Item,
        now: Nanos,
    ) -> Option<Result<(), Refused>> {
        let Item::Flow(record) = item else { return None };
        Some(shard.import_flow(tables, record, now).map(drop))
    }
}

impl Plan for FlowsPlan {
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        // What is to be moved needs a place for its handshakes and MAC addresses, whatever the new tables ask for.
        let keeps = |remembers| self.renewed.is_none() || remembers;
        let handshakes = keeps(shard.flows.numbers.is_kept());
        let macs = keeps(shard.flows.senders.is_kept());
        let helped = keeps(shard.flows.helped.is_kept());
        let flows = self.renewed.as_deref_mut().map_or(&mut shard.flows, |fresh| &mut fresh.flows);
        if handshakes {
            self.handshakes = self.handshakes.take().and_then(|numbers| flows.numbers.keep(numbers));
        }
        if macs {
            self.macs = self.macs.take().and_then(|senders| flows.senders.keep(senders));
        }
        if let Some((records, expectations)) = self.helped.take().filter(|_| helped) {
            let unused = flows.helped.keep(records);
            let place = match self.renewed.as_deref_mut() {
                Some(fresh) => &mut fresh.expectations,
                None => &mut shard.expectations,
            };
            let former = if place.has_room() { expectations } else { std::mem::replace(place, expectations) };
            self.retired = Some((unused, former));
        }
        self.classes = self.classes.take().and_then(|classes| shard.flows.classes.keep(classes));
        match self.renewed.as_deref_mut() {
            // Taken over with the flows.
            Some(fresh) if shard.accounting.has_host() => {
                self.counts = self.counts.take().and_then(|counts| fresh.accounting.keep(counts));
            }
            // Flows that begin meanwhile have none.
            None if !reload.tables.ipfix.has(IpfixRecord::Flow) => self.counts = shard.accounting.forget(),
            None if shard.accounting.has_host() => {
                self.counts = self.counts.take().and_then(|counts| shard.accounting.keep(counts));
            }
            _ => {}
        }
        self.watches = self.watches.take().and_then(|watches| shard.flows.watches.keep(watches));
        self.wans = self.wans.take().and_then(|wans| shard.flows.wans.keep(wans));
        shard.flows.begin_epoch(reload.tables.epoch, self.timeouts);
    }

    fn finish(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        if let Some(fresh) = self.renewed.as_deref_mut() {
            // Flows have other places there.
            shard.take_each_back();
            reload.carried = shard.move_into(fresh, reload.tables, reload.now);
            if shard.changes.is_on() {
                self.changes = self.changes.take().and_then(|room| shard.changes.keep(room));
            }
        }
    }
}

impl Shard {
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
        let is_known = standing == Standing::Validated && flow.rule != Meta::NO_RULE;
        let related = self.flows.related_by(id).and_then(|rule| tables.helper_rule(rule));
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
            rule: related.or(is_known.then_some(flow.rule)),
            destination: through(cold.dnat, tables.destination_numbered(cold.dnat)),
            source: through(cold.snat, tables.source_numbered(cold.snat)),
            mapping: self.mapping_record(tables, cold.mapping),
            inward: self.mapping_record(tables, cold.inward),
            kind: cold.kind,
            ds_field: cold.ds_field,
            tcp_flags: cold.tcp_flags,
            wan: self.flow_wan(tables, id),
            mac: self.flows.sender(id).map(|mac| mac.0),
            handshake: self.flows.handshake(id),
        })
    }

    /// The interface that a flow left by, if that is a WAN's.
    fn flow_wan(&self, tables: &Tables, id: FlowId) -> Option<PortId> {
        let number = *self.flows.wans.get(id)?;
        tables.interface_numbered(number).filter(|interface| tables.wans.at(*interface).is_some())
    }

    /// Ends a flow at once, if it is still the one with these ends.
    pub fn end_flow_of(&mut self, id: FlowId, original: &Ends) -> Ended {
        let is_it = self.flows.flow(id).is_some_and(|flow| Ends::of(flow.original()) == *original);
        if is_it {
            self.end_flow_for(id, Cause::Killed, &mut NoTally);
        }
        if is_it { Ended::Now } else { Ended::Before }
    }

    pub(crate) fn import_flow(
        &mut self,
        tables: &Tables,
        record: &FlowRecord,
        now: Nanos,
    ) -> Result<FlowId, Refused> {
        if tables.mode == Mode::Stateless {
            return Err(Refused::Stateless);
        }
        let (original, reply) = (record.original.to_key(), record.reply.to_key());
        let (original, reply) = original.zip(reply).ok_or(Refused::Malformed)?;
        if !fits(record, [&original, &reply], prefix(tables, record)) {
            return Err(Refused::Malformed);
        }
        let ingress = record.ingress.ok_or(Refused::InterfaceGone)?;
        let interface = tables.interface(ingress).ok_or(Refused::InterfaceGone)?;
        let dnat = match record.destination {
            Through::None => NO_NUMBER,
            Through::Nat(place) => {
                tables.nat.destinations.get(usize::from(place)).ok_or(Refused::NameGone)?.number
            }
            Through::Gone => return Err(Refused::NameGone),
        };
        let snat = match record.source {
            Through::None => NO_NUMBER,
            Through::Nat(place) => {
                tables.nat.sources.get(usize::from(place)).ok_or(Refused::NameGone)?.number
            }
            Through::Gone => return Err(Refused::NameGone),
        };
        let vrf = tables.vrf_of(ingress);
        let inward_vrf = self.vrf_of_inward(tables, record.inward)?;
        let mapping = self.import_mapping(tables, tables.vrf_number(vrf), record.mapping)?;
        let inward = match self.import_mapping(tables, inward_vrf, record.inward) {
            Ok(inward) => inward,
            Err(refused) => {
                self.release(mapping);
                return Err(refused);
            }
        };
        let led = match record.destination {
            Through::Nat(place) => {
                tables.nat.destinations.get(usize::from(place)).and_then(|rule| rule.action.vrf)
            }
            Through::None | Through::Gone if record.inward.is_some() => tables.vrf_numbered(inward_vrf),
            Through::None | Through::Gone => None,
        };
        let towards = ct_zone_towards(tables, led.unwrap_or(vrf), record.reply.source.into());
        let keys = [&original.in_ct_zone(interface.ct_zone), &reply.in_ct_zone(towards)];
        let ticks = |span: Nanos| Tick::within(span).0;
        let former = Former {
            keys,
            state: record.state,
            windows: &record.windows,
            idle: ticks(record.idle),
            age: ticks(record.age),
        };
        let tick = self.flows.tick(now);
        let id = match self.flows.restore(&former, tick) {
            Ok(id) => id,
            Err(refusal) => {
                self.release(mapping);
                self.release(inward);
                return Err(match refusal {
                    Refusal::Full => Refused::TableFull,
                    Refusal::Taken(_) => Refused::Taken,
                    Refusal::NoKey => Refused::Malformed,
                });
            }
        };
        let [limit, source] = self.count_anyway(tables, record.original.source.into(), ingress, record.rule);
        if let Some(cold) = self.flows.cold_mut(id) {
            (cold.mapping, cold.inward) = (mapping, inward);
            (cold.limit, cold.source) = (limit, source);
            (cold.ingress, cold.dnat, cold.snat) = (interface.number, dnat, snat);
            (cold.kind, cold.ds_field, cold.tcp_flags) = (record.kind, record.ds_field, record.tcp_flags);
        }
        if let Some(wan) = self.flows.wans.get_mut(id) {
            *wan = record.wan.map_or(NO_NUMBER, |interface| tables.number_of(interface));
        }
        self.flows.note_sender(id, record.mac.map(Mac));
        if let Some(flow) = self.flows.flow_mut(id) {
            let [a, b] = [flow.original(), flow.reply()].map(|key| key.in_ct_zone(0));
            let is_plain =
                b == a.reversed() && matches!(record.handshake, Handshake::Direct | Handshake::Related);
            flow.set_translated(if is_plain { Translated::No } else { Translated::Yes });
        }
        self.accounting.begin(id, 0);
        self.changes.begin(id);
        self.flows.set_related(id, NO_NUMBER);
        if self.flows.set_handshake(id, record.handshake).is_err() {
            self.end_flow(id, &mut NoTally);
            return Err(Refused::NameGone);
        }
        let rule = record.rule.and_then(|place| tables.filter.rules.get(place as usize));
        let by_helper = matches!(record.handshake, Handshake::Helped(_) | Handshake::Related);
        if let Some(rule) = rule.filter(|rule| by_helper && rule.helper.is_some()) {
            self.flows.set_helper_rule(id, rule.number);
        }
        self.flows.set_idle(id, self.flows.idle_by(id, rule), &mut NoTally);
        Ok(id)
    }

    /// Hands over the counts of a flow that has moved to other memory.
    fn move_flow_counts(&self, record: &FlowRecord, fresh: &mut Shard, tables: &Tables) {
        let interface = record.ingress.and_then(|ingress| tables.interface(ingress));
        if let (Some(key), Some(interface)) = (record.original.to_key(), interface) {
            self.move_counts(record.id, fresh, &key.in_ct_zone(interface.ct_zone));
        }
    }

    /// Moves flows, with mappings and counts, into other memory, and takes that memory over.
    fn move_into(&mut self, fresh: &mut Shard, tables: &Tables, now: Nanos) -> Imports {
        if let Some(member) = self.flows.member() {
            fresh.join(member.clone());
        }
        self.end_expectations();
        let mut carried = Imports::default();
        let tick = self.flows.tick(now);
        let expired = self.flows.iter().filter(|(_, flow)| self.flows.is_expired(flow, tick));
        let mut left: Vec<_> = expired.map(|(id, _)| (id, Cause::Timeout)).collect();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = self.export(tables, now, from, u32::MAX, |item| {
                let outcome = fresh.import(tables, &item, now);
                if let Item::Flow(record) = &item {
                    match outcome {
                        Ok(()) => self.move_flow_counts(record, fresh, tables),
                        Err(_) => left.push((record.id, Cause::Evicted)),
                    }
                    carried.count(outcome);
                }
            });
        }
        left.into_iter().for_each(|(id, cause)| self.note_left_behind(id, cause));
        fresh.flows.go_on_from(&self.flows);
        for block in fresh.mappings.go_on_from(&mut self.mappings) {
            self.note_block(BlockEvent { change: BlockChange::Freed, block });
        }
        std::mem::swap(&mut self.flows, &mut fresh.flows);
        std::mem::swap(&mut self.mappings, &mut fresh.mappings);
        fresh.port_mappings.go_on_from(&mut self.port_mappings);
        std::mem::swap(&mut self.port_mappings, &mut fresh.port_mappings);
        std::mem::swap(&mut self.limiter, &mut fresh.limiter);
        std::mem::swap(&mut self.expectations, &mut fresh.expectations);
        self.take_counts(fresh);
        carried
    }
}

/// Outcome: a flow was there to be ended, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The flow has ended now.
    Now,
    /// The flow was gone already.
    Before,
}

/// Prefix of a flow's source translation, if it is one between IP versions.
fn prefix(tables: &Tables, record: &FlowRecord) -> Option<Prefix> {
    let Through::Nat(place) = record.source else { return None };
    match &tables.nat.sources.get(usize::from(place))?.action {
        SourceAction::Across { prefix, .. } => Some(*prefix),
        _ => None,
    }
}

/// True if keys, state and mappings of a flow fit one another; `prefix` is that of a translation between IP versions.
fn fits(record: &FlowRecord, [original, reply]: [&Key; 2], prefix: Option<Prefix>) -> bool {
    let protocol = original.protocol();
    let tcp = |state: State| {
        matches!(state.life(), Life::TcpHalfOpen | Life::TcpEstablished | Life::TcpClosing | Life::TcpReset)
    };
    let state = match Protocol(protocol) {
        Protocol::TCP => tcp(record.state),
        Protocol::UDP => matches!(record.state.life(), Life::Udp | Life::UdpUnanswered),
        _ => record.state.life() == State::first(protocol).life(),
    };
    let is_across = original.family() != reply.family();
    let answers = if is_across { Key::across(0, protocol, reply.family()).1 } else { protocol };
    let family = answers == reply.protocol() && (!is_across || prefix.is_some());
    // IPv6 hosts know an IPv4 endpoint by its address under the prefix.
    let is_end = |end: &Endpoint, ip: IpAddr| match (end.ip(), ip, prefix) {
        (IpAddr::V4(v4), IpAddr::V6(v6), Some(prefix)) => prefix.embed(v4) == v6,
        (end, ip, _) => end == ip,
    };
    // Mapped are endpoints of the IP version outside.
    let mapped = if is_across { answers } else { protocol };
    // The call ID inside is in no key.
    let is_call = Protocol(protocol) == Protocol::GRE && record.original.sport == Key::CALL;
    // The flow shows the source that the mapping says, and the destination that the other one says.
    let mapping = record.mapping.is_none_or(|MappingRecord { nat, inside, outside }| {
        let shown = [
            (inside, record.original.source, if is_call { inside.port } else { original.sport() }),
            (outside, record.reply.destination, reply.dport()),
        ];
        let is_shown = |(end, ip, port): &(Endpoint, IpAddr, u16)| {
            is_end(end, *ip) && end.port == *port && end.protocol == mapped
        };
        (record.source != Through::None || nat == Some(OWN_ACCORD)) && shown.iter().all(is_shown)
    });
    let inward = record.inward.is_none_or(|MappingRecord { inside, outside, .. }| {
        is_end(&outside, record.original.destination) && inside.ip() == record.reply.source
    });
    let handshake = match record.handshake {
        Handshake::Direct => true,
        // SIP, and its media; calls of PPTP.
        Handshake::Helped(_) | Handshake::Related => {
            is_call || matches!(Protocol(protocol), Protocol::TCP | Protocol::UDP)
        }
        Handshake::Shown(_) | Handshake::Spliced(_) => protocol == Protocol::TCP.0,
    };
    state && family && mapping && inward && handshake
}

/// The conntrack zone of the interface by which packets to an address leave, by the routes of a VRF.
fn ct_zone_towards(tables: &Tables, vrf: VrfId, address: Address) -> u16 {
    let out = match tables.route(vrf, address, &mut NoTally).copied() {
        Some(Target::Link(link) | Target::Broadcast(link)) => link,
        Some(Target::Gateways { first, .. }) => {
            let way = tables.way(first, 1, 0, &mut NoTally);
            way.and_then(|way| tables.gateways.get(way as usize)).map_or(LOCAL, |gateway| gateway.interface)
        }
        Some(Target::Wans) => tables.wans.list.first().map_or(LOCAL, |wan| wan.interface),
        _ => LOCAL,
    };
    tables.ct_zone(out, vrf)
}
