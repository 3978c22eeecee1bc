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
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Reads a certificate, with those that lead to its issuer, and its key: PEM files.
///
/// # Errors
/// A file cannot be read, or is none of that kind; the key is another certificate's.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).map_err(|error| wrong(certificate, &error))?.collect();
    let chain = chain.map_err(|error| wrong(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Takes connections, each of which begins with a handshake.
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

/// A connection, from its handshake on.
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
