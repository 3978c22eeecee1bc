//! Reader of measured points: a TOML file.
//!
//! ```toml
//! [[point]]
//! rules = 64                   # rules that a packet meets
//! packets-per-second = 45290   # or microseconds = 22.08, of one packet
//! dmips = 764.588              # VAX MIPS of the processor; in all points or in none
//! ```

use std::sync::Arc;

use config::{Source, document, tables};

use super::Point;
use crate::diagnostic::Diagnostic;
use crate::value::{Complaint, Sink, Table, float, number32};

/// Unit of a processor's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// VAX MIPS by the Dhrystone benchmark.
    Dmips,
    /// The processor that the points were measured on.
    Itself,
}

/// Points of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// Points, in the order of the file.
    pub list: Vec<Point>,
    /// Unit of their speeds.
    pub unit: Unit,
}

/// Points that were read, with what was wrong.
#[derive(Debug)]
pub struct Checked {
    /// Points; `None` with errors.
    pub points: Option<Points>,
    /// Errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// Largest number of rules.
const MOST_RULES: u32 = 10_000_000;

/// Largest rate, time and speed.
const MOST: f64 = 1e12;

/// Reads points from the text of `file`.
pub fn parse(text: &str, file: &str) -> Checked {
    let source = Arc::new(Source::new(file, text));
    let sink = Sink::new(&source);
    let list = document(&source, &sink, |top| {
        let mut top = Table::new(&sink, top, 0..0, "a file of points");
        let points: Vec<_> = tables(&mut top, "point", "a point").into_iter().map(point).collect();
        top.finish();
        points
    });
    let list: Vec<(Point, Option<f64>, _)> = list.unwrap_or_default().into_iter().flatten().collect();
    let unit = match list.first() {
        Some((_, Some(_), _)) => Unit::Dmips,
        _ => Unit::Itself,
    };
    // Speeds of some cannot be compared with those of others that are not said.
    if let Some((_, _, span)) = list.iter().find(|(_, dmips, _)| dmips.is_some() != (unit == Unit::Dmips)) {
        let complaint =
            Complaint::new(config::Code::MissingKey, "some points have `dmips`, and others have not");
        let hint = "give the DMIPS of all; or of none, where all are of one processor";
        sink.report(complaint.hint(hint), std::ops::Range::clone(span));
    }
    let diagnostics = sink.into_diagnostics();
    let is_sound = diagnostics.is_empty();
    let list = list.into_iter().map(|(point, ..)| point).collect();
    Checked { points: is_sound.then_some(Points { list, unit }), diagnostics }
}

/// A point, its DMIPS, and its position in the text.
type Read = (Point, Option<f64>, std::ops::Range<usize>);

fn point(mut table: Table<'_, '_, '_>) -> Option<Read> {
    let rules = table.require("rules", "64", |value| number32(value, 0, MOST_RULES));
    let both = table.has("microseconds") && table.has("packets-per-second");
    let micros = match table.has("microseconds") {
        true => table.take("microseconds", |value| float(value, MOST)),
        false => {
            table.require("packets-per-second", "45290", |value| float(value, MOST)).map(|rate| 1e6 / rate)
        }
    };
    if both {
        table.misplaced(
            "packets-per-second",
            "give the time of a packet, `microseconds`, or the packets a second",
        );
    } else {
        // Known, so that a misspelt one is told from these.
        table.raw("microseconds");
        table.raw("packets-per-second");
    }
    let dmips = table.take("dmips", |value| float(value, MOST));
    let entry = table.finish();
    if entry.broken {
        return None;
    }
    Some((Point { rules: rules?, micros: micros?, speed: dmips.unwrap_or(1.0) }, dmips, entry.span))
}
