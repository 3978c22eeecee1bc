//! `wirerate chip cipher`: how fast does a chip's code encrypt, and what do its engines do meanwhile?

use std::io::{self, Write};

use chip::cipher::{By, CipherReport, CipherRun};
use chip::description::Chip;
use ciphers::{ALL, Cipher, Optimisation, VARIANTS};
use clap::{Args, ValueEnum};

use crate::failure::{ChipError, Exit, Failure, UsageError};
use crate::screen::{self, DIM, HEADING, Table, number};
use crate::{builtin, with_exit_codes};

/// Measure a cipher or hash function on engines of a modelled chip
///
/// As Yin, Tan et al. did on the IXP2800 (Adding Security to Network via Network Processors): each thread works on a
/// flow of its own, message after message, block ciphers chained (CBC). For measuring, not for protecting.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate chip cipher aes
  wirerate chip cipher all --optimisation overlap
  wirerate chip cipher md5 --engines 8 --threads 8 --message 64 --json

--json prints an array of objects, one for each cipher and step:
  chip cipher optimisation engine_count thread_count
  mbps                    10^6 bits of messages a second
  instructions_per_byte references_per_byte code_size mix
  engines memories        how busy each was
  simulated_instructions wall_seconds"))]
pub(super) struct Arguments {
    /// des, aes, idea, rc5, rc6, blowfish, rc4, seal, md5 or sha1; or all; or des-textbook, DES with its bits moved one by one
    name: String,

    /// The chip: one of `wirerate chip list`, or a file (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "ixp2800")]
    chip: String,

    /// How far the code is optimised; otherwise all steps
    #[arg(long, value_enum, value_name = "STEP")]
    optimisation: Option<Step>,

    /// Engines that work
    #[arg(long, value_name = "N", default_value_t = 1)]
    engines: u32,

    /// Threads of each engine
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,

    /// The length of a message
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    message: u32,

    /// Leave it to the chip's crypto unit, where it has one
    #[arg(long, conflicts_with = "optimisation")]
    unit: bool,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// The study's steps, each with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// As written down
    Raw,
    /// Unrolled loops, constants loaded beforehand, no long multiplications
    Generic,
    /// Tables placed near and aligned, text moved in bursts
    Memory,
    /// Computing goes on while references are under way
    Overlap,
}

impl From<Step> for Optimisation {
    fn from(step: Step) -> Optimisation {
        match step {
            Step::Raw => Optimisation::Raw,
            Step::Generic => Optimisation::Generic,
            Step::Memory => Optimisation::Memory,
            Step::Overlap => Optimisation::Overlap,
        }
    }
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let named = || ALL.into_iter().chain(VARIANTS);
        let ciphers: Vec<&'static Cipher> = match &self.name[..] {
            "all" => ALL.to_vec(),
            name => named().filter(|of| of.about.name == name).collect(),
        };
        if ciphers.is_empty() {
            let known = named().map(|cipher| cipher.about.name).chain(["all"]).collect();
            return Err(UsageError::NotKnown { what: "cipher", name: self.name, known }.into());
        }
        let chip = builtin::take_chip(&self.chip)?;
        let steps = match self.optimisation {
            Some(step) => vec![step.into()],
            // There is no code to be optimised.
            None if self.unit => vec![Optimisation::Overlap],
            None => Optimisation::ALL.to_vec(),
        };
        let mut reports = Vec::new();
        for cipher in ciphers {
            for optimisation in &steps {
                reports.push(self.measure(&chip, cipher, *optimisation)?);
            }
        }
        let mut out = screen::out();
        if self.json {
            let json = serde_json::to_string_pretty(&reports).map_err(io::Error::other)?;
            writeln!(out, "{json}")?;
        } else {
            self.print(&mut out, &reports)?;
        }
        Ok(Exit::Done)
    }

    fn measure(
        &self,
        chip: &Chip,
        cipher: &'static Cipher,
        optimisation: Optimisation,
    ) -> Result<CipherReport, Failure> {
        let Arguments { engines, threads, message, .. } = *self;
        let by = if self.unit { By::Unit } else { By::Code };
        let placement = optimisation;
        let run = CipherRun { chip, cipher, optimisation, engines, threads, message, placement, by };
        Ok(run.measure().map_err(ChipError::Cipher)?)
    }

    fn print(&self, out: &mut impl Write, reports: &[CipherReport]) -> io::Result<()> {
        let chip = reports.first().map_or("", |report| &report.chip);
        writeln!(
            out,
            "{HEADING}{chip}{HEADING:#} {DIM}engines {}, threads of each {}, messages of {} bytes{DIM:#}",
            self.engines,
            self.threads,
            number(self.message.into())
        )?;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut table = Table::new(&[2, 3, 4, 5, 6, 7]);
        let names =
            ["", "", "Mbit/s", "executing", "aborted", "stalled", "idle", "code", "instructions", "memories"];
        table.row(names.map(str::to_owned));
        let mut last = "";
        for report in reports {
            let states = |of: fn(&chip::report::EngineReport) -> f64| {
                percent(report.engines.iter().map(of).sum::<f64>() / report.engines.len().max(1) as f64)
            };
            let mix = report.mix.iter().filter(|kind| kind.share >= 0.0005);
            let mix: Vec<String> = mix.map(|kind| format!("{} {}", kind.name, percent(kind.share))).collect();
            let used = report.memories.iter().filter(|memory| !memory.regions.is_empty());
            let memories: Vec<String> =
                used.map(|memory| format!("{} {}", memory.name, percent(memory.utilisation))).collect();
            let name = if report.cipher == last { String::new() } else { report.cipher.clone() };
            last = &report.cipher;
            table.row([
                name,
                report.optimisation.clone(),
                format!("{:.1}", report.mbps),
                states(|engine| engine.executing),
                states(|engine| engine.aborted),
                states(|engine| engine.stalled),
                states(|engine| engine.idle),
                number(report.code_size.into()),
                mix.join(", "),
                memories.join(", "),
            ]);
        }
        write!(out, "{table}")
    }
}
