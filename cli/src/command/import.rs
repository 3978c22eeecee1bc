//! `wirerate import`: a policy from another firewall's rules, or from Linux's queues.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use policy::import::{self, IpVersion, Origin};

use crate::failure::{Exit, Failure, InputError, PolicyError, UsageError};
use crate::{file, screen, with_exit_codes};

/// Translate the rules of another firewall, or Linux's queues, into a policy
///
/// The policy goes to standard output. What could not be translated goes to standard error, line by line and with
/// the reason: no rule is dropped in silence. Where anything is missing the exit code is 1, and the policy does
/// not do what the source does. Notes say what was assumed, and what is left to fill in.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate import nft policy/tests/import/home.nft.json > policy.toml
As root, on the machine that has the rules:
  nft -j list ruleset > rules.json
  wirerate import nft rules.json > policy.toml
  iptables-save > rules.v4
  wirerate import iptables rules.v4 > policy.toml
  ip6tables-save > rules.v6
  wirerate import iptables rules.v6 --ip-version 6 > policy6.toml
Filters that ClassBench wrote:
  wirerate import classbench acl1.rules > filters.toml
As root, the queues of a device (docs/qos.md has it for all devices):
  tc -d qdisc show > queues.tc
  tc -d class show dev eth0 >> queues.tc
  tc -d filter show dev eth0 >> queues.tc
  wirerate import tc queues.tc > queues.toml
The commands of a script:
  wirerate import tc policy/tests/import/tc/htb.sh > queues.toml"))]
pub(crate) struct Arguments {
    /// Program that wrote the rules
    #[arg(value_enum)]
    format: Format,

    /// The rules; of tc, several files are read as one
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The IP version of rules that do not say
    ///
    /// iptables-save and ip6tables-save write alike; without this the addresses tell.
    #[arg(long, value_enum, value_name = "VERSION")]
    ip_version: Option<Version>,
}

/// Format of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// `nft -j list ruleset`
    Nft,
    /// `iptables-save` or `ip6tables-save`
    Iptables,
    /// Output of `tc qdisc show`, `tc class show` and `tc filter show`, text or JSON, or the commands of a script
    Tc,
    /// ClassBench filter sets
    Classbench,
}

/// IP versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    /// IPv4
    #[value(name = "4")]
    V4,
    /// IPv6
    #[value(name = "6")]
    V6,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Nft => "nft",
            Format::Iptables => "iptables",
            Format::Tc => "tc",
            Format::Classbench => "classbench",
        }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let format = self.format.name();
        if self.format != Format::Tc && self.files.len() > 1 {
            return Err(UsageError::OneFile { format: format.to_owned() }.into());
        }
        let mut sources = Sources::default();
        for file in &self.files {
            let source = file::read(file).map_err(|error| InputError::Read { path: file.clone(), error })?;
            sources.add(file, &source);
        }
        let importer = import::find(format)
            .ok_or_else(|| UsageError::Unknown { what: "importer", word: format.to_owned() })?;
        let version = self.ip_version.map(|version| match version {
            Version::V4 => IpVersion::V4,
            Version::V6 => IpVersion::V6,
        });
        let name = sources.names();
        let imported = importer
            .import(&sources.bytes, version)
            .map_err(|error| PolicyError::Import { path: PathBuf::from(&name), error })?;
        write!(screen::out(), "{}", imported.policy)?;
        for missing in &imported.untranslated {
            // Editors go to `file:line`; a handle is no place in the file.
            match missing.origin {
                Origin::Line(line) => {
                    let (file, line) = sources.place(line);
                    screen::error(&format_args!("{file}:{line}: {}: {}", missing.why, missing.text), None)
                }
                Origin::Handle(_) => screen::error(&format_args!("{name}: {missing}"), None),
            }
        }
        for note in &imported.notes {
            match note.origin {
                Some(Origin::Line(line)) => {
                    let (file, line) = sources.place(line);
                    screen::note(&format_args!("{file}:{line}: {}", note.kind));
                }
                _ => screen::note(&format_args!("{name}: {note}")),
            }
        }
        let count = imported.count;
        screen::note(&format_args!(
            "{} of {name}: {} translated, {} implied, {} not translated",
            screen::count(count.rules as u64, "rule", "rules"),
            count.translated,
            count.implied,
            count.untranslated
        ));
        Ok(if imported.untranslated.is_empty() { Exit::Done } else { Exit::Wrong })
    }
}

/// Files, read one after the other.
#[derive(Default)]
struct Sources {
    bytes: Vec<u8>,
    /// Each file, and the number of the lines before it.
    files: Vec<(String, u32)>,
    lines: u32,
}

impl Sources {
    fn add(&mut self, file: &Path, source: &[u8]) {
        self.files.push((file.display().to_string(), self.lines));
        self.bytes.extend_from_slice(source);
        if source.last().is_some_and(|last| *last != b'\n') {
            self.bytes.push(b'\n');
        }
        let lines = self.bytes.iter().filter(|byte| **byte == b'\n').count();
        self.lines = u32::try_from(lines).unwrap_or(u32::MAX);
    }

    fn names(&self) -> String {
        self.files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// File and number of a line, from 1.
    fn place(&self, line: u32) -> (&str, u32) {
        let of = self.files.partition_point(|(_, before)| *before < line).max(1);
        match self.files.get(of - 1) {
            Some((name, before)) => (name, line.saturating_sub(*before)),
            None => ("", line),
        }
    }
}
