//! `wirerate diff`: which packets change their fate between two policies?

use std::io::{self, Write};
use std::path::PathBuf;

use analysis::{Comparison, Decider, Difference, Effort, Judgement, Outcome, Places, compare};
use clap::Args;
use dataplane::Tables;
use policy::model::{Action, Logging, Mode, OTHER_ZONE, Rule, SynAnswer, ZoneDefault};
use policy::{Lines, Policy};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, PolicyError};
use crate::policy_file::{self, Loaded};
use crate::region::Numbered;
use crate::screen::{self, BAD, CARE, DIM, GOOD, HEADING};
use crate::trial::{self, Trial};
use crate::with_exit_codes;

mod class;

use class::Classes;

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
        let (old, old_tables) = Side::of(policy_file::load(&self.old)?);
        let (new, new_tables) = Side::of(policy_file::load(&self.new)?);
        let effort = if self.thorough { Effort::THOROUGH } else { Effort::QUICK };
        let comparison = compare(&old.policy, &new.policy, effort)
            .map_err(|error| PolicyError::Compile { file: new.file.clone(), error })?;
        let classes = Classes::of(&old.policy, &new.policy, effort)
            .map_err(|error| PolicyError::Compile { file: new.file.clone(), error })?;
        let trials = Trial::new(old_tables).zip(Trial::new(new_tables));
        let mut report = Report::new(&old, &new, &comparison, trials.map(|(old, new)| Trials { old, new }));
        let mut out = screen::out();
        if self.json {
            let mut object = report.json(self.regions);
            object["classes"] = classes.as_ref().map_or(Value::Null, |classes| classes.json(self.regions));
            writeln!(out, "{object:#}")?;
        } else {
            report.print(&mut out, self.regions)?;
            if let Some(classes) = &classes {
                classes.print(&mut out, self.regions)?;
            }
            let outcome_of_classes = classes.as_ref().map(Classes::outcome);
            if comparison.outcome == Outcome::Stopped || outcome_of_classes == Some(Outcome::Stopped) {
                let further = if self.thorough { "" } else { "; --thorough goes on for minutes" };
                screen::note(&format_args!("there may be more, which takes more work than is done{further}"));
            }
        }
        Ok(if report.outcome() == "same" { Exit::Done } else { Exit::Wrong })
    }
}

/// One of the two policies.
struct Side {
    file: String,
    policy: Policy,
    lines: Lines,
}

impl Side {
    fn of(loaded: Loaded) -> (Side, Tables) {
        let Loaded { file, policy, lines, tables } = loaded;
        (Side { file, policy, lines }, tables)
    }
}

struct Report<'a> {
    old: &'a Side,
    new: &'a Side,
    comparison: &'a Comparison,
    numbered: Numbered,
    places: Places,
    trials: Option<Trials>,
}

struct Trials {
    old: Trial,
    new: Trial,
}

/// A packet in words.
struct Example {
    words: String,
    /// True if both policies, with their routes and translations, bring the packet before the rules and decide as reported.
    tried: bool,
}

impl<'a> Report<'a> {
    fn new(old: &'a Side, new: &'a Side, comparison: &'a Comparison, trials: Option<Trials>) -> Report<'a> {
        let names = comparison.interfaces.clone();
        Report {
            old,
            new,
            comparison,
            places: trial::places(&new.policy, &names, comparison.macs.as_ref()),
            numbered: Numbered::new(
                names,
                comparison.macs.clone(),
                comparison.sets.clone(),
                &[&old.policy, &new.policy],
            ),
            trials,
        }
    }

    fn outcome(&self) -> &'static str {
        let has_any = |side: &Side| !side.policy.interfaces.is_empty();
        let nowhere = self.comparison.interfaces.is_empty() && (has_any(self.old) || has_any(self.new));
        match (self.comparison.differences.is_empty(), self.comparison.outcome) {
            _ if nowhere => "incomparable",
            (false, _) => "different",
            (true, Outcome::Complete) => "same",
            (true, Outcome::Stopped) => "unsettled",
        }
    }

    fn print(&mut self, out: &mut impl Write, most: usize) -> io::Result<()> {
        let found = self.comparison.differences.len();
        let between = self.comparison.interfaces.join(", ");
        let scope = match (between.as_str(), self.comparison.interfaces.len()) {
            ("", _) => "without any interface".to_owned(),
            (one, 1) => format!("by {one}"),
            (all, _) => format!("between {all}"),
        };
        match self.outcome() {
            "same" => {
                writeln!(out, "{GOOD}no packet changes its fate{GOOD:#}: of all that there can be {scope}")?
            }
            "unsettled" => writeln!(out, "{CARE}no packet is found that changes its fate{CARE:#}")?,
            "incomparable" => {
                writeln!(out, "{BAD}nothing is compared{BAD:#}: the policies have no interface in common")?
            }
            _ => {
                let many = screen::count(
                    found as u64,
                    "region of packets changes its",
                    "regions of packets change their",
                );
                writeln!(out, "{BAD}{many} fate{BAD:#}, of all that there can be {scope}")?;
            }
        }
        for (number, difference) in self.comparison.differences.iter().take(most).enumerate() {
            let words = self.numbered.words(&difference.region);
            writeln!(out, "\n{HEADING}{}. {words}{HEADING:#}", number + 1)?;
            writeln!(out, "   was      {}", told(&difference.old, self.old))?;
            writeln!(out, "   becomes  {}", told(&difference.new, self.new))?;
            if let Some(Example { words, tried }) = self.example(difference) {
                let aside = if tried { "" } else { "  (not by these routes and translations)" };
                writeln!(out, "   example  '{words}'{DIM}{aside}{DIM:#}")?;
            }
        }
        if let Some(more @ 1..) = found.checked_sub(most) {
            writeln!(out, "\nand {} more; --regions {found} shows all", screen::number(more as u64))?;
        }
        let others = self.not_compared();
        if !others.is_empty() {
            writeln!(out, "\n{CARE}Not compared{CARE:#}, and different: {}", others.join(", "))?;
        }
        Ok(())
    }

    fn json(&mut self, most: usize) -> Value {
        let shown: Vec<&Difference> = self.comparison.differences.iter().take(most).collect();
        let regions: Vec<Value> = shown
            .iter()
            .map(|difference| {
                let example = self.example(difference);
                json!({
                    "packets": self.numbered.to_json(&difference.region),
                    "old": judgement_json(&difference.old, self.old),
                    "new": judgement_json(&difference.new, self.new),
                    "example": example.as_ref().map(|example| &example.words),
                    "tried": example.is_some_and(|example| example.tried),
                })
            })
            .collect();
        json!({
            "outcome": self.outcome(),
            "complete": self.comparison.outcome == Outcome::Complete,
            "interfaces": self.comparison.interfaces,
            "found": self.comparison.differences.len(),
            "shown": regions.len(),
            "regions": regions,
            "not_compared": self.not_compared(),
        })
    }

    /// A packet of the region; of several, one that does in both policies what is said.
    fn example(&mut self, difference: &Difference) -> Option<Example> {
        let mut first = None;
        for header in difference.region.examples(&self.places) {
            let Some(words) = self.numbered.packet(&header) else { continue };
            if let Some(trials) = &mut self.trials {
                if trials.old.decides(&words) == Some(difference.old.by)
                    && trials.new.decides(&words) == Some(difference.new.by)
                {
                    return Some(Example { words, tried: true });
                }
            }
            first.get_or_insert(Example { words, tried: false });
        }
        first
    }

    /// Returns the differences besides rules, their sets, and defaults.
    fn not_compared(&self) -> Vec<String> {
        let (old, new) = (&self.old.policy, &self.new.policy);
        let compared = |thing: &str| ["rule ", "set ", "default "].iter().any(|kind| thing.starts_with(kind));
        let mut others: Vec<String> = policy::plan(old, new)
            .iter()
            .filter(|change| !compared(&change.thing))
            .map(|change| format!("{} ({})", change.thing, change.kind.name()))
            .collect();
        let of_other = |policy: &Policy| -> Vec<Rule> {
            policy.rules.iter().filter(|rule| rule.conditions.names_other()).cloned().collect()
        };
        let defaults = |policy: &Policy| -> Vec<ZoneDefault> {
            policy.defaults.iter().filter(|default| default.from == OTHER_ZONE).cloned().collect()
        };
        if of_other(old) != of_other(new) || defaults(old) != defaults(new) {
            others.push("what Linux forwards from other interfaces (zone `other`)".to_owned());
        }
        if old.mode != new.mode {
            let word = |policy: &Policy| match policy.mode {
                Mode::Stateful => "stateful: first packets of connections",
                Mode::Stateless => "stateless: every packet",
            };
            others.push(format!("who meets the rules (was {}, is {})", word(old), word(new)));
        }
        others
    }
}

fn told(judgement: &Judgement, side: &Side) -> String {
    let fate = judgement.fate;
    match named(judgement, side) {
        Some((name, Some(line))) => format!("{fate}: \"{name}\", {}:{line}", side.file),
        Some((name, None)) => format!("{fate}: \"{name}\", {}", side.file),
        None => format!("{fate}: by default"),
    }
}

fn judgement_json(judgement: &Judgement, side: &Side) -> Value {
    let fate = judgement.fate;
    let (name, line) = named(judgement, side).map_or((None, None), |(name, line)| (Some(name), line));
    json!({
        "action": match fate.action {
            Action::Accept => "accept",
            Action::Drop => "drop",
            Action::Reject(_) => "reject",
        },
        "log": fate.log == Logging::On,
        "rate": fate.rate.is_some(),
        "connections": fate.connections.is_some(),
        "timeout": fate.timeout.is_some(),
        "syn": if fate.syn == SynAnswer::Proxy { "proxy" } else { "forward" },
        "helper": fate.helper.is_some(),
        "rule": name,
        "line": line,
    })
}

/// The deciding rule's name and line.
fn named<'a>(judgement: &Judgement, side: &'a Side) -> Option<(&'a str, Option<u32>)> {
    let Decider::Rule(place) = judgement.by else { return None };
    let rule = side.policy.rules.get(place as usize)?;
    Some((&rule.name, side.lines.rule(&rule.name)))
}
