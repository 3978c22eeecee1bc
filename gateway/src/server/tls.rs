//! TLS for metrics that other machines fetch.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::ServerError;

/// Reads a certificate with its chain and its private key: PEM files.
///
/// # Errors
/// Unreadable file or not PEM; key that does not match the certificate.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, ServerError> {
    let of_certificate = |error| ServerError::Certificate { path: certificate.to_owned(), error };
    let of_key = |error| ServerError::Key { path: key.to_owned(), error };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| of_certificate(read(error)))?;
    if chain.is_empty() {
        return Err(of_certificate(read(pem::Error::NoItemsFound)));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of_key(read(error)))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites of TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| {
            // Else it is a key of no known kind, or another certificate's.
            let is_certificate = matches!(error, rustls::Error::InvalidCertificate(_));
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            if is_certificate { of_certificate(error) } else { of_key(error) }
        })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Converts an error of a PEM file, preserving the kind of a system error.
fn read(error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

/// Listener whose connections begin with a TLS handshake.
pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = Encrypted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Encrypted, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.listener).await;
        // Whoever dawdles over it keeps nobody else waiting, and is bounded by the time that a head may take.
        (Encrypted::Handshake(Box::new(self.acceptor.accept(stream))), from)
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
