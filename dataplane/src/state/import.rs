//! What another shard has remembered, taken in.

use std::net::IpAddr;

use policy::model::Mode;
use wire::Nanos;
use wire::ethernet::Mac;
use wire::header::Protocol;

use super::{FlowRecord, Item, MappingRecord, Refused, Through};
use crate::flow::{Former, Handshake, Key, Life, Refusal, State, Tick, Translated};
use crate::nat::{Endpoint, MappingId, PoolId, Restore};
use crate::shard::{NOTHING, Shard};
use crate::tables::{Address, LOCAL, NO_NUMBER, OWN_ACCORD, Tables, Target};

impl Shard {
    /// Takes in what another shard, or this one at another time, has given. Places in it are those of `tables`
    /// ([`Places::moved`](super::Places::moved) makes them so), which are the ones that the shard works with.
    ///
    /// # Errors
    /// [`Refused`]; the shard is as it was, but for the count.
    pub fn import(&mut self, tables: &Tables, item: &Item, now: Nanos) -> Result<(), Refused> {
        let outcome = match item {
            Item::Flow(flow) => self.import_flow(tables, flow, now),
            Item::Debt(debt) => self.import_debt(tables, debt, now),
            Item::Own(own) => {
                self.next_id = own.next_id;
                self.limiter.add_error_debt(own.errors, now);
                Ok(())
            }
        };
        self.imports.count(outcome);
        outcome
    }

    fn import_flow(&mut self, tables: &Tables, record: &FlowRecord, now: Nanos) -> Result<(), Refused> {
        if tables.mode == Mode::Stateless {
            return Err(Refused::Stateless);
        }
        let (original, reply) = (record.original.to_key(), record.reply.to_key());
        let (original, reply) = original.zip(reply).ok_or(Refused::Malformed)?;
        if !fits(record, &original, &reply) {
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
        let mapping = self.import_mapping(tables, record.mapping)?;
        let inward = match self.import_mapping(tables, record.inward) {
            Ok(inward) => inward,
            Err(refused) => {
                self.release(mapping);
                return Err(refused);
            }
        };
        let keys = [
            &original.in_ct_zone(interface.ct_zone),
            &reply.in_ct_zone(ct_zone_towards(tables, record.reply.source.into())),
        ];
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
        self.flows.note_sender(id, record.mac.map(Mac));
        if let Some(flow) = self.flows.flow_mut(id) {
            let [a, b] = [flow.original(), flow.reply()].map(|key| key.in_ct_zone(0));
            let is_plain = b == a.reversed() && record.handshake == Handshake::Direct;
            flow.set_translated(if is_plain { Translated::No } else { Translated::Yes });
        }
        if self.flows.set_handshake(id, record.handshake).is_err() {
            self.end_flow(id, &mut tally::NoTally);
            return Err(Refused::NameGone);
        }
        let rule = record.rule.and_then(|place| tables.filter.rules.get(place as usize));
        self.flows.set_idle(id, rule.map_or(0, |rule| rule.idle), &mut tally::NoTally);
        Ok(())
    }

    /// The number of a mapping made again, which it holds.
    fn import_mapping(&mut self, tables: &Tables, record: Option<MappingRecord>) -> Result<u32, Refused> {
        let Some(record) = record else { return Ok(NOTHING) };
        let nat = record.nat.ok_or(Refused::NameGone)?;
        let outside = record.outside.ip();
        let pools = tables.nat.pools.iter().zip(&tables.nat.owners).zip(0..);
        let mut own = pools.filter(|((pool, owner), _)| owner.source == nat && pool.has(outside));
        let pool =
            own.next().map(|(_, place)| PoolId(place)).ok_or(Refused::Mapping(Restore::AddressGone))?;
        let mapping = self.mappings.restore(pool, record.inside, record.outside).map_err(Refused::Mapping)?;
        Ok(mapping.0)
    }

    fn release(&mut self, mapping: u32) {
        if mapping != NOTHING {
            self.mappings.release(MappingId(mapping), &mut tally::NoTally);
        }
    }

    fn import_debt(
        &mut self,
        tables: &Tables,
        record: &super::DebtRecord,
        now: Nanos,
    ) -> Result<(), Refused> {
        let rule = tables.filter.rules.get(record.rule as usize).ok_or(Refused::NameGone)?;
        let Shard { limiter, flows, .. } = self;
        limiter.owe(rule, record, now, |key| flows.hash(key, &mut tally::NoTally))
    }
}

/// True if keys, state and mappings of a flow fit one another.
fn fits(record: &FlowRecord, original: &Key, reply: &Key) -> bool {
    let protocol = original.protocol();
    let tcp = |state: State| {
        matches!(state.life(), Life::TcpHalfOpen | Life::TcpEstablished | Life::TcpClosing | Life::TcpReset)
    };
    let state = match Protocol(protocol) {
        Protocol::TCP => tcp(record.state),
        Protocol::UDP => matches!(record.state.life(), Life::Udp | Life::UdpUnanswered),
        _ => record.state.life() == State::first(protocol).life(),
    };
    let family = original.family() == reply.family() && protocol == reply.protocol();
    // The flow shows the source that the mapping says, and the destination that the other one says.
    let mapping = record.mapping.is_none_or(|MappingRecord { nat, inside, outside }| {
        let shown = [
            (inside, record.original.source, original.sport()),
            (outside, record.reply.destination, reply.dport()),
        ];
        let is_shown = |(end, ip, port): &(Endpoint, IpAddr, u16)| {
            end.ip() == *ip && end.port == *port && end.protocol == protocol
        };
        (record.source != Through::None || nat == Some(OWN_ACCORD)) && shown.iter().all(is_shown)
    });
    let inward = record.inward.is_none_or(|MappingRecord { inside, outside, .. }| {
        outside.ip() == record.original.destination && inside.ip() == record.reply.source
    });
    let handshake = protocol == Protocol::TCP.0 || record.handshake == Handshake::Direct;
    state && family && mapping && inward && handshake
}

/// The conntrack zone of the interface by which packets to an address leave.
fn ct_zone_towards(tables: &Tables, address: Address) -> u16 {
    let out = match tables.route(address, &mut tally::NoTally) {
        Some(Target::Link(link) | Target::Broadcast(link)) => link,
        Some(Target::Gateways { first, .. }) => {
            let way = tables.way(first, 1, 0);
            way.and_then(|way| tables.gateways.get(way as usize)).map_or(LOCAL, |gateway| gateway.interface)
        }
        _ => LOCAL,
    };
    tables.interface(out).map_or(0, |interface| interface.ct_zone)
}
