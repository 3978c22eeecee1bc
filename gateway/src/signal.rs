//! What the system or an operator tells the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::supervisor::Event;

/// Becomes true when the process is told to end (SIGINT, SIGTERM), which it then does in its own time. A second signal ends
/// it at once.
///
/// # Errors
/// The system refuses a handler.
pub fn interrupt() -> io::Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Asked in this order: the first signal finds it false.
        signal_hook::flag::register_conditional_default(signal, told.clone())?;
        signal_hook::flag::register(signal, told.clone())?;
    }
    Ok(told)
}

/// Sends on, from now on: SIGTERM and SIGINT as [`Event::Stop`], SIGHUP as [`Event::Reread`].
///
/// # Errors
/// The system refuses a handler or a thread.
pub(crate) fn forward(to: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let event = if signal == SIGHUP { Event::Reread } else { Event::Stop };
            if to.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
