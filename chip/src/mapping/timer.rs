//! Timers of a mapping.

use config::quantity;
use toml::de::DeValue;
use wire::Nanos;

use super::{Timer, pool, task};
use crate::description::{Chip, bound};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

pub(super) fn timers(sink: &Sink, top: &mut Table<'_, '_, '_>, chip: &Chip) -> Vec<Timer> {
    let mut timers = Vec::new();
    for (name, value) in config::section(top, "timer") {
        let Some(mut table) = Table::of(sink, value, "a timer") else { continue };
        if let Err(complaint) = value::check_name(name.get_ref()) {
            table.broken(complaint, name.span());
        }
        let names: Vec<&str> = chip.engines.iter().map(|kind| kind.name.as_str()).collect();
        let usual = names.last().map_or_else(String::new, |name| format!("\"{name}\""));
        let place =
            |value: &DeValue<'_>| value::place_of(value, &names, "kind of engines", Code::UnknownEngine);
        let kind = table.require("engine", &usual, place);
        let engines = kind.and_then(|kind| chip.engines.get(kind));
        // Where the kind is not known, neither is whether its number is needed.
        let number = match engines {
            Some(engines) if engines.count > 1 || table.has("at") => {
                table.require("at", "0", |value| pool::engine(value, Some(engines)))
            }
            _ => table.take("at", |value| pool::engine(value, None)).or(Some(0)),
        };
        let every = table.require("every", "\"1 ms\"", every);
        if !table.has("instructions") && !table.has("references") {
            let complaint = Complaint::new(config::Code::MissingKey, "the timer has nothing to do");
            table.complain(complaint.hint("for example: instructions = 30"));
        }
        let work = task::work(&mut table, chip);
        table.finish();
        if let (Some(engine), Some(number), Some(every)) = (kind, number, every) {
            timers.push(Timer { name: name.get_ref().to_string(), engine, number, every, work });
        }
    }
    timers
}

/// Reads an interval.
fn every(value: &DeValue<'_>) -> Read<Nanos> {
    let hint = "write a number with a unit: \"1 ms\", \"10 us\"";
    let text = value::text(value).map_err(|complaint| complaint.hint(hint))?;
    match quantity::duration(text) {
        Some(nanos) if (1..=bound::INTERVAL).contains(&nanos) => Ok(Nanos(nanos)),
        _ => {
            let message = format!("\"{text}\" is no time from 1 ns to an hour");
            Err(Complaint::new(config::Code::BadNumber, message).hint(hint))
        }
    }
}
