//! Policies from the rule sets of other firewalls.
//!
//! An importer translates the rules that mean the same here, and lists the others line by line: each rule of the source is
//! translated, implied by the way wirerate works anyway, or [`Untranslated`], and [`Count`] accounts for all of them.
//! [`Note`]s name the assumptions, and what a policy needs but the source lacks (zones, addresses).
//!
//! Any input yields an [`Import`] or an [`ImportError`], in memory bounded by [`MOST_BYTES`] and [`MOST_RULES`]. A new
//! importer is one file and one line in [`IMPORTERS`].

use std::fmt;

use crate::model::Policy;

mod chain;
mod classbench;
mod cond;
mod conditions;
mod emit;
mod interface;
mod iptables;
mod member;
mod name;
mod nftables;
mod note;
mod range;
mod tc;
mod word;

#[cfg(test)]
mod tests;

pub use note::{Note, NoteKind, Origin, Why};

/// Largest input of an importer, in bytes (32 MiB).
pub const MOST_BYTES: usize = 32 << 20;

/// Most rules of an import; jumps and sets can multiply the rules of a source without bound.
pub const MOST_RULES: usize = 100_000;

/// All importers.
pub const IMPORTERS: &[Importer] =
    &[nftables::IMPORTER, iptables::IMPORTER, tc::IMPORTER, classbench::IMPORTER];

/// Returns the importer named `name`.
pub fn find(name: &str) -> Option<&'static Importer> {
    IMPORTERS.iter().find(|importer| importer.name == name)
}

/// Importer for one format of rule sets.
#[derive(Clone, Copy, Debug)]
pub struct Importer {
    /// Name on the command line.
    pub name: &'static str,
    /// Format of the input, in a few words.
    pub reads: &'static str,
    read: fn(&[u8], Option<IpVersion>) -> Result<Import, ImportError>,
}

impl Importer {
    /// Reads a rule set. `version` is the IP version of a source that does not name one (`iptables-save` and
    /// `ip6tables-save` write alike); inferred from the text if absent.
    pub fn import(&self, source: &[u8], version: Option<IpVersion>) -> Result<Import, ImportError> {
        if source.len() > MOST_BYTES {
            return Err(ImportError::TooLarge { bytes: source.len() });
        }
        (self.read)(source, version)
    }
}

/// IP version of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpVersion::V4 => "IPv4",
            IpVersion::V6 => "IPv6",
        })
    }
}

/// Result of an import: the policy, and an account of the source's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// The translated policy.
    pub policy: Policy,
    /// Rules that could not be translated, in the order of the source. If there are any, the policy is not equivalent.
    pub untranslated: Vec<Untranslated>,
    /// Assumptions, and gaps to fill in.
    pub notes: Vec<Note>,
    /// Numbers of rules, by result.
    pub count: Count,
}

/// Numbers of rules of the source, by result: `rules = translated + implied + untranslated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All rules of the source.
    pub rules: usize,
    /// Rules that are whole in the policy, as one rule or several.
    pub translated: usize,
    /// Rules that need no counterpart: no packet matches, or the effect happens anyway.
    pub implied: usize,
    /// Rules of which all or a part is missing.
    pub untranslated: usize,
}

/// A rule of the source that is missing in the policy, in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslated {
    /// Position of the rule in the source.
    pub origin: Origin,
    /// Text of the rule in the source.
    pub text: String,
    /// Reason for the gap.
    pub why: Why,
    /// Rule of the policy before which this one would stand, if any.
    pub before: Option<String>,
}

impl fmt::Display for Untranslated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.why, self.text)
    }
}

/// Reason for refusing a whole source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Input longer than [`MOST_BYTES`].
    #[error("{bytes} bytes are more than the {MOST_BYTES} that an import may have")]
    TooLarge {
        /// Size of the input, in bytes.
        bytes: usize,
    },
    /// Not JSON.
    #[error("no JSON at line {line}, column {column}; `nft -j list ruleset` prints what is read here")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// JSON that ends too early.
    #[error("the JSON ends too early, at line {line}, column {column}")]
    JsonEnds {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// JSON, but not a list of nftables objects.
    #[error("JSON, but not of nftables: there is no list named \"nftables\"")]
    NotNftables,
    /// More objects than an import may have.
    #[error("more than {most} objects")]
    TooMany {
        /// Most objects.
        most: usize,
    },
    /// No line is of the format.
    #[error("no line is what {format} would write")]
    NothingKnown {
        /// Name of the format expected.
        format: &'static str,
    },
}
