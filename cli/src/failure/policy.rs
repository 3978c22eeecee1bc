//! Policies, and rules of other firewalls, that cannot be read, are wrong, or ask for too much.

use std::path::PathBuf;

use config::LoadError;
use dataplane::replay::ReplayError;
use dataplane::tables::CompileError;
use policy::import::ImportError;

use super::Exit;

/// Errors of policies.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// A policy file cannot be read.
    #[error(transparent)]
    Unreadable(LoadError),
    /// The policy in this file is wrong, in these many ways, which have been shown.
    #[error("{file} has {}", count(*.errors))]
    Wrong {
        /// The file.
        file: String,
        /// Number of errors.
        errors: usize,
    },
    /// The policy cannot be compiled.
    #[error("{file} cannot be compiled: {error}")]
    Compile {
        /// The file of the policy.
        file: String,
        /// Error of the compiler.
        error: CompileError,
    },
    /// The keys of the policy are a live gateway's.
    #[error(
        "{file} has keys of tunnels in files, as a live gateway has them: what is encrypted here under numbers that it uses, too, gives both away"
    )]
    StaticKeys {
        /// The file of the policy.
        file: String,
    },
    /// The policy asks for more than this machine has.
    #[error("{file} asks for more than this machine has: {error}")]
    Setup {
        /// The file of the policy.
        file: String,
        /// Error of the setup.
        error: ReplayError,
    },
    /// The policy says too little for what was asked.
    #[error("the policy has no {what}")]
    Lacks {
        /// Missing part of the policy.
        what: &'static str,
        /// Advice.
        hint: &'static str,
    },
    /// There are no rules to search.
    #[error("{file} has no rules to search")]
    NoRules {
        /// Their file.
        file: String,
    },
    /// Rules of another firewall cannot be read at all.
    #[error("cannot import {path}: {error}")]
    Import {
        /// Their file.
        path: PathBuf,
        /// Error of the import.
        error: ImportError,
    },
}

fn count(number: usize) -> String {
    if number == 1 { "an error".to_owned() } else { format!("{number} errors") }
}

impl PolicyError {
    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            PolicyError::Unreadable(_) | PolicyError::Import { .. } => Exit::Unreadable,
            PolicyError::Wrong { .. }
            | PolicyError::Compile { .. }
            | PolicyError::Setup { .. }
            | PolicyError::StaticKeys { .. }
            | PolicyError::Lacks { .. }
            | PolicyError::NoRules { .. } => Exit::Wrong,
        }
    }

    /// Returns advice on the error.
    pub(super) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            PolicyError::Unreadable(_) => "give the path of a policy (TOML); policies/ has examples",
            PolicyError::Wrong { .. } => return None,
            PolicyError::Compile { .. } => "change the policy there",
            PolicyError::StaticKeys { .. } => {
                "--static-keys reads them all the same, for a laboratory; a copy of the policy with keys of its own needs no flag"
            }
            PolicyError::Setup { .. } => "lower `flows` under [limit], or free memory",
            PolicyError::Lacks { hint, .. } => hint,
            PolicyError::NoRules { .. } => {
                "give a ClassBench filter set or a policy that has rules; `wirerate generate rules` makes some"
            }
            PolicyError::Import { .. } => {
                "give what `nft -j list ruleset`, `iptables-save` or `tc` printed, or a ClassBench filter set"
            }
        })
    }
}
