//! Requests that other sites make a browser send, and names that others have point here: refused.
//!
//! A name that somebody else makes resolve to the gateway (DNS rebinding) is no name of the gateway, so `Host` must be an
//! IP address, `localhost`, one of `page-names`, or the host of one of `page-origins`. A change must come from the page itself (`Origin`,
//! `Sec-Fetch-Site`), by its own address or under one of `page-origins`, and with a content type that a form of another site cannot send.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::Json;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};

use super::{Page, Transport};
use crate::api::{Trouble, trouble};

/// Scheme of an origin with TLS.
const SECURE: &str = "https://";

/// Refusal of a request, by its headers alone.
type Refusal = (StatusCode, Json<Trouble>);

impl Page {
    /// Refuses a request by a name that is not the gateway's.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
        let Some(host) = host else {
            return Err(trouble(StatusCode::BAD_REQUEST, "the request has no host", "send one `Host`"));
        };
        let name = name_of(host);
        let is_address = name.parse::<Ipv4Addr>().is_ok() || name.parse::<Ipv6Addr>().is_ok();
        let is_own =
            |name: &str| name == "localhost" || self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        // A proxy hands on the name by which it was asked, or one of its own configuration.
        if is_address || is_own(name) || self.is_proxy_name(name) {
            return Ok(());
        }
        let hint = "ask by the IP address; or add the name: page-names = [\"...\"] under [gateway] of the policy, or page-origins for a proxy's";
        Err(trouble(StatusCode::FORBIDDEN, "the page is not called by this name", hint))
    }

    /// Refuses a request that another site has a browser send.
    pub(super) fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let cross_site = || {
            let hint = "use the page itself; a program sends neither `Origin` nor `Sec-Fetch-Site`";
            Err(trouble(StatusCode::FORBIDDEN, "the request comes from another site", hint))
        };
        let is_safe = method == Method::GET || method == Method::HEAD;
        let allowed: &[&str] = if is_safe { &["same-origin", "none"] } else { &["same-origin"] };
        for site in headers.get_all("sec-fetch-site") {
            if !allowed.iter().any(|word| site == *word) {
                return cross_site();
            }
        }
        let scheme = match self.transport {
            Transport::Clear => "http://",
            Transport::Tls => SECURE,
        };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        for origin in headers.get_all(ORIGIN) {
            let Ok(origin) = origin.to_str() else { return cross_site() };
            let is_own = origin.strip_prefix(scheme).is_some_and(|from| from.eq_ignore_ascii_case(host));
            // By the name of a proxy nobody comes without TLS, but who is between the browser and the proxy.
            let is_direct = is_own && (scheme == SECURE || !self.is_proxy_name(name_of(host)));
            if !is_direct && !self.is_of_proxy(origin) {
                return cross_site();
            }
        }
        if !is_safe {
            let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            if !["application/json", "application/toml"].iter().any(|own| kind.eq_ignore_ascii_case(own)) {
                let hint = "send `Content-Type: application/json`, or `application/toml` with a policy";
                let error = "the request has no content type that another site could not send";
                return Err(trouble(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, hint));
            }
        }
        Ok(())
    }

    /// True if the browser that sends a request has TLS: with the gateway, or with a proxy before it.
    pub(super) fn is_secure(&self, headers: &HeaderMap) -> bool {
        let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        self.transport == Transport::Tls || origin.is_some_and(|origin| self.is_of_proxy(origin))
    }

    fn is_proxy_name(&self, name: &str) -> bool {
        let hosts = self.origins.iter().filter_map(|origin| origin.strip_prefix(SECURE));
        hosts.into_iter().any(|own| name_of(own).eq_ignore_ascii_case(name))
    }

    fn is_of_proxy(&self, origin: &str) -> bool {
        self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin))
    }
}

/// The name or address of a `Host`, without port, brackets and the dot of a full name.
fn name_of(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}
