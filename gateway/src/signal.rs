//! What the system or an operator tells the process.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::supervisor::Event;

/// Sends on, from now on: SIGTERM and SIGINT as [`Event::Stop`], SIGHUP as [`Event::Reread`] with what is in `file`. That is
/// read on a thread of its own, as it may be long; of several requests meanwhile one is kept.
///
/// # Errors
/// The system refuses a handler or a thread.
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
