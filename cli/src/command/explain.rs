//! `wirerate explain`: what happened to this packet, and why?

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cases::Received;
use clap::Args;
use dataplane::describe::Description;
use dataplane::explain::{Account, CopyEnd, Sent, Visit};
use dataplane::replay::Way;
use dataplane::state::FlowRecord;
use dataplane::{Reason, Replay, Tables, Verdict};
use gateway::Client;
use gateway::api::Trouble;
use policy::Lines;
use policy::model::Colour;
use replay::{Captures, Named, Readdress};
use report::packet_syntax;
use serde_json::{Map, Value, json};
use tally::{Count, Region};
use wire::{Nanos, PortId};

use super::live::SOCKET;
use crate::failure::{Exit, Failure, PolicyError, UsageError};
use crate::policy_file::{self, Loaded, StaticKeys};
use crate::progress::{Progress, Unit};
use crate::rendering::{Renderer, Told, cost_text, key, state};
use crate::screen::{self, BAD, CARE, DIM, GOOD, HEADING};
use crate::{output, with_exit_codes};
use live::{Live, PacketPath};
use queue::{Backlogs, Fate, LiveWait, Wait};

mod live;
mod queue;

/// Say what happens to one packet, stage by stage, and why
///
/// The packet is given in words, and then it is the first that the gateway sees; or as CAPTURE:NUMBER, numbered
/// from 1 as in Wireshark, and then the packets before it go first, so that it meets the connections that they
/// left. Told are: what each stage saw, which rule decided (by name and line), which route and translation were
/// chosen, what was changed, and what it cost; class, colour and the tokens that its meter had; what waited in its queue
/// when it came, and when it left, or was dropped, with all that the capture brings after it. Of a packet of a tunnel: the security
/// association, with what its window says or the number that it gives, and the inner and the outer header.
///
/// With --live it is asked of a running gateway: its policy as it is in force, with the routes, addresses and neighbours
/// that Linux has, and the flows and translations that the packet may belong to. The packet is tried on a copy; nothing
/// is sent, counted or remembered. What the gateway would choose only then, such as a free port, is said to be so. Of its
/// queue it is told what waits there, and how long what left it within half a second had waited; meters have the tokens that they have
/// there, but for those of single flows, which count as full; tunnels the security associations, without keys, so that what comes in by a
/// tunnel is explained up to its window.
///
/// Costs are those of the tally: instructions of a single-issue 32-bit processor, and references to named data
/// structures. They are what a chip would have to do, not this machine's.
#[derive(Debug, Args)]
#[command(
    after_long_help = help(),
    override_usage = "wirerate explain [OPTIONS] POLICY PACKET|CAPTURE:NUMBER\n       \
                      wirerate explain [OPTIONS] --live PACKET|CAPTURE:NUMBER"
)]
pub(crate) struct Arguments {
    /// The policy (TOML); not with --live
    #[arg(required_unless_present = "live")]
    policy: Option<PathBuf>,

    /// A packet in words, or [IFACE=]CAPTURE:NUMBER
    #[arg(required_unless_present = "live", value_name = "PACKET | CAPTURE:NUMBER")]
    packet: Vec<String>,

    /// Another capture of the same time, whose packets come in between
    #[arg(long, value_name = "[IFACE=]CAPTURE", conflicts_with = "live")]
    with: Vec<Named>,

    /// Ask a running gateway what it would do; of a capture the one packet is taken, not those before it
    #[arg(long)]
    live: bool,

    #[command(flatten)]
    keys: StaticKeys,

    /// Where the gateway takes commands, with --live
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

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
    lan=lan.pcapng:42 --with wan=wan.pcapng
What a running gateway would do, which has its flows and Linux's routes:
  wirerate explain --live \\
    'lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn'
  wirerate explain --live --json \\
    'wan udp 198.51.100.7:53 > 203.0.113.2:40000'";
    with_exit_codes(&format!("{}\n\n{examples}", packet_syntax::GRAMMAR))
}

/// Time of arrival of a packet in words: any moment does.
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
        if self.live { self.explain_live() } else { self.explain_policy() }
    }

    fn explain_policy(self) -> Result<Exit, Failure> {
        let path = self.policy.as_deref().unwrap_or(Path::new(""));
        let Loaded { file, policy, lines, tables } = policy_file::load_keyed(path, self.keys)?;
        let text = self.packet.join(" ");
        let setup = |error| PolicyError::Setup { file: file.clone(), error };
        let (mut replay, packet, rest) = match numbered(&text) {
            Some((named, number)) => {
                let mut captures = vec![named];
                captures.extend(self.with.iter().cloned());
                let captures = Captures::open(&captures, &tables, self.readdress())?;
                let replay = Replay::new(tables, captures.start(), Way::Run).map_err(setup)?;
                let (replay, packet, captures) = play(replay, captures, number)?;
                (replay, packet, Some(captures))
            }
            None => {
                let packet = in_words(&text, &tables)?;
                (Replay::new(tables, MOMENT, Way::Run).map_err(setup)?, packet, None)
            }
        };
        let Packet { ingress, at, number, bytes } = packet;
        replay.advance(at, &mut ());
        let backlogs = Backlogs::of(&replay);
        let mut account = replay.explain(ingress, at, number, &bytes, &mut ());
        let waits = backlogs.before(&account, &replay.tables, &bytes);
        let fate = if waits.is_empty() { None } else { queue::fate(&mut replay, rest, number, at) };
        if let Some(Fate::Lost(_, reason)) = fate {
            // What the pipeline queued has a verdict at its departure.
            account.verdict = Verdict::Dropped(reason);
            account.sent.retain(|sent| sent.verdict.is_none());
        }
        let renderer = Renderer {
            tables: &replay.tables,
            policy: &policy,
            lines: &lines,
            received: &bytes,
            chosen: None,
        };
        let told = renderer.tell(&account);
        self.tell(&Report { renderer, account: &account, told, ingress, waits, fate, live: None })
    }

    fn explain_live(self) -> Result<Exit, Failure> {
        // Without a policy, the first word is the packet's.
        let first = self.policy.iter().map(|word| word.to_string_lossy().into_owned());
        let text = first.chain(self.packet.iter().cloned()).collect::<Vec<String>>().join(" ");
        let packet = |tables: &Tables| match numbered(&text) {
            Some((named, number)) => {
                let captures = Captures::open(&[named], tables, self.readdress())?;
                pick(captures, tables, number)
            }
            None => in_words(&text, tables),
        };
        with_live(&self.socket, packet, |report| self.tell(report))
    }

    fn tell(&self, report: &Report<'_>) -> Result<Exit, Failure> {
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", report.to_json())?;
        } else {
            report.print(&mut out)?;
        }
        Ok(Exit::Done)
    }

    fn readdress(&self) -> Readdress {
        if self.any_mac { Readdress::Always } else { Readdress::Inferred }
    }
}

/// Explains a packet in words by the gateway at a socket, for its page: the account of `--live --json`.
pub(crate) fn of_words(socket: &Path, words: &str) -> Result<Value, Trouble> {
    let account = with_live(socket, |tables| in_words(words, tables), |report| Ok(report.to_json()));
    account.map_err(|failure| Trouble {
        error: failure.to_string(),
        hint: failure.hint().unwrap_or_else(|| "`wirerate explain --help` has the words".to_owned()),
    })
}

/// Explains a packet by the gateway at a socket, and has the explanation told.
fn with_live<T>(
    socket: &Path,
    packet: impl FnOnce(&Tables) -> Result<Packet, Failure>,
    tell: impl FnOnce(&Report<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (mut live, tables) = Live::ask(Client::at(socket))?;
    let Packet { ingress, at, number, bytes } = packet(&tables)?;
    let mut replay = live.replay(&tables, at, &bytes)?;
    let account = replay.explain(ingress, at, number, &bytes, &mut ());
    let chosen = live.chosen(&account, &replay.tables);
    let unknown = live.unknown(chosen.as_ref(), &account, &replay.tables);
    let queues = queue::live(&Client::at(socket), &account, &replay.tables, &bytes)?;
    let lines = Lines::default();
    let renderer =
        Renderer { tables: &replay.tables, policy: &live.policy, lines: &lines, received: &bytes, chosen };
    let told = renderer.tell(&account);
    let flow = live.flow(&account);
    let path = flow.map_or(Ok(PacketPath::Worker), |flow| live.path(flow))?;
    let live = OfLive { flow, path, unknown, queues };
    let (waits, fate) = (Vec::new(), None);
    tell(&Report { renderer, account: &account, told, ingress, waits, fate, live: Some(live) })
}

fn in_words(text: &str, tables: &Tables) -> Result<Packet, Failure> {
    let Received { ingress, bytes } = packet_syntax::read(text, tables).map_err(UsageError::from)?;
    Ok(Packet { ingress, at: MOMENT, number: 0, bytes })
}

/// The packet of that number of a capture.
fn pick(mut captures: Captures, tables: &Tables, number: u64) -> Result<Packet, Failure> {
    while let Some(packet) = captures.next(tables) {
        if packet.number == number {
            return Ok(Packet {
                ingress: packet.ingress,
                at: packet.at,
                number: 0,
                bytes: packet.bytes.to_vec(),
            });
        }
    }
    Err(no_packet(&captures, number).into())
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
fn play(
    mut replay: Replay,
    mut captures: Captures,
    number: u64,
) -> Result<(Replay, Packet, Captures), Failure> {
    let mut place: u32 = 0;
    let mut answer = Vec::new();
    let mut progress = Progress::new("explain", Unit::Packet, captures.size());
    while let Some(packet) = captures.next(&replay.tables) {
        let (bytes, _) = packet.as_sent(&mut replay, &mut (), &mut answer);
        if packet.source == 0 && packet.number == number {
            progress.finish();
            let bytes = bytes.to_vec();
            let packet = Packet { ingress: packet.ingress, at: packet.at, number: place, bytes };
            return Ok((replay, packet, captures));
        }
        replay.receive(packet.ingress, packet.at, place, bytes, &mut ());
        place = place.wrapping_add(1);
        progress.step(captures.read());
    }
    progress.finish();
    Err(no_packet(&captures, number).into())
}

fn no_packet(captures: &Captures, number: u64) -> UsageError {
    let source = captures.sources().first();
    UsageError::NoPacket {
        path: source.map(|source| source.path.clone()).unwrap_or_default(),
        number,
        packets: source.map_or(0, |source| source.entered.values().sum()),
    }
}

/// Explanation of a packet.
struct Report<'a> {
    renderer: Renderer<'a>,
    account: &'a Account,
    told: Vec<Told<'a>>,
    ingress: PortId,
    /// Queues that the packet waited in.
    waits: Vec<Wait>,
    /// End of the wait.
    fate: Option<Fate>,
    live: Option<OfLive<'a>>,
}

/// State of a running gateway, for an explanation.
struct OfLive<'a> {
    /// The flow of the packet in the gateway.
    flow: Option<&'a FlowRecord>,
    /// Path of the flow's plain packets.
    path: PacketPath,
    /// Sentences on what the explanation cannot know.
    unknown: Vec<String>,
    /// Queues that the packet would wait in.
    queues: Vec<LiveWait>,
}

impl Report<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let received = Description::of(self.renderer.received);
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
            writeln!(out, "  Cause:  {}\n  Remedy: {}", reason.entry().cause, self.remedy(reason))?;
        }
        for copy in &self.account.copies {
            writeln!(out, "  {}", self.renderer.copy(copy))?;
        }
        for sent in &self.account.sent {
            let headline = self.renderer.describe(&sent.bytes).headline;
            writeln!(out, "  Out by {}: {headline}", self.left_by(sent))?;
        }
        for wait in &self.waits {
            writeln!(out, "  It {}", wait.text())?;
        }
        if let Some(fate) = self.fate {
            writeln!(out, "  It {}", fate.text())?;
        }
        if let Some(OfLive { flow, path, unknown, queues }) = &self.live {
            for queue in queues {
                writeln!(out, "{}", queue.text())?;
            }
            match flow {
                Some(flow) => writeln!(out, "{}{}", live::flow_text(flow), path.text())?,
                None => writeln!(out, "The gateway has no flow that it belongs to.")?,
            }
            for what in unknown {
                writeln!(out, "{CARE}Not known{CARE:#}: {what}")?;
            }
        }
        writeln!(out, "{DIM}In all: {}{DIM:#}", cost_text_of(self.account))
    }

    /// Advice on a drop: of a queue of a tree by its name.
    fn remedy(&self, reason: Reason) -> String {
        let of_queue = match reason {
            Reason::QueueFull => queue::advice(&self.waits, self.renderer.policy),
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

    fn to_json(&self) -> Value {
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
        let live = self
            .live
            .as_ref()
            .map(|live| json!({ "flow": live.flow.map(|flow| live::flow_json(flow, live.path)), "unknown": live.unknown }));
        let queues: Vec<Value> = match &self.live {
            Some(live) => live.queues.iter().map(LiveWait::to_json).collect(),
            None => self.waits.iter().map(Wait::to_json).collect(),
        };
        let police = self.account.visits.iter().find(|visit| visit.stage == "police");
        let meter = police.and_then(|visit| visit.meter);
        let class = last.and_then(|visit| self.renderer.tables.classes.get(visit.after.class));
        let mut object = json!({
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
            "queues": queues,
            "delay_ns": self.fate.and_then(Fate::delay_ns),
            "copies": self.account.copies.iter().map(|copy| self.copy_json(copy)).collect::<Vec<_>>(),
            "sent": sent.collect::<Vec<_>>(),
            "instructions": instructions(self.account),
        });
        if let (Some(live), Some(object)) = (live, object.as_object_mut()) {
            object.insert("live".to_owned(), live);
        }
        object
    }

    fn fields(&self, frame: &[u8]) -> Value {
        json!(self.renderer.describe(frame))
    }

    fn left_by(&self, sent: &Sent) -> &str {
        let vlans = self.renderer.tables.interface(sent.port).map_or(&[][..], |interface| &interface.vlans);
        self.interface(output::left_by(sent.port, vlans, &sent.bytes))
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

/// Returns the cost of all stages together, in one line.
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

/// Name of the colour that a meter gave.
fn colour(visit: &Visit) -> Option<&'static str> {
    Colour::ALL.into_iter().find(|colour| *colour as u8 == visit.after.colour).map(Colour::name)
}
