//! `GET /capture`: live packets as pcapng, until the client disconnects.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{Answer, Desk, not_known, trouble};
use crate::capture::CaptureQuery;
use crate::capture::record;
use crate::request::Request;
use crate::stream::respond;
use crate::worker::Command;

/// Captures at one time, at most.
pub(super) const MOST: usize = 4;

/// Number of the next capture.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub(super) async fn capture(State(desk): State<Desk>, Query(query): Query<CaptureQuery>) -> Answer<Response> {
    let Ok(turn) = desk.captures.clone().try_acquire_owned() else {
        let error = format!("{MOST} captures are under way already, as many as there can be");
        return Err(trouble(StatusCode::CONFLICT, error, "end one of them first"));
    };
    let basis = desk.ask(Request::Basis).await?;
    let senders = desk.ask(Request::Workers).await?;
    query.points().and(query.filter(&basis.tables).map(drop)).map_err(not_known)?;
    if let Some(stage) = query.left_out(&basis.tables) {
        let error =
            format!("no packet goes through \"{stage}\": the policy in force does not need that stage");
        let remedy = "`wirerate stages POLICY` shows the pipeline of a policy";
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, remedy));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let (tap, recorder) = record::capture(query);
    let (pieces, response) = respond("application/x-pcapng");
    let workers = senders.clone();
    let end = move || {
        for worker in &workers {
            worker.send(Command::EndCapture(id));
        }
        drop(turn);
    };
    let refused = |error| {
        let error = format!("the capture cannot begin: {error}");
        trouble(StatusCode::SERVICE_UNAVAILABLE, error, "try again soon")
    };
    recorder.start(&basis.tables, pieces, end).map_err(refused)?;
    for worker in &senders {
        let tap = Box::new(tap.clone());
        desk.ask_worker(worker, |reply| Command::Capture { id, tap, reply }).await?.map_err(not_known)?;
    }
    Ok(response)
}
