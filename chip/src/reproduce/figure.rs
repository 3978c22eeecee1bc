//! Data of the studies' figures, measured anew.

use ciphers::{ALL, Cipher, Optimisation};
use rayon::prelude::{IntoParallelRefIterator, ParallelIterator};

use super::adapter::{self, SHAPED};
use super::diffserv::{self, RULES};
use super::protocol::{self, Case, Over};
use super::shaper::Tick;
use super::{Model, ReproduceError, crypto, firewall};
use crate::cipher::CipherReport;

/// Data of all figures.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Rate of a shaper that is driven by a timer, over the rate that it is set to (Nishida, figure 3).
    pub shaped: Vec<Shaped>,
    /// The DiffServ router's aggregate throughput in Mbit/s, over rules (Lin et al., section 5).
    pub aggregate: Vec<(u32, f64)>,
    /// Packets a second of each of the DiffServ router's 500 flows, at half a line and at a whole one (Lin et al., figure 5).
    pub fairness: [Vec<f64>; 2],
    /// PRO3's throughput over lengths and mixes of packets (Papaefstathiou et al., figures 2, 4, 5 and 6).
    pub mixes: Vec<MixCurve>,
    /// The firewall's throughput over rules (Vlaeminck et al., figures 5 and 6), a curve for each implementation.
    pub throughput: Vec<Curve>,
    /// Ciphers by step of optimisation, one thread (Yin, Tan et al., figures 2 to 4).
    pub steps: Vec<Steps>,
    /// Ciphers by engines and threads (Yin, Tan et al., figure 5).
    pub scaling: Vec<Scaling>,
}

/// Rates of a shaper, in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shaped {
    /// Rate that it is set to.
    pub set: u64,
    /// Rate put out, where a tick lets one packet go.
    pub one: f64,
    /// Rate put out, where a tick lets go what a token bucket of HTB holds.
    pub burst: f64,
    /// Published rate.
    pub published: Option<f64>,
}

/// The ends of the DiffServ router's published range, with the fewest rules and with the most, in Mbit/s.
pub const AGGREGATE: [f64; 2] = [290.0, 180.0];

/// Packets a second that the bucket of each of 500 flows admits.
pub const SETTING: f64 = diffserv::SETTING as f64;

/// PRO3's throughput over lengths and mixes of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct MixCurve {
    /// The figure.
    pub of: Mix,
    /// True if TCP is translated, false if it is let pass.
    pub translated: bool,
    /// Bytes or per cent, and Gbit/s.
    pub points: Vec<(u32, f64)>,
}

/// A figure of PRO3's study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Figure 2: mean length of packets, in bytes.
    Length,
    /// Figure 4: per cent of small packets, average case.
    Small,
    /// Figure 5: per cent of large packets, worst case.
    Large,
    /// Figure 6: per cent of UDP.
    Udp,
}

impl Mix {
    /// Every figure, in the order of the study.
    pub const ALL: [Mix; 4] = [Mix::Length, Mix::Small, Mix::Large, Mix::Udp];

    /// Place from which the study reaches 2.5 Gbit/s, or up to which (P8, P10 to P12).
    pub const fn published(self) -> u32 {
        match self {
            Mix::Length => 128,
            Mix::Small => 90,
            Mix::Large => 50,
            Mix::Udp => 20,
        }
    }

    const fn over(self) -> Over {
        match self {
            Mix::Length => Over::Length,
            Mix::Small => Over::Small,
            Mix::Large => Over::Large,
            Mix::Udp => Over::Udp,
        }
    }

    const fn places(self) -> &'static [u32] {
        match self {
            Mix::Length => &[40, 55, 70, 82, 100, 128, 160, 200],
            Mix::Small | Mix::Large => &[0, 25, 50, 75, 90, 100],
            Mix::Udp => &[0, 10, 20, 30, 40, 50],
        }
    }

    /// The cases that the figure has: the worst one is translated.
    const fn cases(self) -> &'static [Case] {
        match self {
            Mix::Large => &[Case::Translated],
            Mix::Length | Mix::Small | Mix::Udp => &[Case::Passed, Case::Translated],
        }
    }
}

/// Throughput over rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The implementation.
    pub of: Implementation,
    /// Number of rules, and the share of a gigabit's packets of 64 bytes that is processed.
    pub points: Vec<(u32, f64)>,
}

/// Implementation of the firewall: place of its rules, and number of engines that search them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Rules in SRAM, one engine.
    OneSram,
    /// Rules in SRAM, three engines.
    Sram,
    /// Rules in local memory, three engines.
    Local,
    /// Rules in the code, three engines.
    Coded,
}

impl Implementation {
    /// Every implementation, in the order of the figure.
    pub const ALL: [Implementation; 4] =
        [Implementation::OneSram, Implementation::Sram, Implementation::Local, Implementation::Coded];

    /// Returns the name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Implementation::OneSram => "SRAM, 1 engine",
            Implementation::Sram => "SRAM, 3 engines",
            Implementation::Local => "local memory, 3 engines",
            Implementation::Coded => "coded, 3 engines",
        }
    }

    /// The most rules at a gigabit that were published.
    pub const fn published(self) -> u32 {
        match self {
            Implementation::OneSram => 5,
            Implementation::Sram => 14,
            Implementation::Local => 23,
            Implementation::Coded => 210,
        }
    }

    /// Returns the share that the study's own estimate gives for `rules` rules (section VI): 403 cycles of each of three
    /// engines, of which 100 for the packet and 50 (SRAM) or 40 (local memory) for a rule; beyond that in inverse
    /// proportion. `None` for implementations that the study does not estimate.
    pub fn estimated(self, rules: u32) -> Option<f64> {
        let cycles = match self {
            Implementation::Sram => 50.0,
            Implementation::Local => 40.0,
            Implementation::OneSram | Implementation::Coded => return None,
        };
        Some((3.0 * (403.0 - 100.0) / cycles / f64::from(rules.max(1))).min(1.0))
    }

    const fn mapping(self) -> &'static str {
        match self {
            Implementation::OneSram => "firewall-1",
            Implementation::Sram => "firewall",
            Implementation::Local => "firewall-local",
            Implementation::Coded => "firewall-coded",
        }
    }

    /// The numbers of rules that a curve has points at. Local memory holds 80.
    const fn rules(self) -> &'static [u32] {
        match self {
            Implementation::Coded => &[1, 30, 100, 150, 180, 200, 220, 240, 270, 320, 400],
            _ => &[1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 23, 27, 32, 40, 50, 64, 80],
        }
    }
}

/// A cipher by step of optimisation.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The cipher.
    pub cipher: &'static Cipher,
    /// Reports, in the order of [`Optimisation::ALL`].
    pub reports: Vec<CipherReport>,
}

/// A cipher by engines and threads.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// The cipher.
    pub cipher: &'static Cipher,
    /// For each of [`COUNTS`] engines, for each of [`COUNTS`] threads, 10^6 bits a second.
    pub mbps: [[f64; 4]; 4],
}

/// Engines, and threads of each.
pub const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// Returns the number of runs to the figures, which is the number of calls of `done`.
pub fn runs() -> usize {
    let points: usize = Implementation::ALL.iter().map(|of| of.rules().len()).sum();
    let mixes: usize = Mix::ALL.iter().map(|of| of.places().len() * of.cases().len()).sum();
    SHAPED.len()
        + RULES.len()
        + 1
        + mixes
        + points
        + ALL.len() * (Optimisation::ALL.len() + COUNTS.len() * COUNTS.len())
}

/// Measures the figures on all cores; runs that claims have already made on the model are not made again.
pub fn figures(model: &Model, done: &(dyn Fn() + Sync)) -> Result<Figures, ReproduceError> {
    // Long runs first, so that no core is left with one at the end.
    let wanted: Vec<(Implementation, u32)> = Implementation::ALL
        .into_iter()
        .flat_map(|of| of.rules().iter().rev().map(move |rules| (of, *rules)))
        .collect();
    let points: Vec<(Implementation, u32, f64)> = wanted
        .par_iter()
        .map(|(of, rules)| {
            let share = firewall::throughput(model, of.mapping(), *rules)?;
            done();
            Ok((*of, *rules, share))
        })
        .collect::<Result<_, ReproduceError>>()?;
    let throughput = Implementation::ALL
        .into_iter()
        .map(|of| Curve {
            of,
            points: points
                .iter()
                .rev()
                .filter(|point| point.0 == of)
                .map(|point| (point.1, point.2))
                .collect(),
        })
        .collect();
    let one = |cipher, optimisation, engines, threads| {
        let report = crypto::measure(model, cipher, optimisation, engines, threads);
        done();
        report
    };
    let steps = ALL
        .par_iter()
        .map(|cipher| {
            let reports = Optimisation::ALL.into_iter().map(|optimisation| one(cipher, optimisation, 1, 1));
            Ok(Steps { cipher, reports: reports.collect::<Result<_, ReproduceError>>()? })
        })
        .collect::<Result<_, ReproduceError>>()?;
    let scaling = ALL
        .par_iter()
        .map(|cipher| {
            let mut mbps = [[0.0; 4]; 4];
            for (row, engines) in mbps.iter_mut().zip(COUNTS) {
                for (cell, threads) in row.iter_mut().zip(COUNTS) {
                    *cell = one(cipher, Optimisation::Overlap, engines, threads)?.mbps;
                }
            }
            Ok(Scaling { cipher, mbps })
        })
        .collect::<Result<_, ReproduceError>>()?;
    let shaped = SHAPED
        .par_iter()
        .map(|(set, published)| {
            let [one, burst] = [Tick::One, Tick::DefaultBurst].map(|tick| adapter::put_out(*set, tick));
            done();
            Ok(Shaped { set: *set, one: one?, burst: burst?, published: *published })
        })
        .collect::<Result<_, ReproduceError>>()?;
    let aggregate = RULES
        .par_iter()
        .map(|rules| {
            let mbps = diffserv::aggregate_mbps(model, *rules);
            done();
            Ok((*rules, mbps?))
        })
        .collect::<Result<_, ReproduceError>>()?;
    let fairness = diffserv::each_flow(model);
    done();
    let wanted: Vec<(Mix, Case)> =
        Mix::ALL.into_iter().flat_map(|of| of.cases().iter().map(move |case| (of, *case))).collect();
    let mixes = wanted
        .par_iter()
        .map(|(of, case)| {
            let point = |at: &u32| {
                let gbps = protocol::throughput(model, of.over(), *case, *at);
                done();
                Ok((*at, gbps?))
            };
            let points = of.places().par_iter().map(point).collect::<Result<_, ReproduceError>>()?;
            Ok(MixCurve { of: *of, translated: *case == Case::Translated, points })
        })
        .collect::<Result<_, ReproduceError>>()?;
    Ok(Figures { shaped, aggregate, fairness: fairness?, mixes, throughput, steps, scaling })
}
