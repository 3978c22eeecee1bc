//! Sweep of a chip over ranges of parameters: every combination of their values, a row each, over all cores.
//!
//! An [`Axis`] is a parameter and its values, a [`Grid`] several of them. A failed run is a row with the reason.
//! Rows come in the order of their combinations, the last axis changing fastest; no more are held than are being run.
//! A combination may have several runs, of seeds of their own: a row then has their [means](Mean), with confidence intervals.

use std::str::FromStr;

use policy::Policy;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use crate::traffic::KEYS;

mod figures;
pub mod objective;
mod run;
#[cfg(test)]
mod tests;

pub use figures::{Cell, Figures, Mean, Measured, Throughput};
pub use run::{NOTHING_OFFERED, PRECISION, Sweep, SweepError};

/// Combinations of a grid, at most.
pub const MOST: usize = 100_000;

/// The key of the number of rules.
const RULES: &str = "rules";

/// The key of the number of classes.
const CLASSES: &str = "classes";

/// Parameter that a sweep varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A parameter of the chip or the mapping, by its path: "memory.sram.latency".
    Parameter(String),
    /// Number of rules put before those of the policy, which match nothing.
    Rules,
    /// Number of classes put before those of the policy, which match nothing.
    Classes,
    /// A key of generated traffic, in all streams.
    Traffic(&'static str),
}

/// A parameter and its values: `memory.sram.latency=50,90,150`, `pool.firewall.threads=1..8`, `rules=1..64:8`.
///
/// A range has both its ends, if the step comes to the last. A value of TOML has its commas within brackets, braces or quotes:
/// `region.rule-table=sram,{ memory = "sram", cache = "64 B" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Parameter.
    pub key: Key,
    /// Name, as written.
    pub name: String,
    /// Its values: at least one.
    pub values: Vec<String>,
}

/// Error in the text of an axis, or in the axes of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAxis {
    /// There are not both a parameter and values.
    #[error(
        "write PATH=VALUES, as in memory.sram.latency=50,90,150 or pool.process.threads=1..8 or rules=1..64:8"
    )]
    Incomplete,
    /// A value is empty.
    #[error("a value of `{name}` is empty")]
    NoValue {
        /// The parameter.
        name: String,
    },
    /// A range that leads nowhere.
    #[error(
        "`{range}` is no range: write FIRST..LAST or FIRST..LAST:STEP, whole numbers, the first not above the last"
    )]
    BadRange {
        /// The range.
        range: String,
    },
    /// A number of rules or classes that is none.
    #[error("`{value}` is no number of rules or classes: 0 to {MOST_RULES}")]
    NotRules {
        /// Value as written.
        value: String,
    },
    /// A parameter that is varied twice.
    #[error("`{name}` is varied twice")]
    Twice {
        /// The parameter.
        name: String,
    },
    /// A key of generated traffic is varied, and none is generated.
    #[error("`{name}` is of generated traffic, and none is generated")]
    NoStream {
        /// The key.
        name: String,
    },
    /// More combinations than a grid may have.
    #[error("more than {MOST} combinations")]
    TooMany,
    /// More values than a list may have.
    #[error("`{range}` has {values} values, more than {MOST}")]
    TooManyValues {
        /// The range, or the parameter.
        range: String,
        /// Number of values.
        values: u64,
    },
}

/// Rules or classes put before those of a policy, at most.
const MOST_RULES: u32 = 16_384;

impl FromStr for Axis {
    type Err = BadAxis;

    fn from_str(text: &str) -> Result<Axis, BadAxis> {
        let (name, list) = text.split_once('=').ok_or(BadAxis::Incomplete)?;
        let (name, list) = (name.trim(), list.trim());
        if name.is_empty() || list.is_empty() {
            return Err(BadAxis::Incomplete);
        }
        let mut values = Vec::new();
        for part in parts(list) {
            match part.split_once("..") {
                _ if part.is_empty() => return Err(BadAxis::NoValue { name: name.to_owned() }),
                // Stages have ranges, too: those are values.
                Some((first, rest)) if first.trim().starts_with(|first: char| first.is_ascii_digit()) => {
                    range(first, rest, part, &mut values)?;
                }
                _ => values.push(part.to_owned()),
            }
        }
        Axis::new(name, values)
    }
}

impl Axis {
    /// Makes an axis of a parameter, by its name in sweeps, and its values.
    ///
    /// # Errors
    /// There is no value, one is empty, or one is no number of rules.
    pub fn new(name: &str, values: Vec<String>) -> Result<Axis, BadAxis> {
        if values.is_empty() || values.iter().any(String::is_empty) {
            return Err(BadAxis::NoValue { name: name.to_owned() });
        }
        let stream_key = |key: &&'static str| key.split('=').next() == Some(name);
        let traffic = KEYS.iter().map(|(key, _)| *key).find(stream_key);
        let key = match traffic.and_then(|key| key.split('=').next()) {
            Some(key) => Key::Traffic(key),
            None if name == RULES => Key::Rules,
            None if name == CLASSES => Key::Classes,
            None => Key::Parameter(name.to_owned()),
        };
        if matches!(key, Key::Rules | Key::Classes) {
            if let Some(value) = values.iter().find(|value| rules(value).is_none()) {
                return Err(BadAxis::NotRules { value: value.clone() });
            }
        }
        Ok(Axis { key, name: name.to_owned(), values })
    }
}

/// The parts of a list between commas, but for those in brackets, braces and quotes.
fn parts(list: &str) -> Vec<&str> {
    let (mut parts, mut first, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, letter) in list.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(list[first..at].trim());
                first = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[first..].trim());
    parts
}

fn range(first: &str, rest: &str, whole: &str, values: &mut Vec<String>) -> Result<(), BadAxis> {
    let bad = || BadAxis::BadRange { range: whole.to_owned() };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    if first > last || step == 0 {
        return Err(bad());
    }
    let many = ((last - first) / step).saturating_add(1);
    if many > MOST as u64 {
        return Err(BadAxis::TooManyValues { range: whole.to_owned(), values: many });
    }
    let mut next = Some(first);
    while let Some(value) = next.filter(|value| *value <= last) {
        values.push(value.to_string());
        next = value.checked_add(step);
    }
    Ok(())
}

/// The number of rules that a value says.
fn rules(value: &str) -> Option<u32> {
    value.parse().ok().filter(|rules| *rules <= MOST_RULES)
}

/// A parameter with one of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Parameter.
    pub key: &'a Key,
    /// Value.
    pub value: &'a str,
}

/// All combinations of the values of some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    axes: Vec<Axis>,
}

impl Grid {
    /// Makes a grid of axes, no two of one parameter, with at most [`MOST`] combinations.
    pub fn new(axes: Vec<Axis>) -> Result<Grid, BadAxis> {
        let grid = Grid::vast(axes)?;
        if grid.combinations() > MOST { Err(BadAxis::TooMany) } else { Ok(grid) }
    }

    /// Makes a grid of axes, no two of one parameter, with any number of combinations that can be counted: for a search, which does not
    /// run all of them. A parameter has at most [`MOST`] values.
    pub fn vast(axes: Vec<Axis>) -> Result<Grid, BadAxis> {
        for (place, axis) in axes.iter().enumerate() {
            if axes[..place].iter().any(|other| other.name == axis.name) {
                return Err(BadAxis::Twice { name: axis.name.clone() });
            }
            if axis.values.len() > MOST {
                let (range, values) = (axis.name.clone(), axis.values.len() as u64);
                return Err(BadAxis::TooManyValues { range, values });
            }
        }
        let combinations =
            axes.iter().try_fold(1, |product: usize, axis| product.checked_mul(axis.values.len()));
        combinations.map_or(Err(BadAxis::TooMany), |_| Ok(Grid { axes }))
    }

    /// Its axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of combinations: at least one.
    pub fn combinations(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// The combination of that number, counted from 0.
    pub fn combination(&self, number: usize) -> Vec<Choice<'_>> {
        let mut rest = number;
        let mut choices: Vec<Choice<'_>> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let place = rest % axis.values.len();
                rest /= axis.values.len();
                Choice { key: &axis.key, value: &axis.values[place] }
            })
            .collect();
        choices.reverse();
        choices
    }

    /// Runs each combination by `run`, which is given its number, on all cores, and hands the rows to `take`, in their order.
    pub fn run<E>(
        &self,
        run: impl Fn(usize) -> Row + Sync,
        mut take: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        // So many at once that the cores seldom wait for the slowest of them.
        let some = rayon::current_num_threads() * 4;
        let all = self.combinations();
        for first in (0..all).step_by(some) {
            let numbers = (first..all.min(first + some)).into_par_iter();
            let rows: Vec<Row> = numbers.map(&run).collect();
            rows.into_iter().try_for_each(&mut take)?;
        }
        Ok(())
    }
}

/// Result of a combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The value of each axis.
    pub values: Vec<String>,
    /// Figures of its runs, or the reason for a failure.
    pub outcome: Result<Figures, String>,
}

/// `policy` with rules that match nothing before its own, as many as the value of [`Key::Rules`] says: each about UDP, a
/// port and a network of its own that no packet is forwarded to.
pub fn with_rules(policy: &Policy, value: &str) -> Result<Policy, BadAxis> {
    let many = rules(value).ok_or_else(|| BadAxis::NotRules { value: value.to_owned() })?;
    let mut text = String::new();
    for rule in 0..many {
        text.push_str(&format!(
            "[[rule]]\nname = \"sweep-{rule}\"\nprotocol = \"udp\"\ndestination = \"127.{}.{}.0/24\"\ndport = {}\n\
             action = \"drop\"\n",
            rule / 256,
            rule % 256,
            20_000 + rule
        ));
    }
    let before = policy::parse(&text, RULES).policy.map(|parsed| parsed.rules).unwrap_or_default();
    let mut policy = policy.clone();
    policy.rules.splice(0..0, before);
    Ok(policy)
}

/// `policy` with classes that match nothing before its own, as many as the value of [`Key::Classes`] says: each about UDP between two
/// hosts and two ports, with a code point, as the rules of a DiffServ edge (six dimensions but for the interface).
pub fn with_classes(policy: &Policy, value: &str) -> Result<Policy, BadAxis> {
    let many = rules(value).ok_or_else(|| BadAxis::NotRules { value: value.to_owned() })?;
    let mut text = String::new();
    for class in 1..=many {
        let (high, low) = (class / 256, class % 256);
        text.push_str(&format!(
            "[[class]]\nname = \"sweep-{class}\"\nprotocol = \"udp\"\nsource = \"192.168.{high}.{low}\"\n\
             destination = \"192.169.{high}.{low}\"\nsport = \"{}\"\ndport = \"{}\"\ndscp = [{}]\nmark = \"be\"\n",
            10_000 + class,
            20_000 + class,
            class % 64
        ));
    }
    let before = policy::parse(&text, CLASSES).policy.map(|parsed| parsed.classes).unwrap_or_default();
    let mut policy = policy.clone();
    policy.classes.splice(0..0, before);
    Ok(policy)
}
