//! Server of the control API: the Unix socket, and the metrics address.
//!
//! Peers without permission receive an error response. See [`connection`] for limits on bad or slow
//! clients.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread;

use axum::Extension;
use rustix::net::SocketType;
use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tracing::error;

use crate::api;
use crate::event::Event;

pub mod connection;
mod error;
pub(crate) mod socket;
#[cfg(test)]
mod tests;
mod tls;

use connection::{Bounds, serve};
use socket::{Purpose, SocketFile, listen};

pub use error::ServerError;

/// Metrics endpoint: listener, TLS and token, opened before privileges are dropped, as the address may need them.
pub struct Public {
    token: Option<api::Token>,
    acceptor: Option<TlsAcceptor>,
    listener: Option<TcpListener>,
}

impl Public {
    /// Reads the files for access to metrics, and binds the metrics address.
    ///
    /// # Errors
    /// [`ServerError`] names the address, or the file of token, certificate or key, that is at fault.
    pub fn open(gateway: &policy::model::Gateway) -> Result<Public, ServerError> {
        let access = &gateway.metrics_access;
        let token = match &access.token {
            Some(path) => {
                let wrong = |error| ServerError::Token { path: path.clone(), error };
                Some(api::Token::read(path).map_err(wrong)?)
            }
            None => None,
        };
        let acceptor = match (&access.certificate, &access.key) {
            (Some(certificate), Some(key)) => Some(tls::acceptor(certificate, key)?),
            _ => None,
        };
        let listener = gateway.metrics.map(listen_for_metrics).transpose()?;
        Ok(Public { token, acceptor, listener })
    }
}

/// Running server, which stops when dropped.
pub struct Server {
    _file: SocketFile,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts to listen, on a thread of its own.
    ///
    /// # Errors
    /// [`ServerError`] names the fault of the control socket.
    pub fn start(path: &Path, public: Public, events: Sender<Event>) -> Result<Server, ServerError> {
        let Public { token, acceptor, listener: loopback } = public;
        let control = listen(path, SocketType::STREAM, Purpose::Control)?;
        let file = SocketFile::at(path, Purpose::Control)?;
        let (stop, stopped) = oneshot::channel();
        let thread = |error| ServerError::Thread { error };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(thread)?;
        let answer = move || {
            runtime.block_on(async move {
                if let Some(loopback) = loopback {
                    match tokio::net::TcpListener::from_std(loopback) {
                        Ok(listener) => {
                            let public = api::public(events.clone(), token);
                            match acceptor {
                                Some(acceptor) => {
                                    let listener = tls::TlsListener { listener, acceptor };
                                    tokio::spawn(serve(listener, Bounds::PUBLIC, move |_| public.clone()));
                                }
                                None => {
                                    tokio::spawn(serve(listener, Bounds::PUBLIC, move |_| public.clone()));
                                }
                            }
                        }
                        Err(error) => error!("metrics cannot be given: {error}"),
                    }
                }
                match tokio::net::UnixListener::from_std(control) {
                    Ok(listener) => {
                        let control = api::control(events);
                        let may_ask = move |stream: &UnixStream| match stranger(stream) {
                            None => control.clone().layer(Extension(caller(stream))),
                            Some(who) => api::forbidden(who),
                        };
                        tokio::select! {
                            () = serve(listener, Bounds::CONTROL, may_ask) => {}
                            _ = stopped => {}
                        }
                    }
                    Err(error) => error!("commands cannot be taken: {error}"),
                }
            });
        };
        thread::Builder::new().name("api".to_owned()).spawn(answer).map_err(thread)?;
        Ok(Server { _file: file, _stop: stop })
    }
}

/// Returns the user at the other end.
fn caller(stream: &UnixStream) -> api::Caller {
    api::Caller { uid: stream.peer_cred().ok().map(|peer| peer.uid()) }
}

/// Returns the name of a user without permission: neither root nor the gateway's own user.
fn stranger(stream: &UnixStream) -> Option<String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => None,
        Ok(peer) => Some(format!("user {}", peer.uid())),
        Err(_) => Some("nobody in particular".to_owned()),
    }
}

/// Binds a listener for metrics.
fn listen_for_metrics(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener =
        TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| ServerError::Metrics { address, error })
}
