//! Writer thread for log records, and the channel by which workers send them.
//!
//! The channel is bounded and never blocks: records that find no room are counted by the worker, which later reports
//! their number. Records that an output does not accept are counted here.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use dataplane::log::Record;
use dataplane::tables::Tables;
use policy::model::{Log, LogOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use wire::Nanos;

use super::line::Line;
use super::output::{Failed, Output};
use super::{Format, LeftOut};
use crate::clock::Clock;

/// Depth of the channel, in parcels.
const DEPTH: usize = 256;

/// Interval at which the idle writer checks for commands.
const LOOK: Duration = Duration::from_millis(100);

/// Batch of a worker's records for the writer.
pub(crate) struct Parcel {
    pub(crate) worker: usize,
    /// Tables that indices and numbers in the records refer to.
    pub(crate) tables: Arc<Tables>,
    /// Time of the records.
    pub(crate) at: Nanos,
    pub(crate) records: Vec<Record>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// Worker's end of the channel to the writer.
#[derive(Clone)]
pub struct Feed {
    sender: SyncSender<Parcel>,
    shared: Arc<Shared>,
}

/// Supervisor's handle of the writer.
pub(crate) struct Writer {
    feed: Feed,
    thread: JoinHandle<()>,
}

/// Commands for the writer, and its counters.
#[derive(Default)]
struct Shared {
    outputs: Mutex<Option<Vec<LogOutput>>>,
    is_changed: AtomicBool,
    reopen: AtomicBool,
    written: AtomicU64,
    left_out: AtomicU64,
    not_written: AtomicU64,
}

/// Counters of log records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogCounts {
    /// Records written, counted per output.
    pub written: u64,
    /// Records made and not written, by rate limit or for want of room.
    pub left_out: u64,
    /// Records that an output did not accept.
    pub not_written: u64,
}

impl Feed {
    /// Sends a parcel.
    ///
    /// # Errors
    /// Channel full: returns the parcel.
    pub(crate) fn send(&self, parcel: Parcel) -> Result<(), Parcel> {
        use std::sync::mpsc::TrySendError;
        self.sender.try_send(parcel).map_err(|refused| match refused {
            TrySendError::Full(parcel) | TrySendError::Disconnected(parcel) => parcel,
        })
    }

    /// Counts records not written.
    pub(crate) fn count_left_out(&self, records: u64) {
        self.shared.left_out.fetch_add(records, Ordering::Relaxed);
    }
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread.
    pub(crate) fn start(log: &Log, clock: Clock) -> io::Result<Writer> {
        let (sender, receiver) = sync_channel(DEPTH);
        let shared = Arc::new(Shared::default());
        let feed = Feed { sender, shared: shared.clone() };
        let outputs = log.outputs.clone();
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            let mut writing = Writing { outputs: Vec::new(), fallback: None, shared, clock };
            writing.begin(&outputs);
            writing.work(&receiver);
        })?;
        Ok(Writer { feed, thread })
    }

    /// Returns a sending end of the channel, for a worker.
    pub(crate) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Switches to the outputs of another policy.
    pub(crate) fn change(&self, log: &Log) {
        let shared = &self.feed.shared;
        // A thread that panicked while it held the lock has done no harm to the list.
        let mut outputs = shared.outputs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *outputs = Some(log.outputs.clone());
        shared.is_changed.store(true, Ordering::Release);
    }

    /// Has log files reopened.
    pub(crate) fn reopen(&self) {
        self.feed.shared.reopen.store(true, Ordering::Release);
    }

    /// Returns the counters.
    pub(crate) fn counts(&self) -> LogCounts {
        let shared = &self.feed.shared;
        LogCounts {
            written: shared.written.load(Ordering::Relaxed),
            left_out: shared.left_out.load(Ordering::Relaxed),
            not_written: shared.not_written.load(Ordering::Relaxed),
        }
    }

    /// Waits until all records are written; to be called once the workers have ended.
    pub(crate) fn finish(self) {
        drop(self.feed);
        if self.thread.join().is_err() {
            warn!("log writer panicked; its last records are lost");
        }
    }
}

/// State of the writer thread.
struct Writing {
    outputs: Vec<Output>,
    /// Fallback to standard error, where the journal is unavailable and the only output.
    fallback: Option<Output>,
    shared: Arc<Shared>,
    clock: Clock,
}

impl Writing {
    fn work(&mut self, receiver: &Receiver<Parcel>) {
        loop {
            let parcel = receiver.recv_timeout(LOOK);
            self.hear();
            match parcel {
                Ok(parcel) => self.write_all(&parcel),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn begin(&mut self, outputs: &[LogOutput]) {
        let format = Format::current();
        let outputs = if outputs.is_empty() { &[LogOutput::Stderr] } else { outputs };
        self.outputs = outputs.iter().map(|what| Output::new(what, format)).collect();
        let falls_back = outputs.iter().any(|what| matches!(what, LogOutput::Journald(_)))
            && !outputs.contains(&LogOutput::Stderr);
        self.fallback = falls_back.then(|| Output::new(&LogOutput::Stderr, format));
    }

    /// Carries out pending commands.
    fn hear(&mut self) {
        if self.shared.is_changed.swap(false, Ordering::Acquire) {
            let outputs =
                self.shared.outputs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(outputs) = outputs {
                self.begin(&outputs);
            }
        }
        if self.shared.reopen.swap(false, Ordering::Acquire) {
            self.outputs.iter_mut().for_each(Output::reopen);
        }
    }

    fn write_all(&mut self, parcel: &Parcel) {
        let Parcel { worker, tables, at, records, left_out } = parcel;
        let (worker, now) = (*worker, SystemTime::now());
        let then = now.checked_sub(Duration::from_nanos(self.clock.now().since(*at).0)).unwrap_or(now);
        for record in records {
            self.write(&Line::of(record, tables, then, *at).with("worker", worker));
        }
        for left_out in left_out {
            self.write(&Line::left_out(left_out, tables, then).with("worker", worker));
        }
    }

    fn write(&mut self, line: &Line) {
        let Writing { outputs, fallback, shared, .. } = self;
        for output in outputs {
            let before = output.failed;
            let error = match output.write(line) {
                Ok(()) => {
                    if before == Failed::Yes {
                        info!(output = %output.what, "log output recovered");
                    }
                    shared.written.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(error) => error,
            };
            if before == Failed::No {
                warn!(output = %output.what, "log output failed, records are dropped and counted: {error}");
            }
            let stands_in = fallback.as_mut().filter(|_| matches!(output.what, LogOutput::Journald(_)));
            match stands_in.map(|stands_in| stands_in.write(line)) {
                Some(Ok(())) => &shared.written,
                Some(Err(_)) | None => &shared.not_written,
            }
            .fetch_add(1, Ordering::Relaxed);
        }
    }
}
