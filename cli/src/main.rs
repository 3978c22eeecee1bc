//! The `wirerate` command.

mod bench;
mod command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A network processor in software.
#[derive(Parser, Debug)]
#[command(version, name = "wirerate")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Bench(command::bench::Bench),
}

fn main() -> ExitCode {
    let Command::Bench(bench) = Cli::parse().command;
    match bench.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wirerate: {error}");
            ExitCode::from(1)
        }
    }
}
