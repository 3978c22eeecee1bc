//! Panics of a worker: their messages, and the pause after each.

use std::any::Any;
use std::time::Duration;

use wire::Nanos;

/// Bounds of the pause after a repeated panic, which doubles each time, so that a fault that comes with every packet takes
/// neither the core nor the log; no longer than others wait for an answer.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Time without a panic after which the pause is reset.
const CALM: Nanos = Nanos::from_secs(10);

/// Pause after a panic: none after the first one.
#[derive(Default)]
pub(super) struct Backoff {
    /// End of the last pause.
    resumed: Option<Nanos>,
    pause: Duration,
}

impl Backoff {
    /// Returns the pause after a panic at `now`.
    pub(super) fn pause(&mut self, now: Nanos) -> Duration {
        let again = self.resumed.is_some_and(|before| now.since(before) < CALM);
        self.pause = if again { (2 * self.pause).clamp(PAUSE[0], PAUSE[1]) } else { Duration::ZERO };
        self.pause
    }

    /// Notes the end of the pause.
    pub(super) fn resumed(&mut self, now: Nanos) {
        self.resumed = Some(now);
    }
}

/// Message of a panic.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
