//! `wirerate check`: is a policy sound?

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use analysis::{Effort, Look};
use clap::Args;
use report::check::Check;

use crate::failure::{Exit, Failure, OutputError, PolicyError, UsageError};
use crate::screen::{self, GOOD};
use crate::with_exit_codes;

mod draw;

/// Report everything that is wrong with a policy
///
/// Shows all errors and warnings at once, each with file, line, column and a hint: unknown keys with the
/// nearest known one, addresses outside their zone, NAT that can never match. Of a policy without errors, the rules
/// are analysed exactly, for every packet there can be: rules that can never match, and which rules hide them; rules
/// without which every packet would have the same fate (action, log, rate, connections). All of those can be left out
/// at once. So are traffic classes: those that no packet is of, and which classes hide them. Warnings alone do not make a policy wrong.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate check policies/home-office.toml
  wirerate check policies/home-office.toml --overlaps
  wirerate check policies/isp-edge.toml --json | jq '{errors, warnings}'
  wirerate check policies/diffserv-edge.toml --draw queues.svg

--draw writes a picture of the trees of queues, with shapes and templates written \
out: packets go from the left, by their class and its meter or by their code \
point, to the queue that they wait in, and on to the interface. Queues that are \
alike are one stack; of thousands the picture shows some and says how many more.

--json prints one object: `file`, `errors`, `warnings` and `notes` (how many), `diagnostics`, a list of objects \
with `code severity message hint file line column related`, `open`, the rules that the analysis did not settle, `classifier`, the algorithm that searches the rules, and `gave_way`, \
which others would have taken too much memory."))]
pub(crate) struct Arguments {
    /// The policy (TOML)
    policy: PathBuf,

    /// Note rules that do different things to some packets, too, neither of which matches all that the other does
    #[arg(long)]
    overlaps: bool,

    /// Analyse the rules for minutes, if it takes that, and not a second or two
    #[arg(long)]
    thorough: bool,

    /// Draw the trees of queues of a policy without errors, as SVG
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let file = self.policy.display().to_string();
        let checked = policy::load(&self.policy).map_err(PolicyError::Unreadable)?;
        let look = if self.overlaps { Look::EffectAndOverlaps } else { Look::Effect };
        let effort = if self.thorough { Effort::THOROUGH } else { Effort::QUICK };
        let check = Check::of(file, checked, look, effort);
        let errors = check.errors();
        if let (Some(path), Some(policy), 0) = (&self.draw, &check.policy, errors) {
            write(path, &self.policy, &draw::draw(policy, &name_of(&self.policy)))?;
        }
        if self.json {
            writeln!(screen::out(), "{:#}", check.to_json())?;
            return Ok(if errors == 0 { Exit::Done } else { Exit::Wrong });
        }
        screen::diagnostics(&check.diagnostics);
        let (warnings, notes, gave_way) = (check.warnings(), check.notes(), check.gave_way());
        let Check { file, policy, uncompiled, open, more_overlaps, search, .. } = check;
        if let Some(error) = uncompiled {
            return Err(PolicyError::Compile { file, error }.into());
        }
        let Some(policy) = policy else { return Err(PolicyError::Wrong { file, errors }.into()) };
        let many = |count: usize, one, more| screen::count(count as u64, one, more);
        if open > 0 {
            let rules = many(open, "rule or class", "rules and classes");
            let further = if self.thorough { "" } else { "; --thorough goes on for minutes" };
            screen::note(&format_args!(
                "what could be said of {rules} takes more work than is done{further}"
            ));
        }
        if let Some(search) = search {
            let (name, bytes) = (search.algorithm.name, search.classifier.memory_bytes() as u64);
            for why in gave_way {
                screen::note(&format_args!("the rules are not searched by {why}"));
            }
            if !policy.rules.is_empty() {
                writeln!(screen::out(), "rules are searched by {name}, {}", screen::bytes(bytes))?;
            }
        }
        if more_overlaps {
            screen::note(&format_args!("there are more rules that overlap than these"));
        }
        let tail = |count: usize, one, more| {
            if count == 0 { String::new() } else { format!("; {}", many(count, one, more)) }
        };
        writeln!(
            screen::out(),
            "{GOOD}{file} is sound{GOOD:#}: {}, {}, {}, {}{}{}{}",
            many(policy.interfaces.len(), "interface", "interfaces"),
            many(policy.rules.len(), "rule", "rules"),
            many(policy.nats.len(), "translation", "translations"),
            many(policy.routes.len(), "route", "routes"),
            match policy.classes.len() {
                0 => String::new(),
                count => format!(", {}", many(count, "traffic class", "traffic classes")),
            },
            tail(warnings, "warning", "warnings"),
            tail(notes, "note", "notes"),
        )?;
        if let Some(path) = &self.draw {
            writeln!(screen::out(), "Drawn to {}.", path.display())?;
        }
        Ok(Exit::Done)
    }
}

/// The name of a file, without its directory: a picture does not depend on where it was made.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Writes the drawing of `policy`.
fn write(path: &Path, policy: &Path, drawing: &str) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    if real(path).is_some_and(|path| Some(path) == real(policy)) {
        return Err(UsageError::Overwrites { path: path.to_owned() }.into());
    }
    fs::write(path, drawing).map_err(|error| OutputError::Write { path: path.to_owned(), error }.into())
}
