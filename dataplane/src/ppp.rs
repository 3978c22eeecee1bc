//! PPP sessions that end here (RFC 1661): over Ethernet (RFC 2516) and over ATM (RFC 2364), of either side.
//!
//! A session is a pure state machine: time is passed, and its numbers come of the shard's seed, so that all hosts do the same. One worker,
//! the first, has the sessions: others hand control packets off to it. What all need to know of a session ([`Link`]) is [published](Published) to all of them.
//! [`terminate`](crate::stage::terminate) takes packets of sessions in, `rewrite` and its like put headers in front of those that leave.
//!
//! Memory is that of one session for each interface, and does not grow: a server keeps nothing of clients that it has only made an offer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wire::ethernet::Mac;
use wire::ppp::Protocol;
use wire::{Family, Nanos, PortId, pppoe};

use crate::nat::Share;
use crate::shard::Setup;
use crate::tables::{Session as Settings, Tables};
use crate::verdict::Reason;

mod authentication;
pub mod automaton;
mod control;
mod discovery;
mod lcp;
mod ncp;
mod outbox;
mod random;
mod session;
#[cfg(test)]
mod tests;

pub use outbox::{Kind, MOST as MOST_OUTGOING, Outgoing};

use outbox::Outbox;
use session::{Session, is_due};

/// A session as the data plane needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Link-layer address of the other end.
    pub peer: Mac,
    /// PPPoE session identifier; 0 over ATM.
    pub session: u16,
    /// Largest IP packet that both ends take.
    pub mtu: u16,
    /// IPv4 is open.
    pub v4: bool,
    /// IPv6 is open.
    pub v6: bool,
}

impl Link {
    /// True if packets of an IP version go.
    #[inline(always)]
    pub fn carries(&self, family: Family) -> bool {
        if family == Family::V4 { self.v4 } else { self.v6 }
    }
}

/// News of a session, for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A network protocol is open.
    Opened,
    /// The session has ended.
    Closed,
    /// The other end has refused the password, or had a wrong one.
    AuthenticationFailed,
    /// The other end insists on another IPv4 address of the interface than the policy has: on this one, where it has said so.
    AddressRefused(Option<u32>),
}

/// State of a session that all workers see; one writes.
#[derive(Debug, Default)]
pub struct Published {
    /// Link-layer address, and session identifier in the lower 16 bits.
    ends: AtomicU64,
    /// MTU, and whether there is a session (2), IPv4 (0) and IPv6 (1), above its 16 bits.
    rest: AtomicU32,
    /// Number of changes.
    generation: AtomicU32,
}

impl Published {
    fn set(&self, link: Option<Link>) {
        let Link { peer, session, mtu, v4, v6 } = link.unwrap_or_default();
        let ends = peer.to_bits() << 16 | u64::from(session);
        let bits = u32::from(link.is_some()) << 2 | u32::from(v6) << 1 | u32::from(v4);
        let rest = bits << 16 | u32::from(mtu);
        let (was, had) = (self.ends.load(Ordering::Relaxed), self.rest.load(Ordering::Relaxed));
        if (was, had) != (ends, rest) {
            self.ends.store(ends, Ordering::Relaxed);
            self.rest.store(rest, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// The session's link; `None` while there is no session.
    #[inline(always)]
    fn get(&self) -> Option<Link> {
        let (ends, rest) = (self.ends.load(Ordering::Relaxed), self.rest.load(Ordering::Relaxed));
        let bits = rest >> 16;
        (bits & 4 != 0).then(|| Link {
            peer: Mac::from_bits(ends >> 16),
            session: ends as u16,
            mtu: rest as u16,
            v4: bits & 1 != 0,
            v6: bits & 2 != 0,
        })
    }
}

/// State of a session, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Interface whose link it is.
    pub interface: PortId,
    /// Phase (RFC 1661, section 3.2); `discovery` before.
    pub phase: &'static str,
    /// The link, while there is a session.
    pub link: Option<Link>,
}

/// The sessions of a shard.
#[derive(Debug)]
pub struct Sessions {
    list: Vec<Slot>,
    outbox: Outbox,
    /// Time of the next timer.
    next: Option<Nanos>,
    /// News that nobody has taken yet, of each session the latest.
    has_news: bool,
}

#[derive(Debug)]
struct Slot {
    interface: PortId,
    settings: Arc<Settings>,
    /// The session, on the worker that has it.
    session: Option<Session>,
    published: Arc<Published>,
    /// Change up to which hops have followed; none at first.
    seen: Option<u32>,
}

/// The worker that has the sessions.
pub const OWNER: u16 = 0;

impl Sessions {
    /// Sessions of the tables, none of which has begun.
    pub(crate) fn new(tables: &Tables, setup: &Setup) -> Sessions {
        let Setup { seed, now, share, .. } = *setup;
        let slot = |(place, interface): (usize, &PortId)| {
            let settings = Arc::clone(tables.interface(*interface)?.ppp.as_ref()?);
            let session = (share.worker() == OWNER)
                .then(|| Session::new(Arc::clone(&settings), place as u16, seed, now));
            let published = published(&settings, share);
            Some(Slot { interface: *interface, settings, session, published, seen: None })
        };
        let list: Vec<Slot> = tables.sessions.iter().enumerate().filter_map(slot).collect();
        let outbox = if list.is_empty() { Outbox::default() } else { Outbox::new() };
        let mut sessions = Sessions { list, outbox, next: None, has_news: false };
        sessions.look();
        sessions
    }

    /// Publishes that no session has begun: nothing is known of those of another time.
    pub(crate) fn begin(&self) {
        for slot in self.list.iter().filter(|slot| slot.session.is_some()) {
            slot.published.set(None);
        }
    }

    /// True if there are none.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if a timer is due, or a packet is to be sent.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        !self.list.is_empty() && (self.next.is_some_and(|next| is_due(next, now)) || !self.outbox.is_empty())
    }

    /// Runs the timers that are due.
    pub(crate) fn expire(&mut self, now: Nanos) {
        if !self.next.is_some_and(|next| is_due(next, now)) {
            return;
        }
        for slot in &mut self.list {
            if let Some(session) =
                slot.session.as_mut().filter(|of| of.due().is_some_and(|due| is_due(due, now)))
            {
                session.expire(now, &mut self.outbox);
                slot.published.set(session.link());
            }
        }
        self.look();
    }

    /// The session that a packet is of, among those over one interface, by the sender and the identifier.
    #[inline(always)]
    pub(crate) fn find(&self, places: &[u16], from: Mac, session: u16) -> Option<(u16, Link)> {
        places.iter().find_map(|place| {
            let link = self.link(*place)?;
            (link.peer == from && link.session == session).then_some((*place, link))
        })
    }

    /// The link of the session at a place.
    #[inline(always)]
    pub(crate) fn link(&self, place: u16) -> Option<Link> {
        self.list.get(usize::from(place))?.published.get()
    }

    /// The interface of the session at a place.
    #[inline(always)]
    pub(crate) fn interface(&self, place: u16) -> Option<PortId> {
        Some(self.list.get(usize::from(place))?.interface)
    }

    /// Notes that an IP packet of the peer has come.
    #[inline(always)]
    pub(crate) fn hear(&mut self, place: u16, now: Nanos) {
        if let Some(session) = self.list.get_mut(usize::from(place)).and_then(|slot| slot.session.as_mut()) {
            session.hear(now);
        }
    }

    /// Takes a PPP packet other than IP, from behind its protocol field on.
    ///
    /// # Errors
    /// Why the packet went no further.
    pub(crate) fn receive(
        &mut self,
        place: u16,
        protocol: Protocol,
        bytes: &[u8],
        now: Nanos,
    ) -> Result<(), Reason> {
        let slot = self.list.get_mut(usize::from(place)).ok_or(Reason::InterfaceGone)?;
        let session = slot.session.as_mut().ok_or(Reason::PppSessionUnknown)?;
        let taken = session.receive(protocol, bytes, now, &mut self.outbox);
        slot.published.set(session.link());
        self.look();
        taken
    }

    /// Takes a discovery packet, for one of the sessions over one interface: that with this client, or one that is free.
    ///
    /// # Errors
    /// Why the packet went no further.
    pub(crate) fn discover(
        &mut self,
        places: &[u16],
        from: Mac,
        packet: &pppoe::Packet<'_>,
        now: Nanos,
    ) -> Result<(), Reason> {
        let mut outcome = Err(Reason::PppSessionUnknown);
        let is_asked = matches!(packet.code, pppoe::code::PADI | pppoe::code::PADR);
        let place = if is_asked {
            let may = |place: &&u16, is_with: bool| {
                let session = self.list.get(usize::from(**place)).and_then(|slot| slot.session.as_ref());
                session.is_some_and(|session| {
                    session.is_with(from) == is_with && session.may_answer(from, packet)
                })
            };
            let with = places.iter().find(|place| may(place, true));
            with.or_else(|| places.iter().find(|place| may(place, false))).copied()
        } else {
            None
        };
        for one in place.as_ref().map_or(if is_asked { &[][..] } else { places }, std::slice::from_ref) {
            let Some(slot) = self.list.get_mut(usize::from(*one)) else { continue };
            let Some(session) = &mut slot.session else { continue };
            let taken = session.discover(from, packet, now, &mut self.outbox);
            slot.published.set(session.link());
            if taken != Err(Reason::PppSessionUnknown) {
                outcome = taken;
                break;
            }
        }
        self.look();
        outcome
    }

    /// The next packet to be sent.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing<'_>> {
        self.outbox.take()
    }

    /// True if packets are to be sent.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Tells of each session that has changed since the last call.
    pub(crate) fn follow(&mut self, mut tell: impl FnMut(PortId, Option<Link>)) {
        for slot in &mut self.list {
            let generation = slot.published.generation.load(Ordering::Acquire);
            if slot.seen != Some(generation) {
                slot.seen = Some(generation);
                tell(slot.interface, slot.published.get());
            }
        }
    }

    /// True if there is news.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Takes the news of all sessions, each with its interface.
    pub fn take_news(&mut self, mut tell: impl FnMut(PortId, News)) {
        self.has_news = false;
        for slot in &mut self.list {
            if let Some(news) = slot.session.as_mut().and_then(Session::news) {
                tell(slot.interface, news);
            }
        }
    }

    /// The sessions, for reports: on the worker that has them.
    pub fn views(&self) -> impl Iterator<Item = View> {
        let view = |slot: &Slot| {
            let phase = slot.session.as_ref()?.phase();
            Some(View { interface: slot.interface, phase, link: slot.published.get() })
        };
        self.list.iter().filter_map(view)
    }

    /// Takes over sessions of other tables whose settings are the same.
    pub(crate) fn continue_from(&mut self, others: &mut Sessions) {
        for (place, slot) in self.list.iter_mut().enumerate() {
            let Some(before) = others.list.iter_mut().find(|before| before.settings.is_same(&slot.settings))
            else {
                continue;
            };
            std::mem::swap(&mut slot.published, &mut before.published);
            if let (Some(session), Some(before)) = (&mut slot.session, &mut before.session) {
                std::mem::swap(session, before);
                session.move_to(Arc::clone(&slot.settings), place as u16);
            }
        }
        self.look();
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Sessions>() + self.list.capacity() * size_of::<Slot>() + self.outbox.memory_bytes()
    }

    /// Looks for the next timer, and for news.
    fn look(&mut self) {
        let sessions = || self.list.iter().filter_map(|slot| slot.session.as_ref());
        self.next = sessions().filter_map(Session::due).min();
        self.has_news = sessions().any(Session::has_news);
    }
}

/// State that the workers share; a shard that is alone has its own, like its links.
fn published(settings: &Settings, share: Share) -> Arc<Published> {
    if share.workers() > 1 { Arc::clone(&settings.published) } else { Arc::default() }
}
