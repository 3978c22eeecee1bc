//! News for a tunnel's outer packets, from packets that came in: another end of the peer, and a smaller MTU on the way.
//!
//! `decap` takes news in; they hold from [`LAG`] later on, when time passes for the shard. So it does not matter which packets of a
//! batch have left already when one behind them brings news. Then they are an event, by which the host tells the shards that share the
//! tunnel: a packet of the peer comes in at one, and packets to it leave by all.

use std::collections::VecDeque;

use wire::Nanos;

use super::{Given, Peer, SaEvent, SaNews, Sas};
use crate::hop::Hops;
use crate::tables::{Tables, Tunnels};

/// Time from the receipt of news until they hold. Packets that are further apart than that do not go through the stages as one batch.
pub(crate) const LAG: Nanos = Nanos::from_millis(125);

/// Time for which a path MTU holds (RFC 1191, section 6.3; RFC 8201, section 4).
const AGE: Nanos = Nanos::from_secs(600);

/// News for the outer packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNews {
    /// The peer's end is another one.
    Peer {
        /// End from now on.
        peer: Peer,
        /// The policy's word on the peer's end: where the policy says otherwise, this is no news.
        given: Given,
    },
    /// Inner packets of so many bytes cross the way whole.
    Mtu(u16),
}

/// News that do not hold yet, and path MTUs that do.
#[derive(Default)]
pub(super) struct Learnt {
    /// In the order of receipt.
    pending: VecDeque<Pending>,
    /// By the number of the tunnel.
    paths: Vec<Path>,
    /// Nothing is due from the first of these moments to before the second one. Before the first, the clock has been set back.
    quiet: (Nanos, Nanos),
}

struct Pending {
    /// Moment from which they hold.
    at: Nanos,
    tunnel: u16,
    news: PathNews,
}

/// Way to the peer of a tunnel.
#[derive(Clone, Default)]
struct Path {
    /// Largest inner packet that crosses it, and the moment when that is forgotten.
    mtu: Option<(u16, Nanos)>,
    /// Receipt of the latest news of the MTU.
    told: Option<Nanos>,
}

impl Learnt {
    /// Takes the memory for `sources` security associations that come in.
    pub(super) fn new(tunnels: &Tunnels, sources: usize) -> Learnt {
        let count = tunnels.list.len();
        // From each source one within `LAG`: no more than two of each are under way.
        let pending = VecDeque::with_capacity(2 * (count + sources));
        Learnt { pending, paths: vec![Path::default(); count], quiet: (Nanos(0), Nanos::MAX) }
    }

    #[inline(always)]
    fn is_due(&self, now: Nanos) -> bool {
        !self.paths.is_empty() && (now >= self.quiet.1 || now < self.quiet.0)
    }

    pub(super) fn learn(&mut self, tunnel: u16, news: PathNews, now: Nanos) {
        if self.pending.len() < self.pending.capacity() {
            self.pending.push_back(Pending { at: now + LAG, tunnel, news });
            self.wait();
        }
    }

    /// Sets the time until which nothing is due.
    fn wait(&mut self) {
        let pending = self.pending.front().map(|pending| (pending.at, LAG));
        let paths = self.paths.iter().filter_map(|path| path.mtu).map(|(_, until)| (until, AGE));
        self.quiet = pending.into_iter().chain(paths).fold((Nanos(0), Nanos::MAX), |quiet, (at, span)| {
            (quiet.0.max(at.since(span + span)), quiet.1.min(at))
        });
    }

    /// The next news that hold by now, or would have but for a clock that was set back.
    fn next(&mut self, now: Nanos) -> Option<Pending> {
        let is_over = |at: Nanos| now >= at || at.since(now) > LAG + LAG;
        self.pending.front().filter(|pending| is_over(pending.at))?;
        self.pending.pop_front()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending>() + self.paths.capacity() * size_of::<Path>()
    }
}

/// True unless the moment is less than [`LAG`] after the one before; also if the clock was set back.
pub(super) fn is_apart(before: Option<Nanos>, now: Nanos) -> bool {
    before.is_none_or(|before| now.since(before) >= LAG || before.since(now) > LAG)
}

impl Sas {
    /// True if news hold by now, or a path MTU is to be forgotten.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.learnt.is_due(now)
    }

    /// True if the peer of a tunnel is to be followed to the source of a packet.
    #[inline]
    pub(crate) fn is_elsewhere(&self, tunnel: u16, source: Peer) -> bool {
        self.followed.get(usize::from(tunnel)).is_some_and(|followed| followed.is_elsewhere(source))
    }

    /// Takes the source of a tunnel's packet for its peer's end.
    pub(crate) fn follow(&mut self, tunnel: u16, source: Peer, now: Nanos) {
        let Some(followed) = self.followed.get_mut(usize::from(tunnel)) else { return };
        if followed.has_moved(source, now) {
            let given = followed.given();
            self.learnt.learn(tunnel, PathNews::Peer { peer: source, given }, now);
        }
    }

    /// Takes in an MTU of the way to a tunnel's peer: one within [`LAG`].
    pub(crate) fn learn_path_mtu(&mut self, tunnel: u16, mtu: u16, now: Nanos) {
        let Some(path) = self.learnt.paths.get_mut(usize::from(tunnel)) else { return };
        if is_apart(path.told, now) {
            path.told = Some(now);
            self.learnt.learn(tunnel, PathNews::Mtu(mtu), now);
        }
    }

    /// Puts news in force that hold by now, and forgets path MTUs of long ago.
    #[cold]
    pub(crate) fn pass_time(&mut self, now: Nanos, hops: &mut Hops, tables: &Tables) {
        while let Some(Pending { at, tunnel, news }) = self.learnt.next(now) {
            if self.is_outdated(tunnel, news) {
                continue;
            }
            if self.put_in_force(tunnel, news, at, hops, tables) {
                self.note(SaEvent { at, tunnel, news: SaNews::Path(news) });
            }
        }
        for (place, path) in self.learnt.paths.iter_mut().enumerate() {
            if path.mtu.is_some_and(|(_, until)| now >= until || until.since(now) > AGE + AGE) {
                path.mtu = None;
                set_mtu(place, u16::MAX, hops, tables);
            }
        }
        self.learnt.wait();
    }

    /// Takes in news of another shard, which hold already.
    pub(super) fn hear(&mut self, tunnel: u16, news: PathNews, at: Nanos, hops: &mut Hops, tables: &Tables) {
        if let PathNews::Peer { peer, given } = news {
            let followed = self.followed.get_mut(usize::from(tunnel));
            if !followed.is_some_and(|followed| followed.has_heard(peer, given, at)) {
                return;
            }
        }
        self.put_in_force(tunnel, news, at, hops, tables);
        self.learnt.wait();
    }

    /// True for news of a peer's end that an IKE daemon has said another word on since.
    fn is_outdated(&self, tunnel: u16, news: PathNews) -> bool {
        let followed = self.followed.get(usize::from(tunnel));
        matches!(news, PathNews::Peer { given, .. } if followed.is_some_and(|now| now.given() != given))
    }

    /// Puts news in force. Returns false if nothing is different.
    fn put_in_force(
        &mut self,
        tunnel: u16,
        news: PathNews,
        at: Nanos,
        hops: &mut Hops,
        tables: &Tables,
    ) -> bool {
        let place = usize::from(tunnel);
        match news {
            PathNews::Peer { peer, .. } => self.set_peer(tunnel, peer),
            PathNews::Mtu(mtu) => {
                let Some(path) = self.learnt.paths.get_mut(place) else { return false };
                // Such a message never makes it larger.
                if path.mtu.is_some_and(|(before, _)| mtu > before) {
                    return false;
                }
                let before = path.mtu.replace((mtu, at + AGE));
                set_mtu(place, mtu, hops, tables);
                before.is_none_or(|(before, _)| mtu < before)
            }
        }
    }

    /// Sends the packets of a tunnel to another end. Returns false if all go there already.
    fn set_peer(&mut self, tunnel: u16, peer: Peer) -> bool {
        let mut is_other = false;
        for sa in self.of_tunnel_mut(tunnel).filter(|sa| peer.takes(sa.udp)) {
            is_other |= sa.peer != peer;
            sa.peer = peer;
        }
        is_other
    }

    /// Puts the peers' ends in force that are pending: a reload keeps these, and forgets path MTUs, as hops do.
    pub(super) fn settle(&mut self) {
        while let Some(Pending { at, tunnel, news }) = self.learnt.pending.pop_front() {
            if let PathNews::Peer { peer, .. } = news {
                if !self.is_outdated(tunnel, news) && self.set_peer(tunnel, peer) {
                    self.note(SaEvent { at, tunnel, news: SaNews::Path(news) });
                }
            }
        }
    }
}

/// Bounds the packets that leave by a tunnel.
fn set_mtu(tunnel: usize, mtu: u16, hops: &mut Hops, tables: &Tables) {
    if let Some(tunnel) = tables.tunnels.list.get(tunnel) {
        hops.bound_mtu(tables, tunnel.interface, mtu);
    }
}
