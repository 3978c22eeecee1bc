//! Port mappings that a second gateway is told of, and those that it tells.
//!
//! Each change of a mapping by a request is a version of it, of a Lamport clock: of two versions the later holds, at both gateways, in
//! whatever order they learn of them. What changes is marked, and read when it is told, so that a slow peer costs no memory and gets the
//! latest version. Removals go by a list of their own, of fixed size; where it overflows, the host begins a full synchronisation. A removal
//! ends the version that it is of, and none after that. Expiry is not told: times go as spans.
//!
//! A mapping that the peer has told of is a copy until a request here changes it: it is not told back, and goes when a full synchronisation
//! of the peer's leaves it out.

use std::cmp::Ordering;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wire::Nanos;
use wire::header::Protocol;

use super::{Ending, Holder, Label, NEVER, PortMappingEvent, PortMappings, Record, spec_of_pool};
use crate::nat::{Endpoint, MappingId, Restore};
use crate::shard::Shard;
use crate::state::{Ended, MappingRecord, PortMappingRecord};
use crate::sync::{CopySweep, Synced};
use crate::tables::Tables;

/// Removals that the host has not taken yet, at most.
const MOST_REMOVED: usize = 4096;

/// Version of a mapping: the time of its last change by a Lamport clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Count of the clock.
    count: u64,
    /// Number of the gateway that has made the change.
    node: u64,
}

impl Version {
    /// The last one of mappings that a gateway has from its state file.
    const RESTORED: Version = Version { count: 0, node: u64::MAX };
}

/// Lamport clock of a shard.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    last: Version,
}

impl Clock {
    pub(super) fn new(node: u64) -> Clock {
        Clock { last: Version { count: 0, node } }
    }

    /// Version of what was there before the clock began.
    pub(super) fn earliest(&self) -> Version {
        Version { count: 0, ..self.last }
    }

    fn next(&mut self) -> Version {
        self.last.count = self.last.count.saturating_add(1);
        self.last
    }

    fn note(&mut self, seen: Version) {
        self.last.count = self.last.count.max(seen.count);
    }
}

/// Marks of a mapping.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks {
    bits: u8,
    /// Round of the peer's that told of it last.
    round: u8,
}

/// In [`Marks::bits`]: the peer has told of the mapping, and no request here has changed it since.
const COPY: u8 = 1;
/// The mapping has changed since the peer was told.
const CHANGED: u8 = 2;

impl Marks {
    fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    fn copy(round: u8) -> Marks {
        Marks { bits: COPY, round }
    }
}

/// Changes of one shard's mappings that its host is to tell the peer of.
pub(super) struct Changes {
    /// False where no mapping is marked as changed.
    has_changed: bool,
    removed: VecDeque<PortMappingRemoval>,
    /// Removals that found no room.
    lost: u64,
}

/// A mapping as a second gateway is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMappingUpdate {
    /// The mapping.
    pub record: PortMappingRecord,
    /// Its version.
    pub version: Version,
}

/// A mapping that has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMappingRemoval {
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// Version that has ended.
    pub version: Version,
    /// Cause.
    pub cause: UnmapCause,
}

/// Cause of a mapping's end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmapCause {
    /// A request has removed it, or the version is superseded.
    Removed,
    /// The policy, or the outside address, no longer has it.
    Gone,
}

/// Changes of port mappings that a host takes at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakenPortMappings {
    /// Removals. They go before the mappings: the same endpoints may be mapped anew.
    pub removed: Vec<PortMappingRemoval>,
    /// Mappings that are new or have changed.
    pub mappings: Vec<PortMappingUpdate>,
    /// Removals that found no room since the last time.
    pub lost: u64,
}

/// Reason for not taking in a mapping that the peer has told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The translation is not here, or has no `port-mapping`.
    #[error("this policy has no translation of that name with a port-mapping")]
    NameGone,
    /// Port or protocol of the request is none that may be asked for.
    #[error("the port, or the protocol that it was asked by, is not allowed here")]
    NotAllowed,
    /// The host has as many mappings as the policy allows.
    #[error("the host has as many mappings as it may have here")]
    HostFull,
    /// The translation has as many mappings as the policy allows.
    #[error("there is no room for another here")]
    TableFull,
    /// The mapping cannot be made.
    #[error(transparent)]
    Mapping(Restore),
}

impl Changes {
    /// Takes memory, where these tables synchronise.
    pub(super) fn new(tables: &Tables) -> Option<Changes> {
        tables.synchronises.then(|| Changes {
            has_changed: false,
            removed: VecDeque::with_capacity(MOST_REMOVED),
            lost: 0,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.removed.capacity() * size_of::<PortMappingRemoval>()
    }

    /// Notes that a mapping ends, if the peer is to do likewise.
    pub(super) fn note_ended(&mut self, record: &Record, event: PortMappingEvent) {
        let cause = match event {
            PortMappingEvent::Removed => UnmapCause::Removed,
            // What the peer has made stays there, as its policy may.
            PortMappingEvent::Gone if !record.marks.has(COPY) => UnmapCause::Gone,
            PortMappingEvent::Gone | PortMappingEvent::Expired | PortMappingEvent::Made => return,
        };
        self.push(PortMappingRemoval { inside: record.inside, version: record.version, cause });
    }

    /// Notes that a version made here ends by the peer's word. The peer may hear of that version only after its own has ended, and would take
    /// it for a new mapping: the removal comes behind.
    fn note_superseded(&mut self, record: &Record) {
        let Record { inside, version, .. } = *record;
        self.push(PortMappingRemoval { inside, version, cause: UnmapCause::Removed });
    }

    fn push(&mut self, removal: PortMappingRemoval) {
        if self.removed.len() < self.removed.capacity() {
            self.removed.push_back(removal);
        } else {
            self.lost += 1;
        }
    }
}

impl PortMappings {
    /// Enters a mapping that a request here has made.
    pub(super) fn insert_own(&mut self, mapping: MappingId, inside: Endpoint, until: u64, holder: Holder) {
        let (version, marks) = (self.clock.earliest(), Marks::default());
        self.insert(Record { mapping, inside, until, holder, version, marks });
        self.note_changed(self.records.len() - 1);
    }

    /// Notes that a request here has changed a mapping.
    pub(super) fn note_changed(&mut self, at: usize) {
        let record = &mut self.records[at];
        record.version = self.clock.next();
        if let Some(changes) = &mut self.changes {
            record.marks = Marks { bits: CHANGED, round: 0 };
            changes.has_changed = true;
        }
    }

    /// True if there is anything that the peer is to be told.
    fn has_changes(&self) -> bool {
        let has = |changes: &Changes| changes.has_changed || !changes.removed.is_empty() || changes.lost > 0;
        self.changes.as_ref().is_some_and(has)
    }
}

impl Shard {
    /// True if [`Shard::take_port_mapping_changes`] has any.
    pub fn has_port_mapping_changes(&self) -> bool {
        self.port_mappings.has_changes()
    }

    /// Lists all mappings that are not the peer's as changed, for a full synchronisation. Removals stay listed: those of mappings that the
    /// peer has made are known by nothing else. Where some are lost, the full synchronisation stands for them.
    pub fn list_port_mappings_anew(&mut self) {
        let PortMappings { records, changes: Some(changes), .. } = &mut self.port_mappings else { return };
        changes.lost = 0;
        for record in records.iter_mut().filter(|record| !record.marks.has(COPY)) {
            record.marks.bits |= CHANGED;
            changes.has_changed = true;
        }
    }

    /// Takes all removals, and up to `most` mappings that have changed.
    pub fn take_port_mapping_changes(
        &mut self,
        tables: &Tables,
        now: Nanos,
        most: usize,
        into: &mut TakenPortMappings,
    ) {
        let Shard { port_mappings, mappings, .. } = self;
        let Some(changes) = &mut port_mappings.changes else { return };
        into.lost += std::mem::take(&mut changes.lost);
        into.removed.extend(changes.removed.drain(..));
        if !changes.has_changed {
            return;
        }
        let mut changed: Vec<Record> = Vec::new();
        changes.has_changed = false;
        for record in port_mappings.records.iter_mut().filter(|record| record.marks.has(CHANGED)) {
            if changed.len() == most {
                changes.has_changed = true;
                break;
            }
            record.marks.bits &= !CHANGED;
            changed.push(*record);
        }
        let live = changed.iter().filter(|record| now.0 < record.until);
        into.mappings.extend(live.filter_map(|record| {
            let own = mappings.get(record.mapping)?;
            let owner = own.pool.and_then(|pool| tables.nat.owners.get(usize::from(pool.0)))?;
            let (inside, outside) = (record.inside, own.outside);
            let mapping = MappingRecord { nat: Some(owner.source), inside, outside };
            let left = (record.until != NEVER).then(|| Nanos(record.until - now.0));
            let told = PortMappingRecord { mapping, left, holder: record.holder };
            Some(PortMappingUpdate { record: told, version: record.version })
        }));
    }

    /// Takes in a mapping that the peer tells of, in a round of its full synchronisations. Places in it are places in `tables`.
    ///
    /// # Errors
    /// [`NotTaken`]; an earlier version that was here has ended.
    pub fn take_in_port_mapping(
        &mut self,
        tables: &Tables,
        update: &PortMappingUpdate,
        now: Nanos,
        round: u8,
    ) -> Result<Synced, NotTaken> {
        self.expire_port_mappings(now);
        let PortMappingUpdate { record, version } = *update;
        let label = Label::of(record.holder.label.text());
        let holder = Holder { label, ..record.holder };
        let (inside, outside) = (record.mapping.inside, record.mapping.outside);
        let until = record.left.map_or(NEVER, |left| now.0.saturating_add(left.0));
        if until <= now.0 {
            return Ok(Synced::Older);
        }
        self.port_mappings.clock.note(version);
        let known = self.port_mappings.find(&inside);
        if let Some(at) = known {
            let own = &mut self.port_mappings.records[at];
            match version.cmp(&own.version) {
                Ordering::Less => return Ok(Synced::Older),
                Ordering::Equal => {
                    own.marks.round = round;
                    return Ok(Synced::Older);
                }
                Ordering::Greater => {}
            }
            if let Some(changes) = self.port_mappings.changes.as_mut().filter(|_| !own.marks.has(COPY)) {
                changes.note_superseded(own);
            }
            let is_same = self.mappings.get(own.mapping).is_some_and(|own| own.outside == outside);
            if is_same {
                (own.until, own.holder, own.version, own.marks) =
                    (until, holder, version, Marks::copy(round));
                let mapping = own.mapping;
                self.port_mappings.ends.insert(mapping.0, until);
                self.port_mappings.note_due();
                return Ok(Synced::Updated);
            }
            self.end_by_peer(|own| own.inside == inside);
        }
        self.check_port_mapping(tables, &inside, record.mapping.nat, &record)?;
        let mapping = match self.import_port_mapping(tables, &record) {
            Err(Restore::PortTaken) => {
                // The peer has given the port to another of its hosts: a copy of what it was before is outdated.
                let former = self.port_mappings.records.iter().find(|own| {
                    let shown = self.mappings.get(own.mapping).map(|mapping| mapping.outside);
                    own.marks.has(COPY) && shown == Some(outside)
                });
                let Some(inside) = former.map(|own| own.inside) else {
                    return Err(NotTaken::Mapping(Restore::PortTaken));
                };
                self.end_by_peer(|own| own.inside == inside);
                self.import_port_mapping(tables, &record)
            }
            imported => imported,
        };
        let mapping = mapping.map_err(NotTaken::Mapping)?;
        let marks = Marks::copy(round);
        self.port_mappings.insert(Record { mapping, inside, until, holder, version, marks });
        Ok(if known.is_some() { Synced::Updated } else { Synced::Created })
    }

    /// Checks that the policy here allows a mapping, and that there is room for it.
    fn check_port_mapping(
        &self,
        tables: &Tables,
        inside: &Endpoint,
        nat: Option<u16>,
        record: &PortMappingRecord,
    ) -> Result<(), NotTaken> {
        let specs = &tables.nat.port_mappings;
        let number = specs.iter().position(|spec| Some(spec.source) == nat).ok_or(NotTaken::NameGone)?;
        let is_known = [Protocol::TCP.0, Protocol::UDP.0].contains(&inside.protocol) && inside.port != 0;
        if !is_known || !specs[number].allows(record.holder.by, record.mapping.outside.port) {
            return Err(NotTaken::NotAllowed);
        }
        let (mut own, mut all) = (0, 0);
        for known in &self.port_mappings.records {
            let pool = self.mappings.pool_of(known.mapping);
            let of = pool.and_then(|pool| spec_of_pool(tables, pool));
            all += u32::from(of.is_some_and(|(of, _)| of == number));
            own += u32::from((known.inside.family, known.inside.address) == (inside.family, inside.address));
        }
        if own >= specs[number].per_host {
            return Err(NotTaken::HostFull);
        }
        if all >= specs[number].size {
            return Err(NotTaken::TableFull);
        }
        Ok(())
    }

    /// Ends a mapping that has ended at the peer's, unless a request here has changed it since.
    pub fn end_synced_port_mapping(&mut self, removal: &PortMappingRemoval) -> Ended {
        self.port_mappings.clock.note(removal.version);
        let Some(at) = self.port_mappings.find(&removal.inside) else { return Ended::Before };
        let own = self.port_mappings.records[at];
        let is_copy = own.marks.has(COPY);
        if own.version > removal.version || (removal.cause == UnmapCause::Gone && !is_copy) {
            return Ended::Before;
        }
        if let Some(changes) = self.port_mappings.changes.as_mut().filter(|_| !is_copy) {
            changes.note_superseded(&own);
        }
        self.end_by_peer(|record| record.inside == own.inside);
        Ended::Now
    }

    /// Sweeps the copies of the peer's mappings, of which `most` are ended at once. Returns the number of those ended; fewer than `most`: all
    /// have been seen.
    pub fn sweep_port_mapping_copies(&mut self, sweep: CopySweep, most: u32) -> u32 {
        match sweep {
            CopySweep::Adopt => {
                let PortMappings { records, changes, .. } = &mut self.port_mappings;
                records.iter_mut().for_each(|own| own.marks.bits &= !COPY);
                // The clock of the peer begins anew: what hosts have asked of it since is no version that has ended.
                let removed = changes.iter_mut().flat_map(|changes| &mut changes.removed);
                removed.for_each(|removal| removal.version = Version::RESTORED);
                0
            }
            CopySweep::Purge { round } => {
                let mut left = most;
                self.end_by_peer(|own| {
                    let ends = left > 0 && own.marks.has(COPY) && own.marks.round != round;
                    left -= u32::from(ends);
                    ends
                })
            }
        }
    }

    /// Ends mappings of which the peer is not told.
    fn end_by_peer(&mut self, mut is_over: impl FnMut(&Record) -> bool) -> u32 {
        let Shard { port_mappings, mappings, log, accounting, .. } = self;
        port_mappings.end((mappings, log, accounting), Ending::ByPeer, |record, _| is_over(record))
    }
}
