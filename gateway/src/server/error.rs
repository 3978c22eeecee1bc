//! Why questions cannot be taken, with the file or address that is at fault and what to do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why questions cannot be taken.
#[derive(Debug)]
pub enum ServerError {
    /// The file of the token that whoever asks for metrics shows is of no use.
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The certificate of metrics is of no use.
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The key of that certificate is of no use.
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// Metrics cannot be given at their address.
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The directory of the control socket cannot be made.
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another gateway takes commands at the control socket.
    Taken {
        /// The control socket.
        path: PathBuf,
    },
    /// Something stands at the path of the control socket that is no socket.
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// The control socket cannot be made.
    Socket {
        /// The control socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// There is no thread to be had, or no event loop.
    Thread {
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Token { path, error } => {
                file(f, path, "the token of metrics", "metrics-token", error)
            }
            ServerError::Certificate { path, error } => {
                file(f, path, "the certificate of metrics", "metrics-certificate", error)
            }
            ServerError::Key { path, error } => file(f, path, "the key of metrics", "metrics-key", error),
            ServerError::Metrics { address, error } => {
                write!(f, "metrics cannot be given at {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, "; `ss -ltnp sport = :{}` says who has it", address.port())?;
                    }
                    io::ErrorKind::AddrNotAvailable => f.write_str("; it is no address of this machine")?,
                    io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                        f.write_str("; ports below 1024 are not for the gateway")?;
                    }
                    _ => {}
                }
                f.write_str("; `[gateway] metrics` names another address")
            }
            ServerError::Directory { path, error } => {
                let path = path.display();
                write!(f, "the directory of the control socket, {path}, cannot be made: {error}; {ELSEWHERE}")
            }
            ServerError::Taken { path } => {
                let path = path.display();
                write!(f, "another gateway takes commands at {path}; {ELSEWHERE}")
            }
            ServerError::Occupied { path } => {
                let path = path.display();
                write!(f, "{path} is no socket, and is left alone; remove it, or {ELSEWHERE}")
            }
            ServerError::Socket { path, error } => {
                let path = path.display();
                write!(f, "the control socket {path} cannot be made: {error}; {ELSEWHERE}")
            }
            ServerError::Thread { error } => write!(f, "could not start the thread that answers: {error}"),
        }
    }
}

/// What to do about a control socket.
const ELSEWHERE: &str = "`--socket` names another place";

fn file(
    f: &mut fmt::Formatter<'_>,
    path: &std::path::Path,
    which: &str,
    key: &str,
    error: &io::Error,
) -> fmt::Result {
    write!(f, "{which}, {}, is of no use: {error}", path.display())?;
    if error.kind() == io::ErrorKind::PermissionDenied {
        f.write_str("; the gateway's own user must be able to read it")?;
    }
    write!(f, "; `[gateway] {key}` names another file")
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::channel;

    use policy::model::{Gateway, MetricsAccess};

    use super::super::{Public, Server};

    /// A directory of its own, gone with it.
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
        }
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
