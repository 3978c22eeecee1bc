//! When a worker sleeps: after a while without frames, until one comes or somebody wants something.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::Nanos;

use super::command::WakeUp;
use super::link::Link;

/// How long a worker looks for frames without finding any before it sleeps: longer than the gaps of traffic that
/// is worth hurrying for, and nothing beside the time that it then sleeps.
const PATIENCE: Nanos = Nanos(100_000);

/// The longest sleep: a worker has flows to look after. 50 turns a second take well below 1 % of a core.
const LONGEST: Nanos = Nanos::from_millis(20);

/// When to sleep, and on what.
pub(super) struct Sleep {
    wake_up: WakeUp,
    worked: Nanos,
    /// How long until a link is free for a frame that waits, where there is such.
    most: Option<Nanos>,
}

impl Sleep {
    pub(super) fn new(wake_up: WakeUp) -> Sleep {
        Sleep { wake_up, worked: Nanos(0), most: None }
    }

    /// Something was done at `now`.
    pub(super) fn worked(&mut self, now: Nanos) {
        self.worked = now;
    }

    /// Frames wait for a link that is free so long from now; `None` where none do.
    pub(super) fn no_longer_than(&mut self, most: Option<Nanos>) {
        self.most = most;
    }

    /// True if nothing has been done for so long that sleeping is better, and no link is about to be free.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.since(self.worked) >= PATIENCE && self.most.is_none_or(|most| most >= PATIENCE)
    }

    /// Sleeps until a port can be read, a command comes, or a while has passed.
    pub(super) fn until_something(&mut self, links: &[Link]) {
        let ends = links.iter().flat_map(|link| link.ends.line.iter().chain(&link.ends.punt));
        let mut fds: Vec<PollFd<'_>> =
            ends.map(|line| PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(self.wake_up.as_fd(), PollFlags::IN));
        let most = self.most.map_or(LONGEST.0, |most| most.0.min(LONGEST.0));
        let most = Timespec { tv_sec: 0, tv_nsec: most as i64 };
        // An interrupted or refused call is a short sleep.
        let _ = poll(&mut fds, Some(&most));
        self.wake_up.clear();
    }
}
