//! Explanation of one packet: what each stage saw and did, who decided, what left, what it waited for, and what it cost.
//!
//! [`Explained`] has the data plane take the packet, in words or of a capture, by a policy; an [`Explanation`] tells of it. A host that has
//! a data plane of its own, such as a copy of a running gateway's state, explains by [`Replay::explain`] and makes the explanation itself.

use std::convert::Infallible;
use std::ops::ControlFlow;

use cases::Received;
use dataplane::describe::Description;
use dataplane::explain::{Account, CopyEnd, Sent, Visit};
use dataplane::replay::{ReplayError, Way};
use dataplane::{Reason, Replay, Tables, Verdict};
use policy::model::Colour;
use policy::{Lines, Policy};
use replay::capture::{NoPackets, OpenError};
use replay::fate::left_by;
use replay::number::count;
use replay::{Captures, Decryptor, Named, Readdress, Window};
use serde_json::{Map, Value, json};
use tally::{Count, Region};
use wire::{Nanos, PortId};

use crate::packet_syntax::{self, WordError};
use crate::text::{Text, Tone};
use queue::Backlogs;
use rendering::{Told, cost_text, state};

mod queue;
mod rendering;

pub use queue::{Fate, Wait, queued};
pub use rendering::{Chosen, LeafAt, Renderer, key};

/// Time of arrival of a packet in words: any moment does.
const MOMENT: Nanos = Nanos::from_secs(1_700_000_000);

/// Packet to be explained.
pub struct Packet {
    /// Interface that it comes in by.
    pub ingress: PortId,
    /// Time of arrival.
    pub at: Nanos,
    /// Number among the packets received.
    pub number: u32,
    /// The Ethernet frame.
    pub bytes: Vec<u8>,
}

/// Packet that is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// A packet in words, which is the first that the gateway sees.
    Words(&'a str),
    /// A packet of a capture, after those before it.
    Captured(Place<'a>),
}

/// Place of a packet in captures.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Captures of one time, whose packets come in merged.
    pub captures: &'a [Named],
    /// Number of the packet.
    pub number: Number,
    /// Treatment of frames for other machines.
    pub readdress: Readdress,
    /// Packets that are played; the others are unknown.
    pub window: Window,
}

impl Place<'_> {
    /// Opens the captures.
    fn open<S>(&self, tables: &Tables) -> Result<Captures, ExplainError<S>> {
        let mut captures = Captures::open(self.captures, tables, self.readdress)?;
        captures.select(self.window, tables)?;
        Ok(captures)
    }
}

/// Number of a packet of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Place in the first capture, from 1, as in Wireshark.
    First(u64),
    /// Arrival among the packets of all captures, from 0, as in the [fates](replay::fate) of a replay.
    Arrival(u64),
}

impl Number {
    /// Number of a packet, if it has one of this kind.
    fn of(self, packet: &replay::capture::Packet<'_>) -> Option<u64> {
        match self {
            Number::First(_) => (packet.source == 0).then_some(packet.number),
            Number::Arrival(_) => Some(packet.arrival),
        }
    }

    /// True if a packet is the one of this number. `met` has the lowest and the highest number so far.
    fn meets(self, packet: &replay::capture::Packet<'_>, met: &mut Option<(u64, u64)>) -> bool {
        let Some(number) = self.of(packet) else { return false };
        let (first, _) = met.unwrap_or((number, number));
        *met = Some((first, number));
        number == self.value()
    }

    fn value(self) -> u64 {
        match self {
            Number::First(number) | Number::Arrival(number) => number,
        }
    }
}

/// Reason that a packet is not explained. `S` is that of whoever watches and stops it, which nobody does by default.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<S = Infallible> {
    /// Its words are not understood.
    #[error(transparent)]
    Words(#[from] WordError),
    /// A capture cannot be read, or the policy lacks an interface.
    #[error(transparent)]
    Captures(#[from] OpenError),
    /// The capture, or the replay of all of them, has no packet of that number.
    #[error(transparent)]
    NoPacket(#[from] NoPacket),
    /// No packet is in the window of time.
    #[error(transparent)]
    Window(#[from] NoPackets),
    /// The policy asks for more than this machine has.
    #[error(transparent)]
    Setup(#[from] ReplayError),
    /// Whoever watched has stopped it.
    #[error("stopped before the packet was explained")]
    Stopped(S),
}

/// A packet that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{of} has no packet {number}")]
pub struct NoPacket {
    /// The capture, or the replay.
    pub of: String,
    /// Number asked for.
    pub number: u64,
    /// Lowest number that there is.
    pub first: u64,
    /// Highest number that there is.
    pub last: u64,
}

impl NoPacket {
    /// Error of captures that have been read to their end, with the numbers that were met; a capture of no packet is not opened.
    fn new(captures: &Captures, number: Number, met: Option<(u64, u64)>) -> NoPacket {
        let of = match number {
            Number::First(_) => captures.sources().first().map(|source| source.path.display().to_string()),
            Number::Arrival(_) => None,
        };
        let (first, last) = met.unwrap_or_default();
        NoPacket { of: of.unwrap_or_else(|| "the replay".to_owned()), number: number.value(), first, last }
    }

    /// Returns advice.
    pub fn hint(&self) -> String {
        format!("its packets are numbered from {} to {}", self.first, self.last)
    }
}

impl Packet {
    /// Reads a packet in words.
    ///
    /// # Errors
    /// A word is not understood.
    pub fn in_words(text: &str, tables: &Tables) -> Result<Packet, WordError> {
        let Received { ingress, bytes } = packet_syntax::read(text, tables)?;
        Ok(Packet { ingress, at: MOMENT, number: 0, bytes })
    }

    /// Takes a packet of a capture by itself: nothing is played before it.
    ///
    /// # Errors
    /// The capture cannot be read, or has no such packet.
    pub fn alone(place: Place<'_>, tables: &Tables) -> Result<Packet, ExplainError> {
        let mut captures = place.open(tables)?;
        let mut met = None;
        while let Some(packet) = captures.next(tables) {
            if place.number.meets(&packet, &mut met) {
                let (ingress, at, bytes) = (packet.ingress, packet.at, packet.bytes.to_vec());
                return Ok(Packet { ingress, at, number: 0, bytes });
            }
        }
        Err(NoPacket::new(&captures, place.number, met).into())
    }
}

/// A packet that a data plane has taken, with what became of it.
pub struct Explained {
    /// The data plane, behind the end of the packet's wait.
    pub replay: Replay,
    /// The packet.
    pub packet: Packet,
    /// Its way through the stages.
    pub account: Account,
    /// Queues that it waited in.
    pub waits: Vec<Wait>,
    /// End of the wait.
    pub fate: Option<Fate>,
}

impl Explained {
    /// Explains a packet by the tables of a policy. Tunnels have the associations of a table, if one is given. `watch` sees the captures after
    /// each packet that is played, and may end it.
    ///
    /// # Errors
    /// There is no such packet, or `watch` ended it.
    pub fn of<S>(
        tables: Tables,
        asked: Asked<'_>,
        decryptor: Option<&mut Decryptor>,
        watch: &mut dyn FnMut(&Captures) -> ControlFlow<S>,
    ) -> Result<Explained, ExplainError<S>> {
        let begin = |tables, start| {
            let mut replay = Replay::new(tables, start, Way::Run)?;
            if let Some(decryptor) = decryptor {
                decryptor.join(&mut replay);
            }
            Ok::<Replay, ReplayError>(replay)
        };
        let (mut replay, packet, mut rest) = match asked {
            Asked::Words(text) => {
                let packet = Packet::in_words(text, &tables)?;
                (begin(tables, MOMENT)?, packet, None)
            }
            Asked::Captured(place) => {
                let mut captures = place.open(&tables)?;
                let mut replay = begin(tables, captures.start())?;
                let packet = play(&mut replay, &mut captures, place.number, watch)?;
                (replay, packet, Some(captures))
            }
        };
        let Packet { ingress, at, number, bytes } = &packet;
        replay.advance(*at, &mut ());
        let backlogs = Backlogs::of(&replay);
        let mut account = replay.explain(*ingress, *at, *number, bytes, &mut ());
        let waits = backlogs.before(&account, &replay.tables, bytes);
        let mut fate = None;
        if !waits.is_empty() {
            fate = match queue::fate(&mut replay, rest.as_mut(), &packet, watch) {
                ControlFlow::Continue(fate) => fate,
                ControlFlow::Break(stop) => return Err(ExplainError::Stopped(stop)),
            };
        }
        if let Some(Fate::Lost(_, reason)) = fate {
            // What the pipeline queued has a verdict at its departure.
            account.verdict = Verdict::Dropped(reason);
            account.sent.retain(|sent| sent.verdict.is_none());
        }
        Ok(Explained { replay, packet, account, waits, fate })
    }

    /// Explanation by the names and lines of the policy.
    pub fn explanation<'a>(&'a self, policy: &'a Policy, lines: &'a Lines) -> Explanation<'a> {
        let (tables, received) = (&self.replay.tables, &self.packet.bytes);
        let renderer = Renderer { tables, policy, lines, received, chosen: None };
        let mut explanation = Explanation::new(renderer, &self.account, self.packet.ingress);
        (explanation.waits, explanation.fate) = (&self.waits, self.fate);
        explanation
    }
}

/// Plays all packets before the one of that number.
fn play<S>(
    replay: &mut Replay,
    captures: &mut Captures,
    number: Number,
    watch: &mut dyn FnMut(&Captures) -> ControlFlow<S>,
) -> Result<Packet, ExplainError<S>> {
    let (mut met, mut answer) = (None, Vec::new());
    while let Some(packet) = captures.next(&replay.tables) {
        let (bytes, _) = packet.as_sent(replay, &mut (), &mut answer);
        // Frames know the lower half of it.
        let place = packet.arrival as u32;
        if number.meets(&packet, &mut met) {
            let bytes = bytes.to_vec();
            return Ok(Packet { ingress: packet.ingress, at: packet.at, number: place, bytes });
        }
        replay.receive(packet.ingress, packet.at, place, bytes, &mut ());
        if let ControlFlow::Break(stop) = watch(captures) {
            return Err(ExplainError::Stopped(stop));
        }
    }
    Err(NoPacket::new(captures, number, met).into())
}

/// Explanation of a packet.
pub struct Explanation<'a> {
    renderer: Renderer<'a>,
    account: &'a Account,
    ingress: PortId,
    told: Vec<Told<'a>>,
    waits: &'a [Wait],
    fate: Option<Fate>,
}

impl<'a> Explanation<'a> {
    /// Explanation of the packet that `renderer` has, which came in by `ingress`, without the queues that it waited in.
    pub fn new(renderer: Renderer<'a>, account: &'a Account, ingress: PortId) -> Explanation<'a> {
        let told = renderer.tell(account);
        Explanation { renderer, account, ingress, told, waits: &[], fate: None }
    }

    /// Returns the explanation in words.
    pub fn text(&self) -> Text {
        let mut text = self.events();
        text.append(self.total());
        text
    }

    /// Returns what happened, in words.
    pub fn events(&self) -> Text {
        let mut text = Text::default();
        let received = Description::of(self.renderer.received);
        let name = self.interface(self.ingress);
        text.line(Tone::Heading, format_args!("{name} {}", received.headline));
        text.plain("\n");
        for Told { stage, says, visit } in &self.told {
            let Some(visit) = visit else {
                text.line(Tone::Detail, format_args!("{stage:<9} {}", says.join("; ")));
                continue;
            };
            for (place, sentence) in says.iter().enumerate() {
                let lead = if place == 0 { stage } else { "" };
                text.add(Tone::Heading, format_args!("{lead:<9}"));
                text.plain(format_args!(" {sentence}\n"));
            }
            text.plain(format_args!("{:<9} ", ""));
            text.line(Tone::Detail, cost_text(&visit.cost));
        }
        text.plain("\n");
        let verdict = self.account.verdict;
        let tone = match verdict {
            Verdict::Forwarded | Verdict::Delivered => Tone::Good,
            Verdict::Answered(_) | Verdict::Held(_) => Tone::Care,
            Verdict::Dropped(_) => Tone::Bad,
        };
        text.line(tone, verdict);
        if let Some(reason) = verdict.reason() {
            let (cause, remedy) = (reason.entry().cause, self.remedy(reason));
            text.plain(format_args!("  Cause:  {cause}\n  Remedy: {remedy}\n"));
        }
        for copy in &self.account.copies {
            text.plain(format_args!("  {}\n", self.renderer.copy(copy)));
        }
        for sent in &self.account.sent {
            let headline = self.renderer.describe(&sent.bytes).headline;
            text.plain(format_args!("  Out by {}: {headline}\n", self.left_by(sent)));
        }
        for wait in self.waits {
            text.plain(format_args!("  It {}\n", wait.text()));
        }
        if let Some(fate) = self.fate {
            text.plain(format_args!("  It {}\n", fate.text()));
        }
        text
    }

    /// Returns the cost of all stages together, in one line.
    pub fn total(&self) -> Text {
        let references: u64 = self
            .account
            .visits
            .iter()
            .flat_map(|visit| Region::ALL.map(|region| visit.cost.references(region)))
            .map(|seen| seen.reads + seen.writes + seen.atomics)
            .sum();
        let mut text = Text::default();
        let instructions = count(instructions(self.account), "instruction", "instructions");
        let references = count(references, "memory reference", "memory references");
        text.line(Tone::Detail, format_args!("In all: {instructions}, {references}"));
        text
    }

    /// Returns the explanation as an object: stages, verdict, decisions, and the packets sent.
    pub fn to_json(&self) -> Value {
        let verdict = self.account.verdict;
        let last = self.account.visits.last();
        let rule = last.map(|visit| visit.after.rule).filter(|_| self.account.visits.len() > 1);
        let rule = rule
            .and_then(|place| self.renderer.tables.filter.rules.get(place as usize))
            .map(|rule| json!({ "name": rule.name, "line": self.renderer.lines.rule(&rule.name) }));
        let pair = last.map_or(0, |visit| visit.after.nat);
        let nats: Vec<Value> = self
            .renderer
            .tables
            .nat
            .names(pair)
            .map(|name| json!({ "name": name, "line": self.renderer.lines.nat(name) }))
            .collect();
        let flow = self.account.visits.iter().rev().find_map(|visit| visit.flow.as_ref()).map(|flow| {
            // Its port is not known before the packet comes.
            let reply = self.renderer.chosen.is_none().then(|| key(flow.reply()));
            json!({ "state": state(flow), "original": key(flow.original()), "reply": reply })
        });
        let reason = verdict.reason().map(|reason| {
            let entry = reason.entry();
            json!({ "name": entry.name, "cause": entry.cause, "remedy": self.remedy(reason) })
        });
        let stages = self.told.iter().map(|Told { stage, says, visit }| {
            let decided = visit.filter(|visit| visit.after.fate != visit.before.fate);
            let mut told = json!({
                "stage": stage,
                "took": visit.is_some(),
                "says": says,
                "verdict": decided.and_then(|visit| Verdict::of_fate(visit.after.fate)).map(Verdict::name),
                "cost": visit.map(|visit: &Visit| cost_json(&visit.cost)),
            });
            let sa = visit.and_then(|visit| self.renderer.sa_json(visit));
            if let (Some(sa), Some(object)) = (sa, told.as_object_mut()) {
                object.insert("sa".to_owned(), sa);
            }
            told
        });
        let sent = self
            .account
            .sent
            .iter()
            .map(|sent| json!({ "interface": self.left_by(sent), "packet": self.fields(&sent.bytes) }));
        let police = self.account.visits.iter().find(|visit| visit.stage == "police");
        let meter = police.and_then(|visit| visit.meter);
        let class = last.and_then(|visit| self.renderer.tables.classes.get(visit.after.class));
        json!({
            "interface": self.interface(self.ingress),
            "packet": self.fields(self.renderer.received),
            "stages": stages.collect::<Vec<_>>(),
            "verdict": verdict.name(),
            "reason": reason,
            "rule": rule,
            "nats": nats,
            "flow": flow,
            "class": class.map(|class| &class.name),
            "colour": police.filter(|visit| visit.meter.is_some()).and_then(colour),
            "meter": meter,
            "queues": self.waits.iter().map(Wait::to_json).collect::<Vec<_>>(),
            "delay_ns": self.fate.and_then(Fate::delay_ns),
            "copies": self.account.copies.iter().map(|copy| self.copy_json(copy)).collect::<Vec<_>>(),
            "sent": sent.collect::<Vec<_>>(),
            "instructions": instructions(self.account),
        })
    }

    /// Advice on a drop: of a queue of a tree by its name.
    fn remedy(&self, reason: Reason) -> String {
        let of_queue = match reason {
            Reason::QueueFull => queue::advice(self.waits, self.renderer.policy),
            _ => None,
        };
        of_queue.unwrap_or_else(|| reason.entry().remedy.to_owned())
    }

    fn copy_json(&self, copy: &CopyEnd) -> Value {
        let rule = self.renderer.tables.filter.rules.get(copy.rule as usize).map(|rule| &rule.name);
        json!({
            "interface": self.interface(copy.egress),
            "verdict": copy.verdict.name(),
            "reason": copy.verdict.reason().map(|reason| reason.name()),
            "rule": rule,
        })
    }

    fn fields(&self, frame: &[u8]) -> Value {
        json!(self.renderer.describe(frame))
    }

    fn left_by(&self, sent: &Sent) -> &str {
        let vlans = self.renderer.tables.interface(sent.port).map_or(&[][..], |interface| &interface.vlans);
        self.interface(left_by(sent.port, vlans, &sent.bytes))
    }

    fn interface(&self, id: PortId) -> &str {
        self.renderer.tables.interface(id).map_or("?", |interface| &interface.name)
    }
}

fn cost_json(cost: &Count) -> Value {
    let references = Region::ALL.iter().filter_map(|region| {
        let seen = cost.references(*region);
        (seen.reads + seen.writes + seen.atomics > 0).then(|| {
            let told = json!({
                "reads": seen.reads, "writes": seen.writes, "atomics": seen.atomics, "bytes": seen.bytes,
            });
            (region.name().to_owned(), told)
        })
    });
    json!({
        "instructions": cost.executed_total(),
        "hashes": cost.hashes(),
        "references": references.collect::<Map<_, _>>(),
    })
}

fn instructions(account: &Account) -> u64 {
    account.visits.iter().map(|visit| visit.cost.executed_total()).sum()
}

/// Name of the colour that a meter gave.
fn colour(visit: &Visit) -> Option<&'static str> {
    Colour::ALL.into_iter().find(|colour| *colour as u8 == visit.after.colour).map(Colour::name)
}
