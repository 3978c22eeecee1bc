//! `wirerate policy show`, `history` and `save`: the policy in force, those before it, and the way back into a file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gateway::ClientError;
use gateway::api::Trouble;
use gateway::history::{HistoryView, Origin};

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure, OutputError};
use crate::{file, screen, with_exit_codes};

/// Show the policy in force and those before it, or save it
///
/// What `wirerate apply` has put in force survives a restart, until the file that the gateway is started with is changed: then that
/// file counts. `wirerate policy save` writes the policy in force into that file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the policy in force, or one of those before it, as TOML
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate policy show
  wirerate policy show --number 7 > before.toml
  wirerate apply before.toml"))]
    Show {
        /// Its number in the history
        #[arg(long, value_name = "N")]
        number: Option<u64>,

        #[command(flatten)]
        ask: Ask,
    },
    /// List the policies that were put in force: number, time, who, comment
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate policy history
  wirerate policy history --json"))]
    History {
        #[command(flatten)]
        ask: Ask,
    },
    /// Write the policy in force into a file: the one that the gateway was started with, unless another is named
    ///
    /// The file is whole or as it was: it is written as FILE.new, brought to the disk, and then renamed. A policy on trial is
    /// not saved: confirm it first.
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate policy save
  wirerate policy save /etc/wirerate/policy.toml"))]
    Save {
        /// Where to
        file: Option<PathBuf>,

        #[command(flatten)]
        ask: Ask,
    },
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Show { number, ask } => show(number, &ask),
            Command::History { ask } => history(&ask),
            Command::Save { file, ask } => save(file, &ask),
        }
    }
}

fn show(number: Option<u64>, ask: &Ask) -> Result<Exit, Failure> {
    let path = match number {
        Some(number) => format!("/policy/kept?number={number}"),
        None => "/policy".to_owned(),
    };
    let text = ask.client().get_text(&path)?;
    if !ask.as_json(&serde_json::json!({ "number": number, "policy": text }))? {
        write!(screen::out(), "{text}")?;
    }
    Ok(Exit::Done)
}

fn history(ask: &Ask) -> Result<Exit, Failure> {
    let history: HistoryView = ask.client().get("/policy/history")?;
    if ask.as_json(&history)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["number", "time", "by", "hash", "comment"]);
    for entry in &history.entries {
        let by = match entry.origin {
            Origin::File => "file".to_owned(),
            Origin::Apply => entry.user.clone().unwrap_or_else(|| "somebody".to_owned()),
        };
        let mark = if history.in_force == Some(entry.number) { "*" } else { "" };
        table.row([
            format!("{}{mark}", entry.number),
            entry.time.clone(),
            by,
            entry.hash.chars().take(12).collect(),
            entry.comment.clone().unwrap_or_default(),
        ]);
    }
    table.print()?;
    let mut out = screen::out();
    if history.on_trial {
        writeln!(out, "in force: a policy on trial, which is not kept before `wirerate confirm`")?;
    }
    writeln!(out, "started with {}", history.file.display())?;
    Ok(Exit::Done)
}

fn save(path: Option<PathBuf>, ask: &Ask) -> Result<Exit, Failure> {
    let history: HistoryView = ask.client().get("/policy/history")?;
    if history.on_trial {
        let (error, hint) =
            ("a policy is on trial", "`wirerate confirm` keeps it, `wirerate rollback` drops it");
        let trouble = Trouble { error: error.to_owned(), hint: hint.to_owned() };
        return Err(ClientError::Refused(trouble).into());
    }
    let path = path.unwrap_or(history.file);
    let text = ask.client().get_text("/policy")?;
    // The permissions that it had.
    let mode = fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o7777);
    file::replace(&path, &text, mode).map_err(|error| OutputError::Write { path: path.clone(), error })?;
    if !ask.as_json(&serde_json::json!({ "file": path }))? {
        writeln!(screen::out(), "saved to {}", path.display())?;
    }
    Ok(Exit::Done)
}
