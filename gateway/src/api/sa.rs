//! Security associations, over the control API. Keys come in a body, which is zeroised; no answer repeats anything of it.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use dataplane::sa::{SaError, SaRefused};
use wire::esp::{Direction, Esn, LEAST_SPI, Secret};
use zeroize::Zeroize;

use super::Desk;
use super::trouble::{Answer, Trouble, trouble};
use crate::request::Request;
use crate::sa::{AssociationName, AssociationRequest, AssociationView, Deleted, FlushQuery, suite};
use crate::supervisor::{SaAsked, SaTrouble};

/// Longest body, in bytes.
const MOST: usize = 16_384;

pub(super) async fn sas(State(desk): State<Desk>) -> Answer<Json<Vec<AssociationView>>> {
    Ok(Json(desk.overview().await?.associations()))
}

pub(super) async fn add(State(desk): State<Desk>, body: Body) -> Answer<Json<AssociationName>> {
    let request = request(body).await?;
    let asked = asked(&request)?;
    let AssociationRequest { tunnel, direction, spi, .. } = &request;
    let named = AssociationName { tunnel: tunnel.clone(), direction: direction.clone(), spi: *spi };
    drop(request);
    desk.ask(|reply| Request::AddSa(Box::new(asked), reply)).await?.map_err(in_words)?;
    Ok(Json(named))
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    Query(name): Query<AssociationName>,
) -> Answer<Json<Deleted>> {
    let AssociationName { tunnel, direction, spi } = name;
    let direction = direction_of(&direction)?;
    desk.ask(|reply| Request::DeleteSa { tunnel, direction, spi, reply }).await?.map_err(in_words)?;
    Ok(Json(Deleted { deleted: 1 }))
}

pub(super) async fn flush(
    State(desk): State<Desk>,
    Query(query): Query<FlushQuery>,
) -> Answer<Json<Deleted>> {
    let deleted = desk.ask(|reply| Request::FlushSas(query.tunnel, reply)).await?.map_err(in_words)?;
    Ok(Json(Deleted { deleted }))
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

fn in_words(error: SaTrouble) -> (StatusCode, Json<Trouble>) {
    let (code, hint) = match &error {
        SaTrouble::Sa(SaError::NoTunnel(_)) => {
            (StatusCode::NOT_FOUND, "`wirerate sa` lists tunnels that have one")
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
