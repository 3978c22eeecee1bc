//! Questions by TCP, HTTP and HTTP over TLS. Of an answer its head is read, 16 KiB at most, and nothing behind it; redirects are not followed.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use policy::model::StatusRange;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::Trouble;

/// Longest head of an answer, in bytes.
const LONGEST_HEAD: usize = 16 * 1024;

/// Request of a check.
#[derive(Clone)]
pub(crate) struct Question {
    /// Path and query.
    pub(crate) path: String,
    /// Host and port for the server to read.
    pub(crate) authority: String,
    /// Statuses that pass.
    pub(crate) status: Vec<StatusRange>,
    /// TLS; none where the request is in clear.
    pub(crate) tls: Option<Tls>,
}

/// TLS of a request.
#[derive(Clone)]
pub(crate) struct Tls {
    /// Name that the certificate must have.
    pub(crate) name: String,
    /// Certificates that are trusted.
    pub(crate) config: Arc<ClientConfig>,
}

/// Opens a connection, by an interface alone where one is given.
pub(crate) async fn connect(to: SocketAddr, interface: Option<&str>) -> Result<TcpStream, Trouble> {
    let made = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = made.map_err(|error| Trouble::NotAsked(error.kind()))?;
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    Ok(socket.connect(to).await?)
}

/// Asks a server, by an interface alone where one is given.
pub(crate) async fn ask(to: SocketAddr, interface: Option<&str>, question: &Question) -> Result<(), Trouble> {
    let stream = connect(to, interface).await?;
    let answer = match &question.tls {
        None => exchange(stream, question).await?,
        Some(tls) => {
            let name = ServerName::try_from(tls.name.clone())
                .map_err(|error| Trouble::Tls(format!("\"{}\": {error}", tls.name)))?;
            let connector = TlsConnector::from(Arc::clone(&tls.config));
            let stream = connector.connect(name, stream).await.map_err(|error| match error.get_ref() {
                Some(inner) => Trouble::Tls(inner.to_string()),
                None => error.into(),
            })?;
            exchange(stream, question).await?
        }
    };
    let status = answer.status().as_u16();
    match question.status.iter().any(|range| range.contains(status)) {
        true => Ok(()),
        false => Err(Trouble::Status(status)),
    }
}

/// TLS with the system's certificates, which are read when they are needed first.
#[derive(Default)]
pub(crate) struct SystemTls(Option<Arc<ClientConfig>>);

impl SystemTls {
    /// The configuration.
    ///
    /// # Errors
    /// The system trusts no certificates.
    pub(crate) fn get(&mut self) -> Result<Arc<ClientConfig>, Trouble> {
        let config = match self.0.take() {
            Some(config) => config,
            None => system_tls()?,
        };
        Ok(Arc::clone(self.0.insert(config)))
    }
}

/// Client's TLS with the certificates that the system trusts.
///
/// # Errors
/// No such certificates.
fn system_tls() -> Result<Arc<ClientConfig>, Trouble> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(Trouble::Tls(
            "the system has no certificates to check servers by; install ca-certificates, and restart the gateway".to_owned(),
        ));
    }
    let made = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Trouble::Tls(error.to_string()))?;
    Ok(Arc::new(made.with_root_certificates(roots).with_no_client_auth()))
}

/// Task that drives a connection; it ends when this is dropped.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange<S>(stream: S, question: &Question) -> Result<Response<Incoming>, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::get(&question.path)
        .header(HOST, &question.authority)
        .header(USER_AGENT, concat!("wirerate/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Trouble::System(io::ErrorKind::InvalidInput))?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(LONGEST_HEAD);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| trouble(&error))?;
    let _driver = Driver(tokio::spawn(async move {
        // Its error is the request's.
        let _ = connection.await;
    }));
    sender.send_request(request).await.map_err(|error| trouble(&error))
}

fn trouble(error: &hyper::Error) -> Trouble {
    if error.is_parse() {
        return Trouble::NoHttp;
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return Trouble::Closed;
    }
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(error) => Trouble::System(error.kind()),
        None => Trouble::Closed,
    }
}
