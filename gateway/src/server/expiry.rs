//! Expiry of certificates: found, and named in time.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use super::Endpoint;
use crate::log::line::time_text;

/// Time before the expiry from which on it is named.
const EARLY: Duration = Duration::from_secs(14 * DAY);

const DAY: u64 = 86_400;

/// A moment behind the last that a certificate can name, which is in the year 9999.
const LATER: Duration = Duration::from_secs(1 << 40);

/// Returns the last moment of a certificate's validity; `None` if it cannot be read.
///
/// The library has no word for it, but a verification at a later time says when the certificate expired.
pub(crate) fn end_of(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let (roots, at) = (RootCertStore::empty(), UnixTime::since_unix_epoch(LATER));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(UNIX_EPOCH + Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}

/// Returns a sentence on a certificate that is expired, or soon will be.
pub(crate) fn warning(endpoint: Endpoint, path: &Path, end: SystemTime, now: SystemTime) -> Option<String> {
    let (name, path, at) = (endpoint.name(), path.display(), time_text(end));
    let who = if endpoint == Endpoint::Sync { "new connections" } else { "clients" };
    match end.duration_since(now) {
        Err(_) => Some(format!(
            "the certificate of {name}, {path}, expired at {at}: {who} refuse it; put a new one there, which is read again"
        )),
        Ok(left) if left < EARLY => {
            let days = left.as_secs() / DAY;
            Some(format!(
                "the certificate of {name}, {path}, expires at {at}, in {days} days; put a new one there, which is read again"
            ))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Made by OpenSSL, valid up to Jan  2 14:01:29 2028 GMT.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBmTCCAT+gAwIBAgIUZZOnYMxiEvnn+xxD2wMHtJMJGOwwCgYIKoZIzj0EAwIw\n\
EjEQMA4GA1UEAwwHZ2F0ZXdheTAeFw0yNjExMjgxNDAxMjlaFw0yODAxMDIxNDAx\n\
MjlaMBIxEDAOBgNVBAMMB2dhdGV3YXkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
AASl0nrGdCS1zf5jGYGiuGQn+Zl/O4EXDuwV1BSC/kBKZGLl7koNb/cO980xw/Et\n\
P7rMwKWzvbAhTtkE2Jxg+FP7o3MwcTAdBgNVHQ4EFgQUWliP5/MxyfgPbOJ/r/gr\n\
WoWl0kowHwYDVR0jBBgwFoAUWliP5/MxyfgPbOJ/r/grWoWl0kowDwYDVR0TAQH/\n\
BAUwAwEB/zAeBgNVHREEFzAVghNnYXRld2F5LmV4YW1wbGUubmV0MAoGCCqGSM49\n\
BAMCA0gAMEUCIF2mlPqhFkZrFyXcix5sPp/+l+FfwHuznFd6ZBRkEl5/AiEAkSkW\n\
6+vh9XKCaxu119dHfVuXDjEDCq/vZc1Dl+4792U=\n\
-----END CERTIFICATE-----";

    #[test]
    fn the_end_of_a_certificate_is_found_and_named_in_time() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let end = end_of(&certificate).unwrap();
        assert_eq!(end, UNIX_EPOCH + Duration::from_secs(1_830_434_489));
        assert_eq!(end_of(&CertificateDer::from(vec![0; 64])), None);
        let path = Path::new("/etc/wirerate/page.crt");
        let told = |now| warning(Endpoint::Page, path, end, now).unwrap_or_default();
        assert_eq!(told(end - EARLY), "");
        let soon = told(end - Duration::from_secs(2 * DAY));
        assert!(soon.contains("the page, /etc/wirerate/page.crt, expires at 2028-01-02T14:01:29"), "{soon}");
        assert!(soon.contains(", in 2 days;"), "{soon}");
        assert!(told(end + Duration::from_secs(1)).contains("expired at 2028-01-02T14:01:29"));
    }
}
