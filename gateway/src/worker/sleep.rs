//! Sleep of an idle worker: after a while without frames, until a frame or a command arrives.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::Nanos;

use super::command::WakeUp;
use super::link::Links;

/// Time that an idle worker polls before it sleeps, 100 µs: longer than the gaps of traffic that is worth hurrying
/// for, and nothing beside the time that it then sleeps.
const PATIENCE: Nanos = Nanos(100_000);

/// Longest sleep, 20 ms, since flows have timers. 50 turns a second take well below 1 % of a core.
const LONGEST: Nanos = Nanos::from_millis(20);

/// Idle time of a worker.
pub(super) struct Sleep {
    /// Time of the last turn that found something to do.
    worked: Nanos,
    /// Time until a link is free for a queued frame; none where no frame waits.
    most: Option<Nanos>,
}

impl Sleep {
    pub(super) fn new() -> Sleep {
        Sleep { worked: Nanos(0), most: None }
    }

    /// Notes that the worker was busy at `now`.
    pub(super) fn worked(&mut self, now: Nanos) {
        self.worked = now;
    }

    /// Sets the time until a link is free for a queued frame; `None` where no frame waits.
    pub(super) fn no_longer_than(&mut self, most: Option<Nanos>) {
        self.most = most;
    }

    /// True if the worker has been idle for the polling time, and no link is about to be free.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.since(self.worked) >= PATIENCE && self.most.is_none_or(|most| most >= PATIENCE)
    }

    /// Sleeps until a port is readable, a wake-up arrives, or the longest sleep has passed.
    pub(super) fn until_something(&self, links: &Links, wake_up: &WakeUp) {
        let mut fds: Vec<PollFd<'_>> =
            links.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(wake_up.as_fd(), PollFlags::IN));
        let most = self.most.map_or(LONGEST.0, |most| most.0.min(LONGEST.0));
        let most = Timespec { tv_sec: 0, tv_nsec: most as i64 };
        // An interrupted or refused call is a short sleep.
        let _ = poll(&mut fds, Some(&most));
        wake_up.clear();
    }
}
