//! `wirerate set`: dynamic sets of a running gateway, shown and changed.

use std::io::{self, BufRead, Write};

use clap::{Args, Subcommand};
use gateway::Client;
use gateway::set::{Elements, SetChanged, SetFaults, SetQuery, SetRequest, SetView};

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure};
use crate::screen::{self, BAD, GOOD};
use crate::with_exit_codes;

/// Show the dynamic sets of a running gateway, or change their elements: no reload, no packet lost
///
/// Sets with a `file` or `url` are filled from there; rules with `add-source` and these commands fill the others. An
/// element that is added again gets its time to expire anew.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set
  wirerate set show scanners
  wirerate set add scanners 192.0.2.7 --timeout 1h

--json prints an array of sets: name, elements, size, refused (elements that found no room), expired, source (a file or URL), \
loaded, age_seconds, faults (lines that say no address) and trouble (why the source could not be read at the last attempt)."))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the elements of a set, with the time until each expires
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set show scanners
  wirerate set show scanners 192.0.2.7
  wirerate set show scanners --json"))]
    Show {
        #[command(flatten)]
        named: Named,

        /// Addresses and networks: only elements with addresses in common are shown
        #[arg(value_name = "ADDRESS")]
        near: Vec<String>,
    },
    /// Add addresses and networks to a set
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set add scanners 192.0.2.7 2001:db8:7::/48 --timeout 1h
  wirerate set add scanners - < banned.txt"))]
    Add {
        #[command(flatten)]
        change: Change,

        /// Time after which they expire; else the set's `timeout`
        #[arg(long, value_name = "TIME")]
        timeout: Option<String>,
    },
    /// Remove addresses and networks from a set
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set remove scanners 192.0.2.7"))]
    Remove {
        #[command(flatten)]
        change: Change,
    },
    /// Remove all elements of a set
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set flush scanners"))]
    Flush(Named),
    /// Show the lines of a set's file or URL that say no address
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate set faults drop-list"))]
    Faults(Named),
}

/// A set.
#[derive(Debug, Args)]
struct Named {
    /// The set
    set: String,

    #[command(flatten)]
    ask: Ask,
}

/// Elements of a set.
#[derive(Debug, Args)]
struct Change {
    /// The set
    set: String,

    /// Addresses and networks; `-` for standard input, one a line
    #[arg(required = true, value_name = "ELEMENT")]
    elements: Vec<String>,

    #[command(flatten)]
    ask: Ask,
}

/// Elements sent in one request.
const AT_ONCE: usize = 10_000;

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            None => list(&self.ask),
            Some(Command::Show { named, near }) => show(&named, &near),
            Some(Command::Add { change, timeout }) => change.run("/sets/add", timeout.as_deref()),
            Some(Command::Remove { change }) => change.run("/sets/remove", None),
            Some(Command::Flush(Named { set, ask })) => {
                let changed: SetChanged =
                    ask.client().post_with("/sets/flush", &SetQuery { set, ..SetQuery::default() })?;
                if !ask.as_json(&changed)? {
                    writeln!(screen::out(), "{GOOD}flushed{GOOD:#}")?;
                }
                Ok(Exit::Done)
            }
            Some(Command::Faults(named)) => faults(named),
        }
    }
}

fn list(ask: &Ask) -> Result<Exit, Failure> {
    let sets: Vec<SetView> = ask.client().get("/sets")?;
    if ask.as_json(&sets)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["set", "elements", "size", "refused", "expired", "source", "read", "faults"]);
    for set in &sets {
        table.row([
            set.name.clone(),
            set.elements.to_string(),
            set.size.to_string(),
            set.refused.to_string(),
            set.expired.to_string(),
            set.source.clone().unwrap_or_else(|| "rules, requests".to_owned()),
            set.loaded.clone().unwrap_or_else(|| "-".to_owned()),
            set.faults.to_string(),
        ]);
    }
    table.print()?;
    let mut out = screen::out();
    for set in &sets {
        if let Some(trouble) = &set.trouble {
            writeln!(out, "{BAD}{}{BAD:#}: {trouble}; the set keeps its last good list", set.name)?;
        }
    }
    Ok(Exit::Done)
}

fn show(Named { set, ask }: &Named, near: &[String]) -> Result<Exit, Failure> {
    let near = Some(near.join(",")).filter(|near| !near.is_empty());
    let mut all = Vec::new();
    let mut after = Some(0);
    while after.is_some() {
        let query = SetQuery { set: set.clone(), after, near: near.clone() };
        let Elements { elements, next } = ask.client().get_with("/sets/elements", &query)?;
        all.extend(elements);
        after = next;
    }
    if ask.as_json(&all)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["element", "expires"]);
    for element in all {
        let expires = element.expires_seconds.map_or_else(|| "-".to_owned(), |left| format!("{left:.0} s"));
        table.row([element.element, expires]);
    }
    table.print()?;
    Ok(Exit::Done)
}

fn faults(Named { set, ask }: Named) -> Result<Exit, Failure> {
    let found: SetFaults = ask.client().get_with("/sets/faults", &SetQuery { set, ..SetQuery::default() })?;
    if ask.as_json(&found)? {
        return Ok(Exit::Done);
    }
    let mut out = screen::out();
    for fault in &found.faults {
        writeln!(out, "line {}: \"{}\": {}", fault.line, fault.text, fault.fault)?;
    }
    let more = found.count - found.faults.len() as u64;
    if more > 0 {
        writeln!(out, "and {}", screen::count(more, "more line", "more lines"))?;
    }
    Ok(Exit::Done)
}

impl Change {
    fn run(self, path: &str, timeout: Option<&str>) -> Result<Exit, Failure> {
        let Change { set, elements, ask } = self;
        let client = ask.client();
        let mut sum = SetChanged::default();
        if elements == ["-"] {
            let mut group = Vec::with_capacity(AT_ONCE);
            for line in io::stdin().lock().lines() {
                let line = line?;
                if line.trim().is_empty() {
                    continue;
                }
                group.push(line.trim().to_owned());
                if group.len() == AT_ONCE {
                    send(&client, path, &set, std::mem::take(&mut group), timeout, &mut sum)?;
                }
            }
            if !group.is_empty() {
                send(&client, path, &set, group, timeout, &mut sum)?;
            }
        } else {
            for group in elements.chunks(AT_ONCE) {
                send(&client, path, &set, group.to_vec(), timeout, &mut sum)?;
            }
        }
        if !ask.as_json(&sum)? {
            print(&sum)?;
        }
        Ok(if sum.refused > 0 { Exit::Wrong } else { Exit::Done })
    }
}

fn send(
    client: &Client,
    path: &str,
    set: &str,
    elements: Vec<String>,
    timeout: Option<&str>,
    sum: &mut SetChanged,
) -> Result<(), Failure> {
    let request = SetRequest { set: set.to_owned(), elements, timeout: timeout.map(str::to_owned) };
    let body = serde_json::to_string(&request).unwrap_or_default();
    let changed: SetChanged = client.post(path, body)?;
    sum.add(&changed);
    Ok(())
}

fn print(sum: &SetChanged) -> Result<(), Failure> {
    let counts = [
        (sum.added, "added"),
        (sum.refreshed, "refreshed"),
        (sum.removed, "removed"),
        (sum.absent, "not there"),
        (sum.refused, "refused: the set is full"),
    ];
    let mut out = screen::out();
    for (count, outcome) in counts.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {outcome}")?;
    }
    Ok(())
}
