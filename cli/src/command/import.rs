//! `wirerate import`: a policy from another firewall's rules.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use policy::import::{self, IpVersion, Origin};

use crate::failure::{Exit, Failure, InputError, PolicyError, UsageError};
use crate::{file, screen, with_exit_codes};

/// Translate the rules of another firewall into a policy
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
  wirerate import classbench acl1.rules > filters.toml"))]
pub(crate) struct Arguments {
    /// What wrote it
    #[arg(value_enum)]
    format: Format,

    /// The rules
    file: PathBuf,

    /// The IP version of rules that do not say
    ///
    /// iptables-save and ip6tables-save write alike; without this the addresses tell.
    #[arg(long, value_enum, value_name = "VERSION")]
    ip_version: Option<Version>,
}

/// What rules can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// `nft -j list ruleset`
    Nft,
    /// `iptables-save` or `ip6tables-save`
    Iptables,
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
            Format::Classbench => "classbench",
        }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let format = self.format.name();
        let source =
            file::read(&self.file).map_err(|error| InputError::Read { path: self.file.clone(), error })?;
        let importer = import::find(format)
            .ok_or_else(|| UsageError::Unknown { what: "importer", word: format.to_owned() })?;
        let version = self.ip_version.map(|version| match version {
            Version::V4 => IpVersion::V4,
            Version::V6 => IpVersion::V6,
        });
        let imported = importer
            .import(&source, version)
            .map_err(|error| PolicyError::Import { path: self.file.clone(), error })?;
        write!(screen::out(), "{}", imported.policy)?;
        let name = self.file.display();
        for missing in &imported.untranslated {
            // Editors go to `file:line`; a handle is no place in the file.
            match missing.origin {
                Origin::Line(line) => {
                    screen::error(&format_args!("{name}:{line}: {}: {}", missing.why, missing.text), None)
                }
                Origin::Handle(_) => screen::error(&format_args!("{name}: {missing}"), None),
            }
        }
        for note in &imported.notes {
            screen::note(&format_args!("{name}: {note}"));
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
