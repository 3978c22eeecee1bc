//! The command `wirerate`: every job of the program is a subcommand, and each has a file in `command/`.
//!
//! Results go to standard output, everything else to standard error; the exit code states the kind of failure
//! ([`failure::Exit`]).

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Parser, Subcommand};

use failure::{Exit, Failure};

mod bench;
mod builtin;
mod command;
mod draft;
mod failure;
mod file;
mod html;
mod output;
mod plot;
mod policy_file;
mod progress;
mod screen;
mod summary;
mod svg;

use command::live;
use command::{
    capture, check, chip, completions, diff, drops, estimate, explain, flows, generate, import, init, manual,
    map, policies, queues, reasons, replay, reproduce, run, sa, set, stages, state, test, token, top,
};

/// Exit codes, at the end of every help text.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the policy, a chip, a mapping, points of an estimate or a test is wrong, an import left something
     untranslated, two policies differ, or a set is full
  2  the command line is wrong
  3  an input cannot be read
  4  the live gateway could not begin, or cannot be asked";

/// wirerate: a network processor in software
///
/// Write one policy (firewall, NAT, routes, connection limits), and wirerate carries it out on packets, IPv4
/// and IPv6 alike. It plays captures through the policy without any privileges, and says of every packet what
/// became of it and which rule decided.
#[derive(Debug, Parser)]
#[command(
    name = "wirerate",
    version,
    long_version = long_version(),
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110,
    after_long_help = with_exit_codes(
        "\
Examples:
  wirerate check policies/home-office.toml
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate replay policies/home-office.toml \\
    lan=lan.pcapng wan=wan.pcapng --out out
  wirerate explain policies/home-office.toml \\
    'lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn'
  wirerate chip run --chip ixp2400 policies/firewall.toml \\
    'lan>wan,size=64,rate=100%,both,frames=20000'
  wirerate reasons rule-drop",
    )
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Whether to colour what is written
    ///
    /// `auto` colours on a terminal, unless the environment variable NO_COLOR is set.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: screen::Color,
}

/// The subcommands. One more is a file in `command/` and a line here and in [`Command::run`].
#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Arguments),
    Check(check::Arguments),
    Diff(diff::Arguments),
    Run(run::Arguments),
    Top(top::Arguments),
    Status(live::Status),
    Flows(flows::Arguments),
    Ports(live::Ports),
    Rules(live::Rules),
    Nat(live::Nat),
    Classes(live::Classes),
    Queues(queues::Arguments),
    Drops(drops::Arguments),
    Sa(sa::Arguments),
    Set(set::Arguments),
    Map(map::Arguments),
    Apply(live::Apply),
    Confirm(live::Confirm),
    Rollback(live::Rollback),
    Policy(policies::Arguments),
    Release(live::Release),
    Token(token::Arguments),
    Capture(capture::Arguments),
    Save(state::Save),
    Load(state::Load),
    Replay(replay::Arguments),
    Explain(explain::Arguments),
    Import(import::Arguments),
    Generate(generate::Arguments),
    Test(test::Arguments),
    Chip(chip::Arguments),
    Reproduce(reproduce::Arguments),
    Estimate(estimate::Arguments),
    Bench(command::bench::Bench),
    Reasons(reasons::Arguments),
    Stages(stages::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
}

impl Command {
    fn run(self) -> Result<Exit, Failure> {
        match self {
            Command::Init(arguments) => arguments.run(),
            Command::Check(arguments) => arguments.run(),
            Command::Diff(arguments) => arguments.run(),
            Command::Run(arguments) => arguments.run(),
            Command::Top(arguments) => arguments.run(),
            Command::Status(arguments) => arguments.run(),
            Command::Flows(arguments) => arguments.run(),
            Command::Ports(arguments) => arguments.run(),
            Command::Rules(arguments) => arguments.run(),
            Command::Nat(arguments) => arguments.run(),
            Command::Classes(arguments) => arguments.run(),
            Command::Queues(arguments) => arguments.run(),
            Command::Drops(arguments) => arguments.run(),
            Command::Sa(arguments) => arguments.run(),
            Command::Set(arguments) => arguments.run(),
            Command::Map(arguments) => arguments.run(),
            Command::Apply(arguments) => arguments.run(),
            Command::Confirm(arguments) => arguments.run(),
            Command::Rollback(arguments) => arguments.run(),
            Command::Policy(arguments) => arguments.run(),
            Command::Release(arguments) => arguments.run(),
            Command::Token(arguments) => arguments.run(),
            Command::Capture(arguments) => arguments.run(),
            Command::Save(arguments) => arguments.run(),
            Command::Load(arguments) => arguments.run(),
            Command::Replay(arguments) => arguments.run(),
            Command::Explain(arguments) => arguments.run(),
            Command::Import(arguments) => arguments.run(),
            Command::Generate(arguments) => arguments.run(),
            Command::Test(arguments) => arguments.run(),
            Command::Chip(arguments) => arguments.run(),
            Command::Reproduce(arguments) => arguments.run(),
            Command::Estimate(arguments) => arguments.run(),
            Command::Bench(bench) => bench.run().map(|()| Exit::Done),
            Command::Reasons(arguments) => arguments.run(),
            Command::Stages(arguments) => arguments.run(),
            Command::Completions(arguments) => arguments.run(),
            Command::Manual(arguments) => arguments.run(),
        }
    }
}

/// Version, and the libraries that carry ESP out on this processor, the preferred one first.
fn long_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| format!("{}\nESP: {}", env!("CARGO_PKG_VERSION"), esp::libraries().join(", ")))
}

/// Examples, and the exit codes.
fn with_exit_codes(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.color.apply();
    let exit = match cli.command.run() {
        Ok(exit) => exit,
        // Whoever read the output has seen enough: `wirerate reasons | head`.
        Err(failure) if failure.is_closed_output() => Exit::Done,
        Err(failure) => {
            failure.tell();
            failure.exit()
        }
    };
    ExitCode::from(exit as u8)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
