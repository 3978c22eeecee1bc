//! Access control of the metrics endpoint.

use std::path::PathBuf;

/// Credentials of the metrics endpoint: TLS certificate, key and token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsAccess {
    /// TLS certificate chain of the endpoint: a PEM file.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// File with the token that clients must present.
    pub token: Option<PathBuf>,
}
