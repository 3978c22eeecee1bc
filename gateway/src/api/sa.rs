//! Security associations, over the control API. Keys come in a body, which is zeroised; no answer repeats anything of it.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use dataplane::Tables;
use dataplane::sa::{SaError, SaRefused};
use wire::esp::{Direction, Esn, LEAST_SPI, Secret};
use zeroize::Zeroize;

use super::Desk;
use super::trouble::{Answer, Trouble, trouble};
use crate::request::Request;
use crate::sa::{AssociationName, AssociationQuery, AssociationRequest, AssociationView, Deleted, suite};
use crate::supervisor::{SaAsked, SaTrouble};

/// Longest body, in bytes.
const MOST: usize = 16_384;

pub(super) async fn sas(
    State(desk): State<Desk>,
    Query(query): Query<AssociationQuery>,
) -> Answer<Json<Vec<AssociationView>>> {
    let overview = desk.overview().await?;
    let mut all = overview.associations();
    if let Some(tunnel) = query.tunnel {
        let named = overview.tables.interface_named(&tunnel);
        if named.and_then(|place| overview.tables.tunnel_at(place)).is_none() {
            return Err(no_tunnel(&SaError::NoTunnel(tunnel), &overview.tables));
        }
        all.retain(|sa| sa.tunnel == tunnel);
    }
    Ok(Json(all))
}

pub(super) async fn add(State(desk): State<Desk>, body: Body) -> Answer<Json<AssociationName>> {
    let request = request(body).await?;
    let asked = asked(&request)?;
    let AssociationRequest { tunnel, direction, spi, .. } = &request;
    let named = AssociationName { tunnel: tunnel.clone(), direction: direction.clone(), spi: *spi };
    drop(request);
    match desk.ask(|reply| Request::AddSa(Box::new(asked), reply)).await? {
        Ok(()) => {}
        Err(error) => return Err(in_words(&desk, error).await),
    }
    Ok(Json(named))
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    Query(name): Query<AssociationName>,
) -> Answer<Json<Deleted>> {
    let AssociationName { tunnel, direction, spi } = name;
    let direction = direction_of(&direction)?;
    match desk.ask(|reply| Request::DeleteSa { tunnel, direction, spi, reply }).await? {
        Ok(()) => Ok(Json(Deleted { deleted: 1 })),
        Err(error) => Err(in_words(&desk, error).await),
    }
}

pub(super) async fn flush(
    State(desk): State<Desk>,
    Query(query): Query<AssociationQuery>,
) -> Answer<Json<Deleted>> {
    match desk.ask(|reply| Request::FlushSas(query.tunnel, reply)).await? {
        Ok(deleted) => Ok(Json(Deleted { deleted })),
        Err(error) => Err(in_words(&desk, error).await),
    }
}

/// Reads a request, and zeroises what it was read from.
async fn request(body: Body) -> Answer<AssociationRequest> {
    let wrong = || {
        let hint = "`wirerate sa add` sends what is meant; nothing has changed";
        trouble(StatusCode::UNPROCESSABLE_ENTITY, "the security association cannot be read", hint)
    };
    let bytes = to_bytes(body, MOST).await.map_err(|_| wrong())?;
    let request = serde_json::from_slice(&bytes).map_err(|_| wrong());
    if let Ok(mut bytes) = bytes.try_into_mut() {
        bytes.zeroize();
    }
    request
}

fn asked(request: &AssociationRequest) -> Answer<SaAsked> {
    let wrong = |error: String, hint: &str| trouble(StatusCode::UNPROCESSABLE_ENTITY, error, hint);
    let suite = suite(request).ok_or_else(|| {
        let error = format!("there is no algorithm \"{}\" with these", request.algorithm);
        wrong(error, "the manual of policies lists all, under Tunnels")
    })?;
    if request.spi < LEAST_SPI {
        return Err(wrong(format!("the SPI {} is reserved", request.spi), "name one from 256"));
    }
    let bounds = request.soft.each().into_iter().zip(request.hard.each());
    for ((name, soft), (_, hard)) in bounds {
        if soft == Some(0) || hard == Some(0) {
            let error = format!("a lifetime without {name}");
            return Err(wrong(error, "leave the bound out where there is none"));
        }
        if soft.zip(hard).is_some_and(|(soft, hard)| soft > hard) {
            let error = format!("the soft lifetime in {name} is past the hard one");
            return Err(wrong(error, "soft is when a new security association is due, hard is its end"));
        }
    }
    let secret = |text: &str| {
        let bad = |error| wrong(format!("the key: {error}"), "two hexadecimal digits for each byte");
        Secret::of_hex(text).map_err(bad)
    };
    Ok(SaAsked {
        tunnel: request.tunnel.clone(),
        direction: direction_of(&request.direction)?,
        spi: request.spi,
        esn: if request.esn { Esn::On } else { Esn::Off },
        suite,
        key: secret(&request.key)?,
        auth_key: secret(&request.auth_key)?,
        soft: request.soft.lifetime(),
        hard: request.hard.lifetime(),
    })
}

fn direction_of(name: &str) -> Answer<Direction> {
    Direction::named(name).ok_or_else(|| {
        let error = format!("there is no direction \"{name}\"");
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "it is `in` or `out`")
    })
}

/// Error for a tunnel that is not there, with the names of those that are.
fn no_tunnel(error: &SaError, tables: &Tables) -> (StatusCode, Json<Trouble>) {
    let tunnels = tables.tunnels.list.iter().filter_map(|tunnel| tables.interface(tunnel.interface));
    let names: Vec<&str> = tunnels.map(|interface| interface.name.as_str()).collect();
    let hint = match names[..] {
        [] => "the policy in force has no tunnel".to_owned(),
        _ => format!("the tunnels are: {}", names.join(", ")),
    };
    trouble(StatusCode::NOT_FOUND, error.to_string(), hint)
}

async fn in_words(desk: &Desk, error: SaTrouble) -> (StatusCode, Json<Trouble>) {
    let (code, hint) = match &error {
        SaTrouble::Sa(error @ SaError::NoTunnel(_)) => {
            return match desk.overview().await {
                Ok(overview) => no_tunnel(error, &overview.tables),
                Err(ended) => ended,
            };
        }
        SaTrouble::Sa(SaError::Refused(SaRefused::Unknown)) => {
            (StatusCode::NOT_FOUND, "`wirerate sa` lists all")
        }
        SaTrouble::Sa(SaError::SameKey) => (StatusCode::CONFLICT, "give it a key of its own"),
        SaTrouble::Sa(SaError::Legacy { .. }) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "use `aes128-gcm`; or say legacy = true for the tunnel, in a laboratory",
        ),
        SaTrouble::Sa(SaError::NoWindow(_)) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "the window tells the upper half of a number, which is not sent: give its size in the policy",
        ),
        SaTrouble::Sa(SaError::Key(_)) => (StatusCode::UNPROCESSABLE_ENTITY, "nothing has changed"),
        SaTrouble::Sa(SaError::Refused(_)) | SaTrouble::Numbers(_) => {
            (StatusCode::CONFLICT, "nothing has changed")
        }
    };
    trouble(code, error.to_string(), hint)
}
