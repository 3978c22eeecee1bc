//! `GET /drops/packets` and `GET /drops/pcapng`: the packets that the drop recorder remembers, of all workers.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{Answer, Desk, failed, trouble};
use crate::drops::{DropQuery, DroppedPacket, Drops};
use crate::flows::NotKnown;
use crate::request::{Basis, Request};
use crate::worker::Command;

/// Returns the packets as JSON, the latest first.
pub(super) async fn packets(
    State(desk): State<Desk>,
    Query(query): Query<DropQuery>,
) -> Answer<Json<Vec<DroppedPacket>>> {
    let basis = desk.ask(Request::Basis).await?;
    Ok(Json(found(&desk, &basis, &query).await?.views()))
}

/// Returns the packets as pcapng, the earliest first.
pub(super) async fn pcapng(State(desk): State<Desk>, Query(query): Query<DropQuery>) -> Answer<Response> {
    let basis = desk.ask(Request::Basis).await?;
    if basis.tables.drop_record == 0 {
        let error = "the gateway records no drops: its policy has `drop-record = 0`";
        let hint =
            "`wirerate drops` has the counters; `wirerate capture --verdict dropped` captures from now on";
        return Err(trouble(StatusCode::CONFLICT, error, hint));
    }
    let bytes = found(&desk, &basis, &query).await?.pcapng(&basis.tables);
    let bytes = bytes.map_err(|_| failed("the packets could not be written"))?;
    Ok(([("content-type", "application/x-pcapng")], bytes).into_response())
}

/// Packets that a worker copies between two turns, at most: well under a millisecond's work.
const AT_ONCE: usize = 2048;

/// Asks the workers, one after the other.
async fn found(desk: &Desk, basis: &Basis, query: &DropQuery) -> Answer<Drops> {
    let reasons = query.reasons().map_err(|NotKnown { what, word }| {
        let error = format!("there is no {what} \"{word}\"");
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate reasons` has them all")
    })?;
    let at_once = (AT_ONCE / basis.tables.drop_record.max(1) as usize).max(1);
    let mut found = Vec::new();
    for (number, worker) in desk.ask(Request::Workers).await?.into_iter().enumerate() {
        for reasons in reasons.chunks(at_once) {
            let reasons = reasons.to_vec();
            let part = desk.ask_worker(&worker, |reply| Command::Drops { reasons, reply }).await?;
            found.push((number, part));
        }
    }
    Ok(Drops::merged(found, query.last))
}
