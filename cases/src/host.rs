//! The hosts that cases are played on. [`REPLAY`] plays every case; any other host implements [`Player`] and has a
//! [`Host`]. All hosts must have the same results, to the byte.

use std::collections::BTreeMap;

use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, Label, PortMapping, PortRefusal, PortRequest};
use dataplane::replay::{ReloadError, ReplayError, Way, Witness};
use dataplane::set::{SetChange, SetOutcome};
use dataplane::tunnel::is_copy;
use dataplane::{Reason, Replay, Shard, Tables, Verdict};
use wire::{Frame, Meta, Nanos, PortId};

/// A host that cases are played on.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Name in reports.
    pub name: &'static str,
    /// Batching of its frames.
    pub batching: Batching,
    /// Starts the host at a time.
    pub start: fn(Tables, Nanos) -> Result<Box<dyn Player>, ReplayError>,
}

/// Batching of frames that a host receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Frames of one moment together.
    Moment,
    /// As many frames together as possible.
    Case,
    /// Each frame is through before the next one is received.
    Frame,
}

/// The replay host in its four ways. The first binds the variables; all other hosts must do as it does.
pub const REPLAY: [Host; 4] = [
    Host { name: "step", batching: Batching::Moment, start: |tables, now| replay(tables, now, Way::Step) },
    Host { name: "run", batching: Batching::Moment, start: |tables, now| replay(tables, now, Way::Run) },
    Host {
        name: "step, batched over the whole case",
        batching: Batching::Case,
        start: |tables, now| replay(tables, now, Way::Step),
    },
    Host {
        name: "run, batched over the whole case",
        batching: Batching::Case,
        start: |tables, now| replay(tables, now, Way::Run),
    },
];

/// A host at work.
pub trait Player {
    /// Receives a frame.
    fn receive(&mut self, input: &Input);
    /// Processes all frames received so far; frames due by now depart.
    fn flush(&mut self);
    /// Advances the time: processes all frames received so far; frames due before `at` depart.
    fn advance(&mut self, at: Nanos);
    /// Ends the input: all queued frames depart.
    fn finish(&mut self);
    /// Forgets all connections.
    fn clear(&mut self);
    /// Changes a dynamic set at that time; no frame is under way.
    fn change_set(&mut self, change: &SetChange, at: Nanos) -> SetOutcome;
    /// Makes a port mapping at that time; no frame is under way.
    fn map_port(&mut self, request: &PortRequest, at: Nanos) -> Result<PortMapping, PortRefusal>;
    /// Removes a port mapping at that time, as an operator does; no frame is under way.
    fn unmap_port(&mut self, inside: &Endpoint, at: Nanos) -> Result<u32, PortRefusal>;
    /// Reloads the tables at that time; no frame is under way.
    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError>;
    /// Record of the events so far.
    fn record(&self) -> &Record;
    /// Tables in force.
    fn tables(&self) -> &Tables;
    /// Shard of the host: state and counters.
    fn shard(&self) -> &Shard;
    /// Fault for which the host stopped before the end; `None` if it did not.
    fn fault(&self) -> Option<&str> {
        None
    }
}

/// A frame that comes in.
pub struct Input {
    /// Number of the frame, from 0.
    pub number: u32,
    /// Ingress port.
    pub port: PortId,
    /// Time of reception.
    pub at: Nanos,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// Record of the events on a host.
#[derive(Debug, Default)]
pub struct Record {
    /// Frames that departed by each port, in order.
    pub sent: Vec<Vec<Sent>>,
    /// Outcome of each frame, by number; `None` while it is held.
    pub fates: Vec<Option<End>>,
    /// Outcomes of further copies of packets to multicast groups.
    pub copies: Vec<End>,
    /// Frames with two verdicts.
    pub twice: Vec<u32>,
    /// Number of reloads so far.
    pub turn: usize,
}

/// A frame that departed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the frame.
    pub number: u32,
    /// Start of its transmission.
    pub at: Nanos,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its verdict.
    pub verdict: Verdict,
    /// The rule that decided, by its place in the tables of that turn; [`Meta::NO_RULE`] for none.
    pub rule: u32,
    /// Its translations, by their place in the tables of that turn.
    pub nat: u16,
    /// Number of tables that there had been before those that it was decided by.
    pub turn: usize,
}

impl Record {
    fn note(&mut self, frame: &Frame, verdict: Verdict) {
        let end = End { verdict, rule: frame.meta.rule, nat: frame.meta.nat, turn: self.turn };
        if is_copy(&frame.meta) {
            self.copies.push(end);
        } else {
            self.note_end(frame.meta.number, end);
        }
    }

    fn note_end(&mut self, number: u32, end: End) {
        let place = number as usize;
        if self.fates.len() <= place {
            self.fates.resize(place + 1, None);
        }
        if self.fates[place].replace(end).is_some() {
            self.twice.push(number);
        }
    }
}

impl Witness for Record {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        let place = usize::from(port.0);
        if self.sent.len() <= place {
            self.sent.resize_with(place + 1, Vec::new);
        }
        self.sent[place].push(Sent { number: frame.meta.number, at, bytes: frame.bytes().to_vec() });
        if let Some(verdict) = verdict {
            self.note(frame, verdict);
        }
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.note(frame, verdict);
    }

    fn refused(&mut self, number: u32, _: PortId, reason: Reason) {
        let end = End { verdict: Verdict::Dropped(reason), rule: Meta::NO_RULE, nat: 0, turn: self.turn };
        self.note_end(number, end);
    }
}

fn replay(tables: Tables, now: Nanos, way: Way) -> Result<Box<dyn Player>, ReplayError> {
    let mut replay = Replay::new(tables, now, way)?;
    replay.shard.recorder.keep(&replay.tables);
    let rules = vec![rules(&replay.tables)];
    Ok(Box::new(Replaying { replay, record: Record::default(), rules, fault: None }))
}

/// Names of rules.
fn rules(tables: &Tables) -> Vec<String> {
    tables.filter.rules.iter().map(|rule| rule.name.clone()).collect()
}

struct Replaying {
    replay: Replay,
    record: Record,
    /// Names of rules, by place, in the tables of each turn.
    rules: Vec<Vec<String>>,
    fault: Option<String>,
}

/// Verdict and name of the rule that decided.
type Fate = (Verdict, Option<String>);

impl Replaying {
    /// Compares the drop recorder with the fates of all frames: the last of each reason are there, with their rules.
    fn recorder_fault(&self) -> Option<String> {
        let mut recorded: BTreeMap<Reason, Vec<Fate>> = BTreeMap::new();
        let reasons: Vec<Reason> = Reason::ALL.iter().map(|entry| entry.reason).collect();
        for packet in self.replay.shard.recorder.packets(&reasons) {
            let rule = packet.rule(&self.replay.tables).map(str::to_owned);
            recorded.entry(packet.verdict.reason()?).or_default().push((packet.verdict, rule));
        }
        let mut expected: BTreeMap<Reason, Vec<Fate>> = BTreeMap::new();
        for end in self.record.fates.iter().flatten().chain(&self.record.copies) {
            let (Verdict::Dropped(reason) | Verdict::Answered(reason)) = end.verdict else { continue };
            // Its session has made the answer before the pipeline has a verdict.
            if end.verdict != Verdict::Answered(Reason::PppControl) {
                let rule = self.rules.get(end.turn).and_then(|rules| rules.get(end.rule as usize)).cloned();
                expected.entry(reason).or_default().push((end.verdict, rule));
            }
        }
        let most = self.replay.tables.drop_record as usize;
        let is_same = |reason: &Reason| {
            let [mut found, mut wanted] =
                [&recorded, &expected].map(|map| map.get(reason).cloned().unwrap_or_default());
            found.sort();
            wanted.sort();
            // An answer that finds no room in a queue is dropped for that, having been recorded as one.
            let is_lost = |fate: &Fate| matches!(fate.0, Verdict::Answered(_));
            match wanted.len() <= most {
                true => diff(&found, &wanted).iter().all(is_lost) && diff(&wanted, &found).is_empty(),
                false => found.len() == most && diff(&found, &wanted).iter().all(is_lost),
            }
        };
        let reason = Reason::ALL.iter().map(|entry| entry.reason).find(|reason| !is_same(reason))?;
        let of = |map: &BTreeMap<Reason, Vec<Fate>>| map.get(&reason).cloned().unwrap_or_default();
        Some(format!(
            "the drop recorder has {:?} for {reason}, and there were {:?}",
            of(&recorded),
            of(&expected)
        ))
    }
}

/// Fates that are in one list more often than in the other.
fn diff(one: &[Fate], other: &[Fate]) -> Vec<Fate> {
    let mut rest = other.to_vec();
    let mut more = Vec::new();
    for fate in one {
        match rest.iter().position(|known| known == fate) {
            Some(place) => drop(rest.swap_remove(place)),
            None => more.push(fate.clone()),
        }
    }
    more
}

impl Player for Replaying {
    fn receive(&mut self, input: &Input) {
        self.replay.receive(input.port, input.at, input.number, &input.bytes, &mut self.record);
    }

    fn flush(&mut self) {
        self.replay.flush(&mut self.record);
    }

    fn advance(&mut self, at: Nanos) {
        self.replay.advance(at, &mut self.record);
    }

    fn finish(&mut self) {
        self.replay.finish(&mut self.record);
        self.fault = self.recorder_fault();
    }

    fn clear(&mut self) {
        self.replay.shard.clear_flows();
    }

    fn change_set(&mut self, change: &SetChange, at: Nanos) -> SetOutcome {
        self.replay.shard.change_set(&self.replay.tables, change, at)
    }

    fn map_port(&mut self, request: &PortRequest, at: Nanos) -> Result<PortMapping, PortRefusal> {
        self.replay.shard.map_port(&self.replay.tables, request, at)
    }

    fn unmap_port(&mut self, inside: &Endpoint, at: Nanos) -> Result<u32, PortRefusal> {
        self.replay.shard.unmap_port(inside, &Holder::operator(Label::default()), at)
    }

    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError> {
        self.record.turn += 1;
        self.rules.push(rules(&tables));
        self.replay.reload(tables, at, &mut self.record)
    }

    fn record(&self) -> &Record {
        &self.record
    }

    fn tables(&self) -> &Tables {
        &self.replay.tables
    }

    fn shard(&self) -> &Shard {
        &self.replay.shard
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
