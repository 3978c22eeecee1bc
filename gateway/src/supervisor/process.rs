//! Process: its files, privileges and log, and its watchdog of systemd.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use policy::model::Gateway;
use tracing::error;

use super::worker::Workers;
use crate::ipfix::Exporter;
use crate::privilege::{Confinement, Held, Places};
use crate::server::Server;
use crate::sync::Synchroniser;
use crate::{log, service, xfrm};

/// Resources of the process over its lifetime.
pub(super) struct Process {
    /// Policy file.
    pub(super) policy_file: PathBuf,
    /// State file for flows over a restart; none are kept where absent.
    pub(super) state_file: Option<PathBuf>,
    /// Time of the start.
    pub(super) started: Instant,
    /// Watchdog of systemd; none where systemd requests none.
    pub(super) watchdog: Option<Watchdog>,
    /// Writes what workers log.
    pub(super) log: log::Writer,
    /// Sends the flow records and NAT events of workers.
    pub(super) ipfix: Exporter,
    /// Synchronises flows with a second gateway.
    pub(super) sync: Synchroniser,
    /// Files that the process is restricted to.
    pub(super) places: Places,
    /// Privileges of the process.
    pub(super) confinement: Confinement,
    pub(super) _held: Held,
    pub(super) _server: Server,
    /// Source of the SAs of IKE daemons; none where the policy names none.
    pub(super) xfrm: Option<xfrm::linux::Source>,
}

/// Watchdog of systemd: interval and time of the next notification.
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
    /// Notifies the watchdog of systemd when due, provided that all workers respond.
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

    /// Returns the first difference between `old` and `new` that requires a restart.
    pub(super) fn needs_restart(&self, old: &Gateway, new: &Gateway) -> Option<String> {
        if old.workers.unwrap_or(1) != new.workers.unwrap_or(1) {
            return Some("the number of workers".to_owned());
        }
        if (old.metrics, &old.metrics_access) != (new.metrics, &new.metrics_access) {
            return Some("where metrics are given".to_owned());
        }
        if (old.page, &old.page_access) != (new.page, &new.page_access) {
            return Some("where the page is, and who may use it,".to_owned());
        }
        if old.sync != new.sync {
            return Some("the gateway that flows are synchronised with".to_owned());
        }
        if old.xfrm != new.xfrm {
            return Some("where IKE daemons give their SAs".to_owned());
        }
        let elsewhere = self.places.out_of_reach(new).filter(|_| self.confinement.landlock.is_some())?;
        Some(format!("the directory of log files to that of {}", elsewhere.display()))
    }
}
