//! What was counted, by verdict, reason, rule and translation. Every frame is counted once.

use wire::Frame;

use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many frames.
    pub frames: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Traffic {
    /// Counts one frame.
    #[inline(always)]
    pub fn count(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Counts frames as they are.
    #[inline(always)]
    pub fn count_all(&mut self, frames: &[Frame]) {
        self.frames += frames.len() as u64;
        self.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }
}

/// The counters of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// All that was received; bytes from the link-layer header on.
    pub received: Traffic,
    /// Frames by verdict, indexed by its high byte.
    verdicts: [u64; 6],
    /// Answered frames by reason.
    answered: [u64; Reason::COUNT],
    /// Dropped frames by reason.
    dropped: [u64; Reason::COUNT],
    /// Frames held now.
    pub held: u64,
    /// Frames that a rule decided, and those of flows that it let in; bytes of IP packets.
    pub rules: Vec<Traffic>,
    /// Frames translated, by pair of translations ([`crate::tables::NatTables::pair`]); bytes of IP packets.
    pub nats: Vec<Traffic>,
    /// Further parts of packets that were cut: frames sent beyond those received.
    pub parts_sent: u64,
    /// Further parts that found the queue full.
    pub parts_lost: u64,
    /// Flows ended to make room for others.
    pub evicted: u64,
    /// Flows refused or packets dropped for want of ports, by source translation.
    pub nat_refused: Vec<u64>,
}

impl Counters {
    /// All zero.
    pub fn new(tables: &Tables) -> Counters {
        Counters {
            received: Traffic::default(),
            verdicts: [0; 6],
            answered: [0; Reason::COUNT],
            dropped: [0; Reason::COUNT],
            held: 0,
            rules: vec![Traffic::default(); tables.filter.rules.len()],
            nats: vec![Traffic::default(); tables.nat.pairs()],
            parts_sent: 0,
            parts_lost: 0,
            evicted: 0,
            nat_refused: vec![0; tables.nat.sources.len()],
        }
    }

    /// Counts the final verdict of a frame, and its rule and translations.
    #[inline(always)]
    pub fn count(&mut self, frame: &Frame) {
        let fate = frame.meta.fate;
        if let Some(verdict) = self.verdicts.get_mut(usize::from(fate >> 8)) {
            *verdict += 1;
        }
        if fate >= 0x300 {
            let reason = usize::from(fate & 0xff);
            let by_reason = if fate >> 8 == 3 { &mut self.answered } else { &mut self.dropped };
            if let Some(count) = by_reason.get_mut(reason) {
                *count += 1;
            }
        }
        // What is dropped while it is parsed may have no end yet.
        let bytes = usize::from(frame.meta.end.saturating_sub(frame.meta.network));
        if let Some(rule) = self.rules.get_mut(frame.meta.rule as usize) {
            rule.count(bytes);
        }
        if frame.meta.nat != 0 {
            if let Some(nat) = self.nats.get_mut(usize::from(frame.meta.nat)) {
                nat.count(bytes);
            }
        }
    }

    /// Counts a frame that could not even be taken in.
    pub fn count_refused(&mut self, bytes: usize, reason: Reason) {
        self.received.count(bytes);
        self.dropped[reason as usize] += 1;
    }

    /// Frames forwarded.
    pub fn forwarded(&self) -> u64 {
        self.verdicts[usize::from(Verdict::Forwarded.to_fate() >> 8)]
    }

    /// Frames delivered to the gateway itself.
    pub fn delivered(&self) -> u64 {
        self.verdicts[usize::from(Verdict::Delivered.to_fate() >> 8)]
    }

    /// Frames answered, for all reasons.
    pub fn answered(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Frames dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Frames answered for a reason.
    pub fn answered_for(&self, reason: Reason) -> u64 {
        self.answered[reason as usize]
    }

    /// Frames dropped for a reason.
    pub fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Whether received = forwarded + delivered + answered + dropped + held.
    pub fn are_conserved(&self) -> bool {
        let ended = self.forwarded() + self.delivered() + self.answered() + self.dropped();
        self.received.frames == ended + self.held
    }

    /// Traffic of a source or destination translation, by its place in the list.
    pub fn nat(&self, tables: &Tables, place: usize, side: NatSide) -> Traffic {
        let mut sum = Traffic::default();
        for (pair, traffic) in self.nats.iter().enumerate() {
            let (destination, source) = tables.nat.places(pair as u16);
            let chosen = match side {
                NatSide::Destination => destination,
                NatSide::Source => source,
            };
            if chosen == Some(place) {
                sum.frames += traffic.frames;
                sum.bytes += traffic.bytes;
            }
        }
        sum
    }
}

/// Which list a translation is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatSide {
    /// Destination translations.
    Destination,
    /// Source translations.
    Source,
}
