//! Keys of tunnels beside the policy: those that it has in files, and a table of security associations for captures.

use std::path::{Path, PathBuf};

use pyo3::{PyErr, Python};
use replay::decrypt::TableError;
use replay::{CompileRefusal, Compiled, Decryptor, StaticKeys};

use crate::failure;
use crate::policy::Policy;

/// True if keys in files are read, and the path of a table.
pub(crate) type Given = (bool, Option<PathBuf>);

/// Keys that a replay may have.
pub(crate) struct Keys {
    reads_files: bool,
    table: Option<PathBuf>,
}

/// Reason for refusing keys, or a policy without them.
pub(crate) enum Refusal {
    Compile(CompileRefusal),
    Table(TableError),
}

impl From<Given> for Keys {
    fn from((reads_files, table): Given) -> Keys {
        Keys { reads_files, table }
    }
}

impl Keys {
    /// Compiles a policy.
    pub(crate) fn compile(&self, policy: &Policy) -> Result<Compiled, Refusal> {
        let directory = Path::new(&policy.file).parent().unwrap_or(Path::new(""));
        let keys = match (self.reads_files, &self.table) {
            (true, _) => StaticKeys::Read(directory),
            // The table has the keys; those that it has not stay away.
            (false, Some(_)) => StaticKeys::Left,
            (false, None) => StaticKeys::Refused,
        };
        replay::compile(&policy.policy, keys).map_err(Refusal::Compile)
    }

    /// Reads the table, if there is one.
    pub(crate) fn decryptor(&self) -> Result<Option<Decryptor>, Refusal> {
        self.table.as_deref().map(Decryptor::read).transpose().map_err(Refusal::Table)
    }
}

/// The exception for a policy `file` or its keys.
pub(crate) fn refused(py: Python<'_>, refusal: Refusal, file: &str) -> PyErr {
    match refusal {
        Refusal::Compile(CompileRefusal::StaticKeys) => {
            let advice = "static_keys=True reads them all the same, for a laboratory; a copy of the policy with keys of its own needs none";
            failure::static_keys(py, file, advice)
        }
        Refusal::Compile(refusal) => failure::not_compiled(py, refusal, file),
        Refusal::Table(TableError::Read { path, error }) => failure::read_error(py, &path, &error),
        Refusal::Table(error) => failure::table_error(py, error.with_lines()),
    }
}
