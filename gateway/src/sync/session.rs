//! A session: what goes over one connection between two gateways, whichever has opened it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dataplane::flow::FlowId;
use dataplane::port_mapping::TakenPortMappings;
use dataplane::set::TakenElements;
use dataplane::state::{Item, Names};
use dataplane::sync::{CopySweep, Taken};
use dataplane::tables::Tables;
use policy::model::Half;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use wire::Nanos;

use super::message::{Greeting, Hello, Message, encode, read};
use super::owner::Ends;
use super::shards::{AT_ONCE, ELEMENTS_AT_ONCE, Lacking, PORT_MAPPINGS_AT_ONCE, Shards};
use super::status::PeerKeys;
use super::{Instance, Shared};
use crate::store::BLOCK_ITEMS;
use crate::worker::{AskedMappings, Changed, Pending, PortMappingsChanged, SetsChanged};

/// Times of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// For greetings.
    pub(super) greeting: Duration,
    /// Silence of the peer after which nothing is handed over to it.
    pub(super) quiet: Duration,
    /// Silence of the peer after which it has gone.
    pub(super) silence: Duration,
    /// Time for which the peer may take nothing.
    pub(super) stuck: Duration,
    /// Interval of signs of life.
    pub(super) alive: Duration,
}

impl Times {
    pub(super) const LIVE: Times = Times {
        greeting: Duration::from_secs(5),
        quiet: Duration::from_secs(1),
        silence: Duration::from_secs(5),
        stuck: Duration::from_secs(10),
        alive: Duration::from_millis(250),
    };
}

/// Pause between two looks for changes, where there were few, and where there were none.
const PAUSE: Duration = Duration::from_millis(5);
const IDLE_PAUSE: Duration = Duration::from_millis(10);

/// Interval of looks for changes of dynamic sets, and requests for such changes in one look: 160,000 elements a second.
const SETS_PAUSE: Duration = Duration::from_millis(100);
const SETS_LOOKS: usize = 8;

/// Pause between two parts of a full synchronisation: 256 flows a millisecond.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Difference of clocks that the log tells of.
const SKEW: f64 = 5.0;

/// End of a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// See [`Greeting::read`].
    #[error(
        "the peer speaks \"{theirs}\", this gateway \"{own}\": nothing is synchronised until both run releases with one version"
    )]
    Version {
        /// Greeting of the peer.
        theirs: String,
        /// Greeting of this gateway.
        own: String,
    },
    #[error("who is at the other end does not greet as a gateway does")]
    NoGreeting,
    #[error("the peer did not introduce itself in time")]
    Late,
    #[error("the connection leads to this gateway itself: `sync` names its own address")]
    Itself,
    #[error("the peer sent what is no message, or out of turn; the connection is closed")]
    NoMessage,
    #[error("a message is too long to be sent: the policy has too many names")]
    TooLong,
    #[error("the peer has been silent for too long, and counts as gone")]
    Silent,
    #[error("the peer has taken nothing for too long; it gets all flows anew when it connects again")]
    Stuck,
    #[error("the peer has closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Read(io::Error),
    #[error("the connection broke: {0}")]
    Write(io::Error),
    #[error("the peer has opened another connection, in the place of this one")]
    Replaced,
    #[error("flows were lost here: the connection begins anew")]
    BegunAnew,
    #[error("the gateway ends")]
    Ending,
}

impl SessionError {
    /// An error in reading where a message would begin.
    pub(super) fn of_read(error: io::Error) -> SessionError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SessionError::Closed,
            _ => SessionError::Read(error),
        }
    }
}

/// Other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met<'a> {
    /// Address, to show.
    pub(super) address: &'a str,
    /// Addresses of both ends, between which frames may be handed over.
    pub(super) ends: Option<Ends>,
}

impl<'a> From<&'a str> for Met<'a> {
    fn from(address: &'a str) -> Met<'a> {
        Met { address, ends: None }
    }
}

/// Memory of the peer from one session to the next.
#[derive(Debug, Default)]
pub(super) struct PeerMemory {
    instance: Option<Instance>,
    /// Round of full synchronisations.
    round: u8,
}

/// Conducts a session until it breaks.
pub(super) async fn conduct<S: AsyncRead + AsyncWrite>(
    stream: S,
    met: impl Into<Met<'_>>,
    shards: &Shards,
    shared: &Shared,
    memory: &mut PeerMemory,
    times: Times,
) -> SessionError {
    let Met { address, ends } = met.into();
    let (from, mut to) = split(stream);
    let mut from = BufReader::with_capacity(1 << 16, from);
    let (own, half) = (shared.instance(), shared.division.half());
    let introduced = timeout(times.greeting, introduce(&mut from, &mut to, own, half)).await;
    let hello = match introduced {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => return error,
        Err(_) => return SessionError::Late,
    };
    let ahead = ahead(&hello);
    if ahead.abs() > SKEW {
        warn!(
            "the peer's clock is {ahead:+.0} seconds off this one's: logs of the two do not agree; flows do not depend on it"
        );
    }
    if memory.instance.is_some_and(|before| before != hello.instance) {
        info!(
            "the peer has begun anew: flows, elements of sets and port mappings that it had are told to it"
        );
        if let Err(error) = shards.adopt().await {
            return error;
        }
    }
    memory.instance = Some(hello.instance);
    shared.epoch.lacks_some();
    shared.account.connected(address, &hello.version, ahead);
    info!(peer = address, version = hello.version, "synchronising");
    let theirs = hello.half.map(|number| Half::of(number.into()));
    let _handing_over = match shared.division.begin(theirs, ends, shards).await {
        Ok(begun) => begun,
        Err(error) => return error,
    };
    let outcome = tokio::select! {
        outcome = listen(&mut from, shards, shared, &mut memory.round, times) => outcome,
        outcome = tell(&mut to, shards, shared, times) => outcome,
        () = shared.begun_anew.notified() => Err(SessionError::BegunAnew),
    };
    // Whoever is at the other end sees that it is over.
    let _ = timeout(Duration::from_millis(100), to.shutdown()).await;
    match outcome {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Nothing: neither side of a session ends but by an error.
enum Never {}

/// Exchanges greetings.
async fn introduce<S: AsyncRead + AsyncWrite>(
    from: &mut BufReader<ReadHalf<S>>,
    to: &mut WriteHalf<S>,
    instance: Instance,
    half: Option<Half>,
) -> Result<Hello, SessionError> {
    let greeting = Greeting::own();
    let mut bytes = greeting.line().into_bytes();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let time_of_day = now_since_epoch();
    encode(
        &Message::Hello(Hello { instance, version, time_of_day, half: half.map(Half::number) }),
        &mut bytes,
    )?;
    to.write_all(&bytes).await.map_err(SessionError::Write)?;
    to.flush().await.map_err(SessionError::Write)?;
    greeting.read(from).await?;
    match read(from, &mut bytes).await? {
        Message::Hello(hello) if hello.instance == instance => Err(SessionError::Itself),
        Message::Hello(hello) => Ok(hello),
        _ => Err(SessionError::NoMessage),
    }
}

fn now_since_epoch() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

/// Seconds by which the peer's clock is ahead.
fn ahead(hello: &Hello) -> f64 {
    hello.time_of_day.as_secs_f64() - now_since_epoch().as_secs_f64()
}

/// Takes in what the peer tells.
async fn listen<S: AsyncRead>(
    from: &mut BufReader<ReadHalf<S>>,
    shards: &Shards,
    shared: &Shared,
    round: &mut u8,
    times: Times,
) -> Result<Never, SessionError> {
    let (mut bytes, mut intake) = (Vec::new(), shards.intake());
    let mut lacking = Lacking::None;
    loop {
        let message = {
            let mut reading = pin!(read(from, &mut bytes));
            match timeout(times.quiet, &mut reading).await {
                Ok(message) => message?,
                Err(_) => {
                    shared.division.silent();
                    let rest = times.silence.saturating_sub(times.quiet);
                    timeout(rest, reading).await.map_err(|_| SessionError::Silent)??
                }
            }
        };
        shared.division.heard();
        match message {
            Message::Hello(_) => return Err(SessionError::NoMessage),
            Message::Names(names) => {
                intake.name(names);
                shared.account.peer_keys(PeerKeys::Anew);
            }
            Message::Keys(keys) => shared.account.peer_keys(PeerKeys::Shared(intake.shared_keys(&keys))),
            Message::Flows(items) if items.iter().any(|item| !matches!(item, Item::Flow(_))) => {
                return Err(SessionError::NoMessage);
            }
            Message::Flows(items) => intake.take_in(&items, *round, &shared.account).await?,
            Message::Ended(ended) => intake.end(&ended, &shared.account).await?,
            Message::Elements(elements) => {
                intake.take_in_elements(&elements, *round, &shared.account).await?;
            }
            Message::Removed(removed) => intake.remove_elements(&removed, &shared.account).await?,
            Message::PortMappings(updates) => {
                if intake.take_in_port_mappings(&updates, *round, &shared.account).await? == Lacking::Some {
                    lacking = Lacking::Some;
                    shared.epoch.lacks_some();
                }
            }
            Message::Unmapped(removed) => intake.unmap(&removed, &shared.account).await?,
            Message::AllMapped => {
                shards.sweep_port_mappings(CopySweep::Purge { round: *round }).await?;
                if lacking == Lacking::None {
                    shared.epoch.has_all();
                }
            }
            Message::Epoch(epoch) => shared.epoch.follow(epoch),
            Message::FullBegins => {
                *round = round.wrapping_add(1);
                lacking = Lacking::None;
            }
            Message::FullEnds => {
                shards.sweep(CopySweep::Purge { round: *round }).await?;
                shards.sweep_elements(CopySweep::Purge { round: *round }).await?;
                shared.division.completed();
            }
            Message::Alive => {}
            Message::Complete => shared.division.peer_completed(),
        }
        // Memory of the names of a large policy.
        if bytes.capacity() > 1 << 20 {
            bytes = Vec::new();
        }
    }
}

/// Sending side of a session.
struct Teller<'a, S> {
    to: &'a mut WriteHalf<S>,
    shared: &'a Shared,
    times: Times,
    bytes: Vec<u8>,
    /// Tables whose names have been told last.
    told: Option<Arc<Tables>>,
    /// Time of the last message.
    last: Instant,
    /// Memory for changes.
    spare: Taken,
}

/// Tells the peer all flows, then what changes.
async fn tell<S: AsyncWrite>(
    to: &mut WriteHalf<S>,
    shards: &Shards,
    shared: &Shared,
    times: Times,
) -> Result<Never, SessionError> {
    let (last, spare) = (Instant::now(), Taken::default());
    let mut teller = Teller { to, shared, times, bytes: Vec::new(), told: None, last, spare };
    teller.tell_all(shards).await?;
    let (mut looked, mut told_epoch) = (Instant::now(), Instant::now());
    loop {
        let (mut busiest, mut lost) = (0, 0);
        for worker in 0..shards.len() {
            let changed = shards.changes(worker, std::mem::take(&mut teller.spare)).await?;
            busiest = busiest.max(changed.taken.flows.len() + changed.taken.ended.len());
            lost += changed.taken.lost;
            let port_mappings = changed.port_mappings;
            teller.tell(changed).await?;
            if port_mappings == Pending::Some {
                lost += teller.tell_port_mappings(shards, worker, AskedMappings::Changed).await?;
            }
        }
        if told_epoch.elapsed() >= times.alive {
            told_epoch = Instant::now();
            teller.tell_epoch().await?;
        }
        if looked.elapsed() >= SETS_PAUSE {
            looked = Instant::now();
            lost += teller.tell_set_changes(shards).await?;
        }
        if lost > 0 {
            shared.account.overflowed();
            teller.tell_all(shards).await?;
        } else if shared.division.is_to_be_told() {
            encode(&Message::Complete, &mut teller.bytes)?;
            teller.send().await?;
        } else if busiest == 0 && teller.last.elapsed() >= times.alive {
            encode(&Message::Alive, &mut teller.bytes)?;
            teller.send().await?;
        }
        match busiest {
            0 => sleep(IDLE_PAUSE).await,
            few if few < AT_ONCE / 2 => sleep(PAUSE).await,
            // The peer's own messages, and workers' packets, have their turn.
            _ => tokio::task::yield_now().await,
        }
    }
}

impl<S: AsyncWrite> Teller<'_, S> {
    /// Full synchronisation, at a bounded rate.
    async fn tell_all(&mut self, shards: &Shards) -> Result<(), SessionError> {
        encode(&Message::FullBegins, &mut self.bytes)?;
        for worker in 0..shards.len() {
            let mut next = Some(FlowId(0));
            while let Some(first) = next {
                let changed = shards.all(worker, first, std::mem::take(&mut self.spare)).await?;
                next = changed.next;
                self.name(changed.tables.clone())?;
                if self.shared.division.is_to_be_told() {
                    encode(&Message::Complete, &mut self.bytes)?;
                }
                self.tell(changed).await?;
                sleep(FULL_PAUSE).await;
            }
        }
        let mut next = Some(0);
        while let Some(first) = next {
            let changed = shards.all_elements(first).await?;
            next = changed.next;
            self.tell_sets(changed).await?;
            sleep(FULL_PAUSE).await;
        }
        encode(&Message::FullEnds, &mut self.bytes)?;
        for worker in 0..shards.len() {
            self.tell_port_mappings(shards, worker, AskedMappings::All).await?;
        }
        encode(&Message::AllMapped, &mut self.bytes)?;
        self.tell_epoch().await?;
        self.shared.account.full_ended();
        Ok(())
    }

    /// Sends a worker's port mappings. Returns the number of removals that are lost.
    async fn tell_port_mappings(
        &mut self,
        shards: &Shards,
        worker: usize,
        mut asked: AskedMappings,
    ) -> Result<u64, SessionError> {
        let mut lost = 0;
        loop {
            let PortMappingsChanged { tables, taken } = shards.port_mapping_changes(worker, asked).await?;
            let TakenPortMappings { removed, mappings, .. } = taken;
            lost += taken.lost;
            self.name(tables)?;
            for some in removed.chunks(BLOCK_ITEMS) {
                encode(&Message::Unmapped(some.to_vec()), &mut self.bytes)?;
            }
            for some in mappings.chunks(BLOCK_ITEMS) {
                encode(&Message::PortMappings(some.to_vec()), &mut self.bytes)?;
            }
            self.shared.account.sent_port_mappings(mappings.len(), removed.len());
            self.send().await?;
            // Some that were taken may have been over.
            if mappings.len() < PORT_MAPPINGS_AT_ONCE / 2 {
                return Ok(lost);
            }
            asked = AskedMappings::Changed;
            sleep(FULL_PAUSE).await;
        }
    }

    /// Sends the epoch of the server of port mappings.
    async fn tell_epoch(&mut self) -> Result<(), SessionError> {
        encode(&Message::Epoch(self.shared.epoch.record()), &mut self.bytes)?;
        self.send().await
    }

    /// Sends changes of a worker.
    async fn tell(&mut self, changed: Changed) -> Result<(), SessionError> {
        let Changed { tables, mut taken, .. } = changed;
        let Taken { flows, ended, .. } = &mut taken;
        if !flows.is_empty() {
            self.name(tables)?;
        }
        for some in ended.chunks(BLOCK_ITEMS) {
            encode(&Message::Ended(some.to_vec()), &mut self.bytes)?;
        }
        for some in flows.chunks(BLOCK_ITEMS) {
            encode(&Message::Flows(some.to_vec()), &mut self.bytes)?;
        }
        self.shared.account.sent(flows.len(), ended.len());
        flows.clear();
        ended.clear();
        self.spare = Taken { lost: 0, ..taken };
        if self.bytes.is_empty() { Ok(()) } else { self.send().await }
    }

    /// Sends changes of dynamic sets. Returns the number of removals that are lost.
    async fn tell_set_changes(&mut self, shards: &Shards) -> Result<u64, SessionError> {
        let mut lost = 0;
        for _ in 0..SETS_LOOKS {
            let changed = shards.set_changes().await?;
            let is_all = changed.taken.elements.len() < ELEMENTS_AT_ONCE / 2;
            lost += changed.taken.lost;
            self.tell_sets(changed).await?;
            if is_all {
                break;
            }
        }
        Ok(lost)
    }

    async fn tell_sets(&mut self, changed: SetsChanged) -> Result<(), SessionError> {
        let SetsChanged { tables, taken: TakenElements { removed, elements, .. }, .. } = changed;
        if removed.is_empty() && elements.is_empty() {
            return Ok(());
        }
        self.name(tables)?;
        for some in removed.chunks(BLOCK_ITEMS) {
            encode(&Message::Removed(some.to_vec()), &mut self.bytes)?;
        }
        for some in elements.chunks(BLOCK_ITEMS) {
            encode(&Message::Elements(some.to_vec()), &mut self.bytes)?;
        }
        self.shared.account.sent_elements(elements.len(), removed.len());
        self.send().await
    }

    /// Tells the names that what follows refers to, and the keys of tunnels, unless they have been told.
    fn name(&mut self, tables: Arc<Tables>) -> Result<(), SessionError> {
        if self.told.as_ref().is_none_or(|told| !Arc::ptr_eq(told, &tables)) {
            encode(&Message::Names(Names::of(&tables)), &mut self.bytes)?;
            let outward = tables.tunnels.list.iter().filter_map(|tunnel| tunnel.out.as_ref());
            let keys: Vec<_> = outward.map(|out| out.fingerprint.to_bytes()).collect();
            for some in keys.chunks(BLOCK_ITEMS) {
                encode(&Message::Keys(some.to_vec()), &mut self.bytes)?;
            }
            self.told = Some(tables);
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), SessionError> {
        let sent = timeout(self.times.stuck, async {
            self.to.write_all(&self.bytes).await?;
            self.to.flush().await
        });
        sent.await.map_err(|_| SessionError::Stuck)?.map_err(SessionError::Write)?;
        self.bytes.clear();
        self.last = Instant::now();
        Ok(())
    }
}
