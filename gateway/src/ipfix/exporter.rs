//! The channel by which workers give records to the exporter's thread, and the supervisor's handle of it.
//!
//! Buffers go round: a worker fills one, the thread gives it back empty.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use dataplane::accounting::Record;
use dataplane::tables::Tables;
use policy::model::Ipfix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;
use wire::Nanos;

use super::session::Exporting;
use crate::clock::Clock;

/// Records that a buffer has room for. Flows are looked at for their end every eighth of a second, and a buffer is changed between two batches
/// only: so many end within one batch as have begun in such a time, each with the end of its translation.
const ROOM: usize = 16_384;

/// Buffers of a worker on their way, beside the one that it fills.
const BUFFERS: usize = 4;

/// Parcels on their way from all workers.
const DEPTH: usize = 256;

/// Records of a worker.
pub(super) struct Parcel {
    /// Tables that numbers in the records refer to.
    pub(super) tables: Arc<Tables>,
    /// Time of the events among the records.
    pub(super) at: Nanos,
    pub(super) records: Vec<Record>,
    /// Source translations that have had no port left, by place.
    pub(super) exhausted: Vec<usize>,
    /// Channel by which the empty buffer goes back.
    pub(super) back: SyncSender<Vec<Record>>,
}

impl Parcel {
    /// Number of data records that the collector is to get.
    pub(super) fn data_records(&self) -> u64 {
        self.records.iter().map(Record::data_records).sum::<u64>() + self.exhausted.len() as u64
    }
}

/// Worker's end of the channel to the exporter.
pub struct RecordFeed {
    sender: SyncSender<Parcel>,
    back: SyncSender<Vec<Record>>,
    empty: Receiver<Vec<Record>>,
    /// Buffers made so far.
    made: usize,
    shared: Arc<Shared>,
}

/// Supervisor's handle of the exporter.
pub struct Exporter {
    sender: SyncSender<Parcel>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// Commands for the exporter, and its counters.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) settings: Mutex<Option<Ipfix>>,
    pub(super) is_changed: AtomicBool,
    pub(super) ends: AtomicBool,
    pub(super) records: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) octets: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) state: AtomicU8,
}

/// State of the collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollectorState {
    /// The policy has none.
    #[default]
    None,
    /// Records are sent to the collector.
    Up,
    /// The collector cannot be reached, or refuses what is sent.
    Down,
}

/// Counters of exported records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IpfixCounts {
    /// State of the collector.
    pub collector: CollectorState,
    /// Flow records and events sent.
    pub records: u64,
    /// Messages sent.
    pub messages: u64,
    /// Flow records and events made and not sent, or not acknowledged by the collector's host before a connection ended.
    pub lost: u64,
}

impl RecordFeed {
    /// Returns an empty buffer, unless all are on their way.
    pub fn buffer(&mut self) -> Option<Vec<Record>> {
        if let Ok(empty) = self.empty.try_recv() {
            return Some(empty);
        }
        if self.made > BUFFERS {
            return None;
        }
        self.made += 1;
        Some(Vec::with_capacity(ROOM))
    }

    /// Notes that a buffer is gone: another may be made.
    pub(crate) fn made_less(&mut self) {
        self.made = self.made.saturating_sub(1);
    }

    /// Sends records, in a buffer that comes back, and the source translations that have had no port left, by place. Where the channel is full they are counted as lost.
    pub fn send(&self, tables: Arc<Tables>, at: Nanos, records: Vec<Record>, exhausted: Vec<usize>) {
        let parcel = Parcel { tables, at, records, exhausted, back: self.back.clone() };
        if let Err(refused) = self.sender.try_send(parcel) {
            let (TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) = refused;
            self.count_lost(parcel.data_records());
            let mut records = parcel.records;
            records.clear();
            // There is room for all buffers.
            let _ = self.back.try_send(records);
        }
    }

    /// Counts data records that found no room.
    pub fn count_lost(&self, records: u64) {
        self.shared.lost.fetch_add(records, Ordering::Relaxed);
    }
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread.
    pub fn start(ipfix: &Ipfix, clock: Clock) -> io::Result<Exporter> {
        let (sender, receiver) = sync_channel(DEPTH);
        let shared = Arc::new(Shared::default());
        let (exporting, ipfix) = (shared.clone(), ipfix.clone());
        let thread = thread::Builder::new().name("ipfix".to_owned()).spawn(move || {
            let mut exporting = Exporting::new(exporting, clock);
            exporting.begin(ipfix);
            exporting.work(&receiver);
        })?;
        Ok(Exporter { sender, shared, thread })
    }

    /// Returns a sending end of the channel, for a worker.
    pub fn feed(&self) -> RecordFeed {
        let (back, empty) = sync_channel(BUFFERS + 1);
        RecordFeed { sender: self.sender.clone(), back, empty, made: 0, shared: self.shared.clone() }
    }

    /// Switches to the settings of another policy.
    pub fn change(&self, ipfix: &Ipfix) {
        // A thread that panicked while it held the lock has done no harm to the settings.
        *self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(ipfix.clone());
        self.shared.is_changed.store(true, Ordering::Release);
    }

    /// Returns the counters.
    pub fn counts(&self) -> IpfixCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { records, messages, lost, state, .. } = &*self.shared;
        IpfixCounts {
            collector: CollectorState::of(state.load(Ordering::Relaxed)),
            records: of(records),
            messages: of(messages),
            lost: of(lost),
        }
    }

    /// Waits until the last records are sent, or given up; to be called once the workers have ended.
    pub fn finish(self) {
        self.shared.ends.store(true, Ordering::Release);
        drop(self.sender);
        if self.thread.join().is_err() {
            warn!("IPFIX exporter panicked; its last records are lost");
        }
    }
}

impl CollectorState {
    fn of(number: u8) -> CollectorState {
        match number {
            0 => CollectorState::None,
            1 => CollectorState::Up,
            _ => CollectorState::Down,
        }
    }
}
