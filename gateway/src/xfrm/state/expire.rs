//! What ends by itself, and what the data plane tells: bounds reached, SAs needed, peers that moved.

use std::time::Duration;

use policy::model::Binding;

use tracing::warn;

use super::policy::Policies;
use super::{Carrier, Database, Entry, Event, Key, LARVAL, Moment, Protected, SETTLING, removed};
use crate::sa::Spi;
use crate::xfrm::association::Association;
use crate::xfrm::message::{Address, Bound, Group, SaId, Selector, kind};
use crate::xfrm::write;

/// Numbers left of an association without extended ones, at which a new one is asked for.
const RESERVE: u64 = 1 << 20;

impl Database {
    /// Ends what has reached its bounds: allocated SPIs without keys, and associations by time, bytes and packets.
    ///
    /// To be called each second; takes as long as there are associations.
    pub fn expire(&mut self, now: Moment, carrier: &mut dyn Carrier, events: &mut Vec<Event>) {
        let mut gone: Vec<Key> = Vec::new();
        for (key, entry) in &mut self.sas {
            match entry.reached(now, carrier) {
                None => {}
                Some(Bound::Soft) if entry.soft => {}
                Some(bound) => {
                    let header = write::event(kind::EXPIRE);
                    let message = write::expire(&header, &entry.now(now, carrier), bound);
                    events.push(Event { group: Group::Expire, message });
                    entry.soft = true;
                    if bound == Bound::Hard {
                        gone.push(*key);
                    }
                }
            }
        }
        for key in gone {
            if let Some(entry) = self.sas.remove(&key) {
                if let Some(association) = &entry.carried {
                    let spi = Spi(association.spi);
                    warn!(%spi, "hard lifetime of an SA of an IKE daemon reached, or its numbers are used up");
                }
                events.push(removed(&entry, now, carrier));
            }
        }
        self.settle(now, carrier);
    }

    /// Puts associations of processors' own in force whose peers have had the time to take them in.
    fn settle(&mut self, now: Moment, carrier: &mut dyn Carrier) {
        for entry in self.sas.values_mut().filter(|entry| entry.protected.stands_by) {
            let Some(association) = &entry.carried else { continue };
            let Some(protected) = entry.protected_now(association, &self.policies) else { continue };
            if protected.stands_by || !protected.per_cpu || entry.settles(&protected, now) {
                continue;
            }
            if let Err(refusal) = carrier.change(association, association, &protected) {
                warn!(spi = %Spi(association.spi), "the SA of a CPU stays out of use: {refusal}");
            }
            // Once: what is refused now would be refused each second.
            entry.protected = protected;
        }
    }

    /// Tells the daemon that a packet for the tunnel of this sign needs an association, if an outbound policy asks for one. `cpu` is the
    /// processor that needs one of its own beside the one that all have, where the policy asks for those.
    pub fn needed(
        &mut self,
        tunnel: &Binding,
        packet: &Selector,
        cpu: Option<u16>,
        now: Moment,
        events: &mut Vec<Event>,
    ) {
        if let Some(policy) = self.policies.wanting(tunnel, packet) {
            events.extend(self.policies.acquire(policy, packet, cpu, now.elapsed));
        }
    }

    /// Ends an association by the operator's wish, as if it had reached its hard bound: the daemon may make another one.
    pub fn end(&mut self, sa: &SaId, now: Moment, carrier: &mut dyn Carrier, events: &mut Vec<Event>) {
        if let Some(entry) = self.sas.remove(&Key::named(sa)) {
            let message = write::expire(&write::event(kind::EXPIRE), &entry.now(now, carrier), Bound::Hard);
            events.push(Event { group: Group::Expire, message });
            events.push(removed(&entry, now, carrier));
        }
    }

    /// Tells the daemon that the peer of an inbound association sends from another address or port.
    pub fn moved(&self, sa: &SaId, source: Address, port: u16, events: &mut Vec<Event>) {
        if let Some(entry) = self.sas.get(&Key::named(sa)) {
            let message = write::mapping(&entry.sa, source, port);
            events.push(Event { group: Group::Mapping, message });
        }
    }
}

impl Entry {
    /// Protection by its association as policies say now. One that some policy was for stays with what the last one said: it never protects more
    /// for the lack of one.
    pub(super) fn protected_now(&self, association: &Association, policies: &Policies) -> Option<Protected> {
        let mut protected = policies.protected_by(association)?;
        if protected.packets.is_empty() {
            protected.packets.clone_from(&self.protected.packets);
        }
        Some(protected)
    }

    /// True while an association of a processor's own waits for its peer.
    pub(super) fn settles(&self, protected: &Protected, now: Moment) -> bool {
        let of_cpu = self.carried.as_ref().is_some_and(|association| association.cpu.is_some());
        of_cpu && protected.per_cpu && now.elapsed.saturating_sub(self.added) < SETTLING
    }

    /// The strictest bound that is reached.
    fn reached(&self, now: Moment, carrier: &mut dyn Carrier) -> Option<Bound> {
        let age = now.elapsed.saturating_sub(self.added);
        let Some(association) = &self.carried else {
            return (age >= LARVAL).then_some(Bound::Hard);
        };
        let usage = carrier.usage(association);
        let used = self.sa.info.used;
        let bounds = &association.lifetimes;
        let time = |bound: u64, since: Duration| bound != 0 && since.as_secs() >= bound;
        let [soft, hard] = [0, 1].map(|which| {
            let of = |pair: [u64; 2]| if which == 0 { pair[0] } else { pair[1] };
            used.bytes.saturating_add(usage.bytes) >= of(bounds.bytes)
                || used.packets.saturating_add(usage.packets) >= of(bounds.packets)
                || time(of(bounds.added), age)
                || usage.since_first.is_some_and(|since| time(of(bounds.used), since))
        });
        let last = if self.has_esn() { u64::MAX } else { u64::from(u32::MAX) };
        let soft = soft || usage.numbers.sent >= last - RESERVE;
        match (hard, soft) {
            (true, _) => Some(Bound::Hard),
            (false, true) => Some(Bound::Soft),
            (false, false) => None,
        }
    }
}
