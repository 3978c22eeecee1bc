//! Server of the control API: the Unix socket, the metrics address, and the address of the page.
//!
//! Peers without permission receive an error response. See [`connection`] for limits on bad or slow
//! clients.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use axum::Extension;
use policy::model::PageAccess;
use rustix::net::SocketType;
use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::error;

use crate::api;
use crate::event::Event;
use crate::page::{self, Explain, Page, Peer, Transport};

pub mod connection;
mod error;
pub(crate) mod expiry;
pub(crate) mod socket;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tls;

use connection::{Bounds, serve};
use socket::{Purpose, SocketFile, listen};
use tls::{Acceptor, TlsListener};

pub use error::{Endpoint, ServerError};

/// Metrics endpoint and page: listeners, TLS, token and users, opened before privileges are dropped, as the addresses may need them.
pub struct Public {
    token: Option<api::Token>,
    acceptor: Option<Acceptor>,
    listener: Option<TcpListener>,
    page: Option<Arc<Page>>,
    page_acceptor: Option<Acceptor>,
    page_listener: Option<TcpListener>,
    explain: Option<Explain>,
}

impl Public {
    /// Reads the files for access to metrics and page, and binds their addresses.
    ///
    /// # Errors
    /// [`ServerError`] names the address, or the file of token, users, certificate or key, that is at fault.
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
            (Some(certificate), Some(key)) => Some(Acceptor::open(certificate, key, Endpoint::Metrics)?),
            _ => None,
        };
        let listener = gateway.metrics.map(|address| bind(address, Endpoint::Metrics)).transpose()?;
        let PageAccess { tokens, certificate, key, names, origins } = &gateway.page_access;
        let page_acceptor = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Acceptor::open(certificate, key, Endpoint::Page)?),
            _ => None,
        };
        let transport = if page_acceptor.is_some() { Transport::Tls } else { Transport::Clear };
        let page = match tokens {
            Some(users) => {
                Some(Arc::new(Page::open(users.clone(), names.clone(), origins.clone(), transport)?))
            }
            None => None,
        };
        let page_listener = gateway.page.map(|address| bind(address, Endpoint::Page)).transpose()?;
        Ok(Public { token, acceptor, listener, page, page_acceptor, page_listener, explain: None })
    }

    /// Sets the explanation of packets, for the page.
    #[must_use]
    pub fn explaining(self, explain: Explain) -> Public {
        Public { explain: Some(explain), ..self }
    }
}

/// Running server, which stops when dropped.
pub struct Server {
    _file: SocketFile,
    _stop: oneshot::Sender<()>,
    _page_stop: Option<oneshot::Sender<()>>,
}

impl Server {
    /// Starts to listen, on threads of its own: one for the control socket and metrics, one for the page.
    ///
    /// # Errors
    /// [`ServerError`] names the fault of the control socket.
    pub fn start(path: &Path, public: Public, events: Sender<Event>) -> Result<Server, ServerError> {
        let Public { token, acceptor, listener: loopback, page, page_acceptor, page_listener, explain } =
            public;
        let control = listen(path, SocketType::STREAM, Purpose::Control)?;
        let file = SocketFile::at(path, Purpose::Control)?;
        let (stop, stopped) = oneshot::channel();
        let thread = |error| ServerError::Thread { error };
        let mut page_stop = None;
        if let (Some(page), Some(listener)) = (page, page_listener) {
            page_stop = Some(start_page(page, listener, page_acceptor, explain, events.clone())?);
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(thread)?;
        let answer = move || {
            runtime.block_on(async move {
                if let Some(loopback) = loopback {
                    match tokio::net::TcpListener::from_std(loopback) {
                        Ok(listener) => {
                            let public = api::public(events.clone(), token);
                            match acceptor {
                                Some(acceptor) => {
                                    let listener = TlsListener { listener, acceptor };
                                    tokio::spawn(serve(listener, Bounds::PUBLIC, move |_, _| public.clone()));
                                }
                                None => {
                                    tokio::spawn(serve(listener, Bounds::PUBLIC, move |_, _| public.clone()));
                                }
                            }
                        }
                        Err(error) => error!("metrics cannot be given: {error}"),
                    }
                }
                match tokio::net::UnixListener::from_std(control) {
                    Ok(listener) => {
                        let control = api::control(events);
                        let may_ask = move |stream: &UnixStream, _: &_| match stranger(stream) {
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
        Ok(Server { _file: file, _stop: stop, _page_stop: page_stop })
    }
}

/// Serves the page on a thread of its own: its handshakes and clients keep no command waiting.
fn start_page(
    page: Arc<Page>,
    listener: TcpListener,
    acceptor: Option<Acceptor>,
    explain: Option<Explain>,
    events: Sender<Event>,
) -> Result<oneshot::Sender<()>, ServerError> {
    let (stop, stopped) = oneshot::channel();
    let thread = |error| ServerError::Thread { error };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(thread)?;
    let answer = move || {
        runtime.block_on(async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return error!("the page cannot be given: {error}"),
            };
            let router = page::router(page, api::route::router(api::Desk::of_page(events, explain)));
            let of_client = move |address: &SocketAddr| router.clone().layer(Extension(Peer(*address)));
            let served = async move {
                match acceptor {
                    Some(acceptor) => {
                        let listener = TlsListener { listener, acceptor };
                        serve(listener, Bounds::PAGE, move |_, address| of_client(address)).await;
                    }
                    None => serve(listener, Bounds::PAGE, move |_, address| of_client(address)).await,
                }
            };
            tokio::select! {
                () = served => {}
                _ = stopped => {}
            }
        });
    };
    thread::Builder::new().name("page".to_owned()).spawn(answer).map_err(thread)?;
    Ok(stop)
}

/// Returns the user at the other end.
fn caller(stream: &UnixStream) -> api::Caller {
    stream.peer_cred().map_or(api::Caller::Unknown, |peer| api::Caller::User(peer.uid()))
}

/// Returns the name of a user without permission: neither root nor the gateway's own user.
fn stranger(stream: &UnixStream) -> Option<String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => None,
        Ok(peer) => Some(format!("user {}", peer.uid())),
        Err(_) => Some("nobody in particular".to_owned()),
    }
}

/// Binds a listener.
fn bind(address: SocketAddr, endpoint: Endpoint) -> Result<TcpListener, ServerError> {
    let listener =
        TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| ServerError::Bind { endpoint, address, error })
}
