//! Terminal output: colours, tables, numbers, errors. Nothing here fails when standard error is closed.

use std::fmt;
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use config::{Diagnostic, Kind};

/// A heading.
pub(crate) const HEADING: Style = Style::new().bold();
/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Warning.
pub(crate) const CARE: Style = AnsiColor::Yellow.on_default();
/// Detail of less importance.
pub(crate) const DIM: Style = Style::new().dimmed();

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Makes it hold from here on.
    pub(crate) fn apply(self) {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// Standard output, which drops colours where they are not wanted.
pub(crate) fn out() -> AutoStream<io::StdoutLock<'static>> {
    anstream::stdout().lock()
}

/// Says what went wrong, and what to do.
pub(crate) fn error(what: &dyn fmt::Display, hint: Option<&str>) {
    let mut err = anstream::stderr().lock();
    let _ = writeln!(err, "{BAD}error{BAD:#}: {what}");
    if let Some(hint) = hint {
        let _ = writeln!(err, "  help: {hint}");
    }
}

/// Says what to be aware of.
pub(crate) fn warning(what: &dyn fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{CARE}warning{CARE:#}: {what}");
}

/// Says what to know.
pub(crate) fn note(what: &dyn fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{DIM}note{DIM:#}: {what}");
}

/// Says what is being done, where that takes long.
pub(crate) fn doing(what: &dyn fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Diagnostics that are shown in full: more than anybody reads at once, and drawing each takes longer the longer the text.
const MOST_SHOWN: usize = 20;

/// Shows diagnostics, each with the lines of the text that it is about. Of very many, errors come before the rest.
pub(crate) fn diagnostics<C: Kind>(diagnostics: &[Diagnostic<C>]) {
    let colours = AutoStream::choice(&io::stderr()) != ColorChoice::Never;
    let theme =
        if colours { miette::GraphicalTheme::unicode() } else { miette::GraphicalTheme::unicode_nocolor() };
    let handler = miette::GraphicalReportHandler::new_themed(theme).with_width(110).with_links(false);
    let mut err = anstream::stderr().lock();
    let (errors, others): (Vec<_>, Vec<_>) = match diagnostics.len() {
        0..=MOST_SHOWN => (diagnostics.iter().collect(), Vec::new()),
        _ => diagnostics.iter().partition(|diagnostic| diagnostic.is_error()),
    };
    for diagnostic in errors.into_iter().chain(others).take(MOST_SHOWN) {
        let mut text = String::new();
        // What cannot be drawn is at least said.
        if handler.render_report(&mut text, diagnostic).is_err() {
            text = format!("{}: {diagnostic}\n", diagnostic.severity);
        }
        let _ = writeln!(err, "{text}");
    }
    if let Some(more @ 1..) = diagnostics.len().checked_sub(MOST_SHOWN) {
        let _ = writeln!(err, "and {} more, not shown: correct these first", number(more as u64));
    }
}

/// Rows of text in columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: &'static [usize],
}

impl Table {
    /// A table whose columns at the places `right` are set flush right.
    pub(crate) fn new(right: &'static [usize]) -> Table {
        Table { rows: Vec::new(), right }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// True if there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if self.right.contains(&column) {
                    line.push_str(&format!("  {cell:>width$}"));
                } else {
                    line.push_str(&format!("  {cell:<width$}"));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with its thousands apart.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes, in the unit that suits.
pub(crate) fn bytes(value: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut scaled = value as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if value < 1000 { format!("{value} B") } else { format!("{scaled:.1} {}", units[unit]) }
}

/// A rate in bits per second, in the unit that suits.
pub(crate) fn rate(bits: f64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
    let mut scaled = bits;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < units.len() {
        scaled /= 1_000.0;
        unit += 1;
    }
    format!("{scaled:.*} {}", if unit == 0 { 0 } else { 2 }, units[unit])
}

/// `one` or `many` of something, by count.
pub(crate) fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::{Table, bytes, number, rate};

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(number).each_ref());
        assert_eq!(
            ["999 B", "1.0 kB", "1.0 MB", "1.5 GB"],
            [999, 1000, 999_950, 1_500_000_000].map(bytes).each_ref()
        );
    }

    #[test]
    fn rates_have_three_digits_or_so() {
        let told = [0.0, 999.0, 1_000.0, 19_500_000.0, 999_960_000.0, 1e13].map(rate);
        assert_eq!(
            told.each_ref(),
            ["0 bit/s", "999 bit/s", "1.00 kbit/s", "19.50 Mbit/s", "1.00 Gbit/s", "10000.00 Gbit/s"]
        );
    }

    #[test]
    fn tables_align_their_columns() {
        let mut table = Table::new(&[1]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["bcd".to_owned(), "12".to_owned()]);
        assert_eq!(table.to_string(), "  a     1\n  bcd  12\n");
    }
}
