//! `wirerate explain`: what happened to this packet, and why?

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use dataplane::explain::{Account, Sent, Visit};
use dataplane::replay::Way;
use dataplane::{Replay, Verdict};
use serde_json::{Map, Value, json};
use tally::{Count, Region};
use wire::{Nanos, PortId};

use crate::describe::Description;
use crate::failure::{Exit, Failure};
use crate::input::{Captures, Named, Readdress};
use crate::narration::{Narrator, Told, cost_text, key, state};
use crate::policy_file::{self, Loaded};
use crate::progress::{Progress, Unit};
use crate::screen::{self, BAD, CARE, DIM, GOOD, HEADING};
use crate::{output, with_exit_codes, words};

/// Say what happens to one packet, stage by stage, and why
///
/// The packet is given in words, and then it is the first that the gateway sees; or as CAPTURE:NUMBER, numbered
/// from 1 as in Wireshark, and then the packets before it go first, so that it meets the connections that they
/// left. Told are: what each stage saw, which rule decided (by name and line), which route and translation were
/// chosen, what was changed, and what it cost.
///
/// Costs are those of the tally: instructions of a single-issue 32-bit processor, and references to named data
/// structures. They are what a chip would have to do, not this machine's.
#[derive(Debug, Args)]
#[command(after_long_help = help())]
pub(crate) struct Arguments {
    /// The policy (TOML)
    policy: PathBuf,

    /// A packet in words, or [IFACE=]CAPTURE:NUMBER
    #[arg(required = true, value_name = "PACKET | CAPTURE:NUMBER")]
    packet: Vec<String>,

    /// Another capture of the same time, whose packets come in between
    #[arg(long, value_name = "[IFACE=]CAPTURE")]
    with: Vec<Named>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Take frames for other machines' link-layer addresses, too, as if they were for the gateway
    #[arg(long)]
    any_mac: bool,
}

fn help() -> String {
    let examples = "\
Examples:
  wirerate explain policies/home-office.toml \\
    'lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn'
  wirerate explain policies/home-office.toml \\
    'wan icmp 198.51.100.7 > 203.0.113.2 echo-request ttl 1'
  wirerate explain policies/home-office.toml \\
    'lan udp [2001:db8:1::10]:5353 > [2001:db8:2::53]:53 dscp ef'
A frame of a capture, after those before it:
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate explain policies/home-office.toml \\
    lan=lan.pcapng:42 --with wan=wan.pcapng";
    with_exit_codes(&format!("{}\n\n{examples}", words::GRAMMAR))
}

/// When a packet in words comes in: any moment does.
const MOMENT: Nanos = Nanos::from_secs(1_700_000_000);

/// The packet that is explained.
struct Packet {
    ingress: PortId,
    at: Nanos,
    number: u32,
    bytes: Vec<u8>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let Loaded { file, policy, lines, tables } = policy_file::load(&self.policy)?;
        let text = self.packet.join(" ");
        let setup = |error| Failure::Setup { file: file.clone(), error };
        let (mut replay, packet) = match numbered(&text) {
            Some((named, number)) => {
                let mut captures = vec![named];
                captures.extend(self.with.iter().cloned());
                let readdress = if self.any_mac { Readdress::Always } else { Readdress::Inferred };
                let captures = Captures::open(&captures, &tables, readdress)?;
                let replay = Replay::new(tables, captures.start(), Way::Run).map_err(setup)?;
                play(replay, captures, number)?
            }
            None => {
                let worded = words::read(&text, &tables).map_err(Failure::Words)?;
                let replay = Replay::new(tables, MOMENT, Way::Run).map_err(setup)?;
                (replay, Packet { ingress: worded.ingress, at: MOMENT, number: 0, bytes: worded.bytes })
            }
        };
        let Packet { ingress, at, number, bytes } = packet;
        let account = replay.explain(ingress, at, number, &bytes, &mut ());
        let narrator = Narrator { tables: &replay.tables, policy: &policy, lines: &lines, received: &bytes };
        let told = narrator.tell(&account);
        let report = Report { narrator, account: &account, told, ingress };
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", report.to_json())?;
        } else {
            report.print(&mut out)?;
        }
        Ok(Exit::Done)
    }
}

/// `[IFACE=]CAPTURE:NUMBER`: a packet in words has spaces, and no file behind its colon.
fn numbered(text: &str) -> Option<(Named, u64)> {
    let (capture, number) = text.rsplit_once(':')?;
    let number = number.parse().ok()?;
    let Ok(named) = capture.parse::<Named>();
    let is_file = named.path.exists() || !text.contains(char::is_whitespace);
    is_file.then_some((named, number))
}

/// Plays all packets before the one of that number of the first capture.
fn play(mut replay: Replay, mut captures: Captures, number: u64) -> Result<(Replay, Packet), Failure> {
    let mut place: u32 = 0;
    let mut answer = Vec::new();
    let mut progress = Progress::new("explain", Unit::Packet, captures.size());
    while let Some(packet) = captures.next(&replay.tables) {
        let (bytes, _) = packet.as_sent(&mut replay, &mut (), &mut answer);
        if packet.source == 0 && packet.number == number {
            progress.finish();
            let bytes = bytes.to_vec();
            let packet = Packet { ingress: packet.ingress, at: packet.at, number: place, bytes };
            return Ok((replay, packet));
        }
        replay.receive(packet.ingress, packet.at, place, bytes, &mut ());
        place = place.wrapping_add(1);
        progress.step(captures.read());
    }
    progress.finish();
    let source = captures.sources().first();
    Err(Failure::NoPacket {
        path: source.map(|source| source.path.clone()).unwrap_or_default(),
        number,
        packets: source.map_or(0, |source| source.entered.values().sum()),
    })
}

/// What is told of a packet.
struct Report<'a> {
    narrator: Narrator<'a>,
    account: &'a Account,
    told: Vec<Told<'a>>,
    ingress: PortId,
}

impl Report<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let received = Description::of(self.narrator.received);
        let name = self.interface(self.ingress);
        writeln!(out, "{HEADING}{name} {}{HEADING:#}\n", received.headline)?;
        for Told { stage, says, visit } in &self.told {
            let Some(visit) = visit else {
                writeln!(out, "{DIM}{stage:<9} {}{DIM:#}", says.join("; "))?;
                continue;
            };
            for (place, sentence) in says.iter().enumerate() {
                let lead = if place == 0 { stage } else { "" };
                writeln!(out, "{HEADING}{lead:<9}{HEADING:#} {sentence}")?;
            }
            writeln!(out, "{:<9} {DIM}{}{DIM:#}", "", cost_text(&visit.cost))?;
        }
        writeln!(out)?;
        let verdict = self.account.verdict;
        let style = match verdict {
            Verdict::Forwarded | Verdict::Delivered => GOOD,
            Verdict::Answered(_) | Verdict::Held(_) => CARE,
            Verdict::Dropped(_) => BAD,
        };
        writeln!(out, "{style}{verdict}{style:#}")?;
        if let Some(reason) = verdict.reason() {
            let entry = reason.entry();
            writeln!(out, "  Cause:  {}\n  Remedy: {}", entry.cause, entry.remedy)?;
        }
        for sent in &self.account.sent {
            let headline = Description::of(&sent.bytes).headline;
            writeln!(out, "  Out by {}: {headline}", self.left_by(sent))?;
        }
        writeln!(out, "{DIM}In all: {}{DIM:#}", cost_text_of(self.account))
    }

    fn to_json(&self) -> Value {
        let verdict = self.account.verdict;
        let last = self.account.visits.last();
        let rule = last.map(|visit| visit.after.rule).filter(|_| self.account.visits.len() > 1);
        let rule = rule
            .and_then(|place| self.narrator.tables.filter.rules.get(place as usize))
            .map(|rule| json!({ "name": rule.name, "line": self.narrator.lines.rule(&rule.name) }));
        let pair = last.map_or(0, |visit| visit.after.nat);
        let nats: Vec<Value> = self
            .narrator
            .tables
            .nat
            .names(pair)
            .map(|name| json!({ "name": name, "line": self.narrator.lines.nat(name) }))
            .collect();
        let flow = self.account.visits.iter().rev().find_map(|visit| visit.flow.as_ref()).map(|flow| {
            json!({ "state": state(flow), "original": key(flow.original()), "reply": key(flow.reply()) })
        });
        let reason = verdict.reason().map(|reason| {
            let entry = reason.entry();
            json!({ "name": entry.name, "cause": entry.cause, "remedy": entry.remedy })
        });
        let stages = self.told.iter().map(|Told { stage, says, visit }| {
            let decided = visit.filter(|visit| visit.after.fate != visit.before.fate);
            json!({
                "stage": stage,
                "took": visit.is_some(),
                "says": says,
                "verdict": decided.and_then(|visit| Verdict::of_fate(visit.after.fate)).map(Verdict::name),
                "cost": visit.map(|visit: &Visit| cost_json(&visit.cost)),
            })
        });
        let sent = self
            .account
            .sent
            .iter()
            .map(|sent| json!({ "interface": self.left_by(sent), "packet": fields(&sent.bytes) }));
        json!({
            "interface": self.interface(self.ingress),
            "packet": fields(self.narrator.received),
            "stages": stages.collect::<Vec<_>>(),
            "verdict": verdict.name(),
            "reason": reason,
            "rule": rule,
            "nats": nats,
            "flow": flow,
            "sent": sent.collect::<Vec<_>>(),
            "instructions": instructions(self.account),
        })
    }

    fn left_by(&self, sent: &Sent) -> &str {
        let vlans = self.narrator.tables.interface(sent.port).map_or(&[][..], |interface| &interface.vlans);
        self.interface(output::left_by(sent.port, vlans, &sent.bytes))
    }

    fn interface(&self, id: PortId) -> &str {
        self.narrator.tables.interface(id).map_or("?", |interface| &interface.name)
    }
}

fn fields(frame: &[u8]) -> Value {
    let Description { fields, headline } = Description::of(frame);
    let mut object = Map::new();
    object.insert("words".to_owned(), headline.into());
    object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    Value::Object(object)
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

/// What all stages cost together, in one line.
fn cost_text_of(account: &Account) -> String {
    let references: u64 = account
        .visits
        .iter()
        .flat_map(|visit| Region::ALL.map(|region| visit.cost.references(region)))
        .map(|seen| seen.reads + seen.writes + seen.atomics)
        .sum();
    format!(
        "{}, {}",
        screen::count(instructions(account), "instruction", "instructions"),
        screen::count(references, "memory reference", "memory references")
    )
}
