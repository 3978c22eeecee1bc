//! Notifications to systemd, if started by systemd: ready, watchdog, reloading, stopping.

use std::env;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

/// Interval of watchdog notifications: half of systemd's timeout. None without a watchdog.
pub(crate) fn watchdog() -> Option<Duration> {
    let microseconds: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(microseconds / 2)).filter(|interval| !interval.is_zero())
}

/// Notifies systemd that ports are open and requests are served.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Notifies the watchdog that all threads make progress.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Notifies systemd of a reload; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!("systemd cannot be told of the reload: {error}"),
    }
}

/// Notifies systemd that the gateway stops.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    if env::var_os("NOTIFY_SOCKET").is_some() {
        if let Err(error) = sd_notify::notify(state) {
            warn!("systemd cannot be told: {error}");
        }
    }
}
