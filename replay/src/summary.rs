//! Summary of the fates of a replay's packets, as data and as one object for scripts.

use std::collections::HashMap;
use std::time::Duration;

use dataplane::counter::Traffic;
use dataplane::{Reason, Replay};
use policy::Policy;
use serde_json::{Map, Value, json};
use wire::Nanos;

use crate::capture::{Captures, How, Source};
use crate::decrypt::Decryptor;
use crate::measurement::Measurements;
use crate::number::count;

mod queue;
mod remark;
mod sa;

pub use queue::{ClassRow, Figures, QueueRow};
pub use remark::Remarks;
pub use sa::SaRow;

/// All results of a replay.
pub struct Summary {
    /// Frames by fate.
    pub frames: Frames,
    /// Frames answered and dropped by reason, the most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// Traffic of rules, in the order of the policy.
    pub rules: Vec<(String, Traffic)>,
    /// Traffic of translations, in the order of the policy.
    pub nats: Vec<(String, Traffic)>,
    /// Traffic classes, in the order of the policy.
    pub classes: Vec<ClassRow>,
    /// Queues of trees, and of ports whose rate is bounded.
    pub queues: Vec<QueueRow>,
    /// Security associations.
    pub sas: Vec<SaRow>,
    /// Flows.
    pub flows: Flows,
    /// Numbers of frames and flows that are worth a remark.
    pub remarks: Remarks,
    /// Duration of the replay.
    pub elapsed: Duration,
    /// Captures.
    pub inputs: Vec<Input>,
    /// Security associations of a table by which ESP was decrypted, as they are in the object.
    pub esp_sa: Option<Value>,
    /// Further remarks, sentences without a full stop.
    pub notes: Vec<String>,
}

/// Frames by fate.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    /// Received, with their bytes.
    pub received: Traffic,
    /// Forwarded.
    pub forwarded: u64,
    /// Delivered to the gateway.
    pub delivered: u64,
    /// Answered.
    pub answered: u64,
    /// Dropped.
    pub dropped: u64,
    /// Held at the end.
    pub held: u64,
    /// Conservation.
    pub conserved: Conserved,
}

/// Conservation of frames: received = forwarded + delivered + answered + dropped + held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conserved {
    /// Frames are conserved.
    Yes,
    /// Frames are not conserved: a fault of this program.
    No,
}

/// Numbers of packets answered and dropped for one reason.
#[derive(Clone, Copy, Debug)]
pub struct ReasonCount {
    /// The reason.
    pub reason: Reason,
    /// Frames answered.
    pub answered: u64,
    /// Frames dropped.
    pub dropped: u64,
}

/// Numbers of flows.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// Created.
    pub created: u64,
    /// Ended.
    pub ended: u64,
    /// Live at the end.
    pub live: u64,
    /// Live at the most.
    pub peak: u64,
}

/// A capture, with the interfaces that its packets came in by.
#[derive(Clone, Debug)]
pub struct Input {
    /// The file.
    pub file: String,
    /// Packets played.
    pub packets: u64,
    /// Packets by interface, with the evidence for it.
    pub entered: Vec<Entered>,
}

/// Packets that came in by one interface.
#[derive(Clone, Debug)]
pub struct Entered {
    /// Evidence for the interface.
    pub how: How,
    /// Name of the interface.
    pub interface: String,
    /// Number of packets.
    pub packets: u64,
}

/// Times of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Beginning of the captures.
    pub start: Nanos,
    /// Receipt of the last packet.
    pub end: Nanos,
    /// How long it took.
    pub elapsed: Duration,
}

impl Summary {
    /// Adds what has been decrypted by a table of security associations.
    pub fn add_decrypted(&mut self, decryptor: &Decryptor) {
        self.notes.extend(decryptor.notes());
        self.esp_sa = Some(decryptor.to_json());
    }

    /// Returns the summary of a completed replay.
    pub fn new(
        replay: &mut Replay,
        policy: &Policy,
        captures: &Captures,
        measured: &Measurements,
        span: Span,
    ) -> Summary {
        let Span { start, end, elapsed } = span;
        let lifetimes = sa::notes(replay, start);
        let replay = &*replay;
        let counters = &replay.shard.counters;
        let mut reasons: Vec<ReasonCount> = Reason::ALL
            .iter()
            .map(|entry| ReasonCount {
                reason: entry.reason,
                answered: counters.answered_for(entry.reason),
                dropped: counters.dropped_for(entry.reason),
            })
            .filter(|told| told.answered + told.dropped > 0)
            .collect();
        // The most frequent first; the order of the manual among equals.
        reasons.sort_by_key(|told| std::cmp::Reverse(told.answered + told.dropped));
        let rules = replay.tables.filter.rules.iter().zip(&counters.rules);
        let flows = &replay.shard.flows;
        let mut summary = Summary {
            frames: Frames {
                received: counters.received,
                forwarded: counters.forwarded(),
                delivered: counters.delivered(),
                answered: counters.answered(),
                dropped: counters.dropped(),
                held: counters.held,
                conserved: if counters.are_conserved() { Conserved::Yes } else { Conserved::No },
            },
            reasons,
            rules: rules.map(|(rule, traffic)| (rule.name.clone(), *traffic)).collect(),
            nats: nats(replay, policy),
            classes: queue::classes(replay, measured),
            queues: queue::queues(replay, measured),
            sas: sa::sas(replay, end),
            flows: Flows {
                created: flows.created(),
                ended: flows.ended(),
                live: u64::from(flows.len()),
                peak: u64::from(flows.peak()),
            },
            remarks: Remarks {
                held: counters.held,
                parts_sent: counters.parts_sent,
                parts_lost: counters.parts_lost,
                helper_unread: counters.helper_unread,
                evicted: counters.evicted,
            },
            elapsed,
            inputs: Vec::new(),
            esp_sa: None,
            notes: Vec::new(),
        };
        summary.inputs = captures.sources().iter().map(|source| Input::of(source, replay)).collect();
        summary.notes = Summary::notes_on_captures(captures);
        summary.notes.extend(summary.remarks.notes());
        summary.notes.extend(lifetimes);
        summary
    }

    /// Conservation: every frame is accounted for, or not.
    pub fn conserved(&self) -> Conserved {
        self.frames.conserved
    }

    /// Notes about captures: what of them was not played as it is.
    pub(crate) fn notes_on_captures(captures: &Captures) -> Vec<String> {
        captures.sources().iter().flat_map(notes_on).collect()
    }

    /// One object, as the command line's contract has it.
    pub fn to_json(&self) -> Value {
        let traffic = |list: &[(String, Traffic)]| {
            let entries = list.iter().map(|(name, traffic)| {
                (name.clone(), json!({ "frames": traffic.frames, "bytes": traffic.bytes }))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        };
        let by_reason = |of: fn(&ReasonCount) -> u64| {
            let entries = self.reasons.iter().filter(|told| of(told) > 0);
            Value::Object(entries.map(|told| (told.reason.name().to_owned(), of(told).into())).collect())
        };
        let seconds = self.elapsed.as_secs_f64();
        let mut object = json!({
            "frames": {
                "received": self.frames.received.frames,
                "forwarded": self.frames.forwarded,
                "delivered": self.frames.delivered,
                "answered": self.frames.answered,
                "dropped": self.frames.dropped,
                "held": self.frames.held,
            },
            "reasons": by_reason(|told| told.answered + told.dropped),
            "rules": traffic(&self.rules),
            "nats": traffic(&self.nats),
            "classes": self.classes.iter().map(ClassRow::to_json).collect::<Map<_, _>>(),
            "queues": self.queues.iter().map(QueueRow::to_json).collect::<Vec<_>>(),
            "sas": self.sas.iter().map(SaRow::to_json).collect::<Vec<_>>(),
            "flows": {
                "created": self.flows.created,
                "ended": self.flows.ended,
                "live": self.flows.live,
                "peak": self.flows.peak,
            },
            "seconds": seconds,
            "mpps": self.mpps(),
            "bytes": self.frames.received.bytes,
            "answered": by_reason(|told| told.answered),
            "dropped": by_reason(|told| told.dropped),
            "inputs": self.inputs.iter().map(Input::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
        });
        if let (Some(esp_sa), Some(object)) = (&self.esp_sa, object.as_object_mut()) {
            object.insert("esp_sa".to_owned(), esp_sa.clone());
        }
        object
    }

    /// Millions of packets a second.
    pub fn mpps(&self) -> f64 {
        self.frames.received.frames as f64 / self.elapsed.as_secs_f64().max(1e-9) / 1e6
    }
}

/// Notes about one capture.
fn notes_on(source: &Source) -> Vec<String> {
    let mut notes = Vec::new();
    let file = source.path.display();
    if let Some(cut) = source.cut_short() {
        notes.push(format!("{file} is {cut}; everything before that was played"));
    }
    if let Some(problem) = &source.problem {
        let packets = count(source.unreadable, "place", "places");
        notes.push(format!("{file} could not be read in {packets}, the first: {problem}"));
    }
    if source.snapped > 0 {
        let packets = count(source.snapped, "packet was", "packets were");
        notes.push(format!(
            "{file}: {packets} not captured whole; what needs the missing bytes fails the length checks"
        ));
    }
    if source.coalesced > 0 {
        let packets = count(source.coalesced, "TCP packet was", "TCP packets were");
        notes.push(format!(
            "{file}: {packets} larger than the link carries, as an offload had coalesced (GRO, TSO), and came in as \
             segments of the link's MTU"
        ));
    }
    if source.backwards > 0 {
        let packets = count(source.backwards, "packet has", "packets have");
        notes.push(format!(
            "{file}: {packets} a time before that of an earlier one; they were taken to come with it"
        ));
    }
    let private: u64 = source
        .entered
        .iter()
        .filter(|((how, _), _)| *how == How::PrivateSource)
        .map(|(_, count)| count)
        .sum();
    if private > 0 {
        let packets = count(private, "packet comes", "packets come");
        notes.push(format!(
            "{file}: {packets} from private addresses that are on no network of the policy; if those hosts are \
             inside, give the inside interface an address on their network"
        ));
    }
    if source.readdressed > 0 {
        let packets = count(source.readdressed, "frame was", "frames were");
        notes.push(format!(
            "{file}: {packets} for another machine's link-layer address, and taken as if for the gateway's"
        ));
    }
    if source.answers > 0 {
        let packets = count(source.answers, "answer", "answers");
        notes.push(format!(
            "{}: {packets} to inside hosts, as seen inside, came in addressed to the translation instead, as \
             the far end would have sent them",
            source.path.display()
        ));
    }
    notes
}

impl Input {
    fn of(source: &Source, replay: &Replay) -> Input {
        let entered = source.entered.iter().map(|((how, interface), packets)| {
            let name = replay.tables.interface(*interface).map_or("?", |interface| &interface.name);
            Entered { how: *how, interface: name.to_owned(), packets: *packets }
        });
        Input {
            file: source.path.display().to_string(),
            packets: source.entered.values().sum(),
            entered: entered.collect(),
        }
    }

    fn to_json(&self) -> Value {
        let entered = self.entered.iter().map(|Entered { how, interface, packets }| {
            json!({ "interface": interface, "by": how.name(), "frames": packets })
        });
        json!({ "file": self.file, "frames": self.packets, "entered": entered.collect::<Vec<_>>() })
    }
}

/// Traffic of each translation, in the order of the policy.
fn nats(replay: &Replay, policy: &Policy) -> Vec<(String, Traffic)> {
    let tables = &replay.tables.nat;
    let mut sums: HashMap<&str, Traffic> = HashMap::new();
    let pairs = (0..=u16::MAX).zip(&replay.shard.counters.nats);
    for (pair, traffic) in pairs.filter(|(_, traffic)| traffic.frames > 0) {
        let names: Vec<&str> = tables.names(pair).collect();
        for (place, name) in names.iter().enumerate() {
            // A one-to-one translation turned back on itself is in a pair twice, and translates once.
            if !names[..place].contains(name) {
                let sum = sums.entry(name).or_default();
                sum.frames += traffic.frames;
                sum.bytes += traffic.bytes;
            }
        }
    }
    let sum = |name: &str| sums.get(name).copied().unwrap_or_default();
    policy.nats.iter().map(|nat| (nat.name.clone(), sum(&nat.name))).collect()
}
