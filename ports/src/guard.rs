//! Guards: programs at both TCX hooks of an interface, which keep Linux from receiving and sending by the interface
//! except through wirerate.
//!
//! A guard belongs to the interface, not to a port: it is put on before a port opens and stays when the port closes.
//! Programs in force while the process lives are in a program array that only this process has open ([`Guard::open`],
//! [`Guard::close`]), so that the kernel itself removes them when the process ends, however it ends. After that the
//! guard passes only the packets that [`Alone`] allows. Its links are pinned in a BPF file system, so that the guard
//! outlives the process, until it is [released](Guard::release) or the next process takes it over without a gap. A
//! removed interface takes its guard with it.
//!
//! With a [fast path](GuardSet::with_fast_path), the program at ingress also forwards packets of published flows, which the
//! filter of the port has left to it, and the one at egress lets them out. Both go with the process.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fast_path::FastPath;
use crate::link_kind::link_kind;
use crate::program;
use crate::program::alone::{self, Alone};
use crate::sys::bpf::{self, Hook};
use crate::sys::interface::{self, Asker};
use crate::sys::lock;

/// Guards of this network namespace, with the directories of their pins and locks.
#[derive(Debug)]
pub struct GuardSet {
    /// Directory of pins; `None` if nothing can be pinned.
    directory: Option<PathBuf>,
    /// Directory of interface locks; `None` if nothing can be pinned.
    locks: Option<PathBuf>,
    mark: u32,
    /// Table of packets that the unattended machine has sent, shared by all guards; `None` if the kernel refuses it.
    answers: Option<OwnedFd>,
    /// Programs that drop everything at ingress and egress, loaded beforehand, so that a new interface is shut at once.
    shutters: Option<[OwnedFd; 2]>,
    fast_path: Option<Arc<FastPath>>,
}

/// An interface that is shut until its guard is [put](GuardSet::put) on, or this value is dropped.
#[derive(Debug)]
pub struct Shut([OwnedFd; 2]);

/// Exclusive lock of this process on an interface. The kernel releases it when the process ends.
#[derive(Clone, Debug)]
pub struct GuardLock {
    _file: Arc<OwnedFd>,
}

/// Reason why guards cannot be pinned, and therefore end with the process.
#[derive(Debug)]
pub enum Unpinned {
    /// The directory does not lie in a BPF file system.
    NotMounted(PathBuf),
    /// The directory cannot be made or read.
    System(PathBuf, io::Error),
}

impl fmt::Display for Unpinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unpinned::NotMounted(path) => {
                write!(f, "{} is not in a BPF file system (mount -t bpf bpf /sys/fs/bpf)", path.display())
            }
            Unpinned::System(path, error) => write!(f, "{} cannot be used: {error}", path.display()),
        }
    }
}

/// Failed operation on a guard.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation}: {error}")]
pub struct GuardError {
    /// Operation that failed, as in "could not {operation}".
    pub operation: &'static str,
    /// Error of the kernel.
    pub error: io::Error,
}

impl GuardError {
    /// Error for an interface that another process has locked.
    pub fn taken() -> GuardError {
        let error = io::Error::new(io::ErrorKind::ResourceBusy, "another gateway has the interface");
        GuardError { operation: "put on a guard", error }
    }

    /// True if another process has locked the interface.
    pub fn is_taken(&self) -> bool {
        self.error.kind() == io::ErrorKind::ResourceBusy
    }
}

/// A guard that this process governs.
#[derive(Debug)]
pub struct Guard {
    ifindex: u32,
    ingress: Side,
    egress: Side,
    lock: Option<GuardLock>,
    /// Mark of packets that leave on the fast path, if there is one.
    fast_mark: Option<u32>,
}

/// One of the two programs of a guard.
#[derive(Debug)]
struct Side {
    hook: Hook,
    link: OwnedFd,
    /// Program array in force while the process governs the guard.
    array: Option<OwnedFd>,
    pin: Option<PathBuf>,
}

/// Entries of the table of packets that the unattended machine has sent.
const ANSWERS: u32 = 16_384;

const SIDES: [(Hook, &str); 2] = [(Hook::TcxIngress, "ingress"), (Hook::TcxEgress, "egress")];

impl GuardSet {
    /// Opens the guards pinned below `directory`, which is created if missing. The second value is the reason if
    /// nothing can be pinned there: guards then end with the process. Packets marked `mark` are delivered to Linux.
    pub fn open(directory: &Path, mark: u32) -> (GuardSet, Option<Unpinned>) {
        let answers = bpf::recent_map(alone::ANSWER_KEY, ANSWERS).ok();
        let [ingress, egress] = SIDES.map(|(hook, _)| bpf::load(hook, &program::nothing()).ok());
        let shutters = ingress.zip(egress).map(|(ingress, egress)| [ingress, egress]);
        let fast_path = None;
        match own_directory(directory) {
            Ok([own, locks]) => (
                GuardSet { directory: Some(own), locks: Some(locks), mark, answers, shutters, fast_path },
                None,
            ),
            Err(unpinned) => (
                GuardSet { directory: None, locks: None, mark, answers, shutters, fast_path },
                Some(unpinned),
            ),
        }
    }

    /// The set with a fast path: guards put from now on carry its packets, in and out.
    #[must_use]
    pub fn with_fast_path(self, fast_path: Arc<FastPath>) -> GuardSet {
        GuardSet { fast_path: Some(fast_path), ..self }
    }

    /// Directories for pins and for locks of this network namespace, created if missing.
    ///
    /// # Errors
    /// Nothing can be pinned there.
    pub fn directories(directory: &Path) -> Result<[PathBuf; 2], Unpinned> {
        own_directory(directory)
    }

    /// True if a process has locked an interface of this network namespace.
    pub fn is_in_use(directory: &Path) -> bool {
        let Ok([_, locks]) = own_directory(directory) else { return false };
        let Ok(entries) = fs::read_dir(locks) else { return false };
        let is_taken =
            |path: &Path| lock::exclusive(path).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        entries.flatten().any(|entry| is_taken(&entry.path()))
    }

    /// Prefix of the paths of an interface's two pins; `-ingress` and `-egress` follow it.
    pub fn pin_of(&self, ifindex: u32) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(ifindex.to_string()))
    }

    /// Indices of the interfaces that have a pinned guard. Pins of removed interfaces are deleted.
    pub fn pinned(&self) -> Vec<u32> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some((ifindex, _)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
            let Ok(ifindex) = ifindex.parse::<u32>() else { continue };
            match bpf::pinned(&entry.path()).and_then(|link| bpf::interface_of(link.as_fd())) {
                Ok(None) => {
                    // It is for nothing; that it cannot be removed does no harm.
                    let _ = fs::remove_file(entry.path());
                }
                Ok(Some(on)) if on == ifindex && !found.contains(&ifindex) => found.push(ifindex),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        found.sort_unstable();
        found
    }

    /// Locks an interface for this process, before anything is put on it. `None` if nothing can be pinned, in which
    /// case there is no guard to take over either.
    ///
    /// # Errors
    /// [Another process has it](GuardError::is_taken), or the kernel refuses.
    pub fn lock(&self, ifindex: u32) -> Result<Option<GuardLock>, GuardError> {
        let Some(locks) = &self.locks else { return Ok(None) };
        let path = locks.join(ifindex.to_string());
        // A directory, as there are no plain files in a BPF file system.
        make_directory(&path).map_err(step("make the lock of an interface"))?;
        match lock::exclusive(&path) {
            Ok(file) => Ok(Some(GuardLock { _file: Arc::new(file) })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(GuardError::taken()),
            Err(error) => Err(step("lock an interface")(error)),
        }
    }

    /// Deletes the lock of a removed interface.
    pub fn forget(&self, ifindex: u32) {
        if let Some(locks) = &self.locks {
            // There need not be a lock, and one that stays does no harm.
            let _ = fs::remove_dir(locks.join(ifindex.to_string()));
        }
    }

    /// Shuts an interface at once, by two system calls with programs loaded beforehand. `None` if the kernel refuses;
    /// [`GuardSet::put`] then returns the error.
    pub fn shut(&self, ifindex: u32) -> Option<Shut> {
        let [ingress, egress] = self.shutters.as_ref()?;
        // First what keeps Linux from receiving by it.
        let ingress = bpf::attach_loaded(Hook::TcxIngress, ifindex, ingress.as_fd()).ok()?;
        let egress = bpf::attach_loaded(Hook::TcxEgress, ifindex, egress.as_fd()).ok()?;
        Some(Shut([ingress, egress]))
    }

    /// Puts a closed guard on an interface, or takes over the guard that an earlier process has left there. After this
    /// process ends, the guard passes the packets that `alone` allows. An interface that was shut stays shut without a
    /// gap. `lock` is the lock that this process already has on the interface.
    ///
    /// # Errors
    /// [Another process has the interface](GuardError::is_taken), there is no such interface, the kernel lacks a needed
    /// feature (Linux 6.6), or privileges are missing.
    pub fn put(
        &self,
        ifindex: u32,
        alone: &Alone,
        shut: Option<Shut>,
        lock: Option<GuardLock>,
    ) -> Result<Guard, GuardError> {
        let lock = match lock {
            Some(lock) => Some(lock),
            None => self.lock(ifindex)?,
        };
        let [first, second] = match shut {
            Some(Shut(links)) => links.map(Some),
            None => [None, None],
        };
        let ingress = self.side(ifindex, SIDES[0], alone, first)?;
        let egress = self.side(ifindex, SIDES[1], alone, second)?;
        Ok(Guard { ifindex, ingress, egress, lock, fast_mark: self.fast_mark() })
    }

    /// Replaces the rules of a guard for the time after this process.
    ///
    /// # Errors
    /// The kernel refuses; nothing has changed then.
    pub fn change(&self, guard: &Guard, alone: &Alone) -> Result<(), GuardError> {
        let Some(array) = &guard.ingress.array else { return Ok(()) };
        let program = self.program(Hook::TcxIngress, array.as_fd(), alone)?;
        bpf::update(guard.ingress.link.as_fd(), Hook::TcxIngress, &program).map_err(step("change a guard"))
    }

    /// True if the rules of `alone` fit into a program. Otherwise none of them is in force, and after this process only
    /// answers come in.
    pub fn fits(alone: &Alone) -> bool {
        // The numbers of maps do not matter here.
        let none = io::stdin();
        alone::ingress(none.as_fd(), none.as_fd(), alone).is_some()
    }

    fn program(
        &self,
        hook: Hook,
        array: BorrowedFd<'_>,
        alone: &Alone,
    ) -> Result<Vec<program::Instruction>, GuardError> {
        let answers = match &self.answers {
            Some(answers) => answers.as_fd(),
            None => {
                return Err(step("make a table of what the machine sends")(
                    io::ErrorKind::PermissionDenied.into(),
                ));
            }
        };
        let program = match hook {
            Hook::TcxIngress => alone::ingress(array, answers, alone).or_else(|| {
                let (own, vlans) = (alone.own.clone(), alone.vlans.clone());
                alone::ingress(array, answers, &Alone { own, vlans, rules: Vec::new() })
            }),
            Hook::TcxEgress | Hook::Xdp | Hook::XdpFragments => alone::egress(array, answers),
        };
        program.ok_or_else(|| step("assemble a guard")(io::ErrorKind::InvalidInput.into()))
    }

    fn fast_mark(&self) -> Option<u32> {
        self.fast_path.as_ref().map(|fast_path| fast_path.fast_mark())
    }

    fn side(
        &self,
        ifindex: u32,
        (hook, name): (Hook, &str),
        alone: &Alone,
        shut: Option<OwnedFd>,
    ) -> Result<Side, GuardError> {
        let array = bpf::program_array().map_err(step("make an array of programs"))?;
        match (hook, &self.fast_path) {
            (Hook::TcxIngress, Some(fast_path)) => bpf::enter_loaded(array.as_fd(), fast_path.action()),
            (Hook::TcxIngress, None) => {
                bpf::enter_program(array.as_fd(), hook, &program::only_marked(self.mark))
            }
            (Hook::TcxEgress | Hook::Xdp | Hook::XdpFragments, _) => {
                let closed = outward(self.fast_mark(), program::nothing());
                bpf::enter_program(array.as_fd(), hook, &closed)
            }
        }
        .map_err(step("load what a guard lets through"))?;
        let program = self.program(hook, array.as_fd(), alone)?;
        let pin = self.directory.as_ref().map(|directory| directory.join(format!("{ifindex}-{name}")));
        if let Some(link) = pin.as_ref().and_then(|pin| bpf::pinned(pin).ok()) {
            if bpf::interface_of(link.as_fd()).is_ok_and(|on| on == Some(ifindex)) {
                bpf::update(link.as_fd(), hook, &program).map_err(step("take over a guard"))?;
                return Ok(Side { hook, link, array: Some(array), pin });
            }
        }
        let link = match shut {
            Some(link) => {
                bpf::update(link.as_fd(), hook, &program).map_err(step("put on a guard"))?;
                link
            }
            None => {
                bpf::attach(hook, ifindex, &program).map_err(step("attach a guard (Linux 6.6 or newer)"))?
            }
        };
        // It guards without a pin, too; that it has none, `is_pinned` says.
        let pin = pin.filter(|pin| {
            // Of an interface that is gone, whose number this one has.
            let _ = fs::remove_file(pin);
            bpf::pin(link.as_fd(), pin).is_ok()
        });
        Ok(Side { hook, link, array: Some(array), pin })
    }

    /// Takes the guard off an interface that no process governs. True if there was one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn release(&self, ifindex: u32) -> Result<bool, GuardError> {
        let Some(directory) = &self.directory else { return Ok(false) };
        let mut found = false;
        for (_, name) in SIDES {
            let pin = directory.join(format!("{ifindex}-{name}"));
            let link = match bpf::pinned(&pin) {
                Ok(link) => link,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(step("open a pinned guard")(error)),
            };
            fs::remove_file(&pin).map_err(step("remove the pin of a guard"))?;
            let _ = bpf::detach(link.as_fd());
            found = true;
        }
        Ok(found)
    }
}

impl Guard {
    /// Index of the guarded interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// True if the guard outlives the process.
    pub fn is_pinned(&self) -> bool {
        self.ingress.pin.is_some() && self.egress.pin.is_some()
    }

    /// Lock of this process on the interface.
    pub fn lock(&self) -> Option<GuardLock> {
        self.lock.clone()
    }

    /// Diverts packets that Linux sends by the interface to the punt whose device is `punt`.
    ///
    /// # Errors
    /// The kernel refuses; nothing has changed then.
    pub fn open(&self, punt: u32) -> Result<(), GuardError> {
        let kind = interface::name(self.ifindex)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .and_then(|name| Asker::new().map(|asker| (name, asker)))
            .and_then(|(name, asker)| {
                link_kind(&name, &asker).map_err(|cause| io::Error::other(cause.to_string()))
            })
            .map_err(step("ask what kind of interface it is"))?;
        let divert = outward(self.fast_mark, program::divert(punt, kind));
        self.egress.enter(&divert).map_err(step("divert what Linux sends"))
    }

    /// Drops all packets that Linux sends by the interface. Those of the fast path pass.
    ///
    /// # Errors
    /// The kernel refuses. Packets that Linux sends then go to a punt that no longer exists, and are lost there.
    pub fn close(&self) -> Result<(), GuardError> {
        self.egress.enter(&outward(self.fast_mark, program::nothing())).map_err(step("close a guard"))
    }

    /// Gives up control: from now on the guard passes only what it passes when no process lives.
    pub fn leave(&mut self) {
        self.ingress.array = None;
        self.egress.array = None;
    }

    /// Takes the guard off its interface, which belongs to Linux from then on.
    pub fn release(self) {
        for side in [self.ingress, self.egress] {
            if let Some(pin) = &side.pin {
                let _ = fs::remove_file(pin);
            }
            // It went with its interface where it cannot be detached.
            let _ = bpf::detach(side.link.as_fd());
        }
    }
}

impl Side {
    fn enter(&self, program: &[program::Instruction]) -> io::Result<()> {
        match &self.array {
            Some(array) => bpf::enter_program(array.as_fd(), self.hook, program),
            None => Ok(()),
        }
    }
}

/// Program of a guard at egress: packets on the fast path pass, and `program` decides about the rest.
fn outward(fast_mark: Option<u32>, program: Vec<program::Instruction>) -> Vec<program::Instruction> {
    match fast_mark {
        Some(mark) => program::unless_fast(mark, &program),
        None => program,
    }
}

/// Directories for pins and locks of this thread's network namespace, in which interface names and indices are local.
fn own_directory(directory: &Path) -> Result<[PathBuf; 2], Unpinned> {
    let failed = |error| Unpinned::System(directory.to_owned(), error);
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_err(failed)?.ino();
    let above = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if !bpf::is_bpf_file_system(above).map_err(failed)? {
        return Err(Unpinned::NotMounted(directory.to_owned()));
    }
    let own = ["net", "locks"].map(|kind| directory.join(format!("{kind}-{namespace}")));
    own.iter().try_for_each(|path| make_directory(path)).map_err(failed)?;
    Ok(own)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn step(operation: &'static str) -> impl Fn(io::Error) -> GuardError {
    move |error| GuardError { operation, error }
}
