//! The machine's time, for the packet path: monotonic, so that setting the clock back changes nothing.

use std::time::Instant;

use wire::Nanos;

/// Counts from the start of the process. Workers read it once a turn.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Begins at [`Clock::BEGIN`].
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The first moment: late enough that a moment before it can be told.
    pub const BEGIN: Nanos = Nanos::from_secs(1);

    /// Now.
    #[inline]
    pub fn now(&self) -> Nanos {
        Clock::BEGIN + Nanos::from(self.start.elapsed())
    }
}
