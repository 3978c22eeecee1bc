//! Key log: security associations with their keys, as lines of Wireshark's table `esp_sa`, by explicit choice of root.
//!
//! It is the one place that keys are written to. The file is opened before privileges are dropped, root's alone, and refused otherwise.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dataplane::sa::{Fingerprint, Keys};
use esp::wireshark;
use policy::{Policy, keys};
use rustix::process::geteuid;
use tracing::{error, warn};
use wire::esp::{Direction, Suite};

use super::Spi;

/// Key log of a gateway.
pub(crate) struct KeyLog {
    path: PathBuf,
    file: File,
    /// Keys written.
    written: HashSet<Fingerprint>,
}

/// Association whose keys are written.
pub(crate) struct Logged<'a> {
    /// Outer address of the gateway.
    pub(crate) local: IpAddr,
    /// Outer address of the peer; none of one without a fixed address.
    pub(crate) remote: Option<IpAddr>,
    /// Direction.
    pub(crate) direction: Direction,
    /// Security parameters index.
    pub(crate) spi: u32,
    /// Algorithms.
    pub(crate) suite: &'a Suite,
    /// Keys.
    pub(crate) keys: &'a Keys,
}

/// Reason for refusing a key log.
#[derive(Debug, thiserror::Error)]
pub enum KeyLogError {
    /// Another user than root asks for one.
    #[error("a key log is root's to ask for")]
    NotRoot,
    /// The file cannot be opened.
    #[error("could not open the key log {}: {error}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file is no plain one of root's, or others may read or write it.
    #[error("the key log {} is {wrong}: it must be a plain file of root's, of mode 0600, with one name", .path.display())]
    Shared {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: &'static str,
    },
}

impl KeyLog {
    /// Opens the file, or makes it. What is in it stays.
    pub(crate) fn open(path: &Path) -> Result<KeyLog, KeyLogError> {
        if !geteuid().is_root() {
            return Err(KeyLogError::NotRoot);
        }
        let failed = |error| KeyLogError::Open { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        // A pipe would wait for a reader.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let options = options.append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        let wrong = if !meta.is_file() {
            Some("no plain file")
        } else if meta.uid() != 0 {
            Some("another user's")
        } else if meta.mode() & 0o077 != 0 {
            Some("open to others")
        } else if meta.nlink() != 1 {
            Some("known by several names")
        } else {
            None
        };
        match wrong {
            Some(wrong) => Err(KeyLogError::Shared { path: path.to_owned(), wrong }),
            None => Ok(KeyLog { path: path.to_owned(), file, written: HashSet::new() }),
        }
    }

    /// Says in the log that there is one.
    pub(crate) fn announce(&self) {
        warn!(file = %self.path.display(), "keys of tunnels are written to the key log; who reads it can read their packets");
    }

    /// Writes those of a policy whose keys are in files, in `directory`.
    pub(crate) fn note_policy(&mut self, policy: &Policy, directory: &Path) {
        // They have just been read for the tables.
        let Ok(policy) = keys::read(policy, directory) else { return };
        for tunnel in policy.interfaces.iter().filter_map(|interface| interface.esp.as_ref()) {
            for sa in &tunnel.sas {
                let keys = Keys { cipher: sa.key.clone(), auth: sa.auth_key.clone() };
                self.note(&Logged {
                    local: tunnel.local,
                    remote: tunnel.remote,
                    direction: sa.direction,
                    spi: sa.spi,
                    suite: &sa.suite,
                    keys: &keys,
                });
            }
        }
    }

    /// Writes one, once.
    pub(crate) fn note(&mut self, sa: &Logged<'_>) {
        let Logged { local, remote, direction, spi, suite, keys } = *sa;
        if !self.written.insert(Fingerprint::of(keys, direction)) {
            return;
        }
        let (source, destination) = match direction {
            Direction::In => (remote, Some(local)),
            Direction::Out => (Some(local), remote),
        };
        let Some(mut line) = wireshark::line(source, destination, spi, suite, keys) else {
            warn!(spi = %Spi(spi), algorithm = %suite.name(), "Wireshark has no such algorithm: the key log leaves it out");
            return;
        };
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            error!(file = %self.path.display(), "could not write to the key log: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use wire::esp::{SUITES, Secret};

    use super::*;

    #[test]
    fn a_key_log_is_roots_alone_and_has_each_key_once() {
        let room = std::env::temp_dir().join(format!("wirerate-key-log-{}", std::process::id()));
        fs::create_dir_all(&room).unwrap();
        let path = room.join("esp_sa");
        if !geteuid().is_root() {
            assert!(matches!(KeyLog::open(&path), Err(KeyLogError::NotRoot)));
            eprintln!("SKIPPED: needs root for the rest");
            return;
        }
        let mut log = KeyLog::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let (local, remote) = ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
        for (direction, first) in [(Direction::Out, 1), (Direction::In, 2), (Direction::Out, 1)] {
            let keys = Keys { cipher: Secret::new([first; 20].into()), auth: Secret::new(Box::default()) };
            let remote = Some(remote);
            log.note(&Logged { local, remote, direction, spi: 0x1000, suite: &SUITES[0], keys: &keys });
        }
        let text = fs::read_to_string(&path).unwrap();
        let (sas, bad) = wireshark::parse(&text);
        assert_eq!((sas.len(), bad.len(), text.ends_with('\n')), (2, 0, true), "{text}");
        assert!(sas[0].source.has(local) && sas[1].source.has(remote));
        // Again: what is there stays.
        drop(KeyLog::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let wrong = |path: &Path| match KeyLog::open(path) {
            Err(KeyLogError::Shared { wrong, .. }) => wrong,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is opened"),
        };
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(wrong(&path), "open to others");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&path, room.join("other")).unwrap();
        assert_eq!(wrong(&path), "known by several names");
        fs::remove_file(room.join("other")).unwrap();
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        assert_eq!(wrong(&path), "another user's");
        symlink(&path, room.join("link")).unwrap();
        assert!(matches!(KeyLog::open(&room.join("link")), Err(KeyLogError::Open { .. })));
        fs::remove_dir_all(&room).unwrap();
    }
}
