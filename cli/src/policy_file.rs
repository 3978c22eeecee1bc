//! Loading of a policy, from its file to its tables; errors are shown on the way.

use std::path::Path;

use dataplane::Tables;
use policy::{Checked, Lines, Policy};

use crate::failure::{Failure, PolicyError};
use crate::screen;

/// The epoch of tables that are never replaced.
pub(crate) const EPOCH: u16 = 1;

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

/// Reads, checks and compiles the policy at `path`. Errors are shown in full; warnings are only counted, since
/// `check` shows them.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    let file = path.display().to_string();
    let Checked { policy, lines, diagnostics } = policy::load(path).map_err(PolicyError::Unreadable)?;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        diagnostics.into_iter().partition(policy::Diagnostic::is_error);
    screen::diagnostics(&errors);
    let Some(policy) = policy else { return Err(PolicyError::Wrong { file, errors: errors.len() }.into()) };
    if !warnings.is_empty() {
        let many = screen::count(warnings.len() as u64, "warning", "warnings");
        screen::warning(&format_args!("{file} has {many}; `wirerate check {file}` shows what and where"));
    }
    match Tables::compile(&policy, EPOCH) {
        Ok(tables) => Ok(Loaded { file, policy, lines, tables }),
        Err(error) => Err(PolicyError::Compile { file, error }.into()),
    }
}
