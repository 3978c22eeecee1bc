//! Mirror of Linux's databases, as far as they are the gateway's business, and what Linux is told in return.
//!
//! **Numbers.** Linux holds the same key, and its policies have it encrypt what Linux itself sends. So that no number is used by both,
//! an association to send with is taken from Linux first: its last number is set to the largest there is, at which Linux drops what
//! it would send by it. What Linux has sent until then is known by its count of packets, which it raises under the same lock; the
//! gateway goes on behind. An association whose numbers are at their end already, and not by the gateway, is nobody's: the daemon is
//! asked for another one.
//!
//! **Start.** What was received before by associations that are older than the gateway is not known. They are not carried either;
//! the daemon is asked for new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::{info, warn};
use wire::esp::Direction;

use super::kernel::{self, Heard, Transport};
use crate::sa::Spi;
use crate::xfrm::association::Association;
use crate::xfrm::message::{
    Ae, Algorithm, Bound, ESN, Group, Header, Policy, PolicyId, Replay, ReplayEsn, Request, Sa, SaId,
    Selector, Used, kind,
};
use crate::xfrm::parse::Refusal;
use crate::xfrm::server::News;
use crate::xfrm::state::{Carrier, Database, Event, Limits, Moment};
use crate::xfrm::write;

/// Numbers that one packet of Linux's takes at most: it may be segmented behind the count (GSO).
const SEGMENTS: u64 = 1 << 16;

/// Flag of an association whose numbers begin again at the end (`XFRM_SA_XFLAG_OSEQ_MAY_WRAP`).
const MAY_WRAP: u32 = 2;

/// Pause after a failed list.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

/// Data plane with the tunnels of a policy.
pub trait Plane: Carrier {
    /// Returns the direction in which a tunnel has use for an association; `None` where none has.
    fn tunnel_for(&mut self, association: &Association) -> Option<Direction>;

    /// The same, to carry associations. By itself Rust makes one of the other from version 1.86 on.
    fn as_carrier(&mut self) -> &mut dyn Carrier;
}

/// Association that was taken from Linux.
struct Disarmed {
    /// As it was taken.
    sa: Sa,
    /// Gone a second ago. After two, no event can be older.
    is_gone: bool,
}

/// See the module.
pub struct Mirror<K> {
    kernel: K,
    plane: Box<dyn Plane + Send>,
    database: Database,
    started: Instant,
    /// Associations that are older than the gateway; none before the first list.
    older: Option<BTreeSet<SaId>>,
    /// Time of the next list; none while events are all that is needed.
    lists_at: Option<Instant>,
    /// Associations to send with, by which Linux sends no more.
    disarmed: BTreeMap<SaId, Disarmed>,
    /// Use that Linux was told last.
    written: BTreeMap<SaId, Used>,
}

impl<K: Transport> Mirror<K> {
    /// Mirror of an empty Linux, which is listed by [`Mirror::follow`].
    pub fn new(limits: Limits, kernel: K, plane: Box<dyn Plane + Send>) -> Mirror<K> {
        let (started, database) = (Instant::now(), Database::new(limits));
        Mirror {
            kernel,
            plane,
            database,
            started,
            older: None,
            lists_at: Some(started),
            disarmed: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    /// Descriptor that is readable when there are events.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.kernel.descriptor()
    }

    /// Lists, where that is due, and takes over what Linux has told since.
    pub fn follow(&mut self) {
        if self.lists_at.is_some_and(|at| at <= Instant::now()) {
            self.lists_at = None;
            if let Err(error) = self.list() {
                warn!("{error}; Linux is asked again");
                self.lists_at = Some(Instant::now() + AFTER_TROUBLE);
            }
        }
        match kernel::changes(&mut self.kernel) {
            Ok(Heard::Changes(changes)) => changes.into_iter().for_each(|change| self.apply(change)),
            Ok(Heard::Lost) => {
                info!("netlink receive buffer of XFRM overrun; resynchronising");
                self.list_soon();
            }
            Err(error) => {
                warn!("receiving from Linux's XFRM: {error}; resynchronising");
                self.lists_at = Some(Instant::now() + AFTER_TROUBLE);
            }
        }
    }

    fn list_soon(&mut self) {
        self.lists_at.get_or_insert_with(Instant::now);
    }

    /// Tells Linux of bounds that are reached, and the use of associations. To be called each second.
    pub fn tick(&mut self) {
        let (now, mut events) = (self.now(), Vec::new());
        self.database.expire(now, self.plane.as_carrier(), &mut events);
        self.tell(&events);
        let uses = self.database.uses(now, self.plane.as_carrier());
        let before = std::mem::take(&mut self.written);
        for ae in uses {
            let Some(used) = ae.used else { continue };
            let known = before.get(&ae.sa).copied();
            // Of an association that is not used, Linux knows as much as there is to know.
            let is_new = known.map_or(used.packets != 0, |known| known != used);
            let told = if is_new { kernel::set(&mut self.kernel, &ae) } else { Ok(()) };
            // One that has gone: its event is under way.
            if let Err(error) = told.or_else(unless_gone) {
                warn!(spi = %Spi(ae.sa.id.spi), "Linux does not take the use of an SA: {error}");
            }
            self.written.insert(ae.sa, used);
        }
        let database = &self.database;
        self.disarmed.retain(|name, own| {
            let was_gone = std::mem::replace(&mut own.is_gone, database.find(name).is_none());
            !(was_gone && own.is_gone)
        });
    }

    /// Takes what the data plane tells.
    pub fn hear(&mut self, news: News) {
        let (now, mut events) = (self.now(), Vec::new());
        match news {
            News::Needed { tunnel, packet, cpu } => {
                self.database.needed(&tunnel, &packet, cpu, now, &mut events);
            }
            // Linux tells MAPPING of packets that it has received itself, and has no message to be told of others.
            News::Moved { .. } => {}
            News::End(name) => {
                self.database.end(&SaId::from(name), now, self.plane.as_carrier(), &mut events);
            }
            // Associations that were Linux's own may be the gateway's now.
            News::Reloaded => self.list_soon(),
        }
        self.tell(&events);
    }

    fn now(&self) -> Moment {
        Moment::now(self.started)
    }

    /// Has Linux tell its daemons what they wait for. Other events of the databases are Linux's own.
    fn tell(&mut self, events: &[Event]) {
        for event in events.iter().filter(|event| matches!(event.group, Group::Acquire | Group::Expire)) {
            // Of one that has gone, Linux has told by itself.
            if let Err(error) = kernel::tell(&mut self.kernel, &event.message).or_else(unless_gone) {
                warn!("Linux does not tell its IKE daemons what they wait for: {error}");
            }
        }
    }

    /// Makes the databases Linux's of now, by a list.
    fn list(&mut self) -> Result<(), crate::linux::Error> {
        // Events first: what changes behind a list is told.
        let failed = |error| crate::linux::Error::new(crate::linux::Operation::ListXfrm, error);
        self.kernel.renew().map_err(failed)?;
        let listed = kernel::list(&mut self.kernel)?;
        let (mut sas, mut policies) = (BTreeSet::new(), Vec::new());
        for object in &listed {
            match object {
                Request::NewSa(sa) if has_keys(sa) => {
                    sas.insert(sa.info.name());
                }
                Request::UpdatePolicy(policy) => policies.push(reference(policy)),
                _ => {}
            }
        }
        match &mut self.older {
            Some(older) => older.retain(|name| sas.contains(name)),
            None => self.older = Some(sas.clone()),
        }
        let gone = self.database.names().into_iter().filter(|name| !sas.contains(name));
        let gone: Vec<Request> = gone.map(Request::DeleteSa).collect();
        let is_listed = |known: &PolicyId| policies.iter().any(|listed| is_same(known, listed));
        let known = self.database.policies().map(reference);
        let ended: Vec<PolicyId> = known.filter(|known| !is_listed(known)).collect();
        gone.into_iter().for_each(|change| self.apply(change));
        // New policies before old ones go: an association protects no more meanwhile than either says.
        listed.into_iter().for_each(|change| self.apply(change));
        ended.into_iter().for_each(|id| self.apply(Request::DeletePolicy(Box::new(id))));
        Ok(())
    }

    /// Takes a change of Linux's over.
    fn apply(&mut self, change: Request) {
        match change {
            Request::NewSa(sa) | Request::UpdateSa(sa) if has_keys(&sa) => self.told_of(own_view(*sa)),
            // Only the SPI is allocated.
            Request::NewSa(_) | Request::UpdateSa(_) => {}
            Request::DeleteSa(id) => {
                if let Some(older) = &mut self.older {
                    older.remove(&id);
                }
                self.change(Request::DeleteSa(id));
            }
            Request::FlushSas(protocol) => {
                // Of ESP are all that can be carried.
                let is_esp = matches!(protocol, 0 | 255 | crate::xfrm::message::ESP);
                self.older.iter_mut().filter(|_| is_esp).for_each(BTreeSet::clear);
                self.change(Request::FlushSas(protocol));
            }
            policy => self.change(policy),
        }
    }

    /// Carries a change out on the databases. One of what is not there changes nothing.
    fn change(&mut self, change: Request) {
        let is_addition =
            matches!(change, Request::NewSa(_) | Request::UpdateSa(_) | Request::UpdatePolicy(_));
        match self.try_change(change) {
            Err(refusal) if is_addition => {
                warn!("what an IKE daemon gave to Linux is not carried: {refusal}")
            }
            _ => {}
        }
    }

    fn try_change(&mut self, change: Request) -> Result<(), Refusal> {
        let now = self.now();
        // Events of the databases are Linux's own.
        self.database
            .handle(&Header::default(), change, now, self.plane.as_carrier(), &mut Vec::new())
            .map(drop)
    }

    fn told_of(&mut self, sa: Sa) {
        let id = sa.info.name();
        if let Some(known) = self.database.find(&id) {
            let is_changed = is_changed(known, &sa);
            let is_ours = self.is_disarmed(&sa);
            if is_ours && (!is_changed || self.try_change(Request::UpdateSa(without_numbers(&sa))).is_ok()) {
                return;
            }
            // Another one of that name.
            self.change(Request::DeleteSa(id));
        }
        // What no suite has is none of the gateway's: Linux may have uses of its own for it.
        let Ok(association) = Association::of(&sa) else { return };
        let Some(direction) = self.plane.tunnel_for(&association) else { return };
        let is_older = self.older.as_ref().is_some_and(|older| older.contains(&id));
        let taken = match direction {
            _ if is_older => Ok(None),
            Direction::In => Ok(Some(sa.clone())),
            Direction::Out => self.disarm(&sa),
        };
        match taken {
            Ok(Some(sa)) => {
                if direction == Direction::Out {
                    self.disarmed.insert(id, Disarmed { sa: sa.clone(), is_gone: false });
                }
                self.change(Request::NewSa(Box::new(sa)));
            }
            Ok(None) => {
                info!(
                    spi = %Spi(id.id.spi),
                    "an SA of Linux's was in use before: the IKE daemon is asked for another one"
                );
                let expired = write::expire(&write::event(kind::EXPIRE), &sa, Bound::Soft);
                self.tell(&[Event { group: Group::Expire, message: expired }]);
            }
            Err(error) => {
                if let Err(error) = unless_gone(error) {
                    warn!(spi = %Spi(id.id.spi), "Linux does not give an SA up, it is not carried: {error}");
                }
            }
        }
    }

    /// True if Linux cannot send by a known association, or never could.
    fn is_disarmed(&mut self, told: &Sa) -> bool {
        if !self.disarmed.contains_key(&told.info.name()) || sent(told) == last(told) {
            return true;
        }
        // The message may be older than what was asked of Linux since.
        let now = kernel::sa(&mut self.kernel, told.info.name(), told);
        now.is_ok_and(|now| sent(&now) == last(&now))
    }

    /// Takes an association to send with from Linux. Returns it with its last number; `None` where that is not known.
    fn disarm(&mut self, like: &Sa) -> io::Result<Option<Sa>> {
        let id = like.info.name();
        let before = kernel::sa(&mut self.kernel, id, like)?;
        if before.extra_flags.unwrap_or(0) & MAY_WRAP != 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its numbers may begin again"));
        }
        if sent(&before) == last(&before) {
            // By the gateway itself, before the association came again: after an event that was older than the list or the question,
            // or with other ends. The data plane goes on with the numbers of its key.
            let own = self.disarmed.values().find(|own| keys(&own.sa) == keys(&before));
            return Ok(own.map(|own| Sa {
                replay: own.sa.replay,
                esn: own.sa.esn.clone(),
                ..own_view(before)
            }));
        }
        let disarmed = Ae {
            sa: id,
            source: before.info.source,
            reqid: before.info.reqid,
            replay: match before.esn {
                Some(_) => None,
                None => Some(Replay { sent: u32::MAX, ..before.replay.unwrap_or_default() }),
            },
            esn: before.esn.clone().map(|esn| ReplayEsn { sent: u64::MAX, ..esn }),
            mark: before.mark,
            ..Ae::default()
        };
        kernel::set(&mut self.kernel, &disarmed)?;
        let after = kernel::sa(&mut self.kernel, id, like)?;
        let meanwhile = after.info.used.packets.saturating_sub(before.info.used.packets);
        let sent = sent(&before).saturating_add(meanwhile.saturating_mul(SEGMENTS));
        if sent >= last(&before) {
            return Ok(None);
        }
        let mut sa = own_view(after);
        match &mut sa.esn {
            Some(esn) => esn.sent = sent,
            None => sa.replay = Some(Replay { sent: sent as u32, ..before.replay.unwrap_or_default() }),
        }
        Ok(Some(sa))
    }
}

/// An association as the databases are to have it: Linux watches bounds of age itself, and completes selectors.
fn own_view(mut sa: Sa) -> Sa {
    sa.info.lifetimes.added = [0; 2];
    // The family alone is what Linux puts into a selector for any packet.
    let family = sa.info.selector.family;
    if sa.info.selector == (Selector { family, ..Selector::default() }) {
        sa.info.selector = Selector::default();
    }
    sa
}

/// An association that is known, without the numbers that Linux was given for it.
fn without_numbers(sa: &Sa) -> Box<Sa> {
    let mut sa = Box::new(Sa { replay: None, ..sa.clone() });
    if let Some(esn) = &mut sa.esn {
        esn.sent = 0;
    }
    sa
}

/// True if Linux has other keys, ends, packets or bounds than are known.
fn is_changed(known: &Sa, told: &Sa) -> bool {
    let of = |sa: &Sa| (sa.info.selector, sa.info.source, sa.info.lifetimes, sa.info.mode, sa.encap);
    of(known) != of(told) || keys(known) != keys(told)
}

fn keys(sa: &Sa) -> [&Option<Algorithm>; 3] {
    [&sa.aead, &sa.cipher, &sa.auth]
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if Errno::from_io_error(&error) == Some(Errno::SRCH) { Ok(()) } else { Err(error) }
}

fn has_keys(sa: &Sa) -> bool {
    sa.aead.is_some() || sa.cipher.is_some() || sa.auth.is_some()
}

/// Reference to a policy by what it is for: Linux's indices are not the databases'.
fn reference(policy: &Policy) -> PolicyId {
    PolicyId {
        selector: policy.info.selector,
        index: 0,
        direction: policy.info.direction,
        mark: policy.mark,
        if_id: policy.if_id,
    }
}

fn is_same(one: &PolicyId, other: &PolicyId) -> bool {
    (one.selector, one.direction) == (other.selector, other.direction)
        && one.mark.unwrap_or_default() == other.mark.unwrap_or_default()
        && one.if_id.unwrap_or(0) == other.if_id.unwrap_or(0)
}

/// Last number that Linux has sent. Without extended numbers, only the lower half counts.
fn sent(sa: &Sa) -> u64 {
    match &sa.esn {
        Some(esn) => esn.sent & last(sa),
        None => sa.replay.map_or(0, |replay| replay.sent.into()),
    }
}

/// Largest number.
fn last(sa: &Sa) -> u64 {
    if sa.info.flags & ESN != 0 { u64::MAX } else { u32::MAX.into() }
}

#[cfg(test)]
mod tests;
