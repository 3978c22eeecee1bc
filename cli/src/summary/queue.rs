//! Queues and traffic classes of a replay: what they sent and lost, and the delays of their packets.

use std::io::{self, Write};

use dataplane::Replay;
use dataplane::counter::{ClassTraffic, Traffic};
use dataplane::egress::LeafCounts;
use dataplane::tables::NO_NODE;
use policy::model::Colour;
use serde_json::{Map, Value, json};

use crate::command::replay::{Distribution, Measured, Measurements, QueueKey};
use crate::screen::{DIM, HEADING, Table, bytes, count, number, rate};

/// Traffic class with its counters.
pub(super) struct ClassRow {
    name: String,
    count: ClassTraffic,
    figures: Option<Figures>,
}

/// Queue with its counters.
pub(super) struct QueueRow {
    interface: String,
    side: &'static str,
    /// Name of a leaf; `None` for the one queue of a port without a tree.
    name: Option<String>,
    counts: LeafCounts,
    figures: Option<Figures>,
}

/// Figures of a queue or class, with its mean rate in bits per second.
struct Figures {
    measured: Measured,
    rate: f64,
}

impl Figures {
    fn of(measured: Option<&Measured>, all: &Measurements) -> Option<Figures> {
        measured.map(|measured| Figures { measured: measured.clone(), rate: all.rate(measured) })
    }

    /// Figures of a queue or class without packets.
    fn none() -> Figures {
        Figures { measured: Measured::new(), rate: 0.0 }
    }

    fn lost(&self) -> Value {
        let lost = self.measured.lost.iter();
        Value::Object(lost.map(|(reason, packets)| ((*reason).to_owned(), (*packets).into())).collect())
    }
}

/// Traffic of each class, in the order of the policy.
pub(super) fn classes(replay: &Replay, measured: &Measurements) -> Vec<ClassRow> {
    let counted = replay.shard.counters.classes.iter().copied();
    let list = &replay.tables.classes.list;
    let of = |class: u16| Figures::of(measured.classes.get(&class), measured);
    let named = (1..).zip(list.iter().zip(counted));
    named
        .map(|(class, (entry, count))| ClassRow { name: entry.name.clone(), count, figures: of(class) })
        .collect()
}

/// Queues of all trees, in the order of interfaces; then those of ports without a tree that a rate bounds.
pub(super) fn queues(replay: &Replay, measured: &Measurements) -> Vec<QueueRow> {
    let name = |port| replay.tables.interface(port).map_or_else(String::new, |one| one.name.clone());
    let figures = |key: QueueKey| Figures::of(measured.queues.get(&key), measured);
    let mut rows = Vec::new();
    for tree in replay.shard.egress.trees() {
        rows.extend(tree.placed_leaves().map(|(place, leaf, counts)| QueueRow {
            interface: name(tree.port),
            side: tree.side.name(),
            name: Some(leaf.into_owned()),
            counts: counts.clone(),
            figures: figures(QueueKey::of(tree.side, place)),
        }));
    }
    let mut plain: Vec<&QueueKey> = measured.queues.keys().filter(|key| key.leaf == NO_NODE).collect();
    plain.sort();
    rows.extend(plain.into_iter().filter_map(|key| {
        let figures = figures(*key)?;
        let full = figures.measured.lost.values().sum();
        let (sent, sent_bytes) = (figures.measured.sent, figures.measured.bytes);
        let counts = LeafCounts { sent, sent_bytes, full, ..LeafCounts::default() };
        Some(QueueRow { interface: name(key.port), side: "on", name: None, counts, figures: Some(figures) })
    }));
    rows
}

impl ClassRow {
    pub(super) fn to_json(&self) -> (String, Value) {
        let [green, yellow, red] = self.count.colours;
        let Traffic { frames, bytes } = self.count.traffic;
        let mut object =
            json!({ "frames": frames, "bytes": bytes, "green": green, "yellow": yellow, "red": red });
        let none = (frames == 0).then(Figures::none);
        if let (Some(figures), Some(object)) =
            (self.figures.as_ref().or(none.as_ref()), object.as_object_mut())
        {
            object.insert("sent".to_owned(), figures.measured.sent.into());
            object.insert("sent_bytes".to_owned(), figures.measured.bytes.into());
            object.insert("marked".to_owned(), figures.measured.marked.into());
            figures.add_to(object);
        }
        (self.name.clone(), object)
    }
}

impl Figures {
    /// Rate, losses, delays and their variation.
    fn add_to(&self, object: &mut Map<String, Value>) {
        object.insert("rate_bps".to_owned(), (self.rate.round() as u64).into());
        object.insert("lost".to_owned(), self.lost());
        object.insert("delay_ns".to_owned(), percentiles(&self.measured.delays));
        object.insert("ipdv_ns".to_owned(), percentiles(&self.measured.variation));
    }
}

/// Percentiles of a distribution, and its longest; 0 without packets.
fn percentiles(times: &Distribution) -> Value {
    let [p50, p90, p95, p99] = [50.0, 90.0, 95.0, 99.0].map(|per_cent| times.percentile(per_cent));
    json!({ "p50": p50, "p90": p90, "p95": p95, "p99": p99, "max": times.percentile(100.0) })
}

impl QueueRow {
    pub(super) fn to_json(&self) -> Value {
        let LeafCounts { sent, sent_bytes, full, early, marked, .. } = self.counts;
        let mut object = json!({
            "interface": self.interface, "side": self.side, "name": self.name,
            "frames": sent, "bytes": sent_bytes, "full": full, "early": early, "marked": marked,
        });
        let none = (sent + full + early == 0).then(Figures::none);
        if let (Some(figures), Some(object)) =
            (self.figures.as_ref().or(none.as_ref()), object.as_object_mut())
        {
            figures.add_to(object);
        }
        object
    }

    fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({} {})", self.side, self.interface),
            None => format!("{}, one queue", self.interface),
        }
    }
}

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
            row.title(),
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
