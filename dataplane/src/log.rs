//! Log records of packets, connections and mappings, for a host that writes a log.
//!
//! A stage writes a record of fixed size into the shard's own memory, where the host has asked for that kind; the host takes
//! the records out between two batches, writes the time to them, and finds the names for them in the tables. Nothing here
//! waits or allocates: where the memory is full, the record is counted as lost. A host that never calls [`Log::keep`] has no
//! records, and pays one branch for the first packet of a flow.

use policy::model::{LogEvent, Logging};
use wire::{Nanos, PortId};

use crate::flow::{Cold, Ends, Flow, State, Tick};
use crate::nat::{BlockEvent, Endpoint, MappingId, Mappings};
use crate::tables::Tables;

/// Record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A packet met a rule with `log = true`: the first of its flow, or any one where nothing is tracked.
    Rule(RuleHit),
    /// A connection began.
    Opened(Opened),
    /// A connection ended.
    Closed(Closed),
    /// Source NAT made a mapping.
    Mapped(Mapped),
    /// The last flow that used a mapping has ended, and with it the mapping.
    Unmapped(Mapped),
    /// Source NAT gave a host a block of ports, or took one back.
    Block(BlockEvent),
}

/// A packet that met a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleHit {
    /// The rule, by place.
    pub rule: u32,
    /// Fate by the rule, as [`crate::verdict::Verdict::to_fate`] encodes it; 0 if the rule let the packet pass.
    pub fate: u16,
    /// The interface that the packet came in by.
    pub ingress: PortId,
    /// The interface that it was to leave by.
    pub egress: PortId,
    /// Zones of origin and destination.
    pub zones: [u8; 2],
    /// Addresses and ports as the rule saw them: destination after, source before translation. Of ICMP, type and code
    /// (type << 8 | code) in the place of the destination port.
    pub ends: Ends,
    /// Bytes of the IP packet.
    pub bytes: u16,
    /// TCP flags.
    pub tcp_flags: u8,
}

/// A connection that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Both ends of the connection.
    pub connection: Connection,
    /// The rule that let it in, by place; `u32::MAX` for none.
    pub rule: u32,
    /// The interface that its first packet leaves by.
    pub egress: PortId,
}

/// A connection that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Both ends of the connection.
    pub connection: Connection,
    /// Cause of the end.
    pub cause: Cause,
    /// Last state.
    pub state: State,
    /// Time at which the connection began.
    pub began: Nanos,
}

/// Both ends of a connection, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Ends in the first packet as it arrived. Of an ICMP query, the identifier is in the place of the source port.
    pub original: Ends,
    /// Ends in replies as they arrive.
    pub reply: Ends,
    /// The interface that the first packet came in by, by number.
    pub ingress: u32,
    /// Destination translation, by number.
    pub dnat: u32,
    /// Source translation, by number.
    pub snat: u32,
}

/// A mapping of source NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// The outside endpoint, as other hosts see it.
    pub outside: Endpoint,
    /// The pool of the mapping, by place in the tables' list; none if the tables no longer have it.
    pub pool: Option<u16>,
}

/// Cause for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection was idle for its timeout.
    Timeout,
    /// The connection was ended on request.
    Killed,
    /// The connection made room for another.
    Evicted,
    /// The present policy does not let the connection in, or translates it otherwise.
    Revoked,
}

/// Records that found no room, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets that met rules.
    pub rules: u64,
    /// Connections that began or ended.
    pub connections: u64,
    /// Mappings that were made or ended, and blocks of ports.
    pub mappings: u64,
}

/// The records of one shard that its host has not yet taken.
#[derive(Debug, Default)]
pub struct Log {
    records: Vec<Record>,
    capacity: usize,
    wants: Wants,
    lost: Lost,
}

/// Kinds of records to make.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    rules: bool,
    connections: bool,
    mappings: bool,
    blocks: bool,
}

impl Log {
    /// Takes memory for so many records, and from now on makes the records that the tables ask for.
    pub fn keep(&mut self, capacity: usize, tables: &Tables) {
        self.records.reserve_exact(capacity);
        self.capacity = capacity;
        self.follow(tables);
    }

    /// Makes the records that these tables ask for, where there is memory for any.
    pub fn follow(&mut self, tables: &Tables) {
        let is_kept = self.capacity > 0;
        let has = |event| is_kept && tables.log.has(event);
        let logs = || tables.filter.rules.iter().any(|rule| rule.log == Logging::On);
        self.wants = Wants {
            rules: has(LogEvent::Rule) && logs(),
            connections: has(LogEvent::Connection),
            mappings: has(LogEvent::Nat),
            blocks: has(LogEvent::NatBlock),
        };
    }

    /// Records, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns true if there is nothing to take.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns true if half the memory is used: time to take what is there.
    pub fn is_half_full(&self) -> bool {
        self.records.len() * 2 >= self.capacity
    }

    /// Forgets the records.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    /// Returns the counts of records that found no room, and resets them.
    pub fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    /// Returns true if packets that meet rules with `log = true` are recorded.
    #[inline(always)]
    pub(crate) fn wants_rules(&self) -> bool {
        self.wants.rules
    }

    /// Returns true if connections are recorded.
    #[inline(always)]
    pub(crate) fn wants_connections(&self) -> bool {
        self.wants.connections
    }

    /// Notes a record, or that there was no room for it.
    pub(crate) fn note(&mut self, record: Record) {
        if self.records.len() < self.capacity {
            self.records.push(record);
            return;
        }
        let lost = match record {
            Record::Rule(_) => &mut self.lost.rules,
            Record::Opened(_) | Record::Closed(_) => &mut self.lost.connections,
            Record::Mapped(_) | Record::Unmapped(_) | Record::Block(_) => &mut self.lost.mappings,
        };
        *lost += 1;
    }

    /// Notes that a connection ends; `start` is the moment of tick 0.
    pub(crate) fn note_closed(&mut self, flow: &Flow, cold: &Cold, cause: Cause, start: Nanos) {
        if !self.wants.connections {
            return;
        }
        let began = start + Nanos(u64::from(cold.created) * Tick::LENGTH.0);
        let connection = Connection::of(flow, cold);
        self.note(Record::Closed(Closed { connection, cause, state: flow.state(), began }));
    }

    /// Notes a mapping that has just been made, before anything else refers to it.
    pub(crate) fn note_mapped(&mut self, mappings: &Mappings, id: MappingId) {
        if self.wants.mappings {
            self.note_mapping(mappings, id, Record::Mapped);
        }
    }

    /// Notes a mapping that is about to lose a reference, if that is the last one.
    pub(crate) fn note_released(&mut self, mappings: &Mappings, id: MappingId) {
        if self.wants.mappings {
            self.note_mapping(mappings, id, Record::Unmapped);
        }
    }

    /// Notes a block of ports that a host has taken or given back.
    pub(crate) fn note_block(&mut self, event: BlockEvent) {
        if self.wants.blocks {
            self.note(Record::Block(event));
        }
    }

    #[cold]
    fn note_mapping(&mut self, mappings: &Mappings, id: MappingId, as_record: impl Fn(Mapped) -> Record) {
        let Some(mapping) = mappings.get(id).filter(|mapping| mapping.references == 1) else { return };
        let pool = mapping.pool.map(|pool| pool.0);
        self.note(as_record(Mapped { inside: mapping.inside, outside: mapping.outside, pool }));
    }
}

impl Connection {
    /// True if addresses or ports are translated.
    pub fn is_translated(&self) -> bool {
        let (there, back) = (&self.original, &self.reply);
        (there.source, there.destination) != (back.destination, back.source)
            || (there.ports().is_some() && (there.sport, there.dport) != (back.dport, back.sport))
    }

    /// Returns both ends of a flow.
    pub(crate) fn of(flow: &Flow, cold: &Cold) -> Connection {
        Connection {
            original: Ends::of(flow.original()),
            reply: Ends::of(flow.reply()),
            ingress: cold.ingress,
            dnat: cold.dnat,
            snat: cold.snat,
        }
    }
}
