//! `GET /basis`: policy and neighbours that the workers forward by, for reproducing their decisions elsewhere.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use policy::Policy;
use policy::model::Route;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Desk, failed, trouble};
use crate::near::Near;
use crate::request::{Basis, Request};
use crate::worker::{Found, Known};

/// Effective policy and neighbours of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BasisView {
    /// Policy merged with Linux's addresses, routes, MTUs and link-layer addresses, as TOML.
    pub policy: String,
    /// Number of routes left out of it, which lead to other destinations than those asked for.
    #[serde(default)]
    pub routes_left_out: u64,
    /// Resolved neighbours.
    pub neighbours: Vec<NeighbourView>,
}

/// Query parameters of `GET /basis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BasisQuery {
    /// Addresses and networks ([`Near`]); routes that lead to none of them are left out. All routes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
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

pub(super) async fn basis(
    State(desk): State<Desk>,
    Query(query): Query<BasisQuery>,
) -> Answer<Json<BasisView>> {
    let near = query.to.map(|to| near(&to)).transpose()?;
    let Basis { effective, neighbours, .. } = desk.ask(Request::Basis).await?;
    // A policy may have a million routes by now.
    let view = tokio::task::spawn_blocking(move || {
        let (policy, routes_left_out) = match &near {
            None => (effective.policy.to_string(), 0),
            Some(near) => without_other_routes(&effective.policy, near),
        };
        BasisView { policy, routes_left_out, neighbours: neighbour_views(&neighbours) }
    });
    Ok(Json(view.await.map_err(|_| failed("the policy could not be written"))?))
}

/// Reads a filter by addresses.
pub(super) fn near(text: &str) -> Answer<Near> {
    text.parse().map_err(|error: crate::near::BadNear| {
        let hint = "write addresses and networks with commas between, such as 192.0.2.7,2001:db8::/32";
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error.to_string(), hint)
    })
}

/// Returns the text of a policy with the routes alone that lead near some addresses, and the number of the others.
fn without_other_routes(policy: &Policy, near: &Near) -> (String, u64) {
    let routes: Vec<Route> =
        policy.routes.iter().filter(|route| near.meets(&route.destination)).cloned().collect();
    let left_out = policy.routes.len() - routes.len();
    (policy.with_routes(routes).to_string(), left_out as u64)
}

fn neighbour_views(neighbours: &[Known]) -> Vec<NeighbourView> {
    neighbours
        .iter()
        .filter_map(|known| match known.found {
            Found::At(mac) => Some(NeighbourView {
                interface: known.interface.clone(),
                address: known.address.to_ip(),
                mac: mac.to_string(),
            }),
            Found::Nowhere | Found::Forgotten => None,
        })
        .collect()
}
