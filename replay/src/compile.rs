//! Tables of a policy that nothing replaces, with the keys of tunnels that the policy has in files, or without.

use std::path::Path;

use dataplane::Tables;
use dataplane::tables::CompileError;
use policy::Policy;
use policy::keys::{self, KeyFileError};

/// Epoch of tables that are never replaced.
const EPOCH: u16 = 1;

/// Use of keys that are in files, which are those of a live gateway: packets encrypted elsewhere under its keys have numbers that it uses for
/// others, and whoever has both can read both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticKeys<'a> {
    /// Keys stay in their files. Associations whose keys are not there drop what comes in by them, and what leaves by them has zeros in the
    /// place of text and integrity check.
    Left,
    /// A policy with keys in files is refused.
    Refused,
    /// Keys are read from their files, by their paths as a policy in this directory means them.
    Read(&'a Path),
}

/// A policy that can be carried out.
pub struct Compiled {
    /// Tables compiled from it.
    pub tables: Tables,
    /// The policy with the keys that have been read, which is for compiling alone; none if no key was read.
    pub keyed: Option<Policy>,
}

/// Reason that a policy cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CompileRefusal {
    /// The policy asks for more than tables can have.
    #[error(transparent)]
    Compile(CompileError),
    /// The policy has keys in files, which nobody has allowed to be read.
    #[error("keys of tunnels are in files, as a live gateway has them")]
    StaticKeys,
    /// A key cannot be read from its file.
    #[error(transparent)]
    Key(KeyFileError),
}

/// Compiles a policy.
///
/// # Errors
/// [`CompileRefusal`]
pub fn compile(policy: &Policy, keys: StaticKeys<'_>) -> Result<Compiled, CompileRefusal> {
    let tables = |policy: &Policy| Tables::compile(policy, EPOCH).map_err(CompileRefusal::Compile);
    let compiled = Compiled { tables: tables(policy)?, keyed: None };
    if keys == StaticKeys::Left || !keys::has_files(policy) {
        return Ok(compiled);
    }
    let StaticKeys::Read(directory) = keys else { return Err(CompileRefusal::StaticKeys) };
    let keyed = keys::read(policy, directory).map_err(CompileRefusal::Key)?;
    Ok(Compiled { tables: tables(&keyed)?, keyed: Some(keyed) })
}
