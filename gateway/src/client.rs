//! Client of the control API: one request per connection to the gateway's socket.

use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::api::Trouble;
use crate::stream::{Broken, stream};

/// Client of the gateway at one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

/// Reason for a request without a response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No listener at the socket, or no permission to connect.
    #[error("no gateway can be asked at {socket}: {error}")]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Timeout: connected, but no response.
    #[error("the gateway at {socket} has not answered within {} seconds", .waited.as_secs_f64())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// Time waited.
        waited: Duration,
    },
    /// Connection closed early, or a response that is not the gateway's.
    #[error("the gateway's answer cannot be understood: {0}")]
    Garbled(String),
    /// Error response of the gateway.
    #[error("{}", .0.error)]
    Refused(Trouble),
}

impl Client {
    /// Time in which a response must begin and go on, unless [`Client::patient`] sets another.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    /// Client of the gateway at that socket; does not connect yet.
    pub fn at(socket: &Path) -> Client {
        Client { socket: socket.to_owned(), patience: Client::PATIENCE }
    }

    /// Sets the timeout for the beginning of a response and for each further piece.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Sends a GET request and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, question: &str) -> Result<T, ClientError> {
        json(&self.ask(Method::GET, question, String::new())?)
    }

    /// Sends a GET request with query parameters and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_with<T: DeserializeOwned>(
        &self,
        question: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        json(&self.ask(Method::GET, &with(question, query)?, String::new())?)
    }

    /// Sends a POST request with query parameters and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post_with<T: DeserializeOwned>(
        &self,
        what: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        json(&self.ask(Method::POST, &with(what, query)?, String::new())?)
    }

    /// Sends a POST request with query parameters and a body, and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post_body_with<T: DeserializeOwned>(
        &self,
        what: &str,
        query: &impl Serialize,
        body: String,
    ) -> Result<T, ClientError> {
        json(&self.ask(Method::POST, &with(what, query)?, body)?)
    }

    /// Sends a GET request and returns the response as text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_text(&self, question: &str) -> Result<String, ClientError> {
        let bytes = self.ask(Method::GET, question, String::new())?;
        String::from_utf8(bytes.into()).map_err(|error| ClientError::Garbled(error.to_string()))
    }

    /// Sends a POST request and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, what: &str, body: String) -> Result<T, ClientError> {
        json(&self.ask(Method::POST, what, body)?)
    }

    /// Sends a POST request that has no response body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tell(&self, what: &str) -> Result<(), ClientError> {
        self.ask(Method::POST, what, String::new()).map(|_| ())
    }

    /// Sends a GET request and streams the response to `take`: each piece, and nothing at each `tick` without one.
    /// `take` decides whether to go on.
    ///
    /// # Errors
    /// Errors of `take`, and [`ClientError`]; a truncated response is [`ClientError::Garbled`].
    pub fn listen<E: From<ClientError>>(
        &self,
        question: &str,
        query: &impl Serialize,
        tick: Duration,
        mut take: impl FnMut(Option<&[u8]>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let path = with(question, query)?;
        self.runtime()?.block_on(async {
            let mut body = self.converse(Method::GET, &path, Full::new(Bytes::new())).await?;
            loop {
                let flow = match timeout(tick, body.frame()).await {
                    Err(_) => take(None)?,
                    Ok(None) => return Ok(()),
                    Ok(Some(frame)) => match frame.map_err(|error| garbled(&error))?.data_ref() {
                        Some(piece) => take(Some(piece))?,
                        None => ControlFlow::Continue(()),
                    },
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        })
    }

    /// Streams the content of `source` as a POST body and parses the response as JSON.
    ///
    /// # Errors
    /// See [`ClientError`]; a read error of the source aborts the connection.
    pub fn send<T: DeserializeOwned>(
        &self,
        what: &str,
        mut source: impl Read + Send + 'static,
    ) -> Result<T, ClientError> {
        let (pieces, body) = stream();
        let reader = thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let piece = match source.read(&mut piece) {
                    Ok(0) => return,
                    Ok(count) => {
                        piece.truncate(count);
                        Ok(Bytes::from(piece))
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => Err(Broken),
                };
                let is_last = piece.is_err();
                if pieces.blocking_send(piece).is_err() || is_last {
                    return;
                }
            }
        });
        let answer = self.runtime()?.block_on(async {
            let body = self.converse(Method::POST, what, body).await?;
            self.whole(body).await
        });
        // It has ended, since nobody takes its pieces any more; and it cannot panic.
        let _ = reader.join();
        json(&answer?)
    }

    fn ask(&self, method: Method, path: &str, body: String) -> Result<Bytes, ClientError> {
        self.runtime()?.block_on(async {
            let body = self.converse(method, path, Full::new(Bytes::from(body))).await?;
            self.whole(body).await
        })
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| ClientError::Unreachable { socket: self.socket.clone(), error })
    }

    /// Sends a request, and returns the body of the response unless the gateway refuses.
    async fn converse<B>(&self, method: Method, path: &str, body: B) -> Result<Incoming, ClientError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let unreachable = |error| ClientError::Unreachable { socket: self.socket.clone(), error };
        let connected = timeout(self.patience, UnixStream::connect(&self.socket)).await;
        let stream = connected.map_err(|_| self.silent())?.map_err(unreachable)?;
        let (mut sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| garbled(&error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gateway")
            .body(body)
            .map_err(|error| garbled(&error))?;
        let response = timeout(self.patience, sender.send_request(request)).await;
        let response = response.map_err(|_| self.silent())?.map_err(|error| garbled(&error))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        match serde_json::from_slice(&self.whole(response.into_body()).await?) {
            Ok(trouble) => Err(ClientError::Refused(trouble)),
            Err(_) => Err(ClientError::Garbled(format!("{status} for {path}"))),
        }
    }

    /// Reads a whole body, however long, with the timeout on each piece.
    async fn whole(&self, mut body: Incoming) -> Result<Bytes, ClientError> {
        let mut bytes = Vec::new();
        while let Some(frame) = timeout(self.patience, body.frame()).await.map_err(|_| self.silent())? {
            if let Some(piece) = frame.map_err(|error| garbled(&error))?.data_ref() {
                bytes.extend_from_slice(piece);
            }
        }
        Ok(Bytes::from(bytes))
    }

    fn silent(&self) -> ClientError {
        ClientError::Silent { socket: self.socket.clone(), waited: self.patience }
    }
}

/// Bytes sent at once.
const PIECE: usize = 1 << 16;

fn garbled(error: &dyn fmt::Display) -> ClientError {
    ClientError::Garbled(error.to_string())
}

fn with(path: &str, query: &impl Serialize) -> Result<String, ClientError> {
    let query =
        serde_urlencoded::to_string(query).map_err(|error| ClientError::Garbled(error.to_string()))?;
    Ok(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    // An answer without content is `null`.
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| ClientError::Garbled(error.to_string()))
}
