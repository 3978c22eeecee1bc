//! The process: the files that it keeps, what it may do, its log, and its life as systemd sees it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use policy::model::Gateway;
use tracing::error;

use super::worker::Workers;
use crate::privilege::{Confinement, Held, Places};
use crate::server::Server;
use crate::{log, service};

/// What the process has for as long as it lives.
pub(super) struct Process {
    /// The file that policies are read from.
    pub(super) policy_file: PathBuf,
    /// Where flows are kept over a restart; not at all where absent.
    pub(super) state_file: Option<PathBuf>,
    /// When it started.
    pub(super) started: Instant,
    /// When systemd is next told that the gateway lives; never where it does not ask.
    pub(super) watchdog: Option<Watchdog>,
    /// Writes what workers log.
    pub(super) log: log::Writer,
    /// Files that the process keeps, as it was restricted to them.
    pub(super) places: Places,
    /// What the process may do.
    pub(super) confinement: Confinement,
    pub(super) _held: Held,
    pub(super) _server: Server,
}

/// When systemd is next told that the gateway lives.
pub(super) struct Watchdog {
    interval: Duration,
    pub(super) next: Instant,
}

impl Watchdog {
    /// The watchdog that systemd asks for, due at once.
    pub(super) fn of_service() -> Option<Watchdog> {
        service::watchdog().map(|interval| Watchdog { interval, next: Instant::now() })
    }
}

impl Process {
    /// Tells systemd that the gateway lives, when it is time and all workers do.
    pub(super) fn show_life(&mut self, workers: &Workers) {
        let now = Instant::now();
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.next <= now) else { return };
        watchdog.next = now + watchdog.interval;
        if workers.all_respond() {
            service::alive();
        } else {
            error!("a worker does not respond; the watchdog is not fed");
        }
    }

    /// The first thing in which `new` differs from `old` that cannot change while the gateway runs.
    pub(super) fn needs_restart(&self, old: &Gateway, new: &Gateway) -> Option<String> {
        if old.workers.unwrap_or(1) != new.workers.unwrap_or(1) {
            return Some("the number of workers".to_owned());
        }
        if (old.metrics, &old.metrics_access) != (new.metrics, &new.metrics_access) {
            return Some("where metrics are given".to_owned());
        }
        let elsewhere = self.places.out_of_reach(new).filter(|_| self.confinement.landlock.is_some())?;
        Some(format!("the directory of log files to that of {}", elsewhere.display()))
    }
}
