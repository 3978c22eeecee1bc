//! Who may fetch metrics.

use std::path::PathBuf;

/// How metrics are kept from those whom they do not concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsAccess {
    /// Certificate for TLS, with those that lead to its issuer: a PEM file.
    pub certificate: Option<PathBuf>,
    /// Its key: a PEM file.
    pub key: Option<PathBuf>,
    /// File of a token that whoever asks must show.
    pub token: Option<PathBuf>,
}
