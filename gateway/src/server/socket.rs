//! Control socket: bound at its path, and asked for a listener.
//!
//! The socket belongs to its owner from its creation on, whatever the umask; a file of another type at its path is left
//! alone.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, listen as accept_at, socket_with};

use super::error::ServerError;

/// Listen backlog, which the kernel may limit further.
const BACKLOG: i32 = 1024;

/// Binds a socket at `path`, for its owner alone. A socket left behind by a killed gateway is replaced, no other file.
pub(super) fn listen(path: &Path) -> Result<UnixListener, ServerError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // Who may write to it could put a socket of their own there.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(|error| ServerError::Directory { path: directory.to_owned(), error })?;
    }
    let failed = |error: io::Error| ServerError::Socket { path: path.to_owned(), error };
    let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => match knock(path) {
            Ok(Listening::Nobody) => fs::remove_file(path).map_err(failed)?,
            Ok(Listening::Somebody) => return Err(ServerError::Taken { path: path.to_owned() }),
            Err(error) => return Err(failed(error)),
        },
        Ok(_) => return Err(ServerError::Occupied { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let made = (|| {
        let socket = socket()?;
        // Linux gives the name in the file system the mode that the socket has at that moment: nobody can come in between.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &address)?;
        accept_at(&socket, BACKLOG)?;
        Ok(socket)
    })();
    made.map(UnixListener::from).map_err(|error: Errno| failed(error.into()))
}

/// Presence of a listener at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    Somebody,
    Nobody,
}

/// Checks for a listener at a socket, without blocking.
///
/// # Errors
/// No socket, or no permission to connect.
pub(crate) fn knock(path: &Path) -> io::Result<Listening> {
    // Where nobody listens any more it refuses; anything else is a living one's, even too busy.
    match connect(&socket()?, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(Listening::Nobody),
        Ok(()) | Err(Errno::AGAIN) => Ok(Listening::Somebody),
        Err(error) => Err(error.into()),
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
