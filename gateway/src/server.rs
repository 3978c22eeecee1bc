//! Where questions come in: the socket in the file system, and loopback for metrics.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::error;

use crate::api;
use crate::supervisor::Event;

/// Answers until it is dropped.
pub struct Server {
    path: PathBuf,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Begins to listen, on a thread of its own.
    ///
    /// # Errors
    /// Another gateway listens there; the directory cannot be written; the TCP port is taken.
    pub fn start(path: &Path, metrics: Option<SocketAddr>, events: Sender<Event>) -> io::Result<Server> {
        let control = listen(path)?;
        let loopback = metrics.map(TcpListener::bind).transpose()?;
        for_async(&control)?;
        let (stop, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("api".to_owned()).spawn(move || {
            runtime.block_on(async move {
                if let Some(loopback) = loopback {
                    let public = api::public(events.clone());
                    tokio::spawn(async move {
                        let listening = loopback
                            .set_nonblocking(true)
                            .and_then(|()| tokio::net::TcpListener::from_std(loopback));
                        match listening {
                            Ok(listener) => {
                                if let Err(error) = axum::serve(listener, public).await {
                                    error!("metrics are no longer given: {error}");
                                }
                            }
                            Err(error) => error!("metrics cannot be given: {error}"),
                        }
                    });
                }
                let serving = async {
                    match tokio::net::UnixListener::from_std(control) {
                        Ok(listener) => axum::serve(listener, api::control(events)).await,
                        Err(error) => Err(error),
                    }
                };
                tokio::select! {
                    ended = serving => {
                        if let Err(error) = ended {
                            error!("commands are no longer taken: {error}");
                        }
                    }
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Server { path: path.to_owned(), _stop: stop })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already, or another gateway's: either is well.
        let _ = fs::remove_file(&self.path);
    }
}

/// A socket at `path`, for its owner alone. One that a killed gateway left behind is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    if UnixStream::connect(path).is_ok() {
        let message = format!("another gateway takes commands at {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn for_async(listener: &UnixListener) -> io::Result<()> {
    listener.set_nonblocking(true)
}
