//! Privilege dropping, before the first thread starts, as privileges are per thread.
//!
//! In order: create directories and change their owner to the gateway's user; become that user, with three
//! capabilities; restrict files by Landlock and system calls by a seccomp filter. Mechanisms that the kernel lacks are
//! noted, and the gateway starts without them.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

mod filter;
mod place;
mod ruleset;
mod user;

pub(crate) use place::{Places, directory_of};
pub use user::UserError;
pub(crate) use user::name_of;

/// Capabilities needed: for interfaces, routes and neighbours; for AF_PACKET and AF_XDP; for eBPF programs.
const NEEDED: [Capability; 3] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// Default user of a gateway started as root, if the machine has such a user.
pub const USER: &str = "wirerate";

/// Requested restriction of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// Name of the user to become; [`USER`] if absent and such a user exists.
    pub user: Option<String>,
    /// Restriction of files and system calls.
    pub confine: Confine,
}

/// Restriction of files and system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// Only those needed, by Landlock and a seccomp filter.
    #[default]
    On,
    /// All that user and capabilities permit: for debugging.
    Off,
}

/// Privileges of a gateway, as operators see them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// User of the process.
    pub user: String,
    /// Capabilities kept.
    pub capabilities: Vec<String>,
    /// Landlock ABI in force; none where files are not restricted.
    pub landlock: Option<u32>,
    /// True if a seccomp filter is in force.
    pub seccomp: bool,
    /// Privileges that could not be dropped, with the reason.
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

/// Error in dropping privileges.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// User not available.
    #[error(transparent)]
    User(UserError),
    /// Refusal by the system.
    #[error("could not give up privileges: {0}")]
    System(io::Error),
}

/// Directories of /proc kept open, as their Landlock rules are bound to entries that Linux would otherwise recreate.
pub(crate) type Held = Vec<OwnedFd>;

/// Drops, for good, privileges that a gateway with these files does not need. To be called in a single-threaded
/// process.
///
/// # Errors
/// Refusal by the system, which is no reason to go on with excess privileges; requested user not available.
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

/// Keeps the process's capabilities among [`NEEDED`] and no others, also for programs it might start. Becomes `user`.
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

/// True if interfaces can be opened: every driver, and the punt to Linux's stack, needs CAP_NET_ADMIN.
///
/// # Errors
/// Capabilities not readable.
pub(crate) fn can_open_interfaces() -> io::Result<bool> {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN).map_err(refused)
}

fn refused(error: caps::errors::CapsError) -> io::Error {
    io::Error::other(error.to_string())
}
