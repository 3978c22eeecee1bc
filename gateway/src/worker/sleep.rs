//! Sleep of an idle worker: until a frame or a command arrives, or shortly before a frame departs.
//!
//! Linux wakes a thread some microseconds after the moment that it asked for, and never at it. So a worker wakes up [`EARLY`],
//! and polls its ports and the clock until the departure is due. Between departures further apart it sleeps.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;
use wire::Nanos;

use super::command::WakeUp;
use super::link::Links;
use crate::clock::Clock;

/// Time that an idle worker polls before it sleeps, 100 µs: longer than the gaps of traffic that is worth hurrying
/// for, and nothing beside the time that it then sleeps.
const PATIENCE: Nanos = Nanos(100_000);

/// Time by which a worker wakes up ahead of a departure, 50 µs. On an idle core of a guest most threads whose timer has expired were
/// seen to wake 15 to 45 µs later, as the host has to schedule that core first.
const EARLY: Nanos = Nanos(50_000);

/// Shortest time until a departure that is worth a sleep.
const SHORTEST: Nanos = Nanos(2 * EARLY.0);

/// Longest sleep, 20 ms, since flows have timers. 50 turns a second take well below 1 % of a core.
const LONGEST: Nanos = Nanos::from_millis(20);

/// Longest sleep while a device does not take frames, 100 µs: most devices do not say when they have room again.
const RETRY: Nanos = Nanos(100_000);

/// Lets Linux wake the calling thread at the moment of a timer, in the place of up to 50 µs later.
pub(super) fn without_slack() {
    // Refused, departures are late by as much.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Idle time of a worker.
pub(super) struct Sleep {
    /// Time of the last turn that found something to do.
    worked: Nanos,
    /// Moment at which the next queued frame may depart; none where no frame waits for a link.
    departure: Option<Nanos>,
    /// Longest sleep.
    most: Nanos,
}

impl Sleep {
    pub(super) fn new() -> Sleep {
        Sleep { worked: Nanos(0), departure: None, most: LONGEST }
    }

    /// Notes that the worker was busy at `now` with frames that came.
    pub(super) fn worked(&mut self, now: Nanos) {
        self.worked = now;
    }

    /// Sets the moment at which the next queued frame may depart; `None` where no frame waits for a link.
    pub(super) fn departs_at(&mut self, moment: Option<Nanos>) {
        self.departure = moment;
        self.most = LONGEST;
    }

    /// Notes that a device has not taken all frames.
    pub(super) fn retries(&mut self) {
        self.most = RETRY;
    }

    /// True if a frame waits for its moment.
    pub(super) fn has_departure(&self) -> bool {
        self.departure.is_some()
    }

    /// True if a departure is so near that it is polled for.
    pub(super) fn is_departure_near(&self, now: Nanos) -> bool {
        self.departure.is_some_and(|departure| departure.since(now) < SHORTEST)
    }

    /// True if the worker has been idle for the polling time, and no departure is near.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.since(self.worked) >= PATIENCE && !self.is_departure_near(now)
    }

    /// Sleeps until a port or the link to the second gateway is readable, a wake-up arrives, a departure is near, or the longest sleep has passed.
    pub(super) fn until_something(
        &self,
        links: &Links,
        peer: Option<BorrowedFd<'_>>,
        wake_up: &WakeUp,
        clock: Clock,
    ) {
        let mut fds: Vec<PollFd<'_>> =
            links.fds().chain(peer).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(wake_up.as_fd(), PollFlags::IN));
        let span = Timespec { tv_sec: 0, tv_nsec: self.span(clock.now()).0 as i64 };
        // An interrupted or refused call is a short sleep.
        let _ = poll(&mut fds, Some(&span));
        wake_up.clear();
    }

    /// Length of a sleep that begins now, below a second.
    fn span(&self, now: Nanos) -> Nanos {
        let early = |departure: Nanos| departure.since(now) - EARLY;
        let span = self.departure.map_or(self.most, |departure| early(departure).min(self.most));
        // Whatever its timer slack, `poll` may be late by a thousandth (`select_estimate_accuracy` in Linux).
        span - Nanos(span.0 / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1);

    #[test]
    fn a_departure_ends_a_sleep_early() {
        let mut sleep = Sleep::new();
        for (ahead, slept) in [(20_000, 0), (50_000, 0), (150_000, 99_900), (3_000_000_000, 19_980_000)] {
            sleep.departs_at(Some(NOW + Nanos(ahead)));
            assert_eq!(sleep.span(NOW), Nanos(slept), "{ahead}");
        }
        sleep.departs_at(Some(Nanos(0)));
        assert_eq!(sleep.span(NOW), Nanos(0), "what is due is not slept over");
        sleep.departs_at(None);
        assert_eq!(sleep.span(NOW), Nanos(19_980_000));
    }

    #[test]
    fn a_worker_sleeps_between_departures_and_polls_before_them() {
        let mut sleep = Sleep::new();
        sleep.departs_at(Some(NOW + Nanos(100_000)));
        assert!(sleep.is_due(NOW) && !sleep.is_departure_near(NOW));
        // From the wake-up on, and after the moment, until the frame has gone.
        for moment in [1, 50_000, 99_999, 100_000, 300_000] {
            let then = NOW + Nanos(moment);
            assert!(!sleep.is_due(then) && sleep.is_departure_near(then), "{moment}");
        }
        sleep.departs_at(Some(NOW + Nanos(2_000_000)));
        assert!(sleep.is_due(NOW), "what has departed is no reason to poll");
        sleep.worked(NOW);
        assert!(!sleep.is_due(NOW + Nanos(99_999)), "what has come is");
        assert!(sleep.is_due(NOW + Nanos(100_000)));
    }

    #[test]
    fn a_device_that_is_full_is_tried_again_soon() {
        let mut sleep = Sleep::new();
        sleep.departs_at(None);
        sleep.retries();
        assert!(sleep.span(NOW) <= RETRY);
        sleep.departs_at(None);
        assert!(sleep.span(NOW) > RETRY, "until it has room again");
    }
}
