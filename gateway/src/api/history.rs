//! `GET /policy/history`: policies that were put in force; `GET /policy/kept?number=N`: the text of one of them.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Answer, Desk, trouble};
use crate::history::{By, HistoryView};
use crate::request::Request;

/// Client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Process of a user, as the kernel reports it.
    User(u32),
    /// User of the page, with the address.
    Page {
        /// Name of the user.
        name: String,
        /// Address of the browser or program.
        address: IpAddr,
    },
    /// Nobody that is known.
    Unknown,
}

impl Caller {
    /// Entry of the history.
    pub(super) fn by(self, comment: Option<String>) -> By {
        match self {
            Caller::User(uid) => By { uid: Some(uid), name: None, comment },
            Caller::Page { name, address } => {
                By { uid: None, name: Some(format!("{name} by the page, from {address}")), comment }
            }
            Caller::Unknown => By { uid: None, name: None, comment },
        }
    }
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
