//! Terminal output: colours, tables, numbers, errors. Nothing here fails when standard error is closed.

use std::fmt;
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use config::{Diagnostic, Kind};
pub(crate) use replay::number::{bytes, count, number};
use report::text::{Piece, Text, Tone};

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

/// A text in colours.
pub(crate) struct Toned<'a>(pub(crate) &'a Text);

impl fmt::Display for Toned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.pieces().iter().try_for_each(|Piece { tone, text }| {
            let style = match tone {
                Tone::Plain => return f.write_str(text),
                Tone::Heading => HEADING,
                Tone::Good => GOOD,
                Tone::Care => CARE,
                Tone::Bad => BAD,
                Tone::Detail => DIM,
            };
            write!(f, "{style}{text}{style:#}")
        })
    }
}

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
    let mut err = anstream::stderr().lock();
    let (errors, others): (Vec<_>, Vec<_>) = match diagnostics.len() {
        0..=MOST_SHOWN => (diagnostics.iter().collect(), Vec::new()),
        _ => diagnostics.iter().partition(|diagnostic| diagnostic.is_error()),
    };
    for diagnostic in errors.into_iter().chain(others).take(MOST_SHOWN) {
        let _ = writeln!(err, "{}", drawn(diagnostic, theme.clone()));
    }
    if let Some(more @ 1..) = diagnostics.len().checked_sub(MOST_SHOWN) {
        let _ = writeln!(err, "and {} more, not shown: correct these first", number(more as u64));
    }
}

/// A diagnostic with the lines of the text that it is about.
fn drawn<C: Kind>(diagnostic: &Diagnostic<C>, theme: miette::GraphicalTheme) -> String {
    let handler = miette::GraphicalReportHandler::new_themed(theme).with_width(110).with_links(false);
    let mut text = String::new();
    match handler.render_report(&mut text, diagnostic) {
        Ok(()) => text,
        // What cannot be drawn is at least said.
        Err(_) => format!("{}: {diagnostic}\n", diagnostic.severity),
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

#[cfg(test)]
mod tests {
    use config::Diagnostic;

    use super::{Table, drawn, rate};

    /// Whatever is wrong with a policy, its keys are in nothing that is said of it.
    #[test]
    fn no_diagnostic_shows_a_key() {
        const KEYS: [&str; 5] = [
            "4fd19a0cbe5512aa07e3f6c8d9b01e2477a0c3d5",
            "9bc40e7700aa31d2f6b8e4c05d1f2a3b4c5d6e7f",
            "00a1b2c3d4e5f60718293a4b5c6d7e8f00a1b2c3d4e5f60718293a4b5c6d7e8f",
            "f0e1d2c3b4a5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f",
            "0123456789abcdef0123456789abcdef01234567",
        ];
        let policy = format!(
            "[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[interface.site]\nzone = \"vpn\"\n\
             [interface.site.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
             [[interface.site.esp.sa]]\ndirection = \"out\"\nspi = 0x1000\nalgorithm = \"aes128-gcm\"\nkey = \"{}\"\n\
             [[interface.site.esp.sa]]\ndirection = \"in\"\nspi = 0x1000\nkey = '{}'\nalgorithm = \"aes128-gcm\"\n\
             [[interface.site.esp.sa]]\ndirection = \"in\"\nspi = 0x1001\nalgorithm = \"aes256-cbc\"\n\
             \"key\"=\"0x{}\"\nauth = \"hmac-sha256-128\"\nauth-key = \"\"\"{}\"\"\"\n\
             [interface.b]\nesp = {{ sa = [{{ spi = 5, key = \"{}\", esn = true }}] }}\n",
            KEYS[0], KEYS[1], KEYS[2], KEYS[3], KEYS[4]
        );
        let said = |text: &str| -> String {
            let found = policy::check(text, "policy.toml").diagnostics;
            let theme = miette::GraphicalTheme::unicode_nocolor();
            let drawn = found.iter().map(|one: &Diagnostic<_>| drawn(one, theme.clone())).collect::<String>();
            drawn + &format!("{found:?}") + &serde_json::to_string(&found).unwrap()
        };
        let whole = said(&policy);
        assert!(whole.contains("key = \"****************************************\", esn = true"), "{whole}");
        // xorshift: the same texts each time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound as u64) as usize
        };
        let pieces =
            ["\"", "'", "\n", " ", "=", "#", "]", "[", "}", ",", "\"\"\"", "\u{e9}", "key = ", "x = "];
        for _ in 0..3_000 {
            let mut text = policy.clone();
            // What is wrong by itself is found where all else can be read.
            if below(2) == 0 {
                text.truncate(text.find("[interface.b]").unwrap());
            }
            for _ in 0..=below(3) {
                let at = below(text.len());
                if !text.is_char_boundary(at)
                    || KEYS.iter().any(|key| {
                        text.contains(key) && {
                            let found = text.find(key).unwrap();
                            (found + 1..found + key.len()).contains(&at)
                        }
                    })
                {
                    continue;
                }
                match below(3) {
                    // A stretch of text goes.
                    0 => {
                        let end = (at + 1 + below(12)).min(text.len());
                        if !text.is_char_boundary(end) {
                            continue;
                        };
                        text.replace_range(at..end, "");
                    }
                    1 => text.insert_str(at, pieces[below(pieces.len())]),
                    // A key stands where it does not belong.
                    _ => text.insert_str(at, KEYS[below(KEYS.len())]),
                }
            }
            let said = said(&text).to_lowercase();
            if let Some(key) = KEYS.iter().find(|key| said.contains(*key)) {
                panic!("{key} in {said}\nof {text}");
            }
        }
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
