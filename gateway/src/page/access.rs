//! Admission of requests: host, origin, user and role, in this order, for each request; and the headers of each response.
//!
//! The list of routes ([`ROUTES`]) has the role of each. A path that is not on the list is no route, whoever asks. Files of the page itself
//! are for everybody who may speak to the address: they hold nothing of the gateway.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use tokio::time::timeout;

use super::audit::Asked;
use super::user::hash_of;
use super::{Page, User, asset};
use crate::api::route::{BASE, Load, ROUTES, Route};
use crate::api::{Answer, Caller, Trouble, trouble};

/// Address of the client of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Time for a request that puts no policy in force.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for a request of somebody who is not known yet, with its body.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);

/// Time in which a policy of any size is in force, or refused.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

/// Nothing but the page's own files is loaded or sent to, no script is in the text, and nothing may become markup.
const CONTENT: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                       base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, CONTENT),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Puts access control before the routes of the API.
pub(crate) fn router(page: Arc<Page>, api: Router) -> Router {
    api.layer(from_fn_with_state(page.clone(), admit)).layer(Extension(page))
}

async fn admit(State(page): State<Arc<Page>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| address.ip());
    let mut response = match peer {
        Some(peer) => page.serve(peer, request, next).await,
        None => trouble(StatusCode::FORBIDDEN, "the client has no address", "use TCP").into_response(),
    };
    let status = response.status();
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

impl Page {
    async fn serve(self: &Arc<Page>, peer: IpAddr, mut request: Request, next: Next) -> Response {
        let (method, headers) = (request.method(), request.headers());
        if let Err(refusal) = self.check_host(headers) {
            return refusal.into_response();
        }
        let path = request.uri().path();
        if let Some(asset) = asset::at(path).filter(|_| is_safe(method)) {
            return asset.into_response();
        }
        if let Err(refusal) = self.check_origin(method, headers) {
            return refusal.into_response();
        }
        let Some(route) = route_of(method, path) else {
            return next.run(request).await;
        };
        let user = match route.role.map(|_| self.user_of(peer, headers)).transpose() {
            Ok(user) => user,
            Err(refusal) => {
                if headers.contains_key(AUTHORIZATION) && refusal.0 == StatusCode::UNAUTHORIZED {
                    self.record(peer, &request, None, refusal.0);
                }
                return refusal.into_response();
            }
        };
        if let (Some(wanted), Some(user)) = (route.role, &user) {
            if user.role < wanted {
                self.record(peer, &request, Some(user), StatusCode::FORBIDDEN);
                let error = format!("{} may only {}", user.name, user.role);
                let hint =
                    format!("it takes a token of role {wanted}: `wirerate token add NAME --role {wanted}`");
                return trouble(StatusCode::FORBIDDEN, error, hint).into_response();
            }
        }
        if let Some(user) = &user {
            let caller = Caller::Page { name: user.name.clone(), address: peer.to_canonical() };
            request.extensions_mut().insert(user.clone());
            request.extensions_mut().insert(caller);
        }
        self.clone().answer(route, peer, user, request, next).await
    }

    /// Has a route answer, in bounded time. A change is carried out, and recorded, though its client may go.
    async fn answer(
        self: Arc<Page>,
        route: &'static Route,
        peer: IpAddr,
        user: Option<User>,
        request: Request,
        next: Next,
    ) -> Response {
        if is_safe(request.method()) {
            return self.run(route, request, next).await;
        }
        let (method, target) = (request.method().clone(), target_of(&request));
        let done = tokio::spawn(async move {
            let response = self.run(route, request, next).await;
            let user = user.as_ref().or_else(|| response.extensions().get::<User>());
            let asked = Asked { user, address: peer, method: &method, target: &target };
            if response.status() != StatusCode::TOO_MANY_REQUESTS {
                self.audit.record(&asked, response.status());
            }
            response
        });
        done.await.unwrap_or_else(|_| {
            trouble(StatusCode::INTERNAL_SERVER_ERROR, "the request failed", "see the gateway's log")
                .into_response()
        })
    }

    async fn run(&self, route: &Route, request: Request, next: Next) -> Response {
        let patience = match (route.role, route.load) {
            (None, _) => SHORT_PATIENCE,
            (Some(_), Load::Policy) => LONG_PATIENCE,
            (Some(_), Load::Light | Load::Heavy) => PATIENCE,
        };
        let answer = async {
            let _permit = match route.load {
                Load::Light => None,
                Load::Heavy | Load::Policy => self.heavy.acquire().await.ok(),
            };
            next.run(request).await
        };
        timeout(patience, answer).await.unwrap_or_else(|_| {
            let error = "the gateway has too much to answer at this time";
            trouble(StatusCode::SERVICE_UNAVAILABLE, error, "try again soon").into_response()
        })
    }

    fn record(&self, peer: IpAddr, request: &Request, user: Option<&User>, status: StatusCode) {
        let target = target_of(request);
        self.audit.record(&Asked { user, address: peer, method: request.method(), target: &target }, status);
    }

    /// Returns the user of a request, by a token or by a session.
    fn user_of(&self, peer: IpAddr, headers: &HeaderMap) -> Answer<User> {
        let now = Instant::now();
        if let Some(shown) = headers.get(AUTHORIZATION) {
            self.may_try(peer, now)?;
            let token = shown.to_str().ok().and_then(|shown| shown.split_at_checked(7));
            let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer "));
            return token.and_then(|(_, token)| self.users.with(&hash_of(token.trim()))).ok_or_else(|| {
                self.failures.count(peer, now);
                unknown("no user has this token")
            });
        }
        let token = self.session_of(headers).and_then(|id| self.sessions.token(id, now));
        token.and_then(|hash| self.users.with(&hash)).ok_or_else(|| unknown("a login is needed"))
    }

    /// Refuses another attempt of an address that failed too often.
    pub(super) fn may_try(&self, peer: IpAddr, now: Instant) -> Answer<()> {
        let Some(wait) = self.failures.wait(peer, now) else { return Ok(()) };
        let hint = format!("wait {} s", wait.as_secs() + 1);
        Err(trouble(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens came from this address", hint))
    }
}

fn unknown(error: &str) -> (StatusCode, Json<Trouble>) {
    trouble(StatusCode::UNAUTHORIZED, error, "log in, or send `Authorization: Bearer TOKEN`")
}

fn is_safe(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

fn target_of(request: &Request) -> String {
    request.uri().path_and_query().map_or_else(String::new, ToString::to_string)
}

/// The route of a request. A `HEAD` is answered as the `GET` of the same path, without the body.
pub(super) fn route_of(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let path = path.strip_prefix(BASE)?;
    ROUTES.iter().find(|route| route.path == path && route.verb.method() == *method)
}
