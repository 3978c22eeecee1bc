//! Queues and traffic classes of a replay: what they sent and lost, and the delays of their packets.

use dataplane::Replay;
use dataplane::counter::{ClassTraffic, Traffic};
use dataplane::egress::LeafCounts;
use dataplane::tables::NO_NODE;
use serde_json::{Map, Value, json};

use crate::measurement::{Distribution, Measured, Measurements, QueueKey};

/// Traffic class with its counters.
#[derive(Clone, Debug)]
pub struct ClassRow {
    /// Name of the class.
    pub name: String,
    /// Its counters.
    pub count: ClassTraffic,
    /// Figures of its packets that were sent or lost, if there are any.
    pub figures: Option<Figures>,
}

/// Queue with its counters.
#[derive(Clone, Debug)]
pub struct QueueRow {
    /// Name of the interface.
    pub interface: String,
    /// Side of the interface: `on` or `from`.
    pub side: &'static str,
    /// Name of a leaf; `None` for the one queue of a port without a tree.
    pub name: Option<String>,
    /// Its counters.
    pub counts: LeafCounts,
    /// Figures of its packets, if there are any.
    pub figures: Option<Figures>,
}

/// Figures of a queue or class, with its mean rate in bits per second.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Figures.
    pub measured: Measured,
    /// Mean rate.
    pub rate: f64,
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
}
