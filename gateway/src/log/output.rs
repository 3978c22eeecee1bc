//! Outputs of log records. Writes never block for long: records that an output does not accept at once are counted and
//! discarded.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::model::{LogOutput, SyslogAddress};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::line::Line;
use super::{Format, journald, syslog};

/// Socket of the journal (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Socket of the local syslog server.
const DEV_LOG: &str = "/dev/log";

/// Time limit for a slow output to accept a record.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval between attempts to open a failed output.
const AGAIN: Duration = Duration::from_secs(2);

/// Output of log records.
pub(super) struct Output {
    /// Output, as in the policy.
    pub(super) what: LogOutput,
    kind: Kind,
    /// Outcome of the last attempt.
    pub(super) failed: Failed,
}

/// Outcome of an output's last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Success.
    No,
    /// Failure.
    Yes,
}

enum Kind {
    Stderr(Format),
    Journald(Datagrams),
    Syslog(Syslog, syslog::Sender),
    File(LogFile),
}

enum Syslog {
    Unix(Datagrams),
    Udp(SocketAddr, Option<UdpSocket>),
    Tcp(SocketAddr, Option<TcpStream>, Option<Instant>),
}

impl Output {
    pub(super) fn new(what: &LogOutput, format: Format) -> Output {
        let path = |path: &Option<PathBuf>, usual: &str| path.clone().unwrap_or_else(|| usual.into());
        let kind = match what {
            LogOutput::Stderr => Kind::Stderr(format),
            LogOutput::Journald(at) => Kind::Journald(Datagrams::to(path(at, JOURNAL))),
            LogOutput::Syslog(SyslogAddress::Unix(at)) => {
                Kind::Syslog(Syslog::Unix(Datagrams::to(path(at, DEV_LOG))), syslog::Sender::new())
            }
            LogOutput::Syslog(SyslogAddress::Udp(at)) => {
                Kind::Syslog(Syslog::Udp(*at, None), syslog::Sender::new())
            }
            LogOutput::Syslog(SyslogAddress::Tcp(at)) => {
                Kind::Syslog(Syslog::Tcp(*at, None, None), syslog::Sender::new())
            }
            LogOutput::File(path) => Kind::File(LogFile { path: path.clone(), file: None, torn: Torn::No }),
        };
        Output { what: what.clone(), kind, failed: Failed::No }
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Failed write: the record is lost to this output.
    pub(super) fn write(&mut self, line: &Line) -> io::Result<()> {
        let written = match &mut self.kind {
            Kind::Stderr(format) => stderr(line, *format, self.failed),
            Kind::Journald(journal) => journal.send(&journald::datagram(line)),
            Kind::Syslog(to, sender) => to.send(&sender.message(line)),
            Kind::File(file) => file.write(line),
        };
        self.failed = if written.is_ok() { Failed::No } else { Failed::Yes };
        written
    }

    /// Reopens a file output, as after log rotation.
    pub(super) fn reopen(&mut self) {
        if let Kind::File(file) = &mut self.kind {
            file.file = None;
        }
    }
}

/// Writes to standard error, unless it is a full pipe without a reader.
fn stderr(line: &Line, format: Format, failed: Failed) -> io::Result<()> {
    let mut text = match format {
        Format::Text => line.text(),
        Format::Json => line.json(),
    };
    text.push('\n');
    let mut stderr = io::stderr().lock();
    // A pipe that nobody reads is waited for once, not at every record.
    let patience = if failed == Failed::Yes { Duration::ZERO } else { PATIENCE };
    let timeout = Timespec::try_from(patience).map_err(|_| io::ErrorKind::InvalidInput)?;
    let ready = {
        let descriptor = stderr.as_fd();
        poll(&mut [PollFd::new(&descriptor, PollFlags::OUT)], Some(&timeout))?
    };
    if ready == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stderr.write_all(text.as_bytes())
}

/// Datagram socket in the file system.
struct Datagrams {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Datagrams {
    fn to(path: PathBuf) -> Datagrams {
        Datagrams { path, socket: None }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.socket.is_none() {
            self.socket = Some(connected(&self.path)?);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        match socket.send(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // Whoever received there may be another process by now.
            Err(_) => {
                self.socket = None;
                let socket = connected(&self.path)?;
                socket.send(bytes)?;
                self.socket = Some(socket);
                Ok(())
            }
        }
    }
}

fn connected(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // What a server does not take within this time is lost.
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

impl Syslog {
    fn send(&mut self, message: &str) -> io::Result<()> {
        match self {
            Syslog::Unix(socket) => socket.send(message.as_bytes()),
            Syslog::Udp(to, socket) => {
                if socket.is_none() {
                    let any: SocketAddr = match to {
                        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                    };
                    let fresh = UdpSocket::bind(any)?;
                    fresh.connect(*to)?;
                    fresh.set_nonblocking(true)?;
                    *socket = Some(fresh);
                }
                let Some(socket) = socket else { return Ok(()) };
                socket.send(message.as_bytes()).map(|_| ())
            }
            Syslog::Tcp(to, stream, again) => {
                if stream.is_none() {
                    if again.is_some_and(|again| Instant::now() < again) {
                        return Err(io::ErrorKind::NotConnected.into());
                    }
                    *again = Some(Instant::now() + AGAIN);
                    let fresh = TcpStream::connect_timeout(to, PATIENCE)?;
                    fresh.set_write_timeout(Some(PATIENCE))?;
                    *stream = Some(fresh);
                }
                let Some(open) = stream else { return Ok(()) };
                let written = write!(open, "{} {message}", message.len());
                if written.is_err() {
                    // What is behind a message that was cut could not be told from it.
                    *stream = None;
                }
                written
            }
        }
    }
}

/// Log file of JSON lines.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
    torn: Torn,
}

/// State of a file's last line: whole, or truncated, as by a full disk.
#[derive(PartialEq, Eq)]
enum Torn {
    No,
    Yes,
}

impl LogFile {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        if self.file.is_none() {
            let file = OpenOptions::new().append(true).create(true).mode(0o640).open(&self.path)?;
            (self.file, self.torn) = (Some(file), Torn::No);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = line.json();
        text.push('\n');
        if self.torn == Torn::Yes {
            file.write_all(b"\n")?;
            self.torn = Torn::No;
        }
        let written = file.write(text.as_bytes())?;
        if written < text.len() {
            self.torn = Torn::Yes;
            file.write_all(&text.as_bytes()[written..])?;
            self.torn = Torn::No;
        }
        Ok(())
    }
}
