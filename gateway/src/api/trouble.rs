//! What went wrong, in words, and always as JSON: also what the HTTP library refuses of its own accord.

use axum::Json;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// What went wrong, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What.
    pub error: String,
    /// What can be done about it.
    pub hint: String,
}

/// An answer, or what went wrong.
pub type Answer<T> = Result<T, (StatusCode, Json<Trouble>)>;

/// Both halves of [`Answer`]'s other side.
pub fn trouble(
    code: StatusCode,
    error: impl Into<String>,
    hint: impl Into<String>,
) -> (StatusCode, Json<Trouble>) {
    (code, Json(Trouble { error: error.into(), hint: hint.into() }))
}

/// Where nobody answers.
pub(super) async fn unknown(uri: Uri) -> (StatusCode, Json<Trouble>) {
    let error = format!("the gateway has no {}", uri.path());
    trouble(StatusCode::NOT_FOUND, error, SAME_VERSION)
}

/// Where somebody answers, but not so.
pub(super) async fn other_method(method: Method, uri: Uri) -> (StatusCode, Json<Trouble>) {
    let error = format!("{} does not take {method}", uri.path());
    trouble(StatusCode::METHOD_NOT_ALLOWED, error, SAME_VERSION)
}

/// Tells what the library refuses (a number that is none, say) as all other trouble is told.
pub(super) async fn in_words(request: Request, next: Next) -> Response {
    let (head, body) = next.run(request).await.into_parts();
    let failed = head.status.is_client_error() || head.status.is_server_error();
    let told = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !failed || told {
        return Response::from_parts(head, body);
    }
    let text = to_bytes(body, MOST_WORDS).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let error = if text.is_empty() { head.status.to_string() } else { text.into_owned() };
    trouble(head.status, error, SAME_VERSION).into_response()
}

/// Bytes of what the library says; far less than that.
const MOST_WORDS: usize = 16 << 10;

const SAME_VERSION: &str = "use the same version of wirerate for both";

/// What somebody is told who may not ask.
pub fn forbidden(who: String) -> Router {
    Router::new().fallback(move || {
        let error = format!("the gateway takes no questions from {who}");
        async { trouble(StatusCode::FORBIDDEN, error, "ask as root, or as the user that runs it") }
    })
}
