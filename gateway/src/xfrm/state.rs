//! Databases of security associations (SAD) and policies (SPD, RFC 4301), kept by XFRM messages as Linux keeps its own.
//!
//! Bounded; time is passed. What carries associations out is behind [`Carrier`], and is asked before a request is acknowledged. Keys
//! are only in [`Secret`](wire::esp::Secret)s, and in the answer to a request for one association.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::association::{self, Association, Unsupported};
use super::message::{
    Address, Ae, AllocSpi, ESN, ESP, Errno, Group, Header, Policy, Replay, ReplayEsn, Request, Sa, SaFilter,
    SaId, Thresholds, Used, kind, same_prefix,
};
use super::parse::Refusal;
use super::write::{self, Datagram, KeyUse, Writer};
use crate::sa::Spi;

mod carrier;
mod expire;
mod policy;

pub use carrier::{Carrier, Protected, Usage};
use policy::{Policies, Protecting};

/// Seconds for which an allocated SPI is kept without keys (`net.core.xfrm_acq_expires` of charon).
const LARVAL: Duration = Duration::from_secs(165);

/// SPIs below are reserved (RFC 4303, section 2.1).
const FIRST_SPI: u32 = 256;

/// Moment of a request, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time since a start that does not change.
    pub elapsed: Duration,
    /// Seconds since 1970, for messages.
    pub wall: u64,
}

impl Moment {
    /// This moment, of a process that started then.
    pub fn now(started: Instant) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Moment { elapsed: started.elapsed(), wall }
    }
}

/// Bounds of the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Associations of both directions, allocated SPIs included.
    pub sas: usize,
    /// Policies of all directions.
    pub policies: usize,
}

/// Event for the connections of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Group.
    pub group: Group,
    /// Message.
    pub message: Datagram,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One message.
    One(Datagram),
    /// A list, of which [`Database::next`] returns datagrams.
    List(List),
    /// An acknowledgement, where the request asks for one.
    Done,
    /// Events of these groups, as bits, from now on.
    Subscribed(u32),
}

/// List that is sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    request: Header,
    place: Place,
}

/// Place in a list: behind the object that was sent last. Changes meanwhile cost no object that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Sas(SaFilter, Option<Key>),
    Policies(u32),
    End,
}

/// Name of an association. Marks are no part of it: packets are found by destination and SPI (RFC 4301, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    destination: Address,
    family: u16,
    protocol: u8,
    spi: u32,
}

/// Association of the database.
#[derive(Debug)]
struct Entry {
    /// As its message had it; use and numbers are those of its addition.
    sa: Sa,
    /// In words of the data plane; none while only the SPI is allocated.
    carried: Option<Arc<Association>>,
    /// Protection by it, as the data plane was told last.
    protected: Protected,
    added: Duration,
    /// The daemon has been told that the soft bound is reached.
    soft: bool,
}

/// Time for which an association of a processor's own waits beside another one.
const SETTLING: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Database {
    sas: BTreeMap<Key, Entry>,
    policies: Policies,
    limits: Limits,
    thresholds: Thresholds,
    random: RandomState,
    draws: u64,
}

impl Key {
    fn of(sa: &Sa) -> Key {
        Key::named(&sa.info.name())
    }

    fn named(sa: &SaId) -> Key {
        // The rest of the field is no part of an IPv4 address.
        let destination = sa.id.destination.ip(sa.family).map_or(sa.id.destination, Address::from);
        Key { destination, family: sa.family, protocol: sa.id.protocol, spi: sa.id.spi }
    }
}

fn no_such_sa() -> Refusal {
    Refusal::new(Errno::SRCH, "no SA has this destination and SPI")
}

impl Database {
    /// Empty databases.
    pub fn new(limits: Limits) -> Database {
        Database {
            sas: BTreeMap::new(),
            policies: Policies::default(),
            limits,
            thresholds: Thresholds { v4: None, v6: None },
            random: RandomState::new(),
            draws: 0,
        }
    }

    /// Carries a request out.
    ///
    /// # Errors
    /// Refusal, with what Linux answers in the same case.
    pub fn handle(
        &mut self,
        header: &Header,
        request: Request,
        now: Moment,
        carrier: &mut dyn Carrier,
        events: &mut Vec<Event>,
    ) -> Result<Answer, Refusal> {
        match request {
            Request::Subscribe(groups) => return Ok(Answer::Subscribed(groups)),
            Request::AllocSpi(asked) => return self.allocate(header, *asked, now).map(Answer::One),
            Request::NewSa(sa) => self.add(*sa, now, carrier, events)?,
            Request::UpdateSa(sa) => self.update(*sa, now, carrier, events)?,
            Request::DeleteSa(sa) => {
                let entry = self.sas.remove(&Key::named(&sa)).ok_or_else(no_such_sa)?;
                events.push(removed(&entry, now, carrier));
            }
            Request::FlushSas(protocol) => self.flush(protocol, carrier, events),
            Request::GetSa(sa) => {
                let entry = self.sas.get(&Key::named(&sa)).ok_or_else(no_such_sa)?;
                let header = write::answer_to(header, kind::NEWSA);
                return Ok(Answer::One(write::sa(&header, &entry.now(now, carrier), KeyUse::Shown)));
            }
            Request::ListSas(filter) => {
                return Ok(Answer::List(List { request: *header, place: Place::Sas(filter, None) }));
            }
            Request::NewAe(ae) => self.set_numbers(header, &ae, now, carrier, events)?,
            Request::GetAe(asked) => return self.numbers(header, &asked, now, carrier).map(Answer::One),
            Request::NewPolicy(policy) => {
                let protecting = Protecting::of(&policy);
                self.policies.add(*policy, now, self.limits.policies, events)?;
                self.protect(&protecting, now, carrier);
            }
            Request::UpdatePolicy(policy) => {
                let protecting = Protecting::of(&policy);
                self.policies.update(*policy, now, self.limits.policies, events)?;
                self.protect(&protecting, now, carrier);
            }
            Request::DeletePolicy(id) => {
                let protecting = Protecting::of(&self.policies.remove(&id, events)?);
                self.protect(&protecting, now, carrier);
            }
            Request::GetPolicy(id) => {
                let header = write::answer_to(header, kind::NEWPOLICY);
                let policy = self.used(self.policies.find(&id)?, now, carrier);
                return Ok(Answer::One(write::policy(&header, &policy)));
            }
            Request::ListPolicies => {
                return Ok(Answer::List(List { request: *header, place: Place::Policies(0) }));
            }
            Request::FlushPolicies => self.policies.flush(events),
            Request::SetThresholds(asked) => {
                self.thresholds.v4 = asked.v4.or(self.thresholds.v4);
                self.thresholds.v6 = asked.v6.or(self.thresholds.v6);
            }
            Request::GetSpdInfo => {
                let header = write::answer_to(header, kind::NEWSPDINFO);
                let (counts, most) = (self.policies.counts(), self.limits.policies as u32);
                return Ok(Answer::One(write::spd_info(&header, counts, most, &self.thresholds)));
            }
            Request::GetSadInfo => {
                let header = write::answer_to(header, kind::NEWSADINFO);
                let (count, most) = (self.sas.len() as u32, self.limits.sas as u32);
                return Ok(Answer::One(write::sad_info(&header, count, most)));
            }
            // Of associations that are gone too: so a connection asks the daemon for new ones in the place of those that it knew
            // before a restart of the gateway.
            Request::Expire(sa, bound) => events.push(Event {
                group: Group::Expire,
                message: write::expire(&write::event(kind::EXPIRE), &sa, bound),
            }),
        }
        Ok(Answer::Done)
    }

    /// The association of a name, as its message had it.
    pub fn find(&self, name: &SaId) -> Option<&Sa> {
        self.sas.get(&Key::named(name)).map(|entry| &entry.sa)
    }

    /// Names of all associations.
    pub fn names(&self) -> Vec<SaId> {
        self.sas.values().map(|entry| entry.sa.info.name()).collect()
    }

    /// Use of each association up to now, without its numbers.
    pub fn uses(&self, now: Moment, carrier: &mut dyn Carrier) -> Vec<Ae> {
        let use_of = |entry: &Entry| Ae { replay: None, esn: None, ..ae_of(&entry.now(now, carrier), 0) };
        self.sas.values().map(use_of).collect()
    }

    /// Number of associations, allocated SPIs included.
    pub fn associations(&self) -> usize {
        self.sas.len()
    }

    /// Policies, in the order of their numbers.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// Returns the next datagram of a list; `None` after the last.
    pub fn next(&self, list: &mut List, now: Moment, carrier: &mut dyn Carrier) -> Option<Datagram> {
        let mut writer = Writer::default();
        match &mut list.place {
            Place::Sas(filter, after) => {
                let header = write::part_of_answer_to(&list.request, kind::NEWSA);
                let from = after.map_or(Unbounded, Excluded);
                let rest = self.sas.range((from, Unbounded));
                for (key, entry) in rest.filter(|(_, entry)| filter.takes(&entry.sa)) {
                    writer.sa(&header, &entry.now(now, carrier), KeyUse::Zeros);
                    *after = Some(*key);
                    if writer.is_full() {
                        return Some(writer.finish());
                    }
                }
            }
            Place::Policies(after) => {
                let header = write::part_of_answer_to(&list.request, kind::NEWPOLICY);
                for policy in self.policies.after(*after) {
                    writer.policy(&header, &self.used(policy, now, carrier));
                    *after = policy.info.index;
                    if writer.is_full() {
                        return Some(writer.finish());
                    }
                }
            }
            Place::End => return None,
        }
        let rest = writer.finish();
        if !rest.is_empty() {
            return Some(rest);
        }
        list.place = Place::End;
        Some(write::done(&list.request))
    }

    /// Draws an SPI that is not in use, and keeps it.
    fn allocate(&mut self, header: &Header, asked: AllocSpi, now: Moment) -> Result<Datagram, Refusal> {
        let AllocSpi { sa, min, max } = asked;
        // Whatever else the request has, keys come later.
        let mut sa = Sa { info: sa.info, mark: sa.mark, if_id: sa.if_id, cpu: sa.cpu, ..Sa::default() };
        sa.cpu.map(association::cpu).transpose()?;
        if sa.info.id.protocol != ESP {
            return Err(Unsupported::Protocol(sa.info.id.protocol).into());
        }
        if min > max {
            return Err(Refusal::new(Errno::INVAL, "the smallest SPI is larger than the largest"));
        }
        self.have_room()?;
        let min = min.max(FIRST_SPI);
        let no_spi = || Refusal::new(Errno::NOENT, "all SPIs of this range are in use or reserved");
        let count = u64::from(max) + 1;
        let count = count.checked_sub(u64::from(min)).filter(|count| *count > 0).ok_or_else(no_spi)?;
        self.draws += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.draws);
        let first = hasher.finish();
        // One more than there are in use: so one of them is not.
        let spi = (0..=self.sas.len() as u64)
            .take_while(|step| *step < count)
            .map(|step| min + (first.wrapping_add(step) % count) as u32)
            .find(|spi| {
                sa.info.id.spi = *spi;
                !self.sas.contains_key(&Key::of(&sa))
            })
            .ok_or_else(no_spi)?;
        sa.info.id.spi = spi;
        sa.info.used = Used { added: now.wall, ..Used::default() };
        let message = write::sa(&write::answer_to(header, kind::NEWSA), &sa, KeyUse::Zeros);
        self.sas.insert(Key::of(&sa), Entry::new(sa, None, Protected::default(), now));
        Ok(message)
    }

    fn have_room(&self) -> Result<(), Refusal> {
        if self.sas.len() < self.limits.sas {
            return Ok(());
        }
        Err(Refusal::new(
            Errno::NOBUFS,
            format!("there are {} SAs, as many as there may be", self.limits.sas),
        ))
    }

    fn add(
        &mut self,
        sa: Sa,
        now: Moment,
        carrier: &mut dyn Carrier,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if self.sas.contains_key(&Key::of(&sa)) {
            return Err(Refusal::new(Errno::EXIST, "an SA has this destination and SPI"));
        }
        self.have_room()?;
        let association = Arc::new(Association::of(&sa)?);
        let protected = self.protected_at_first(&association);
        carrier.add(&association, &protected)?;
        self.put(kind::NEWSA, Entry::new(sa, Some(association), protected, now), now, events);
        Ok(())
    }

    fn put(&mut self, told: u16, mut entry: Entry, now: Moment, events: &mut Vec<Event>) {
        let sa = &mut entry.sa;
        if sa.info.used.added == 0 {
            sa.info.used.added = now.wall;
        }
        self.policies.have_sa(sa.info.reqid, sa.cpu);
        let message = write::sa(&write::event(told), sa, KeyUse::Zeros);
        events.push(Event { group: Group::Sa, message });
        self.sas.insert(Key::of(&entry.sa), entry);
    }

    /// Protection by an association that comes now. One of a processor's own waits beside another one that its packets can take: a daemon that answers
    /// adds it before its peer can receive by it, as in a rekeying, and no policy names it later.
    fn protected_at_first(&self, association: &Association) -> Protected {
        let mut protected = self.policies.protected_by(association).unwrap_or_default();
        let is_beside = |entry: &Entry| {
            let other = entry.carried.as_ref().filter(|_| !entry.protected.stands_by);
            other.is_some_and(|other| {
                (other.source, other.destination, other.reqid, other.if_id)
                    == (association.source, association.destination, association.reqid, association.if_id)
                    && (other.cpu.is_none() || other.cpu == association.cpu)
                    && other.spi != association.spi
            })
        };
        let may_settle = protected.per_cpu && association.cpu.is_some();
        protected.stands_by |= may_settle && self.sas.values().any(is_beside);
        protected
    }

    /// Tells the data plane of the packets that associations protect since policies have changed.
    fn protect(&mut self, protecting: &[Protecting], now: Moment, carrier: &mut dyn Carrier) {
        // One that is to stand by goes on until the one in its place is in force.
        for stands_by in [false, true] {
            self.protect_where(stands_by, protecting, now, carrier);
        }
    }

    /// The same for associations that are to stand by, or are not.
    fn protect_where(
        &mut self,
        stands_by: bool,
        protecting: &[Protecting],
        now: Moment,
        carrier: &mut dyn Carrier,
    ) {
        for entry in self.sas.values_mut() {
            let Some(association) = &entry.carried else { continue };
            if !protecting.iter().any(|policy| policy.is_for_one_like(association)) {
                continue;
            }
            let Some(mut protected) = entry.protected_now(association, &self.policies) else { continue };
            protected.stands_by |= entry.protected.stands_by && entry.settles(&protected, now);
            if protected.stands_by != stands_by || protected == entry.protected {
                continue;
            }
            match carrier.change(association, association, &protected) {
                Ok(()) => entry.protected = protected,
                Err(refusal) => {
                    warn!(spi = %Spi(association.spi), "the packets of an SA stay as they are: {refusal}")
                }
            }
        }
    }

    /// A policy with the latest use of its associations.
    fn used(&self, policy: &Policy, now: Moment, carrier: &mut dyn Carrier) -> Policy {
        let protecting = Protecting::of(policy);
        let carried = self.sas.values().filter_map(|entry| entry.carried.as_ref());
        let own = carried.filter(|association| protecting.iter().any(|policy| policy.is_for(association)));
        let latest = own.filter_map(|association| carrier.usage(association).since_last).min();
        let mut policy = policy.clone();
        if let Some(since) = latest {
            policy.info.used.first = now.wall.saturating_sub(since.as_secs());
        }
        policy
    }

    fn update(
        &mut self,
        sa: Sa,
        now: Moment,
        carrier: &mut dyn Carrier,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let entry = self.sas.get_mut(&Key::of(&sa)).ok_or_else(no_such_sa)?;
        let mut association = Association::of(&sa)?;
        // The processor is none of what a later message changes.
        association.cpu = entry.carried.as_ref().map_or(association.cpu, |old| old.cpu);
        let association = Arc::new(association);
        let Some(old) = &entry.carried else {
            let protected = self.protected_at_first(&association);
            carrier.add(&association, &protected)?;
            self.put(kind::UPDSA, Entry::new(sa, Some(association), protected, now), now, events);
            return Ok(());
        };
        if !association.has_keys_of(old) || association.source != old.source || association.mode != old.mode {
            let words = "keys, algorithms, source and mode of an SA stay: remove it and add another";
            return Err(Refusal::new(Errno::INVAL, words));
        }
        carrier.change(old, &association, &entry.protected)?;
        // Linux's `xfrm_state_update` takes these over, and nothing else.
        entry.sa.info.lifetimes = sa.info.lifetimes;
        entry.sa.info.selector = sa.info.selector;
        entry.sa.encap = sa.encap;
        entry.carried = Some(association);
        entry.soft = false;
        let message = write::sa(&write::event(kind::UPDSA), &entry.now(now, carrier), KeyUse::Zeros);
        events.push(Event { group: Group::Sa, message });
        Ok(())
    }

    fn flush(&mut self, protocol: u8, carrier: &mut dyn Carrier, events: &mut Vec<Event>) {
        let stays = |entry: &Entry| !matches!(protocol, 0 | 255) && entry.sa.info.id.protocol != protocol;
        let gone = self.sas.values().filter(|entry| !stays(entry));
        let carried: Vec<&Association> = gone.filter_map(|entry| entry.carried.as_deref()).collect();
        // Together: the data plane waits once for packets that have arrived under them.
        if !carried.is_empty() {
            carrier.remove(&carried);
        }
        self.sas.retain(|_, entry| stays(entry));
        events.push(Event { group: Group::Sa, message: write::flushed_sas(protocol) });
    }

    fn numbers(
        &self,
        header: &Header,
        asked: &Ae,
        now: Moment,
        carrier: &mut dyn Carrier,
    ) -> Result<Datagram, Refusal> {
        let entry = self.sas.get(&Key::named(&asked.sa)).ok_or_else(no_such_sa)?;
        let ae = ae_of(&entry.now(now, carrier), asked.flags);
        Ok(write::ae(&write::answer_to(header, kind::NEWAE), &ae))
    }

    /// Takes numbers over from a daemon. Numbers of packets sent only ever rise: none is used twice under a key.
    fn set_numbers(
        &mut self,
        header: &Header,
        ae: &Ae,
        now: Moment,
        carrier: &mut dyn Carrier,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        const REPLACE: u16 = 0x100;
        if header.flags & REPLACE == 0 || (ae.replay.is_none() && ae.esn.is_none() && ae.used.is_none()) {
            return Err(Refusal::new(Errno::INVAL, "nothing to replace"));
        }
        let entry = self.sas.get_mut(&Key::named(&ae.sa)).ok_or_else(no_such_sa)?;
        let Some(old) = entry.carried.clone() else {
            return Err(Refusal::new(Errno::INVAL, "the SA has no keys yet"));
        };
        let mut sa = entry.now(now, carrier);
        let before = carrier.usage(&old).numbers;
        (sa.replay, sa.esn) = (ae.replay.or(sa.replay), ae.esn.clone().or(sa.esn.take()));
        let association = Arc::new(Association::of(&sa)?);
        if association.numbers.sent < before.sent {
            return Err(Refusal::new(Errno::INVAL, "numbers that are sent already would be used again"));
        }
        carrier.change(&old, &association, &entry.protected)?;
        (entry.sa.replay, entry.sa.esn) = (sa.replay, sa.esn);
        entry.carried = Some(association);
        let told = ae_of(&entry.now(now, carrier), CAUSE_POLICY);
        events.push(Event { group: Group::Ae, message: write::ae(&write::event(kind::NEWAE), &told) });
        Ok(())
    }
}

/// Flag of an event on numbers: they were set by a message (`XFRM_AE_CU`).
const CAUSE_POLICY: u32 = 64;

fn ae_of(sa: &Sa, flags: u32) -> Ae {
    Ae {
        sa: sa.info.name(),
        source: sa.info.source,
        flags,
        reqid: sa.info.reqid,
        replay: if sa.esn.is_none() { Some(sa.replay.unwrap_or_default()) } else { None },
        esn: sa.esn.clone(),
        used: Some(sa.info.used),
        mark: sa.mark,
        cpu: sa.cpu,
    }
}

/// Takes an association out of force, and tells of it.
fn removed(entry: &Entry, now: Moment, carrier: &mut dyn Carrier) -> Event {
    let last = entry.now(now, carrier);
    if let Some(association) = &entry.carried {
        carrier.remove(&[association]);
    }
    Event { group: Group::Sa, message: write::removed_sa(&last) }
}

impl Entry {
    fn new(sa: Sa, carried: Option<Arc<Association>>, protected: Protected, now: Moment) -> Entry {
        Entry { sa, carried, protected, added: now.elapsed, soft: false }
    }

    /// The association with its use and numbers of this moment.
    fn now(&self, now: Moment, carrier: &mut dyn Carrier) -> Sa {
        let mut sa = self.sa.clone();
        let Some(association) = &self.carried else { return sa };
        let usage = carrier.usage(association);
        sa.info.used.bytes += usage.bytes;
        sa.info.used.packets += usage.packets;
        let ago = |since: Duration| now.wall.saturating_sub(since.as_secs());
        if let (0, Some(since)) = (sa.info.used.first, usage.since_first) {
            sa.info.used.first = ago(since);
        }
        sa.last_used = usage.since_last.map(ago);
        sa.info.failures = usage.failures;
        let sent = usage.numbers.sent.max(association.numbers.sent);
        let received = usage.numbers.received.max(association.numbers.received);
        if let Some(esn) = &mut sa.esn {
            let moved = received > esn.received;
            *esn = ReplayEsn { sent, received, ..std::mem::take(esn) };
            // Which of the numbers below were received is not told: all of them, so that none is taken twice.
            if moved {
                esn.bitmap.fill(u32::MAX);
            }
        } else if (sent, received) != (0, 0) {
            let moved = sa.replay.is_none_or(|old| u64::from(old.received) < received);
            let bitmap = if moved { u32::MAX } else { sa.replay.unwrap_or_default().bitmap };
            sa.replay = Some(Replay { sent: sent as u32, received: received as u32, bitmap });
        }
        sa
    }

    fn has_esn(&self) -> bool {
        self.sa.info.flags & ESN != 0
    }
}

impl SaFilter {
    fn takes(&self, sa: &Sa) -> bool {
        let is_of = matches!(self.protocol, 0 | 255) || self.protocol == sa.info.id.protocol;
        is_of
            && self.ends.is_none_or(|ends| {
                (ends.family == 0 || ends.family == sa.info.family)
                    && same_prefix(ends.source, sa.info.source, ends.source_len)
                    && same_prefix(ends.destination, sa.info.id.destination, ends.destination_len)
            })
    }
}

#[cfg(test)]
mod tests;
