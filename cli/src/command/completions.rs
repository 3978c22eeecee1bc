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
  mkdir -p ~/.local/share/bash-completion/completions
  wirerate completions bash \\
    > ~/.local/share/bash-completion/completions/wirerate
  mkdir -p ~/.zfunc
  wirerate completions zsh > ~/.zfunc/_wirerate
  mkdir -p ~/.config/fish/completions
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
