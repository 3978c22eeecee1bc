//! Workers that send by a security association (RFC 9611): all of them, or one that has it to itself.
//!
//! Each shard has the associations that its worker sends by in one list, and those of other workers beside it: whose turn it is is decided
//! when one comes or goes, and no packet asks. One of the worker's own comes before one that all have, whichever is newer.

use super::{Outbound, Sas};

/// Workers that send by a security association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// All workers.
    #[default]
    All,
    /// All workers that have none of their own, each of which asks an IKE daemon for one as it sends.
    Fallback,
    /// The worker of that number alone. Of packets that come in it says which worker the peer has paired it with, and nothing else.
    One(u16),
}

impl Senders {
    /// Number of the only worker that sends; none where all do.
    pub fn only(self) -> Option<u16> {
        match self {
            Senders::One(worker) => Some(worker),
            Senders::All | Senders::Fallback => None,
        }
    }
}

impl Sas {
    /// Associations of packets that leave, of this worker and of others.
    pub(super) fn all_outbound(&self) -> impl Iterator<Item = &Outbound> {
        self.outbound.iter().flatten().chain(&self.elsewhere)
    }

    /// Associations of packets that leave by the tunnel of that number, to change them.
    pub(super) fn of_tunnel_mut(&mut self, tunnel: u16) -> impl Iterator<Item = &mut Outbound> {
        let own = self.outbound.get_mut(usize::from(tunnel)).into_iter().flatten();
        own.chain(self.elsewhere.iter_mut().filter(move |sa| sa.tunnel == tunnel))
    }

    /// List that one is in, or is to be in.
    pub(super) fn list_of(&mut self, sa: &Outbound) -> Option<&mut Vec<Outbound>> {
        match sa.senders.only() {
            Some(worker) if worker != self.worker => Some(&mut self.elsewhere),
            _ => self.outbound.get_mut(usize::from(sa.tunnel)),
        }
    }

    /// Puts one behind those that are to be asked after it: the newest comes first, but one of the worker's own before any other, and of either
    /// kind one without selectors only where no other carries a packet.
    pub(super) fn put_out(&mut self, sa: Outbound) {
        let Some(list) = self.list_of(&sa) else { return };
        let place = list.iter().position(|other| other.rank() > sa.rank());
        list.insert(place.unwrap_or(list.len()), sa);
    }

    /// Takes one out of its list.
    pub(super) fn take_out(&mut self, is_it: impl Fn(&Outbound) -> bool) -> Option<Outbound> {
        let mut lists = self.outbound.iter_mut().chain([&mut self.elsewhere]);
        lists.find_map(|list| list.iter().position(&is_it).map(|place| list.remove(place)))
    }
}

impl Outbound {
    /// Rank in its list: the highest is asked first.
    pub(super) fn rank(&self) -> (bool, bool) {
        (self.senders.only().is_some(), !self.selectors.is_empty())
    }
}
