//! Access control of the page and its HTTP API.

use std::path::PathBuf;

/// Credentials of the page: tokens of its users, TLS certificate and key, and the names that it is asked by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageAccess {
    /// File of the users: names, roles and hashes of tokens.
    pub tokens: Option<PathBuf>,
    /// TLS certificate chain of the page: a PEM file.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// Host names by which browsers may ask, beside IP addresses and `localhost`.
    pub names: Vec<String>,
    /// Origins under which proxies that end TLS show the page: `https://edge.example.net`.
    pub origins: Vec<String>,
}
