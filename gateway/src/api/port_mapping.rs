//! Port mappings, over the control API.

use std::net::IpAddr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, Label, PortRefusal, PortRequest, PortWish};
use wire::Nanos;
use wire::header::Protocol;

use super::set::timeout;
use super::trouble::{Answer, Trouble, trouble};
use super::{Desk, gone};
use crate::port_mapping::{
    Mapper, PortMappingCounts, PortMappingRequest, PortMappingView, PortMappings, PortMappingsRemoved,
};

pub(super) async fn mappings(State(desk): State<Desk>) -> Answer<Json<PortMappings>> {
    let mapper = mapper(&desk).await?;
    let mappings = mapper.list().await.map_err(|_| gone())?;
    let counts = PortMappingCounts::of(&desk.overview().await?.reports);
    Ok(Json(PortMappings { mappings, counts }))
}

pub(super) async fn add(State(desk): State<Desk>, body: Bytes) -> Answer<Json<PortMappingView>> {
    let request = request(&body)?;
    let inside = inside(&request)?;
    let port = match request.outside_port {
        Some(0) => return Err(wrong("port 0 is no outside port", "leave it out for any port")),
        Some(port) => PortWish::Only(port),
        None => PortWish::Any,
    };
    let lasts = request.timeout.as_deref().map(timeout).transpose()?.map(Nanos::from);
    let holder = Holder::operator(Label::of(request.description.as_deref().unwrap_or_default()));
    let asked = PortRequest { inside, port, lasts, holder };
    let granted = mapper(&desk).await?.map(asked).await.map_err(|_| gone())?.map_err(refused)?;
    Ok(Json(PortMappingView::of(&granted.mapping, granted.now)))
}

pub(super) async fn remove(State(desk): State<Desk>, body: Bytes) -> Answer<Json<PortMappingsRemoved>> {
    let request = request(&body)?;
    let extra = [
        ("outside_port", request.outside_port.is_some()),
        ("timeout", request.timeout.is_some()),
        ("description", request.description.is_some()),
    ];
    if let Some((key, _)) = extra.into_iter().find(|(_, given)| *given) {
        return Err(wrong(
            &format!("a removal has no `{key}`"),
            "name protocol, inside and inside_port alone",
        ));
    }
    let inside = inside(&request)?;
    let holder = Holder::operator(Label::default());
    let removed = mapper(&desk).await?.unmap(inside, holder).await.map_err(|_| gone())?;
    Ok(Json(PortMappingsRemoved { removed: removed.map_err(refused)? }))
}

async fn mapper(desk: &Desk) -> Answer<Mapper> {
    Mapper::ask(&desk.sender).await.map_err(|_| gone())
}

fn request(body: &[u8]) -> Answer<PortMappingRequest> {
    serde_json::from_slice(body).map_err(|error| {
        let hint =
            r#"nothing has changed; send {"protocol": "tcp", "inside": "192.168.1.20", "inside_port": 8080}"#;
        wrong(&format!("the request cannot be read: {error}"), hint)
    })
}

fn inside(request: &PortMappingRequest) -> Answer<Endpoint> {
    let protocol = match request.protocol.as_str() {
        "tcp" => Protocol::TCP,
        "udp" => Protocol::UDP,
        other => {
            let error = format!("\"{}\" is no protocol of port mappings", other.escape_debug());
            return Err(wrong(&error, "write tcp or udp"));
        }
    };
    let address: IpAddr = request.inside.parse().map_err(|_| {
        let error = format!("\"{}\" is no address", request.inside.escape_debug());
        wrong(&error, "write the host's own address, such as 192.168.1.20")
    })?;
    if request.inside_port == 0 {
        return Err(wrong("port 0 is no inside port", "write the port that the host listens on"));
    }
    Ok(Endpoint::new(address, request.inside_port, protocol.0))
}

fn refused(refusal: PortRefusal) -> (StatusCode, Json<Trouble>) {
    let hint = match refusal {
        PortRefusal::NotAllowed => {
            "a translation with [nat.port-mapping] names the zones and addresses of hosts"
        }
        PortRefusal::Protocol => "write tcp or udp",
        PortRefusal::NotHolder => "`wirerate map` lists all with their holders",
        PortRefusal::HostFull => "remove one of the host's, or raise `per-host` of [nat.port-mapping]",
        PortRefusal::TableFull => "remove some, or raise `size` of [nat.port-mapping]",
        PortRefusal::PortTaken => {
            "`wirerate map` lists the ports mapped; forwards and services have others; leave the port out for any"
        }
        PortRefusal::NoAddress => {
            "the interface that the translation leaves by has no IPv4 address: see `wirerate ports`"
        }
    };
    trouble(StatusCode::CONFLICT, refusal.to_string(), hint)
}

fn wrong(error: &str, hint: &str) -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::UNPROCESSABLE_ENTITY, error, hint)
}
