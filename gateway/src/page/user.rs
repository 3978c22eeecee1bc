//! Users of the page, in a file: a line each, of name, role and the SHA-256 of a token.
//!
//! Tokens are 256 random bits, so a plain hash does not give them away: neither guessing nor a dictionary finds them. The
//! file holds no secret, and is read again when it changes: a removed user is out at once.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use rustls::crypto::ring;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tracing::error;

use crate::stamp::Stamp;

/// Rights of a user; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See everything but the contents of packets.
    Read,
    /// Also: end flows, and see the packets that were dropped.
    Operate,
    /// Also: put policies in force, and see the audit log.
    Change,
}

/// User of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name, in the audit log and in the history of policies.
    pub name: String,
    /// Role.
    pub role: Role,
    /// SHA-256 of the token.
    pub(super) hash: Hash,
}

/// SHA-256 of a token.
pub(super) type Hash = [u8; 32];

/// Contents of a file of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFile {
    /// Users, in the order of the file; names are unique.
    pub users: Vec<User>,
}

/// Fault of a file of users.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The file cannot be read.
    #[error("{path}: {error}; `wirerate token add NAME --role change --file {path}` makes it")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A line is no user.
    #[error(
        "{path}: line {line} {fault}; a line has a name, a role (read, operate or change) and a hash: `wirerate token` writes them"
    )]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Fault of the line.
        fault: &'static str,
    },
    /// A name that no user can have.
    #[error("\"{0}\" cannot be a name: 1 to 64 letters, digits, dots, dashes, underscores and @ can")]
    Name(String),
    /// A name that is taken.
    #[error("there is a user \"{0}\" already; `wirerate token remove {0}` removes that one")]
    Taken(String),
    /// More users than a file may have.
    #[error("there are {MOST} users already, as many as there can be")]
    Full,
}

/// Users in a file, at most.
const MOST: usize = 1_000;

/// Bytes of a file, at most.
const MOST_BYTES: u64 = 256 << 10;

/// Prefix of tokens, by which scanners of repositories find lost ones.
const PREFIX: &str = "wirerate_";

/// First line of a file.
const HEAD: &str =
    "# Users of the page: name, role, SHA-256 of the token. `wirerate token` writes this file.\n";

impl Role {
    /// All roles, the least first.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Change];

    /// Name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Change => "change",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Role, &'static str> {
        Role::ALL.into_iter().find(|role| role.name() == word).ok_or("is no role: read, operate or change")
    }
}

impl UserFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable file, or the first faulty line.
    pub fn read(path: &Path) -> Result<UserFile, UserFileError> {
        let wrong = |error| UserFileError::Read { path: path.to_owned(), error };
        let mut text = String::new();
        let file = File::open(path).map_err(wrong)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(wrong)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(wrong(io::Error::other(format!("more than {} KiB", MOST_BYTES >> 10))));
        }
        UserFile::parse(&text).map_err(|(line, fault)| UserFileError::Line {
            path: path.to_owned(),
            line,
            fault,
        })
    }

    fn parse(text: &str) -> Result<UserFile, (usize, &'static str)> {
        let mut users: Vec<User> = Vec::new();
        for (place, line) in text.lines().enumerate() {
            let wrong = |fault| (place + 1, fault);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, role, hash] = words[..] else { return Err(wrong("has not three words")) };
            if !is_name(name) {
                return Err(wrong("has a name that cannot be"));
            }
            if users.iter().any(|user| user.name == name) {
                return Err(wrong("has a name for the second time"));
            }
            if users.len() == MOST {
                return Err(wrong("is one user too many"));
            }
            let role = role.parse().map_err(|_| wrong("has an unknown role"))?;
            let hash = from_hex(hash).ok_or_else(|| wrong("has a hash that is not 64 hexadecimal digits"))?;
            users.push(User { name: name.to_owned(), role, hash });
        }
        Ok(UserFile { users })
    }

    /// Adds a user, and returns the new token, which is nowhere else.
    ///
    /// # Errors
    /// A name that cannot be or is taken, or too many users.
    pub fn add(&mut self, name: &str, role: Role) -> Result<String, UserFileError> {
        if !is_name(name) {
            return Err(UserFileError::Name(name.to_owned()));
        }
        if self.users.iter().any(|user| user.name == name) {
            return Err(UserFileError::Taken(name.to_owned()));
        }
        if self.users.len() >= MOST {
            return Err(UserFileError::Full);
        }
        let token = format!("{PREFIX}{}", hex(&random()));
        self.users.push(User { name: name.to_owned(), role, hash: hash_of(&token) });
        Ok(token)
    }

    /// Removes a user; returns the user, if there was one of that name.
    pub fn remove(&mut self, name: &str) -> Option<User> {
        let place = self.users.iter().position(|user| user.name == name)?;
        Some(self.users.remove(place))
    }
}

/// Text of the file.
impl fmt::Display for UserFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.users.iter().try_for_each(|user| writeln!(f, "{} {} {}", user.name, user.role, hex(&user.hash)))
    }
}

fn is_name(name: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(may)
}

pub(super) fn hash_of(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// 256 random bits.
pub(super) fn random() -> [u8; 32] {
    let mut bits = [0; 32];
    let filled = ring::default_provider().secure_random.fill(&mut bits);
    filled.expect("the kernel has random numbers: getrandom does not fail once it is seeded");
    bits
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Hash> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(hash)
}

/// Users of a file that may change meanwhile.
pub(super) struct Users {
    path: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    stamp: Option<Stamp>,
    /// Users; none where the file has become faulty.
    file: UserFile,
}

impl Users {
    pub(super) fn open(path: PathBuf) -> Result<Users, UserFileError> {
        let stamp = Stamp::of(&path);
        let file = UserFile::read(&path)?;
        Ok(Users { path, known: Mutex::new(Known { stamp, file }) })
    }

    /// Returns the user with a token of that hash. All are compared, each in constant time.
    pub(super) fn with(&self, hash: &Hash) -> Option<User> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.path);
        if stamp != known.stamp {
            // A file that cannot be read lets nobody in: it may have been changed to keep somebody out.
            known.file = UserFile::read(&self.path).unwrap_or_else(|error| {
                error!("nobody can use the page: {error}");
                UserFile::default()
            });
            known.stamp = stamp;
        }
        let mut found = u32::MAX;
        for (place, user) in known.file.users.iter().enumerate() {
            let same: Choice = user.hash.ct_eq(hash);
            found.conditional_assign(&(place as u32), same);
        }
        known.file.users.get(found as usize).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_what_was_written() {
        let mut file = UserFile::default();
        let token = file.add("alice", Role::Change).unwrap();
        file.add("grafana@rack-2", Role::Read).unwrap();
        assert!(matches!(file.add("alice", Role::Read), Err(UserFileError::Taken(_))));
        for name in ["", "two words", "<b>", "line\nbreak", &"a".repeat(65)] {
            assert!(matches!(file.add(name, Role::Read), Err(UserFileError::Name(_))), "{name:?}");
        }
        let text = file.to_string();
        assert!(!text.contains(&token[PREFIX.len()..]), "the token is in no file");
        assert_eq!(UserFile::parse(&text), Ok(file.clone()));
        assert_eq!(file.users[0].hash, hash_of(&token));
        assert_eq!(file.remove("alice").map(|user| user.role), Some(Role::Change));
        assert_eq!(file.remove("alice"), None);
    }

    #[test]
    fn a_faulty_line_is_named() {
        let hash = "0".repeat(64);
        for (text, line, fault) in [
            (format!("# a\n\nalice change {hash}\nbob read\n"), 4, "three words"),
            (format!("alice change {hash}\nalice read {hash}\n"), 2, "second time"),
            (format!("alice root {hash}\n"), 1, "unknown role"),
            (format!("a/b read {hash}\n"), 1, "name"),
            (format!("alice read {}z\n", &hash[1..]), 1, "hexadecimal"),
            (format!("alice read {}é\n", &hash[2..]), 1, "hexadecimal"),
        ] {
            let (at, told) = UserFile::parse(&text).unwrap_err();
            assert!(at == line && told.contains(fault), "{text}: {at} {told}");
        }
    }

    #[test]
    fn a_changed_file_counts_at_once_and_a_faulty_one_lets_nobody_in() {
        let path = std::env::temp_dir().join(format!("wirerate-users-{}", std::process::id()));
        let mut file = UserFile::default();
        let (alice, bob) = (file.add("alice", Role::Read).unwrap(), file.add("bob", Role::Operate).unwrap());
        fs::write(&path, file.to_string()).unwrap();
        let users = Users::open(path.clone()).unwrap();
        let name = |token: &str| users.with(&hash_of(token)).map(|user| user.name);
        assert_eq!(name(&bob).as_deref(), Some("bob"));
        assert_eq!(name("wirerate_"), None);
        file.remove("bob");
        fs::write(&path, file.to_string()).unwrap();
        assert_eq!((name(&bob), name(&alice).as_deref()), (None, Some("alice")));
        fs::write(&path, "alice\n").unwrap();
        assert_eq!(name(&alice), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(name(&alice), None);
        fs::write(&path, file.to_string()).unwrap();
        assert_eq!(name(&alice).as_deref(), Some("alice"));
        fs::remove_file(&path).unwrap();
    }
}
