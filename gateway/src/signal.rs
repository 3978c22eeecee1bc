//! What the system or an operator tells the process.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::supervisor::Event;

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
