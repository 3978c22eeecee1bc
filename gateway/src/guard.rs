//! Guards of the interfaces that a policy names: put on as soon as an interface is first seen, whatever becomes of its port.
//!
//! A thread of its own hears of interfaces and guards those with a name of the policy before anything else is done about them.
//! The supervisor opens a guard when the port behind it is open, and closes it before the port is. An interface that the
//! policy no longer names keeps its guard ("left") until somebody [releases](Guards::release) it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ports::{Guard, GuardError, GuardLock, GuardSet, Shut, Unpinned};
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

/// What the guards' thread needs to shut an interface, whatever the supervisor is doing with guards at that moment.
#[derive(Debug)]
struct Scout {
    set: Arc<GuardSet>,
    /// Names that are to be guarded. Never held for longer than it takes to look one up, or to change them.
    wanted: Mutex<BTreeSet<String>>,
}

/// What the guards' thread and the supervisor share. Neither holds it while it waits for anything but the kernel.
#[derive(Debug)]
struct Post {
    set: Arc<GuardSet>,
    scout: Arc<Scout>,
    /// Interfaces that the policy names, and what their guards let through beyond this gateway.
    named: BTreeMap<String, Terms>,
    /// Those of them that the gateway has made itself: they go with it, and nobody is behind them but Linux.
    made: BTreeMap<String, Option<GuardLock>>,
    links: BTreeMap<LinkIndex, String>,
    guards: BTreeMap<LinkIndex, Kept>,
    /// Guards that an earlier gateway has left on interfaces that the policy does not name.
    left: BTreeSet<LinkIndex>,
    failed: BTreeMap<LinkIndex, String>,
    /// Those of them that another gateway has.
    taken: BTreeSet<LinkIndex>,
}

/// A guard, and whether Linux is reached through it.
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

/// A guard, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    /// The interface.
    pub interface: String,
    /// What it lets through.
    pub state: GuardMode,
    /// Where its programs are pinned, with `-ingress` and `-egress` behind it; none where they end with the gateway.
    pub pin: Option<String>,
    /// Why there is none, where there ought to be one.
    pub trouble: Option<String>,
    /// Rules to `self` that let in nothing while no gateway runs, as they say what a guard cannot look at.
    pub left_out: Vec<String>,
}

/// What a guard lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardMode {
    /// What the gateway delivers to Linux, and what Linux sends through the gateway: its port is open.
    Open,
    /// Nothing: its port is not open.
    Closed,
    /// What it lets through when no gateway runs: the policy in force does not name the interface, an earlier one did.
    Left,
    /// It could not be put on: its port is not opened either.
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
    /// Guards all interfaces of these names that there are, and from then on those that come.
    ///
    /// # Errors
    /// Where Linux does not tell of interfaces.
    pub fn start(pins: &Path, named: BTreeMap<String, Terms>) -> Result<Guards, linux::Error> {
        let (set, unpinned) = GuardSet::open(pins, ports::MARK);
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

    /// Guards what a policy names; what it does not name keeps its guard, and is left.
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

    /// Takes the guards off interfaces that the policy does not name: off these, or all that are left where none is named. Says
    /// of which.
    ///
    /// # Errors
    /// The policy names one of them, or there is no guard on it, or the kernel refuses.
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

    /// Takes all guards off that this gateway governs: its interfaces are Linux's from then on.
    pub fn end_open(&self) {
        let mut post = lock(&self.0);
        post.named.clear();
        post.scouted();
        for kept in std::mem::take(&mut post.guards).into_values().filter(|kept| kept.door != Door::Left) {
            kept.guard.release();
        }
    }

    /// Notes that the gateway makes the interface of this name by itself: no guard is on it.
    pub fn make(&self, name: &str) {
        let mut post = lock(&self.0);
        post.made.insert(name.to_owned(), None);
        post.scouted();
    }

    /// Keeps other gateways from guarding the interface of this name, now that the gateway has made it.
    pub fn made(&self, name: &str) {
        let mut post = lock(&self.0);
        let index = ports::interface_index(name).ok();
        // One that cannot be locked works all the same.
        let locked = index.and_then(|index| post.set.lock(index).ok().flatten());
        post.made.insert(name.to_owned(), locked);
    }

    /// True if another gateway has an interface that is to be guarded.
    pub fn is_taken(&self) -> bool {
        !lock(&self.0).taken.is_empty()
    }

    /// Notes that an interface that the gateway has made is no more.
    pub fn unmake(&self, name: &str) {
        let mut post = lock(&self.0);
        post.made.remove(name);
        post.scouted();
    }

    /// Has Linux reached through the guard of an interface: by the punt whose device is `punt`.
    ///
    /// # Errors
    /// The interface has no guard, or it cannot be opened.
    pub fn open(&self, index: LinkIndex, name: &str, punt: u32) -> Result<(), GuardError> {
        let mut post = lock(&self.0);
        post.put(index, name, None)?;
        if let Some(kept) = post.guards.get_mut(&index) {
            kept.guard.open(punt)?;
            kept.door = Door::Open;
        }
        Ok(())
    }

    /// Closes the guard of an interface, if it has one.
    pub fn close(&self, index: LinkIndex) {
        if let Some(kept) = lock(&self.0).guards.get_mut(&index).filter(|kept| kept.door == Door::Open) {
            kept.door = Door::Closed;
            if let Err(error) = kept.guard.close() {
                error!("{error}");
            }
        }
    }

    /// All guards, by interface.
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

/// Why a guard is not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The policy in force names the interface.
    #[error("the policy in force names \"{0}\": its guard stays while the gateway runs")]
    Named(String),
    /// There is no guard on it.
    #[error("there is no guard on \"{0}\"")]
    Unguarded(String),
    /// Nothing can be pinned, so nothing is.
    #[error("there are no guards: {0}")]
    Unpinned(Unpinned),
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(GuardError),
}

/// Takes guards off interfaces while no gateway runs: off these, or off all where none is named. Says of which.
///
/// # Errors
/// There is no guard on one of them, or it cannot be taken off.
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
    /// Shuts an interface that is seen for the first time, or under another name, and is to be guarded.
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
    /// Tells the guards' thread which names are wanted.
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

    /// Guards what is named, and leaves what is not.
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
        // Of a guard that cannot be pinned no lock says whose it is, but the device of its punt does: it goes with its process.
        let is_taken =
            !self.guards.contains_key(&index) && ports::interface_index(&format!("wr{}", index.0)).is_ok();
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

    /// Puts a guard on an interface that has none of this process's.
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
