//! Memberships in dynamic sets: conditions on a packet's addresses whose answer changes while the policy stays.

use std::sync::Arc;

use wire::Nanos;

/// End of a packet that a condition looks for in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Source,
    Destination,
}

impl Side {
    fn opposite(self) -> Side {
        match self {
            Side::Source => Side::Destination,
            Side::Destination => Side::Source,
        }
    }
}

/// A condition that an address of a packet is in a dynamic set, or is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    /// Name of the set in the policy.
    pub(super) set: Arc<str>,
    pub(super) side: Side,
    pub(super) is_in: bool,
}

/// Memberships that must all hold, in order, each once; none hold for all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members(Vec<Member>);

impl Members {
    pub(super) fn one(set: &Arc<str>, side: Side, is_in: bool) -> Members {
        Members(vec![Member { set: set.clone(), side, is_in }])
    }

    pub(super) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Memberships of both; `None` if they contradict each other.
    pub(super) fn and(&self, other: &Members) -> Option<Members> {
        let mut both = self.0.clone();
        both.extend_from_slice(&other.0);
        both.sort_unstable();
        both.dedup();
        let contradict = |pair: &[Member]| pair[0].set == pair[1].set && pair[0].side == pair[1].side;
        if both.windows(2).any(contradict) { None } else { Some(Members(both)) }
    }

    /// True if every packet that has these memberships has those of `other`.
    pub(super) fn is_within(&self, other: &Members) -> bool {
        other.0.iter().all(|member| self.0.contains(member))
    }

    /// Membership in a set that is asked for: true where the address must be in it.
    pub(super) fn asks(&self, set: &str, side: Side) -> Option<bool> {
        self.0.iter().find(|member| &*member.set == set && member.side == side).map(|member| member.is_in)
    }

    /// Memberships but for those of one side in one set.
    pub(super) fn without(&self, set: &str, side: Side) -> Members {
        let is_kept = |member: &&Member| &*member.set != set || member.side != side;
        Members(self.0.iter().filter(is_kept).cloned().collect())
    }

    /// Memberships of packets in the opposite direction.
    pub(super) fn turned(&self) -> Members {
        let turn = |member: &Member| Member { side: member.side.opposite(), ..member.clone() };
        let mut turned: Vec<Member> = self.0.iter().map(turn).collect();
        turned.sort_unstable();
        Members(turned)
    }

    pub(super) fn of(&self, side: Side) -> impl Iterator<Item = &Member> {
        self.0.iter().filter(move |member| member.side == side)
    }

    pub(super) fn weight(&self) -> usize {
        self.0.len()
    }
}

/// Addition of a packet's source to a dynamic set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addition {
    /// Name of the set in the policy.
    pub(super) set: Arc<str>,
    /// Lifetime of the element, where it is not the set's.
    pub(super) lasts: Option<Nanos>,
    pub(super) again: Again,
}

/// Effect of an addition on an element that is in the set already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Its time begins anew, as here.
    Renews,
    /// Its time goes on.
    Keeps,
}
