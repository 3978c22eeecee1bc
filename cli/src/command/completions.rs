//! `wirerate completions`: what a shell needs to complete command lines.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::{Exit, Failure};
use crate::{Cli, screen, with_exit_codes};

/// Print completions for a shell
///
/// The shell reads them once from a file or at each start.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate completions bash > ~/.local/share/bash-completion/completions/wirerate
  wirerate completions zsh > ~/.zfunc/_wirerate
  wirerate completions fish > ~/.config/fish/completions/wirerate.fish"))]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        // Into memory first: the generator panics where a stream refuses.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "wirerate", &mut script);
        screen::out().write_all(&script)?;
        Ok(Exit::Done)
    }
}
