//! What the process may do: it gives up all that it does not need, before its first thread begins, as each thread has its own.
//!
//! In this order: directories are made and given to the user that the gateway runs as; the process becomes that
//! user, with three capabilities; Landlock leaves it the files that it needs, and a seccomp filter
//! the system calls. What the kernel lacks is noted, and the gateway goes on without it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

mod filter;
mod place;
mod ruleset;
mod user;

pub(crate) use place::Places;
pub use user::UserError;
pub(crate) use user::name_of;

/// What is needed: interfaces, routes and neighbours; AF_PACKET and AF_XDP; the programs that steer frames.
const NEEDED: [Capability; 3] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// The user that a gateway of root runs as where nobody says otherwise, if there is such.
pub const USER: &str = "wirerate";

/// How far a gateway restricts itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// Name of the user that it runs as; [`USER`] where absent, if there is such.
    pub user: Option<String>,
    /// Files and system calls that it leaves itself.
    pub confine: Confine,
}

/// Files and system calls that a gateway leaves itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// Those that it needs, by Landlock and a seccomp filter.
    #[default]
    On,
    /// All that its user and capabilities leave it: for debugging.
    Off,
}

/// What a gateway may do, as operators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The user that it runs as.
    pub user: String,
    /// Capabilities that it kept.
    pub capabilities: Vec<String>,
    /// ABI of Landlock that is in force; none where its files are not restricted.
    pub landlock: Option<u32>,
    /// True if a seccomp filter is in force.
    pub seccomp: bool,
    /// What could not be given up, and why.
    pub notes: Vec<String>,
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, {}", self.user, self.capabilities.join(" "))?;
        match self.landlock {
            Some(abi) => write!(f, ", Landlock ABI {abi}")?,
            None => f.write_str(", no Landlock")?,
        }
        f.write_str(if self.seccomp { ", seccomp filter" } else { ", no seccomp filter" })
    }
}

/// Why privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The user cannot be had.
    #[error(transparent)]
    User(UserError),
    /// The system refused something.
    #[error("could not give up privileges: {0}")]
    System(io::Error),
}

/// What keeps a restriction as it is: directories of /proc, whose entries Linux would else make anew.
pub(crate) type Held = Vec<OwnedFd>;

/// Gives up, for good, what a gateway with these files does not need. Call it while there is one thread.
///
/// # Errors
/// The system refuses, which is no reason to go on with more than is needed; the user that was asked for cannot be had.
pub(crate) fn confine(
    places: &Places,
    restriction: &Restriction,
) -> Result<(Confinement, Held), PrivilegeError> {
    let mut notes = Vec::new();
    let mut user = user::wanted(restriction.user.as_deref(), &mut notes).map_err(PrivilegeError::User)?;
    if restriction.user.is_none() {
        // Nobody has asked for it, so that what works without it goes on working.
        if let Some(hindrance) = user.as_ref().and_then(|user| places.hindrance(user)) {
            notes.push(format!(
                "it stays root: user {USER} {hindrance}; `--user` has it become that or another"
            ));
            user = None;
        }
    }
    places.give(user.as_ref());
    let kept = keep_only_what_is_needed(user.as_ref()).map_err(PrivilegeError::System)?;
    let name = name_of(geteuid().as_raw());
    places.say_unusable(&name);
    let (mut landlock, mut seccomp, mut held) = (None, false, Vec::new());
    match restriction.confine {
        Confine::On => {
            match ruleset::restrict(&places.rights()) {
                Ok((abi, kept)) => (landlock, held) = (Some(abi), kept),
                Err(why) => notes.push(format!("files are not restricted: {why}")),
            }
            match filter::install() {
                Ok(()) => seccomp = true,
                Err(why) => notes.push(format!("system calls are not restricted: {why}")),
            }
        }
        Confine::Off => {
            notes.push("files and system calls are not restricted (--confinement off)".to_owned())
        }
    }
    let capabilities = kept.iter().map(ToString::to_string).collect();
    let confinement = Confinement { user: name, capabilities, landlock, seccomp, notes };
    info!("privileges dropped: {confinement}");
    for note in &confinement.notes {
        warn!("{note}");
    }
    Ok((confinement, held))
}

/// Keeps what of [`NEEDED`] the process has, and nothing else: not for programs that it might start, either. Becomes `user`.
fn keep_only_what_is_needed(user: Option<&user::User>) -> io::Result<Vec<Capability>> {
    let mut needed = NEEDED.to_vec();
    // Frames that are shared with the kernel count as locked memory. Where the bound on it stays, this passes it by.
    let unbounded = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unbounded).is_err() && getrlimit(Resource::Memlock).current.is_some() {
        needed.push(Capability::CAP_IPC_LOCK);
    }
    let has = caps::read(None, CapSet::Permitted).map_err(refused)?;
    let kept: Vec<Capability> = needed.into_iter().filter(|needed| has.contains(needed)).collect();
    if has.contains(&Capability::CAP_SETPCAP) {
        for other in caps::read(None, CapSet::Bounding).map_err(refused)? {
            if !kept.contains(&other) {
                caps::drop(None, CapSet::Bounding, other).map_err(refused)?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(refused)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(refused)?;
    if let Some(user) = user {
        user.become_it()?;
    }
    let set: CapsHashSet = kept.iter().copied().collect();
    caps::set(None, CapSet::Effective, &set).map_err(refused)?;
    caps::set(None, CapSet::Permitted, &set).map_err(refused)?;
    set_no_new_privs(true)?;
    Ok(kept)
}

/// Whether interfaces can be opened at all: every driver, and the way to Linux's stack, needs CAP_NET_ADMIN.
///
/// # Errors
/// The system does not say.
pub(crate) fn can_open_interfaces() -> io::Result<bool> {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN).map_err(refused)
}

fn refused(error: caps::errors::CapsError) -> io::Error {
    io::Error::other(error.to_string())
}
