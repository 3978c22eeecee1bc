//! The hosts that every case is played on: one list. What they do must be the same, to the byte.

use std::collections::VecDeque;
use std::sync::LazyLock;

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description::{self, Chip};
use chip::host::{Entry, Onlooker, Traffic};
use chip::mapping::{self, Mapping};
use chip::run;
use dataplane::replay::{ReloadError, ReplayError, Way, Witness};
use dataplane::{Reason, Replay, Shard, Tables, Verdict};
use wire::{Frame, Nanos, PortId};

/// A host that cases are played on.
pub(crate) struct Host {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// How frames reach it.
    pub(crate) batching: Batching,
    /// Starts it at a moment.
    pub(crate) start: fn(Tables, Nanos) -> Result<Box<dyn Player>, ReplayError>,
}

/// How frames reach a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batching {
    /// Those of one moment together.
    Moment,
    /// As many together as there can be.
    Case,
    /// Each is out before the next one comes in.
    Frame,
}

/// The hosts. The first decides what variables stand for; the others must do the same as it.
pub(crate) const HOSTS: &[Host] = &[
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
    Host {
        name: "chip ixp1200",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp1200-pool", tables, now),
    },
    Host {
        name: "chip ixp1200, split",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp1200-split", tables, now),
    },
    Host {
        name: "chip ixp2400",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp2400-pool", tables, now),
    },
    Host {
        name: "chip ixp2800",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp2800-pool", tables, now),
    },
    Host {
        name: "chip tetra",
        batching: Batching::Case,
        start: |tables, now| modelled("tetra-pool", tables, now),
    },
];

/// A host at work.
pub(crate) trait Player {
    /// A frame comes in.
    fn receive(&mut self, input: &Input);
    /// All frames that came in so far go through, and what is due by now departs.
    fn flush(&mut self);
    /// Time goes on: all frames that came in so far go through, and what is due before `at` departs.
    fn advance(&mut self, at: Nanos);
    /// No more frames come: all that is queued departs.
    fn finish(&mut self);
    /// All connections are forgotten.
    fn clear(&mut self);
    /// Other tables hold from that moment on; nothing is under way.
    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError>;
    /// What happened so far.
    fn record(&self) -> &Record;
    /// The tables that it plays with.
    fn tables(&self) -> &Tables;
    /// What it remembers and has counted.
    fn shard(&self) -> &Shard;
    /// Why it did not play to the end.
    fn fault(&self) -> Option<&str> {
        None
    }
}

/// A frame that comes in.
pub(crate) struct Input {
    /// By which it is known again; counted from 0.
    pub(crate) number: u32,
    /// The port that it comes in by.
    pub(crate) port: PortId,
    /// When.
    pub(crate) at: Nanos,
    /// The frame.
    pub(crate) bytes: Vec<u8>,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What departed by each port, in order.
    pub(crate) sent: Vec<Vec<Sent>>,
    /// What became of each frame, by its number; `None` while it is held.
    pub(crate) fates: Vec<Option<End>>,
    /// Frames that were told of twice.
    pub(crate) twice: Vec<u32>,
    /// Number of tables that there have been before those that hold.
    turn: usize,
}

/// A frame that departed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The number of the frame that it was.
    pub(crate) number: u32,
    /// When its transmission began.
    pub(crate) at: Nanos,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) verdict: Verdict,
    /// By place in the tables of that turn.
    pub(crate) rule: u32,
    pub(crate) nat: u16,
    pub(crate) turn: usize,
}

impl Record {
    fn note(&mut self, frame: &Frame, verdict: Verdict) {
        let end = End { verdict, rule: frame.meta.rule, nat: frame.meta.nat, turn: self.turn };
        self.note_end(frame.meta.number, end);
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
        let end = End { verdict: Verdict::Dropped(reason), rule: u32::MAX, nat: 0, turn: self.turn };
        self.note_end(number, end);
    }
}

fn replay(tables: Tables, now: Nanos, way: Way) -> Result<Box<dyn Player>, ReplayError> {
    Ok(Box::new(Replaying { replay: Replay::new(tables, now, way)?, record: Record::default() }))
}

struct Replaying {
    replay: Replay,
    record: Record,
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
    }

    fn clear(&mut self) {
        self.replay.shard.clear_flows();
    }

    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError> {
        self.record.turn += 1;
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
}

/// The mappings that come with the program, each with its chip; read once for all cases.
static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| {
    let described = |name: &'static str, text: &str| {
        let chip = mapping::chip_of(text)?;
        let chip = description::parse(named(CHIPS, &chip)?, &chip).chip?;
        let mapping = mapping::parse(text, name, &chip).mapping?;
        Some(Described { name, chip, mapping })
    };
    MAPPINGS.iter().filter_map(|shipped| described(shipped.name, shipped.text)).collect()
});

/// A chip and what runs on it.
struct Described {
    name: &'static str,
    chip: Chip,
    mapping: Mapping,
}

/// The chip that the mapping of that name is for.
fn modelled(name: &str, tables: Tables, now: Nanos) -> Result<Box<dyn Player>, ReplayError> {
    Ok(Box::new(Modelled {
        described: DESCRIBED.iter().find(|described| described.name == name),
        replay: Replay::new(tables, now, Way::Step)?,
        record: Record::default(),
        coming: Coming(VecDeque::new()),
        fault: None,
    }))
}

/// A chip at work. What it remembers goes on from flush to flush; its clock and its engines begin anew.
struct Modelled {
    described: Option<&'static Described>,
    replay: Replay,
    record: Record,
    coming: Coming,
    fault: Option<String>,
}

/// Frames that came since the last flush.
struct Coming(VecDeque<Input>);

impl Traffic for Coming {
    fn peek(&mut self) -> Option<Nanos> {
        self.0.front().map(|input| input.at)
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let input = self.0.pop_front()?;
        bytes.extend_from_slice(&input.bytes);
        Some(Entry::new(input.at, input.port, bytes.len()))
    }
}

/// A frame that is lost has no fate, and differs by that from what other hosts did with it.
impl Onlooker for Record {}

impl Modelled {
    /// Plays all that came.
    fn play(&mut self) {
        let Some(first) = self.coming.0.front().map(|input| input.number) else { return };
        let Some(Described { chip, mapping, .. }) = self.described else {
            self.fault = Some("its description is wrong".to_owned());
            return;
        };
        let Modelled { replay, record, coming, fault, .. } = self;
        if let Err(error) = run::play(chip, mapping, replay, coming, first, record) {
            *fault = Some(error.to_string());
        }
    }
}

impl Player for Modelled {
    fn receive(&mut self, input: &Input) {
        let Input { number, port, at, ref bytes } = *input;
        self.coming.0.push_back(Input { number, port, at, bytes: bytes.clone() });
    }

    fn flush(&mut self) {
        self.play();
        self.replay.flush(&mut self.record);
    }

    fn advance(&mut self, at: Nanos) {
        self.play();
        self.replay.advance(at, &mut self.record);
    }

    fn finish(&mut self) {
        self.play();
        self.replay.finish(&mut self.record);
    }

    fn clear(&mut self) {
        self.replay.shard.clear_flows();
    }

    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError> {
        self.record.turn += 1;
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

#[cfg(test)]
mod tests {
    use super::{CHIPS, HOSTS};

    #[test]
    fn every_shipped_chip_plays_the_cases() {
        for shipped in CHIPS {
            let name = format!("chip {}", shipped.name);
            assert!(HOSTS.iter().any(|host| host.name == name), "{name}");
        }
    }
}
