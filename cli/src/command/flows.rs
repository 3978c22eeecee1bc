//! `wirerate flows`: what a running gateway remembers of connections, and how to end some.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gateway::Client;
use gateway::api::{Killed, Listed};
use gateway::flows::{FlowQuery, FlowView};
use wire::header::Endpoint;

use super::live::{Ends, SOCKET, Table};
use crate::failure::{Exit, Failure, PolicyError};
use crate::screen;
use crate::with_exit_codes;

/// Show the flows of a running gateway, or end some
///
/// Each with both ends before and after translation, its state, rule and translations. Options narrow the list; all of
/// them must hold.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = with_exit_codes("\
Examples:
  wirerate flows --host 192.168.1.20 --protocol tcp
  wirerate flows --rule guest-web --json
  wirerate flows kill --host 192.168.20.77"))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    which: Which,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// End flows at once
    ///
    /// Their translations are given back. What goes on sending opens a flow anew, if the policy lets it.
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate flows kill --host 192.168.20.77
  wirerate flows kill --rule guest-web --protocol tcp"))]
    Kill {
        #[command(flatten)]
        which: Which,

        /// End all of them
        #[arg(long)]
        all: bool,
    },
}

/// Which flows.
#[derive(Debug, Args)]
struct Which {
    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

    #[command(flatten)]
    ends: Ends,

    /// The identifier of ICMP queries, before or after translation
    #[arg(long, value_name = "ID")]
    icmp_id: Option<u16>,

    /// The interface by which it began; `self` for the gateway itself
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// The rule that let it in
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// A translation that it has
    #[arg(long, value_name = "NAME")]
    nat: Option<String>,

    /// established, syn-sent, unanswered and so on
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
}

impl Which {
    fn query(&self, limit: Option<usize>) -> FlowQuery {
        FlowQuery {
            host: self.ends.host.clone(),
            port: self.ends.port,
            icmp_id: self.icmp_id,
            protocol: self.ends.protocol.clone(),
            interface: self.interface.clone(),
            rule: self.rule.clone(),
            nat: self.nat.clone(),
            state: self.state.clone(),
            limit,
            after: None,
        }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match &self.command {
            Some(Command::Kill { which, all }) => kill(which, *all),
            None => self.list(),
        }
    }

    fn list(&self) -> Result<Exit, Failure> {
        let listed: Listed =
            Client::at(&self.which.socket).get_with("/flows", &self.which.query(Some(self.limit)))?;
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&listed).unwrap_or_default())?;
            return Ok(Exit::Done);
        }
        let titles = ["flow", "from", "to", "state", "idle", "rule", "translated"];
        let mut table = Table::new(titles);
        for flow in &listed.flows {
            table.row([
                flow.protocol.clone(),
                source(flow),
                destination(flow),
                standing(flow),
                format!("{:.0} s", flow.idle_seconds),
                flow.rule.clone().unwrap_or_else(|| "-".to_owned()),
                translated(flow),
            ]);
        }
        drop(out);
        table.print()?;
        if listed.more {
            screen::note(&format_args!("there are more; --limit {} shows them", 10 * self.limit));
        }
        Ok(Exit::Done)
    }
}

fn kill(which: &Which, all: bool) -> Result<Exit, Failure> {
    let query = which.query(None);
    if query == FlowQuery::default() && !all {
        return Err(PolicyError::Lacks {
            what: "word on which flows to end",
            hint: "narrow them down, by --host for one; or say --all",
        }
        .into());
    }
    let killed: Killed = Client::at(&which.socket).post_with("/flows/kill", &query)?;
    writeln!(screen::out(), "ended {}", screen::count(killed.ended, "flow", "flows"))?;
    Ok(Exit::Done)
}

/// State of a flow, with what else there is to say of it: `established, fast path`.
fn standing(flow: &FlowView) -> String {
    let marks = [
        (flow.helped, "helper"),
        (flow.related, "related"),
        (flow.validated && flow.fast_path, "fast path"),
        (!flow.validated, "to be revalidated"),
    ];
    let marks = marks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| mark);
    std::iter::once(flow.state.as_str()).chain(marks).collect::<Vec<_>>().join(", ")
}

/// `192.168.1.10:40000`, or `192.168.1.10 id 7` of who asks by ICMP, or `192.168.1.10 call 9` with the call ID of a PPTP call's replies; with the VRF, where it is not the default one.
fn source(flow: &FlowView) -> String {
    let end = match (&flow.icmp, &flow.call) {
        (Some(asked), _) => format!("{} id {}", flow.source, asked.id),
        (_, Some(call)) => format!("{} call {}", flow.source, call.reply_id),
        _ => Endpoint { address: flow.source, port: flow.sport }.to_string(),
    };
    match &flow.vrf {
        Some(vrf) => format!("{end} in {vrf}"),
        None => end,
    }
}

/// `198.51.100.7:443`, or `198.51.100.7 echo-request` of who is asked by ICMP, or `198.51.100.7 call 9` of a PPTP call.
fn destination(flow: &FlowView) -> String {
    match (&flow.icmp, &flow.call) {
        (Some(asked), _) => format!("{} {}", flow.destination, asked.name),
        (_, Some(call)) => format!("{} call {}", flow.destination, call.id),
        _ => Endpoint { address: flow.destination, port: flow.dport }.to_string(),
    }
}

/// Returns the ends as the far ends see them, where translation changes them.
fn translated(flow: &FlowView) -> String {
    let mut told = Vec::new();
    let (id, seen_id) = flow.icmp.as_ref().map(|asked| (asked.id, asked.seen_id)).unzip();
    if (flow.seen_as, flow.seen_port, seen_id) != (flow.source, flow.sport, id) {
        let seen_as = Endpoint { address: flow.seen_as, port: flow.seen_port };
        told.push(seen_id.map_or_else(|| format!("from {seen_as}"), |id| format!("from {seen_as} id {id}")));
    }
    if (flow.reached, flow.reached_port) != (flow.destination, flow.dport) {
        told.push(format!("to {}", Endpoint { address: flow.reached, port: flow.reached_port }));
    }
    if told.is_empty() {
        return "-".to_owned();
    }
    format!("{} ({})", told.join(", "), flow.nat.join(", "))
}
