//! The TOML of a mapping.

use std::sync::Arc;

use config::{Diagnostic as Any, Source};
use lookup::classify::{ALGORITHMS, RENAMED};
use tally::Region;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Checked, Exit, Lines, Mapping, Ring, Who, Work, flow, place, pool, stages};
use crate::description::{Chip, bound};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

const POOL: &[&str] = &["engine", "unit", "at", "threads", "work", "stages", "from", "to"];
const RING: &[&str] = &["kind", "entries"];

/// The keys of the table at `path` that are no tables themselves; none where there is no such table.
pub(super) fn keys(path: &[&str]) -> Vec<&'static str> {
    match path {
        [] => vec!["chip", "about", "classifier"],
        ["pool", _] => POOL.to_vec(),
        ["pool", _, "to"] => vec!["new", "known"],
        ["ring", _] => RING.to_vec(),
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
        rings.push(Ring { name: name.get_ref().to_string(), kind, entries: entries.or(most).unwrap_or(1) });
        let mut entry = table.finish();
        entry.span = name.span();
        lines.rings.push(entry);
    }
    rings
}

/// The place of the ring that `value` names.
pub(super) fn ring(value: &DeValue<'_>, names: &[&str]) -> Read<usize> {
    value::place_of(value, names, "ring", Code::UnknownRing)
}

/// Reads the exits of a task: one ring, or a ring for new frames and one for known ones.
pub(super) fn exits(
    table: &mut Table<'_, '_, '_>,
    value: &Spanned<DeValue<'_>>,
    names: &[&str],
) -> Vec<Exit> {
    if let DeValue::Table(_) = value.get_ref() {
        let Some(mut parting) = Table::of(table.sink(), value, "a parting of ways") else {
            return Vec::new();
        };
        let new = parting.require("new", "\"core\"", |value| ring(value, names));
        let known = parting.require("known", "\"routed\"", |value| ring(value, names));
        let entry = parting.finish();
        table.note(entry.broken);
        let exits = [(Who::New, new), (Who::Known, known)];
        return exits.into_iter().filter_map(|(who, ring)| Some(Exit { who, ring: ring? })).collect();
    }
    match ring(value.get_ref(), names) {
        Ok(ring) => vec![Exit { who: Who::All, ring }],
        Err(complaint) => {
            table.broken(complaint, value.span());
            Vec::new()
        }
    }
}

/// Stages: one, several, or `first..last`, which follow one another.
pub(super) fn work(
    table: &mut Table<'_, '_, '_>,
    value: &Spanned<DeValue<'_>>,
    stages: &[&str],
) -> Option<Work> {
    let find = |name: &str| value::find(name.trim(), stages, "stage", Code::UnknownStage);
    let places: Read<Vec<usize>> = match value.get_ref() {
        DeValue::String(text) => match text.split_once("..") {
            Some((first, last)) => find(first).and_then(|first| {
                let last = find(last)?;
                let message =
                    || format!("\"{text}\" runs backwards: {} comes before {}", stages[last], stages[first]);
                if first > last {
                    let complaint = Complaint::new(Code::StageOrder, message());
                    return Err(complaint.hint(format!("write \"{}..{}\"", stages[last], stages[first])));
                }
                Ok((first..=last).collect())
            }),
            None => find(text).map(|place| vec![place]),
        },
        DeValue::Array(items) if !items.is_empty() => {
            let mut places = Vec::new();
            for item in items.iter() {
                match value::text(item.get_ref()).and_then(find) {
                    Ok(place) => places.push(place),
                    Err(complaint) => {
                        table.broken(complaint, item.span());
                        return None;
                    }
                }
            }
            Ok(places)
        }
        other => {
            Err(config::wrong_type("stages", other)
                .hint("write \"filter..snat\" or [\"filter\", \"classify\"]"))
        }
    };
    let wrong = places.and_then(|places| {
        if places.windows(2).all(|pair| pair[1] == pair[0] + 1) {
            return Ok(Work::Stages(places[0]..places[places.len() - 1] + 1));
        }
        let named: Vec<&str> = places.iter().map(|place| stages[*place]).collect();
        let message = format!("{} do not follow one another", named.join(", "));
        Err(Complaint::new(Code::StageOrder, message).hint(format!("the order is {}", stages.join(", "))))
    });
    wrong.map_err(|complaint| table.broken(complaint, value.span())).ok()
}
