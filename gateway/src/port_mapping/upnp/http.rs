//! Documents and services of the devices, over HTTP.
//!
//! A request must name the address that it is sent to (no name that somebody else has resolve to it: DNS rebinding), and no browser may send
//! it for a site (`Origin`, `Sec-Fetch-Site`). Bounded are connections of a host and of all, the size of a request, and the time that it takes.
//! Nobody subscribes to events: a device that sends them to an address of the asker's choice attacks for him (CVE-2020-12695).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE, HOST, ORIGIN, SERVER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::action::{Asking, Failure};
use super::device::Device;
use super::service::{ALL, Service};
use super::soap::{Call, Fault};
use super::{ssdp, xml};
use crate::event::Event;
use crate::port_mapping::Mapper;

/// Longest body of a request, in bytes: those of programs have one or two thousand.
const LONGEST_BODY: usize = 16 * 1024;

/// Time for a request of a host.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Devices of an address.
pub(super) struct Site {
    /// Address.
    pub(super) address: Ipv4Addr,
    /// Devices.
    pub(super) devices: [Device; 2],
    /// Queue of the supervisor.
    pub(super) events: Sender<Event>,
    /// Time for a request, with its body.
    pub(super) patience: Duration,
}

/// A host's connection.
#[derive(Clone)]
struct Visit {
    site: Arc<Site>,
    host: Ipv4Addr,
}

/// Routes for a host's connection.
pub(super) fn router(site: Arc<Site>, host: Ipv4Addr) -> Router {
    Router::new().fallback(answer).with_state(Visit { site, host })
}

async fn answer(State(visit): State<Visit>, request: Request) -> Response {
    let answered = timeout(visit.site.patience, visit.answer(request)).await;
    let mut response = answered.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response());
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static(ssdp::SOFTWARE));
    headers.insert(HeaderName::from_static("ext"), HeaderValue::from_static(""));
    response
}

impl Visit {
    async fn answer(&self, request: Request) -> Response {
        if let Err(status) = self.check(request.headers()) {
            return status.into_response();
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if ["SUBSCRIBE", "UNSUBSCRIBE"].contains(&method.as_str()) {
            return StatusCode::NOT_IMPLEMENTED.into_response();
        }
        let is_read = method == Method::GET || method == Method::HEAD;
        for device in &self.site.devices {
            let Some(rest) = path.strip_prefix(&device.path()).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            if rest == "device.xml" {
                let describe = || document(StatusCode::OK, xml::device(device, self.site.address));
                return if is_read { describe() } else { refuse_method("GET, HEAD") };
            }
            for service in ALL {
                if rest.strip_suffix(".xml") == Some(service.path) {
                    let describe = || document(StatusCode::OK, xml::service(service, device.version));
                    return if is_read { describe() } else { refuse_method("GET, HEAD") };
                }
                if rest == service.path {
                    return match method == Method::POST {
                        true => self.call(device, service, request).await,
                        false => refuse_method("POST"),
                    };
                }
            }
        }
        StatusCode::NOT_FOUND.into_response()
    }

    /// Refuses requests by another name, and those that a site has a browser send.
    fn check(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
        let host = host.ok_or(StatusCode::BAD_REQUEST)?;
        let name = host.strip_suffix(&format!(":{}", ssdp::PORT)).unwrap_or(host);
        if name.parse() != Ok(self.site.address) {
            return Err(StatusCode::FORBIDDEN);
        }
        if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
            return Err(StatusCode::FORBIDDEN);
        }
        Ok(())
    }

    async fn call(&self, device: &Device, service: &Service, request: Request) -> Response {
        let headers = request.headers();
        // A page's form or image can send neither.
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !["text/xml", "application/xml", "application/soap+xml"]
            .iter()
            .any(|own| kind.eq_ignore_ascii_case(own))
        {
            return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
        }
        let Some(named) = headers.get("soapaction").and_then(|named| named.to_str().ok()) else {
            return (StatusCode::BAD_REQUEST, "the request has no SOAPACTION").into_response();
        };
        let named = named.to_owned();
        let Ok(body) = to_bytes(request.into_body(), LONGEST_BODY).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        // Some programs end the text as C does.
        let text = String::from_utf8_lossy(&body);
        let call = match Call::parse(text.trim_matches('\0'), &named, service, device.version) {
            Ok(call) => call,
            Err(malformed) => return (StatusCode::BAD_REQUEST, malformed.to_string()).into_response(),
        };
        let done = match service.action(&call.action, service.version(device.version).min(call.version)) {
            None => Err(Fault::Action.into()),
            Some(action) => match call.check(action) {
                Ok(()) => self.perform(device, service, &call).await.map(|values| (action, values)),
                Err(fault) => Err(fault.into()),
            },
        };
        match done {
            Ok((action, values)) => document(StatusCode::OK, xml::response(&call.service, action, &values)),
            Err(Failure::Fault(fault)) => {
                document(StatusCode::INTERNAL_SERVER_ERROR, xml::fault(fault.of(call.version)))
            }
            Err(Failure::Ending) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    async fn perform(&self, device: &Device, service: &Service, call: &Call) -> Result<Vec<String>, Failure> {
        let mapper = Mapper::ask(&self.site.events).await?;
        Asking { host: self.host, device, mapper: &mapper }.perform(service, call).await
    }
}

fn document(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "text/xml; charset=\"utf-8\"")], text).into_response()
}

fn refuse_method(allowed: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allowed)]).into_response()
}

#[cfg(test)]
mod tests;
