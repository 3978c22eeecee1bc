//! Questions to a running gateway: `wirerate status`, `ports`, `rules`, `nat`, `classes`, `apply`, `confirm`, `rollback`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gateway::api::{ApplyQuery, InForce, Released};
use gateway::balance::{ServerHealth, ServerView};
use gateway::ipfix::CollectorState;
use gateway::log::LogCounts;
use gateway::port::EgressDrops;
use gateway::sa::TunnelStatus;
use gateway::sync::{HandedOver, OwnerStatus, SyncState, SyncStatus};
use gateway::view;
use gateway::{Client, ClientError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure, GatewayError};
use crate::screen::{self, BAD, GOOD, HEADING};
use crate::with_exit_codes;

/// Default path of the gateway's control socket.
pub(crate) const SOCKET: &str = "/run/wirerate/control.sock";

/// Default directory of pinned guards.
pub(crate) const PINS: &str = "/sys/fs/bpf/wirerate";

/// Which gateway, and how its answer looks.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ask {
    /// The gateway.
    pub(crate) fn client(&self) -> Client {
        Client::at(&self.socket)
    }

    fn get<T: DeserializeOwned>(&self, question: &str) -> Result<T, Failure> {
        Ok(Client::at(&self.socket).get(question)?)
    }

    /// True if the answer is to be JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the answer as JSON, if asked to; returns true if it was printed.
    pub(crate) fn as_json(&self, answer: &impl Serialize) -> Result<bool, Failure> {
        if self.json {
            let text = serde_json::to_string_pretty(answer).unwrap_or_default();
            writeln!(screen::out(), "{text}")?;
        }
        Ok(self.json)
    }
}

/// The ends of the connections that are meant.
#[derive(Debug, Args)]
pub(crate) struct Ends {
    /// Either end, before or after translation: an address or prefix
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,

    /// A port of either end, before or after translation
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// tcp, udp, icmp, icmpv6 or a number
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
}

/// Show how a running gateway is doing
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate status
  wirerate status --json"))]
pub(crate) struct Status {
    #[command(flatten)]
    ask: Ask,
}

impl Status {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let status: view::Status = self.ask.get("/status")?;
        if self.ask.as_json(&status)? {
            return Ok(Exit::Done);
        }
        let mut out = screen::out();
        writeln!(out, "{HEADING}wirerate {}{HEADING:#}, up {:.0} s", status.version, status.uptime_seconds)?;
        writeln!(out, "  epoch      {}", status.epoch)?;
        let memory = screen::bytes(status.classifier_bytes);
        writeln!(out, "  rules      searched by {}, {memory}", status.classifier)?;
        if let Some(seconds) = status.trial_seconds {
            writeln!(
                out,
                "  {BAD}on trial{BAD:#}   goes back in {seconds:.0} s; `wirerate confirm` keeps it"
            )?;
        }
        let flows = (status.flows, status.flow_capacity, status.flows_begun);
        writeln!(out, "  flows      {} of {}, {} begun since the start", flows.0, flows.1, flows.2)?;
        if let Some(fast) = &status.fast_path {
            let carried = screen::count(fast.packets, "packet", "packets");
            write!(out, "  fast path  {} of them in the kernel, which carried {carried}", fast.flows)?;
            match fast.unsent {
                0 => writeln!(out)?,
                unsent => {
                    writeln!(out, "; devices did not take {}", screen::count(unsent, "frame", "frames"))?
                }
            }
            let lost: Vec<String> = fast
                .lost_at_egress
                .iter()
                .filter(|(_, packets)| **packets > 0)
                .map(|(place, packets)| format!("{place} {packets}"))
                .collect();
            if !lost.is_empty() {
                let lost = lost.join(", ");
                writeln!(
                    out,
                    "  {BAD}lost at egress{BAD:#}, behind the gateway: {lost}; `wirerate ports` says where"
                )?;
            }
        }
        writeln!(out, "  received   {}", status.received)?;
        writeln!(out, "  forwarded  {}", status.forwarded)?;
        writeln!(out, "  delivered  {}", status.delivered)?;
        writeln!(out, "  answered   {}", status.answered)?;
        writeln!(out, "  dropped    {}", status.dropped)?;
        writeln!(out, "  held       {}", status.held)?;
        writeln!(out, "  queued     {}", status.queued)?;
        for worker in &status.workers {
            let share = 100.0 * worker.busy_seconds / status.uptime_seconds.max(1e-9);
            write!(out, "  worker {}   busy {share:.1} %, {} flows", worker.worker, worker.flows)?;
            if status.workers.len() > 1 {
                write!(out, "; handed off {}, took {}", worker.given, worker.taken)?;
            }
            writeln!(out)?;
        }
        let log = status.log;
        if log != LogCounts::default() {
            let (written, left_out) = (log.written, log.left_out);
            write!(out, "  log        {written} records written, {left_out} left out")?;
            match log.not_written {
                0 => writeln!(out)?,
                lost => writeln!(out, ", {BAD}{lost} could not be written{BAD:#}")?,
            }
        }
        let ipfix = status.ipfix;
        if ipfix.collector != CollectorState::None {
            write!(out, "  ipfix      {} records exported", ipfix.records)?;
            if ipfix.lost > 0 {
                write!(out, ", {BAD}{} lost{BAD:#}", ipfix.lost)?;
            }
            if ipfix.collector == CollectorState::Down {
                write!(out, "; {BAD}the collector is not reached{BAD:#}")?;
            }
            writeln!(out)?;
        }
        if let Some(sync) = &status.sync {
            show_sync(&mut out, sync)?;
        }
        for TunnelStatus { tunnel, inward, outward } in &status.tunnels {
            let refused: u64 =
                [inward, outward].iter().flat_map(|way| way.errors()).map(|(_, count)| count).sum();
            writeln!(
                out,
                "  tunnel     {tunnel}: {} in, {} out; {} came in, {} left, {refused} refused; `wirerate sa` says more",
                screen::count(inward.sas, "security association", "security associations"),
                outward.sas,
                inward.packets,
                outward.packets
            )?;
        }
        for port in &status.ports_not_up {
            writeln!(out, "  {BAD}{port} is not up{BAD:#}; `wirerate ports` says more")?;
        }
        for port in &status.ports_without_carrier {
            writeln!(out, "  {BAD}{port} has no carrier{BAD:#}: nobody is at the other end of its link")?;
        }
        for vrf in &status.vrfs {
            writeln!(out, "  vrf        {}: {}", vrf.name, vrf.interfaces.join(", "))?;
        }
        for wan in &status.wans {
            let shares = [("IPv4", wan.share_ipv4), ("IPv6", wan.share_ipv6)].into_iter();
            let shares: Vec<String> = shares
                .filter(|(_, share)| *share > 0.0)
                .map(|(version, share)| format!("{:.0} % of new {version} flows", 100.0 * share))
                .collect();
            write!(out, "  wan        {} ({}): ", wan.name, wan.interface)?;
            match wan.standing.trouble() {
                Some(reason) => {
                    write!(out, "{BAD}down{BAD:#}, {reason}")?;
                    if let Some(trouble) = &wan.trouble {
                        write!(out, " ({trouble})")?;
                    }
                }
                None if shares.is_empty() => write!(out, "up, backup of tier {}", wan.tier)?,
                None => write!(out, "up, {}", shares.join(", "))?,
            }
            if let Some(check) = wan.check {
                write!(out, "; {} of {} rounds of its check unanswered", check.lost, check.rounds)?;
            }
            writeln!(out)?;
        }
        for route in &status.multicast_routes {
            writeln!(out, "  multicast  {route}")?;
        }
        for server in &status.servers {
            show_server(&mut out, server)?;
        }
        for session in &status.sessions {
            let open = [(session.ipv4, " IPv4"), (session.ipv6, " IPv6")];
            let open: String = open.iter().filter(|(is_open, _)| *is_open).map(|(_, name)| *name).collect();
            write!(out, "  ppp        {}: {}{open}", session.interface, session.phase)?;
            match (&session.peer, session.session) {
                (Some(peer), Some(number)) => writeln!(out, ", {peer}, session 0x{number:04x}")?,
                _ => writeln!(out)?,
            }
        }
        for guard in &status.guards {
            write!(out, "  guard      {}: {}", guard.interface, guard.state)?;
            match (&guard.pin, &guard.trouble) {
                (_, Some(trouble)) => write!(out, "; {BAD}{trouble}{BAD:#}")?,
                (Some(pin), None) => write!(out, "; pinned at {pin}")?,
                (None, None) => write!(out, "; {BAD}not pinned{BAD:#}, ends with the gateway")?,
            }
            writeln!(out)?;
            if !guard.left_out.is_empty() {
                let rules = guard.left_out.join(", ");
                writeln!(out, "             lets in nothing by these rules while no gateway runs: {rules}")?;
            }
        }
        let confinement = &status.confinement;
        writeln!(out, "  confined   {confinement}")?;
        for note in confinement.notes.iter().chain(&status.notes) {
            writeln!(out, "  note: {note}")?;
        }
        Ok(Exit::Done)
    }
}

/// Shows a server of a translation.
fn show_server(out: &mut impl Write, view: &ServerView) -> io::Result<()> {
    write!(out, "  server     {} of {}: ", view.server, view.nat)?;
    match (view.state, &view.trouble) {
        (ServerHealth::Up, _) => write!(out, "up, {:.0} % of new connections", 100.0 * view.share)?,
        (ServerHealth::OutOfService, _) => write!(out, "{BAD}down{BAD:#}, out of service by the policy")?,
        (ServerHealth::Failed, trouble) => {
            write!(out, "{BAD}down{BAD:#}, {}", trouble.as_deref().unwrap_or("its check fails"))?;
        }
    }
    match view.check {
        Some(check) => writeln!(out, "; {} of {} checks failed", check.lost, check.rounds),
        None => writeln!(out),
    }
}

/// Shows the synchronisation with a second gateway.
fn show_sync(out: &mut impl Write, sync: &SyncStatus) -> io::Result<()> {
    match (sync.state, &sync.address) {
        (SyncState::Waiting, _) | (_, None) => {
            write!(out, "  sync       {BAD}no connection to the peer{BAD:#} ({})", sync.peer)?;
        }
        (state, Some(address)) => {
            let seconds = sync.connected_seconds.unwrap_or(0.0);
            let version = sync.version.as_deref().unwrap_or("unknown");
            write!(out, "  sync       with {address} (wirerate {version}) for {seconds:.0} s")?;
            if state == SyncState::Full {
                write!(out, ", full synchronisation under way")?;
            }
        }
    }
    let received = sync.received;
    let taken = received.created + received.updated;
    write!(out, "; {} flows sent, {taken} received", sync.flows_sent)?;
    if sync.elements_sent + sync.elements_received > 0 {
        let (sent, received) = (sync.elements_sent, sync.elements_received);
        write!(out, "; {sent} elements of sets sent, {received} received")?;
    }
    if sync.port_mappings_sent + sync.port_mappings_received > 0 {
        let (sent, received) = (sync.port_mappings_sent, sync.port_mappings_received);
        write!(out, "; {sent} port mappings sent, {received} received")?;
    }
    let refused: u64 = sync.refused.values().sum();
    if refused > 0 {
        let reasons: Vec<String> =
            sync.refused.iter().map(|(reason, count)| format!("{count}: {reason}")).collect();
        write!(out, ", {BAD}{refused} refused{BAD:#} ({})", reasons.join("; "))?;
    }
    if sync.overflows > 0 {
        write!(out, ", {} overflows", sync.overflows)?;
    }
    writeln!(out)?;
    if let Some(trouble) = &sync.trouble {
        writeln!(out, "             {BAD}{trouble}{BAD:#}")?;
    }
    if sync.both_active {
        writeln!(
            out,
            "             {BAD}both gateways forward packets of the same flows{BAD:#}: does each hear the other's VRRP?"
        )?;
    }
    if let Some(owner) = &sync.owner {
        write_owner(out, owner)?;
    }
    if sync.shared_keys > 0 {
        writeln!(
            out,
            "             {BAD}both gateways send under the same keys{BAD:#} ({} tunnels): give each keys of its own",
            sync.shared_keys
        )?;
    }
    if let Some(ahead) = sync.clock_ahead_seconds.filter(|ahead| ahead.abs() > 5.0) {
        writeln!(out, "             the peer's clock is {ahead:+.0} s off this one's")?;
    }
    Ok(())
}

/// Frames handed over, in a line of its own.
fn write_owner(out: &mut impl Write, owner: &OwnerStatus) -> io::Result<()> {
    let now = match owner.handed_over {
        HandedOver::None => "no packets are handed over to the peer now",
        HandedOver::Owned => "packets of unknown flows are handed over to the peer where it owns them",
        HandedOver::All => {
            "packets of unknown flows are handed over to the peer, until all flows are known here"
        }
    };
    let OwnerStatus { frames_sent, frames_taken, frames_lost, .. } = owner;
    write!(out, "             {now}; {frames_sent} frames so far, {frames_taken} taken from the peer")?;
    if *frames_lost > 0 {
        write!(out, ", {BAD}{frames_lost} lost{BAD:#}")?;
    }
    let refused: u64 = owner.refused.values().sum();
    if refused > 0 {
        let reasons: Vec<String> =
            owner.refused.iter().map(|(reason, count)| format!("{count}: {reason}")).collect();
        write!(out, ", {BAD}{refused} refused{BAD:#} ({})", reasons.join("; "))?;
    }
    writeln!(out)?;
    if let Some(trouble) = &owner.trouble {
        writeln!(out, "             {BAD}{trouble}{BAD:#}")?;
    }
    Ok(())
}

/// Show the interfaces of a running gateway, and by which driver their frames come and go
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate ports
  wirerate ports --json"))]
pub(crate) struct Ports {
    #[command(flatten)]
    ask: Ask,
}

impl Ports {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let ports: Vec<view::PortView> = self.ask.get("/ports")?;
        if self.ask.as_json(&ports)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            "port",
            "state",
            "carrier",
            "driver",
            "received",
            "sent",
            "whole",
            "missed",
            "unsent",
            "to Linux",
            "from Linux",
        ]);
        for view in &ports {
            table.row([
                view.port.interface.clone(),
                view.port.state.to_string(),
                view.port.carrier.to_string(),
                view.port.driver.clone(),
                view.received.to_string(),
                view.sent.to_string(),
                view.whole.to_string(),
                view.missed.to_string(),
                view.unsent.to_string(),
                view.delivered.to_string(),
                view.originated.to_string(),
            ]);
        }
        table.print()?;
        let mut out = screen::out();
        for view in &ports {
            for reason in &view.port.refused {
                writeln!(out, "{}: not by {reason}", view.port.interface)?;
            }
            let EgressDrops { device, qdisc } = view.port.egress;
            if device + qdisc > 0 {
                let name = &view.port.interface;
                writeln!(out, "{name}: lost at egress: tx-dropped {device}, qdisc-dropped {qdisc}")?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Show what each rule of a running gateway has decided
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate rules
  wirerate rules --json"))]
pub(crate) struct Rules {
    #[command(flatten)]
    ask: Ask,
}

impl Rules {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let rules: Vec<view::RuleView> = self.ask.get("/rules")?;
        if self.ask.as_json(&rules)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["rule", "action", "packets", "bytes"]);
        for rule in rules {
            let (packets, bytes) = (rule.count.packets.to_string(), rule.count.bytes.to_string());
            table.row([rule.name, rule.action, packets, bytes]);
        }
        table.print()?;
        Ok(Exit::Done)
    }
}

/// Show what each translation of a running gateway has done
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate nat
  wirerate nat --json"))]
pub(crate) struct Nat {
    #[command(flatten)]
    ask: Ask,
}

impl Nat {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let nats: Vec<view::NatView> = self.ask.get("/nat")?;
        if self.ask.as_json(&nats)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["translation", "of", "packets", "bytes", "refused", "blocks"]);
        for nat in nats {
            let (packets, bytes) = (nat.count.packets.to_string(), nat.count.bytes.to_string());
            let blocks = nat.blocks.map_or_else(String::new, |blocks| blocks.to_string());
            table.row([nat.name, nat.side, packets, bytes, nat.refused.to_string(), blocks]);
        }
        table.print()?;
        Ok(Exit::Done)
    }
}

/// Show the packets of each traffic class of a running gateway, by the colour that their meter gave
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate classes
  wirerate classes --json"))]
pub(crate) struct Classes {
    #[command(flatten)]
    ask: Ask,
}

impl Classes {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let classes: Vec<view::ClassView> = self.ask.get("/classes")?;
        if self.ask.as_json(&classes)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["class", "packets", "bytes", "green", "yellow", "red"]);
        for class in classes {
            let [green, yellow, red] = class.colours.map(|count| count.to_string());
            let (packets, bytes) = (class.count.packets.to_string(), class.count.bytes.to_string());
            table.row([class.name, packets, bytes, green, yellow, red]);
        }
        table.print()?;
        Ok(Exit::Done)
    }
}

/// Put another policy in force in a running gateway, without losing a flow that it still allows
///
/// Shows first what will change, by name. A policy with errors changes nothing. With `--confirm` the gateway goes
/// back to the policy before unless `wirerate confirm` comes in time: should the change lock you out, wait.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate apply --plan policies/home-office.toml
  wirerate apply policies/home-office.toml --confirm 60s"))]
pub(crate) struct Apply {
    /// The policy
    policy: PathBuf,

    /// Only show what would change
    #[arg(long)]
    plan: bool,

    /// Go back unless confirmed within this time: `90s`, `5m`
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "plan")]
    confirm: Option<u64>,

    /// What `wirerate policy history` is to say about it
    #[arg(long, value_name = "TEXT", conflicts_with = "plan")]
    comment: Option<String>,

    #[command(flatten)]
    ask: Ask,
}

/// Time that a policy of 64 MiB may take until it is in force.
const PATIENCE: Duration = Duration::from_secs(600);

impl Apply {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let loaded = crate::policy_file::load(&self.policy)?;
        let client = Client::at(&self.ask.socket).patient(PATIENCE);
        let text = client.get_text("/policy")?;
        let garbled = || ClientError::Garbled("its policy cannot be read".to_owned());
        let now = policy::check(&text, "the policy in force").policy.ok_or_else(garbled)?;
        let plan = policy::plan(&now, &loaded.policy);
        let mut out = screen::out();
        let unnamed = now.interfaces.iter().filter(|old| loaded.policy.interface(&old.name).is_none());
        let closed: Vec<&str> = unnamed.map(|interface| interface.name.as_str()).collect();
        if !self.ask.json {
            for change in &plan {
                writeln!(out, "{change}")?;
            }
            for interface in &closed {
                writeln!(
                    out,
                    "{BAD}{interface} is closed{BAD:#} then, until `wirerate release {interface}`"
                )?;
            }
            if plan.is_empty() {
                writeln!(out, "nothing changes")?;
            }
        }
        let changes: Vec<_> = plan
            .iter()
            .map(|change| {
                let kind = change.kind.name();
                serde_json::json!({ "kind": kind, "thing": change.thing, "old": change.old, "new": change.new })
            })
            .collect();
        if self.plan {
            self.ask.as_json(&serde_json::json!({ "changes": changes, "closed": closed }))?;
            return Ok(Exit::Done);
        }
        let query = ApplyQuery { confirm: self.confirm, comment: self.comment };
        let text = loaded.policy.to_string();
        let done: InForce = client.post_body_with("/apply", &query, text)?;
        let answer = serde_json::json!({ "changes": changes, "closed": closed, "epoch": done.epoch, "confirm_seconds": done.confirm_seconds });
        if self.ask.as_json(&answer)? {
            return Ok(Exit::Done);
        }
        writeln!(out, "{GOOD}in force{GOOD:#}, epoch {}", done.epoch)?;
        for interface in &closed {
            writeln!(
                out,
                "{BAD}{interface} is closed{BAD:#}: `wirerate release {interface}` gives it to Linux"
            )?;
        }
        if let Some(seconds) = self.confirm {
            writeln!(out, "goes back in {seconds} s unless you say `wirerate confirm`")?;
        }
        Ok(Exit::Done)
    }
}

/// Take guards off interfaces: they are Linux's from then on, unfiltered
///
/// A guard is on each interface of a policy, and stays when the gateway ends or another policy no longer names the
/// interface. While a gateway runs, those that its policy names are kept. Without a name, all that may be released are.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate release wan
  wirerate release"))]
pub(crate) struct Release {
    /// The interfaces
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,

    /// Where guards are pinned, in a BPF file system
    #[arg(long, value_name = "DIRECTORY", default_value = PINS, env = "WIRERATE_GUARDS")]
    guards: PathBuf,

    #[command(flatten)]
    ask: Ask,
}

impl Release {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let asked = self.ask.client().post("/release", self.interfaces.join("\n"));
        let released: Released = match asked {
            Ok(released) => released,
            // Nobody governs them.
            Err(ClientError::Unreachable { error, .. }) if is_nobody(&error) => {
                let interfaces = gateway::guard::release(&self.guards, &self.interfaces);
                Released { interfaces: interfaces.map_err(GatewayError::Release)? }
            }
            Err(error) => return Err(error.into()),
        };
        if self.ask.as_json(&released)? {
            return Ok(Exit::Done);
        }
        let mut out = screen::out();
        if released.interfaces.is_empty() {
            writeln!(out, "no guard is left to release")?;
        }
        for interface in &released.interfaces {
            writeln!(out, "{interface} is Linux's, unfiltered")?;
        }
        Ok(Exit::Done)
    }
}

/// True if nobody listens at a socket, which is no gateway's then.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Keep the policy that is on trial in a running gateway
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate confirm"))]
pub(crate) struct Confirm {
    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        Client::at(&self.socket).tell("/confirm")?;
        Ok(Exit::Done)
    }
}

/// Go back at once to the policy before the one that is on trial in a running gateway
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate rollback"))]
pub(crate) struct Rollback {
    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,
}

impl Rollback {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        Client::at(&self.socket).tell("/rollback")?;
        Ok(Exit::Done)
    }
}

/// Whole seconds: `90`, `90s`, `5m`.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let count = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    count
        .filter(|seconds| (1..=86_400).contains(seconds))
        .ok_or_else(|| "write 90s or 5m, a day at most".to_owned())
}

/// Columns of text, as wide as what is in them; all but the first to the right.
pub(crate) struct Table(screen::Table);

impl Table {
    pub(crate) fn new<const N: usize>(titles: [&str; N]) -> Table {
        let mut table = Table(screen::Table::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]));
        table.row(titles.map(str::to_owned));
        table
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.row(cells);
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut out = screen::out();
        for (number, line) in self.0.to_string().lines().enumerate() {
            // Not indented, as nothing stands above it.
            let line = line.get(2..).unwrap_or_default();
            match number {
                0 => writeln!(out, "{HEADING}{line}{HEADING:#}")?,
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}
