//! Pools of a mapping, and the places of their threads.

use std::ops::Range;

use config::Entry;
use toml::de::DeValue;

use super::{Extra, Lines, Pool, PoolPlace, Ring, Task, task};
use crate::description::{Chip, EngineKind, UnitWork, bound};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

pub(super) fn pools(
    sink: &Sink,
    top: &mut Table<'_, '_, '_>,
    chip: &Chip,
    stages: &[&str],
    rings: &[Ring],
    lines: &mut Lines,
) -> Vec<Pool> {
    let names: Vec<&str> = rings.iter().map(|ring| ring.name.as_str()).collect();
    let mut pools = Vec::new();
    let mut lost = false;
    for (name, value) in config::section(top, "pool") {
        let Some(mut table) = Table::of(sink, value, "a pool") else {
            lost = true;
            continue;
        };
        if let Err(complaint) = value::check_name(name.get_ref()) {
            table.broken(complaint, name.span());
        }
        let place = place(&mut table, chip, &name.span());
        let (tasks, mut spans) = task::tasks(&mut table, chip, stages, &names);
        if let PoolPlace::Unit(unit) = place {
            only_moves(&mut table, chip, unit, &tasks);
            only_engines(&mut table, &tasks);
        }
        let poll = poll(&mut table, &place, &tasks);
        pools.push(Pool { name: name.get_ref().to_string(), place, tasks, poll });
        let mut entry = table.finish();
        entry.span = name.span();
        if spans.is_empty() {
            spans.push(entry.clone());
        }
        lines.pools.push(entry);
        lines.tasks.push(spans);
    }
    check_threads(sink, &pools, chip, lines);
    if lost {
        // It has no pool beside it, but tells that not all was read.
        lines.pools.push(Entry { broken: true, ..Entry::default() });
    }
    pools
}

/// Reads the instructions of a look of the pool's idle threads.
fn poll(table: &mut Table<'_, '_, '_>, place: &PoolPlace, tasks: &[Task]) -> Option<u32> {
    let wrong = match place {
        PoolPlace::Unit(_) => Some("a unit has no instructions"),
        _ if tasks.is_empty() || tasks.iter().any(Task::receives) => None,
        _ => Some("it is for pools that receive: others wait for a ring"),
    };
    if let Some(why) = wrong {
        table.misplaced("poll", why);
        return None;
    }
    table.take("poll", |value| value::number32(value, 1, bound::INSTRUCTIONS))
}

fn place(table: &mut Table<'_, '_, '_>, chip: &Chip, name: &Range<usize>) -> PoolPlace {
    if table.has("unit") {
        for key in ["engine", "at", "threads"] {
            table.misplaced(key, "a unit has no engines and no threads");
        }
        let names: Vec<&str> = chip.units.iter().map(|unit| unit.name.as_str()).collect();
        let unit = table.take("unit", |value| {
            let unit = value::place_of(value, &names, "unit", Code::UnknownEngine)?;
            if !matches!(chip.units[unit].work, UnitWork::Stage | UnitWork::Dma) {
                let message =
                    format!("the unit \"{}\" works for engines, not in the place of one", names[unit]);
                let complaint = Complaint::new(Code::UnknownEngine, message);
                return Err(complaint
                    .hint("name a unit of the kind work = \"stage\", or \"dma\" to receive or transmit"));
            }
            Ok(unit)
        });
        return PoolPlace::Unit(unit.unwrap_or(0));
    }
    let names: Vec<&str> = chip.engines.iter().map(|kind| kind.name.as_str()).collect();
    let kind =
        table.take("engine", |value| value::place_of(value, &names, "kind of engines", Code::UnknownEngine));
    if kind.is_none() && table.has("engine") {
        // How many a kind that is not known has, and of how many threads, cannot be said.
        numbers(table, None);
        table.take("threads", |value| value::number32(value, 1, bound::COUNT));
        return PoolPlace::Engines { kind: 0, numbers: Vec::new(), threads: 1 };
    }
    let kind = kind.unwrap_or(0);
    let Some(engines) = chip.engines.get(kind) else {
        let complaint = Complaint::new(Code::UnknownEngine, format!("{} has no engines", chip.name));
        table.broken(complaint.hint("name a unit: unit = \"...\""), name.clone());
        return PoolPlace::Engines { kind: 0, numbers: Vec::new(), threads: 1 };
    };
    let numbers = match (table.has("at"), engines.count) {
        (false, 1) => vec![0],
        _ => numbers(table, Some(engines)),
    };
    let all = engines.threads;
    let threads = match table.has("threads") {
        // A number that is wrong adds nothing to what others take.
        true => table.take("threads", |value| value::number32(value, 1, bound::COUNT)).unwrap_or(0),
        false => table.take("threads", |_| Ok(all)).unwrap_or(all),
    };
    PoolPlace::Engines { kind, numbers, threads }
}

/// Complains of stages in a unit that only moves frames.
fn only_moves(table: &mut Table<'_, '_, '_>, chip: &Chip, unit: usize, tasks: &[Task]) {
    let Some(unit) = chip.units.get(unit).filter(|unit| unit.work == UnitWork::Dma) else { return };
    if tasks.iter().any(|task| !task.stages().is_empty()) {
        let message = format!("the unit \"{}\" moves frames, and runs no stages", unit.name);
        let complaint = Complaint::new(Code::UnknownEngine, message);
        table.complain(complaint.hint("let it receive or transmit, and give stages to engines"));
    }
}

/// Complains of extra work in a unit, whose time is its interval whatever it does.
fn only_engines(table: &mut Table<'_, '_, '_>, tasks: &[Task]) {
    if tasks.iter().any(|task| task.extra != Extra::default()) {
        let complaint =
            Complaint::new(Code::Contradiction, "a unit takes its interval, and has no instructions");
        table.complain(complaint.hint("leave `extra` out, or change the unit's `interval`"));
    }
}

/// Numbers of engines: 3, "5-7", or a list of such. Where it is not known of which, they are not looked for.
fn numbers(table: &mut Table<'_, '_, '_>, engines: Option<&EngineKind>) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    let Some(ranges) = table.require("at", "[0, 1]", |value| match value {
        DeValue::Array(items) if items.is_empty() => {
            let complaint = Complaint::new(config::Code::EmptyList, "`at` is an empty list");
            Err(complaint.hint("write the numbers of engines, such as \"0-3\""))
        }
        DeValue::Array(items) => items.iter().map(|item| range(item.get_ref(), engines)).collect(),
        one => range(one, engines).map(|range| vec![range]),
    }) else {
        return numbers;
    };
    for number in ranges.into_iter().flatten() {
        if numbers.contains(&number) {
            let complaint =
                Complaint::new(config::Code::DuplicateName, format!("engine {number} is there twice"));
            table.complain(complaint.hint("write it once; `threads` says how many of its threads"));
            break;
        }
        numbers.push(number);
    }
    numbers
}

/// Reads the number of one engine; any where it is not known of which.
pub(super) fn engine(value: &DeValue<'_>, engines: Option<&EngineKind>) -> Read<u32> {
    let number = value::number32(value, 0, bound::COUNT)?;
    range(value, engines).map(|_| number)
}

fn range(value: &DeValue<'_>, engines: Option<&EngineKind>) -> Read<std::ops::RangeInclusive<u32>> {
    let known = |number: u32| {
        let Some(engines) = engines.filter(|engines| number >= engines.count) else { return Ok(number) };
        let complaint = Complaint::new(
            Code::NoSuchEngine,
            format!("there is no engine {number} of the kind \"{}\"", engines.name),
        );
        Err(complaint.hint(format!("they count from 0 to {}", engines.count - 1)))
    };
    let DeValue::String(text) = value else {
        let number = known(value::number32(value, 0, bound::COUNT)?)?;
        return Ok(number..=number);
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last && engines.is_none() => Ok(first..=first),
        (Ok(first), Ok(last)) if first <= last => Ok(first..=known(last)?),
        _ => {
            let complaint =
                Complaint::new(config::Code::BadNumber, format!("\"{text}\" is no range of engines"));
            Err(complaint.hint("write 3, \"5-7\" or [0, \"5-7\"]"))
        }
    }
}

/// Complains of engines with more threads in use than they have.
fn check_threads(sink: &Sink, pools: &[Pool], chip: &Chip, lines: &Lines) {
    let mut used: Vec<Vec<u32>> = chip.engines.iter().map(|kind| vec![0; kind.count as usize]).collect();
    for (pool, entry) in pools.iter().zip(&lines.pools) {
        let PoolPlace::Engines { kind, numbers, threads } = &pool.place else { continue };
        let Some(engines) = chip.engines.get(*kind) else { continue };
        let over = numbers.iter().find(|number| {
            let used = &mut used[*kind][**number as usize];
            *used += threads;
            *used > engines.threads
        });
        if let Some(number) = over {
            let message = format!(
                "engine {number} has {} threads, but {} of them are to work",
                engines.threads, used[*kind][*number as usize]
            );
            let complaint = Complaint::new(Code::TooManyThreads, message);
            let hint = format!(
                "all pools on an engine share its {} threads: say how many with `threads`",
                engines.threads
            );
            sink.report(complaint.hint(hint), entry.span_of("threads", None));
        }
    }
}
