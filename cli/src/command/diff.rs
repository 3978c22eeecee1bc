//! `wirerate diff`: which packets change their fate between two policies?

use std::io::Write;
use std::path::PathBuf;

use analysis::{Effort, Outcome};
use clap::Args;
use report::diff::{Answer, Diff, Side};

use crate::failure::{Exit, Failure, PolicyError};
use crate::policy_file::{self, Loaded};
use crate::screen;
use crate::with_exit_codes;

/// Say which packets change their fate between two policies, or prove that none does
///
/// Compared is what the rules and the defaults of zones do with every packet that can come before them, between the
/// interfaces that both policies have (by name): accept, drop or reject, and whether it is logged or bounded by `rate` or
/// `connections`. Of a stateful policy these are the first packets of connections; those that follow share their fate.
/// The answer is exact: regions that do not share a packet, each with what decides in either policy, and an example in the
/// words that `explain` takes, tried on both.
///
/// So are traffic classes: packets that are of another class, by name, are shown behind the others; they do not count as changes of
/// fate.
///
/// Routes, translations, limits and all else that is not the rules' is not compared; what differs of it is named.
/// Destinations are those after translation.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  sed 's/dport = 25$/dport = [25, 465]/' policies/home-office.toml > new.toml
  wirerate diff policies/home-office.toml new.toml || echo 'some packets notice'
  wirerate diff policies/home-office.toml new.toml --regions 1000 --json \\
    | jq -r '.regions[].example'
  wirerate diff policies/home-office.toml policies/home-office.toml

The exit code is 0 if it is proved that no packet changes its fate, and 1 if some do, or if that is not settled.

--json prints one object: `outcome` (`same`, `different`, `unsettled` where nothing is found, but the work was at its \
end, or `incomparable` where no interface is in both), `complete` (whether these are all), `interfaces` (those that both have), `regions`, a list of objects with \
`packets` (by key of a rule: what it admits), `old` and `new` (each with `action`, `log`, `rate`, `connections`, `timeout`, `syn`, `rule` and \
`line`, null for the default), `example` and `tried` (whether both policies did so with it, through all stages), \
`shown` and `found` (how many regions), `classes`, null where neither policy has any, else with `complete`, `found` and `regions`, each with \
`packets`, `pcp` (empty for all priorities), and `old` and `new`, the names of the classes or null, and `not_compared` (what else is different)."))]
pub(crate) struct Arguments {
    /// The policy as it was (TOML)
    old: PathBuf,

    /// The policy as it is to be (TOML)
    new: PathBuf,

    /// The most regions to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    regions: usize,

    /// Compare for minutes, if it takes that, and not a second or two
    #[arg(long)]
    thorough: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let Loaded { file, policy, lines, tables } = policy_file::load(&self.old)?;
        let old = Side { file: &file, policy: &policy, lines: &lines, tables };
        let Loaded { file, policy, lines, tables } = policy_file::load(&self.new)?;
        let new = Side { file: &file, policy: &policy, lines: &lines, tables };
        let effort = if self.thorough { Effort::THOROUGH } else { Effort::QUICK };
        let diff = Diff::of(old, new, self.regions, effort)
            .map_err(|error| PolicyError::Compile { file: file.clone(), error })?;
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", diff.to_json())?;
        } else {
            write!(out, "{}", screen::Toned(&diff.text("--regions ")))?;
            if diff.outcome() == Outcome::Stopped {
                let further = if self.thorough { "" } else { "; --thorough goes on for minutes" };
                screen::note(&format_args!("there may be more, which takes more work than is done{further}"));
            }
        }
        Ok(if diff.answer() == Answer::Same { Exit::Done } else { Exit::Wrong })
    }
}
