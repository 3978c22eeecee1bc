//! Policies from the rule sets of other firewalls.
//!
//! An importer translates what means the same here, and lists line by line what does not: each rule of the
//! source is translated, implied by how wirerate works anyway, or [`Untranslated`], and [`Count`] accounts
//! for all of them. What the source does not say and a policy needs (zones, addresses), and what was assumed,
//! stands in [`Note`]s.
//!
//! Any bytes are met with an [`Import`] or an [`ImportError`], in memory bounded by [`MOST_BYTES`] and
//! [`MOST_RULES`]. Adding an importer is one file and one line in [`IMPORTERS`].

use std::fmt;

use crate::model::Policy;

mod chain;
mod classbench;
mod cond;
mod emit;
mod interface;
mod iptables;
mod name;
mod nftables;
mod note;
mod range;
mod word;

#[cfg(test)]
mod tests;

pub use note::{Note, NoteKind, Origin, Why};

/// The largest input that an importer reads, in bytes.
pub const MOST_BYTES: usize = 32 << 20;

/// The most rules that an import may make; jumps and sets can multiply a source's rules without end.
pub const MOST_RULES: usize = 100_000;

/// All importers.
pub const IMPORTERS: &[Importer] = &[nftables::IMPORTER, iptables::IMPORTER, classbench::IMPORTER];

/// The importer of that name.
pub fn find(name: &str) -> Option<&'static Importer> {
    IMPORTERS.iter().find(|importer| importer.name == name)
}

/// A way to read one kind of rule set.
#[derive(Clone, Copy, Debug)]
pub struct Importer {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it reads, in a few words.
    pub reads: &'static str,
    read: fn(&[u8], Option<IpVersion>) -> Result<Import, ImportError>,
}

impl Importer {
    /// Reads a rule set. `version` is the IP version of a source that does not say (`iptables-save` and
    /// `ip6tables-save` write alike); it is inferred from the text where absent.
    pub fn import(&self, source: &[u8], version: Option<IpVersion>) -> Result<Import, ImportError> {
        if source.len() > MOST_BYTES {
            return Err(ImportError::TooLarge { bytes: source.len() });
        }
        (self.read)(source, version)
    }
}

/// The IP version that a source is for.
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

/// What became of a rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// What could be translated.
    pub policy: Policy,
    /// What could not, in the order of the source. Where there is any, the policy is not equivalent.
    pub untranslated: Vec<Untranslated>,
    /// What was assumed, and what is left to fill in.
    pub notes: Vec<Note>,
    /// What became of how many rules.
    pub count: Count,
}

/// What became of how many rules of the source: `rules = translated + implied + untranslated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All rules of the source.
    pub rules: usize,
    /// Those that are whole in the policy, as one rule or several.
    pub translated: usize,
    /// Those that need no rule here: no packet meets them, or what they ask happens anyway.
    pub implied: usize,
    /// Those of which all or a part is missing.
    pub untranslated: usize,
}

/// A rule of the source that is missing in the policy, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslated {
    /// Where it stands.
    pub origin: Origin,
    /// The rule as the source has it.
    pub text: String,
    /// What stood in the way.
    pub why: Why,
    /// The rule of the policy before which it would have stood, where there is one.
    pub before: Option<String>,
}

impl fmt::Display for Untranslated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.why, self.text)
    }
}

/// A source that cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// More than [`MOST_BYTES`].
    #[error("{bytes} bytes are more than the {MOST_BYTES} that an import may have")]
    TooLarge {
        /// Number of them.
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
    /// No line of it is of the format.
    #[error("no line is what {format} would write")]
    NothingKnown {
        /// What it was read as.
        format: &'static str,
    },
}
