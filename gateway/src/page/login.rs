//! Login by a token, for a session of the browser; who one is; logout.

use std::sync::Arc;
use std::time::Instant;

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Peer;
use super::session::LONGEST;
use super::user::hash_of;
use super::{Page, Role, Transport, User};
use crate::api::{Answer, trouble};

/// Body of `POST /login`.
#[derive(Deserialize)]
pub(crate) struct Login {
    /// Token, as `wirerate token add` printed it.
    token: String,
}

/// User and role of a session or a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// Name of the user.
    pub user: String,
    /// Role of the user.
    pub role: Role,
}

impl From<&User> for Me {
    fn from(user: &User) -> Me {
        Me { user: user.name.clone(), role: user.role }
    }
}

/// Name of the cookie where the browser has TLS: one of this prefix is taken from the host itself alone, over TLS.
const SECURE_COOKIE: &str = "__Host-wirerate";

/// Name of the cookie without TLS, on loopback.
const CLEAR_COOKIE: &str = "wirerate";

/// Characters of a token, at most.
const MOST_OF_TOKEN: usize = 256;

/// `POST /login`: begins a session.
pub(crate) async fn login(
    Extension(page): Extension<Arc<Page>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    Json(Login { token }): Json<Login>,
) -> Answer<Response> {
    let now = Instant::now();
    page.may_try(peer.ip(), now)?;
    let hash = hash_of(token.trim());
    let user = page.users.with(&hash).filter(|_| token.len() <= MOST_OF_TOKEN);
    let Some(user) = user else {
        page.failures.count(peer.ip(), now);
        let hint = "`wirerate token add NAME --role read` on the gateway makes one";
        return Err(trouble(StatusCode::UNAUTHORIZED, "no user has this token", hint));
    };
    let id = page.sessions.begin(hash, now);
    let me = Json(Me::from(&user));
    Ok(([(SET_COOKIE, page.cookie(&headers, &id, LONGEST.as_secs()))], Extension(user), me).into_response())
}

/// `POST /logout`: ends the session.
pub(crate) async fn logout(Extension(page): Extension<Arc<Page>>, headers: HeaderMap) -> Response {
    if let Some(id) = page.session_of(&headers) {
        page.sessions.end(id);
    }
    ([(SET_COOKIE, page.cookie(&headers, "", 0))], Json(())).into_response()
}

/// `GET /me`: user and role.
pub(crate) async fn me(Extension(user): Extension<User>) -> Json<Me> {
    Json(Me::from(&user))
}

impl Page {
    fn cookie(&self, headers: &HeaderMap, id: &str, seconds: u64) -> String {
        let (name, secure) =
            if self.is_secure(headers) { (SECURE_COOKIE, "; Secure") } else { (CLEAR_COOKIE, "") };
        format!("{name}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Identifier of the session in the cookies of a request.
    pub(super) fn session_of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let find = |wanted: &str| {
            let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
            let pairs = cookies.flat_map(|cookies| cookies.split(';'));
            let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
            pairs.find(|(name, _)| *name == wanted).map(|(_, id)| id)
        };
        match self.transport {
            Transport::Tls => find(SECURE_COOKIE),
            // By a proxy, else by loopback.
            Transport::Clear if !self.origins.is_empty() => {
                find(SECURE_COOKIE).or_else(|| find(CLEAR_COOKIE))
            }
            Transport::Clear => find(CLEAR_COOKIE),
        }
    }
}
