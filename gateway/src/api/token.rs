//! A token that whoever asks must show: `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).

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

/// Bytes of a token, at least: fewer could be tried out.
const LEAST: usize = 16;

/// A token, as its hash: two of those are of one length, and can be compared in the same time whatever they are.
#[derive(Clone, Copy)]
pub struct Token([u8; 32]);

impl Token {
    /// Reads a token from a file; white space around it is none of it.
    ///
    /// # Errors
    /// The file cannot be read, or has no token, or one of fewer than 16 characters.
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

/// Answers those alone that show the token.
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
