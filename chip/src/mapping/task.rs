//! Tasks of a pool: stages, the ring that frames are taken from, and exits.

use std::ops::Range;

use config::Entry;
use toml::Spanned;
use toml::de::DeValue;

use super::{Exit, Extra, Priority, ServedPorts, Task, Who, Work};
use crate::description::{Chip, PortKind, bound};
use crate::diagnostic::Code;
use crate::trace::Access;
use crate::value::{self, Complaint, Read, Table};

/// The tasks of a pool: those of its list `task`, or the one that its own keys say.
pub(super) fn tasks(
    table: &mut Table<'_, '_, '_>,
    chip: &Chip,
    stages: &[&str],
    rings: &[&str],
) -> (Vec<Task>, Vec<Entry>) {
    let mut entries = Vec::new();
    let mut tasks = Vec::new();
    if table.has("task") {
        for key in ["work", "stages", "from", "to", "ports", "bound", "extra", "priority"] {
            table.misplaced(key, "each [[pool.NAME.task]] has its own");
        }
        for mut inner in config::tables(table, "task", "a task") {
            tasks.extend(task(&mut inner, chip, stages, rings));
            let entry = inner.finish();
            table.note(entry.broken);
            entries.push(entry);
        }
        if tasks.is_empty() && entries.is_empty() {
            let complaint = Complaint::new(config::Code::EmptyList, "the pool has no tasks");
            table.complain(complaint.hint("write [[pool.NAME.task]], and what belongs to it on lines below"));
        }
        return (tasks, entries);
    }
    tasks.extend(task(table, chip, stages, rings));
    (tasks, entries)
}

fn task(table: &mut Table<'_, '_, '_>, chip: &Chip, stages: &[&str], rings: &[&str]) -> Option<Task> {
    let words = [("receive", Work::Receive(0..0)), ("transmit", Work::Transmit)];
    let word = |value: &DeValue<'_>| {
        value::one_of(value, &[(words[0].0, 0), (words[1].0, 1)]).map(|place: usize| words[place].1.clone())
    };
    let work = match (table.has("work"), table.has("stages")) {
        (false, true) => {
            table.take("work", |_| Ok(()));
            let range = table.raw("stages").and_then(|value| stage_range(table, value, stages));
            range.map(Work::Stages)
        }
        (_, false) => {
            table.take("stages", |_| Ok(()));
            table.require("work", "\"receive\", or stages = \"filter..snat\"", word)
        }
        // Who receives a frame can go on with it; what leaves has all stages behind it.
        (true, true) => {
            let work = table.require("work", "\"receive\"", word);
            let value = table.raw("stages");
            match work {
                Some(Work::Transmit) => {
                    table.misplaced("stages", "frames have met all stages when they are sent");
                    Some(Work::Transmit)
                }
                _ => value.and_then(|value| stage_range(table, value, stages)).map(Work::Receive),
            }
        }
    };
    let ports = match &work {
        Some(Work::Receive(_)) | None => ports(table, chip),
        Some(_) => {
            for key in ["ports", "bound"] {
                table.misplaced(key, "it is for work = \"receive\"");
            }
            ServedPorts::default()
        }
    };
    let from = match work {
        Some(Work::Receive(_)) => {
            table.misplaced("from", "frames are received from ports");
            None
        }
        _ => table.require("from", "\"received\"", |value| ring(value, rings)),
    };
    let to = match work {
        Some(Work::Transmit) => {
            table.misplaced("to", "frames are sent to ports");
            Vec::new()
        }
        _ => {
            // Without a way on the frames never reach `transmit`.
            table.require("to", "\"sent\"", |_| Ok(()));
            match table.raw("to") {
                Some(value) => exits(table, value, rings),
                None => Vec::new(),
            }
        }
    };
    let extra = match &work {
        Some(Work::Stages(stages) | Work::Receive(stages)) if !stages.is_empty() => extra(table, chip),
        None => extra(table, chip),
        Some(_) => {
            table.misplaced("extra", "it is for tasks that run stages");
            Extra::default()
        }
    };
    let words = [("normal", Priority::Normal), ("high", Priority::High)];
    let priority = table.take("priority", |value| priority(value::one_of(value, &words)?, chip));
    Some(Task { work: work?, from, to, ports, extra, priority: priority.unwrap_or_default() })
}

/// Checks that a memory of the chip tells priorities apart.
fn priority(priority: Priority, chip: &Chip) -> Read<Priority> {
    if priority == Priority::High && chip.memories.iter().all(|memory| memory.priority.is_none()) {
        let message = format!("no memory of {} has a queue of high priority", chip.name);
        return Err(Complaint::new(Code::NoPriority, message)
            .hint("leave `priority` out, or give a memory of the chip `priority`, the depth of that queue"));
    }
    Ok(priority)
}

/// Reads the work of a task beyond its stages.
fn extra(table: &mut Table<'_, '_, '_>, chip: &Chip) -> Extra {
    let Some(value) = table.raw("extra") else { return Extra::default() };
    let Some(mut extra) = Table::of(table.sink(), value, "extra work") else {
        return Extra::default();
    };
    let work = work(&mut extra, chip);
    let entry = extra.finish();
    table.note(entry.broken);
    work
}

/// Reads work that has no effect but its time: instructions, and references to a memory.
pub(super) fn work(extra: &mut Table<'_, '_, '_>, chip: &Chip) -> Extra {
    let instructions = extra.take("instructions", |value| value::number32(value, 0, bound::INSTRUCTIONS));
    let references = extra.take("references", |value| value::number32(value, 0, bound::REFERENCES));
    let bytes = extra.take("bytes", |value| value::number32(value, 1, bound::REFERENCE));
    let names: Vec<&str> = chip.memories.iter().map(|memory| memory.name.as_str()).collect();
    // Of a number that is wrong nothing more is said.
    let memory = match references {
        None if extra.has("references") => extra.take("memory", |_| Ok(0)),
        Some(1..) => {
            let usual = names.first().map_or_else(String::new, |name| format!("\"{name}\""));
            let place = |value: &DeValue<'_>| value::place_of(value, &names, "memory", Code::UnknownMemory);
            extra.require("memory", &usual, place)
        }
        _ => {
            for key in ["bytes", "memory", "access"] {
                extra.misplaced(key, "it is of `references`, of which there are none");
            }
            None
        }
    };
    let words = [("read", Access::Read), ("write", Access::Write), ("atomic", Access::Atomic)];
    let access = match references {
        Some(1..) => extra.take("access", |value| value::one_of(value, &words)),
        _ => None,
    };
    Extra {
        instructions: instructions.unwrap_or(0),
        references: references.unwrap_or(0),
        access: access.unwrap_or_default(),
        bytes: bytes.unwrap_or(4),
        memory: memory.unwrap_or(0),
    }
}

/// Reads the ports that a task receives from: kinds of the chip.
fn ports(table: &mut Table<'_, '_, '_>, chip: &Chip) -> ServedPorts {
    let kinds: Vec<&str> = chip.ports.0.iter().filter_map(|kind| kind.name.as_deref()).collect();
    let kind = |value: &DeValue<'_>| {
        let place = value::place_of(value, &kinds, "kind of ports", Code::UnknownPort)?;
        let numbers = (0_u16..).zip(chip.ports.each());
        let named = |kind: &PortKind| kind.name.as_deref() == kinds.get(place).copied();
        Ok(numbers.filter(|(_, kind)| named(kind)).map(|(number, _)| number).collect::<Vec<u16>>())
    };
    let numbers = table.take("ports", |value| match value {
        DeValue::Array(items) if items.is_empty() => {
            let complaint = Complaint::new(config::Code::EmptyList, "`ports` is an empty list");
            Err(complaint.hint("leave it out for all ports of the chip"))
        }
        DeValue::Array(items) => {
            let each: Read<Vec<Vec<u16>>> = items.iter().map(|item| kind(item.get_ref())).collect();
            let mut numbers = each?.concat();
            numbers.sort_unstable();
            numbers.dedup();
            Ok(numbers)
        }
        one => kind(one),
    });
    let bound = table.take("bound", |value| value::flag(value, true, false)).unwrap_or(false);
    ServedPorts { numbers: numbers.unwrap_or_default(), bound }
}

/// Reads the stages of a task: one, several, or `first..last`, which follow one another.
fn stage_range(
    table: &mut Table<'_, '_, '_>,
    value: &Spanned<DeValue<'_>>,
    stages: &[&str],
) -> Option<Range<usize>> {
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
            return Ok(places[0]..places[places.len() - 1] + 1);
        }
        let named: Vec<&str> = places.iter().map(|place| stages[*place]).collect();
        let message = format!("{} do not follow one another", named.join(", "));
        Err(Complaint::new(Code::StageOrder, message).hint(format!("the order is {}", stages.join(", "))))
    });
    wrong.map_err(|complaint| table.broken(complaint, value.span())).ok()
}

/// Reads the exits of a task: one ring, or a ring for new frames and one for known ones, or one for exceptions and one for the rest.
fn exits(table: &mut Table<'_, '_, '_>, value: &Spanned<DeValue<'_>>, names: &[&str]) -> Vec<Exit> {
    if let DeValue::Table(_) = value.get_ref() {
        let Some(mut parting) = Table::of(table.sink(), value, "a parting of ways") else {
            return Vec::new();
        };
        let [(one, one_key), (other, other_key)] = match parting.has("exception") || parting.has("rest") {
            true => [(Who::Exception, "exception"), (Who::Rest, "rest")],
            false => [(Who::New, "new"), (Who::Known, "known")],
        };
        let first = parting.require(one_key, "\"core\"", |value| ring(value, names));
        let second = parting.require(other_key, "\"routed\"", |value| ring(value, names));
        let entry = parting.finish();
        table.note(entry.broken);
        let exits = [(one, first), (other, second)];
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

/// The place of the ring that `value` names.
fn ring(value: &DeValue<'_>, names: &[&str]) -> Read<usize> {
    value::place_of(value, names, "ring", Code::UnknownRing)
}
