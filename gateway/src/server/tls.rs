//! TLS for metrics and the page, which other machines ask for. A certificate that is renewed is taken up while connections go on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tracing::{info, warn};

use super::{Endpoint, ServerError, expiry};
use crate::stamp::Stamp;

/// Acceptor of TLS connections, by files that are read again when they change.
pub(super) struct Acceptor {
    certificate: PathBuf,
    key: PathBuf,
    endpoint: Endpoint,
    acceptor: TlsAcceptor,
    /// Last moment of the certificate's validity.
    end: Option<SystemTime>,
    /// Time of the last word on it.
    named: Instant,
    /// Stamps of the files that the acceptor is of.
    stamp: [Option<Stamp>; 2],
    checked: Instant,
}

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time between two words on a certificate that expires, or has.
const REMINDER: Duration = Duration::from_secs(86_400);

impl Acceptor {
    /// Reads a certificate with its chain and its private key: PEM files.
    ///
    /// # Errors
    /// Unreadable file or not PEM; key that does not match the certificate.
    pub(super) fn open(certificate: &Path, key: &Path, endpoint: Endpoint) -> Result<Acceptor, ServerError> {
        let stamp = stamps(certificate, key);
        let (acceptor, end) = acceptor(certificate, key, endpoint)?;
        let (certificate, key, now) = (certificate.to_owned(), key.to_owned(), Instant::now());
        let mut opened =
            Acceptor { certificate, key, endpoint, acceptor, end, named: now, stamp, checked: now };
        opened.name_expiry(now);
        Ok(opened)
    }

    fn name_expiry(&mut self, now: Instant) {
        self.named = now;
        let warning = self
            .end
            .and_then(|end| expiry::warning(self.endpoint, &self.certificate, end, SystemTime::now()));
        if let Some(warning) = warning {
            warn!("{warning}");
        }
    }

    /// Returns the acceptor of the files as they are; of unusable ones, that of the files before.
    fn current(&mut self, now: Instant) -> &TlsAcceptor {
        if now.duration_since(self.checked) >= INTERVAL {
            self.checked = now;
            let stamp = stamps(&self.certificate, &self.key);
            if stamp != self.stamp {
                self.stamp = stamp;
                match acceptor(&self.certificate, &self.key, self.endpoint) {
                    Ok((acceptor, end)) => {
                        (self.acceptor, self.end) = (acceptor, end);
                        info!(
                            "{}: certificate {} read again",
                            self.endpoint.name(),
                            self.certificate.display()
                        );
                        self.name_expiry(now);
                    }
                    Err(error) => warn!("{error}; the certificate before stays in use"),
                }
            }
            if now.duration_since(self.named) >= REMINDER {
                self.name_expiry(now);
            }
        }
        &self.acceptor
    }
}

/// Identity of both files' contents.
fn stamps(certificate: &Path, key: &Path) -> [Option<Stamp>; 2] {
    [certificate, key].map(Stamp::of)
}

/// Certificate with its chain, and private key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Last moment of the certificate's validity.
    pub(crate) end: Option<SystemTime>,
}

impl Identity {
    /// Reads both files: PEM.
    ///
    /// # Errors
    /// Unreadable file or not PEM.
    pub(crate) fn read(certificate: &Path, key: &Path, endpoint: Endpoint) -> Result<Identity, ServerError> {
        let of_certificate = |error| ServerError::Certificate {
            endpoint,
            path: certificate.to_owned(),
            error: read_error(error),
        };
        let chain =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(of_certificate)?;
        let first = chain.first().ok_or_else(|| of_certificate(pem::Error::NoItemsFound))?;
        let end = expiry::end_of(first);
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| ServerError::Key {
            endpoint,
            path: key.to_owned(),
            error: read_error(error),
        })?;
        Ok(Identity { chain, key: private, end })
    }

    /// Error of files that the library refuses.
    pub(crate) fn refused(
        error: rustls::Error,
        certificate: &Path,
        key: &Path,
        endpoint: Endpoint,
    ) -> ServerError {
        // Else it is a key of no known kind, or another certificate's.
        let is_certificate = matches!(error, rustls::Error::InvalidCertificate(_));
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        if is_certificate {
            ServerError::Certificate { endpoint, path: certificate.to_owned(), error }
        } else {
            ServerError::Key { endpoint, path: key.to_owned(), error }
        }
    }
}

/// Reads both files; returns the last moment of the certificate's validity, too.
fn acceptor(
    certificate: &Path,
    key: &Path,
    endpoint: Endpoint,
) -> Result<(TlsAcceptor, Option<SystemTime>), ServerError> {
    let Identity { chain, key: private, end } = Identity::read(certificate, key, endpoint)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites of TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| Identity::refused(error, certificate, key, endpoint))?;
    Ok((TlsAcceptor::from(Arc::new(config)), end))
}

/// Converts an error of a PEM file, preserving the kind of a system error.
pub(crate) fn read_error(error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

/// Listener whose connections begin with a TLS handshake.
pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) acceptor: Acceptor,
}

impl Listener for TlsListener {
    type Io = Encrypted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Encrypted, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.listener).await;
        // Whoever dawdles over it keeps nobody else waiting, and is bounded by the time that a head may take.
        (Encrypted::Handshake(Box::new(self.acceptor.current(Instant::now()).accept(stream))), from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// TLS connection, from its handshake on.
pub(super) enum Encrypted {
    Handshake(Box<Accept<TcpStream>>),
    Open(Box<TlsStream<TcpStream>>),
    Failed,
}

impl Encrypted {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<TcpStream>>>> {
        if let Encrypted::Handshake(handshake) = self {
            match ready!(Pin::new(handshake).poll(cx)) {
                Ok(stream) => *self = Encrypted::Open(Box::new(stream)),
                Err(error) => {
                    *self = Encrypted::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Encrypted::Open(stream) => Ok(Pin::new(&mut **stream)),
            Encrypted::Handshake(_) | Encrypted::Failed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, into)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Encrypted::Open(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            // Nothing is open that could be shut down.
            Encrypted::Handshake(_) | Encrypted::Failed => Poll::Ready(Ok(())),
        }
    }
}
