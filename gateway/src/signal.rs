//! Signals to the process.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::event::Event;

/// Returns a flag that becomes true on SIGINT or SIGTERM, for an orderly end. A second signal ends the process at once.
///
/// # Errors
/// No signal handler.
pub fn interrupt() -> io::Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Asked in this order: the first signal finds it false.
        signal_hook::flag::register_conditional_default(signal, told.clone())?;
        signal_hook::flag::register(signal, told.clone())?;
    }
    Ok(told)
}

/// Forwards signals as events: SIGTERM and SIGINT as [`Event::Stop`], SIGHUP as [`Event::Reread`] with the content of
/// `file`. A thread of its own reads the file, which may be long; further SIGHUPs meanwhile cause one more read.
///
/// # Errors
/// No signal handler, or no thread.
pub(crate) fn forward(to: Sender<Event>, file: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (ask, asked) = sync_channel(1);
    let sender = to.clone();
    thread::Builder::new().name("reader".to_owned()).spawn(move || {
        while let Ok(()) = asked.recv() {
            if sender.send(Event::Reread(Box::new(policy::load(&file)))).is_err() {
                return;
            }
        }
    })?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                // Where one waits already, what it reads is as new.
                let _ = ask.try_send(());
            } else if to.send(Event::Stop).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
