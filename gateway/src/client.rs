//! The asking side: one question to the gateway that listens on a socket.

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

/// The gateway that listens on one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or may be asked.
    #[error("no gateway can be asked at {socket}: {error}")]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Somebody listens, but nothing came back in time.
    #[error("the gateway at {socket} has not answered within {} seconds", .waited.as_secs_f64())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// Time that was waited.
        waited: Duration,
    },
    /// The conversation broke off, or the other side does not speak as a gateway does.
    #[error("the gateway's answer cannot be understood: {0}")]
    Garbled(String),
    /// The gateway says no.
    #[error("{}", .0.error)]
    Refused(Trouble),
}

impl Client {
    /// Time in which an answer must begin and go on, unless [`Client::patient`] says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    /// The gateway at that socket; nothing is asked yet.
    pub fn at(socket: &Path) -> Client {
        Client { socket: socket.to_owned(), patience: Client::PATIENCE }
    }

    /// The same, with another time to wait for an answer's beginning and for each further piece.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Client {
        Client { patience, ..self }
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
    pub fn get_with<T: DeserializeOwned>(
        &self,
        question: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        json(&self.ask(Method::GET, &with(question, query)?, String::new())?)
    }

    /// Tells with words of a query, and reads the answer as JSON.
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

    /// Tells with words of a query and a body, and reads the answer as JSON.
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

    /// Asks, and hands on the answer as it comes: each piece, and nothing at each `tick` in which none came. `take` says
    /// whether to go on.
    ///
    /// # Errors
    /// Those of `take`, and see [`ClientError`]; an answer that breaks off is [`ClientError::Garbled`].
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

    /// Tells what is read from `source`, piece by piece, and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`ClientError`]; a source that cannot be read to its end breaks the conversation off.
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

    /// Says something, and gives the body of the answer if that is not a refusal.
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

    /// A body as it came, however long that takes as long as something comes.
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

/// Bytes that are sent at once.
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
