//! Findings of the analysis of rules, as diagnostics.

use analysis::{Decider, Effort, Finding, Findings, Look, Places, Region, findings};
use dataplane::Tables;
use dataplane::tables::CompileError;
use policy::model::Rule;
use policy::{Code, Diagnostic, Item, Lines, Policy};
use replay::number::count;

use crate::region::Numbered;
use crate::trial::{self, Trial};

/// Other rules that are named in a message; of more, how many.
const MOST_NAMED: usize = 3;

/// Result of the analysis.
pub(super) struct Found {
    /// One for each finding.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Number of rules that were not settled.
    pub(super) open: usize,
    /// True if there are more overlaps than were looked for.
    pub(super) more_overlaps: bool,
}

/// Looks at the rules of a sound policy, which compiles to `tables`. What `known` says already is not said again.
pub(super) fn of(
    policy: &Policy,
    tables: Tables,
    lines: &Lines,
    known: &[Diagnostic],
    look: Look,
    effort: Effort<'_>,
) -> Result<Found, CompileError> {
    let Findings { list, open, more_overlaps, macs, sets } = findings(policy, look, effort)?;
    let names: Vec<String> = policy.interfaces.iter().map(|interface| interface.name.clone()).collect();
    let mut teller = Teller {
        places: trial::places(policy, &names, macs.as_ref()),
        numbered: Numbered::new(names, macs, sets, &[policy]),
        trial: if list.is_empty() { None } else { Trial::new(tables) },
        policy,
        lines,
    };
    let said = |rule: u32| {
        let line = |place: usize| lines.place(Item::Rule(place)).map(|place| place.line());
        let (begin, end) = (line(rule as usize), line(rule as usize + 1).unwrap_or(u32::MAX));
        known.iter().any(|one| {
            let here = begin <= one.line() && one.line() < Some(end);
            here && matches!(one.code, Code::RuleNeverMatches | Code::RuleWithoutEffect)
        })
    };
    let news = list.iter().filter(|finding| !matches!(finding, Finding::Impossible { rule } if said(*rule)));
    let diagnostics = news.filter_map(|finding| teller.diagnostic(finding)).collect();
    Ok(Found { diagnostics, open: open.len(), more_overlaps })
}

struct Teller<'a> {
    policy: &'a Policy,
    lines: &'a Lines,
    numbered: Numbered,
    places: Places,
    trial: Option<Trial>,
}

impl Teller<'_> {
    /// `None` if the rule is not the policy's.
    fn diagnostic(&mut self, finding: &Finding) -> Option<Diagnostic> {
        let rule = self.rule(finding.rule())?;
        let place = self.lines.place(Item::Rule(finding.rule() as usize));
        Some(match finding {
            Finding::Impossible { .. } => {
                let message = format!(
                    "the rule \"{}\" never matches: no packet can show all that it asks for",
                    rule.name
                );
                let hint = "zones, interfaces and protocols exclude one another: change it, or leave it out";
                Diagnostic::new(Code::RuleNeverMatches, message).hint(hint).at(place)
            }
            Finding::Hidden { by, packets, .. } => {
                let others = self.named(by);
                let verb = if by.len() == 1 { "matches" } else { "together match" };
                let message =
                    format!("the rule \"{}\" never matches: {others} {verb} all that it does", rule.name);
                let same = by.iter().all(|one| self.rule(*one).is_some_and(|one| one.action == rule.action));
                let hint = match (same, by.len()) {
                    (true, 1) => "it does the same: leave this one out",
                    (true, _) => "they do the same: leave this one out",
                    (false, 1) => "move it before the other, or leave it out",
                    (false, _) => "move it before the others, or leave it out",
                };
                let example = self.example(packets, None);
                let found = Diagnostic::new(Code::ShadowedRule, message).hint(with(hint, example)).at(place);
                self.pointing(
                    found,
                    by,
                    if by.len() == 1 { "matches all of it" } else { "matches some of it" },
                )
            }
            Finding::Redundant { rule: number, instead, packets } => {
                let rules: Vec<u32> = instead
                    .iter()
                    .filter_map(|one| match one {
                        Decider::Rule(rule) => Some(*rule),
                        Decider::Default => None,
                    })
                    .collect();
                let by_default = instead.contains(&Decider::Default);
                let who = match (rules.as_slice(), by_default) {
                    ([], _) => "the default does the same".to_owned(),
                    (rules, false) => format!("{} would do the same", self.named(rules)),
                    (rules, true) => format!("{} and the default would do the same", self.named(rules)),
                };
                let message = format!("the rule \"{}\" changes nothing: without it, {who}", rule.name);
                let hint = "leave it out, unless it is there to be counted or read";
                let example = self.example(packets, Some(*number));
                let found = Diagnostic::new(Code::RedundantRule, message).hint(with(hint, example)).at(place);
                self.pointing(found, &rules, "does the same")
            }
            Finding::Overlap { first, packets, .. } => {
                let message = format!(
                    "the rule \"{}\" and {} do different things to some packets; the earlier one decides",
                    rule.name,
                    self.named(&[*first])
                );
                let hint = "if the other is to decide on them, change the order";
                let example = self.example(packets, Some(*first));
                let found =
                    Diagnostic::new(Code::OverlappingRules, message).hint(with(hint, example)).at(place);
                self.pointing(found, &[*first], "decides on what both match")
            }
        })
    }

    fn rule(&self, number: u32) -> Option<&Rule> {
        self.policy.rules.get(number as usize)
    }

    /// The names of rules, with their lines.
    fn named(&self, rules: &[u32]) -> String {
        let name = |number: &u32| {
            let rule = self.rule(*number)?;
            let line = self.lines.place(Item::Rule(*number as usize)).map(|place| place.line());
            Some(match line {
                Some(line) => format!("\"{}\" (line {line})", rule.name),
                None => format!("\"{}\"", rule.name),
            })
        };
        let mut names: Vec<String> = rules.iter().take(MOST_NAMED).filter_map(name).collect();
        if let Some(more @ 1..) = rules.len().checked_sub(MOST_NAMED) {
            names.push(count(more as u64, "other", "others"));
        }
        match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => "others".to_owned(),
        }
    }

    fn pointing(&self, mut found: Diagnostic, rules: &[u32], label: &str) -> Diagnostic {
        for rule in rules.iter().take(MOST_NAMED) {
            found = found.and(label, self.lines.place(Item::Rule(*rule as usize)));
        }
        found
    }

    /// A packet that the rules are asked about, and that the rule decides on where one is named.
    fn example(&mut self, packets: &Region, by: Option<u32>) -> Option<String> {
        let trial = self.trial.as_mut()?;
        for header in packets.examples(&self.places) {
            let Some(words) = self.numbered.packet(&header) else { continue };
            match (trial.decides(&words), by) {
                (Some(_), None) => return Some(words),
                (Some(decider), Some(rule)) if decider == Decider::Rule(rule) => return Some(words),
                _ => {}
            }
        }
        None
    }
}

fn with(hint: &str, example: Option<String>) -> String {
    match example {
        Some(example) => format!("{hint}; such a packet is '{example}'"),
        None => hint.to_owned(),
    }
}
