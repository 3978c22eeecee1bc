//! Errors of the server's start, with the file or address at fault and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::socket::Purpose;
use crate::page::UserFileError;

/// Endpoint that other machines may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Metrics.
    Metrics,
    /// The page.
    Page,
    /// State synchronisation.
    Sync,
}

impl Endpoint {
    pub(super) fn name(self) -> &'static str {
        match self {
            Endpoint::Metrics => "metrics",
            Endpoint::Page => "the page",
            Endpoint::Sync => "the synchronisation",
        }
    }

    /// Key of the policy, and beginning of the others.
    fn key(self) -> &'static str {
        match self {
            Endpoint::Metrics => "metrics",
            Endpoint::Page => "page",
            Endpoint::Sync => "sync",
        }
    }
}

/// Error in starting the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Unusable file of the bearer token for metrics.
    #[error(
        "the token of metrics, {path}, is of no use: {error}{}; `[gateway] metrics-token` names another file",
        reader(.error)
    )]
    Token {
        /// Path of the file.
        path: PathBuf,
        /// Fault.
        error: io::Error,
    },
    /// Unusable file of the users of the page.
    #[error("the users of the page are of no use: {0}; `[gateway] page-tokens` names another file")]
    Users(#[from] UserFileError),
    /// Unusable certificate of an endpoint.
    #[error(
        "the certificate of {}, {path}, is of no use: {error}{}; `[gateway] {}-certificate` names another file",
        .endpoint.name(), reader(.error), .endpoint.key()
    )]
    Certificate {
        /// Endpoint.
        endpoint: Endpoint,
        /// Path of the file.
        path: PathBuf,
        /// Fault.
        error: io::Error,
    },
    /// Unusable private key of an endpoint.
    #[error(
        "the key of {}, {path}, is of no use: {error}{}; `[gateway] {}-key` names another file",
        .endpoint.name(), reader(.error), .endpoint.key()
    )]
    Key {
        /// Endpoint.
        endpoint: Endpoint,
        /// Path of the file.
        path: PathBuf,
        /// Fault.
        error: io::Error,
    },
    /// Failure to bind the address of an endpoint.
    #[error(
        "{} cannot be given at {address}: {error}{}; `[gateway] {}` names another address",
        .endpoint.name(), cause(*.address, .error), .endpoint.key()
    )]
    Bind {
        /// Endpoint.
        endpoint: Endpoint,
        /// Address.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// Failure to create the directory of a socket.
    #[error("the directory of the {}, {path}, cannot be made: {error}; {}", .purpose.name(), .purpose.elsewhere())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
        /// Purpose of the socket.
        purpose: Purpose,
    },
    /// Socket in use by another gateway.
    #[error("another gateway {} at {path}; {}", .purpose.occupation(), .purpose.elsewhere())]
    Taken {
        /// Path of the socket.
        path: PathBuf,
        /// Purpose of the socket.
        purpose: Purpose,
    },
    /// File of another type at the path of a socket.
    #[error("{path} is no socket, and is left alone; remove it, or {}", .purpose.elsewhere())]
    Occupied {
        /// Path.
        path: PathBuf,
        /// Purpose of the socket.
        purpose: Purpose,
    },
    /// Failure to create a socket.
    #[error("the {} {path} cannot be made: {error}; {}", .purpose.name(), .purpose.elsewhere())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
        /// Purpose of the socket.
        purpose: Purpose,
    },
    /// No thread, or no event loop.
    #[error("could not start the thread that answers: {error}")]
    Thread {
        /// Error of the system.
        error: io::Error,
    },
}

/// Remedy for a file that the system does not permit to read.
fn reader(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; the gateway's own user must be able to read it",
        _ => "",
    }
}

/// Likely cause of a failure to listen at an address.
fn cause(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("; `ss -ltnp sport = :{}` says who has it", address.port()),
        io::ErrorKind::AddrNotAvailable => "; it is no address of this machine".to_owned(),
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            "; ports below 1024 are not for the gateway".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::channel;

    use policy::model::{Gateway, MetricsAccess, PageAccess};

    use super::super::{Public, Server};

    /// Temporary directory, removed when dropped.
    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("wirerate-fault-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn fault(socket: &Path, gateway: &Gateway) -> String {
        let (events, _heard) = channel();
        let started = Public::open(gateway).and_then(|public| Server::start(socket, public, events));
        let fault = started.err().unwrap();
        fault.to_string()
    }

    #[test]
    fn an_address_of_metrics_is_named_and_not_the_socket() {
        let place = place("metrics");
        let socket = place.0.join("control.sock");
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let told = fault(&socket, &Gateway { metrics: Some(address), ..Gateway::default() });
        assert!(told.contains(&address.to_string()) && told.contains("in use"), "{told}");
        assert!(!told.contains("control"), "{told}");
        assert!(!socket.exists());
        let metrics = Some("192.0.2.77:9478".parse().unwrap());
        let told = fault(&socket, &Gateway { metrics, ..Gateway::default() });
        assert!(told.contains("192.0.2.77:9478") && told.contains("no address of this machine"), "{told}");
    }

    #[test]
    fn a_file_is_named_and_the_key_that_names_it() {
        let place = place("file");
        let socket = place.0.join("control.sock");
        let [absent, garbage] = ["absent", "garbage"].map(|name| place.0.join(name));
        fs::write(&garbage, "nothing").unwrap();
        for file in [&absent, &garbage] {
            let token = MetricsAccess { token: Some(file.clone()), ..MetricsAccess::default() };
            let pair = |certificate: &Path, key: &Path| MetricsAccess {
                certificate: Some(certificate.to_owned()),
                key: Some(key.to_owned()),
                token: None,
            };
            let certificate = pair(file, &garbage);
            for (access, key) in [(token, "metrics-token"), (certificate, "metrics-certificate")] {
                let told = fault(&socket, &Gateway { metrics_access: access, ..Gateway::default() });
                let file = file.display().to_string();
                assert!(told.contains(&file) && told.contains(key), "{told}");
                assert!(!told.contains("control"), "{told}");
            }
            let access = PageAccess { tokens: Some(file.clone()), ..PageAccess::default() };
            let told = fault(&socket, &Gateway { page_access: access, ..Gateway::default() });
            assert!(told.contains(&file.display().to_string()) && told.contains("page-tokens"), "{told}");
        }
        let users = place.0.join("users");
        fs::write(&users, "").unwrap();
        let access = PageAccess {
            tokens: Some(users),
            certificate: Some(garbage.clone()),
            key: Some(garbage.clone()),
            ..PageAccess::default()
        };
        let told = fault(&socket, &Gateway { page_access: access, ..Gateway::default() });
        assert!(told.contains("the certificate of the page") && told.contains("page-certificate"), "{told}");
    }

    #[test]
    fn a_directory_that_cannot_be_had_is_named() {
        let place = place("directory");
        let file = place.0.join("file");
        fs::write(&file, "").unwrap();
        let told = fault(&file.join("below/control.sock"), &Gateway::default());
        assert!(
            told.contains("the directory of the control socket") && told.contains("file/below"),
            "{told}"
        );
        assert!(told.contains("--socket"), "{told}");
        // Nothing can be made there, by root either.
        let told = fault(Path::new("/proc/control.sock"), &Gateway::default());
        assert!(told.contains("the control socket /proc/control.sock cannot be made"), "{told}");
    }
}
