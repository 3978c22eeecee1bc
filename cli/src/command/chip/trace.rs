//! `wirerate chip trace`: who did what when?

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;

use chip::plan::{Prepared, Problems, Variant};
use chip::run::Setup;
use chip::timeline::{Part, Timeline};
use clap::Args;
use serde_json::json;
use wire::Nanos;

use super::plan::{Subject, keys, tell_problems};
use crate::failure::{ChipError, Exit, Failure, OutputError};
use crate::screen::{count, number};
use crate::{screen, with_exit_codes};

/// Write what happens on a modelled chip as a timeline that Perfetto and chrome://tracing open
///
/// Each thread of an engine is a track with its tasks, the frames that they were for, and in them what the engine did:
/// executing, aborted, switching, stalled; looks of receivers that poll have a track of their engine. Memories have their references, rings how full they are, and frames their way
/// from thread to thread. Open the file at ui.perfetto.dev or chrome://tracing; nothing is sent anywhere.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Begin at this moment of modelled time, as 150us or 2ms
    #[arg(long, default_value = "0ns", value_name = "TIME")]
    from: Moment,

    /// End when that many frames that came in since are done with
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: u64,

    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    format!(
        "\
Examples:
  wirerate chip trace --chip ixp2400 policies/firewall.toml \\
    'lan>wan,both,established' --out trace.json
  wirerate chip trace --chip ixp2400 --mapping firewall \\
    policies/firewall.toml 'lan>wan' --from 2ms --frames 20 --out trace.json
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate chip trace --chip ixp2800 policies/home-office.toml \\
    lan=lan.pcapng --frames 1000 --out trace.json --json

{}
--json prints one object: out frames lost events",
        keys()
    )
}

/// A moment of modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(Nanos);

/// Text that is no moment.
#[derive(Debug, thiserror::Error)]
#[error("write a time with its unit, ns, us, ms or s: 150us")]
struct BadMoment;

impl FromStr for Moment {
    type Err = BadMoment;

    fn from_str(text: &str) -> Result<Moment, BadMoment> {
        config::quantity::duration(text).map(|nanos| Moment(Nanos(nanos))).ok_or(BadMoment)
    }
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Prepared { described, plan, .. } = self.subject.prepare()?;
        let unwritten = |error| OutputError::Write { path: self.out.clone(), error };
        let file = File::create(&self.out).map_err(unwritten)?;
        let (chip, mapping) = (&described.chip, &described.mapping);
        let part = Part { from: self.from.0, frames: self.frames };
        let mut timeline = Timeline::new(BufWriter::new(file), chip, mapping, part);
        let problems = Problems::default();
        let source = || plan.source(Variant::WHOLE, &problems);
        let setup = Setup { chip, mapping, source: &source, warm: 0 };
        setup.trace(&mut timeline).map_err(ChipError::Run)?;
        let written = timeline.finish().map_err(unwritten)?;
        let mut out = screen::out();
        if self.json {
            let (frames, lost, events) = (written.frames, written.lost, written.events);
            let json = json!({ "out": self.out, "frames": frames, "lost": lost, "events": events });
            writeln!(out, "{json:#}")?;
        } else {
            let frames = count(written.frames, "frame", "frames");
            let (lost, events) = (number(written.lost), count(written.events, "event", "events"));
            writeln!(out, "Written to {}: {frames}, {lost} of them lost, in {events}.", self.out.display())?;
            if written.frames < self.frames {
                screen::note(&format_args!("no more frames came in"));
            }
        }
        Ok(tell_problems(&problems))
    }
}

#[cfg(test)]
mod tests {
    use wire::Nanos;

    use super::Moment;

    #[test]
    fn moments_have_a_unit() {
        assert_eq!("1.5us".parse::<Moment>().unwrap().0, Nanos(1500));
        assert_eq!("2s".parse::<Moment>().unwrap().0, Nanos::from_secs(2));
        for bad in ["3", "us", "-1us", "xms", "NaNs"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
