//! Landlock: files that the process can open, with the rights to each. Open files are not affected.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use super::Held;

/// Rights restricted: those of Linux 6.10, or as many as an older kernel supports. Not included: networks, as the
/// policy chooses the peers of metrics and logs; and connections to Unix sockets.
const HANDLED: ABI = ABI::V5;

/// Right to a file, or to the files below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Read files.
    Read,
    /// Read and write files, but create none.
    Write,
    /// Create, read, write, rename and remove files, sockets and directories.
    Keep,
    /// Read, write and control (ioctl) a device.
    Device,
}

impl Right {
    fn access(self, is_directory: bool) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        let access = match self {
            Right::Read => read,
            Right::Write => read | write,
            Right::Keep => {
                let make = AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::MakeDir;
                read | write | make | AccessFs::RemoveFile | AccessFs::RemoveDir
            }
            Right::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        };
        if is_directory { access } else { access & AccessFs::from_file(HANDLED) }
    }
}

/// Reason for unrestricted files.
#[derive(Debug)]
pub(crate) enum Unrestricted {
    /// No Landlock in the kernel.
    Lacking,
    /// Landlock disabled at boot.
    Disabled,
    /// Refusal by the kernel.
    Refused(RulesetError),
}

impl fmt::Display for Unrestricted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unrestricted::Lacking => f.write_str("this kernel has no Landlock"),
            Unrestricted::Disabled => {
                f.write_str("Landlock is switched off (`lsm=` of the kernel's command line)")
            }
            Unrestricted::Refused(error) => error.fmt(f),
        }
    }
}

/// Restricts this thread, and those that it starts, to these files. Paths that do not exist are left out. Returns the
/// Landlock ABI in force.
///
/// # Errors
/// No support in the kernel; nothing is restricted.
pub(crate) fn restrict(rights: &[(PathBuf, Right)]) -> Result<(u32, Held), Unrestricted> {
    let refused = Unrestricted::Refused;
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(HANDLED)).map_err(refused)?;
    let mut ruleset = ruleset.create().map_err(refused)?;
    let mut held: Vec<OwnedFd> = Vec::new();
    for (path, right) in rights {
        let Ok(file) = PathFd::new(path) else { continue };
        let access = right.access(path.is_dir());
        let rule = PathBeneath::new(file.as_fd(), access);
        ruleset = ruleset.add_rule(rule).map_err(refused)?;
        // An entry of /proc that nobody has open may be forgotten and made anew, which the rule would not know.
        if path.starts_with("/proc") {
            held.extend(file.as_fd().try_clone_to_owned());
        }
    }
    let status = ruleset.restrict_self().map_err(refused)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => Err(Unrestricted::Disabled),
        (RulesetStatus::NotEnforced, _) => Err(Unrestricted::Lacking),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok((effective_abi as u32, held)),
        (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => Err(Unrestricted::Lacking),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::ErrorKind;

    use super::*;

    /// Runs in a thread of its own, so that no other is restricted.
    #[test]
    fn nothing_is_opened_but_what_was_named() {
        let place = std::env::temp_dir().join(format!("wirerate-ruleset-{}", std::process::id()));
        let [own, other, read] = ["own", "other", "read"].map(|name| place.join(name));
        for directory in [&own, &other, &read] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("file"), "before").unwrap();
        }
        let tried = place.clone();
        let outcome = std::thread::spawn(move || try_all(&tried)).join();
        fs::remove_dir_all(&place).unwrap();
        outcome.unwrap();
    }

    fn try_all(place: &std::path::Path) {
        let [own, other, read] = ["own", "other", "read"].map(|name| place.join(name));
        let rights = [
            (own.clone(), Right::Keep),
            (read.clone(), Right::Read),
            (place.join("absent"), Right::Keep),
            ("/proc/self".into(), Right::Read),
        ];
        let held = match restrict(&rights) {
            Ok((abi, held)) => {
                assert!((1..=10).contains(&abi));
                held
            }
            Err(why) => {
                eprintln!("SKIPPED: {why}");
                return;
            }
        };
        assert_eq!(held.len(), 1);
        fs::write(own.join("new"), "text").unwrap();
        fs::rename(own.join("new"), own.join("renamed")).unwrap();
        fs::create_dir(own.join("directory")).unwrap();
        fs::remove_dir(own.join("directory")).unwrap();
        OpenOptions::new().append(true).open(own.join("file")).unwrap();
        File::open(&own).unwrap().sync_all().unwrap();
        fs::remove_file(own.join("renamed")).unwrap();
        assert_eq!(fs::read_to_string(read.join("file")).unwrap(), "before");
        assert!(fs::read_to_string("/proc/self/status").is_ok());
        let denied = |outcome: std::io::Result<()>| {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        denied(fs::write(read.join("file"), "other"));
        denied(fs::write(read.join("new"), "other"));
        denied(fs::remove_file(read.join("file")));
        denied(File::open(other.join("file")).map(drop));
        denied(fs::create_dir(other.join("directory")));
        denied(File::open("/etc/passwd").map(drop));
        denied(File::open("/etc/shadow").map(drop));
    }
}
