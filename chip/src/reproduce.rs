//! Published results of five studies, beside the model's predictions, and checks of the ground that they stand on.
//!
//! Every number that a study states has an identifier and stands here beside its prediction, the misses too. Predictions
//! are measured on the described chips on request; only the published values are stored. Some numbers were used to settle
//! what has no source ([`Outcome::blind`] says which); all others are predicted blind. `docs/fidelity.md` explains the
//! misses.

use std::fmt;

use rayon::prelude::{IntoParallelRefIterator, ParallelIterator};
use serde::Serialize;

use crate::cipher::CipherError;
use crate::estimate::EstimateError;
use crate::run::RunError;

pub mod figure;

mod adapter;
mod assumption;
mod base;
mod computer;
mod crypto;
mod diffserv;
mod firewall;
mod inline;
mod known;
mod model;
mod protocol;
mod range;
mod shaper;
mod shipped;
mod smartnic;
#[cfg(test)]
mod tests;
mod workload;

pub use assumption::{Assumption, SPREAD};
pub use model::{Model, RunLength, Setting};
pub use range::{Plan, Weight};

/// A published statement, and how it is put to the test.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Its identifier: "F5".
    pub id: &'static str,
    /// The study that it is from.
    pub study: Study,
    /// Reason that it cannot be tested; empty where it can.
    pub untested: &'static str,
    /// Shipped chips that the prediction rests on.
    pub chips: &'static [&'static str],
    /// Test of the claim: returns a row for each number or order in it.
    test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>,
}

/// A study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Study {
    /// No study, but checks of the ground that they stand on.
    Base,
    /// Nishida, Architecture of RENA-CHIP, NTT Technical Review 4(9), 2006.
    Adapter,
    /// Lin et al., DiffServ over Network Processors: Implementation and Evaluation.
    DiffServ,
    /// Papaefstathiou, Kornaros and Zervos, Software processing performance in network processors.
    Protocol,
    /// Vlaeminck et al., Implementation of network systems using network processor technology, CDES'05.
    Firewall,
    /// Yin, Tan et al., Adding Security to Network via Network Processors.
    Crypto,
    /// Network processors on network cards.
    SmartNic,
}

impl Study {
    /// Every study.
    pub const ALL: [Study; 7] = [
        Study::Base,
        Study::Adapter,
        Study::DiffServ,
        Study::Protocol,
        Study::Firewall,
        Study::Crypto,
        Study::SmartNic,
    ];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Study::Base => "base-checks",
            Study::Adapter => "rena-chip",
            Study::DiffServ => "ixp1200-diffserv",
            Study::Protocol => "pro3",
            Study::Firewall => "ixp2400-firewall",
            Study::Crypto => "ixp2800-ciphers",
            Study::SmartNic => "smartnics",
        }
    }

    /// Policy, chip and mapping that its numbers are held against, and other means of a study.
    pub const fn built(self) -> &'static str {
        match self {
            Study::Base => {
                "Stateless forwarding on the chip ixp1200 by the mapping ixp1200-pool; cells and frames on ixp1240, with CRC hardware and without, by ixp1240-atm; ten ciphers on \
                 ixp2800."
            }
            Study::Adapter => {
                "policies/rena-adapter.toml on the chip rena, a network adapter in fixed functions with ESP inline; pc1 to pc4, mips32, ixp2325 and cn3120 with \
                 caches, DMA and buses; Linux's HTB asked at ticks of a timer; the study's equations by `wirerate estimate`."
            }
            Study::DiffServ => {
                "A router as policies/ixp1200-diffserv.toml on the chip ixp1200 by the mapping ixp1200-diffserv: receivers bound to ports, a scheduler and three \
                 transmitters in each of two groups; rules by intervals and bit vectors."
            }
            Study::Protocol => {
                "A firewall with state and translation, as policies/pro3-firewall.toml, on the chip pro3 by the mapping pro3-pool: units that extract, search, modify and queue, two cores that keep \
                 state and translate; cells of AAL5 by a line of ATM."
            }
            Study::Firewall => {
                "A firewall whose rules every packet meets, one after the other, on the chip ixp2400 by the mappings ixp2400-firewall, -1, -local and -coded: \
                 rules in SRAM for three engines and for one, in local memory, and as code."
            }
            Study::Crypto => {
                "Ten ciphers and hash functions, written once and counted by their own words, on the chip ixp2800 at four steps of optimisation."
            }
            Study::SmartNic => {
                "Stateless forwarding on the chips nfp-4000, pspin and bluefield3-dpa by their mappings -pool."
            }
        }
    }

    /// Authors and title.
    pub const fn title(self) -> &'static str {
        match self {
            Study::Base => "Base checks: published measurements of plain code, which what follows stands on",
            Study::Adapter => {
                "Nishida, Architecture of RENA-CHIP (PCs and catalogue processors, by equations and a shaper)"
            }
            Study::DiffServ => {
                "Lin et al., DiffServ over Network Processors: Implementation and Evaluation (IXP1200)"
            }
            Study::Protocol => {
                "Papaefstathiou, Kornaros and Zervos, Software processing performance in network processors (PRO3)"
            }
            Study::Firewall => {
                "Vlaeminck et al., Implementation of network systems using network processor technology (IXP2400)"
            }
            Study::Crypto => "Yin, Tan et al., Adding Security to Network via Network Processors (IXP2800)",
            Study::SmartNic => {
                "Network processors on network cards, by what their makers and users say (NFP-4000, PsPIN, BlueField-3)"
            }
        }
    }
}

/// Outcome of testing one statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The claim that it belongs to.
    pub id: &'static str,
    /// The statement.
    pub statement: String,
    /// Published value.
    pub published: Value,
    /// Predicted value.
    pub predicted: Value,
    /// Unit of both values; empty for values without one.
    pub unit: &'static str,
    /// Relative error: predicted by published, less 1; absent where that is no number.
    pub error: Option<f64>,
    /// True if it was predicted without settling anything by it, and is no input of the model either.
    pub blind: bool,
    /// Lowest and highest value that the prediction could have, by the parameters that are assumed: of a number, once ranges are known.
    pub range: Option<[f64; 2]>,
    /// Verdict on the prediction.
    pub verdict: Verdict,
    /// Note for the reader, such as a contradiction within the study.
    pub note: String,
}

/// Published or predicted value: a number, or a kind or an order in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Words.
    Words(String),
}

impl fmt::Display for Value {
    /// Numbers as they are read: whole where they are large, else with three significant digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Words(words) => f.write_str(words),
            Value::Number(number) if number.abs() >= 100.0 || number.fract() == 0.0 => {
                write!(f, "{number:.0}")
            }
            Value::Number(number) if number.abs() >= 10.0 => write!(f, "{number:.1}"),
            Value::Number(number) => write!(f, "{number:.2}"),
        }
    }
}

/// Verdict on a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A number within [`TOLERANCE`] of the published one.
    Within,
    /// A number further off.
    Miss,
    /// An order or a kind that is as published.
    QualitativeRight,
    /// An order or a kind that is not as published.
    QualitativeWrong,
    /// The study contradicts itself, or can be read in two ways of which one would be right.
    Contradictory,
}

impl Verdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Within => "within",
            Verdict::Miss => "miss",
            Verdict::QualitativeRight => "qualitative-right",
            Verdict::QualitativeWrong => "qualitative-wrong",
            Verdict::Contradictory => "contradictory",
        }
    }
}

/// Parameters that published numbers have settled, each with the number that did.
pub const SETTLED: [(&str, &str); 4] = [
    (
        "engine.me.wait of ixp2400, ixp2800 and ixp2325, 9 cycles",
        "F4: the middle of the range in which it came out as 5",
    ),
    (
        "cpi of pro3's core, 0.242",
        "P5, TCP that is let pass: how many of our instructions one of its own stands for",
    ),
    ("intervals of rena's units, 44 cycles", "R1, about 3 million packets a second"),
    ("a rule's 32 bytes in memory", "F2, 80 rules in local memory"),
];

/// Tolerance of a prediction, as a share of the published number.
pub const TOLERANCE: f64 = 0.15;

/// Failure to test a claim.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A cipher could not be measured.
    #[error(transparent)]
    Cipher(#[from] CipherError),
    /// A shipped file is wrong.
    #[error("{0}")]
    Shipped(String),
    /// An estimate could not be made.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// A scheduler could not be set up.
    #[error("{0}")]
    Scheduler(String),
}

/// All claims, study by study.
pub fn claims() -> Vec<Claim> {
    base::CLAIMS
        .iter()
        .chain(adapter::CLAIMS)
        .chain(diffserv::CLAIMS)
        .chain(protocol::CLAIMS)
        .chain(firewall::CLAIMS)
        .chain(crypto::CLAIMS)
        .chain(smartnic::CLAIMS)
        .copied()
        .collect()
}

/// Puts claims to the test, on all cores; their outcomes come in the order of the claims. `done` is told of each.
pub fn reproduce(
    model: &Model,
    claims: &[Claim],
    done: &(dyn Fn(&Claim) + Sync),
) -> Result<Vec<Outcome>, ReproduceError> {
    let test = |claim: &Claim| {
        let outcomes = (claim.test)(model);
        done(claim);
        outcomes
    };
    let outcomes: Result<Vec<Vec<Outcome>>, ReproduceError> = claims.par_iter().map(test).collect();
    Ok(outcomes?.into_iter().flatten().collect())
}

impl Outcome {
    /// Compares two numbers. Where the published number is zero, the predicted one must be zero.
    fn number(
        id: &'static str,
        statement: &str,
        published: f64,
        predicted: f64,
        unit: &'static str,
    ) -> Outcome {
        let error = match published {
            0.0 => (predicted == 0.0).then_some(0.0),
            _ => Some(predicted / published - 1.0).filter(|error| error.is_finite()),
        };
        // What rounding adds to a quotient decides nothing.
        let within = error.is_some_and(|error| error.abs() <= TOLERANCE + 1e-9);
        Outcome {
            id,
            statement: statement.to_owned(),
            published: Value::Number(published),
            predicted: Value::Number(predicted),
            unit,
            error,
            blind: true,
            range: None,
            verdict: if within { Verdict::Within } else { Verdict::Miss },
            note: String::new(),
        }
    }

    /// Compares by another tolerance than [`TOLERANCE`].
    fn within(self, tolerance: f64) -> Outcome {
        let holds = self.error.is_some_and(|error| error.abs() <= tolerance + 1e-9);
        Outcome { verdict: if holds { Verdict::Within } else { Verdict::Miss }, ..self }
    }

    /// Compares two shares of a hundred by their difference in points.
    fn within_points(self, points: f64) -> Outcome {
        let holds = match (&self.published, &self.predicted) {
            (Value::Number(published), Value::Number(predicted)) => (published - predicted).abs() <= points,
            _ => false,
        };
        Outcome { verdict: if holds { Verdict::Within } else { Verdict::Miss }, ..self }
    }

    /// Widens the range of a predicted number to a relative change.
    fn widen(&mut self, change: f64) {
        if let Value::Number(value) = self.predicted {
            let other = value * (1.0 + change);
            let [low, high] = self.range.unwrap_or([value, value]);
            self.range = Some([low.min(other), high.max(other)]);
        }
    }

    /// True for a base check: of an identifier that begins with B.
    pub fn is_base(&self) -> bool {
        self.id.starts_with('B')
    }

    /// An order or a kind: `holds` says whether the model shows it.
    fn quality(
        id: &'static str,
        statement: &str,
        published: &str,
        predicted: String,
        holds: bool,
    ) -> Outcome {
        Outcome {
            id,
            statement: statement.to_owned(),
            published: Value::Words(published.to_owned()),
            predicted: Value::Words(predicted),
            unit: "",
            error: None,
            blind: true,
            range: None,
            verdict: if holds { Verdict::QualitativeRight } else { Verdict::QualitativeWrong },
            note: String::new(),
        }
    }

    fn note(self, note: &str) -> Outcome {
        Outcome { note: note.to_owned(), ..self }
    }

    /// Marks the outcome as an input of the model, or as used to settle one.
    fn not_blind(self) -> Outcome {
        Outcome { blind: false, ..self }
    }

    fn contradictory(self) -> Outcome {
        Outcome { verdict: Verdict::Contradictory, ..self }
    }
}

/// Number of outcomes that hold, out of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Number that hold.
    pub good: usize,
    /// Total number.
    pub of: usize,
}

/// Outcomes, summed up. Base checks, those not blind and those of contradictory statements are in no other score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Base checks, and those of them that hold.
    pub base: Score,
    /// Numbers predicted blind, and those of them within [`TOLERANCE`].
    pub numbers: Score,
    /// Orders and kinds predicted blind, and those of them that are as published.
    pub qualities: Score,
    /// Outcomes that are not blind, and those of them that agree.
    pub not_blind: Score,
    /// Number of statements in which the study contradicts itself.
    pub contradictory: usize,
}

impl Summary {
    /// Sums up.
    pub fn of(outcomes: &[Outcome]) -> Summary {
        let mut summary = Summary::default();
        for outcome in outcomes {
            let (score, good) = match outcome.verdict {
                verdict if outcome.is_base() => (&mut summary.base, usize::from(verdict == Verdict::Within)),
                Verdict::Contradictory => {
                    summary.contradictory += 1;
                    continue;
                }
                Verdict::Within | Verdict::QualitativeRight if !outcome.blind => (&mut summary.not_blind, 1),
                _ if !outcome.blind => (&mut summary.not_blind, 0),
                Verdict::Within => (&mut summary.numbers, 1),
                Verdict::Miss => (&mut summary.numbers, 0),
                Verdict::QualitativeRight => (&mut summary.qualities, 1),
                Verdict::QualitativeWrong => (&mut summary.qualities, 0),
            };
            score.of += 1;
            score.good += good;
        }
        summary
    }
}
