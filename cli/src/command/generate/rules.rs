//! `wirerate generate rules` and `trace`: filter sets like real ones, and headers to look up in them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lookup::classify::generate::{self, Filter, Like, Locality};
use lookup::classify::{NO_MATCH, Pattern};

use crate::bench::classify::{subject, trace};
use crate::failure::{Exit, Failure, OutputError};
use crate::{screen, with_exit_codes};

/// Make a set of rules like those of real routers and firewalls
///
/// It is a ClassBench filter set, as `wirerate import classbench` and `wirerate bench classify` read it (up to 100,000
/// rules). Prefix lengths, ports and protocols are distributed as in the sets that ClassBench's generator makes from real
/// ones; no two rules are alike, and the most specific come first. The same count and seed give the same rules.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate generate rules --like fw --count 1000 --out fw.rules
  wirerate import classbench fw.rules > fw.toml"))]
pub(super) struct Rules {
    /// What they are like
    #[arg(long, value_enum, value_name = "KIND")]
    like: Kind,

    /// How many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// What everything random follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write to this file, not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Make headers to look up in rules
///
/// A header a line: source, destination, source port, destination port, protocol, flags and the number of the rule that it
/// was made for, though an earlier one may match it, too; decimal, apart by tabs. The flags are 16 bits: TCP's, times 256, or
/// ICMP's type and code. A header lies on a corner of its rule or within, and comes in a burst whose length follows a
/// Pareto distribution, as in ClassBench. IPv4 only. The same rules, count and seed give the same headers.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate generate rules --like ipc --out ipc.rules
  wirerate generate trace --rules ipc.rules --count 10000 --out ipc.trace
  wirerate generate trace --like ipc --count 10000 --out ipc.trace
  wirerate bench classify ipc.rules --trace ipc.trace"))]
pub(super) struct Trace {
    /// The rules: a ClassBench filter set, or a policy (TOML)
    #[arg(long, value_name = "FILE", conflicts_with = "like")]
    rules: Option<PathBuf>,

    /// Without --rules: those that `generate rules` makes with the same seed
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    like: Kind,

    /// Number of those rules
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with = "rules",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rule_count: u32,

    /// Number of headers
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// What everything random follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How bursty they are: ClassBench's b, its a being 1; 0 not at all, 0.0001 a little, 1 very
    #[arg(long, value_name = "B", default_value_t = 0.0001)]
    locality: f64,

    /// Write to this file, not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Kinds of rule sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// An access list of a router: hosts and networks to services of hosts
    #[default]
    Acl,
    /// A firewall: anybody to services, services to anybody, much left open
    Fw,
    /// Chains of a Linux router: networks to networks, any protocol
    Ipc,
}

impl Kind {
    fn rules(self, count: u32, seed: u64) -> Vec<Filter> {
        let like = match self {
            Kind::Acl => Like::Acl,
            Kind::Fw => Like::Fw,
            Kind::Ipc => Like::Ipc,
        };
        generate::rules(like, count as usize, seed)
    }
}

impl Rules {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let rules = self.like.rules(self.count, self.seed);
        write(self.out.as_deref(), rules.iter(), ["rule", "rules"])
    }
}

impl Trace {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let patterns: Vec<Pattern> = match &self.rules {
            Some(path) => subject::rules(path)?,
            None => self.like.rules(self.rule_count, self.seed).iter().map(Filter::pattern).collect(),
        };
        let patterns: Vec<Pattern> = patterns.into_iter().map(subject::in_v4).collect();
        let locality = Locality::new(self.locality);
        let headers = generate::trace(&patterns, self.count as usize, locality, self.seed);
        if headers.iter().all(|aimed| aimed.position == NO_MATCH) {
            screen::warning(&"no rule is about IPv4: the headers are drawn from everywhere");
        }
        let number = |position| if position == NO_MATCH { 0 } else { position as usize + 1 };
        let lines = headers.iter().map(|aimed| trace::line(&aimed.header, number(aimed.position)));
        write(self.out.as_deref(), lines, ["header", "headers"])
    }
}

/// Writes lines to a file and says how many, or to standard output.
fn write<T: std::fmt::Display>(
    out: Option<&Path>,
    lines: impl ExactSizeIterator<Item = T>,
    [one, more]: [&'static str; 2],
) -> Result<Exit, Failure> {
    let count = lines.len();
    let all = |to: &mut dyn Write| -> io::Result<()> {
        let mut to = BufWriter::new(to);
        for line in lines {
            writeln!(to, "{line}")?;
        }
        to.flush()
    };
    match out {
        None => all(&mut screen::out())?,
        Some(path) => {
            let failed = |error| OutputError::Write { path: path.to_path_buf(), error };
            all(&mut File::create(path).map_err(failed)?).map_err(failed)?;
            let many = screen::count(count as u64, one, more);
            writeln!(screen::out(), "{}: {many}", path.display())?;
        }
    }
    Ok(Exit::Done)
}
