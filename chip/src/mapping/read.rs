//! The TOML of a mapping.

use std::sync::Arc;

use config::{Diagnostic as Any, Source};
use lookup::classify::{ALGORITHMS, RENAMED};
use tally::Region;
use toml::de::{DeTable, DeValue};

use super::{Checked, Lines, Mapping, Ring, flow, place, pool, stages, timer};
use crate::description::{self, Chip, UnitWork, bound};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

const POOL: &[&str] = &[
    "engine", "unit", "at", "threads", "work", "stages", "from", "to", "ports", "bound", "extra", "priority",
    "poll",
];
const EXTRA: &[&str] = &["instructions", "references", "bytes", "memory", "access"];
const TIMER: &[&str] = &["engine", "at", "every", "instructions", "references", "bytes", "memory", "access"];
const RING: &[&str] = &["kind", "entries", "order"];

/// The keys of the table at `path` that are no tables themselves; none where there is no such table.
pub(super) fn keys(path: &[&str]) -> Vec<&'static str> {
    match path {
        [] => vec!["chip", "about", "classifier"],
        ["pool", _] => POOL.to_vec(),
        ["pool", _, "to"] => vec!["new", "known"],
        ["pool", _, "extra"] => EXTRA.to_vec(),
        ["ring", _] => RING.to_vec(),
        ["timer", _] => TIMER.to_vec(),
        ["region"] => std::iter::once("default").chain(Region::ALL.map(Region::name)).collect(),
        ["region", _] => place::KEYS.to_vec(),
        _ => vec![],
    }
}

pub(super) fn read(text: &str, file: &str, chip: &Chip) -> Checked {
    let source = Arc::new(Source::new(file, text));
    let sink = Sink::new(&source);
    let mut lines = Lines { source: Some(Arc::clone(&source)), ..Lines::default() };
    let mapping = config::document(&source, &sink, |top| mapping(&sink, top, chip, &mut lines));
    let mut diagnostics = sink.into_diagnostics();
    // What else is wrong with a mapping for another chip follows from that.
    if diagnostics.iter().any(|found| found.code == Code::OtherChip) {
        diagnostics.retain(|found| found.code == Code::OtherChip);
    }
    Any::sort(&mut diagnostics);
    let wrong = diagnostics.iter().any(Any::is_error);
    Checked { mapping: mapping.filter(|_| !wrong), diagnostics, lines }
}

fn mapping(sink: &Sink, root: &DeTable<'_>, chip: &Chip, lines: &mut Lines) -> Mapping {
    let stages = stages();
    let mut top = Table::new(sink, root, 0..0, "a mapping");
    let name = top.require("chip", &format!("\"{}\"", chip.name), |value| {
        let name = value::owned(value)?;
        let complaint = || {
            Complaint::new(
                Code::OtherChip,
                format!("the mapping is for \"{name}\", not for \"{}\"", chip.name),
            )
        };
        if name == chip.name {
            Ok(name)
        } else {
            Err(complaint().hint("take it with that chip, or write one for this one"))
        }
    });
    let about = top.require("about", "\"what it is, in a sentence\"", value::owned);
    let classifier = top.take("classifier", |value| {
        let names = ALGORITHMS.iter().map(|algorithm| algorithm.name);
        let names: Vec<&str> = names.chain(RENAMED.iter().map(|(former, _)| *former)).collect();
        value::place_of(value, &names, "classifier", Code::UnknownClassifier)
            .map(|place| names[place].to_owned())
    });
    let rings = rings(sink, &mut top, chip, lines);
    let pools = pool::pools(sink, &mut top, chip, &stages, &rings, lines);
    // Of frames that cannot be followed for a slip elsewhere nothing is said.
    let whole =
        !lines.rings.iter().chain(&lines.pools).chain(lines.tasks.iter().flatten()).any(|entry| entry.broken);
    let mut mapping = Mapping {
        chip: name.unwrap_or_default(),
        about: about.unwrap_or_default(),
        pools,
        rings,
        placements: Vec::new(),
        timers: timer::timers(sink, &mut top, chip),
        classifier,
    };
    if whole {
        flow::check(sink, &mapping, chip, &stages, lines);
    }
    mapping.placements = place::placements(sink, &mut top, chip, &mapping, lines);
    top.finish();
    mapping
}

fn rings(sink: &Sink, top: &mut Table<'_, '_, '_>, chip: &Chip, lines: &mut Lines) -> Vec<Ring> {
    let kinds: Vec<&str> = chip.rings.iter().map(|kind| kind.name.as_str()).collect();
    let mut rings = Vec::new();
    for (name, value) in config::section(top, "ring") {
        let Some(mut table) = Table::of(sink, value, "a ring") else { continue };
        if let Err(complaint) = value::check_name(name.get_ref()) {
            table.broken(complaint, name.span());
        }
        let kind =
            table.take("kind", |value| value::place_of(value, &kinds, "kind of rings", Code::UnknownRing));
        // Of how many entries a kind that is not known has, nothing is said.
        let is_known = kind.is_some() || !table.has("kind");
        let kind = kind.unwrap_or(0);
        let most = chip.rings.get(kind).filter(|_| is_known).map(|kind| kind.entries);
        if chip.rings.is_empty() && is_known {
            let complaint = Complaint::new(Code::UnknownRing, format!("{} has no rings", chip.name));
            table.complain(complaint.hint("do all stages in one pool"));
        }
        let entries = table.take("entries", |value| {
            let entries = value::number32(value, 1, bound::ENTRIES)?;
            match most {
                Some(most) if entries > most => {
                    let message =
                        format!("{entries} entries, but rings of the kind \"{}\" have {most}", kinds[kind]);
                    Err(Complaint::new(Code::TooManyEntries, message).hint(format!("from 1 to {most}")))
                }
                _ => Ok(entries),
            }
        });
        let order = table.take("order", |value| order(value, chip));
        let name_of = name.get_ref().to_string();
        rings.push(Ring { name: name_of, kind, entries: entries.or(most).unwrap_or(1), order });
        let mut entry = table.finish();
        entry.span = name.span();
        lines.rings.push(entry);
    }
    check_segments(sink, &rings, chip, lines);
    rings
}

/// The unit that keeps the order of a ring's frames.
fn order(value: &DeValue<'_>, chip: &Chip) -> Read<usize> {
    let names: Vec<&str> = chip.units.iter().map(|unit| unit.name.as_str()).collect();
    let unit = value::place_of(value, &names, "unit", Code::UnknownEngine)?;
    if chip.units[unit].work != UnitWork::Order {
        let message = format!("the unit \"{}\" keeps no order", names[unit]);
        return Err(
            Complaint::new(Code::UnknownEngine, message).hint("name a unit of the kind work = \"order\"")
        );
    }
    Ok(unit)
}

/// Complains of rings whose frames need more segments than the unit has that keeps them.
fn check_segments(sink: &Sink, rings: &[Ring], chip: &Chip, lines: &Lines) {
    for unit in &chip.units {
        let Some(lists) = &unit.lists else { continue };
        let mut frames = 0;
        for (ring, entry) in rings.iter().zip(&lines.rings).filter(|(ring, _)| ring.is_kept_by(unit, chip)) {
            frames += u64::from(ring.entries);
            let needed = lists.segments_of(frames);
            if needed > lists.segments.into() {
                let message = format!(
                    "{frames} frames of up to {} bytes need {needed} segments, and the unit \"{}\" has {}",
                    description::Lists::FRAME,
                    unit.name,
                    lists.segments
                );
                let most = u64::from(lists.segments) / lists.segments_of(1).max(1);
                let complaint = Complaint::new(Code::TooManyEntries, message);
                let hint = format!("{most} entries at most, in all rings of the unit");
                sink.report(complaint.hint(hint), entry.span.clone());
                break;
            }
        }
    }
}
