//! Timers of a worker: work that is due from time to time, not in each turn.

use wire::Nanos;

/// Interval of timer work on flows and pending frames while no frames arrive: 20 ms.
const TEND: Nanos = Nanos::from_millis(20);

/// Interval between reads of frames that Linux sends, while ports keep the worker busy: 50 µs. Each read is a system
/// call, and a turn under load takes about as long.
const ORIGINATED: Nanos = Nanos(50_000);

/// Times of such work.
pub(super) struct Timers {
    /// Time of the last timer work on flows and pending frames.
    tended: Nanos,
    /// Time of the last read of frames that Linux sends.
    asked: Nanos,
}

impl Timers {
    pub(super) fn new(now: Nanos) -> Timers {
        Timers { tended: now, asked: Nanos(0) }
    }

    /// True if timer work on flows and pending frames is due.
    #[inline(always)]
    pub(super) fn is_tending_due(&self, now: Nanos) -> bool {
        now.since(self.tended) >= TEND
    }

    /// Notes timer work on flows and pending frames.
    pub(super) fn tended(&mut self, now: Nanos) {
        self.tended = now;
    }

    /// Makes timer work on flows and pending frames due: there are other tables, or other neighbours.
    pub(super) fn tend_at_once(&mut self) {
        self.tended = Nanos(0);
    }

    /// True if a read of frames that Linux sends is due, though ports keep the worker busy.
    #[inline(always)]
    pub(super) fn is_asking_due(&self, now: Nanos) -> bool {
        now.since(self.asked) >= ORIGINATED
    }

    /// Notes a read of frames that Linux sends.
    #[inline(always)]
    pub(super) fn asked(&mut self, now: Nanos) {
        self.asked = now;
    }
}
