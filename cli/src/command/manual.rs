//! `wirerate manual`: the manual pages of all commands, for `man`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::failure::{Exit, Failure, OutputError};
use crate::{Cli, screen, with_exit_codes};

/// Write manual pages for `man`, one for each command
///
/// `wirerate.1`, `wirerate-check.1` and so on: what `--help` says, from the same source. The directory is made where there is none.
/// The Debian package has them in /usr/share/man.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate manual ~/.local/share/man/man1"))]
pub(crate) struct Arguments {
    /// Directory for the pages
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(set(Cli::command()), &self.directory))
            .map_err(|error| OutputError::Write { path: self.directory.clone(), error })?;
        writeln!(screen::out(), "The pages are in {}.", self.directory.display())?;
        Ok(Exit::Done)
    }
}

/// A command whose examples keep their lines when roff fills paragraphs: a line that begins with a space begins on its own.
fn set(command: clap::Command) -> clap::Command {
    let command = match command.get_after_long_help().map(ToString::to_string) {
        Some(text) => command.after_long_help(kept(&text)),
        None => command,
    };
    command.mut_subcommands(set)
}

/// Text whose blocks with indented lines have a space before each of the others but the first.
fn kept(text: &str) -> String {
    let blocks: Vec<String> = text
        .split("\n\n")
        .map(|block| match block.contains("\n ") {
            true => block
                .split('\n')
                .enumerate()
                .map(
                    |(at, line)| {
                        if at == 0 || line.starts_with(' ') { line.to_owned() } else { format!(" {line}") }
                    },
                )
                .collect::<Vec<_>>()
                .join("\n"),
            false => block.to_owned(),
        })
        .collect();
    blocks.join("\n\n")
}
