//! `wirerate bench esp`.

use std::io::Write;

use clap::{Args, ValueEnum, value_parser};
use serde_json::json;
use wire::esp::{SUITES, Suite, SuiteName};

use crate::bench::esp::{self, Direction, LENGTHS, Outcome};
use crate::failure::Failure;
use crate::{screen, with_exit_codes};

/// Tunnels of ESP with the whole pipeline around them; beside it the cipher alone.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench esp
  wirerate bench esp --bytes 64 --direction encrypt
  wirerate bench esp --algorithm aes128-cbc+hmac-sha1-96 --bytes 1408 --json"))]
pub(super) struct Esp {
    /// Algorithms as policies name them, `algorithm` and `auth` with a plus sign between; may be given several times.
    #[arg(long, value_name = "NAME", default_value = "aes128-gcm", value_parser = suite)]
    algorithm: Vec<&'static Suite>,
    /// Length of the frames in clear, without check sequence; may be given several times.
    #[arg(long, value_name = "N", default_values_t = [64, 512, 1_420], value_parser = value_parser!(u32).range(LENGTHS))]
    bytes: Vec<u32>,
    /// Direction of the frames; may be given several times (all of it if it is not).
    #[arg(long, value_enum)]
    direction: Vec<Direction>,
    /// Print an array of `{algorithm, bytes, direction, mpps, gbps, library, raw_mpps}`; `raw_mpps` is the cipher's alone, and Gbit/s
    /// are those of frames in clear.
    #[arg(long)]
    json: bool,
}

fn suite(text: &str) -> Result<&'static Suite, String> {
    let (algorithm, auth) = match text.split_once('+') {
        Some((algorithm, auth)) => (algorithm, Some(auth)),
        None => (text, None),
    };
    Suite::named(algorithm, auth).ok_or_else(|| {
        let all: Vec<String> = SUITES.iter().map(|suite| plus(suite.name())).collect();
        format!("one of: {}", all.join(", "))
    })
}

fn plus(name: SuiteName) -> String {
    match name.auth() {
        Some(auth) => format!("{}+{auth}", name.algorithm()),
        None => name.algorithm().to_owned(),
    }
}

impl Esp {
    pub(super) fn run(self) -> Result<(), Failure> {
        let directions =
            if self.direction.is_empty() { Direction::value_variants().to_vec() } else { self.direction };
        let mut outcomes = Vec::new();
        for suite in self.algorithm {
            for bytes in &self.bytes {
                for direction in &directions {
                    let (suite_name, name) = (suite.name(), direction.name());
                    screen::doing(&format_args!("{suite_name}, {bytes} bytes, {name}: measuring"));
                    outcomes.push(esp::measure(suite, *bytes as usize, *direction)?);
                }
            }
        }
        let mut out = screen::out();
        if self.json {
            let row = |outcome: &Outcome| {
                json!({
                    "algorithm": plus(outcome.suite.name()), "bytes": outcome.bytes, "direction": outcome.direction.name(),
                    "mpps": outcome.mpps, "gbps": outcome.gbps(), "library": outcome.library,
                    "raw_mpps": outcome.raw_mpps,
                })
            };
            let rows: Vec<_> = outcomes.iter().map(row).collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
            return Ok(());
        }
        writeln!(
            out,
            "{:<28} {:>6} {:<8} {:>8} {:>8} {:>12} {:>6}  library",
            "algorithm", "bytes", "", "Mpps", "Gbit/s", "cipher Mpps", "ratio"
        )?;
        for outcome in &outcomes {
            writeln!(
                out,
                "{:<28} {:>6} {:<8} {:>8.2} {:>8.2} {:>12.2} {:>6.2}  {}",
                plus(outcome.suite.name()),
                outcome.bytes,
                outcome.direction.name(),
                outcome.mpps,
                outcome.gbps(),
                outcome.raw_mpps,
                outcome.mpps / outcome.raw_mpps,
                outcome.library,
            )?;
        }
        Ok(())
    }
}
