//! Files and directories of a gateway: created before privileges are dropped, owned by the gateway's user, and listed
//! for Landlock.
//!
//! Only a directory *of the gateway's own* changes its owner, with the files in it: one that the gateway creates, or
//! one named `wirerate` or below such a directory. Others that the gateway's user cannot use are reported in the log.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use policy::Policy;
use policy::model::{Gateway, LogOutput, SetSource, Xfrm};
use ports::GuardSet;
use rustix::fs::{Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, access, chownat, fstat, openat};
use rustix::net::SocketType;
use rustix::process::{getegid, geteuid};
use tracing::warn;

use super::USER;
use super::ruleset::Right;
use super::user::User;
use crate::server::socket::{Listening, knock};

/// Log directory of the packaged unit; a later policy may name a file there.
const LOGS: &str = "/var/log/wirerate";

/// Files that the C library resolves names by, and the certificates of authorities that the system trusts, as distributions have them.
const DOWNLOAD: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// Device by which the gateway creates TAP interfaces, the punt to Linux behind each port.
const TUN: &str = "/dev/net/tun";

/// Files and directories of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Policy file, read again on SIGHUP.
    policy: PathBuf,
    /// Directories that files are created in.
    kept: Vec<Kept>,
    /// Log files.
    logs: Vec<PathBuf>,
    /// Files of keys.
    keys: Vec<PathBuf>,
    /// Directory of pinned guards, with the directories of this network namespace.
    guards: (PathBuf, Option<[PathBuf; 2]>),
    /// Files of users, certificates and keys of metrics, page and synchronisation, which are read again when they change.
    access: Vec<PathBuf>,
    /// Files of dynamic sets, which are read again when they change.
    lists: Vec<PathBuf>,
    /// Path of the control socket.
    socket: PathBuf,
    /// Path of the socket of IKE daemons.
    xfrm: Option<PathBuf>,
}

/// Directory that files are created in.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    is_own: bool,
}

impl Places {
    /// Creates missing directories.
    pub(crate) fn make(
        policy: &Path,
        socket: &Path,
        state: Option<&Path>,
        history: Option<&Path>,
        guards: &Path,
    ) -> Places {
        let mut places = Places { policy: policy.to_owned(), socket: socket.to_owned(), ..Places::default() };
        places.keep(&directory_of(socket), 0o755);
        if let Some(state) = state {
            places.keep(&directory_of(state), 0o700);
        }
        if let Some(history) = history {
            places.keep(history, 0o700);
        }
        places.guards = (guards.to_owned(), GuardSet::directories(guards).ok());
        places
    }

    /// Adds the log files of a policy.
    pub(crate) fn log(&mut self, gateway: &Gateway) {
        for output in &gateway.log.outputs {
            if let LogOutput::File(path) = output {
                self.logs.push(path.clone());
            }
        }
    }

    /// Adds the files of access to metrics and page, and of synchronisation.
    pub(crate) fn access(&mut self, gateway: &Gateway) {
        let (metrics, page) = (&gateway.metrics_access, &gateway.page_access);
        let sync = &gateway.sync;
        let files = [
            &metrics.certificate,
            &metrics.key,
            &page.tokens,
            &page.certificate,
            &page.key,
            &sync.certificate,
            &sync.key,
            &sync.ca,
        ];
        self.access = files.into_iter().flatten().cloned().collect();
    }

    /// Adds the socket of IKE daemons.
    pub(crate) fn xfrm(&mut self, gateway: &Gateway) {
        if let Some(Xfrm::Socket(path)) = &gateway.xfrm {
            self.keep(&directory_of(path), 0o755);
            self.xfrm = Some(path.clone());
        }
    }

    /// Adds the files of keys of a policy.
    pub(crate) fn keys(&mut self, policy: &Policy) {
        self.keys = policy::keys::files(policy, &directory_of(&self.policy));
    }

    /// Adds the files of dynamic sets of a policy.
    pub(crate) fn sets(&mut self, policy: &Policy) {
        let files = policy.dynamic_sets.iter().filter_map(|set| match &set.source {
            SetSource::File(path) => Some(directory_of(&self.policy).join(path)),
            SetSource::Rules | SetSource::Url { .. } => None,
        });
        self.lists = files.collect();
    }

    /// Creates a directory if missing. Failure is reported later, by the code that needs the directory.
    fn keep(&mut self, path: &Path, mode: u32) {
        let is_new = !path.exists();
        let made = DirBuilder::new().recursive(true).mode(mode).create(path).is_ok();
        let named = |path: Option<&Path>| path.and_then(Path::file_name).is_some_and(|name| name == USER);
        let is_own = (is_new && made) || named(Some(path)) || named(path.parent());
        self.kept.push(Kept { path: path.to_owned(), is_own });
    }

    /// Operation on these files that a user is not permitted, if any.
    pub(super) fn hindrance(&self, user: &User) -> Option<String> {
        if !may(Path::new(TUN), user, 0o6) {
            return Some(format!("cannot open {TUN}"));
        }
        let foreign = self.kept.iter().find(|kept| !kept.is_own && !may(&kept.path, user, 0o3))?;
        Some(format!("cannot make files in {}", foreign.path.display()))
    }

    /// Changes the owner of the gateway's own files to the user that it becomes, or else to its current user, as an
    /// earlier gateway may have run as another. Files of a running gateway are left alone.
    pub(super) fn give(&self, user: Option<&User>) {
        if !geteuid().is_root() {
            return;
        }
        let (uid, gid) = user.map_or((geteuid(), getegid()), |user| (user.uid, user.gid));
        let asked = knock(&self.socket, SocketType::STREAM);
        let xfrm = self.xfrm.as_deref().map(|path| (path, knock(path, SocketType::SEQPACKET)));
        for (path, asked) in xfrm.iter().map(|(path, asked)| (*path, asked)).chain([(&*self.socket, &asked)])
        {
            if matches!(asked, Ok(Listening::Nobody)) {
                // Of a gateway that was killed, and another user's: nobody could find out once privileges are given up.
                let _ = fs::remove_file(path);
            }
        }
        if !matches!(asked, Ok(Listening::Somebody)) {
            for kept in self.kept.iter().filter(|kept| kept.is_own) {
                give_all(&kept.path, uid, gid);
            }
        }
        for log in &self.logs {
            if directory_of(log).ends_with(USER) {
                give_all(&directory_of(log), uid, gid);
            }
        }
        if let (above, Some(own)) = &self.guards {
            if !GuardSet::is_in_use(above) {
                own.iter().for_each(|own| give_all(own, uid, gid));
            }
            let_through(&own[0], uid);
        }
    }

    /// Reports files that the gateway's user cannot use, after the change of user.
    pub(super) fn say_unusable(&self, user: &str) {
        let must = |path: &Path, access_wanted, what| {
            if path.exists() && access(path, access_wanted).is_err() {
                warn!("{}: user {user} cannot {what}", path.display());
            }
        };
        for kept in &self.kept {
            must(&kept.path, Access::WRITE_OK | Access::EXEC_OK, "make files there; `chown` it");
        }
        must(&self.policy, Access::READ_OK, "read it again when SIGHUP comes");
        must(Path::new(TUN), Access::READ_OK | Access::WRITE_OK, "open it, so that no port opens");
        for key in &self.keys {
            must(key, Access::READ_OK, "read a key there; `chown` it");
        }
        for file in &self.access {
            must(file, Access::READ_OK, "read it again when it changes; a restart does");
        }
        for list in &self.lists {
            must(list, Access::READ_OK, "read the list of a set there; `chmod` it");
        }
        for log in &self.logs {
            must(log, Access::WRITE_OK, "write records there");
        }
    }

    /// Returns a log file of a policy that the gateway may not write, by its [rights](Places::rights), if any.
    pub(crate) fn out_of_reach<'a>(&self, gateway: &'a Gateway) -> Option<&'a Path> {
        let files = gateway.log.outputs.iter().filter_map(|output| match output {
            LogOutput::File(path) => Some(path.as_path()),
            _ => None,
        });
        let mut known: Vec<PathBuf> = self.kept.iter().map(|kept| kept.path.clone()).collect();
        known.extend(self.logs.iter().map(|log| directory_of(log)));
        known.push(LOGS.into());
        known.extend(known.clone().iter().filter_map(|known| fs::canonicalize(known).ok()));
        files.into_iter().find(|file| {
            let directory = directory_of(file);
            let real = fs::canonicalize(&directory);
            let is_below = |directory: &Path| known.iter().any(|known| directory.starts_with(known));
            !is_below(&directory) && !real.is_ok_and(|real| is_below(&real))
        })
    }

    /// Files that a running gateway needs, with the rights to each.
    pub(super) fn rights(&self) -> Vec<(PathBuf, Right)> {
        let mut rights: Vec<(PathBuf, Right)> = vec![
            (TUN.into(), Right::Device),
            // Its own, and what backtraces read.
            ("/proc/self".into(), Right::Read),
            // Whether Linux forwards, its usual queueing discipline, the name of the machine, when it was booted.
            ("/proc/sys".into(), Right::Read),
            // `promote_secondaries`.
            ("/proc/sys/net/ipv4/conf".into(), Right::Write),
            // How many cores there are: the C library's allocator.
            ("/sys/devices/system/cpu".into(), Right::Read),
            // Names of users, for the history of policies.
            ("/etc/passwd".into(), Right::Read),
            (LOGS.into(), Right::Keep),
            (self.guards.0.clone(), Right::Keep),
        ];
        rights.extend(self.kept.iter().map(|kept| (kept.path.clone(), Right::Keep)));
        rights.extend(self.logs.iter().map(|log| (directory_of(log), Right::Keep)));
        // Editors put another file in its place; a link to it is followed.
        rights.push((directory_of(&self.policy), Right::Read));
        rights.extend(fs::canonicalize(&self.policy).map(|path| (directory_of(&path), Right::Read)));
        rights.extend(self.keys.iter().map(|key| (directory_of(key), Right::Read)));
        rights.extend(self.access.iter().map(|file| (directory_of(file), Right::Read)));
        rights.extend(self.lists.iter().map(|file| (directory_of(file), Right::Read)));
        // Whatever policy comes later may name a URL: names are resolved, and servers have certificates.
        rights.extend(DOWNLOAD.iter().map(|path| (path.into(), Right::Read)));
        rights.extend(DOWNLOAD.iter().filter_map(|path| Some((fs::canonicalize(path).ok()?, Right::Read))));
        // Links to renewed certificates lead elsewhere.
        let real = self.access.iter().chain(&self.lists).filter_map(|file| fs::canonicalize(file).ok());
        rights.extend(real.map(|file| (directory_of(&file), Right::Read)));
        rights.extend(std::env::current_exe().map(|path| (path, Right::Read)));
        rights
    }
}

pub(crate) fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// True if the mode of a file or directory permits access by a user: 4 to read, 2 to write, 1 to search.
fn may(path: &Path, user: &User, wanted: u32) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let shift = match (found.uid() == user.uid.as_raw(), found.gid() == user.gid.as_raw()) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    (found.mode() >> shift) & wanted == wanted
}

/// Changes the owner of a directory, and of the files and directories in it.
fn give_all(directory: &Path, uid: Uid, gid: Gid) {
    // A link that systemd made to where the directory lies.
    let Ok(directory) = fs::canonicalize(directory) else { return };
    let given = give(&directory, uid, gid).and_then(|()| {
        for entry in fs::read_dir(&directory)?.flatten() {
            give(&entry.path(), uid, gid)?;
        }
        Ok(())
    });
    if let Err(error) = given {
        warn!("{}: it cannot be given to user {}: {error}", directory.display(), uid.as_raw());
    }
}

/// Changes the owner of one file or directory. Symbolic links and files with several hard links are left alone: anyone
/// with write access to the directory may have created one to obtain another user's file.
fn give(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: OwnedFd = openat(CWD, path, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_plain = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => found.st_nlink == 1,
        _ => false,
    };
    if is_plain && (found.st_uid, found.st_gid) != (uid.as_raw(), gid.as_raw()) {
        chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Permits a user to pass to a directory of the BPF file system, which is mounted for root alone, without permission to
/// list the directories on the path.
fn let_through(own: &Path, uid: Uid) {
    let Ok(device) = fs::metadata(own).map(|found| found.dev()) else { return };
    let in_it = |found: &Metadata| found.dev() == device;
    for above in own.ancestors().skip(1) {
        let Some(found) = fs::metadata(above).ok().filter(in_it) else { return };
        let mode = found.permissions().mode();
        if mode & 0o001 == 0 && found.uid() != uid.as_raw() {
            let opened = fs::set_permissions(above, Permissions::from_mode((mode & 0o7777) | 0o111));
            if let Err(error) = opened {
                warn!("{}: guards cannot be pinned there by user {}: {error}", above.display(), uid.as_raw());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::model::Log;

    use super::*;

    fn logging_to(path: &Path) -> Gateway {
        let log =
            Log { outputs: vec![LogOutput::Stderr, LogOutput::File(path.to_owned())], ..Log::default() };
        Gateway { log, ..Gateway::default() }
    }

    #[test]
    fn places_are_made_and_log_files_elsewhere_are_out_of_reach() {
        let place = std::env::temp_dir().join(format!("wirerate-place-{}", std::process::id()));
        let [run, lib] = ["run", "lib"].map(|name| place.join(name));
        let (socket, state) = (run.join("control.sock"), lib.join("state"));
        let mut places =
            Places::make(Path::new("policy.toml"), &socket, Some(&state), Some(&lib.join("policy")), &place);
        assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(lib.join("policy")).unwrap().permissions().mode() & 0o777, 0o700);
        let elsewhere = place.join("elsewhere/records.json");
        assert_eq!(places.out_of_reach(&logging_to(&elsewhere)), Some(elsewhere.as_path()));
        assert_eq!(places.out_of_reach(&logging_to(&lib.join("records.json"))), None);
        assert_eq!(places.out_of_reach(&logging_to(Path::new("/var/log/wirerate/records"))), None);
        places.log(&logging_to(&elsewhere));
        assert_eq!(places.out_of_reach(&logging_to(&place.join("elsewhere/others"))), None);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_directory_of_somebody_else_keeps_it_from_becoming_a_user() {
        let place = std::env::temp_dir().join(format!("wirerate-other-{}", std::process::id()));
        let user = User { uid: Uid::from_raw(4711), gid: Gid::from_raw(4712) };
        fs::create_dir_all(place.join("other")).unwrap();
        assert!(!may(&place.join("other"), &user, 0o3));
        assert!(may(&place.join("other"), &user, 0o5));
        let made = |state: &Path| {
            Places::make(Path::new("policy.toml"), &place.join("wirerate/socket"), Some(state), None, &place)
        };
        let (other, own) = (place.join("other/state"), place.join("wirerate/state"));
        let told = |state: &Path| made(state).hindrance(&user).unwrap_or_default();
        if may(Path::new(TUN), &user, 0o6) {
            assert!(told(&other).contains("other"), "{}", told(&other));
            assert_eq!(told(&own), "");
        } else {
            assert!(told(&own).contains(TUN), "{}", told(&own));
        }
        fs::remove_dir_all(&place).unwrap();
    }

    /// A symbolic or hard link to another user's file would give that file away.
    #[test]
    fn only_plain_files_are_given() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can give files away");
            return;
        }
        let place = std::env::temp_dir().join(format!("wirerate-given-{}", std::process::id()));
        let own = place.join("own");
        fs::create_dir_all(&own).unwrap();
        for name in ["linked", "twice"] {
            fs::write(place.join(name), "secret").unwrap();
        }
        fs::write(own.join("state"), "flows").unwrap();
        std::os::unix::fs::symlink(place.join("linked"), own.join("link")).unwrap();
        fs::hard_link(place.join("twice"), own.join("twice")).unwrap();
        give_all(&own, Uid::from_raw(1), Gid::from_raw(1));
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!((owner(&own), owner(&own.join("state"))), (1, 1));
        assert_eq!((owner(&place.join("linked")), owner(&place.join("twice"))), (0, 0));
        assert_eq!(owner(&own.join("link")), 0);
        fs::remove_dir_all(&place).unwrap();
    }
}
