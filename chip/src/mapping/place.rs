//! Places of regions.

use std::ops::Range;

use tally::Region;
use toml::Spanned;
use toml::de::DeValue;

use super::{Lines, Mapping, Place, Placement, PoolPlace};
use crate::description::{Chip, EngineKind, UnitWork, bound};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

/// Keys of a part of a region.
pub(super) const KEYS: [&str; 4] = ["memory", "cache", "first", "end"];

/// Regions that are only read while frames pass, so that each engine may have a copy of its own.
const READ_ONLY: [Region; 4] = [Region::RuleTable, Region::RouteTable, Region::HopTable, Region::CipherTable];

/// Regions of tables that a unit can keep and search.
const SEARCHED: [Region; 6] = [
    Region::FlowIndex,
    Region::FlowTable,
    Region::RuleTable,
    Region::RouteTable,
    Region::HopTable,
    Region::NatTable,
];

/// A part of a region, as it is written.
struct Part {
    first: u64,
    end: u64,
    place: Place,
    span: Range<usize>,
}

pub(super) fn placements(
    sink: &Sink,
    top: &mut Table<'_, '_, '_>,
    chip: &Chip,
    mapping: &Mapping,
    lines: &mut Lines,
) -> Vec<Placement> {
    let whole = top.raw("region").map_or(0..0, |value| value.span());
    lines.regions = whole.clone();
    let mut written: Vec<(Region, Vec<Part>, Range<usize>)> = Vec::new();
    let mut broken: Vec<Region> = Vec::new();
    let mut default: Option<Option<Part>> = None;
    let names: Vec<&str> = ["default"].into_iter().chain(Region::ALL.map(Region::name)).collect();
    for (name, value) in config::section(top, "region") {
        let place = match value::find(name.get_ref(), &names, "region", Code::UnknownRegion) {
            Ok(place) => place,
            Err(complaint) => {
                sink.report(complaint, name.span());
                continue;
            }
        };
        let parts = parts(sink, value, chip);
        let Some(region) = place.checked_sub(1).map(|place| Region::ALL[place]) else {
            default = Some(parts.and_then(|mut parts| parts.pop()));
            continue;
        };
        match parts {
            Some(parts) => {
                for part in &parts {
                    if let Err(complaint) = fits_there(region, part.place, chip, mapping) {
                        sink.report(complaint, part.span.clone());
                    }
                }
                written.push((region, parts, name.span()));
            }
            None => broken.push(region),
        }
    }
    let mut placements = Vec::new();
    let mut nowhere = Vec::new();
    let memory = chip.memories.first().map_or("sram", |memory| &memory.name);
    for region in Region::ALL.into_iter().filter(|region| !broken.contains(region)) {
        let (parts, span) = match written.iter().position(|(named, _, _)| *named == region) {
            Some(place) => {
                let (_, parts, span) = written.swap_remove(place);
                (parts, span)
            }
            None => (Vec::new(), whole.clone()),
        };
        let hole = hole(&parts);
        for part in parts {
            placements.push(Placement { region, first: part.first, end: part.end, place: part.place });
            lines.placements.push(part.span);
        }
        let Some(hole) = hole else { continue };
        match &default {
            Some(Some(part)) => {
                if let Err(complaint) = fits_there(region, part.place, chip, mapping) {
                    sink.report(complaint, part.span.clone());
                }
                placements.push(Placement { region, first: 0, end: u64::MAX, place: part.place });
                lines.placements.push(part.span.clone());
            }
            Some(None) => {}
            None if hole == 0 => nowhere.push(region.name()),
            None => {
                let message = format!("the region \"{}\" lies nowhere from byte {hole} on", region.name());
                let complaint = Complaint::new(Code::UnplacedRegion, message);
                let hint = format!("place the rest, too: {{ memory = \"{memory}\", first = {hole} }}");
                sink.report(complaint.hint(hint), span);
            }
        }
    }
    if let Some(first) = nowhere.first() {
        let (kind, verb) = if nowhere.len() == 1 { ("region", "lies") } else { ("regions", "lie") };
        let message = format!("the {kind} {} {verb} nowhere", nowhere.join(", "));
        let hint = format!(
            "write {first} = \"{memory}\" in [region], or default = \"{memory}\" for all that is not listed"
        );
        sink.report(Complaint::new(Code::UnplacedRegion, message).hint(hint), whole);
    }
    placements
}

/// The first byte that no part holds; `None` where they hold all.
fn hole(parts: &[Part]) -> Option<u64> {
    let mut at = 0;
    while let Some(part) = parts.iter().find(|part| part.first <= at && at < part.end) {
        if part.end == u64::MAX {
            return None;
        }
        at = part.end;
    }
    Some(at)
}

/// The parts that `value` says; `None` where something is wrong with it.
fn parts(sink: &Sink, value: &Spanned<DeValue<'_>>, chip: &Chip) -> Option<Vec<Part>> {
    match value.get_ref() {
        DeValue::Array(items) if !items.is_empty() => {
            let parts: Vec<Option<Part>> = items.iter().map(|item| part(sink, item, chip)).collect();
            parts.into_iter().collect()
        }
        _ => part(sink, value, chip).map(|part| vec![part]),
    }
}

fn part(sink: &Sink, value: &Spanned<DeValue<'_>>, chip: &Chip) -> Option<Part> {
    let span = value.span();
    let DeValue::Table(_) = value.get_ref() else {
        let place = place(value.get_ref(), chip).map_err(|complaint| sink.report(complaint, span.clone()));
        return Some(Part { first: 0, end: u64::MAX, place: place.ok()?, span });
    };
    let mut table = Table::of(sink, value, "a place")?;
    let place = table.require("memory", "\"sram\"", |value| place(value, chip));
    let line = table.take("cache", |value| {
        let line = value::bytes(value)?;
        u32::try_from(line.0).ok().filter(|line| *line <= bound::ENTRIES).ok_or_else(|| {
            let complaint = Complaint::new(config::Code::BadNumber, format!("{line} is too long for a line"));
            complaint.hint(format!("up to {} B", bound::ENTRIES))
        })
    });
    let first = table.take("first", value::offset).unwrap_or(0);
    let end = table.take("end", value::offset).unwrap_or(u64::MAX);
    if end <= first {
        let complaint =
            Complaint::new(Code::Contradiction, format!("the part ends at byte {end}, before it begins"));
        table.complain(complaint.hint("`end` is the first byte after it"));
    }
    let place = match (place, line) {
        (Some(Place::Shared(memory)), Some(line)) => Some(Place::Cached { memory, line }),
        (place, None) => place,
        (_, Some(_)) => {
            let complaint = Complaint::new(Code::BadPlace, "only lines of a shared memory are cached");
            table.complain(complaint.hint("leave `cache` out"));
            None
        }
    };
    let entry = table.finish();
    place.filter(|_| !entry.broken).map(|place| Part { first, end, place, span })
}

fn place(value: &DeValue<'_>, chip: &Chip) -> Read<Place> {
    let mut names: Vec<&str> = chip.memories.iter().map(|memory| memory.name.as_str()).collect();
    names.extend(["local", "registers"]);
    let keeps = |work| matches!(work, UnitWork::Queue | UnitWork::List | UnitWork::Search);
    let keepers = chip.units.iter().enumerate().filter(|(_, unit)| keeps(unit.work));
    let keepers: Vec<(usize, &str)> = keepers.map(|(place, unit)| (place, unit.name.as_str())).collect();
    names.extend(keepers.iter().map(|(_, name)| *name));
    let place = value::place_of(value, &names, "memory", Code::UnknownMemory)?;
    Ok(match place.checked_sub(chip.memories.len()) {
        None => Place::Shared(place),
        Some(0) => Place::Local,
        Some(1) => Place::Registers,
        Some(place) => Place::Unit(keepers[place - 2].0),
    })
}

/// Checks that a region can lie at a place: shared data has to lie where all engines see it, and local memory and CAM
/// have to exist.
fn fits_there(region: Region, place: Place, chip: &Chip, mapping: &Mapping) -> Read<()> {
    let name = region.name();
    let bad = |message: String| Complaint::new(Code::BadPlace, message);
    if matches!(place, Place::Local | Place::Registers) && !READ_ONLY.contains(&region) {
        let alone = mapping
            .pools
            .iter()
            .flat_map(|pool| &pool.tasks)
            .filter(|task| !task.stages().is_empty())
            .count()
            == 1;
        let (may, why) = match region {
            Region::Meta => (alone, "it goes with the frame from engine to engine"),
            _ => (false, "all engines work on it"),
        };
        if !may {
            return Err(bad(format!("the region \"{name}\" cannot lie in an engine: {why}"))
                .hint("place it in a shared memory"));
        }
    }
    let lacks = |has: fn(&EngineKind) -> bool| {
        let working =
            mapping.pools.iter().filter(|pool| pool.tasks.iter().any(|task| !task.stages().is_empty()));
        let kinds = working.filter_map(|pool| match pool.place {
            PoolPlace::Engines { kind, .. } => chip.engines.get(kind),
            PoolPlace::Unit(_) => None,
        });
        kinds.into_iter().find(|kind| !has(kind)).map(|kind| kind.name.clone())
    };
    match place {
        Place::Local => match lacks(|kind| kind.local.is_some()) {
            Some(kind) => Err(bad(format!("engines of the kind \"{kind}\" have no local memory for the region \"{name}\""))
                .hint("place it in a shared memory")),
            None => Ok(()),
        },
        Place::Cached { .. } => match lacks(|kind| kind.local.is_some() && kind.cam.is_some()) {
            Some(kind) => Err(bad(format!("engines of the kind \"{kind}\" have no CAM and local memory to cache the region \"{name}\" with"))
                .hint("leave `cache` out")),
            None => Ok(()),
        },
        Place::Unit(unit) => {
            let (may, what) = match chip.units.get(unit).map(|unit| unit.work) {
                Some(UnitWork::Search) => (SEARCHED.contains(&region), "tables of flows, rules, routes, next hops and translations"),
                _ => (region == Region::Queue, "queues"),
            };
            let message = format!("the region \"{name}\" cannot lie in a unit that keeps {what}");
            if may { Ok(()) } else { Err(bad(message).hint("place it in a shared memory")) }
        }
        Place::Shared(_) | Place::Registers => Ok(()),
    }
}
