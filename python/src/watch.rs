//! Work of seconds or hours that Ctrl-C ends.

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ::chip::plan::Stop;
use pyo3::types::PyAnyMethods;
use pyo3::{Py, PyAny, PyResult, Python};

/// Time between two looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// Does `work` on a thread of its own, without the interpreter lock, while this one looks at signals and calls `tell` with what is
/// `done`. An exception of either asks for a stop, and is raised once the work has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    stop: &Stop,
    tell: Option<&Py<PyAny>>,
    done: &AtomicU64,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    py.detach(|| {
        thread::scope(|scope| {
            let (ended, end) = channel();
            let worker = scope.spawn(move || {
                let outcome = work();
                // The other end is there until this thread has been joined.
                let _ = ended.send(());
                outcome
            });
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(LOOK) {
                if raised.is_none() {
                    raised = Python::attach(|py| look(py, tell, done.load(Ordering::Relaxed))).err();
                    if raised.is_some() {
                        stop.ask();
                    }
                }
            }
            let outcome = worker.join().unwrap_or_else(|fault| panic::resume_unwind(fault));
            raised.map_or(Ok(outcome), Err)
        })
    })
}

fn look(py: Python<'_>, tell: Option<&Py<PyAny>>, done: u64) -> PyResult<()> {
    py.check_signals()?;
    if let Some(tell) = tell {
        tell.bind(py).call1((done,))?;
    }
    Ok(())
}
