//! The three questions, asked at a terminal: each with the suggestion that an empty answer takes.

use std::io::{self, BufRead, Write};

use gateway::linux::interface::Condition;

use super::answer::{AnswerError, Answers, NONE, SshFrom, Suggestion};
use super::machine::{Interface, Machine, Version};
use crate::screen::{DIM, HEADING, Table};

/// Answers that flags gave already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Interfaces to the internet.
    pub(crate) wan: Option<Vec<String>>,
    /// Interfaces to the inside.
    pub(crate) lan: Option<Vec<String>>,
    /// Sources of SSH.
    pub(crate) ssh_from: Option<Vec<SshFrom>>,
    /// Port of the SSH server.
    pub(crate) ssh_port: u16,
}

/// Asks what no flag has answered. `None` where there is no more input.
pub(crate) fn ask_all(
    machine: &Machine,
    begun: Begun,
    input: &mut dyn BufRead,
) -> io::Result<Option<Answers>> {
    write!(anstream::stderr().lock(), "Interfaces of this machine:\n{}\n", listed(machine))?;
    let nobody = vec![SshFrom::Anywhere];
    let Begun { wan, lan, ssh_from, ssh_port } = begun;
    let suggested = Suggestion::of(machine, wan.as_deref(), lan.as_deref());
    let wan = match wan {
        Some(wan) => wan,
        None => {
            let suggestion = Some(suggested.wan.join(" ")).filter(|names| !names.is_empty());
            let asked =
                ask("Which interface leads to the internet?", suggestion.as_deref(), input, |answer| {
                    let wan = words(answer);
                    Answers { wan: wan.clone(), lan: Vec::new(), ssh_from: nobody.clone(), ssh_port }
                        .check(machine)?;
                    Ok(wan)
                })?;
            let Some(wan) = asked else { return Ok(None) };
            wan
        }
    };
    let suggested = Suggestion::of(machine, Some(&wan), lan.as_deref());
    let lan = match lan {
        Some(lan) => lan,
        None => {
            let suggestion = if suggested.lan.is_empty() { NONE.to_owned() } else { suggested.lan.join(" ") };
            let question = "Which lead to the inside, whose hosts go through this machine?";
            let asked = ask(question, Some(&suggestion), input, |answer| {
                let lan = words(answer);
                let ssh_from = nobody.clone();
                Answers { wan: wan.clone(), lan: lan.clone(), ssh_from, ssh_port }.check(machine)?;
                Ok(lan)
            })?;
            let Some(lan) = asked else { return Ok(None) };
            lan
        }
    };
    let suggested = Suggestion::of(machine, Some(&wan), Some(&lan));
    let ssh_from = match ssh_from {
        Some(ssh_from) => ssh_from,
        None => {
            let sources = suggested.ssh_from.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
            let suggestion = Some(sources.join(" ")).filter(|sources| !sources.is_empty());
            let question = "From where may one log in by SSH (lan, anywhere, none, addresses)?";
            let asked = ask(question, suggestion.as_deref(), input, |answer| {
                let ssh_from =
                    words(answer).iter().map(|word| word.parse()).collect::<Result<Vec<_>, _>>()?;
                let answers = Answers { wan: wan.clone(), lan: lan.clone(), ssh_from, ssh_port };
                answers.check(machine)?;
                Ok(answers.ssh_from)
            })?;
            let Some(ssh_from) = asked else { return Ok(None) };
            ssh_from
        }
    };
    Ok(Some(Answers { wan, lan, ssh_from, ssh_port }))
}

/// Splits an answer into words; [`NONE`] is none.
pub(crate) fn words(answer: &str) -> Vec<String> {
    answer
        .split([' ', ',', '\t'])
        .filter(|word| !word.is_empty() && *word != NONE)
        .map(str::to_owned)
        .collect()
}

/// Interfaces of the machine as a table.
fn listed(machine: &Machine) -> Table {
    let mut table = Table::new(&[]);
    for interface in &machine.interfaces {
        let state = match (&interface.master, interface.condition) {
            (Some(master), _) => format!("port of {master}"),
            (None, Condition::Down) => "down".to_owned(),
            (None, Condition::NoCarrier) => "no carrier".to_owned(),
            (None, Condition::Running) => "up".to_owned(),
        };
        let kind = match (&interface.vlan, interface.kind.as_str()) {
            (Some(vlan), _) => format!("VLAN {} of {}", vlan.id, vlan.parent),
            (None, kind) => kind.to_owned(),
        };
        table.row([interface.name.clone(), state, kind, interface.addressing()]);
    }
    table
}

impl Interface {
    /// Addresses and default routes, in words.
    pub(crate) fn addressing(&self) -> String {
        let mut words: Vec<String> = self.addresses.iter().map(|address| address.net.to_string()).collect();
        for version in [Version::V4, Version::V6] {
            if let Some(route) = self.defaults.iter().find(|route| route.version == version) {
                let version = if version == Version::V4 { "IPv4" } else { "IPv6" };
                words.push(match route.via {
                    Some(via) => format!("{version} by default via {via}"),
                    None => format!("{version} by default"),
                });
            }
        }
        if words.is_empty() { "no address".to_owned() } else { words.join(", ") }
    }
}

/// Asks until an answer will do; an empty one takes `suggested`. `None` where there is no more input.
fn ask<T>(
    question: &str,
    suggested: Option<&str>,
    input: &mut dyn BufRead,
    mut read: impl FnMut(&str) -> Result<T, AnswerError>,
) -> io::Result<Option<T>> {
    let mut err = anstream::stderr().lock();
    loop {
        match suggested {
            Some(suggested) => write!(err, "{HEADING}{question}{HEADING:#} [{suggested}] ")?,
            None => write!(err, "{HEADING}{question}{HEADING:#} ")?,
        }
        err.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            writeln!(err)?;
            return Ok(None);
        }
        let answer = match (line.trim(), suggested) {
            ("", Some(suggested)) => suggested,
            ("", None) => continue,
            (answer, _) => answer,
        };
        match read(answer) {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => writeln!(err, "{DIM}{error}; {}{DIM:#}", error.hint())?,
        }
    }
}
