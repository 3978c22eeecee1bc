//! Bearer token of clients: `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).

use std::fs;
use std::io;
use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::trouble;

/// Length of a token in bytes, at least: a shorter one could be guessed.
const LEAST: usize = 16;

/// Hash of a token: of fixed length, for a comparison in constant time.
#[derive(Clone, Copy)]
pub struct Token([u8; 32]);

impl Token {
    /// Reads a token from a file, without surrounding white space.
    ///
    /// # Errors
    /// Unreadable file, no token, or a token of fewer than 16 characters.
    pub fn read(path: &Path) -> io::Result<Token> {
        let text = fs::read_to_string(path)?;
        if text.trim().len() < LEAST {
            let error = format!("a token has {LEAST} characters or more");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(Token::of(text.trim().as_bytes()))
    }

    fn of(bytes: &[u8]) -> Token {
        Token(Sha256::digest(bytes).into())
    }

    fn is(self, shown: &[u8]) -> bool {
        self.0.ct_eq(&Token::of(shown).0).into()
    }
}

/// Requires the token for all routes.
pub(super) fn wanted(router: Router, token: Token) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| async move {
        let shown = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let shown = shown.and_then(|value| value.split_at_checked(7));
        match shown {
            Some((scheme, shown)) if scheme.eq_ignore_ascii_case(b"bearer ") && token.is(shown) => {
                next.run(request).await
            }
            _ => {
                let hint = "send `Authorization: Bearer TOKEN`, with the token of `metrics-token`";
                let refused = trouble(StatusCode::UNAUTHORIZED, "a token is wanted", hint);
                ([(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response()
            }
        }
    }))
}
