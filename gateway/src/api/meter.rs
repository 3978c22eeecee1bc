//! `GET /meters`: tokens that meters have for a packet.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use dataplane::meter::{MeterState, MeteredEnds};
use policy::model::MeterScope;
use serde::{Deserialize, Serialize};

use super::Desk;
use super::trouble::Answer;
use crate::request::Request;
use crate::worker::Command;

/// Meter, with the tokens that a packet of the ends asked for would find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterView {
    /// Name of the meter.
    pub name: String,
    /// Tokens: those of all workers together, or of the worker that has the packet's instance.
    pub state: MeterState,
}

pub(super) async fn meters(
    State(desk): State<Desk>,
    Query(ends): Query<MeteredEnds>,
) -> Answer<Json<Vec<MeterView>>> {
    let mut found: HashMap<String, MeterState> = HashMap::new();
    for worker in desk.ask(Request::Workers).await? {
        let (tables, states) = desk.ask_worker(&worker, |reply| Command::Meters { ends, reply }).await?;
        for (meter, state) in tables.classes.meters.iter().zip(states) {
            let Some(state) = state else { continue };
            let sum = match (found.get(&meter.name), meter.per) {
                (None, _) => state,
                // Each worker has a part.
                (Some(known), MeterScope::All | MeterScope::Destination(..)) => known.and(&state),
                // The worker that does not have the instance has full buckets to offer.
                (Some(known), _) if known.committed.tokens <= state.committed.tokens => *known,
                (Some(_), _) => state,
            };
            found.insert(meter.name.clone(), sum);
        }
    }
    let mut views: Vec<MeterView> =
        found.into_iter().map(|(name, state)| MeterView { name, state }).collect();
    views.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(views))
}
