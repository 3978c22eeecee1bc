//! History of policies put in force, kept over a restart: numbered files in a directory, each written atomically.
//!
//! The first line of a file holds origin, user and time as JSON behind a `#`; the rest is the policy. The entry of the
//! highest number is the newest. A gateway starts with the newest entry if an operator applied that policy and the
//! configured file has not changed since it was last read; else with that file. A damaged entry never keeps a gateway
//! from starting.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dataplane::Tables;
use policy::Policy;
use policy::parse::MOST_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{error, info, warn};

use crate::log::line::time_text;
use crate::privilege;

/// Entries kept, at most.
const MOST: usize = 50;

/// Bytes of all entries kept, at most; the newest is kept whatever its size.
const MOST_KEPT: u64 = 256 << 20;

/// Bytes of an entry's first line, at most.
const MOST_OF_HEAD: u64 = 16 << 10;

/// Prefix of the JSON in an entry's first line.
const HEAD: &str = "# wirerate policy ";

/// Entry: a policy that was put in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Number, from 1.
    pub number: u64,
    /// Time in UTC, as in RFC 3339.
    pub time: String,
    /// Origin of the policy.
    pub origin: Origin,
    /// User who applied it, by name or number; none where it was read from the file.
    pub user: Option<String>,
    /// Operator's comment.
    pub comment: Option<String>,
    /// SHA-256 of the policy's text.
    pub hash: String,
    /// Policy file that the gateway was started with.
    pub file: PathBuf,
    /// SHA-256 of that file when it was last read.
    pub file_hash: Option<String>,
}

/// Origin of a policy in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Applied by an operator.
    Apply,
    /// Read from the file, at the start or on SIGHUP.
    File,
}

/// User and comment of a policy that is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct By {
    /// User ID.
    pub uid: Option<u32>,
    /// Name of a user who is none of the machine's.
    pub name: Option<String>,
    /// Operator's comment.
    pub comment: Option<String>,
}

/// History, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryView {
    /// Policy file that the gateway was started with.
    pub file: PathBuf,
    /// Number of the entry in force; none where the policy in force has no entry, as on trial or after a failed write.
    pub in_force: Option<u64>,
    /// True if the policy in force is on trial.
    pub on_trial: bool,
    /// Entries, oldest first.
    pub entries: Vec<Entry>,
}

/// Entries of a directory.
pub(crate) struct History {
    directory: PathBuf,
    file: PathBuf,
    file_hash: Option<String>,
    entries: Vec<Entry>,
    /// File's policy, where the gateway starts with it and no entry for it exists yet.
    unwritten: Option<String>,
    /// Next number: above all in use, including those of unreadable entries.
    next: u64,
    /// Fault for which the policy in force has no entry, if there is one.
    fault: Option<String>,
}

/// Damage that makes an entry unusable.
#[derive(Debug)]
enum Damage {
    Read(io::Error),
    Head,
    Hash,
    Policy,
    Compile(dataplane::tables::CompileError),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Read(error) => error.fmt(f),
            Damage::Head => f.write_str("its first line cannot be read"),
            Damage::Hash => f.write_str("its text is not the one that was written"),
            Damage::Policy => f.write_str("it has errors"),
            Damage::Compile(error) => error.fmt(f),
        }
    }
}

impl History {
    /// Opens a directory and selects the policy to start with: `given`, which was read from `file`, or the policy
    /// applied last.
    pub(crate) fn begin(directory: &Path, file: &Path, given: Policy) -> (History, Policy) {
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(directory) {
            warn!("{}: {error}; policies that are applied will not survive a restart", directory.display());
        }
        let numbers = numbers_in(directory);
        let mut history = History {
            directory: directory.to_owned(),
            file: fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()),
            file_hash: hash_of_file(file),
            entries: Vec::with_capacity(numbers.len()),
            unwritten: None,
            fault: None,
            next: numbers.last().map_or(1, |last| last + 1),
        };
        let mut newest = None;
        for number in &numbers {
            match history.head_of(*number) {
                Ok(entry) => history.entries.push(entry),
                Err(damage) => {
                    warn!("{}: {damage}", history.path_of(*number).display());
                    newest = Some(damage);
                    continue;
                }
            }
            newest = None;
        }
        let policy = match newest {
            Some(damage) => history.fall_back(numbers.last().copied(), &damage, given),
            None => history.choose(given),
        };
        (history, policy)
    }

    fn choose(&mut self, given: Policy) -> Policy {
        let Some(last) = self.entries.last().cloned() else { return self.begin_with_file(given) };
        let file = self.file.display();
        let (number, time) = (last.number, &last.time);
        match last.origin {
            Origin::File => return self.begin_with_file(given),
            Origin::Apply
                if last.file == self.file && last.file_hash == self.file_hash && last.file_hash.is_some() => {
            }
            Origin::Apply => {
                warn!(
                    "{file} is another than when policy {number} was applied at {time}: {file} is in force"
                );
                return self.begin_with_file(given);
            }
        }
        match self.policy_of(&last) {
            Ok(policy) => {
                info!(
                    "policy {number}, applied at {time}, is in force: {file} has not changed since it was read"
                );
                policy
            }
            Err(damage) => self.fall_back(Some(number), &damage, given),
        }
    }

    fn fall_back(&mut self, number: Option<u64>, damage: &Damage, given: Policy) -> Policy {
        let path = self.path_of(number.unwrap_or_default());
        error!(
            "the policy that was applied last is of no use ({}: {damage}): {} is in force",
            path.display(),
            self.file.display()
        );
        self.begin_with_file(given)
    }

    /// Selects the file's policy to start with.
    fn begin_with_file(&mut self, given: Policy) -> Policy {
        let text = given.to_string();
        let hash = hash_of(text.as_bytes());
        let is_known = self.entries.last().is_some_and(|last| {
            last.origin == Origin::File && last.hash == hash && last.file_hash == self.file_hash
        });
        if !is_known {
            self.unwritten = Some(text);
        }
        given
    }

    /// Writes the entry of the policy that the gateway has started with, if not yet written. Called only after the
    /// start: a gateway that fails to start, as another is running, is no part of the history.
    pub(crate) fn begun(&mut self) {
        if let Some(text) = self.unwritten.take() {
            self.keep(&text, Origin::File, By::default());
        }
    }

    /// Adds the policy file's new content, in force after SIGHUP.
    pub(crate) fn keep_reread(&mut self, policy: &Policy) {
        self.file_hash = hash_of_file(&self.file);
        self.keep(&policy.to_string(), Origin::File, By::default());
    }

    /// Adds an applied policy.
    pub(crate) fn keep_applied(&mut self, policy: &Policy, by: By) {
        self.keep(&policy.to_string(), Origin::Apply, by);
    }

    fn keep(&mut self, text: &str, origin: Origin, by: By) {
        let entry = Entry {
            number: self.next,
            time: time_text(SystemTime::now()),
            origin,
            user: by.name.or_else(|| by.uid.map(privilege::name_of)),
            comment: by.comment,
            hash: hash_of(text.as_bytes()),
            file: self.file.clone(),
            file_hash: self.file_hash.clone(),
        };
        let path = self.path_of(entry.number);
        match write(&self.directory, &path, &entry, text) {
            Ok(()) => {
                self.next += 1;
                self.entries.push(entry);
                self.forget_oldest();
                self.fault = None;
            }
            Err(error) => {
                let fault =
                    format!("{}: {error}; the policy in force will not survive a restart", path.display());
                error!("{fault}");
                self.fault = Some(fault);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let mut bytes = 0;
        let mut kept = 0;
        for entry in self.entries.iter().rev() {
            bytes += fs::metadata(self.path_of(entry.number)).map_or(0, |metadata| metadata.len());
            if kept > 0 && (kept >= MOST || bytes > MOST_KEPT) {
                break;
            }
            kept += 1;
        }
        let gone = self.entries.len() - kept;
        for entry in self.entries.drain(..gone).collect::<Vec<_>>() {
            if let Err(error) = fs::remove_file(self.path_of(entry.number)) {
                warn!("{}: {error}", self.path_of(entry.number).display());
            }
        }
    }

    /// Fault for which the policy in force has no entry, in words, if there is one.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns policy file, number of the newest entry, and all entries.
    pub(crate) fn view(&self, on_trial: bool) -> HistoryView {
        let is_kept = !on_trial && self.fault.is_none();
        let in_force = self.entries.last().map(|last| last.number).filter(|_| is_kept);
        HistoryView { file: self.file.clone(), in_force, on_trial, entries: self.entries.clone() }
    }

    /// Returns the text of an entry.
    pub(crate) fn text(&self, number: u64) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.number == number)?;
        self.text_of(entry).ok()
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:06}.toml"))
    }

    fn head_of(&self, number: u64) -> Result<Entry, Damage> {
        let file = File::open(self.path_of(number)).map_err(Damage::Read)?;
        let mut line = String::new();
        BufReader::new(file.take(MOST_OF_HEAD)).read_line(&mut line).map_err(Damage::Read)?;
        let entry: Option<Entry> = line.strip_prefix(HEAD).and_then(|json| serde_json::from_str(json).ok());
        entry.filter(|entry| entry.number == number).ok_or(Damage::Head)
    }

    fn text_of(&self, entry: &Entry) -> Result<String, Damage> {
        let file = File::open(self.path_of(entry.number)).map_err(Damage::Read)?;
        let mut reader = BufReader::new(file.take(MOST_OF_HEAD + MOST_BYTES as u64 + 1));
        let (mut head, mut text) = (String::new(), String::new());
        reader.read_line(&mut head).map_err(Damage::Read)?;
        reader.read_to_string(&mut text).map_err(Damage::Read)?;
        if hash_of(text.as_bytes()) == entry.hash { Ok(text) } else { Err(Damage::Hash) }
    }

    fn policy_of(&self, entry: &Entry) -> Result<Policy, Damage> {
        let text = self.text_of(entry)?;
        let policy = policy::check(&text, "the stored policy").policy.ok_or(Damage::Policy)?;
        Tables::compile(&policy, 1).map_err(Damage::Compile)?;
        Ok(policy)
    }
}

/// Numbers of the entries of a directory, ascending.
fn numbers_in(directory: &Path) -> Vec<u64> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_suffix(".toml")?.parse().ok();
    let mut numbers: Vec<u64> = files.filter_map(|file| number(file.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

/// Writes an entry atomically: to a temporary file, synced, then renamed. A failed write leaves no file behind.
fn write(directory: &Path, path: &Path, entry: &Entry, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    write_beside(&beside, entry, text).and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // Not there at all is as well.
        let _ = fs::remove_file(&beside);
    })?;
    File::open(directory)?.sync_all()
}

fn write_beside(beside: &Path, entry: &Entry, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
    let head = serde_json::to_string(entry).map_err(io::Error::other)?;
    file.write_all(format!("{HEAD}{head}\n").as_bytes())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a regular file; `None` if it cannot be read.
fn hash_of_file(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(hash_of(&bytes))
}

#[cfg(test)]
mod tests;
