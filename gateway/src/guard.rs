//! Guards of the interfaces that a policy names: attached as soon as an interface appears, whatever the state of its
//! port.
//!
//! A thread of its own follows link events and attaches guards to interfaces named by the policy before any other
//! configuration of these interfaces. The supervisor opens a guard once the port behind it is open, and closes the
//! guard before the port. An interface that the policy no longer names keeps its guard (mode "left") until an operator
//! [releases](Guards::release) it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ports::{FastPath, Guard, GuardError, GuardLock, GuardSet, Shut, Unpinned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use crate::linux;
use crate::linux::LinkIndex;
use crate::linux::link::{Heard, LinkEvent};

pub mod alone;

use alone::Terms;

/// All guards of this network namespace.
#[derive(Clone, Debug)]
pub struct Guards(Arc<Mutex<Post>>);

/// State of the guards' thread for attaching a guard without waiting for the supervisor.
#[derive(Debug)]
struct Scout {
    set: Arc<GuardSet>,
    /// Names to guard. Locked only for a look-up or an update.
    wanted: Mutex<BTreeSet<String>>,
}

/// State shared by the guards' thread and the supervisor. Its lock is held across system calls, but no other blocking.
#[derive(Debug)]
struct Post {
    set: Arc<GuardSet>,
    scout: Arc<Scout>,
    /// Interfaces that the policy names, with the rules of their guards while no gateway runs.
    named: BTreeMap<String, Terms>,
    /// Interfaces among them made by the gateway: removed with it, and only Linux is behind them.
    made: BTreeMap<String, Option<GuardLock>>,
    links: BTreeMap<LinkIndex, String>,
    guards: BTreeMap<LinkIndex, Kept>,
    /// Guards left by an earlier gateway on interfaces that the policy does not name.
    left: BTreeSet<LinkIndex>,
    failed: BTreeMap<LinkIndex, String>,
    /// Interfaces guarded by another gateway.
    taken: BTreeSet<LinkIndex>,
}

/// Guard, and its mode.
#[derive(Debug)]
struct Kept {
    guard: Guard,
    door: Door,
    terms: Terms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Closed,
    Left,
}

/// Guard, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardState {
    /// Name of the interface.
    pub interface: String,
    /// Mode of the guard.
    pub state: GuardMode,
    /// Path prefix of its pinned programs, with `-ingress` and `-egress` behind it; none where they end with the
    /// gateway.
    pub pin: Option<String>,
    /// Error, where a guard is missing.
    pub trouble: Option<String>,
    /// Rules to `self` that accept nothing while no gateway runs, as they match on fields that a guard cannot match.
    pub left_out: Vec<String>,
}

/// Mode of a guard: traffic that it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuardMode {
    /// Traffic that the gateway delivers to Linux, and traffic that Linux sends through the gateway: the port is open.
    Open,
    /// No traffic: the port is not open.
    Closed,
    /// Traffic for when no gateway runs: an earlier policy named the interface, the policy in force does not.
    Left,
    /// Guard not attached; the port is not opened either.
    Failed,
}

impl fmt::Display for GuardMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GuardMode::Open => "open to the gateway",
            GuardMode::Closed => "closed",
            GuardMode::Left => "left of an earlier policy",
            GuardMode::Failed => "failed",
        })
    }
}

impl Guards {
    /// Guards all interfaces of these names, present and future, which pass the packets of the fast path.
    ///
    /// # Errors
    /// Link events are not available.
    pub fn start(
        pins: &Path,
        named: BTreeMap<String, Terms>,
        fast_path: Option<Arc<FastPath>>,
    ) -> Result<Guards, linux::Error> {
        let (mut set, unpinned) = GuardSet::open(pins, ports::MARK);
        if let Some(fast_path) = fast_path {
            set = set.with_fast_path(fast_path);
        }
        if let Some(why) = unpinned {
            warn!("guards cannot be pinned: {why}");
            warn!("guards end with the process: after it Linux forwards unfiltered by these interfaces");
        }
        let left = set.pinned().into_iter().map(LinkIndex).collect();
        let set = Arc::new(set);
        let wanted = Mutex::new(named.keys().cloned().collect());
        let scout = Arc::new(Scout { set: set.clone(), wanted });
        let post = Arc::new(Mutex::new(Post {
            set,
            scout: scout.clone(),
            named,
            made: BTreeMap::new(),
            links: BTreeMap::new(),
            guards: BTreeMap::new(),
            left,
            failed: BTreeMap::new(),
            taken: BTreeSet::new(),
        }));
        let heard = Arc::downgrade(&post);
        let mut seen = BTreeSet::new();
        linux::link::follow(move |event| {
            let shut = scout.look(&event, &mut seen);
            let Some(post) = heard.upgrade() else { return Heard::Enough };
            lock(&post).take(event, shut);
            Heard::More
        })?;
        Ok(Guards(post))
    }

    /// Guards the interfaces that a policy names; guards of all others become "left".
    pub fn name(&self, named: BTreeMap<String, Terms>) {
        let mut post = lock(&self.0);
        if post.named == named {
            return;
        }
        let Post { set, named: now, guards, links, .. } = &mut *post;
        for (index, kept) in guards.iter_mut().filter(|(_, kept)| kept.door != Door::Left) {
            let name = links.get(index);
            let terms = name.and_then(|name| named.get(name)).filter(|terms| **terms != kept.terms);
            if let Some(terms) = terms {
                match set.change(&kept.guard, &terms.alone) {
                    Ok(()) => kept.terms = terms.clone(),
                    Err(error) => error!("{error}; the guard's filter stays as it was"),
                }
            }
        }
        *now = named;
        post.scouted();
        post.guard_all();
    }

    /// Removes the guards from interfaces that the policy does not name: from the given ones, or from all if `names` is
    /// empty. Returns the interfaces released.
    ///
    /// # Errors
    /// Interface named by the policy, no guard on it, or refusal by the kernel.
    pub fn release(&self, names: &[String]) -> Result<Vec<String>, ReleaseError> {
        let mut post = lock(&self.0);
        let mut left: BTreeMap<String, LinkIndex> = BTreeMap::new();
        let governed =
            post.guards.iter().filter(|(_, kept)| kept.door == Door::Left).map(|(index, _)| *index);
        for index in governed.chain(post.left.iter().copied()) {
            left.insert(post.name_of(index), index);
        }
        for name in names {
            if post.named.contains_key(name) {
                return Err(ReleaseError::Named(name.clone()));
            }
            if !left.contains_key(name) {
                return Err(ReleaseError::Unguarded(name.clone()));
            }
        }
        let wanted = |name: &String| names.is_empty() || names.contains(name);
        let mut released = Vec::new();
        for (name, index) in left.into_iter().filter(|(name, _)| wanted(name)) {
            match post.guards.remove(&index) {
                Some(kept) => kept.guard.release(),
                None => drop(post.set.release(index.0).map_err(ReleaseError::Kernel)?),
            }
            post.left.remove(&index);
            warn!(interface = name, "guard removed: Linux forwards unfiltered by this interface");
            released.push(name);
        }
        Ok(released)
    }

    /// Removes all guards that this gateway manages: their interfaces are Linux's from then on.
    pub fn end_open(&self) {
        let mut post = lock(&self.0);
        post.named.clear();
        post.scouted();
        for kept in std::mem::take(&mut post.guards).into_values().filter(|kept| kept.door != Door::Left) {
            kept.guard.release();
        }
    }

    /// Notes that the gateway is about to make the interface of this name, which gets no guard.
    pub fn make(&self, name: &str) {
        let mut post = lock(&self.0);
        post.made.insert(name.to_owned(), None);
        post.scouted();
    }

    /// Locks the interface of this name, which the gateway has made, against guards of other gateways.
    pub fn made(&self, name: &str) {
        let mut post = lock(&self.0);
        let index = ports::interface_index(name).ok();
        // One that cannot be locked works all the same.
        let locked = index.and_then(|index| post.set.lock(index).ok().flatten());
        post.made.insert(name.to_owned(), locked);
    }

    /// True if another gateway guards an interface that this one is to guard.
    pub fn is_taken(&self) -> bool {
        !lock(&self.0).taken.is_empty()
    }

    /// Notes the removal of an interface made by the gateway.
    pub fn unmake(&self, name: &str) {
        let mut post = lock(&self.0);
        post.made.remove(name);
        post.scouted();
    }

    /// Opens the guard of an interface for the punt whose device is `punt`.
    ///
    /// # Errors
    /// No guard on the interface, or failure to open it.
    pub fn open(&self, index: LinkIndex, name: &str, punt: u32) -> Result<(), GuardError> {
        let mut post = lock(&self.0);
        post.put(index, name, None)?;
        if let Some(kept) = post.guards.get_mut(&index) {
            kept.guard.open(punt)?;
            kept.door = Door::Open;
        }
        Ok(())
    }

    /// Closes the guard of an interface, if any.
    pub fn close(&self, index: LinkIndex) {
        if let Some(kept) = lock(&self.0).guards.get_mut(&index).filter(|kept| kept.door == Door::Open) {
            kept.door = Door::Closed;
            if let Err(error) = kept.guard.close() {
                error!("{error}");
            }
        }
    }

    /// Returns all guards, by interface.
    pub fn states(&self) -> Vec<GuardState> {
        let post = lock(&self.0);
        let mut states: Vec<GuardState> =
            post.guards.iter().map(|(index, kept)| post.state(*index, kept)).collect();
        for index in &post.left {
            states.push(GuardState {
                interface: post.name_of(*index),
                state: GuardMode::Left,
                pin: post.pin_of(*index),
                trouble: None,
                left_out: Vec::new(),
            });
        }
        for (index, trouble) in &post.failed {
            let (interface, trouble) = (post.name_of(*index), Some(trouble.clone()));
            states.push(GuardState {
                interface,
                state: GuardMode::Failed,
                pin: None,
                trouble,
                left_out: Vec::new(),
            });
        }
        states.sort_by(|a, b| a.interface.cmp(&b.interface));
        states
    }
}

/// Reason for not releasing a guard.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Interface named by the policy in force.
    #[error("the policy in force names \"{0}\": its guard stays while the gateway runs")]
    Named(String),
    /// No guard on the interface.
    #[error("there is no guard on \"{0}\"")]
    Unguarded(String),
    /// No support for pinning, so no pinned guards.
    #[error("there are no guards: {0}")]
    Unpinned(Unpinned),
    /// Refusal by the kernel.
    #[error(transparent)]
    Kernel(GuardError),
}

/// Removes guards while no gateway runs: from the given interfaces, or from all if `names` is empty. Returns the
/// interfaces released.
///
/// # Errors
/// No guard on an interface, or failure to remove it.
pub fn release(pins: &Path, names: &[String]) -> Result<Vec<String>, ReleaseError> {
    let (set, unpinned) = GuardSet::open(pins, ports::MARK);
    if let Some(why) = unpinned {
        return Err(ReleaseError::Unpinned(why));
    }
    let name_of = |index: u32| ports::interface_name(index).unwrap_or_else(|| format!("number {index}"));
    let pinned: BTreeMap<String, u32> =
        set.pinned().into_iter().map(|index| (name_of(index), index)).collect();
    if let Some(name) = names.iter().find(|name| !pinned.contains_key(*name)) {
        return Err(ReleaseError::Unguarded(name.clone()));
    }
    let mut released = Vec::new();
    for (name, index) in pinned.into_iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        set.release(index).map_err(ReleaseError::Kernel)?;
        released.push(name);
    }
    Ok(released)
}

impl Scout {
    /// Shuts an interface that is to be guarded, on its first event or the first under another name.
    fn look(&self, event: &LinkEvent, seen: &mut BTreeSet<(LinkIndex, String)>) -> Option<Shut> {
        match event {
            LinkEvent::There(index, link) => {
                let is_new = seen.insert((*index, link.name.clone()));
                let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
                let is_wanted = is_new && wanted.contains(&link.name);
                drop(wanted);
                if is_wanted { self.set.shut(index.0) } else { None }
            }
            LinkEvent::Gone(index) => {
                seen.retain(|(other, _)| other != index);
                None
            }
            LinkEvent::All(links) => {
                seen.extend(links.iter().map(|(index, link)| (*index, link.name.clone())));
                None
            }
            LinkEvent::Trouble(_) => None,
        }
    }
}

impl Post {
    /// Updates the guards' thread with the names to guard.
    fn scouted(&self) {
        let wanted = self.named.keys().filter(|name| !self.made.contains_key(*name)).cloned().collect();
        *self.scout.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    fn take(&mut self, event: LinkEvent, shut: Option<Shut>) {
        match event {
            LinkEvent::All(links) => {
                self.links = links.into_iter().map(|(index, link)| (index, link.name)).collect();
                let gone = |index: &LinkIndex| !self.links.contains_key(index);
                let gone: Vec<LinkIndex> = self.guards.keys().copied().filter(gone).collect();
                gone.into_iter().for_each(|index| self.forget(index));
                self.guard_all();
            }
            LinkEvent::There(index, link) => {
                // First of all, as the interface may be up already.
                if self.wants(&link.name) && !self.guards.contains_key(&index) {
                    self.guard(index, &link.name, shut);
                }
                if self.links.insert(index, link.name).is_some() {
                    // It may have another name now.
                    self.guard_all();
                }
            }
            LinkEvent::Gone(index) => {
                self.links.remove(&index);
                self.forget(index);
            }
            LinkEvent::Trouble(trouble) => warn!("guards: {trouble}"),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.named.contains_key(name) && !self.made.contains_key(name)
    }

    /// Guards the interfaces that the policy names, and sets the guards of all others to "left".
    fn guard_all(&mut self) {
        let links = std::mem::take(&mut self.links);
        for (index, name) in &links {
            if self.wants(name) {
                self.guard(*index, name, None);
            } else if let Some(kept) = self.guards.get_mut(index).filter(|kept| kept.door != Door::Left) {
                warn!(
                    interface = name,
                    "interface no longer in the policy: guard stays closed until `wirerate release`"
                );
                kept.door = Door::Left;
                kept.guard.leave();
            }
        }
        self.links = links;
    }

    fn guard(&mut self, index: LinkIndex, name: &str, shut: Option<Shut>) {
        // Of a guard that cannot be pinned no lock says whose it is, but the device of its punt does: it goes with its process. Where a guard
        // has failed for another reason before, the device is this process's own.
        let has_failed = self.failed.contains_key(&index) && !self.taken.contains(&index);
        let is_taken = !self.guards.contains_key(&index)
            && !has_failed
            && ports::interface_index(&format!("wr{}", index.0)).is_ok();
        let done = if is_taken { Err(GuardError::taken()) } else { self.put(index, name, shut) };
        if let Err(error) = done {
            let taken = error.is_taken();
            let error = error.to_string();
            if taken {
                self.taken.insert(index);
            }
            if self.failed.get(&index) != Some(&error) {
                let whose = if taken { "its port" } else { "the interface is Linux's, and its port" };
                error!(interface = name, "{error}; {whose} stays closed");
                self.failed.insert(index, error);
            }
        }
    }

    /// Attaches a guard to an interface that has none of this process's.
    fn put(&mut self, index: LinkIndex, name: &str, shut: Option<Shut>) -> Result<(), GuardError> {
        if self.guards.get(&index).is_some_and(|kept| kept.door != Door::Left) {
            return Ok(());
        }
        let terms = self.named.get(name).cloned().unwrap_or_default();
        let locked = self.guards.get(&index).and_then(|kept| kept.guard.lock());
        let guard = self.set.put(index.0, &terms.alone, shut, locked)?;
        info!(interface = name, pinned = guard.is_pinned(), "guard attached");
        self.left.remove(&index);
        self.failed.remove(&index);
        self.taken.remove(&index);
        self.guards.insert(index, Kept { guard, door: Door::Closed, terms });
        Ok(())
    }

    fn forget(&mut self, index: LinkIndex) {
        if let Some(kept) = self.guards.remove(&index) {
            kept.guard.release();
        }
        self.left.remove(&index);
        self.failed.remove(&index);
        self.taken.remove(&index);
        self.set.forget(index.0);
    }

    fn state(&self, index: LinkIndex, kept: &Kept) -> GuardState {
        let state = match kept.door {
            Door::Open => GuardMode::Open,
            Door::Closed => GuardMode::Closed,
            Door::Left => GuardMode::Left,
        };
        let pin = self.pin_of(index).filter(|_| kept.guard.is_pinned());
        GuardState {
            interface: self.name_of(index),
            state,
            pin,
            trouble: None,
            left_out: kept.terms.left_out.clone(),
        }
    }

    fn name_of(&self, index: LinkIndex) -> String {
        self.links.get(&index).cloned().unwrap_or_else(|| format!("number {}", index.0))
    }

    fn pin_of(&self, index: LinkIndex) -> Option<String> {
        self.set.pin_of(index.0).map(|path| path.display().to_string())
    }
}

fn lock(post: &Mutex<Post>) -> MutexGuard<'_, Post> {
    post.lock().unwrap_or_else(PoisonError::into_inner)
}
