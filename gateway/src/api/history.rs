//! `GET /policy/history`: policies that were put in force; `GET /policy/kept?number=N`: the text of one of them.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Answer, Desk, trouble};
use crate::history::HistoryView;
use crate::request::Request;

/// Peer of the connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User ID.
    pub uid: Option<u32>,
}

/// Query parameters of `GET /policy/kept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptQuery {
    /// Number of the policy in the history.
    pub number: u64,
}

pub(super) async fn history(State(desk): State<Desk>) -> Answer<Json<HistoryView>> {
    desk.ask(Request::History).await?.map(Json).ok_or_else(|| {
        let hint = "it was started with --no-state; --policy-dir says where they are to be kept";
        trouble(StatusCode::NOT_FOUND, "this gateway keeps no policies", hint)
    })
}

pub(super) async fn kept(State(desk): State<Desk>, Query(query): Query<KeptQuery>) -> Answer<String> {
    let KeptQuery { number } = query;
    desk.ask(|reply| Request::Kept { number, reply }).await?.ok_or_else(|| {
        let error = format!("there is no policy {number}");
        trouble(StatusCode::NOT_FOUND, error, "`wirerate policy history` lists those that there are")
    })
}
