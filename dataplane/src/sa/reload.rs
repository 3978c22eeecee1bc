//! Reload of security associations: what has the same key keeps its numbers and its window, and what was added at run time stays with its tunnel.

use std::collections::HashMap;

use esp::Fingerprint;
use wire::Nanos;

use super::{Inbound, Origin, Outbound, Sas};
use crate::nat::Share;
use crate::tables::Tables;

/// State prepared for other tables. Once applied, the state of before, which another thread frees.
pub(crate) struct SasPlan {
    sas: Sas,
    /// Numbers of tunnels in the new tables, by those in the old ones.
    tunnels: Vec<Option<u16>>,
    /// Places in the new state by fingerprint: of packets that come in, and of the tunnels of those that leave.
    inbound: HashMap<Fingerprint, usize>,
    outbound: HashMap<Fingerprint, u16>,
    retired: (Vec<Inbound>, Vec<Outbound>),
}

impl SasPlan {
    /// Prepares the state of the shard of that share for the new tables.
    pub(crate) fn prepare(old: &Tables, new: &Tables, share: Share) -> SasPlan {
        let sas = Sas::new(new, share);
        let number = |tables: &Tables, tunnel: &crate::tables::Tunnel| tables.number_of(tunnel.interface);
        let becomes = |tunnel| {
            let place = new.tunnels.list.iter().position(|one| number(new, one) == number(old, tunnel))?;
            u16::try_from(place).ok()
        };
        let old_sas = old.tunnels.list.iter().map(|tunnel| 1 + tunnel.inward.len()).sum::<usize>();
        let room = old_sas + 2 * (old.limits.sas + new.limits.sas) as usize;
        SasPlan {
            tunnels: old.tunnels.list.iter().map(becomes).collect(),
            inbound: sas.inbound.iter().map(|sa| sa.fingerprint).zip(0..).collect(),
            outbound: sas.outbound.iter().flatten().map(|sa| (sa.fingerprint, sa.tunnel)).collect(),
            retired: (Vec::with_capacity(room), Vec::with_capacity(room)),
            sas,
        }
    }

    /// Puts the new state in force. The retired state stays here.
    pub(crate) fn apply(&mut self, sas: &mut Sas, now: Nanos) {
        sas.settle();
        let SasPlan { sas: new, tunnels, inbound, outbound, retired } = self;
        let becomes = |tunnel: usize| tunnels.get(tunnel).copied().flatten();
        for mut sa in sas.inbound.drain(..) {
            let tunnel = becomes(usize::from(sa.tunnel));
            if let Some(same) = inbound.get(&sa.fingerprint).and_then(|place| new.inbound.get_mut(*place)) {
                same.go_on(&mut sa);
            } else if let (Origin::Added | Origin::Ike, Some(tunnel)) = (sa.origin, tunnel) {
                // A smaller limit may have no room for it.
                let has_room = new.inbound.len() < new.inbound.capacity();
                if has_room && !new.index.contains_key(&(sa.spi, sa.destination)) {
                    new.receive(Inbound { tunnel, ..sa });
                    continue;
                }
            }
            retired.0.push(sa);
        }
        for (tunnel, list) in sas.outbound.iter_mut().enumerate() {
            for mut sa in list.drain(..) {
                let same = outbound
                    .get(&sa.fingerprint)
                    .and_then(|tunnel| new.outbound.get_mut(usize::from(*tunnel)));
                if let Some(same) = same.and_then(|list| list.first_mut()) {
                    same.go_on(&mut sa);
                } else if let (Origin::Added | Origin::Ike, Some(after)) = (sa.origin, becomes(tunnel)) {
                    if let Some(list) = new.outbound.get_mut(usize::from(after)) {
                        list.push(Outbound { tunnel: after, ..sa });
                        continue;
                    }
                }
                retired.1.push(sa);
            }
        }
        for sa in sas.elsewhere.drain(..) {
            match becomes(usize::from(sa.tunnel)) {
                Some(tunnel) if new.elsewhere.len() < new.elsewhere.capacity() => {
                    new.elsewhere.push(Outbound { tunnel, ..sa });
                }
                _ => retired.1.push(sa),
            }
        }
        for (tunnel, followed) in sas.followed.iter().enumerate() {
            if let Some(same) = becomes(tunnel).and_then(|after| new.followed.get_mut(usize::from(after))) {
                same.go_on(followed);
            }
        }
        new.keepalives.go_on(&sas.keepalives, becomes);
        sas.events.renumber(|tunnel| becomes(usize::from(tunnel)));
        std::mem::swap(&mut sas.events, &mut new.events);
        std::mem::swap(sas, new);
        sas.begin(now);
    }
}

impl Inbound {
    /// Goes on with the window and the counts of another one under the same key.
    pub(super) fn go_on(&mut self, old: &mut Inbound) {
        if old.window.size() == self.window.size() {
            std::mem::swap(&mut old.window, &mut self.window);
        } else {
            // What is on its way from before the reload is lost, rather than taken twice.
            self.window.close_at(old.window.top());
            self.lost_before = old.window.lost();
        }
        self.lost_before += old.lost_before;
        self.life.go_on(&old.life);
        self.replays_told = old.replays_told;
        std::mem::swap(&mut old.sequence, &mut self.sequence);
    }
}

impl Outbound {
    /// Goes on with the numbers, the peer's end and the counts of another one under the same key.
    pub(super) fn go_on(&mut self, old: &mut Outbound) {
        std::mem::swap(&mut old.sequence, &mut self.sequence);
        if old.given == self.given {
            self.peer = old.peer;
        }
        self.life.go_on(&old.life);
    }
}
