//! `wirerate test`: plays case files and says what differs.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cases::Unreadable;
use clap::Args;

use crate::failure::{Exit, Failure};
use crate::file;
use crate::progress::{Progress, Unit};
use crate::screen::{self, BAD, GOOD};
use crate::with_exit_codes;

mod chip;

/// Play test cases: a policy, packets in, and what must come of them
///
/// Each case is played on every host that wirerate has; those must agree to the byte, and with what the case
/// expects. The manual of the format is docs/cases.md.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(EXAMPLE))]
pub(crate) struct Arguments {
    /// Case files, and directories in which all files that end in `.case` are played
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    paths: Vec<PathBuf>,

    /// Name the cases that pass, too
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLE: &str = r#"Examples:
  wirerate test tests/cases
  wirerate test --verbose tests/cases/tcp/reset.case

A case, office.case:

  # Who asks from inside gets the answer; nobody else comes in.
  title: the wan side sees answers only
  policy:
      [interface.lan]
      zone = "lan"
      addresses = ["192.168.1.1/24"]
      [interface.wan]
      zone = "wan"
      addresses = ["203.0.113.2/24"]
      [default]
      "lan > wan" = "accept"

  at 0ms   in  lan udp 192.168.1.10:5353 > 203.0.113.7:53 len 30 => forwarded
           out wan udp 192.168.1.10:5353 > 203.0.113.7:53 len 30 ttl 63
  at 10ms  in  wan udp 203.0.113.7:53 > 192.168.1.10:5353 len 80 => forwarded
           out lan udp 203.0.113.7:53 > 192.168.1.10:5353 len 80
  at 20ms  in  wan tcp 203.0.113.7:9 > 192.168.1.10:22 syn       => dropped default-drop
  expect flows.live 1, dropped 1"#;

/// Numbers of cases, by result.
#[derive(Default)]
struct Sum {
    passed: usize,
    failed: usize,
    unreadable: usize,
}

impl Arguments {
    /// Plays the cases.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut sum = Sum::default();
        let mut out = screen::out();
        for path in &self.paths {
            let mut files = Vec::new();
            if let Err(Unreadable { path, error }) = cases::collect(path, &mut files) {
                sum.unreadable(&path, &error);
            } else if files.is_empty() {
                sum.unreadable(path, &"no file in it ends in .case");
            }
            let mut progress = Progress::new("test", Unit::Case, files.len() as u64);
            for (file, done) in files.iter().zip(1..) {
                self.one(file, &mut sum, &mut out, &progress)?;
                progress.step(done);
            }
            progress.finish();
        }
        writeln!(out, "{} passed, {} failed", sum.passed, sum.failed)?;
        Ok(match sum {
            Sum { unreadable: 1.., .. } => Exit::Unreadable,
            Sum { failed: 1.., .. } => Exit::Wrong,
            _ => Exit::Done,
        })
    }

    fn one(&self, path: &Path, sum: &mut Sum, out: &mut impl Write, progress: &Progress) -> io::Result<()> {
        let text = match file::read_text(path) {
            Ok(text) => text,
            Err(error) => {
                progress.aside(|| sum.unreadable(path, &error));
                return Ok(());
            }
        };
        match cases::pass(&text, path, file::read_text, chip::HOSTS) {
            Ok(title) => {
                sum.passed += 1;
                if self.verbose {
                    progress.aside(|| writeln!(out, "{GOOD}pass{GOOD:#} {}: {title}", path.display()))?;
                }
                Ok(())
            }
            Err(report) => {
                sum.failed += 1;
                progress.aside(|| write!(out, "{BAD}FAIL{BAD:#} {report}"))
            }
        }
    }
}

impl Sum {
    fn unreadable(&mut self, path: &Path, why: &dyn fmt::Display) {
        screen::error(&format_args!("cannot read {}: {why}", path.display()), None);
        self.unreadable += 1;
    }
}
