//! Packets that two policies treat differently, with a packet of each region, tried on both.

use analysis::{Comparison, Decider, Difference, Effort, Judgement, Outcome, Places, compare};
use dataplane::Tables;
use dataplane::tables::CompileError;
use policy::model::{Action, Logging, Mode, OTHER_ZONE, Rule, SynAnswer, ZoneDefault};
use policy::{Lines, Policy};
use replay::number::{count, number};
use serde_json::{Value, json};

use crate::region::Numbered;
use crate::text::{Text, Tone};
use crate::trial::{self, Trial};
use class::Classes;

mod class;

/// One of the two policies.
pub struct Side<'a> {
    /// Name of its file.
    pub file: &'a str,
    /// The policy.
    pub policy: &'a Policy,
    /// Places of its parts in the file.
    pub lines: &'a Lines,
    /// Its tables.
    pub tables: Tables,
}

/// Report on two policies.
pub struct Diff<'a> {
    old: Named<'a>,
    new: Named<'a>,
    comparison: Comparison,
    numbered: Numbered,
    /// The first regions.
    shown: Vec<Shown>,
    classes: Option<Classes<'a>>,
    most: usize,
}

/// Answer to the question whether packets change their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Proved: no packet does.
    Same,
    /// Some packets do.
    Different,
    /// None is found, but the work was at its end.
    Unsettled,
    /// The policies have no interface in common.
    Incomparable,
}

impl Answer {
    /// Name of the answer.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Same => "same",
            Answer::Different => "different",
            Answer::Unsettled => "unsettled",
            Answer::Incomparable => "incomparable",
        }
    }
}

/// Names and lines of a policy.
struct Named<'a> {
    file: &'a str,
    policy: &'a Policy,
    lines: &'a Lines,
}

/// Region of packets in words, with an example.
struct Shown {
    words: String,
    example: Option<Example>,
}

/// A packet in words.
struct Example {
    words: String,
    /// True if both policies, with their routes and translations, bring the packet before the rules and decide as reported.
    tried: bool,
}

struct Trials {
    old: Trial,
    new: Trial,
}

impl<'a> Diff<'a> {
    /// Compares two policies; the report shows `most` regions at most.
    ///
    /// # Errors
    /// One of the policies cannot be compiled for the interfaces that both have.
    pub fn of(
        old: Side<'a>,
        new: Side<'a>,
        most: usize,
        effort: Effort<'_>,
    ) -> Result<Diff<'a>, CompileError> {
        let comparison = compare(old.policy, new.policy, effort)?;
        let classes = Classes::of(old.policy, new.policy, effort)?;
        let mut trials =
            Trial::new(old.tables).zip(Trial::new(new.tables)).map(|(old, new)| Trials { old, new });
        let (macs, names) = (comparison.macs.clone(), comparison.interfaces.clone());
        let places = trial::places(new.policy, &names, macs.as_ref());
        let numbered = Numbered::new(names, macs, comparison.sets.clone(), &[old.policy, new.policy]);
        let shown = comparison.differences.iter().take(most).map(|difference| Shown {
            words: numbered.words(&difference.region),
            example: example(difference, &numbered, &places, trials.as_mut()),
        });
        let shown = shown.collect();
        let named = |file, policy, lines| Named { file, policy, lines };
        Ok(Diff {
            old: named(old.file, old.policy, old.lines),
            new: named(new.file, new.policy, new.lines),
            comparison,
            numbered,
            shown,
            classes,
            most,
        })
    }

    /// Answer to the question whether packets change their fate.
    pub fn answer(&self) -> Answer {
        let has_any = |side: &Named<'_>| !side.policy.interfaces.is_empty();
        let nowhere = self.comparison.interfaces.is_empty() && (has_any(&self.old) || has_any(&self.new));
        match (self.comparison.differences.is_empty(), self.comparison.outcome) {
            _ if nowhere => Answer::Incomparable,
            (false, _) => Answer::Different,
            (true, Outcome::Complete) => Answer::Same,
            (true, Outcome::Stopped) => Answer::Unsettled,
        }
    }

    /// Completeness of the comparison, of rules and of classes.
    pub fn outcome(&self) -> Outcome {
        let of_classes = self.classes.as_ref().map(Classes::outcome);
        if of_classes == Some(Outcome::Stopped) { Outcome::Stopped } else { self.comparison.outcome }
    }

    /// The regions that are shown, in words; in the order of those in [`Diff::to_json`].
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().map(|shown| shown.words.as_str())
    }

    /// The regions of packets that are of another class, in words; in the order of those in [`Diff::to_json`].
    pub fn regions_of_classes(&self) -> Vec<String> {
        self.classes.as_ref().map_or_else(Vec::new, |classes| classes.regions(self.most))
    }

    /// Returns the report in words. `setting` is how a reader sets the number of regions shown, up to the number.
    pub fn text(&self, setting: &str) -> Text {
        let mut text = Text::default();
        let found = self.comparison.differences.len();
        let between = self.comparison.interfaces.join(", ");
        let scope = match (between.as_str(), self.comparison.interfaces.len()) {
            ("", _) => "without any interface".to_owned(),
            (one, 1) => format!("by {one}"),
            (all, _) => format!("between {all}"),
        };
        match self.answer() {
            Answer::Same => {
                text.add(Tone::Good, "no packet changes its fate");
                text.plain(format_args!(": of all that there can be {scope}\n"));
            }
            Answer::Unsettled => text.line(Tone::Care, "no packet is found that changes its fate"),
            Answer::Incomparable => {
                text.add(Tone::Bad, "nothing is compared");
                text.plain(": the policies have no interface in common\n");
            }
            Answer::Different => {
                let (one, more) = ("region of packets changes its", "regions of packets change their");
                text.add(Tone::Bad, format_args!("{} fate", count(found as u64, one, more)));
                text.plain(format_args!(", of all that there can be {scope}\n"));
            }
        }
        for (place, (difference, shown)) in self.comparison.differences.iter().zip(&self.shown).enumerate() {
            text.plain("\n");
            text.line(Tone::Heading, format_args!("{}. {}", place + 1, shown.words));
            text.plain(format_args!("   was      {}\n", told(&difference.old, &self.old)));
            text.plain(format_args!("   becomes  {}\n", told(&difference.new, &self.new)));
            if let Some(Example { words, tried }) = &shown.example {
                text.plain(format_args!("   example  '{words}'"));
                text.line(Tone::Detail, if *tried { "" } else { "  (not by these routes and translations)" });
            }
        }
        let rest = Rest { most: self.most, setting };
        rest.tell(&mut text, found);
        let others = self.not_compared();
        if !others.is_empty() {
            text.plain("\n");
            text.add(Tone::Care, "Not compared");
            text.plain(format_args!(", and different: {}\n", others.join(", ")));
        }
        if let Some(classes) = &self.classes {
            classes.tell(&mut text, &rest);
        }
        text
    }

    /// Returns the report as an object: the answer, and regions with what decides in either policy.
    pub fn to_json(&self) -> Value {
        let region = |(difference, shown): (&Difference, &Shown)| {
            json!({
                "packets": self.numbered.to_json(&difference.region),
                "old": judgement_json(&difference.old, &self.old),
                "new": judgement_json(&difference.new, &self.new),
                "example": shown.example.as_ref().map(|example| &example.words),
                "tried": shown.example.as_ref().is_some_and(|example| example.tried),
            })
        };
        let regions: Vec<Value> = self.comparison.differences.iter().zip(&self.shown).map(region).collect();
        json!({
            "outcome": self.answer().name(),
            "complete": self.comparison.outcome == Outcome::Complete,
            "interfaces": self.comparison.interfaces,
            "found": self.comparison.differences.len(),
            "shown": regions.len(),
            "regions": regions,
            "not_compared": self.not_compared(),
            "classes": self.classes.as_ref().map(|classes| classes.json(self.most)),
        })
    }

    /// Returns the differences besides rules, their sets, and defaults.
    fn not_compared(&self) -> Vec<String> {
        let (old, new) = (self.old.policy, self.new.policy);
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

/// Regions that are not shown.
struct Rest<'a> {
    most: usize,
    setting: &'a str,
}

impl Rest<'_> {
    /// Adds how many there are, and how to see them.
    fn tell(&self, text: &mut Text, found: usize) {
        if let Some(more @ 1..) = found.checked_sub(self.most) {
            let (more, setting) = (number(more as u64), self.setting);
            text.plain(format_args!("\nand {more} more; {setting}{found} shows all\n"));
        }
    }
}

/// A packet of the region; of several, one that does in both policies what is said.
fn example(
    difference: &Difference,
    numbered: &Numbered,
    places: &Places,
    mut trials: Option<&mut Trials>,
) -> Option<Example> {
    let mut first = None;
    for header in difference.region.examples(places) {
        let Some(words) = numbered.packet(&header) else { continue };
        if let Some(trials) = &mut trials {
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

fn told(judgement: &Judgement, side: &Named<'_>) -> String {
    let fate = judgement.fate;
    match decider(judgement, side) {
        Some((name, Some(line))) => format!("{fate}: \"{name}\", {}:{line}", side.file),
        Some((name, None)) => format!("{fate}: \"{name}\", {}", side.file),
        None => format!("{fate}: by default"),
    }
}

fn judgement_json(judgement: &Judgement, side: &Named<'_>) -> Value {
    let fate = judgement.fate;
    let (name, line) = decider(judgement, side).map_or((None, None), |(name, line)| (Some(name), line));
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
fn decider<'a>(judgement: &Judgement, side: &Named<'a>) -> Option<(&'a str, Option<u32>)> {
    let Decider::Rule(place) = judgement.by else { return None };
    let rule = side.policy.rules.get(place as usize)?;
    Some((&rule.name, side.lines.rule(&rule.name)))
}
