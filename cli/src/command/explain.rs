//! `wirerate explain`: what happened to this packet, and why?

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use dataplane::Tables;
use dataplane::state::FlowRecord;
use gateway::Client;
use gateway::api::Trouble;
use policy::Lines;
use replay::{Captures, Named, Readdress, Window};
use report::explain::{Asked, ExplainError, Explained, Explanation, Number, Packet, Place, Renderer};
use report::packet_syntax;
use serde_json::{Value, json};

use super::live::SOCKET;
use crate::failure::{Exit, Failure, PolicyError, UsageError};
use crate::policy_file::{self, Loaded, StaticKeys};
use crate::progress::{Progress, Unit};
use crate::screen::{self, CARE, Toned};
use crate::with_exit_codes;
use live::{Live, PacketPath};
use queue::LiveWait;

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

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        if self.live { self.explain_live() } else { self.explain_policy() }
    }

    fn explain_policy(self) -> Result<Exit, Failure> {
        let path = self.policy.as_deref().unwrap_or(Path::new(""));
        let Loaded { file, policy, lines, tables } = policy_file::load_keyed(path, self.keys)?;
        let text = self.packet.join(" ");
        let mut captures = Vec::new();
        let asked = match numbered(&text) {
            Some((named, number)) => {
                captures.push(named);
                captures.extend(self.with.iter().cloned());
                Asked::Captured(Place {
                    captures: &captures,
                    number: Number::First(number),
                    readdress: self.readdress(),
                    window: Window::default(),
                })
            }
            None => Asked::Words(&text),
        };
        let mut progress: Option<Progress> = None;
        let mut watch = |captures: &Captures| {
            let progress =
                progress.get_or_insert_with(|| Progress::new("explain", Unit::Packet, captures.size()));
            progress.step(captures.read());
            ControlFlow::Continue(())
        };
        let explained = Explained::of(tables, asked, None, &mut watch);
        if let Some(progress) = progress {
            progress.finish();
        }
        let explained = explained.map_err(|error| failed(error, &file))?;
        let explanation = explained.explanation(&policy, &lines);
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", explanation.to_json())?;
        } else {
            write!(out, "{}", Toned(&explanation.text()))?;
        }
        Ok(Exit::Done)
    }

    fn explain_live(self) -> Result<Exit, Failure> {
        // Without a policy, the first word is the packet's.
        let first = self.policy.iter().map(|word| word.to_string_lossy().into_owned());
        let text = first.chain(self.packet.iter().cloned()).collect::<Vec<String>>().join(" ");
        let packet = |tables: &Tables| match numbered(&text) {
            Some((named, number)) => {
                let place = Place {
                    captures: &[named],
                    number: Number::First(number),
                    readdress: self.readdress(),
                    window: Window::default(),
                };
                Packet::alone(place, tables).map_err(|error| failed(error, IN_FORCE))
            }
            None => in_words(&text, tables),
        };
        with_live(&self.socket, packet, |report| {
            let mut out = screen::out();
            if self.json {
                writeln!(out, "{:#}", report.to_json())?;
            } else {
                report.print(&mut out)?;
            }
            Ok(Exit::Done)
        })
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
    tell: impl FnOnce(&LiveReport<'_>) -> Result<T, Failure>,
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
    let explanation = Explanation::new(renderer, &account, ingress);
    let flow = live.flow(&account);
    let path = flow.map_or(Ok(PacketPath::Worker), |flow| live.path(flow))?;
    tell(&LiveReport { explanation, flow, path, unknown, queues })
}

fn in_words(text: &str, tables: &Tables) -> Result<Packet, Failure> {
    Ok(Packet::in_words(text, tables).map_err(UsageError::from)?)
}

/// `[IFACE=]CAPTURE:NUMBER`: a packet in words has spaces, and no file behind its colon.
fn numbered(text: &str) -> Option<(Named, u64)> {
    let (capture, number) = text.rsplit_once(':')?;
    let number = number.parse().ok()?;
    let Ok(named) = capture.parse::<Named>();
    let is_file = named.path.exists() || !text.contains(char::is_whitespace);
    is_file.then_some((named, number))
}

/// Name of a running gateway's policy.
const IN_FORCE: &str = "the policy in force";

/// The failure to explain a packet by the policy `file`.
fn failed(error: ExplainError, file: &str) -> Failure {
    match error {
        ExplainError::Words(error) => UsageError::Words(error).into(),
        ExplainError::Captures(error) => error.into(),
        ExplainError::NoPacket(error) => UsageError::NoPacket(error).into(),
        ExplainError::Window(error) => UsageError::NoPackets(error).into(),
        ExplainError::Setup(error) => PolicyError::Setup { file: file.to_owned(), error }.into(),
        ExplainError::Stopped(never) => match never {},
    }
}

/// Explanation of a packet by a running gateway.
struct LiveReport<'a> {
    explanation: Explanation<'a>,
    /// The flow of the packet in the gateway.
    flow: Option<&'a FlowRecord>,
    /// Path of the flow's plain packets.
    path: PacketPath,
    /// Sentences on what the explanation cannot know.
    unknown: Vec<String>,
    /// Queues that the packet would wait in.
    queues: Vec<LiveWait>,
}

impl LiveReport<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{}", Toned(&self.explanation.events()))?;
        for queue in &self.queues {
            writeln!(out, "{}", queue.text())?;
        }
        match self.flow {
            Some(flow) => writeln!(out, "{}{}", live::flow_text(flow), self.path.text())?,
            None => writeln!(out, "The gateway has no flow that it belongs to.")?,
        }
        for what in &self.unknown {
            writeln!(out, "{CARE}Not known{CARE:#}: {what}")?;
        }
        write!(out, "{}", Toned(&self.explanation.total()))
    }

    fn to_json(&self) -> Value {
        let mut object = self.explanation.to_json();
        object["queues"] = self.queues.iter().map(LiveWait::to_json).collect();
        let flow = self.flow.map(|flow| live::flow_json(flow, self.path));
        object["live"] = json!({ "flow": flow, "unknown": self.unknown });
        object
    }
}
