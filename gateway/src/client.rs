//! The asking side: one question to the gateway that listens on a socket.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use crate::api::Trouble;

/// The gateway that listens on one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why a question was not answered.
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens, or may be asked.
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The conversation broke off, or the other side does not speak as a gateway does.
    Garbled(String),
    /// The gateway says no.
    Refused(Trouble),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Unreachable { socket, error } => {
                write!(f, "no gateway can be asked at {}: {error}", socket.display())
            }
            ClientError::Garbled(what) => write!(f, "the gateway's answer cannot be understood: {what}"),
            ClientError::Refused(trouble) => f.write_str(&trouble.error),
        }
    }
}

impl std::error::Error for ClientError {}

impl Client {
    /// The gateway at that socket; nothing is asked yet.
    pub fn at(socket: &Path) -> Client {
        Client { socket: socket.to_owned() }
    }

    /// Asks, and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, question: &str) -> Result<T, ClientError> {
        json(&self.ask(Method::GET, question, String::new())?)
    }

    /// Asks with words of a query, and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_with<T: DeserializeOwned>(&self, question: &str, query: &impl Serialize) -> Result<T, ClientError> {
        json(&self.ask(Method::GET, &with(question, query)?, String::new())?)
    }

    /// Tells with words of a query, and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post_with<T: DeserializeOwned>(&self, what: &str, query: &impl Serialize) -> Result<T, ClientError> {
        json(&self.ask(Method::POST, &with(what, query)?, String::new())?)
    }

    /// Asks, and gives the answer as it is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_text(&self, question: &str) -> Result<String, ClientError> {
        let bytes = self.ask(Method::GET, question, String::new())?;
        String::from_utf8(bytes.into()).map_err(|error| ClientError::Garbled(error.to_string()))
    }

    /// Tells, and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, what: &str, body: String) -> Result<T, ClientError> {
        json(&self.ask(Method::POST, what, body)?)
    }

    /// Tells something that has no answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tell(&self, what: &str) -> Result<(), ClientError> {
        self.ask(Method::POST, what, String::new()).map(|_| ())
    }

    fn ask(&self, method: Method, path: &str, body: String) -> Result<Bytes, ClientError> {
        let unreachable = |error| ClientError::Unreachable { socket: self.socket.clone(), error };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(unreachable)?;
        runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
            let garbled = |error: &dyn fmt::Display| ClientError::Garbled(error.to_string());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| garbled(&error))?;
            tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "gateway")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| garbled(&error))?;
            let response = sender.send_request(request).await.map_err(|error| garbled(&error))?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|error| garbled(&error))?.to_bytes();
            if status == StatusCode::OK {
                return Ok(body);
            }
            match serde_json::from_slice(&body) {
                Ok(trouble) => Err(ClientError::Refused(trouble)),
                Err(_) => Err(ClientError::Garbled(format!("{status} for {path}"))),
            }
        })
    }
}

fn with(path: &str, query: &impl Serialize) -> Result<String, ClientError> {
    let query = serde_urlencoded::to_string(query).map_err(|error| ClientError::Garbled(error.to_string()))?;
    Ok(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    // An answer without content is `null`.
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| ClientError::Garbled(error.to_string()))
}
