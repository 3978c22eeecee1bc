//! `GET /basis`: policy and neighbours that the workers forward by, for reproducing their decisions elsewhere.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Desk, failed};
use crate::request::{Basis, Request};
use crate::worker::Found;

/// Effective policy and neighbours of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BasisView {
    /// Policy merged with Linux's addresses, routes, MTUs and link-layer addresses, as TOML.
    pub policy: String,
    /// Resolved neighbours.
    pub neighbours: Vec<NeighbourView>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeighbourView {
    /// Interface of the neighbour.
    pub interface: String,
    /// IP address.
    pub address: IpAddr,
    /// Link-layer address, as `02:00:5e:10:00:01`.
    pub mac: String,
}

pub(super) async fn basis(State(desk): State<Desk>) -> Answer<Json<BasisView>> {
    let Basis { effective, neighbours, .. } = desk.ask(Request::Basis).await?;
    // A policy may have a million routes by now.
    let view = tokio::task::spawn_blocking(move || BasisView {
        policy: effective.policy.to_string(),
        neighbours: neighbours
            .iter()
            .filter_map(|known| match known.found {
                Found::At(mac) => Some(NeighbourView {
                    interface: known.interface.clone(),
                    address: known.address.to_ip(),
                    mac: mac.to_string(),
                }),
                Found::Nowhere | Found::Forgotten => None,
            })
            .collect(),
    });
    Ok(Json(view.await.map_err(|_| failed("the policy could not be written"))?))
}
