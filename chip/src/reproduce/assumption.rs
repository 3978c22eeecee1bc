//! Assumed parameters of the shipped chips, which no document gives, and the values that they may have had as well.

use std::collections::BTreeSet;

use toml::Value;

use super::Setting;
use crate::builtin::{CHIPS, named};
use crate::description;

/// An assumed quantity: a latency, a cost, a clock, the depth of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumption {
    /// Name of the chip.
    pub chip: &'static str,
    /// Path of the parameter: "memory.sram.latency".
    pub path: String,
    /// Value of the shipped chip, without its unit.
    pub value: f64,
    /// Unit behind the value, with the blank before it; empty for a plain number.
    unit: String,
    /// Numbers that the parameter can have.
    numbers: Numbers,
}

/// Numbers that a parameter can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Whole,
    Any,
}

/// Share of its value by which an assumed quantity is taken to be off, at most, either way.
pub const SPREAD: f64 = 0.25;

/// Keys of what is a structure rather than a quantity: widths, numbers of parts, sizes.
const STRUCTURES: [&str; 16] = [
    "count",
    "channels",
    "banks",
    "bank-queues",
    "interleave",
    "width",
    "burst",
    "size",
    "entry",
    "element",
    "threads",
    "pins",
    "side",
    "store",
    // Shares of power consumption, which no prediction follows from.
    "engines",
    "idle",
];

impl Assumption {
    /// Assumed quantities of a shipped chip, in the order of its file; without those that have one possible value.
    pub fn of(chip: &'static str) -> Vec<Assumption> {
        let text = named(CHIPS, chip).unwrap_or_default();
        let Ok(root) = text.parse::<toml::Table>() else { return Vec::new() };
        let Some(parsed) = description::parse(text, chip).chip else { return Vec::new() };
        let mut all = Vec::new();
        for source in parsed.assumed() {
            let (first, rest) = source.path.split_once('.').unwrap_or((&source.path, ""));
            let rest = rest.split('.').filter(|step| !step.is_empty());
            if let Some(value) = root.get(first).and_then(|value| rest.clone().try_fold(value, Value::get)) {
                gather(chip, &source.path, value, &mut all);
            }
        }
        // A table may be assumed whole, and a parameter in it stand apart.
        let mut seen = BTreeSet::new();
        all.retain(|assumption| seen.insert(assumption.path.clone()));
        let is_possible = |assumption: &Assumption, share| {
            let setting = assumption.at(share);
            description::set(text, &setting.path, &setting.value).is_ok_and(|text| {
                description::parse(&text, chip).chip.is_some_and(|chip| chip.ticks_per_second().is_some())
            })
        };
        all.retain(|assumption| is_possible(assumption, 0.0) && is_possible(assumption, 1.0));
        all
    }

    /// The shipped chip's value, with its unit.
    pub fn shown(&self) -> String {
        format!("{}{}", self.value, self.unit)
    }

    /// The parameter's value at that share, from 0 to 1, of the way from [`SPREAD`] below to as much above; of a small whole number, one
    /// less, itself, or one more.
    pub(super) fn at(&self, share: f64) -> Setting {
        let scaled = self.value * (1.0 - SPREAD + 2.0 * SPREAD * share);
        let number = match self.numbers {
            Numbers::Any => scaled,
            Numbers::Whole if self.value * SPREAD >= 1.0 => scaled.round(),
            Numbers::Whole if share < 1.0 / 3.0 => (self.value - 1.0).max(0.0),
            Numbers::Whole if share < 2.0 / 3.0 => self.value,
            Numbers::Whole => self.value + 1.0,
        };
        Setting { chip: self.chip, path: self.path.clone(), value: format!("{number}{}", self.unit) }
    }
}

/// Gathers the quantities of a value at a path.
fn gather(chip: &'static str, path: &str, value: &Value, all: &mut Vec<Assumption>) {
    if path.rsplit('.').next().is_some_and(|key| STRUCTURES.contains(&key)) {
        return;
    }
    let mut take = |value: f64, unit: &str, numbers| {
        all.push(Assumption { chip, path: path.to_owned(), value, unit: unit.to_owned(), numbers });
    };
    match value {
        Value::Integer(number) => take(*number as f64, "", Numbers::Whole),
        Value::Float(number) => take(*number, "", Numbers::Any),
        Value::String(text) => {
            let end = text.find(|of: char| !of.is_ascii_digit() && of != '.').unwrap_or(text.len());
            if let Ok(number) = text[..end].parse() {
                take(number, &text[end..], Numbers::Whole);
            }
        }
        Value::Table(table) => {
            table.iter().for_each(|(key, value)| gather(chip, &format!("{path}.{key}"), value, all));
        }
        _ => {}
    }
}
