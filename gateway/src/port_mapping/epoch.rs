//! Epoch of the server: the time since its state began, by which hosts know that mappings were lost (RFC 6887, section 8.5; RFC 6886,
//! section 3.6).
//!
//! Two gateways that synchronise have one epoch: that of the one which has answered hosts last, so that a failover shows as no loss. A gateway
//! follows the other's as long as it has all of the other's mappings; where it lacks some, its own epoch tells hosts of the loss when they
//! come to it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wire::Nanos;

/// Difference of the last answers of both gateways within which neither was the later one: messages take time.
const TIE: Duration = Duration::from_secs(2);

/// Epoch of a gateway.
#[derive(Debug)]
pub struct Epoch(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    since: Instant,
    /// Last answer to a host.
    answered: Option<Instant>,
    /// All of the second gateway's mappings are here.
    has_all: bool,
}

/// Epoch as it is told to a second gateway: in spans, as clocks need not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EpochRecord {
    /// Time since the state began.
    pub(crate) age: Nanos,
    /// Time since a host was answered last; none: never.
    pub(crate) answered: Option<Nanos>,
}

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch(Mutex::new(State { since: Instant::now(), answered: None, has_all: false }))
    }
}

impl Epoch {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while it held the lock has left times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the state began.
    pub(crate) fn age(&self) -> Duration {
        self.lock().since.elapsed()
    }

    /// Time since the state began, for an answer to a host.
    pub(crate) fn answer(&self) -> Duration {
        let state = &mut *self.lock();
        let now = Instant::now();
        state.answered = Some(now);
        now.duration_since(state.since)
    }

    /// Begins another epoch, by which hosts know that mappings are lost.
    pub(crate) fn begin_anew(&self) {
        let state = &mut *self.lock();
        (state.since, state.has_all) = (Instant::now(), false);
    }

    /// All mappings of the second gateway are here.
    pub(crate) fn has_all(&self) {
        self.lock().has_all = true;
    }

    /// A mapping of the second gateway is not here, or may not be.
    pub(crate) fn lacks_some(&self) {
        self.lock().has_all = false;
    }

    /// Epoch for the second gateway.
    pub(crate) fn record(&self) -> EpochRecord {
        let State { since, answered, .. } = *self.lock();
        EpochRecord {
            age: since.elapsed().into(),
            answered: answered.map(|answered| answered.elapsed().into()),
        }
    }

    /// Follows the second gateway's epoch where hosts know that one.
    pub(crate) fn follow(&self, peer: EpochRecord) {
        let state = &mut *self.lock();
        let now = Instant::now();
        let span = |nanos: Nanos| Duration::from_nanos(nanos.0);
        // Some systems have no time before they came up.
        let Some(since) = now.checked_sub(span(peer.age)).filter(|_| state.has_all) else { return };
        let own = state.answered.map(|answered| now.duration_since(answered));
        let follows = match (peer.answered.map(span), own) {
            (Some(peer), Some(own)) if peer.abs_diff(own) > TIE => peer < own,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // The longer one on both.
            _ => since < state.since,
        };
        if follows {
            state.since = since;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(age: u64, answered: Option<u64>) -> EpochRecord {
        EpochRecord { age: Nanos::from_secs(age), answered: answered.map(Nanos::from_secs) }
    }

    fn age(epoch: &Epoch) -> u64 {
        epoch.age().as_secs()
    }

    #[test]
    fn a_standby_has_the_epoch_of_the_one_that_answers_hosts() {
        let epoch = Epoch::default();
        epoch.has_all();
        epoch.follow(record(1000, Some(5)));
        assert_eq!(age(&epoch), 1000);
        // A loss there is one here.
        epoch.follow(record(3, Some(60)));
        assert_eq!(age(&epoch), 3);
        // Whoever answers now is followed by the other.
        epoch.answer();
        epoch.follow(record(77, Some(60)));
        epoch.follow(record(77, None));
        assert_eq!(age(&epoch), 3);
        let own = epoch.record();
        assert!(own.age >= Nanos::from_secs(3) && own.answered.unwrap() < Nanos::from_secs(1));
    }

    #[test]
    fn where_neither_or_both_answer_the_longer_epoch_holds() {
        let epoch = Epoch::default();
        epoch.has_all();
        epoch.follow(record(500, None));
        epoch.follow(record(400, None));
        assert_eq!(age(&epoch), 500);
        epoch.answer();
        epoch.follow(record(600, Some(1)));
        epoch.follow(record(300, Some(0)));
        assert_eq!(age(&epoch), 600);
    }

    #[test]
    fn who_lacks_mappings_says_so_by_its_own_epoch() {
        let epoch = Epoch::default();
        epoch.follow(record(1000, Some(0)));
        assert_eq!(age(&epoch), 0, "not before all is here");
        epoch.has_all();
        epoch.follow(record(1000, Some(0)));
        epoch.begin_anew();
        epoch.follow(record(1001, Some(0)));
        assert_eq!(age(&epoch), 0);
        epoch.has_all();
        epoch.lacks_some();
        epoch.follow(record(1002, Some(0)));
        assert_eq!(age(&epoch), 0);
    }
}
