//! What the process may do: it gives up all that it does not need, before its first thread begins.

use std::io;

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;

/// What is needed: interfaces, routes and neighbours; AF_PACKET and AF_XDP; the programs that steer frames.
const NEEDED: [Capability; 3] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// Keeps what of [`NEEDED`] the process has, and nothing else, for good: not for programs that it might start, either.
/// Call it while there is one thread, as each has its own.
///
/// # Errors
/// The system refuses, which is no reason to go on with more than is needed.
pub(crate) fn keep_only_what_is_needed() -> io::Result<()> {
    let refused = |error: caps::errors::CapsError| io::Error::other(error.to_string());
    let mut needed = NEEDED.to_vec();
    // Frames that are shared with the kernel count as locked memory. Where the bound on it stays, this passes it by.
    let unbounded = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unbounded).is_err() && getrlimit(Resource::Memlock).current.is_some() {
        needed.push(Capability::CAP_IPC_LOCK);
    }
    let has = caps::read(None, CapSet::Permitted).map_err(refused)?;
    let kept: CapsHashSet = needed.into_iter().filter(|needed| has.contains(needed)).collect();
    if has.contains(&Capability::CAP_SETPCAP) {
        for other in caps::read(None, CapSet::Bounding).map_err(refused)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *other).map_err(refused)?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(refused)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(refused)?;
    caps::set(None, CapSet::Effective, &kept).map_err(refused)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(refused)?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Whether interfaces can be opened at all: every driver, and the way to Linux's stack, needs CAP_NET_ADMIN.
///
/// # Errors
/// The system does not say.
pub(crate) fn can_open_interfaces() -> io::Result<bool> {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN)
        .map_err(|error| io::Error::other(error.to_string()))
}
