//! Certificate, key and authority of a synchronisation: read anew for a connection once they have changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use policy::model::Sync;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::server::tls::{Identity, read_error};
use crate::server::{Endpoint, ServerError, expiry};
use crate::stamp::Stamp;

/// Time between two words on a certificate that expires, or has.
const REMINDER: Duration = Duration::from_secs(86_400);

/// Unusable files.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error(transparent)]
    Own(#[from] ServerError),
    #[error(
        "the authority of the peer's certificate, {path}, is of no use: {error}; `[gateway] sync-ca` names another file"
    )]
    Authority { path: PathBuf, error: io::Error },
}

/// Settings of TLS for either side.
#[derive(Clone)]
pub(super) struct Configs {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

/// The three files.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    /// Settings of the files as they were, and the stamps of those.
    known: Option<([Option<Stamp>; 3], Configs)>,
    /// Last moment of the certificate's validity.
    end: Option<SystemTime>,
    /// Time of the last word on it.
    named: Option<Instant>,
}

impl Files {
    /// The files of a policy; `None` where one is not named.
    pub(super) fn of(sync: &Sync) -> Option<Files> {
        Some(Files {
            certificate: sync.certificate.clone()?,
            key: sync.key.clone()?,
            ca: sync.ca.clone()?,
            known: None,
            end: None,
            named: None,
        })
    }

    /// Returns the settings of the files as they are; of unusable ones, those of the files before.
    ///
    /// # Errors
    /// Unusable files, and none before.
    pub(super) fn current(&mut self) -> Result<Configs, FileError> {
        let stamps = [&self.certificate, &self.key, &self.ca].map(|path| Stamp::of(path));
        if let Some((_, configs)) = self.known.as_ref().filter(|(known, _)| *known == stamps) {
            return Ok(configs.clone());
        }
        match (self.read(), &mut self.known) {
            (Ok(configs), known) => {
                if known.is_some() {
                    info!("synchronisation: certificate {} read again", self.certificate.display());
                }
                *known = Some((stamps, configs.clone()));
                self.named = None;
                Ok(configs)
            }
            (Err(error), Some((known, configs))) => {
                warn!("{error}; the certificate before stays in use");
                *known = stamps;
                Ok(configs.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Says in the log, once a day, that the certificate expires, or has.
    pub(super) fn name_expiry(&mut self) {
        let Some(end) = self.end.filter(|_| self.named.is_none_or(|named| named.elapsed() >= REMINDER))
        else {
            return;
        };
        self.named = Some(Instant::now());
        if let Some(warning) = expiry::warning(Endpoint::Sync, &self.certificate, end, SystemTime::now()) {
            warn!("{warning}");
        }
    }

    fn read(&mut self) -> Result<Configs, FileError> {
        let own = Identity::read(&self.certificate, &self.key, Endpoint::Sync)?;
        self.end = own.end;
        let of_authority = |error| FileError::Authority { path: self.ca.clone(), error };
        let roots = Arc::new(authorities(&self.ca).map_err(of_authority)?);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier =
            verifier.map_err(|error| of_authority(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites of TLS 1.2 and 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.chain.clone(), own.key.clone_key());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites of TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(own.chain, own.key);
        let of_own = |error| Identity::refused(error, &self.certificate, &self.key, Endpoint::Sync);
        Ok(Configs { server: Arc::new(server.map_err(of_own)?), client: Arc::new(client.map_err(of_own)?) })
    }
}

/// Reads the certificates of authorities.
fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut roots = RootCertStore::empty();
    let (known, unknown) = roots.add_parsable_certificates(found.map_err(read_error)?);
    match (known, unknown) {
        (0, 0) => Err(read_error(pem::Error::NoItemsFound)),
        (0, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate of an authority")),
        _ => Ok(roots),
    }
}
