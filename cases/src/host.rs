//! The hosts that cases are played on. [`REPLAY`] plays every case; what else can play cases implements [`Player`] and
//! has a [`Host`]. What hosts do must be the same, to the byte.

use dataplane::replay::{ReloadError, ReplayError, Way, Witness};
use dataplane::{Reason, Replay, Shard, Tables, Verdict};
use wire::{Frame, Nanos, PortId};

/// A host that cases are played on.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its name in reports.
    pub name: &'static str,
    /// How frames reach it.
    pub batching: Batching,
    /// Starts it at a moment.
    pub start: fn(Tables, Nanos) -> Result<Box<dyn Player>, ReplayError>,
}

/// How frames reach a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Those of one moment together.
    Moment,
    /// As many together as there can be.
    Case,
    /// Each is out before the next one comes in.
    Frame,
}

/// The replay host in its four ways. The first decides what variables stand for; all hosts must do the same as it.
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
pub struct Input {
    /// By which it is known again; counted from 0.
    pub number: u32,
    /// The port that it comes in by.
    pub port: PortId,
    /// When.
    pub at: Nanos,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Record {
    /// What departed by each port, in order.
    pub sent: Vec<Vec<Sent>>,
    /// What became of each frame, by its number; `None` while it is held.
    pub fates: Vec<Option<End>>,
    /// Frames that were told of twice.
    pub twice: Vec<u32>,
    /// Number of tables that there have been before those that hold.
    pub turn: usize,
}

/// A frame that departed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of the frame that it was.
    pub number: u32,
    /// When its transmission began.
    pub at: Nanos,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its verdict.
    pub verdict: Verdict,
    /// The rule that decided, by its place in the tables of that turn; `u32::MAX` for none.
    pub rule: u32,
    /// Its translations, by their place in the tables of that turn.
    pub nat: u16,
    /// Number of tables that there had been before those that it was decided by.
    pub turn: usize,
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
