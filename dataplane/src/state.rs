//! What a shard remembers, as plain data: to be shown, written down, and made again in another shard.
//!
//! [`Shard::export`](crate::Shard::export) gives it little by little, so that a worker can go on between the calls; what changes meanwhile is
//! given as it is when its turn comes. [`Shard::import`](crate::Shard::import) takes one item at a time. Another process, seed, clock and worker
//! may be at the other end, and other tables: items name interfaces, rules and translations by their places in the tables
//! that they were given with, and [`Places`] turns these into places in others, by name. What is taken in keeps its
//! outside ports, and is revalidated at its next packet. What is not possible any more is refused, with a
//! reason, and counted.
//!
//! Not in it: fragments, which live for seconds; frames; counters; neighbours, which the host tells.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use wire::header::{Ports, Protocol};
use wire::{Nanos, PortId};

use crate::flow::{FlowId, Handshake, Key, State, Windows};
use crate::nat::{Endpoint, Restore};
use crate::tables::{OWN_ACCORD, Tables, is_linux};

mod export;
mod import;

pub use export::Cursor;

/// Something that a shard remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // nearly all items are flows: a box each would cost more than it saves
pub enum Item {
    /// A flow.
    Flow(FlowRecord),
    /// A token debt under a rate.
    Debt(DebtRecord),
    /// What the gateway's own packets go on with.
    Own(OwnRecord),
}

impl Item {
    /// The item as it is when a span of time has gone by in which no packet came.
    #[must_use]
    pub fn aged(self, by: Nanos) -> Item {
        let later = |span: Nanos| Nanos(span.0.saturating_add(by.0));
        let less = |debt: Nanos| Nanos(debt.0.saturating_sub(by.0));
        match self {
            Item::Flow(flow) => {
                Item::Flow(FlowRecord { idle: later(flow.idle), age: later(flow.age), ..flow })
            }
            Item::Debt(record) => Item::Debt(DebtRecord { debt: less(record.debt), ..record }),
            Item::Own(own) => Item::Own(OwnRecord { errors: less(own.errors), ..own }),
        }
    }
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Its place in the table, until it ends.
    pub id: FlowId,
    /// Packets that go as the first one did, as they arrive.
    pub original: Ends,
    /// Packets that come back, as they arrive.
    pub reply: Ends,
    /// The interface that its first packet came in by, [`LOCAL`](crate::tables::LOCAL) for the gateway itself,
    /// [`OTHER`](crate::tables::OTHER) where Linux forwards it; `None` if it is gone.
    pub ingress: Option<PortId>,
    /// Where the connection stands.
    pub state: State,
    /// What is known of the sides of a TCP connection.
    pub windows: Windows,
    /// How long it has had no packet, to an eighth of a second.
    pub idle: Nanos,
    /// How long it has been there, likewise.
    pub age: Nanos,
    /// Standing before the tables that it is given with.
    pub standing: Standing,
    /// The rule that lets it in; `None` where a default does, or it has not been validated.
    pub rule: Option<u32>,
    /// Its destination translation, by place from 0.
    pub destination: Through,
    /// Its source translation, by place from 0.
    pub source: Through,
    /// The mapping that translates its source.
    pub mapping: Option<MappingRecord>,
    /// The mapping by which its first packet was let in from outside.
    pub inward: Option<MappingRecord>,
    /// What rules saw of its first packet beside its ends: of ICMP, type << 8 | code.
    pub kind: u16,
    /// Its DS field.
    pub ds_field: u8,
    /// Its TCP flags.
    pub tcp_flags: u8,
    /// The source address of its Ethernet frame, where rules have asked for such.
    pub mac: Option<[u8; 6]>,
    /// Who has made the handshake.
    pub handshake: Handshake,
}

/// Addresses and ports of packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// Where they come from.
    pub source: IpAddr,
    /// Where they go: of the same family.
    pub destination: IpAddr,
    /// Source port, or what stands for it ([`Key::query_ports`]).
    pub sport: u16,
    /// Destination port likewise.
    pub dport: u16,
    /// Transport protocol, as in the IP header.
    pub protocol: u8,
}

/// What an ICMP query asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpQuery {
    /// Type of the request.
    pub kind: u8,
    /// Its identifier.
    pub id: u16,
}

/// Standing of a flow before tables: validated by them, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// They let it in.
    Validated,
    /// Earlier ones did, or another shard's; its next packet brings it before them.
    Waits,
}

/// A translation that a flow may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Through {
    /// It has none.
    None,
    /// That at a place, from 0.
    Nat(u16),
    /// One that the tables have no more.
    Gone,
}

/// A mapping of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingRecord {
    /// The source translation whose pool it is from, by place from 0, or [`OWN_ACCORD`]; `None` if that, or its outside
    /// address, is gone.
    pub nat: Option<u16>,
    /// The inside end.
    pub inside: Endpoint,
    /// The outside end.
    pub outside: Endpoint,
}

/// The token debt under the rate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebtRecord {
    /// The rule, by place.
    pub rule: u32,
    /// The source that it is bounded for; `None` where that is the rule as a whole.
    pub source: Option<IpAddr>,
    /// In how much time as many may pass as the rate ever lets pass at once.
    pub debt: Nanos,
}

/// What the gateway's own packets go on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnRecord {
    /// The identification of the next one.
    pub next_id: u16,
    /// As in [`DebtRecord::debt`], of errors and resets.
    pub errors: Nanos,
}

/// Why an item was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// The interface that the flow began at is gone.
    InterfaceGone,
    /// A translation of the flow is gone, or the rule that the item is of.
    NameGone,
    /// The mapping cannot be made.
    Mapping(Restore),
    /// There are as many flows as there is memory for.
    TableFull,
    /// Another flow has the same ends.
    Taken,
    /// Nothing is tracked by these tables.
    Stateless,
    /// What it says does not fit together: families, or state and protocol.
    Malformed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::InterfaceGone => "the interface that it began at is gone",
            Refused::NameGone => "its translation or rule is gone",
            Refused::Mapping(restore) => return restore.fmt(f),
            Refused::TableFull => "the flow table is full",
            Refused::Taken => "another flow has the same ends",
            Refused::Stateless => "nothing is tracked",
            Refused::Malformed => "what it says does not fit together",
        })
    }
}

impl std::error::Error for Refused {}

/// What has been taken in, and what has not, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// Items.
    pub taken: u64,
    /// By the order of [`Refused`], and of [`Restore`] within that.
    refused: [u64; Imports::REASONS.len()],
}

impl Imports {
    /// Every reason.
    pub const REASONS: [Refused; 12] = [
        Refused::InterfaceGone,
        Refused::NameGone,
        Refused::Mapping(Restore::AddressGone),
        Refused::Mapping(Restore::PortTaken),
        Refused::Mapping(Restore::NotOurs),
        Refused::Mapping(Restore::Otherwise),
        Refused::Mapping(Restore::TableFull),
        Refused::Mapping(Restore::Malformed),
        Refused::TableFull,
        Refused::Taken,
        Refused::Stateless,
        Refused::Malformed,
    ];

    /// How many were refused for a reason.
    pub fn refused_for(&self, reason: Refused) -> u64 {
        let place = Imports::REASONS.iter().position(|known| *known == reason);
        place.map_or(0, |place| self.refused[place])
    }

    /// How many were refused.
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Counts what came of one item.
    pub fn count(&mut self, outcome: Result<(), Refused>) {
        let Err(reason) = outcome else {
            self.taken += 1;
            return;
        };
        if let Some(place) = Imports::REASONS.iter().position(|known| *known == reason) {
            self.refused[place] += 1;
        }
    }
}

/// Names in the order of their places in tables: what items refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Interfaces.
    pub interfaces: Vec<String>,
    /// Rules.
    pub rules: Vec<String>,
    /// Destination translations.
    pub destinations: Vec<String>,
    /// Source translations.
    pub sources: Vec<String>,
}

/// From places in some tables to places in others, by name.
#[derive(Clone, Debug)]
pub struct Places {
    interfaces: Vec<Option<u16>>,
    rules: Vec<Option<u32>>,
    destinations: Vec<Option<u16>>,
    sources: Vec<Option<u16>>,
}

impl Names {
    /// Those of tables.
    pub fn of(tables: &Tables) -> Names {
        Names {
            interfaces: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            rules: tables.filter.rules.iter().map(|rule| rule.name.clone()).collect(),
            destinations: tables.nat.destinations.iter().map(|nat| nat.name.clone()).collect(),
            sources: tables.nat.sources.iter().map(|nat| nat.name.clone()).collect(),
        }
    }

    /// Where they are in tables.
    pub fn places_in(&self, tables: &Tables) -> Places {
        let there = Names::of(tables);
        Places {
            interfaces: places(&self.interfaces, &there.interfaces),
            rules: places(&self.rules, &there.rules),
            destinations: places(&self.destinations, &there.destinations),
            sources: places(&self.sources, &there.sources),
        }
    }
}

/// The place of each name in another list.
fn places<P: TryFrom<usize>>(names: &[String], there: &[String]) -> Vec<Option<P>> {
    let known: HashMap<&str, usize> =
        there.iter().zip(0..).map(|(name, place)| (name.as_str(), place)).collect();
    names.iter().map(|name| P::try_from(*known.get(name.as_str())?).ok()).collect()
}

impl Places {
    /// The same item for those other tables; what they do not have is gone. An item that is all gone is refused when it is
    /// taken in.
    #[must_use]
    pub fn moved(&self, item: &Item) -> Item {
        match item {
            Item::Flow(flow) => Item::Flow(self.moved_flow(flow)),
            Item::Debt(debt) => {
                let rule = self.rules.get(debt.rule as usize).copied().flatten();
                Item::Debt(DebtRecord { rule: rule.unwrap_or(u32::MAX), ..*debt })
            }
            Item::Own(own) => Item::Own(*own),
        }
    }

    fn moved_flow(&self, flow: &FlowRecord) -> FlowRecord {
        let place = |list: &[Option<u16>], place: u16| list.get(usize::from(place)).copied().flatten();
        let through = |list, through| match through {
            Through::Nat(at) => place(list, at).map_or(Through::Gone, Through::Nat),
            other => other,
        };
        let mapping = |mapping: MappingRecord| MappingRecord {
            nat: mapping.nat.and_then(|nat| match nat {
                OWN_ACCORD => Some(OWN_ACCORD),
                nat => place(&self.sources, nat),
            }),
            ..mapping
        };
        let interface =
            |id: PortId| if is_linux(id) { Some(id) } else { place(&self.interfaces, id.0).map(PortId) };
        FlowRecord {
            ingress: flow.ingress.and_then(interface),
            standing: Standing::Waits,
            rule: flow.rule.and_then(|rule| self.rules.get(rule as usize).copied().flatten()),
            destination: through(&self.destinations, flow.destination),
            source: through(&self.sources, flow.source),
            mapping: flow.mapping.map(mapping),
            inward: flow.inward.map(mapping),
            ..*flow
        }
    }
}

impl Ends {
    /// Those of a key.
    pub fn of(key: &Key) -> Ends {
        Ends {
            source: key.source(),
            destination: key.destination(),
            sport: key.sport(),
            dport: key.dport(),
            protocol: key.protocol(),
        }
    }

    /// The protocol.
    fn kind(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// Both ports; `None` for protocols that have none.
    pub fn ports(&self) -> Option<Ports> {
        let Ends { sport, dport, .. } = *self;
        self.kind().has_ports().then_some(Ports { sport, dport })
    }

    /// What is asked by ICMP queries of this direction; `None` for other packets. Only of the direction that asks.
    pub fn query(&self) -> Option<IcmpQuery> {
        let icmp = if self.source.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
        let is_query = self.kind() == icmp;
        is_query.then_some(IcmpQuery { kind: self.dport as u8, id: self.sport })
    }

    /// The key, in no conntrack zone; `None` where the families differ.
    pub fn to_key(self) -> Option<Key> {
        let Ends { sport, dport, protocol, .. } = self;
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Some(Key::v4(from.to_bits(), to.to_bits(), sport, dport, protocol))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Some(Key::v6(from.to_bits(), to.to_bits(), sport, dport, protocol))
            }
            _ => None,
        }
    }
}

/// What flows are looked for; what is absent holds for every flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// An end of either direction is in it.
    pub host: Option<IpNet>,
    /// A port of either direction is it.
    pub port: Option<u16>,
    /// The identifier of ICMP queries, before or after translation, is it.
    pub icmp_id: Option<u16>,
    /// The transport protocol.
    pub protocol: Option<u8>,
    /// The interface that it began at.
    pub ingress: Option<PortId>,
    /// The rule that lets it in.
    pub rule: Option<u32>,
    /// Its destination translation, by place.
    pub destination: Option<u16>,
    /// Its source translation, by place.
    pub source: Option<u16>,
    /// Where the connection stands.
    pub state: Option<State>,
    /// Standing, where it is known.
    pub standing: Option<Standing>,
}

impl FlowFilter {
    /// True if a flow is one of them.
    pub fn admits(&self, flow: &FlowRecord) -> bool {
        let all = [flow.original, flow.reply];
        let host =
            |net: IpNet| all.iter().any(|ends| net.contains(&ends.source) || net.contains(&ends.destination));
        let port = |port| {
            let mut ports = all.iter().filter_map(Ends::ports);
            ports.any(|ports| ports.sport == port || ports.dport == port)
        };
        // The far end answers to what it sees.
        let icmp_id =
            |id| flow.original.query().is_some_and(|asked| asked.id == id || flow.reply.dport == id);
        self.host.is_none_or(host)
            && self.port.is_none_or(port)
            && self.icmp_id.is_none_or(icmp_id)
            && self.protocol.is_none_or(|protocol| flow.original.protocol == protocol)
            && self.ingress.is_none_or(|ingress| flow.ingress == Some(ingress))
            && self.rule.is_none_or(|rule| flow.rule == Some(rule))
            && self.destination.is_none_or(|place| flow.destination == Through::Nat(place))
            && self.source.is_none_or(|place| flow.source == Through::Nat(place))
            && self.state.is_none_or(|state| flow.state == state)
            && self.standing.is_none_or(|standing| flow.standing == standing)
    }
}
