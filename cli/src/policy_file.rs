//! Loading of a policy, from its file to its tables; errors are shown on the way.

use std::path::Path;

use clap::Args;
use dataplane::Tables;
use policy::{Lines, Policy, Sound};
use replay::{CompileRefusal, Compiled, StaticKeys as Use};

use crate::failure::{Failure, GatewayError, PolicyError};
use crate::screen;

/// A policy that can be carried out.
pub(crate) struct Loaded {
    /// The file, as it was given.
    pub(crate) file: String,
    /// The policy.
    pub(crate) policy: Policy,
    /// Places of its parts in the file.
    pub(crate) lines: Lines,
    /// Tables compiled from it.
    pub(crate) tables: Tables,
}

/// Use of keys that are in files, which are those of a live gateway.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct StaticKeys {
    /// Read the keys of tunnels that the policy has in files, those of packets that leave as well
    ///
    /// Packets encrypted here have the numbers that a live gateway with the same keys uses for other packets: whoever has both can read both.
    /// For laboratories, and for what is shown to nobody.
    #[arg(long)]
    static_keys: bool,
}

impl StaticKeys {
    /// True if keys in files are read.
    pub(crate) fn are_read(self) -> bool {
        self.static_keys
    }
}

/// Reads, checks and compiles the policy at `path`, with the keys that are in files.
pub(crate) fn load_keyed(path: &Path, keys: StaticKeys) -> Result<Loaded, Failure> {
    let directory = path.parent().unwrap_or(Path::new(""));
    load_by(path, if keys.static_keys { Use::Read(directory) } else { Use::Refused })
}

/// Reads, checks and compiles the policy at `path`. Keys in files stay there: nothing is encrypted or decrypted by these tables.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    load_by(path, Use::Left)
}

/// Errors are shown in full; warnings are only counted, since `check` shows them.
fn load_by(path: &Path, keys: Use<'_>) -> Result<Loaded, Failure> {
    let file = path.display().to_string();
    let Sound { policy, lines, warnings } = match policy::load(path).map_err(PolicyError::Unreadable)?.sound()
    {
        Ok(sound) => sound,
        Err(errors) => {
            screen::diagnostics(&errors);
            return Err(PolicyError::Wrong { file, errors: errors.len() }.into());
        }
    };
    if !warnings.is_empty() {
        let many = screen::count(warnings.len() as u64, "warning", "warnings");
        screen::warning(&format_args!("{file} has {many}; `wirerate check {file}` shows what and where"));
    }
    match replay::compile(&policy, keys) {
        Ok(Compiled { tables, keyed }) => Ok(Loaded { file, policy: keyed.unwrap_or(policy), lines, tables }),
        Err(CompileRefusal::Compile(error)) => Err(PolicyError::Compile { file, error }.into()),
        Err(CompileRefusal::StaticKeys) => Err(PolicyError::StaticKeys { file }.into()),
        Err(CompileRefusal::Key(error)) => Err(GatewayError::Key(error).into()),
    }
}
