//! Times of NAT keepalives (RFC 3948, section 4): of tunnels by which nothing has been sent for a while.
//!
//! One worker sends those of all tunnels. The moment of a tunnel's latest packet stands beside the numbers of its keys
//! ([`Sequence`](super::Sequence)), which all workers have in common. A keepalive is due when time passes for the shard, by a frame or without.

use wire::Nanos;

use super::{Outbound, Sas};
use crate::nat::Share;
use crate::tables::Tunnels;

/// Time until a keepalive that could not be sent is tried again, 1 s: as when the link-layer address of the next hop is not known yet.
const RETRY: Nanos = Nanos::from_secs(1);

/// Keepalives of all tunnels that have them; none of a worker that does not send them.
#[derive(Default)]
pub(super) struct Keepalives {
    list: Vec<Keepalive>,
    /// None is due from the first of these moments to before the second one. Before the first, the clock has been set back.
    quiet: (Nanos, Nanos),
}

/// Keepalives of a tunnel.
struct Keepalive {
    /// Number of the tunnel.
    tunnel: u16,
    /// Time without a packet.
    span: Nanos,
    /// Moment of the last one, or of the begin.
    since: Option<Nanos>,
    /// Moment of the last try.
    tried: Option<Nanos>,
}

impl Keepalives {
    /// Returns the keepalives that the worker of that share sends.
    pub(super) fn new(tunnels: &Tunnels, share: Share) -> Keepalives {
        let is_sender = share.worker() == 0;
        let numbered = (0..).zip(&tunnels.list).filter(|_| is_sender);
        let list = numbered.filter_map(|(tunnel, of)| {
            Some(Keepalive { tunnel, span: of.keepalive?, since: None, tried: None })
        });
        Keepalives { list: list.collect(), quiet: (Nanos(0), Nanos::MAX) }
    }

    /// Begins the times that have not begun.
    pub(super) fn begin(&mut self, outbound: &[Vec<Outbound>], now: Nanos) {
        for own in &mut self.list {
            own.since.get_or_insert(now);
        }
        self.wait(outbound, now);
    }

    /// Goes on with the times from before a reload; `becomes` gives the number of a tunnel from then on.
    pub(super) fn go_on(&mut self, before: &Keepalives, becomes: impl Fn(usize) -> Option<u16>) {
        for old in &before.list {
            let number = becomes(usize::from(old.tunnel));
            if let Some(own) = self.list.iter_mut().find(|own| Some(own.tunnel) == number) {
                (own.since, own.tried) = (old.since, old.tried);
            }
        }
    }

    /// Number of a tunnel whose keepalive is due, once until it is to be tried again.
    fn next(&mut self, outbound: &[Vec<Outbound>], now: Nanos) -> Option<u16> {
        for own in &mut self.list {
            if now >= own.due(outbound, now) {
                own.tried = Some(now);
                return Some(own.tunnel);
            }
        }
        self.wait(outbound, now);
        None
    }

    /// Sets the time until which none is due; packets that are sent meanwhile make it longer.
    fn wait(&mut self, outbound: &[Vec<Outbound>], now: Nanos) {
        self.quiet = (Nanos(0), Nanos::MAX);
        for own in &mut self.list {
            let due = own.due(outbound, now);
            self.quiet = (self.quiet.0.max(due.since(own.span + own.span)), self.quiet.1.min(due));
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Keepalive>()
    }
}

impl Keepalive {
    /// Moment when the next one is due. Where all moments are those of a clock that was set back since, the time begins anew.
    fn due(&mut self, outbound: &[Vec<Outbound>], now: Nanos) -> Nanos {
        let may_be = |moment: &Nanos| moment.since(now) <= self.span;
        let sas = outbound.get(usize::from(self.tunnel)).into_iter().flatten();
        let sent = sas.map(|sa| sa.sequence.sent()).chain(self.since).filter(may_be).max();
        let tried = self.tried.filter(may_be).map_or(Nanos(0), |tried| tried + RETRY);
        let since = sent.unwrap_or_else(|| {
            self.since = Some(now);
            now
        });
        (since + self.span).max(tried)
    }
}

impl Sas {
    /// True if a keepalive may be due.
    #[inline(always)]
    pub(crate) fn may_keep_alive(&self, now: Nanos) -> bool {
        now >= self.keepalives.quiet.1 || now < self.keepalives.quiet.0
    }

    /// Number of a tunnel whose keepalive is due, each once.
    pub(crate) fn next_keepalive(&mut self, now: Nanos) -> Option<u16> {
        self.keepalives.next(&self.outbound, now)
    }

    /// Notes that the keepalive of a tunnel has been sent.
    pub(crate) fn note_keepalive(&mut self, tunnel: u16, now: Nanos) {
        if let Some(own) = self.keepalives.list.iter_mut().find(|own| own.tunnel == tunnel) {
            own.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests;
