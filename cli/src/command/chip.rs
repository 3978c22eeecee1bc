//! `wirerate chip`: how fast would this policy be on that processor, and what limits it?

use clap::{Args, Subcommand};

use crate::failure::{Exit, Failure};

mod cipher;
mod list;
mod optimise;
mod package;
mod page;
mod plan;
mod run;
mod search;
mod sweep;
mod table;
mod trace;

/// Time a policy on a modelled network processor
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What is done. One more is a file in `chip/` and a line here and in [`Arguments::run`].
#[derive(Debug, Subcommand)]
enum What {
    Run(run::Arguments),
    Cipher(cipher::Arguments),
    Search(search::Arguments),
    Sweep(sweep::Arguments),
    Optimise(optimise::Arguments),
    Trace(trace::Arguments),
    List(list::Arguments),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.what {
            What::Run(arguments) => arguments.run(),
            What::Cipher(arguments) => arguments.run(),
            What::Search(arguments) => arguments.run(),
            What::Sweep(arguments) => arguments.run(),
            What::Optimise(arguments) => arguments.run(),
            What::Trace(arguments) => arguments.run(),
            What::List(arguments) => arguments.run(),
        }
    }
}
