//! Control API of a running gateway: HTTP with JSON over a Unix socket that its owner alone may open; metrics for
//! Prometheus also on loopback.
//!
//! State belongs to the supervisor and the workers; this module parses requests, forwards them and writes responses.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dataplane::flow::FlowId;
use http_body_util::BodyExt;
use policy::Checked;
use policy::parse::{MOST_BYTES, WHERE_TOO_LARGE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::time::timeout;

use crate::event::Event;
use crate::flows::{FlowCursor, FlowQuery, FlowView, NotKnown};
use crate::history::By;
use crate::page::Explain;
use crate::request::{NoTrial, Overview, Refusal, Request};
use crate::worker::{Command, CommandSender, FoundFlows as Found, Reply};
use crate::{metrics, view};

mod basis;
mod capture;
mod drops;
mod explain;
mod history;
mod meter;
mod plan;
mod port_mapping;
mod queue;
pub(crate) mod route;
mod sa;
mod set;
mod state;
mod token;
mod trouble;
mod zone;

pub use basis::{BasisQuery, BasisView, NeighbourView};
pub use history::{Caller, KeptQuery};
pub use meter::MeterView;
pub use plan::{ChangeView, PlanView};
pub use queue::QueueQuery;
pub use state::{LoadedState, RefusedItems};
pub use token::Token;
pub use trouble::{Answer, Trouble, forbidden, trouble};
pub use zone::{PairRule, PairView, ZoneMap, ZoneView};

/// API state: the channel to the supervisor, and limits on concurrent requests.
#[derive(Clone)]
pub struct Desk {
    sender: Sender<Event>,
    /// Permit to submit a policy: one at a time, as policies are large.
    turn: Arc<Semaphore>,
    /// Permit to import state: one import at a time.
    loading: Arc<Semaphore>,
    /// Permits for further captures beside those under way.
    captures: Arc<Semaphore>,
    /// Overview that many clients may share; none where each has one of its own.
    shared: Option<Shared>,
    /// Bounds of a listing; none where all flows may be listed at once.
    listing: Option<Listing>,
    /// Explanation of packets; none where they are not explained here.
    explain: Option<Explain>,
}

/// Latest overview, and its time.
type Shared = Arc<Mutex<Option<(Instant, Arc<Overview>)>>>;

/// Bounds of a listing of flows.
#[derive(Clone, Copy, Debug)]
struct Listing {
    /// Time of the search, after which a response says where to go on.
    patience: Duration,
    /// Flows listed, at most.
    most: usize,
}

/// Time for which clients of the page share an overview: however many ask, workers report so often.
const FRESH: Duration = Duration::from_millis(200);

/// Bounds of a listing for the page: it answers while a person looks.
const PAGE_LISTING: Listing = Listing { patience: Duration::from_millis(30), most: 10_000 };

/// Response: the policy is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InForce {
    /// Epoch of its tables.
    pub epoch: u16,
    /// Seconds in which the policy must be confirmed.
    pub confirm_seconds: Option<u64>,
}

/// Response: interfaces whose guards were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Interfaces that are Linux's from now on.
    pub interfaces: Vec<String>,
}

/// Query parameters of `POST /apply`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyQuery {
    /// Seconds in which the policy must be confirmed; absent: no confirmation needed.
    pub confirm: Option<u64>,
    /// Operator's comment, for the history.
    pub comment: Option<String>,
}

/// Response: flows that match a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Flows, worker by worker.
    pub flows: Vec<FlowView>,
    /// True if more flows match than the limit.
    pub more: bool,
    /// Place to go on from, for [`FlowQuery::after`]: more flows match, or the search has taken its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<FlowCursor>,
}

/// Response: number of flows ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Killed {
    /// Number of flows.
    pub ended: u64,
}

/// Routes of the control API, for the Unix socket.
pub fn control(sender: Sender<Event>) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/rules", get(rules))
        .route("/nat", get(nats))
        .route("/classes", get(classes))
        .route("/ports", get(ports))
        .route("/queues", get(queue::queues))
        .route("/subscribers", get(queue::subscribers))
        .route("/meters", get(meter::meters))
        .route("/sas", get(sa::sas).post(sa::add))
        .route("/sas/delete", post(sa::delete))
        .route("/sas/flush", post(sa::flush))
        .route("/sets", get(set::sets))
        .route("/sets/elements", get(set::elements))
        .route("/sets/faults", get(set::faults))
        .route("/sets/add", post(set::add).layer(DefaultBodyLimit::max(set::MOST)))
        .route("/sets/remove", post(set::remove).layer(DefaultBodyLimit::max(set::MOST)))
        .route("/sets/flush", post(set::flush))
        .route("/port-mappings", get(port_mapping::mappings))
        .route("/port-mappings/add", post(port_mapping::add))
        .route("/port-mappings/remove", post(port_mapping::remove))
        .route("/drops", get(drops))
        .route("/drops/packets", get(drops::packets))
        .route("/drops/pcapng", get(drops::pcapng))
        .route("/flows", get(flows))
        .route("/flows/kill", post(kill))
        .route("/policy", get(policy))
        .route("/policy/history", get(history::history))
        .route("/policy/kept", get(history::kept))
        .route("/basis", get(basis::basis))
        .route("/capture", get(capture::capture))
        .route("/state", get(state::save).post(state::load))
        .route("/apply", post(apply))
        .route("/confirm", post(confirm))
        .route("/rollback", post(rollback))
        .route("/release", post(release))
        .route("/metrics", get(all_metrics))
        .fallback(trouble::unknown)
        .method_not_allowed_fallback(trouble::other_method)
        .layer(from_fn(trouble::in_words))
        .with_state(Desk::new(sender))
}

/// Routes of the metrics over TCP: for loopback, or for clients with the token.
pub fn public(sender: Sender<Event>, token: Option<Token>) -> Router {
    let router = Router::new().route("/metrics", get(all_metrics)).with_state(Desk::new(sender));
    match token {
        Some(token) => token::wanted(router, token),
        None => router,
    }
}

impl Desk {
    fn new(sender: Sender<Event>) -> Desk {
        Desk {
            sender,
            turn: Arc::new(Semaphore::new(1)),
            loading: Arc::new(Semaphore::new(1)),
            captures: Arc::new(Semaphore::new(capture::MOST)),
            shared: None,
            listing: None,
            explain: None,
        }
    }

    /// State of the page's API: for many clients, each answered in bounded time.
    pub(crate) fn of_page(sender: Sender<Event>, explain: Option<Explain>) -> Desk {
        let (shared, listing) = (Some(Shared::default()), Some(PAGE_LISTING));
        Desk { shared, listing, explain, ..Desk::new(sender) }
    }

    /// Sends a request to the supervisor and waits for the reply.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Event::Request(request(reply))).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    /// Sends a command to a worker and waits for the reply.
    async fn ask_worker<T>(
        &self,
        worker: &CommandSender,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        let gone = || trouble(StatusCode::SERVICE_UNAVAILABLE, "a worker has ended", "try again soon");
        if !worker.send(command(reply)) {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())
    }

    async fn overview(&self) -> Answer<Arc<Overview>> {
        let Some(shared) = &self.shared else { return self.ask(Request::Overview).await.map(Arc::new) };
        // Who waits here is answered with what the first one was told.
        let mut latest = shared.lock().await;
        match &*latest {
            Some((at, overview)) if at.elapsed() < FRESH => Ok(overview.clone()),
            _ => {
                let overview = Arc::new(self.ask(Request::Overview).await?);
                *latest = Some((Instant::now(), overview.clone()));
                Ok(overview)
            }
        }
    }
}

fn gone() -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::SERVICE_UNAVAILABLE, "the gateway is ending", "try again soon")
}

async fn status(State(desk): State<Desk>) -> Answer<Json<view::Status>> {
    Ok(Json(desk.overview().await?.status()))
}

async fn rules(State(desk): State<Desk>) -> Answer<Json<Vec<view::RuleView>>> {
    Ok(Json(desk.overview().await?.rules()))
}

async fn nats(State(desk): State<Desk>) -> Answer<Json<Vec<view::NatView>>> {
    Ok(Json(desk.overview().await?.nats()))
}

async fn classes(State(desk): State<Desk>) -> Answer<Json<Vec<view::ClassView>>> {
    Ok(Json(desk.overview().await?.classes()))
}

async fn ports(State(desk): State<Desk>) -> Answer<Json<Vec<view::PortView>>> {
    Ok(Json(desk.overview().await?.port_views()))
}

async fn drops(State(desk): State<Desk>) -> Answer<Json<Vec<view::DropView>>> {
    Ok(Json(desk.overview().await?.drops()))
}

async fn all_metrics(State(desk): State<Desk>) -> Answer<Response> {
    let overview = desk.overview().await?;
    Ok(([("content-type", metrics::CONTENT_TYPE)], metrics::text(&overview)).into_response())
}

/// Flow table slots that a worker visits between two turns: a fraction of a millisecond's work.
const AT_ONCE: u32 = 2048;

/// Default limit of flows listed.
const LISTED: usize = 1000;

async fn flows(State(desk): State<Desk>, Query(query): Query<FlowQuery>) -> Answer<Json<Listed>> {
    let listing = desk.listing;
    let most = query.limit.unwrap_or(LISTED).min(listing.map_or(usize::MAX, |listing| listing.most));
    let until = listing.map(|listing| Instant::now() + listing.patience);
    let mut listed = Listed { flows: Vec::new(), more: false, next: None };
    let begin = query.after.unwrap_or_default();
    for (number, worker) in desk.ask(Request::Workers).await?.iter().enumerate().skip(begin.worker) {
        let at = |entry| FlowCursor { worker: number, entry };
        let mut next = Some(FlowId(if number == begin.worker { begin.entry } else { 0 }));
        while let Some(first) = next {
            if until.is_some_and(|until| Instant::now() >= until) {
                listed.next = Some(at(first.0));
                return Ok(Json(listed));
            }
            let query = FlowQuery { limit: Some(most - listed.flows.len()), ..query.clone() };
            let found = desk
                .ask_worker(worker, |reply| Command::Flows { query, first, most: AT_ONCE, reply })
                .await?;
            let Found { flows, beyond, next: further } = found.map_err(not_known)?;
            listed.flows.extend(flows);
            next = further;
            if let Some(beyond) = beyond {
                listed.more = true;
                listed.next = Some(at(beyond.0));
                return Ok(Json(listed));
            }
        }
    }
    Ok(Json(listed))
}

/// Ends flows for a client of the page, who must say which.
async fn kill_some(state: State<Desk>, Query(query): Query<FlowQuery>) -> Answer<Json<Killed>> {
    if (FlowQuery { limit: None, after: None, ..query.clone() }) == FlowQuery::default() {
        let error = "nothing says which flows are to be ended";
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "name a host, a port or a rule"));
    }
    kill(state, Query(query)).await
}

async fn kill(State(desk): State<Desk>, Query(query): Query<FlowQuery>) -> Answer<Json<Killed>> {
    let mut ended = 0;
    for worker in desk.ask(Request::Workers).await? {
        let mut next = Some(FlowId(0));
        while let Some(first) = next {
            let query = query.clone();
            let gone = desk
                .ask_worker(&worker, |reply| Command::Kill { query, first, most: AT_ONCE, reply })
                .await?;
            let (many, further) = gone.map_err(not_known)?;
            ended += many;
            next = further;
        }
    }
    Ok(Json(Killed { ended }))
}

fn not_known(word: NotKnown) -> (StatusCode, Json<Trouble>) {
    let error = format!("there is no {} \"{}\"", word.what, word.word);
    trouble(
        StatusCode::UNPROCESSABLE_ENTITY,
        error,
        "`wirerate flows --help` and `wirerate capture --help` have examples",
    )
}

/// Returns the policy in force, as TOML.
async fn policy(State(desk): State<Desk>) -> Answer<String> {
    let policy = desk.ask(Request::Policy).await?;
    let text = tokio::task::spawn_blocking(move || policy.to_string()).await;
    text.map_err(|_| failed("the policy could not be written"))
}

fn failed(error: &str) -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::INTERNAL_SERVER_ERROR, error, "see the gateway's log")
}

/// Longest trial, in seconds: a day.
const LONGEST_TRIAL: u64 = 86_400;

/// Time in which the whole body of a policy must arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts the policy in the request body in force.
async fn apply(
    State(desk): State<Desk>,
    Query(query): Query<ApplyQuery>,
    caller: Option<Extension<Caller>>,
    body: Body,
) -> Answer<Json<InForce>> {
    let by = caller.map_or_else(By::default, |Extension(caller)| caller.by(query.comment.clone()));
    if query.confirm.is_some_and(|seconds| !(1..=LONGEST_TRIAL).contains(&seconds)) {
        let error = format!("a trial takes from 1 to {LONGEST_TRIAL} seconds");
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "name another time"));
    }
    let turn = desk.turn.clone().acquire_owned().await.map_err(|_| failed("the gateway is ending"))?;
    let text = text_of(body).await?;
    // Once it is there it is carried out, whether or not who asked is still there, and only then is it another's turn.
    let done = tokio::spawn(async move {
        let _turn = turn;
        put_in_force(&desk, query, by, text).await
    });
    done.await.map_err(|_| failed("the policy could not be put in force"))?
}

/// Reads a body as UTF-8 text, up to the size limit of a policy.
async fn text_of(mut body: Body) -> Answer<String> {
    let whole = async {
        let (mut bytes, mut too_long) = (Vec::new(), false);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let error = format!("the policy did not come through: {error}");
                trouble(StatusCode::BAD_REQUEST, error, "send it again")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            too_long |= bytes.len() + data.len() > MOST_BYTES;
            // Read to its end all the same: who is still sending does not hear an answer.
            if too_long {
                bytes = Vec::new();
            } else {
                bytes.extend_from_slice(&data);
            }
        }
        if too_long {
            let error = format!("the policy is longer than {} MiB", MOST_BYTES >> 20);
            return Err(trouble(StatusCode::PAYLOAD_TOO_LARGE, error, WHERE_TOO_LARGE));
        }
        String::from_utf8(bytes).map_err(|error| {
            let error = format!("the policy is not UTF-8: byte {}", error.utf8_error().valid_up_to());
            trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "save it as UTF-8")
        })
    };
    timeout(PATIENCE, whole).await.unwrap_or_else(|_| {
        let error = format!("the policy was not all there within {} seconds", PATIENCE.as_secs());
        Err(trouble(StatusCode::REQUEST_TIMEOUT, error, "send it again"))
    })
}

/// Summary of a policy's errors, in a line.
pub(crate) fn in_short(checked: &Checked) -> String {
    let mut errors = checked.diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
    let first = errors.next().map_or_else(String::new, |first| {
        let line = first.line().map_or_else(String::new, |line| format!("line {line}: "));
        format!(": {line}{}", first.message)
    });
    match errors.count() {
        0 => format!("has an error{first}"),
        more => format!("has {} errors; the first{first}", more + 1),
    }
}

async fn put_in_force(desk: &Desk, query: ApplyQuery, by: By, text: String) -> Answer<Json<InForce>> {
    let checked = tokio::task::spawn_blocking(move || policy::check(&text, "policy")).await;
    let checked = checked.map_err(|_| failed("the policy could not be read"))?;
    let Some(policy) = checked.policy else {
        let error = format!("the policy {}", in_short(&checked));
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate check FILE` shows all"));
    };
    let (policy, confirm) = (Box::new(policy), query.confirm.map(Duration::from_secs));
    let applied = desk.ask(|reply| Request::Apply { policy, confirm, by, reply }).await?;
    match applied {
        Ok(applied) => Ok(Json(InForce { epoch: applied.epoch, confirm_seconds: query.confirm })),
        Err(refusal) => {
            let (error, hint) = match refusal {
                Refusal::Compile(error) => (error, "nothing has changed"),
                Refusal::Empty => (
                    "the policy has no interface".to_owned(),
                    "nothing has changed; to carry nothing, end the gateway",
                ),
                Refusal::OnTrial => (
                    "another policy is on trial".to_owned(),
                    "`wirerate confirm` keeps it, `wirerate rollback` drops it; then try again",
                ),
                Refusal::Restart(what) => (
                    format!("{what} cannot change while the gateway runs"),
                    "restart it: flows and translations are kept",
                ),
            };
            Err(trouble(StatusCode::CONFLICT, error, hint))
        }
    }
}

async fn confirm(State(desk): State<Desk>) -> Answer<()> {
    desk.ask(Request::Confirm).await?.map_err(no_trial)
}

async fn rollback(State(desk): State<Desk>) -> Answer<()> {
    desk.ask(Request::Rollback).await?.map_err(no_trial)
}

/// Removes guards from the interfaces named in the body, one a line; from all in mode `left` if the body is empty.
async fn release(State(desk): State<Desk>, body: Body) -> Answer<Json<Released>> {
    let interfaces = text_of(body).await?.lines().map(str::to_owned).collect();
    let released = desk.ask(|reply| Request::Release { interfaces, reply }).await?;
    released
        .map(|interfaces| Json(Released { interfaces }))
        .map_err(|error| trouble(StatusCode::CONFLICT, error, "`wirerate status` shows all guards"))
}

fn no_trial(_: NoTrial) -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::CONFLICT, "no policy is on trial", "`apply --confirm TIME` puts one on trial")
}
