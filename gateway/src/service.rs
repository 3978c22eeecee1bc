//! What systemd is told, where it is systemd that runs the gateway: that it is ready, that it lives, that it reloads; and what
//! it keeps for the next gateway, so that between two of them Linux does not answer for either.

use std::env;
use std::os::fd::{BorrowedFd, RawFd};
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

/// Has systemd hold these, and nothing else, until the next gateway has taken over or the service ends for good.
pub(crate) fn keep(bolts: &[BorrowedFd<'_>]) {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let named = || NotifyState::FdName(BOLT);
    let kept = sd_notify::notify(&[NotifyState::FdStoreRemove, named()]).and_then(|()| {
        if bolts.is_empty() {
            Ok(())
        } else {
            sd_notify::notify_with_fds(&[NotifyState::FdStore, named()], bolts)
        }
    });
    if let Err(error) = kept {
        warn!("systemd cannot keep interfaces shut while the gateway restarts: {error}");
    }
}

/// What the gateway before this one has left with systemd. To be asked for once.
pub(crate) fn left_behind() -> Vec<RawFd> {
    match sd_notify::listen_fds() {
        Ok(descriptors) => descriptors.collect(),
        Err(error) => {
            warn!("what systemd has kept cannot be taken over: {error}");
            Vec::new()
        }
    }
}

/// The name under which systemd keeps what shuts interfaces.
const BOLT: &str = "bolt";

fn tell(state: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    if env::var_os("NOTIFY_SOCKET").is_some() {
        if let Err(error) = sd_notify::notify(state) {
            warn!("systemd cannot be told: {error}");
        }
    }
}
