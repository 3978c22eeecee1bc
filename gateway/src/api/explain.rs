//! `GET /explain?packet=WORDS`: the path of one packet, tried on a copy of the gateway's state.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{Answer, Desk, failed, trouble};

/// Query parameters of `GET /explain`.
#[derive(Deserialize)]
pub(super) struct ExplainQuery {
    /// Packet in words.
    packet: String,
}

/// Bytes of a packet in words, at most.
const MOST: usize = 4 << 10;

pub(super) async fn explain(
    State(desk): State<Desk>,
    Query(ExplainQuery { packet }): Query<ExplainQuery>,
) -> Answer<Json<Value>> {
    let Some(explain) = desk.explain.clone() else {
        let hint = "`wirerate explain --live` does the same";
        return Err(trouble(StatusCode::NOT_FOUND, "packets are explained by the page alone", hint));
    };
    if packet.len() > MOST {
        let error = format!("the packet takes more than {MOST} bytes of words");
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "it has a line"));
    }
    // It asks this server's control socket, and compiles the policy.
    let account = tokio::task::spawn_blocking(move || explain(&packet)).await;
    let account = account.map_err(|_| failed("the packet could not be explained"))?;
    account.map(Json).map_err(|trouble| (StatusCode::UNPROCESSABLE_ENTITY, Json(trouble)))
}
