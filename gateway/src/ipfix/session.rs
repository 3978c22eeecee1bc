//! The exporter's thread: sessions with the collector, and what is sent in them.
//!
//! A collector that is away over TCP has records wait for it, up to a bound; over UDP records are sent whether anybody is there or not.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane::accounting::Record;
use dataplane::flow::Direction;
use policy::model::{Collector, Ipfix, IpfixRecord};
use tracing::{info, warn};

use super::data::{Block, Data, Epoch, Event, Exhausted, Flow, Interface, Pool, Statistics};
use super::exporter::{CollectorState, Parcel, Shared};
use super::interface::{Followed, Interfaces};
use super::message::{Message, Messages};
use super::transport::{SendError, Transport};
use crate::clock::Clock;

/// Data records that wait for a collector.
const MOST_WAITING: usize = 65_536;

/// Interval at which the idle thread looks for commands and for a collector.
const LOOK: Duration = Duration::from_millis(100);

/// Pauses between attempts to reach a collector: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Interval between templates while a collector over UDP is away, and how long it counts as away after a refusal.
const HASTE: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_secs(5);

/// Datagrams that are sent in a row, before a pause of a millisecond: a collector's receive buffer has room for some hundred.
const BURST: u32 = 32;

/// Interval at which the log tells of lost records.
const NEWS: Duration = Duration::from_secs(10);

/// Time limit for the last records when the gateway ends.
const LAST: Duration = Duration::from_secs(2);

/// State of the exporter thread.
pub(super) struct Exporting {
    shared: Arc<Shared>,
    clock: Clock,
    ipfix: Ipfix,
    messages: Messages,
    transport: Option<Transport>,
    interfaces: Interfaces,
    /// Records that wait for a collector.
    waiting: VecDeque<Data<'static>>,
    state: CollectorState,
    /// Time of the next attempt to reach the collector, and the pause after it.
    next_try: Instant,
    pause: Duration,
    /// Time at which templates are due.
    templates: Instant,
    /// Time of the last refusal of a datagram.
    refused: Option<Instant>,
    /// Flow records and events of the last datagram.
    latest: u32,
    /// Datagrams sent in a row.
    burst: u32,
    /// Lost records that the log has told of, and when it did.
    told_lost: u64,
    told_at: Instant,
}

/// Readiness of the collector for records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Yes,
    No,
}

impl Exporting {
    pub(super) fn new(shared: Arc<Shared>, clock: Clock) -> Exporting {
        let now = Instant::now();
        Exporting {
            shared,
            clock,
            ipfix: Ipfix::default(),
            messages: Messages::new(0, 0),
            transport: None,
            interfaces: Interfaces::default(),
            waiting: VecDeque::new(),
            state: CollectorState::None,
            next_try: now,
            pause: FIRST_PAUSE,
            templates: now,
            refused: None,
            latest: 0,
            burst: 0,
            told_lost: 0,
            told_at: now,
        }
    }

    pub(super) fn work(&mut self, receiver: &Receiver<Parcel>) {
        let mut until = None;
        loop {
            let parcel = receiver.recv_timeout(LOOK);
            let is_changed = self.shared.is_changed.swap(false, Ordering::Acquire);
            if self.shared.ends.load(Ordering::Acquire) {
                until = until.or(Some(Instant::now() + LAST));
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            match parcel {
                Ok(parcel) if is_late => self.lose(parcel.data_records()),
                Ok(parcel) => self.take(parcel),
                Err(RecvTimeoutError::Timeout) => self.tend(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if is_changed {
                // What was made under the settings of before.
                while let Ok(parcel) = receiver.try_recv() {
                    self.take(parcel);
                }
                self.hear();
            }
        }
        self.tend();
        self.end_waiting();
    }

    /// Follows the settings of another policy, if there are any.
    fn hear(&mut self) {
        let settings = self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ipfix) = settings.filter(|ipfix| *ipfix != self.ipfix) {
            self.begin(ipfix);
        }
    }

    /// Begins to export by these settings. A session with the same collector goes on.
    pub(super) fn begin(&mut self, ipfix: Ipfix) {
        let before = std::mem::replace(&mut self.ipfix, ipfix);
        if (before.collector, before.domain()) == (self.ipfix.collector, self.ipfix.domain()) {
            self.templates = Instant::now();
            return;
        }
        self.end_waiting();
        self.transport = None;
        (self.next_try, self.pause, self.refused) = (Instant::now(), FIRST_PAUSE, None);
        self.state = CollectorState::None;
        self.tell(CollectorState::None);
        self.reach();
    }

    /// Gives up the records that wait.
    fn end_waiting(&mut self) {
        let waiting = self.waiting.len() as u64;
        self.waiting.clear();
        self.lose(waiting);
    }

    /// Sends the records of a worker.
    fn take(&mut self, parcel: Parcel) {
        let Parcel { tables, at, mut records, exhausted, back } = parcel;
        let followed = self.interfaces.follow(&tables);
        let ready = self.prepare();
        if followed == Followed::Anew && ready == Ready::Yes {
            self.put_names();
        }
        let epoch = self.epoch();
        for record in &records {
            match record {
                Record::Flow(report) => {
                    let ingress = tables.interface_numbered(report.connection.ingress);
                    let links = [self.interfaces.index(ingress), self.interfaces.index(report.egress)];
                    for direction in [Direction::Original, Direction::Reply] {
                        if let Some(flow) = Flow::of(report, direction, links, epoch) {
                            self.put(Data::Flow(flow), ready);
                        }
                    }
                }
                Record::Nat(event) => {
                    self.put(Data::Session(Event::of(event, epoch.milliseconds(at))), ready)
                }
                Record::Block(event) => {
                    let owner = event.block.pool.and_then(|pool| tables.nat.owners.get(usize::from(pool.0)));
                    let source = owner.and_then(|owner| tables.nat.sources.get(usize::from(owner.source)));
                    let pool = source.map_or(0, |source| source.number);
                    self.put(Data::Block(Block { at: epoch.milliseconds(at), pool, event: *event }), ready);
                }
            }
        }
        for source in exhausted.iter().filter_map(|place| tables.nat.sources.get(*place)) {
            let event = Exhausted { at: epoch.milliseconds(at), pool: source.number };
            self.put(Data::Exhausted(event), ready);
        }
        self.flush();
        records.clear();
        // Whose worker has gone needs it no more.
        let _ = back.try_send(records);
    }

    /// Does what is due without records.
    fn tend(&mut self) {
        self.prepare();
        self.flush();
    }

    /// Says in the log, now and then, how many records were lost.
    fn tell_lost(&mut self) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        let now = Instant::now();
        if lost != self.told_lost && now.duration_since(self.told_at) >= NEWS {
            warn!(records = lost - self.told_lost, "IPFIX records lost, for want of room or of a collector");
            (self.told_lost, self.told_at) = (lost, now);
        }
    }

    /// Reaches for the collector if it is away, sends templates that are due, and what has waited.
    fn prepare(&mut self) -> Ready {
        if self.ipfix.collector.is_none() {
            return Ready::No;
        }
        self.tell_lost();
        if self.transport.as_mut().is_some_and(Transport::has_ended) {
            self.over(&io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        if self.transport.is_none() {
            self.reach();
        }
        if self.transport.is_none() {
            return Ready::No;
        }
        let now = Instant::now();
        let is_over_udp = matches!(self.ipfix.collector, Some(Collector::Udp(_)));
        let in_doubt = self.refused.is_some_and(|refused| now.duration_since(refused) < DOUBT);
        if self.refused.is_some() && !in_doubt {
            self.refused = None;
            self.tell(CollectorState::Up);
        }
        if now >= self.templates {
            let refresh = Duration::from_nanos(self.ipfix.template_refresh().0);
            self.templates = now + if in_doubt && is_over_udp { HASTE.min(refresh) } else { refresh };
            // Over TCP these have been sent once for all; sums are sent again.
            self.put_own(is_over_udp);
        }
        while let Some(data) = self.waiting.pop_front() {
            self.put(data, Ready::Yes);
            if self.transport.is_none() {
                return Ready::No;
            }
        }
        Ready::Yes
    }

    /// Tries to open a session with the collector, if it is time.
    fn reach(&mut self) {
        let Some(collector) = self.ipfix.collector.filter(|_| Instant::now() >= self.next_try) else {
            return;
        };
        match Transport::open(&collector) {
            Ok(transport) => {
                self.transport = Some(transport);
                self.messages = Messages::new(self.ipfix.domain(), Transport::most(&collector));
                self.pause = FIRST_PAUSE;
                self.templates = Instant::now() + Duration::from_nanos(self.ipfix.template_refresh().0);
                self.tell(CollectorState::Up);
                self.put_own(true);
                self.flush();
            }
            Err(error) => {
                if self.state != CollectorState::Down {
                    warn!(%collector, "IPFIX collector cannot be reached; tried again until it can: {error}");
                }
                self.tell(CollectorState::Down);
                self.next_try = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Ends a session that has failed. Records on their way count as lost.
    fn over(&mut self, error: &io::Error) {
        if let Some(transport) = self.transport.take() {
            let unacknowledged = transport.abort();
            self.shared.records.fetch_sub(unacknowledged, Ordering::Relaxed);
            self.lose(unacknowledged);
        }
        if let Some(collector) = &self.ipfix.collector {
            warn!(%collector, "IPFIX session ended; opened again when the collector can be reached: {error}");
        }
        self.tell(CollectorState::Down);
        self.next_try = Instant::now() + self.pause;
    }

    /// Puts the exporter's own records: templates, names of interfaces, and sums.
    fn put_own(&mut self, with_templates: bool) {
        let now = seconds();
        if with_templates {
            self.interfaces.ask();
            for message in self.messages.add_templates(now) {
                self.send(message);
            }
            self.put_names();
        }
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sums = Statistics {
            domain: self.messages.domain(),
            octets: of(&self.shared.octets),
            messages: of(&self.shared.messages),
            records: of(&self.shared.records),
            lost: of(&self.shared.lost),
        };
        if let Some(full) = self.messages.add(&Data::Statistics(sums), now) {
            self.send(full);
        }
    }

    /// Puts the names of interfaces, and of source translations where their events are exported.
    fn put_names(&mut self) {
        let interfaces = std::mem::take(&mut self.interfaces);
        for (index, name) in interfaces.names() {
            self.put_one(&Data::Interface(Interface { index, name }));
        }
        if self.ipfix.has(IpfixRecord::Nat) || self.ipfix.has(IpfixRecord::NatBlock) {
            for (number, name) in interfaces.pools() {
                self.put_one(&Data::Pool(Pool { number, name }));
            }
        }
        self.interfaces = interfaces;
    }

    fn put_one(&mut self, data: &Data<'_>) {
        if let Some(full) = self.messages.add(data, seconds()) {
            self.send(full);
        }
    }

    /// Puts a record into a message, or with those that wait.
    fn put(&mut self, data: Data<'static>, ready: Ready) {
        if ready == Ready::Yes && self.transport.is_some() {
            if let Some(full) = self.messages.add(&data, seconds()) {
                self.send(full);
            }
        } else if self.ipfix.collector.is_some() && self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(data);
        } else {
            self.lose(1);
        }
    }

    /// Sends the message so far.
    fn flush(&mut self) {
        if let Some(message) = self.messages.finish(seconds()) {
            self.send(message);
        }
    }

    fn send(&mut self, message: Message) {
        let records = u64::from(message.flow_records);
        let Some(transport) = &mut self.transport else { return self.lose(records) };
        match transport.send(&message) {
            Ok(()) => {}
            Err(SendError::Refused) => {
                let before = u64::from(self.latest);
                self.shared.records.fetch_sub(before, Ordering::Relaxed);
                self.lose(before);
                self.doubt(None);
            }
            Err(SendError::NotSent(error)) => {
                self.latest = 0;
                self.doubt(Some(&error));
                return self.lose(records);
            }
            Err(SendError::Over(error)) => {
                self.over(&error);
                return self.lose(records);
            }
        }
        self.latest = message.flow_records;
        self.shared.records.fetch_add(records, Ordering::Relaxed);
        self.shared.messages.fetch_add(1, Ordering::Relaxed);
        self.shared.octets.fetch_add(message.bytes.len() as u64, Ordering::Relaxed);
        if matches!(self.ipfix.collector, Some(Collector::Udp(_))) {
            self.burst += 1;
            if self.burst >= BURST {
                self.burst = 0;
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Notes that the collector does not receive datagrams; templates come often from now on, until it does.
    fn doubt(&mut self, error: Option<&io::Error>) {
        if self.refused.is_none() {
            self.templates = Instant::now();
            if let Some(collector) = &self.ipfix.collector {
                match error {
                    None => warn!(%collector, "IPFIX collector refuses datagrams: nobody listens there"),
                    Some(error) => warn!(%collector, "IPFIX messages cannot be sent: {error}"),
                }
            }
        }
        self.refused = Some(Instant::now());
        self.tell(CollectorState::Down);
    }

    /// Counts records that are not sent.
    fn lose(&self, records: u64) {
        self.shared.lost.fetch_add(records, Ordering::Relaxed);
    }

    fn tell(&mut self, state: CollectorState) {
        if self.state != state {
            if let (CollectorState::Up, Some(collector)) = (state, &self.ipfix.collector) {
                let lost = self.shared.lost.load(Ordering::Relaxed);
                info!(%collector, lost, "IPFIX records are sent");
            }
            self.state = state;
        }
        self.shared.state.store(state as u8, Ordering::Relaxed);
    }

    /// Relation of the gateway's clock to the time of day, as it is now.
    fn epoch(&self) -> Epoch {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Epoch { zero: now.saturating_sub(self.clock.now().0) }
    }
}

/// Seconds since 1970.
fn seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32
}
