//! Runs the command in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A directory for one test, empty at first.
pub(crate) struct Room(pub(crate) PathBuf);

impl Room {
    /// A test's own, by its name.
    #[allow(dead_code)] // not every test binary writes files
    pub(crate) fn new(test: &str) -> Room {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for the test");
        Room(path)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A file in it.
    #[allow(dead_code)] // not every test binary writes text
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).expect("a file for the test");
        self.path(name)
    }
}

/// Result of a run of the command.
#[allow(dead_code)] // not every test binary runs it
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Run {
    /// The JSON on standard output.
    #[allow(dead_code)] // not every test binary reads JSON
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error} in:\n{}\n{}", self.out, self.err))
    }

    /// Returns the run, after a check of the exit code.
    #[allow(dead_code)] // not every test binary runs it
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, code, "standard output:\n{}\nstandard error:\n{}", self.out, self.err);
        self
    }
}

/// Runs `wirerate` with these words.
#[allow(dead_code)] // not every test binary runs it by itself
pub(crate) fn wirerate(words: &[&str]) -> Run {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_wirerate"))
        .args(words)
        .env_remove("NO_COLOR")
        .output()
        .expect("the command starts");
    Run {
        code: status.code().expect("an exit code: no signal ended it"),
        out: String::from_utf8(stdout).expect("UTF-8"),
        err: String::from_utf8(stderr).expect("UTF-8"),
    }
}

/// The project's directory.
#[allow(dead_code)] // not every test binary needs a file of the project
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its crates").to_owned()
}

/// The example policy of a home office.
#[allow(dead_code)] // not every test binary plays it
pub(crate) fn home_office() -> String {
    root().join("policies/home-office.toml").display().to_string()
}
