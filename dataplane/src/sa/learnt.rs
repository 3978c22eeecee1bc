//! News for a tunnel's outer packets, from packets that came in: another end of the peer, and a smaller MTU on the way.
//!
//! `decap` takes news in; they hold from [`LAG`] later on, when time passes for the shard. So it does not matter which packets of a
//! batch have left already when one behind them brings news.

use std::collections::VecDeque;

use wire::Nanos;

use super::{Peer, Sas};
use crate::hop::Hops;
use crate::tables::{Tables, Tunnels};

/// Time from the receipt of news until they hold. Packets that are further apart than that do not go through the stages as one batch.
pub(crate) const LAG: Nanos = Nanos::from_millis(125);

/// Time for which a path MTU holds (RFC 1191, section 6.3; RFC 8201, section 4).
const AGE: Nanos = Nanos::from_secs(600);

/// News for the outer packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The peer's end is another one.
    Peer(Peer),
    /// Inner packets of so many bytes cross the way whole.
    PathMtu(u16),
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
    news: News,
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
        now >= self.quiet.1 || now < self.quiet.0
    }

    pub(super) fn learn(&mut self, tunnel: u16, news: News, now: Nanos) {
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

    /// Takes in an MTU of the way to a tunnel's peer: one within [`LAG`].
    pub(crate) fn learn_path_mtu(&mut self, tunnel: u16, mtu: u16, now: Nanos) {
        let Some(path) = self.learnt.paths.get_mut(usize::from(tunnel)) else { return };
        if is_apart(path.told, now) {
            path.told = Some(now);
            self.learnt.learn(tunnel, News::PathMtu(mtu), now);
        }
    }

    /// Puts news in force that hold by now, and forgets path MTUs of long ago.
    #[cold]
    pub(crate) fn pass_time(&mut self, now: Nanos, hops: &mut Hops, tables: &Tables) {
        while let Some(Pending { at, tunnel, news }) = self.learnt.next(now) {
            let place = usize::from(tunnel);
            match news {
                News::Peer(peer) => {
                    self.outbound.get_mut(place).into_iter().flatten().for_each(|sa| sa.peer = peer);
                }
                News::PathMtu(mtu) => {
                    let Some(path) = self.learnt.paths.get_mut(place) else { continue };
                    // Such a message never makes it larger.
                    if path.mtu.is_none_or(|(before, _)| mtu <= before) {
                        path.mtu = Some((mtu, at + AGE));
                        set_mtu(place, mtu, hops, tables);
                    }
                }
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

    /// Puts the peers' ends in force that are pending: a reload keeps these, and forgets path MTUs, as hops do.
    pub(super) fn settle(&mut self) {
        while let Some(Pending { tunnel, news, .. }) = self.learnt.pending.pop_front() {
            if let (News::Peer(peer), Some(list)) = (news, self.outbound.get_mut(usize::from(tunnel))) {
                list.iter_mut().for_each(|sa| sa.peer = peer);
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
