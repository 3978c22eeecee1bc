//! Unix sockets of the gateway: bound at their paths, asked for a listener, and removed at the end.
//!
//! A socket belongs to its owner from its creation on, whatever the umask; a file of another type at its path is left
//! alone.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, listen as accept_at, socket_with};

use super::error::ServerError;

/// Listen backlog, which the kernel may limit further.
const BACKLOG: i32 = 1024;

/// Purpose of a socket, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Commands of operators.
    Control,
    /// SAs of IKE daemons.
    Xfrm,
}

impl Purpose {
    /// Name of the socket.
    pub(super) fn name(self) -> &'static str {
        match self {
            Purpose::Control => "control socket",
            Purpose::Xfrm => "XFRM socket",
        }
    }

    /// Use by the gateway that has the socket.
    pub(super) fn occupation(self) -> &'static str {
        match self {
            Purpose::Control => "takes commands",
            Purpose::Xfrm => "takes SAs",
        }
    }

    /// Remedy for errors of the socket.
    pub(super) fn elsewhere(self) -> &'static str {
        match self {
            Purpose::Control => "`--socket` names another place",
            Purpose::Xfrm => "`[gateway] xfrm` names another place",
        }
    }
}

/// Socket in the file system, removed when dropped unless another one has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    own: (u64, u64),
}

impl SocketFile {
    /// The socket that was bound at `path`.
    pub(crate) fn at(path: &Path, purpose: Purpose) -> Result<SocketFile, ServerError> {
        let failed = |error| ServerError::Socket { path: path.to_owned(), error, purpose };
        let own = identity(&fs::symlink_metadata(path).map_err(failed)?);
        Ok(SocketFile { path: path.to_owned(), own })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.own) {
            // Gone in this moment is as well.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Binds a socket at `path`, for its owner alone. A socket left behind by a killed gateway is replaced, no other file.
pub(crate) fn listen(path: &Path, kind: SocketType, purpose: Purpose) -> Result<UnixListener, ServerError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // Who may write to it could put a socket of their own there.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(|error| ServerError::Directory { path: directory.to_owned(), error, purpose })?;
    }
    let failed = |error: io::Error| ServerError::Socket { path: path.to_owned(), error, purpose };
    let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => match knock(path, kind) {
            Ok(Listening::Nobody) => fs::remove_file(path).map_err(failed)?,
            Ok(Listening::Somebody) => return Err(ServerError::Taken { path: path.to_owned(), purpose }),
            Err(error) => return Err(failed(error)),
        },
        Ok(_) => return Err(ServerError::Occupied { path: path.to_owned(), purpose }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let made = (|| {
        let socket = socket(kind)?;
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
pub(crate) fn knock(path: &Path, kind: SocketType) -> io::Result<Listening> {
    // Where nobody listens any more it refuses; anything else is a living one's, even too busy.
    match connect(&socket(kind)?, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(Listening::Nobody),
        Ok(()) | Err(Errno::AGAIN) => Ok(Listening::Somebody),
        Err(error) => Err(error.into()),
    }
}

fn socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}
