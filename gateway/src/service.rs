//! What systemd is told, where it is systemd that runs the gateway: that it is ready, that it lives, that it reloads.

use std::env;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

/// How often systemd wants to hear that the gateway lives: twice as often as it must. None where nobody asks.
pub(crate) fn watchdog() -> Option<Duration> {
    let microseconds: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(microseconds / 2)).filter(|interval| !interval.is_zero())
}

/// Ports are open, and commands are taken.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// All threads do what they are for.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The policy is read again; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!("systemd cannot be told of the reload: {error}"),
    }
}

/// The gateway ends.
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
