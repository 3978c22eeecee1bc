//! `wirerate reproduce`: does the model show what was measured and published of these chips?

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chip::reproduce::{
    Claim, Model, Outcome, Plan, SPREAD, Study, Summary, TOLERANCE, Value, Verdict, Weight, claims, figure,
    reproduce,
};
use clap::Args;

use crate::failure::{ChipError, Exit, Failure, Fault, OutputError, UsageError};
use crate::progress::Jobs;
use crate::screen::{self, BAD, CARE, DIM, GOOD, HEADING, Table};
use crate::with_exit_codes;

mod page;
mod plot;

/// Hold published measurements of network processors against what the model predicts
///
/// Every number that a study states stands beside its prediction, the misses too. Numbers within 15 % count as
/// predicted. What is an input of the model, or settled a parameter, is not blind and counts apart.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(HELP))]
pub(crate) struct Arguments {
    /// Claims (B1, F5, C7) or studies (base-checks, rena-chip, ixp1200-diffserv, pro3, ixp2400-firewall,
    /// ixp2800-ciphers, smartnics); otherwise all
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// Leave out the ranges over assumed parameters, which take most of the time
    #[arg(long)]
    quick: bool,

    /// Print one JSON array
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print tables in Markdown, as docs/fidelity.md has them
    #[arg(long)]
    markdown: bool,

    /// Write a page with the table and the studies' figures, drawn anew
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  wirerate reproduce
  wirerate reproduce F5 C7 --quick
  wirerate reproduce ixp2800-ciphers --json
  wirerate reproduce --html reproduced.html

--json prints an array of objects:
  id statement            what is claimed
  published predicted     numbers in `unit`, or words
  error                   predicted by published, less 1; null where that is no number
  range                   lowest and highest prediction over the parameters that no document gives: each of them
                          a quarter lower and higher, alone and at random together; null with --quick, and for words
  blind                   whether it is neither an input of the model nor settled one
  verdict                 within miss qualitative-right qualitative-wrong contradictory
  note                    where the study contradicts itself, or what else to know";

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let chosen = choose(&self.ids)?;
        // Before minutes of work: what cannot be written is not worth them.
        let page_file = self.html.as_deref().map(PageFile::open).transpose()?;
        let jobs = Jobs::new("reproduce", chosen.len());
        let model = Model::default();
        let mut outcomes =
            reproduce(&model, &chosen, &|claim| jobs.done(claim.id)).map_err(ChipError::Reproduce)?;
        jobs.finish();
        let weights = if self.quick { Vec::new() } else { ranges(&model, &chosen, &mut outcomes)? };
        if let Some(file) = page_file {
            let jobs = Jobs::new("figures", figure::runs());
            let figures = figure::figures(&model, &|| jobs.done("")).map_err(ChipError::Reproduce)?;
            jobs.finish();
            let page = page::of(&chosen, &outcomes, &weights, &figures).map_err(Fault::Draw)?;
            file.write(&page)?;
        }
        let mut out = screen::out();
        if self.json {
            let json = serde_json::to_string_pretty(&outcomes).map_err(io::Error::other)?;
            writeln!(out, "{json}")?;
        } else if self.markdown {
            write!(out, "{}", markdown(&chosen, &outcomes, &weights))?;
        } else {
            print(&mut out, &chosen, &outcomes, &weights)?;
            if let Some(path) = &self.html {
                writeln!(out, "Written to {}.", path.display())?;
            }
        }
        Ok(Exit::Done)
    }
}

/// The page's file, which keeps what it had until there is a new page.
struct PageFile {
    path: PathBuf,
    file: File,
}

impl PageFile {
    /// Opens the file for writing.
    fn open(path: &Path) -> Result<PageFile, OutputError> {
        let path = path.to_owned();
        match File::options().write(true).create(true).truncate(false).open(&path) {
            Ok(file) => Ok(PageFile { path, file }),
            Err(error) => Err(OutputError::Write { path, error }),
        }
    }

    /// Writes the page in the place of what the file had.
    fn write(mut self, page: &str) -> Result<(), OutputError> {
        // A pipe has no length.
        let is_regular = self.file.metadata().is_ok_and(|of| of.is_file());
        let emptied = if is_regular { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(page.as_bytes()));
        written.map_err(|error| OutputError::Write { path: self.path, error })
    }
}

/// Gives predicted numbers their ranges, and returns the assumptions by what they move.
fn ranges(model: &Model, claims: &[Claim], outcomes: &mut [Outcome]) -> Result<Vec<Weight>, Failure> {
    let plan = Plan::new(model, claims, outcomes);
    let jobs = Jobs::new("ranges", plan.runs());
    let weights = plan.run(outcomes, &|| jobs.done("")).map_err(ChipError::Reproduce)?;
    jobs.finish();
    Ok(weights)
}

/// The claims of these names, or of studies of these names; all where there are none.
fn choose(ids: &[String]) -> Result<Vec<Claim>, Failure> {
    let all = claims();
    let named = |claim: &Claim, id: &str| {
        claim.id.eq_ignore_ascii_case(id) || claim.study.name().eq_ignore_ascii_case(id)
    };
    if let Some(id) = ids.iter().find(|id| !all.iter().any(|claim| named(claim, id))) {
        let known = Study::ALL.iter().map(|study| study.name()).chain(all.iter().map(|claim| claim.id));
        return Err(UsageError::NotKnown { what: "claim", name: id.clone(), known: known.collect() }.into());
    }
    let wanted = |claim: &Claim| ids.is_empty() || ids.iter().any(|id| named(claim, id));
    Ok(all.into_iter().filter(wanted).collect())
}

/// The outcomes of a study's claims.
fn of_study<'a>(study: Study, claims: &[Claim], outcomes: &'a [Outcome]) -> Vec<&'a Outcome> {
    let is_its = |outcome: &&Outcome| {
        claims.iter().any(|claim| claim.study == study && outcome.id.eq_ignore_ascii_case(claim.id))
    };
    outcomes.iter().filter(is_its).collect()
}

/// The claims of a study in which there is nothing to test.
fn untested(study: Study, claims: &[Claim]) -> impl Iterator<Item = &Claim> {
    claims.iter().filter(move |claim| claim.study == study && !claim.untested.is_empty())
}

/// A prediction's error, as people read it.
fn error(outcome: &Outcome) -> String {
    match outcome.error {
        // Hundreds of per cent say less than how many times.
        Some(error) if error >= 9.0 => format!("x {:.0}", error + 1.0),
        Some(error) => format!("{:+.1} %", error * 100.0),
        None => String::new(),
    }
}

/// A prediction's range, where its ends are read as two.
fn range(outcome: &Outcome) -> String {
    let ends = outcome.range.map(|ends| ends.map(|end| Value::Number(end).to_string()));
    match ends {
        Some([low, high]) if low != high => format!("{low} to {high}"),
        _ => String::new(),
    }
}

/// Assumptions that are listed, at most.
const LISTED: usize = 20;

/// Columns of an assumption: chip and parameter, its value, the prediction that it moves most, and the changes.
fn cells(weight: &Weight) -> [String; 4] {
    let change = |change: f64| format!("{:+.1} %", change * 100.0);
    let [low, high] = weight.changes;
    [
        format!("{} {}", weight.assumption.chip, weight.assumption.path),
        weight.assumption.shown(),
        format!("{}, {}", weight.id, weight.statement),
        format!("{}, {}", change(low), change(high)),
    ]
}

/// Heading of the assumptions.
fn about_weights() -> String {
    format!(
        "Assumptions that move a blind prediction most, each {:.0} % lower and higher, or by one",
        SPREAD * 100.0
    )
}

fn verdict(outcome: &Outcome) -> String {
    let blind = if outcome.blind { "" } else { ", not blind" };
    format!("{}{blind}", outcome.verdict.name())
}

/// Returns the overall result, in sentences.
fn sentences(outcomes: &[Outcome]) -> [String; 4] {
    let Summary { base, numbers, qualities, not_blind, contradictory } = Summary::of(outcomes);
    [
        format!("Base checks that hold, within 20 % or 10 points: {} of {}.", base.good, base.of),
        format!(
            "Numbers predicted blind, within {:.0} %: {} of {}.",
            TOLERANCE * 100.0,
            numbers.good,
            numbers.of
        ),
        format!("Orders and kinds predicted blind, right: {} of {}.", qualities.good, qualities.of),
        format!(
            "Apart: {} not blind, of which {} agree; {contradictory} where the study contradicts itself or can be read \
             in two ways.",
            not_blind.of, not_blind.good
        ),
    ]
}

fn print(out: &mut impl Write, claims: &[Claim], outcomes: &[Outcome], weights: &[Weight]) -> io::Result<()> {
    for study in Study::ALL {
        let its = of_study(study, claims, outcomes);
        if !claims.iter().any(|claim| claim.study == study) {
            continue;
        }
        writeln!(out, "{HEADING}{}{HEADING:#} {DIM}{}{DIM:#}", study.name(), study.title())?;
        let mut table = Table::new(&[2, 3, 4, 6]);
        table.row(["", "", "published", "predicted", "range", "", "error", "verdict"].map(str::to_owned));
        for outcome in &its {
            let style = match outcome.verdict {
                _ if !outcome.blind => DIM,
                Verdict::Within | Verdict::QualitativeRight => GOOD,
                Verdict::Miss | Verdict::QualitativeWrong => BAD,
                Verdict::Contradictory => CARE,
            };
            table.row([
                outcome.id.to_owned(),
                outcome.statement.clone(),
                outcome.published.to_string(),
                outcome.predicted.to_string(),
                range(outcome),
                outcome.unit.to_owned(),
                error(outcome),
                // The last column: colours do not count as width there.
                format!("{style}{}{style:#}", verdict(outcome)),
            ]);
        }
        if !its.is_empty() {
            write!(out, "{table}")?;
        }
        for (ids, note) in notes(&its) {
            writeln!(out, "  {DIM}{ids}: {note}{DIM:#}")?;
        }
        for claim in untested(study, claims) {
            writeln!(out, "  {DIM}{}: {}{DIM:#}", claim.id, claim.untested)?;
        }
    }
    if !weights.is_empty() {
        writeln!(out, "{HEADING}{}{HEADING:#}", about_weights())?;
        let mut table = Table::new(&[1]);
        weights.iter().take(LISTED).for_each(|weight| table.row(cells(weight)));
        write!(out, "{table}")?;
    }
    if outcomes.is_empty() {
        return Ok(());
    }
    for sentence in sentences(outcomes) {
        writeln!(out, "{sentence}")?;
    }
    Ok(())
}

/// Each note once, with the claims that it is about.
fn notes<'a>(outcomes: &[&'a Outcome]) -> Vec<(String, &'a str)> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.note.is_empty()) {
        match notes.iter_mut().find(|(_, note)| *note == outcome.note) {
            Some((ids, _)) if ids.contains(&outcome.id) => {}
            Some((ids, _)) => ids.push(outcome.id),
            None => notes.push((vec![outcome.id], &outcome.note)),
        }
    }
    notes.into_iter().map(|(ids, note)| (ids.join(", "), note)).collect()
}

fn markdown(claims: &[Claim], outcomes: &[Outcome], weights: &[Weight]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text = String::new();
    for study in Study::ALL {
        let its = of_study(study, claims, outcomes);
        if its.is_empty() {
            continue;
        }
        text.push_str(&format!(
            "{}\n\n| claim | statement | published | predicted | range | unit | error | verdict |\n|---|---|--:|--:|--:|---|--:|---|\n",
            study.title()
        ));
        for outcome in &its {
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                outcome.id,
                cell(&outcome.statement),
                cell(&outcome.published.to_string()),
                cell(&outcome.predicted.to_string()),
                range(outcome),
                outcome.unit,
                error(outcome),
                verdict(outcome)
            ));
        }
        text.push('\n');
    }
    if !weights.is_empty() {
        text.push_str(&format!(
            "{}:\n\n| assumption | value | moves | by |\n|---|--:|---|--:|\n",
            about_weights()
        ));
        for weight in weights.iter().take(LISTED) {
            text.push_str(&format!("| {} |\n", cells(weight).map(|text| cell(&text)).join(" | ")));
        }
        text.push('\n');
    }
    text.push_str(&sentences(outcomes).join("\n"));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::choose;

    fn chosen(ids: &[&str]) -> Option<Vec<&'static str>> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        choose(&ids).ok().map(|claims| claims.iter().map(|claim| claim.id).collect())
    }

    #[test]
    fn claims_are_chosen_by_name_and_by_study_in_their_own_order() {
        assert_eq!(chosen(&["c7", "F5", "F5"]).unwrap(), ["F5", "C7"]);
        let firewall = chosen(&["ixp2400-firewall"]).unwrap();
        assert_eq!((firewall.len(), firewall[0]), (14, "F1"));
        let others = ["base-checks", "rena-chip", "ixp1200-diffserv", "pro3", "ixp2800-ciphers", "smartnics"]
            .map(|study| chosen(&[study]).unwrap().len());
        assert_eq!(chosen(&[]).unwrap().len(), firewall.len() + others.iter().sum::<usize>());
        assert_eq!(chosen(&[]).unwrap()[0], "B1", "what others stand on comes first");
        assert!(chosen(&["F5", "F55"]).is_none());
    }
}
