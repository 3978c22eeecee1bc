//! Fit of programs and tables, of the sizes that a policy gives them, in the stores and memories of a mapping.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use config::Place as Spot;
use tally::Region;
use wire::Bytes;

use super::{Lines, Mapping, Place, Placement, Ring, Task, Work, stages};
use crate::description::{Chip, EngineKind};
use crate::diagnostic::{Code, Diagnostic};

/// Size of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The region.
    pub region: Region,
    /// Size, in bytes.
    pub bytes: u64,
}

/// Length of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// Name of a stage, "receive" or "transmit".
    pub name: &'a str,
    /// Length, in instructions.
    pub instructions: u32,
}

/// Returns a diagnostic for each misfit: regions in a shared memory, with the rings that lie there, or in an engine's
/// local memory, and the programs of an engine in its store. Regions and programs that are not listed take no room.
///
/// Of an engine with several tasks each stage is in the store once. Local memory holds what is placed there, and as
/// many cached lines of each region as the CAM has entries.
pub fn check_fit(
    chip: &Chip,
    mapping: &Mapping,
    lines: &Lines,
    extents: &[Extent],
    programs: &[Program<'_>],
) -> Vec<Diagnostic> {
    let fit = Fit { chip, mapping, lines, extents };
    let mut found = Vec::new();
    fit.memories(&mut found);
    fit.local(&mut found);
    fit.stores(programs, &mut found);
    Diagnostic::sort(&mut found);
    found
}

/// Bytes that tables, rings and linked lists take: those in shared memories once, and those in local memories once for each engine of
/// its kind that has stages; saturating. The room of frames that are under way is not counted.
pub fn bytes_placed(chip: &Chip, mapping: &Mapping, extents: &[Extent]) -> Bytes {
    let lines = Lines::default();
    let fit = Fit { chip, mapping, lines: &lines, extents };
    let sum = |loads: &[Load]| loads.iter().fold(0_u64, |sum, load| sum.saturating_add(load.bytes));
    let shared = (0..chip.memories.len()).map(|place| sum(&fit.shared_loads(place)));
    let has_local = |kind: &usize| chip.engines[*kind].local.is_some();
    let local = fit.working_kinds().into_iter().filter(has_local).map(|kind| {
        let engines = (0..chip.engines[kind].count).filter(|number| fit.works(kind, *number)).count() as u64;
        sum(&fit.local_loads(&chip.engines[kind])).saturating_mul(engines)
    });
    Bytes(shared.chain(local).fold(0, u64::saturating_add))
}

struct Fit<'a> {
    chip: &'a Chip,
    mapping: &'a Mapping,
    lines: &'a Lines,
    extents: &'a [Extent],
}

/// Something that takes room, with where it stands.
struct Load {
    what: String,
    bytes: u64,
    span: Range<usize>,
}

impl Fit<'_> {
    fn memories(&self, found: &mut Vec<Diagnostic>) {
        for (place, memory) in self.chip.memories.iter().enumerate() {
            let loads = self.shared_loads(place);
            let hint = "place a part elsewhere, or make tables smaller in the policy's [limit]";
            self.weigh(&loads, memory.bytes, &format!("the memory \"{}\"", memory.name), hint, found);
        }
    }

    /// Returns what lies in the shared memory at that place of the chip's list.
    fn shared_loads(&self, place: usize) -> Vec<Load> {
        let memory = &self.chip.memories[place];
        let lies_here = |placed: Place| matches!(placed, Place::Shared(at) | Place::Cached { memory: at, .. } if at == place);
        let mut loads = self.loads(lies_here);
        for (at, ring) in self.mapping.rings.iter().enumerate() {
            let kind = &self.chip.rings[ring.kind];
            if kind.memory.as_deref() == Some(memory.name.as_str()) {
                let bytes = u64::from(ring.entries).saturating_mul(kind.entry.0);
                loads.push(Load {
                    what: format!("the ring \"{}\"", ring.name),
                    bytes,
                    span: self.lines.rings.get(at).map_or(0..0, |entry| entry.span.clone()),
                });
            }
        }
        self.list_loads(place, &mut loads);
        loads
    }

    /// Adds the linked lists of units in that memory: their pointers, or the segments of frames.
    fn list_loads(&self, place: usize, loads: &mut Vec<Load>) {
        for unit in &self.chip.units {
            let Some(lists) = &unit.lists else { continue };
            let kept = |ring: &Ring| ring.is_kept_by(unit, self.chip);
            let Some(first) = self.mapping.rings.iter().position(kept) else { continue };
            let span = self.lines.rings.get(first).map_or(0..0, |entry| entry.span.clone());
            let mut load = |what: &str, bytes| {
                let what = format!("{what} of the unit \"{}\"", unit.name);
                loads.push(Load { what, bytes, span: span.clone() });
            };
            if self.chip.memories[place].name == lists.pointers {
                load("the pointers", lists.pointer_bytes());
            }
            let holds_frames = |placed: &Placement| {
                placed.region == Region::Frame
                    && matches!(placed.place, Place::Shared(at) | Place::Cached { memory: at, .. } if at == place)
            };
            if self.mapping.placements.iter().any(holds_frames) {
                load("the segments", u64::from(lists.segments).saturating_mul(lists.segment.0));
            }
        }
    }

    fn local(&self, found: &mut Vec<Diagnostic>) {
        for kind in self.working_kinds().into_iter().filter_map(|kind| self.chip.engines.get(kind)) {
            let Some(local) = kind.local else { continue };
            let loads = self.local_loads(kind);
            let what = format!("the local memory of an engine of the kind \"{}\"", kind.name);
            self.weigh(
                &loads,
                local.bytes,
                &what,
                "place a part in a shared memory: { memory = \"local\", end = \"1 KB\" }",
                found,
            );
        }
    }

    /// Returns what lies in the local memory of each engine of that kind.
    fn local_loads(&self, kind: &EngineKind) -> Vec<Load> {
        let mut loads = self.loads(|placed| placed == Place::Local);
        let entries = kind.cam.map_or(0, |cam| u64::from(cam.entries));
        for (placement, span) in self.placements() {
            if let Place::Cached { line, .. } = placement.place {
                let what = format!("{entries} lines of \"{}\"", placement.region.name());
                loads.push(Load { what, bytes: entries * u64::from(line), span });
            }
        }
        loads
    }

    /// Returns the kinds of engines that have stages, by their places in the chip's list.
    fn working_kinds(&self) -> Vec<usize> {
        let kinds = 0..self.chip.engines.len();
        kinds
            .filter(|kind| (0..self.chip.engines[*kind].count).any(|number| self.works(*kind, number)))
            .collect()
    }

    /// True if a pool with stages has threads on that engine.
    fn works(&self, kind: usize, number: u32) -> bool {
        self.mapping.pools.iter().any(|pool| {
            pool.tasks.iter().any(|task| !task.stages().is_empty()) && pool.place.has(kind, number)
        })
    }

    /// Returns the regions at the places that `lies_here` accepts, part by part: the first placement that holds an offset
    /// counts.
    fn loads(&self, lies_here: impl Fn(Place) -> bool) -> Vec<Load> {
        let mut loads = Vec::new();
        for extent in self.extents {
            let placements: Vec<(&Placement, Range<usize>)> =
                self.placements().filter(|(placement, _)| placement.region == extent.region).collect();
            let mut cuts: Vec<u64> =
                placements.iter().flat_map(|(placement, _)| [placement.first, placement.end]).collect();
            cuts.extend([0, extent.bytes]);
            cuts.retain(|cut| *cut <= extent.bytes);
            cuts.sort_unstable();
            cuts.dedup();
            let mut held: BTreeMap<usize, u64> = BTreeMap::new();
            for pair in cuts.windows(2) {
                let holds =
                    |(placement, _): &(&Placement, _)| (placement.first..placement.end).contains(&pair[0]);
                if let Some(place) = placements.iter().position(holds) {
                    *held.entry(place).or_default() += pair[1] - pair[0];
                }
            }
            for (place, bytes) in held {
                let (placement, span) = &placements[place];
                if lies_here(placement.place) {
                    let what = format!("\"{}\"", extent.region.name());
                    loads.push(Load { what, bytes, span: span.clone() });
                }
            }
        }
        loads
    }

    fn placements(&self) -> impl Iterator<Item = (&Placement, Range<usize>)> {
        let spans = self.lines.placements.iter().cloned().map(Some).chain(std::iter::repeat(None));
        self.mapping.placements.iter().zip(spans).map(|(placement, span)| (placement, span.unwrap_or(0..0)))
    }

    /// Complains if `loads` are more than `room`, at the largest of them.
    fn weigh(&self, loads: &[Load], room: Bytes, what: &str, hint: &str, found: &mut Vec<Diagnostic>) {
        let total = loads.iter().fold(0_u64, |total, load| total.saturating_add(load.bytes));
        if total <= room.0 {
            return;
        }
        let mut largest: Vec<&Load> = loads.iter().collect();
        largest.sort_by_key(|load| std::cmp::Reverse(load.bytes));
        let list: Vec<String> =
            largest.iter().take(3).map(|load| format!("{} {} B", load.what, load.bytes)).collect();
        let more = if largest.len() > 3 { " and others" } else { "" };
        let message = format!("{what} has {room}, but {total} B are to lie there: {}{more}", list.join(", "));
        found.push(
            Diagnostic::new(Code::MemoryFull, message).hint(hint).at(self.spot(largest[0].span.clone())),
        );
    }

    fn spot(&self, span: Range<usize>) -> Option<Spot> {
        self.lines.source.as_ref().map(|source| Spot::new(Arc::clone(source), span))
    }

    fn stores(&self, programs: &[Program<'_>], found: &mut Vec<Diagnostic>) {
        let stages = stages();
        // Engines with the same tasks are told of once.
        let mut told: Vec<Vec<usize>> = Vec::new();
        for (kind, engines) in self.chip.engines.iter().enumerate() {
            let Some(store) = engines.store else { continue };
            for number in 0..engines.count {
                let pools: Vec<usize> = (0..self.mapping.pools.len())
                    .filter(|pool| self.mapping.pools[*pool].place.has(kind, number))
                    .collect();
                let mut names: Vec<&str> = pools
                    .iter()
                    .flat_map(|pool| &self.mapping.pools[*pool].tasks)
                    .flat_map(|task| names(task, &stages))
                    .collect();
                names.sort_unstable();
                names.dedup();
                let length = |name: &&str| {
                    programs
                        .iter()
                        .find(|program| program.name == *name)
                        .map_or(0, |program| u64::from(program.instructions))
                };
                let total: u64 = names.iter().map(length).sum();
                if total > u64::from(store) && !told.contains(&pools) {
                    let order = |name: &str| stages.iter().position(|stage| *stage == name);
                    let mut parts: Vec<(&str, u64)> =
                        names.iter().map(|name| (*name, length(name))).collect();
                    // Receiving comes before all stages, and transmitting behind.
                    parts.sort_by_key(|(name, _)| {
                        order(name).unwrap_or(if *name == "receive" { 0 } else { stages.len() })
                    });
                    let hint = split(&parts, store);
                    parts.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
                    // Stages that the policy has no use for have no program.
                    let programs = parts.iter().filter(|(_, length)| *length > 0);
                    let list: Vec<String> =
                        programs.map(|(name, length)| format!("{name} {length}")).collect();
                    let message = format!(
                        "the store of engine {number} holds {store} instructions, but its programs have {total}: {}",
                        list.join(", ")
                    );
                    let span = pools
                        .first()
                        .and_then(|pool| self.lines.pools.get(*pool))
                        .map(|entry| entry.span.clone());
                    found.push(
                        Diagnostic::new(Code::StoreFull, message)
                            .hint(hint)
                            .at(span.and_then(|span| self.spot(span))),
                    );
                    told.push(pools);
                }
            }
        }
    }
}

/// Returns advice on programs, given in their order, that exceed a store together: a split into parts that fit one each.
fn split(programs: &[(&str, u64)], store: u32) -> String {
    let store = u64::from(store);
    if let Some((name, length)) = programs.iter().find(|(_, length)| *length > store) {
        return format!(
            "{name} alone has {length}: it needs an engine of a kind with a larger store, or a policy with fewer rules"
        );
    }
    // Each part: the first program and the last, and their length.
    let mut parts: Vec<(&str, &str, u64)> = Vec::new();
    for (name, length) in programs {
        match parts.last_mut() {
            Some((_, last, sum)) if *sum + length <= store => (*last, *sum) = (name, *sum + length),
            _ => parts.push((name, name, *length)),
        }
    }
    let parts = parts.iter().map(|(first, last, sum)| match first == last {
        true => format!("{first} {sum}"),
        false => format!("{first} to {last} {sum}"),
    });
    format!(
        "spread them over pools on engines of their own, with rings between, such as {}",
        parts.collect::<Vec<_>>().join(", ")
    )
}

/// The names of the programs of a task.
fn names<'a>(task: &Task, stages: &[&'a str]) -> Vec<&'a str> {
    match &task.work {
        Work::Receive(range) => [&["receive"], &stages[range.clone()]].concat(),
        Work::Transmit => vec!["transmit"],
        Work::Stages(range) => stages[range.clone()].to_vec(),
    }
}
