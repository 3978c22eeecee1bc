//! `GET /state`: exports the state of the workers in the format of [`store`]; `POST /state`: imports it.
//!
//! An export is a stream of chunks, each made between two turns of a worker. An import is read and validated completely
//! before its first item is used.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use dataplane::Tables;
use dataplane::flow::SteeringTable;
use dataplane::import::Refused;
use dataplane::sa::Fingerprint;
use dataplane::state::{Cursor, Item, Names, Numbered};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;
use wire::Nanos;

use super::{Answer, Desk, Trouble, trouble};
use crate::about::About;
use crate::request::{Basis, Request};
use crate::sa::reserve;
use crate::store::{self, Entry, Occasion, Stamp, StoreError, Writer};
use crate::stream::{Broken, Pieces, respond};
use crate::worker::{Command, CommandSender, Exported, Imported, owner_of};

/// Flow table slots that a worker visits between two turns.
const AT_ONCE: u32 = 1024;

/// Items that a worker imports between two turns: well under a millisecond's work.
const TAKEN_AT_ONCE: usize = 256;

/// Most flows of a packet's sender that each worker exports, beside those that match the packet themselves.
const MOST_OF_A_HOST: usize = 16_384;

/// Bytes of state accepted per flow of capacity: more than a flow with its mappings takes.
const BYTES_A_FLOW: u64 = 256;

/// Bytes of state accepted in any case: names, and token debts under rates.
const BYTES_BESIDE: u64 = 64 << 20;

/// Longest pause between two chunks of an import.
const PATIENCE: Duration = Duration::from_secs(30);

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedState {
    /// Flows created.
    pub flows: u64,
    /// Flows that existed already, left unchanged.
    pub present: u64,
    /// Token debts under rates.
    pub rates: u64,
    /// Items refused, by reason.
    pub refused: Vec<RefusedItems>,
}

/// Items refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedItems {
    /// Reason for the refusal.
    pub reason: String,
    /// Number of items.
    pub items: u64,
}

/// Packet to filter by, if any.
pub(super) struct Meant(Option<About>);

impl<S: Send + Sync> FromRequestParts<S> for Meant {
    type Rejection = (StatusCode, Json<Trouble>);

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Meant, Self::Rejection> {
        if parts.uri.query().is_none_or(str::is_empty) {
            return Ok(Meant(None));
        }
        let query = Query::<About>::from_request_parts(parts, state).await;
        query.map(|Query(about)| Meant(Some(about))).map_err(|error| {
            trouble(
                StatusCode::UNPROCESSABLE_ENTITY,
                error.to_string(),
                "`wirerate explain --live` asks rightly",
            )
        })
    }
}

/// Exports all state, or the state that bears on a packet.
pub(super) async fn save(State(desk): State<Desk>, Meant(about): Meant) -> Answer<Response> {
    let senders = desk.ask(Request::Workers).await?;
    let (pieces, response) = respond("application/octet-stream");
    tokio::spawn(async move {
        if give(&senders, about, &pieces).await.is_err() {
            // Who asked may have gone.
            let _ = pieces.send(Err(Broken)).await;
        }
    });
    Ok(response)
}

async fn give(senders: &[CommandSender], about: Option<About>, pieces: &Pieces) -> Result<(), Broken> {
    let broken = |_: io::Error| Broken;
    let mut writer = Writer::new(Vec::new(), Stamp::now(Occasion::Save)).map_err(broken)?;
    // Of the names that were told last.
    let mut told: Option<Arc<Tables>> = None;
    for worker in senders {
        let mut about = about.clone().map(Arc::new);
        let mut of_host = 0;
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            let (reply, answer) = oneshot::channel();
            worker.send(Command::Export { about: about.clone(), from, most: AT_ONCE, reply });
            let Exported { tables, items, next: further } = answer.await.map_err(|_| Broken)?;
            if told.as_ref().is_none_or(|told| !Arc::ptr_eq(told, &tables)) {
                writer.names(Names::of(&tables)).map_err(broken)?;
                told = Some(tables);
            }
            if let Some(of) = about.as_mut() {
                let is_beside = |item: &&Item| matches!(item, Item::Flow(flow) if !of.is_of(flow));
                of_host += items.iter().filter(is_beside).count();
                if of_host > MOST_OF_A_HOST {
                    // Nobody's: only what is the packet's own from here on.
                    *of = Arc::new(About { from: std::net::Ipv6Addr::UNSPECIFIED.into(), ..(**of).clone() });
                }
            }
            writer.items(items).map_err(broken)?;
            pieces.send(Ok(Bytes::from(writer.take()))).await.map_err(|_| Broken)?;
            next = further;
        }
    }
    let rest = writer.end().map_err(broken)?;
    pieces.send(Ok(Bytes::from(rest))).await.map_err(|_| Broken)
}

/// Imports a saved state.
pub(super) async fn load(State(desk): State<Desk>, body: Body) -> Answer<Json<LoadedState>> {
    let Ok(_turn) = desk.loading.clone().try_acquire_owned() else {
        return Err(trouble(StatusCode::CONFLICT, "another state is being loaded", "try again when it is"));
    };
    let basis = desk.ask(Request::Basis).await?;
    let most = BYTES_BESIDE + BYTES_A_FLOW * u64::from(basis.tables.limits.flows);
    let bytes = collect(body, most).await?;
    let senders = desk.ask(Request::Workers).await?;
    let bytes = Arc::new(bytes);
    let whole = Arc::clone(&bytes);
    let used = tokio::task::spawn_blocking(move || used(&whole));
    // Numbers first: workers seal behind those of the state as soon as they have it.
    let used = used.await.map_err(|_| gone())?.map_err(unread)?;
    desk.ask(|reply| Request::Reserve(used, reply)).await?.map_err(|error| {
        let hint = "the gateway must be able to write the file beside its state file";
        trouble(StatusCode::INSUFFICIENT_STORAGE, format!("nothing was loaded: {error}"), hint)
    })?;
    let done = tokio::task::spawn_blocking(move || take(&bytes, basis, &senders));
    match done.await.map_err(|_| gone())? {
        Ok(loaded) => Ok(Json(loaded)),
        Err(LoadError::Gone) => Err(gone()),
        Err(LoadError::Store(error)) => Err(unread(error)),
    }
}

fn gone() -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::SERVICE_UNAVAILABLE, "a worker has ended", "try again soon")
}

fn unread(error: StoreError) -> (StatusCode, Json<Trouble>) {
    let error = format!("nothing was loaded: {error}");
    trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate save` makes a new one")
}

/// Validates a state, and returns the highest sequence numbers that its gateway may have sent, by key.
fn used(bytes: &[Bytes]) -> Result<HashMap<Fingerprint, u64>, StoreError> {
    let mut used: HashMap<Fingerprint, u64> = HashMap::new();
    store::read(Pile::of(bytes), |entry| {
        let Entry::Item(Item::Sa(record)) = entry else { return };
        if record.numbered == Numbered::Sent {
            let last = used.entry(Fingerprint::from_bytes(record.fingerprint)).or_default();
            *last = record.ahead(reserve::STEP).last.max(*last);
        }
    })?;
    Ok(used)
}

/// Reads a body up to `most` bytes. A longer one is drained to its end, so that the client receives the error.
async fn collect(mut body: Body, most: u64) -> Answer<Vec<Bytes>> {
    let mut pieces = Vec::new();
    let mut length = 0;
    let stalled = |_| {
        let error = format!("nothing more of the state came within {} seconds", PATIENCE.as_secs());
        trouble(StatusCode::REQUEST_TIMEOUT, error, "nothing was loaded; try again")
    };
    while let Some(frame) = timeout(PATIENCE, body.frame()).await.map_err(stalled)? {
        let broken = |_| {
            let hint = "nothing was loaded; try again";
            trouble(StatusCode::BAD_REQUEST, "the state broke off on its way", hint)
        };
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        length += piece.len() as u64;
        if length <= most {
            pieces.push(piece);
        } else {
            pieces.clear();
        }
    }
    if length > most {
        let error = format!("the state has {length} bytes; {most} are the most for this gateway's flows");
        let hint = "raise `flows` under [limit] of its policy; nothing was loaded";
        return Err(trouble(StatusCode::PAYLOAD_TOO_LARGE, error, hint));
    }
    Ok(pieces)
}

/// Chunks read as one stream.
struct Pile<'a> {
    pieces: std::slice::Iter<'a, Bytes>,
    piece: &'a [u8],
}

impl Pile<'_> {
    fn of(pieces: &[Bytes]) -> Pile<'_> {
        Pile { pieces: pieces.iter(), piece: &[] }
    }
}

impl Read for Pile<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(next) = self.pieces.next() else { return Ok(0) };
            self.piece = next;
        }
        self.piece.read(out)
    }
}

enum LoadError {
    Store(StoreError),
    Gone,
}

/// Distributes the items of a validated state to the workers.
fn take(bytes: &[Bytes], basis: Basis, senders: &[CommandSender]) -> Result<LoadedState, LoadError> {
    let Basis { tables, steering, .. } = basis;
    let mut taker = Taker {
        senders,
        steering,
        age: Nanos(0),
        places: Names::default().places_in(&tables),
        names: Names::default(),
        tables,
        waiting: Vec::new(),
        loaded: LoadedState::default(),
        refused: BTreeMap::new(),
        failed: None,
    };
    store::read(Pile::of(bytes), |entry| {
        if taker.failed.is_some() {
            return;
        }
        match entry {
            Entry::Stamp(stamp) => match stamp.age(&Stamp::now(Occasion::Save)) {
                Some(age) => taker.age = age,
                None => taker.failed = Some(LoadError::Store(StoreError::Ageless)),
            },
            Entry::Names(names) => {
                taker.flush();
                taker.places = names.places_in(&taker.tables);
                taker.names = names;
            }
            // The gateway goes on with its own.
            Entry::Item(Item::Own(_)) => {}
            // Whoever saved it may have gone on, and have reserved more than it used.
            Entry::Item(Item::Sa(record)) => taker.waiting.push(Item::Sa(record.ahead(reserve::STEP))),
            Entry::Item(item) => taker.waiting.push(item.aged(taker.age)),
        }
        if taker.waiting.len() >= TAKEN_AT_ONCE {
            taker.flush();
        }
    })
    .map_err(LoadError::Store)?;
    taker.flush();
    if let Some(failed) = taker.failed {
        return Err(failed);
    }
    let refused = taker.refused.into_iter();
    taker.loaded.refused =
        refused.map(|(reason, items)| RefusedItems { reason: reason.to_string(), items }).collect();
    Ok(taker.loaded)
}

struct Taker<'a> {
    senders: &'a [CommandSender],
    steering: Option<Arc<SteeringTable>>,
    /// Tables of the workers.
    tables: Arc<Tables>,
    /// Time since the state was written.
    age: Nanos,
    /// Names that the indices in items refer to.
    names: Names,
    places: dataplane::state::Places,
    /// Items as read, pending distribution.
    waiting: Vec<Item>,
    loaded: LoadedState,
    refused: BTreeMap<Refused, u64>,
    failed: Option<LoadError>,
}

impl Taker<'_> {
    /// Sends pending items to the workers: a flow to its owner, token debts without an owner to all workers, each of
    /// which has a share.
    fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let (senders, steering) = (self.senders, self.steering.clone());
        let tables = self.tables.clone();
        let owner = |item: &Item| owner_of(item, &tables, senders.len(), steering.as_deref());
        for (number, worker) in senders.iter().enumerate() {
            let own: Vec<Item> =
                waiting.iter().filter(|item| owner(item).is_none_or(|own| own == number)).copied().collect();
            if own.is_empty() {
                continue;
            }
            let Some(outcomes) = self.offer(worker, &own) else {
                self.failed = Some(LoadError::Gone);
                return;
            };
            for (item, outcome) in own.iter().zip(outcomes) {
                // What goes to all counts once.
                if owner(item).is_none() && number > 0 {
                    continue;
                }
                match (item, outcome) {
                    (Item::Flow(_), Ok(())) => self.loaded.flows += 1,
                    (Item::Flow(_), Err(Refused::Taken)) => self.loaded.present += 1,
                    (Item::Sa(_) | Item::Element(_) | Item::PortMapping(_), Ok(())) => {}
                    (_, Ok(())) => self.loaded.rates += 1,
                    (_, Err(reason)) => *self.refused.entry(reason).or_default() += 1,
                }
            }
        }
    }

    /// Offers items to a worker and returns the outcome of each, in order; `None` if the worker has ended.
    fn offer(&mut self, worker: &CommandSender, items: &[Item]) -> Option<Vec<Result<(), Refused>>> {
        loop {
            let moved = items.iter().map(|item| self.places.moved(item)).collect();
            let (reply, answer) = oneshot::channel();
            worker.send(Command::Import { tables: self.tables.clone(), items: moved, reply });
            match answer.blocking_recv().ok()? {
                Imported::Done(outcomes) => return Some(outcomes),
                // The policy, or Linux, has changed meanwhile.
                Imported::Outdated(tables) => {
                    self.places = self.names.places_in(&tables);
                    self.tables = tables;
                }
            }
        }
    }
}
