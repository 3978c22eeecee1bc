//! Error responses: always JSON, including those of the HTTP library itself.

use axum::Json;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Body of an error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// Error.
    pub error: String,
    /// Remedy.
    pub hint: String,
}

/// Response, or status code with an error body.
pub type Answer<T> = Result<T, (StatusCode, Json<Trouble>)>;

/// Returns both halves of an error [`Answer`]: status code and body.
pub fn trouble(
    code: StatusCode,
    error: impl Into<String>,
    hint: impl Into<String>,
) -> (StatusCode, Json<Trouble>) {
    (code, Json(Trouble { error: error.into(), hint: hint.into() }))
}

/// Responds to a path without a route.
pub(super) async fn unknown(uri: Uri) -> (StatusCode, Json<Trouble>) {
    let error = format!("the gateway has no {}", uri.path());
    trouble(StatusCode::NOT_FOUND, error, SAME_VERSION)
}

/// Responds to a method that the path does not support.
pub(super) async fn other_method(method: Method, uri: Uri) -> (StatusCode, Json<Trouble>) {
    let error = format!("{} does not take {method}", uri.path());
    trouble(StatusCode::METHOD_NOT_ALLOWED, error, SAME_VERSION)
}

/// Rewrites the HTTP library's own error responses (to a malformed number, say) as JSON.
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

/// Most bytes read of the library's own error text; the text is far shorter.
const MOST_WORDS: usize = 16 << 10;

const SAME_VERSION: &str = "use the same version of wirerate for both";

/// Responds to every request with 403: the peer is not permitted.
pub fn forbidden(who: String) -> Router {
    Router::new().fallback(move || {
        let error = format!("the gateway takes no questions from {who}");
        async { trouble(StatusCode::FORBIDDEN, error, "ask as root, or as the user that runs it") }
    })
}
