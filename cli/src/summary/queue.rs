//! Tables of queues and traffic classes.

use std::io::{self, Write};

use dataplane::egress::LeafCounts;
use policy::model::Colour;
use replay::measurement::Distribution;
use replay::summary::{ClassRow, Figures, QueueRow};

use crate::screen::{DIM, HEADING, Table, bytes, count, number, rate};

/// Percentiles in milliseconds, as people read them.
fn millis(times: Option<&Distribution>) -> String {
    let Some(times) = times.filter(|times| !times.is_empty()) else { return "-".to_owned() };
    let each = [50.0, 90.0, 99.0, 100.0].map(|per_cent| times.percentile(per_cent) as f64 / 1e6);
    each.map(|time| format!("{time:.3}")).join(" / ")
}

/// Prints the classes that have had packets, with the colours that their meters gave, and what became of their packets.
pub(super) fn print_classes(out: &mut impl Write, classes: &[ClassRow]) -> io::Result<()> {
    let mut table = Table::new(&[1, 2]);
    for ClassRow { name, count, .. } in classes.iter().filter(|row| row.count.traffic.frames > 0) {
        let metered: u64 = count.colours.iter().sum();
        let colours =
            Colour::ALL.map(|colour| format!("{} {}", number(count.colours[colour as usize]), colour.name()));
        let colours = if metered == 0 { String::new() } else { colours.join(", ") };
        table.row([name.clone(), number(count.traffic.frames), bytes(count.traffic.bytes), colours]);
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Traffic classes{HEADING:#}")?;
    write!(out, "{table}")?;
    let mut table = Table::new(&[1, 2, 3, 4, 5]);
    table.row(["", "sent", "rate", "marked", "delay, ms", "IPDV, ms", "lost"].map(str::to_owned));
    let rows = classes.iter().filter_map(|row| Some((&row.name, row.figures.as_ref()?)));
    for (name, Figures { measured, rate: mean }) in rows {
        let lost = measured.lost.iter().map(|(reason, packets)| format!("{} {reason}", number(*packets)));
        table.row([
            name.clone(),
            number(measured.sent),
            rate(*mean),
            number(measured.marked),
            millis(Some(&measured.delays)),
            millis(Some(&measured.variation)),
            lost.collect::<Vec<_>>().join(", "),
        ]);
    }
    writeln!(out, "{HEADING}Packets sent, by class{HEADING:#} {DIM}({PERCENTILES}){DIM:#}")?;
    write!(out, "{table}")
}

const PERCENTILES: &str =
    "delay, and its variation from packet to packet (RFC 3393), of 50 / 90 / 99 % and the longest";

/// Prints the queues that have had packets, with drops and delays.
pub(super) fn print_queues(out: &mut impl Write, queues: &[QueueRow]) -> io::Result<()> {
    let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let titles = ["", "sent", "bytes", "rate", "full", "early", "marked", "delay, ms", "IPDV, ms"];
    table.row(titles.map(str::to_owned));
    let is_used = |row: &&QueueRow| row.counts.sent + row.counts.full + row.counts.early > 0;
    let used: Vec<&QueueRow> = queues.iter().filter(is_used).collect();
    for row in used.iter().take(MOST_PRINTED) {
        let LeafCounts { sent, sent_bytes, full, early, marked, .. } = row.counts;
        let measured = row.figures.as_ref().map(|figures| &figures.measured);
        table.row([
            title(row),
            number(sent),
            bytes(sent_bytes),
            row.figures.as_ref().map_or_else(String::new, |figures| rate(figures.rate)),
            number(full),
            number(early),
            number(marked),
            millis(measured.map(|measured| &measured.delays)),
            millis(measured.map(|measured| &measured.variation)),
        ]);
    }
    if used.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Queues{HEADING:#} {DIM}({PERCENTILES}){DIM:#}")?;
    write!(out, "{table}")?;
    match used.len().saturating_sub(MOST_PRINTED) {
        0 => Ok(()),
        more => writeln!(out, "  and {}, which --json has", count(more as u64, "more queue", "more queues")),
    }
}

/// Queues that are printed.
const MOST_PRINTED: usize = 200;

fn title(row: &QueueRow) -> String {
    match &row.name {
        Some(name) => format!("{name} ({} {})", row.side, row.interface),
        None => format!("{}, one queue", row.interface),
    }
}
