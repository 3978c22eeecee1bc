//! Port mappings: outside ports that hosts ask for, or an operator for them (RFC 6887, MAP).
//!
//! A port mapping is a reference to a mapping of source NAT, for a time: the port is the pool's own, so that no other mapping gets it; what
//! its host sends from the inside port leaves by the outside port; and new flows from outside find the inside end by the mapping, as
//! those of any mapping do. What is more is that they are accepted, where no rule decides on them.
//!
//! - A packet is accepted as long as its own time is before the end: expiry is a comparison, the same on every host. The port is given
//!   back later, by the next change or a sweep.
//! - All mappings of a host are at the worker of its address, and have ports of that worker's share.
//! - All memory is taken for the sizes that the tables state.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tally::NoTally;
use wire::header::Protocol;
use wire::{Family, Frame, Nanos};

use crate::accounting::Accounting;
use crate::log::Log;
use crate::nat::{Endpoint, MappingId, Mappings, PoolId, PortRange, Refusal, WantedPort};
use crate::shard::{Shard, release};
use crate::stage::Cx;
use crate::tables::{Address, PortMappingSpec, Side, Tables, Target, VrfId};

mod label;
mod sync;

pub use label::Label;
pub use sync::{NotTaken, PortMappingRemoval, PortMappingUpdate, TakenPortMappings, UnmapCause, Version};

use sync::{Changes, Clock, Marks};

/// Time of mappings that stay until they are removed.
const NEVER: u64 = u64::MAX;

/// Request for an outside port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// Outside port.
    pub port: PortWish,
    /// Time that the mapping is to last, bounded by the policy where a host asks; `None`, of an operator: until it is removed.
    pub lasts: Option<Nanos>,
    /// Holder of the mapping.
    pub holder: Holder,
}

/// Outside port of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortWish {
    /// Any port, the inside port where it is free.
    Any,
    /// One port where it is free, else another.
    Suggested(u16),
    /// One port or none.
    Only(u16),
}

/// Holder of a mapping: who alone may change or remove it, besides an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Protocol of the request.
    pub by: MappedBy,
    /// Nonce of PCP, by which the client is known again; zeros otherwise.
    pub nonce: [u8; 12],
    /// Description.
    pub label: Label,
}

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappedBy {
    /// PCP (RFC 6887).
    Pcp,
    /// NAT-PMP (RFC 6886).
    NatPmp,
    /// An operator.
    Operator,
    /// UPnP-IGD (WANIPConnection:1 and 2).
    Upnp,
}

impl Holder {
    /// An operator, whose mapping has a description.
    pub fn operator(label: Label) -> Holder {
        Holder { by: MappedBy::Operator, nonce: [0; 12], label }
    }

    /// True if this one may change what the other holds.
    fn may_change(&self, other: &Holder) -> bool {
        self.by == MappedBy::Operator || (self.by == other.by && self.nonce == other.nonce)
    }
}

/// A port mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// The outside endpoint.
    pub outside: Endpoint,
    /// Moment from which on the mapping is over; `None`: never.
    pub until: Option<Nanos>,
    /// Holder.
    pub holder: Holder,
}

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum PortRefusal {
    /// No translation with a `port-mapping` is for the host.
    #[error("no translation lets the host ask for outside ports")]
    NotAllowed,
    /// Protocols other than TCP and UDP.
    #[error("only TCP and UDP ports are mapped")]
    Protocol,
    /// Another holder has the mapping.
    #[error("the mapping is another client's")]
    NotHolder,
    /// The host has as many mappings as the policy allows, or as many ports as its quota.
    #[error("the host has as many mappings or ports as it may have")]
    HostFull,
    /// The translation has as many mappings as the policy allows, or the table of translations is full.
    #[error("there is no room for another mapping")]
    TableFull,
    /// That port, or every one, is in use, set aside or not to be asked for.
    #[error("the port is in use, set aside, or may not be asked for")]
    PortTaken,
    /// The translation has no outside address now.
    #[error("the translation has no outside address now")]
    NoAddress,
}

/// News of a mapping, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMappingNews {
    /// Mapping.
    pub mapping: PortMapping,
    /// Event.
    pub event: PortMappingEvent,
}

/// Event of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMappingEvent {
    /// The mapping was made.
    Made,
    /// The mapping has reached its end.
    Expired,
    /// A request has removed the mapping.
    Removed,
    /// The policy, or the outside address, no longer has the mapping.
    Gone,
}

/// Counts of port mappings in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMappingReport {
    /// Mappings that exist, by origin; some of them may be over.
    pub live: MappingsByOrigin,
    /// Mappings made.
    pub made: u64,
    /// Requests refused.
    pub refused: u64,
    /// Mappings that have expired.
    pub expired: u64,
}

/// Numbers of port mappings by the origin of their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingsByOrigin {
    /// By PCP.
    pub pcp: u32,
    /// By NAT-PMP.
    pub nat_pmp: u32,
    /// By UPnP.
    pub upnp: u32,
    /// By an operator.
    pub operator: u32,
}

impl MappingsByOrigin {
    fn count(&mut self, by: MappedBy) {
        *match by {
            MappedBy::Pcp => &mut self.pcp,
            MappedBy::NatPmp => &mut self.nat_pmp,
            MappedBy::Upnp => &mut self.upnp,
            MappedBy::Operator => &mut self.operator,
        } += 1;
    }
}

/// Port mappings of a shard.
pub struct PortMappings {
    records: Vec<Record>,
    /// End of each, by the number of its NAT mapping.
    ends: HashMap<u32, u64>,
    /// The earliest end.
    due: u64,
    news: Vec<PortMappingNews>,
    report: PortMappingReport,
    /// Clock of the versions of mappings.
    clock: Clock,
    /// Changes that a second gateway is told of, where there is one.
    changes: Option<Changes>,
}

/// Parts of a shard that have to do with the release of a NAT mapping.
type Releasing<'a> = (&'a mut Mappings, &'a mut Log, &'a mut Accounting);

/// A port mapping in memory, which holds a reference to its NAT mapping.
#[derive(Clone, Copy)]
struct Record {
    mapping: MappingId,
    inside: Endpoint,
    until: u64,
    holder: Holder,
    version: Version,
    marks: Marks,
}

/// End of a mapping, for whoever is told of it.
#[derive(Clone, Copy)]
enum Ending {
    /// An event: it is news, and what a second gateway has to know.
    Event(PortMappingEvent),
    /// The second gateway has told of the end.
    ByPeer,
}

impl PortMappings {
    /// Takes memory for the mappings that the tables allow. `node` is a number that no other gateway has.
    pub(crate) fn new(tables: &Tables, node: u64) -> PortMappings {
        let most = tables.nat.port_mappings.iter().map(|spec| spec.size as usize).sum();
        PortMappings {
            records: Vec::with_capacity(most),
            // Twice as many: one that is full of what was removed makes room in place, and not by growing.
            ends: HashMap::with_capacity(2 * most),
            due: NEVER,
            // The host takes them after each turn.
            news: Vec::with_capacity(most + 1),
            report: PortMappingReport::default(),
            clock: Clock::new(node),
            changes: Changes::new(tables),
        }
    }

    /// True if new flows from outside are accepted by a NAT mapping at a moment.
    #[inline]
    pub(crate) fn is_open(&self, mapping: MappingId, now: Nanos) -> bool {
        !self.ends.is_empty() && self.ends.get(&mapping.0).is_some_and(|until| now.0 < *until)
    }

    /// True if a mapping is over, and holds its port.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.due <= now.0
    }

    /// Returns the counts.
    pub fn report(&self) -> PortMappingReport {
        let mut live = MappingsByOrigin::default();
        self.records.iter().for_each(|record| live.count(record.holder.by));
        PortMappingReport { live, ..self.report }
    }

    /// Number of mappings.
    pub(crate) fn len(&self) -> u32 {
        self.records.len() as u32
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<PortMappings>()
            + self.records.capacity() * size_of::<Record>()
            + self.ends.capacity() * size_of::<(u32, u64)>()
            + self.news.capacity() * size_of::<PortMappingNews>()
            + self.changes.as_ref().map_or(0, Changes::bytes)
    }

    /// The mapping in a place, with its NAT mapping.
    pub(crate) fn at(&self, place: u32, mappings: &Mappings) -> Option<(PortMapping, MappingId)> {
        let record = self.records.get(place as usize)?;
        Some((view(record, mappings)?, record.mapping))
    }

    fn find(&self, inside: &Endpoint) -> Option<usize> {
        self.records.iter().position(|record| record.inside == *inside)
    }

    fn insert(&mut self, record: Record) {
        self.ends.insert(record.mapping.0, record.until);
        self.due = self.due.min(record.until);
        self.records.push(record);
    }

    fn note_due(&mut self) {
        self.due = self.records.iter().map(|record| record.until).min().unwrap_or(NEVER);
    }

    /// Ends mappings that `is_over` names, and gives their ports back.
    fn end(
        &mut self,
        (mappings, log, accounting): Releasing<'_>,
        ending: Ending,
        mut is_over: impl FnMut(&Record, &Mappings) -> bool,
    ) -> u32 {
        let before = self.records.len();
        let PortMappings { records, ends, news, changes, .. } = self;
        records.retain(|record| {
            let ends_now = is_over(record, mappings);
            if ends_now {
                if let Ending::Event(event) = ending {
                    news.extend(view(record, mappings).map(|mapping| PortMappingNews { mapping, event }));
                    changes.iter_mut().for_each(|changes| changes.note_ended(record, event));
                }
                ends.remove(&record.mapping.0);
                release(mappings, log, accounting, record.mapping);
            }
            !ends_now
        });
        self.note_due();
        (before - self.records.len()) as u32
    }

    /// Ends the mappings that are over.
    fn sweep(&mut self, releasing: Releasing<'_>, now: Nanos) {
        let ended =
            self.end(releasing, Ending::Event(PortMappingEvent::Expired), |record, _| record.until <= now.0);
        self.report.expired += u64::from(ended);
    }

    /// Takes over the mappings that these tables still allow, from memory for other tables.
    pub(crate) fn take_over(&mut self, shard: &mut Shard, tables: &Tables) {
        let mut counts = vec![0; tables.nat.port_mappings.len()];
        let Shard { port_mappings: before, mappings, log, accounting, .. } = shard;
        let gone = Ending::Event(PortMappingEvent::Gone);
        before.end((mappings, log, accounting), gone, |record, mappings| {
            let outside = mappings.get(record.mapping).and_then(|own| Some((own.pool?, own.outside.port)));
            let spec = outside.and_then(|(pool, port)| Some((spec_of_pool(tables, pool)?, port)));
            let Some(((place, spec), port)) = spec else { return true };
            counts[place] += 1;
            counts[place] > spec.size || !spec.allows(record.holder.by, port)
        });
        self.records.append(&mut before.records);
        self.ends.extend(before.ends.drain());
        self.due = before.due;
        self.go_on_from(before);
    }

    /// Goes on with the counts, versions and changes of mappings that were moved here.
    pub(crate) fn go_on_from(&mut self, before: &mut PortMappings) {
        self.report = before.report;
        self.news.append(&mut before.news);
        // Those that were moved one by one are here in the same order.
        let mut were = before.records.iter();
        for record in &mut self.records {
            if let Some(was) = were.find(|was| was.inside == record.inside) {
                (record.version, record.marks) = (was.version, was.marks);
            }
        }
        self.clock = before.clock;
        std::mem::swap(&mut self.changes, &mut before.changes);
    }
}

impl Shard {
    /// Makes a port mapping, or changes the end of one that is there.
    ///
    /// # Errors
    /// [`PortRefusal`]; nothing is changed.
    pub fn map_port(
        &mut self,
        tables: &Tables,
        request: &PortRequest,
        now: Nanos,
    ) -> Result<PortMapping, PortRefusal> {
        self.expire_port_mappings(now);
        let mapped = self.map_port_now(tables, request, now);
        if mapped.is_err() {
            self.port_mappings.report.refused += 1;
        }
        mapped
    }

    fn map_port_now(
        &mut self,
        tables: &Tables,
        request: &PortRequest,
        now: Nanos,
    ) -> Result<PortMapping, PortRefusal> {
        let PortRequest { inside, port, lasts, holder } = *request;
        if ![Protocol::TCP.0, Protocol::UDP.0].contains(&inside.protocol) {
            return Err(PortRefusal::Protocol);
        }
        let (number, spec) = self.spec_of_host(tables, &inside, now).ok_or(PortRefusal::NotAllowed)?;
        let lasts = match holder.by {
            MappedBy::Operator => lasts,
            MappedBy::Upnp => {
                let most = spec.upnp.ok_or(PortRefusal::NotAllowed)?;
                Some(lasts.unwrap_or(most).min(most))
            }
            MappedBy::Pcp | MappedBy::NatPmp => Some(lasts.unwrap_or(spec.lifetime).min(spec.lifetime)),
        };
        let until = lasts.map_or(NEVER, |lasts| now.0.saturating_add(lasts.0));
        let Shard { port_mappings, mappings, log, .. } = self;
        if let Some(at) = port_mappings.find(&inside) {
            return port_mappings.renew(at, request, until, mappings);
        }
        let (mut own, mut all) = (0, 0);
        for record in &port_mappings.records {
            let pool = mappings.pool_of(record.mapping);
            let is_of = pool.and_then(|pool| spec_of_pool(tables, pool)).is_some_and(|(of, _)| of == number);
            all += u32::from(is_of);
            own += u32::from(record.inside.address == inside.address);
        }
        if own >= spec.per_host {
            return Err(PortRefusal::HostFull);
        }
        if all >= spec.size {
            return Err(PortRefusal::TableFull);
        }
        let wanted = WantedPort { ports: &spec.ports, wish: port };
        let mut refusal = PortRefusal::NoAddress;
        for pool in pools_of(tables, spec) {
            match mappings.map_port(pool, inside, &wanted) {
                Ok(mapped) => {
                    log.note_mapped(mappings, mapped.id);
                    port_mappings.insert_own(mapped.id, inside, until, holder);
                    port_mappings.report.made += 1;
                    let mapping =
                        PortMapping { inside, outside: mapped.outside, until: moment(until), holder };
                    port_mappings.news.push(PortMappingNews { mapping, event: PortMappingEvent::Made });
                    return Ok(mapping);
                }
                Err(Refusal::NoAddress | Refusal::NoPool) => {}
                Err(other) => {
                    refusal = match other {
                        Refusal::QuotaReached => PortRefusal::HostFull,
                        Refusal::TableFull => PortRefusal::TableFull,
                        _ => PortRefusal::PortTaken,
                    };
                    break;
                }
            }
        }
        Err(refusal)
    }

    /// Removes the mapping of an inside endpoint, or with port 0 all those that the holder has for its address and protocol. Returns the
    /// number of those removed.
    ///
    /// # Errors
    /// [`PortRefusal::NotHolder`]; nothing is changed.
    pub fn unmap_port(&mut self, inside: &Endpoint, holder: &Holder, now: Nanos) -> Result<u32, PortRefusal> {
        self.expire_port_mappings(now);
        let Shard { port_mappings, mappings, log, accounting, .. } = self;
        let is_meant = |record: &Record| {
            let own =
                Endpoint { port: if inside.port == 0 { 0 } else { record.inside.port }, ..record.inside };
            own == *inside
        };
        let may = |record: &Record| holder.may_change(&record.holder);
        let is_refused =
            inside.port != 0 && port_mappings.records.iter().any(|own| is_meant(own) && !may(own));
        if is_refused {
            port_mappings.report.refused += 1;
            return Err(PortRefusal::NotHolder);
        }
        Ok(port_mappings.end(
            (mappings, log, accounting),
            Ending::Event(PortMappingEvent::Removed),
            |own, _| is_meant(own) && may(own),
        ))
    }

    /// The translation by which a host may ask for ports: the first whose zones have the host's interface, and whose addresses have the host.
    fn spec_of_host<'a>(
        &self,
        tables: &'a Tables,
        inside: &Endpoint,
        now: Nanos,
    ) -> Option<(usize, &'a PortMappingSpec)> {
        let host = Address { bits: inside.address, v6: inside.family == Family::V6 };
        if host.v6 {
            return None;
        }
        let interface = match *tables.route(VrfId::DEFAULT, host, &mut NoTally)? {
            Target::Link(interface) => interface,
            Target::Gateways { first, count } => {
                let way = tables.way(first, count, 0, &mut NoTally)?;
                tables.gateways.get(way as usize)?.interface
            }
            Target::Local | Target::Broadcast(_) | Target::Wans | Target::Blackhole | Target::Unreachable => {
                return None;
            }
        };
        let zone = 1_u64 << tables.zone(interface);
        let sets = self.sets.bits(tables, Side::Source, host, now, &mut NoTally);
        let is_for = |spec: &PortMappingSpec| {
            spec.zones & zone != 0 && spec.hosts.iter().any(|hosts| hosts.has(host, sets))
        };
        tables.nat.port_mappings.iter().enumerate().find(|(_, spec)| is_for(spec))
    }

    /// Returns the outside address that a host's mappings get, if it may ask for any.
    ///
    /// # Errors
    /// [`PortRefusal::NotAllowed`], or [`PortRefusal::NoAddress`] where the translation has none now.
    pub fn mapped_address(
        &mut self,
        tables: &Tables,
        host: IpAddr,
        now: Nanos,
    ) -> Result<IpAddr, PortRefusal> {
        let inside = Endpoint::new(host, 0, 0);
        let (_, spec) = self.spec_of_host(tables, &inside, now).ok_or(PortRefusal::NotAllowed)?;
        let mut shown = pools_of(tables, spec)
            .filter_map(|pool| self.mappings.map_address(pool, inside, &mut NoTally).ok());
        shown.next().map(|outside| outside.ip()).ok_or(PortRefusal::NoAddress)
    }

    /// All port mappings that are not over, the oldest first; of a host alone, where one is given.
    pub fn port_mappings(&self, host: Option<IpAddr>, now: Nanos) -> impl Iterator<Item = PortMapping> + '_ {
        let host = host.map(|host| Endpoint::new(host, 0, 0));
        let is_of = move |own: &Endpoint| {
            host.is_none_or(|host| (host.family, host.address) == (own.family, own.address))
        };
        let records = self.port_mappings.records.iter();
        let live = records.filter(move |record| now.0 < record.until && is_of(&record.inside));
        live.filter_map(|record| view(record, &self.mappings))
    }

    /// Takes the news of port mappings since the last call.
    pub fn take_port_mapping_news(&mut self) -> Vec<PortMappingNews> {
        self.port_mappings.news.drain(..).collect()
    }

    /// True if [`Shard::take_port_mapping_news`] has any.
    #[inline(always)]
    pub fn has_port_mapping_news(&self) -> bool {
        !self.port_mappings.news.is_empty()
    }

    /// Gives back the ports of port mappings that are over.
    pub fn expire_port_mappings(&mut self, now: Nanos) {
        if self.port_mappings.is_due(now) {
            let Shard { port_mappings, mappings, log, accounting, .. } = self;
            port_mappings.sweep((mappings, log, accounting), now);
        }
    }

    /// Takes in a port mapping whose NAT mapping is there, with a reference.
    pub(crate) fn restore_port_mapping(&mut self, mapping: MappingId, until: Option<Nanos>, holder: Holder) {
        let Some(inside) = self.mappings.get(mapping).map(|own| own.inside) else { return };
        let until = until.map_or(NEVER, |until| until.0);
        let (version, marks) = (self.port_mappings.clock.earliest(), Marks::default());
        self.port_mappings.insert(Record { mapping, inside, until, holder, version, marks });
    }

    /// True if there is room for another port mapping of a pool, and the inside endpoint has none.
    pub(crate) fn has_room_for_port_mapping(&self, inside: &Endpoint) -> bool {
        self.port_mappings.records.len() < self.port_mappings.records.capacity()
            && self.port_mappings.find(inside).is_none()
    }
}

impl PortMappings {
    fn renew(
        &mut self,
        at: usize,
        request: &PortRequest,
        until: u64,
        mappings: &Mappings,
    ) -> Result<PortMapping, PortRefusal> {
        let record = &mut self.records[at];
        if !request.holder.may_change(&record.holder) {
            return Err(PortRefusal::NotHolder);
        }
        let changed = Record { until, holder: request.holder, ..*record };
        let renewed = view(&changed, mappings).ok_or(PortRefusal::NoAddress)?;
        if matches!(request.port, PortWish::Only(port) if port != renewed.outside.port) {
            return Err(PortRefusal::PortTaken);
        }
        *record = changed;
        self.ends.insert(changed.mapping.0, until);
        self.note_due();
        self.note_changed(at);
        Ok(renewed)
    }
}

/// The NAT mapping by which a port mapping accepts a packet that no rule decides on, if one does.
#[inline(always)]
pub(crate) fn open_for<T>(frame: &Frame, cx: &Cx<'_, T>) -> Option<MappingId> {
    let mapping = cx.shard.openings.of(&frame.meta)?.inward?;
    cx.shard.port_mappings.is_open(mapping, frame.meta.received).then_some(mapping)
}

/// The port mapping that accepts a packet which no rule decides on, if one does.
pub(crate) fn of_frame<T>(frame: &Frame, cx: &Cx<'_, T>) -> Option<PortMapping> {
    let mapping = open_for(frame, cx)?;
    let record = cx.shard.port_mappings.records.iter().find(|record| record.mapping == mapping)?;
    view(record, &cx.shard.mappings)
}

fn view(record: &Record, mappings: &Mappings) -> Option<PortMapping> {
    let outside = mappings.get(record.mapping)?.outside;
    Some(PortMapping { inside: record.inside, outside, until: moment(record.until), holder: record.holder })
}

fn moment(until: u64) -> Option<Nanos> {
    (until != NEVER).then_some(Nanos(until))
}

fn spec_of_pool(tables: &Tables, pool: PoolId) -> Option<(usize, &PortMappingSpec)> {
    let source = tables.nat.owners.get(usize::from(pool.0))?.source;
    tables.nat.port_mappings.iter().enumerate().find(|(_, spec)| spec.source == source)
}

/// The pools of a translation that have IPv4 addresses.
fn pools_of<'a>(tables: &'a Tables, spec: &PortMappingSpec) -> impl Iterator<Item = PoolId> + 'a {
    let source = spec.source;
    let pools = (0..).map(PoolId).zip(&tables.nat.pools).zip(&tables.nat.owners);
    let own = pools.filter(move |((_, pool), owner)| {
        owner.source == source && pool.addresses.iter().any(|range| range.first.is_ipv4())
    });
    own.map(|((id, _), _)| id)
}

/// Ports that are in both lists of disjoint, ascending ranges.
pub(crate) fn common(some: &[PortRange], others: &[PortRange]) -> Vec<PortRange> {
    let all = some.iter().flat_map(|one| {
        others.iter().filter_map(|other| {
            let (first, last) = (one.first.max(other.first), one.last.min(other.last));
            (first <= last).then_some(PortRange { first, last })
        })
    });
    all.collect()
}
