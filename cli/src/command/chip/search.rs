//! `wirerate chip search`: how much can it carry without a loss?

use std::io::{self, Write};
use std::str::FromStr;

use chip::plan::{Prepared, Problems, Variant};
use chip::report::Report;
use chip::search::{Bench, Found, Inquiry, Method, Request, SearchError};
use clap::Args;

use super::plan::{Subject, keys, tell_problems};
use crate::failure::{ChipError, Exit, Failure};
use crate::progress::{Progress, Unit};
use crate::screen::{BAD, DIM, GOOD, HEADING, Table, count, number};
use crate::{screen, with_exit_codes};

/// Find the highest load that a policy carries on a modelled chip without losing frames
///
/// The traffic as described is the maximal load; others are shares of its rate (captures are played more slowly). Trials
/// close in on the highest load at which no more is lost than a goal says, and each of them has all of the traffic, or
/// its first frames: by MLRsearch (RFC 9971), for several loss ratios at once, short trials first; or by the binary
/// search of RFC 2544 (section 26.1) for no loss at all. Then the machine is run a quarter above the first goal's load to
/// see what holds it up: right at the bound so little is lost that nothing could bring much.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// Frames that may be lost, a goal each, as 0,0.5% (the default)
    #[arg(long, value_name = "RATIO,...", value_delimiter = ',', conflicts_with = "rfc2544")]
    loss: Vec<Ratio>,

    /// How close bounds come, as a share of the upper one
    #[arg(long, default_value = "0.5%", value_name = "RATIO")]
    precision: Ratio,

    /// Whole trials at each load, each with a seed of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with = "rfc2544")]
    trials: u32,

    /// The share of them that may lose more
    #[arg(long, default_value = "0%", value_name = "RATIO", conflicts_with = "rfc2544")]
    exceed: Ratio,

    /// Use RFC 2544's binary search, for no loss
    #[arg(long)]
    rfc2544: bool,

    /// Leave the first N frames of each trial out of what is counted
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    format!(
        "\
Examples:
  wirerate chip search --chip ixp2400 policies/firewall.toml \\
    'lan>wan,both,established,frames=5000'
  wirerate chip search --chip ixp2400 --mapping firewall \\
    policies/firewall.toml 'lan>wan,both,size=imix,frames=4000' \\
    --loss 0,0.1%,1%
  wirerate chip search --chip ixp2400 --set pool.process.at=1 \\
    policies/firewall.toml 'lan>wan,arrivals=poisson,frames=5000' \\
    --trials 5 --exceed 40% --json
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate chip search --chip ixp2800 policies/home-office.toml \\
    lan=lan.pcapng --rfc2544 --precision 0.1%

{}
--json prints one object:
  method precision        mlrsearch or rfc2544
  goals                   loss_ratio lower upper throughput_mpps throughput_gbps: bounds are trials, null where there is
                          none; the throughput is what is forwarded at the lower bound
  trials                  load (share of the traffic's rate) frames lost loss_ratio mpps gbps (offered), in order
  bottleneck              a quarter above the first goal's load, as of `chip run`; null where all is carried",
        keys()
    )
}

/// A share: `0.5%`, `0.005`, `0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio(pub(super) f64);

/// Text that is no share.
#[derive(Debug, thiserror::Error)]
#[error("write a share, from 0 to below 100%: 0.5% or 0.005")]
pub(super) struct BadRatio;

impl FromStr for Ratio {
    type Err = BadRatio;

    fn from_str(text: &str) -> Result<Ratio, BadRatio> {
        let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
        let ratio = digits.trim().parse::<f64>().map_err(|_| BadRatio)? / unit;
        if (0.0..1.0).contains(&ratio) { Ok(Ratio(ratio)) } else { Err(BadRatio) }
    }
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Prepared { described, plan, .. } = self.subject.prepare()?;
        let problems = Problems::default();
        let source =
            |request: Request| plan.source(Variant { load: request.load, repeat: request.repeat }, &problems);
        let (chip, mapping) = (&described.chip, &described.mapping);
        let bench = Bench { chip, mapping, source: &source, warm: self.warm };
        let mut progress = Progress::new("search", Unit::Packet, 1);
        let mut made = 0;
        let answer = self.inquiry().run(&bench, || {
            made += 1;
            progress.reach(0, count(made, "trial", "trials"));
        });
        if !matches!(answer, Err(SearchError::NothingOffered)) {
            progress.finish();
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(SearchError::NothingOffered) => {
                tell_problems(&problems);
                return Err(ChipError::NothingOffered.into());
            }
            Err(SearchError::Run(error)) => return Err(ChipError::Run(error).into()),
        };
        let mut out = screen::out();
        if self.json {
            let json = answer.to_json();
            writeln!(out, "{json:#}")?;
        } else {
            writeln!(out, "{HEADING}{}{HEADING:#} {DIM}{}{DIM:#}", chip.name, mapping.about)?;
            print(&mut out, &answer.found, answer.above.as_ref())?;
        }
        Ok(tell_problems(&problems))
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry {
            method: if self.rfc2544 { Method::Rfc2544 } else { Method::Mlrsearch },
            losses: self.loss.iter().map(|loss| loss.0).collect(),
            precision: self.precision.0,
            trials: self.trials,
            exceed: self.exceed.0,
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

fn print(out: &mut impl Write, found: &Found, above: Option<&Report>) -> io::Result<()> {
    let many = count(found.trials.len() as u64, "trial", "trials");
    writeln!(
        out,
        "{HEADING}Highest loads{HEADING:#} {DIM}by {many}; a share is of the traffic as described{DIM:#}"
    )?;
    let mut table = Table::new(&[0, 1, 2, 3, 4]);
    table.row(["loss within", "share", "offered", "forwarded", "", "too much"].map(str::to_owned));
    for goal in &found.goals {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let upper = goal
            .upper
            .map(|upper| format!("{}, where {} is lost", percent(upper.load), percent(upper.loss_ratio())));
        table.row([
            percent(goal.loss_ratio),
            or_none(goal.lower.map(|lower| percent(lower.load))),
            or_none(goal.lower.map(|lower| format!("{:.4} Mpps", lower.mpps))),
            or_none(goal.throughput_mpps.map(|mpps| format!("{mpps:.4} Mpps"))),
            or_none(goal.throughput_gbps.map(|gbps| format!("{gbps:.4} Gbit/s"))),
            upper.unwrap_or_else(|| "nothing: all that is offered is carried".to_owned()),
        ]);
    }
    write!(out, "{table}")?;
    writeln!(out, "{HEADING}Trials{HEADING:#}")?;
    let mut table = Table::new(&[0, 1, 2, 3, 4, 5]);
    table.row(["share", "frames", "offered", "", "lost", ""].map(str::to_owned));
    for trial in &found.trials {
        table.row([
            percent(trial.load),
            number(trial.frames),
            format!("{:.4} Mpps", trial.mpps),
            format!("{:.4} Gbit/s", trial.gbps),
            number(trial.lost),
            percent(trial.loss_ratio()),
        ]);
    }
    write!(out, "{table}")?;
    match above.and_then(|report| report.bottleneck.as_ref()) {
        Some(bottleneck) => {
            writeln!(
                out,
                "{HEADING}Bottleneck{HEADING:#} {DIM}a quarter above{DIM:#} {BAD}{}{BAD:#}",
                bottleneck.text
            )
        }
        None => writeln!(
            out,
            "{HEADING}Bottleneck{HEADING:#} {GOOD}nothing: it carries all that is offered{GOOD:#}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn shares_are_read() {
        assert_eq!("0.5%".parse::<Ratio>().unwrap().0, 0.005);
        assert_eq!("0.25".parse::<Ratio>().unwrap().0, 0.25);
        for bad in ["100%", "-1%", "x", "", "NaN", "inf"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
