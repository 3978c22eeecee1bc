//! Download of a list by HTTP, through Linux's own stack.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::list::MOST_BYTES;

/// Longest time of a download, from the name's resolution to the last byte.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(15);

/// Client for downloads.
pub(super) struct Fetcher {
    agent: Agent,
}

/// Response to a download.
pub(super) enum Fetched {
    /// The text is as it was when these validators were told.
    Unchanged,
    /// Text, with the validators by which the next request asks for changes.
    Text {
        /// The body.
        text: Vec<u8>,
        /// Validators of the body.
        validators: Validators,
    },
}

/// Validators of a response (RFC 9110, section 8.8), by which a server says that nothing has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Validators {
    entity_tag: Option<String>,
    last_modified: Option<String>,
}

impl Fetcher {
    /// Makes a client that trusts the certificates that the system trusts.
    ///
    /// # Errors
    /// No such certificates, in words.
    pub(super) fn new() -> Result<Fetcher, String> {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let error = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
            return Err(format!(
                "the system has no certificates to check servers by{error}; install ca-certificates"
            ));
        }
        let roots: Vec<_> = found.certs.iter().map(|found| Certificate::from_der(found).to_owned()).collect();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::from(roots))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("wirerate/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Fetcher { agent: config.into() })
    }

    /// Downloads a text, unless it is unchanged.
    ///
    /// # Errors
    /// The reason that there is none, in words.
    pub(super) fn fetch(&self, url: &str, known: &Validators) -> Result<Fetched, String> {
        let mut request = self.agent.get(url);
        if let Some(tag) = &known.entity_tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        if let Some(date) = &known.last_modified {
            request = request.header(header::IF_MODIFIED_SINCE, date);
        }
        let response = request.call().map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        if parts.status == StatusCode::NOT_MODIFIED && *known != Validators::default() {
            return Ok(Fetched::Unchanged);
        }
        if parts.status != StatusCode::OK {
            return Err(format!("the server answers {}", parts.status));
        }
        let mut text = Vec::new();
        let read = body.into_reader().take(MOST_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| error.to_string())?;
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("it has more than {} MiB", MOST_BYTES >> 20));
        }
        // Nobody publishes a list of nothing by an empty body; a server that is out of order sends one.
        if text.is_empty() {
            return Err("the answer is empty".to_owned());
        }
        Ok(Fetched::Text { text, validators: Validators::of(&parts.headers) })
    }
}

impl Validators {
    fn of(headers: &HeaderMap) -> Validators {
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Validators { entity_tag: value(header::ETAG), last_modified: value(header::LAST_MODIFIED) }
    }
}
