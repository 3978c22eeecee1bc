//! Queues and their subscribers, over the control API.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Desk;
use super::trouble::{Answer, trouble};
use crate::request::Request;
use crate::subscriber::{Snapshot, SubscriberQuery, SubscriberView};
use crate::view::QueueView;
use crate::worker::Command;

/// Query parameters of `GET /queues`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueQuery {
    /// True if the distributions of delays are wanted.
    #[serde(default)]
    pub delays: bool,
}

pub(super) async fn queues(
    State(desk): State<Desk>,
    Query(query): Query<QueueQuery>,
) -> Answer<Json<Vec<QueueView>>> {
    let mut queues = desk.overview().await?.queues();
    if !query.delays {
        queues.iter_mut().flat_map(|queue| &mut queue.queues).for_each(|leaf| leaf.delays.clear());
    }
    Ok(Json(queues))
}

/// Instances that a worker visits between two turns: a fraction of a millisecond's work.
const AT_ONCE: u32 = 1_024;

/// Subscribers listed, unless the query says how many; and at most.
const LISTED: usize = 10;
const MOST_LISTED: usize = 100_000;

/// Time over which rates are measured, and its bounds, in milliseconds.
const MILLIS: u64 = 1_000;
const SHORTEST: u64 = 100;
const LONGEST: u64 = 30_000;

pub(super) async fn subscribers(
    State(desk): State<Desk>,
    Query(query): Query<SubscriberQuery>,
) -> Answer<Json<Vec<SubscriberView>>> {
    let millis = query.millis.unwrap_or(MILLIS);
    if !(SHORTEST..=LONGEST).contains(&millis) {
        let error = format!("rates are measured over {SHORTEST} to {LONGEST} milliseconds");
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "name another time"));
    }
    let of = query.of.as_deref();
    if let Some(name) = of {
        let overview = desk.overview().await?;
        if !overview.has_subscribers(name) {
            let error = format!("there is no queue \"{name}\" with `per`");
            return Err(trouble(
                StatusCode::UNPROCESSABLE_ENTITY,
                error,
                "`wirerate queues` shows all queues",
            ));
        }
    }
    let begun = Instant::now();
    let before = snapshot(&desk, of).await?;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    // How long it takes to ask counts alike before and after.
    let ago = begun.elapsed();
    let now = snapshot(&desk, of).await?;
    let most = query.most.unwrap_or(LISTED).min(MOST_LISTED);
    Ok(Json(now.first(&before, ago, query.by, most)))
}

async fn snapshot(desk: &Desk, of: Option<&str>) -> Answer<Snapshot> {
    let mut snapshot = Snapshot::default();
    for worker in desk.ask(Request::Workers).await? {
        let mut next = Some(0);
        while let Some(first) = next {
            let found = desk
                .ask_worker(&worker, |reply| Command::Subscribers { first, most: AT_ONCE, reply })
                .await?;
            found.subscribers.iter().for_each(|one| snapshot.add(one, &found.tables, of));
            next = found.next;
        }
    }
    Ok(snapshot)
}
