//! Clocks for timestamps of received frames.

use wire::Nanos;

/// `CLOCK_MONOTONIC`, the clock of the ports' receive timestamps.
#[inline]
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`, the clock of the kernel's frame timestamps.
#[inline]
pub(crate) fn wall() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time` only; both clocks exist on every Linux, so that it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
