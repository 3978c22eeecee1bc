//! Table of security associations.

use std::io::{self, Write};

use replay::summary::SaRow;

use crate::screen::{HEADING, Table, bytes, number};

/// Prints the table of security associations; nothing where there is none.
pub(super) fn print(out: &mut impl Write, rows: &[SaRow]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Security associations{HEADING:#}")?;
    let mut table = Table::new(&[3, 4]);
    for SaRow { tunnel, view } in rows {
        let errors = view.counters().into_iter().skip(3).filter(|(_, count)| *count > 0);
        let mut remarks: Vec<String> =
            errors.map(|(name, count)| format!("{} {name}", number(count))).collect();
        remarks.extend(view.reached.map(|reached| format!("{} lifetime reached", reached.name())));
        table.row([
            format!("{tunnel} {}", view.direction.name()),
            format!("{:#x}", view.spi),
            format!("{}", view.suite),
            number(view.packets),
            bytes(view.bytes),
            remarks.join(", "),
        ]);
    }
    write!(out, "{table}")
}
