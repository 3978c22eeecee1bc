//! Transport sessions with a collector: UDP, or TCP (RFC 7011, section 10). No call waits for long.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use policy::model::Collector;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::net::{RecvFlags, recv};

/// Time limit for a collector to accept a connection, or a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time without an acknowledgement after which a connection is over: 10 s.
const SILENCE: Duration = Duration::from_secs(10);

/// Longest message over UDP, in bytes: on paths with tunnels, too, a datagram stays whole (RFC 7011, section 10.3.3).
const DATAGRAM: usize = 1_400;

/// Longest message over TCP, in bytes.
const MOST: usize = u16::MAX as usize;

/// A transport session.
#[derive(Debug)]
pub(super) enum Transport {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// Error in sending a message.
#[derive(Debug)]
pub(super) enum SendError {
    /// The message was sent; the one before was refused by the collector's host.
    Refused,
    /// The message was not sent, and the session goes on.
    NotSent(io::Error),
    /// The message was not sent, or in part, and the session is over.
    Over(io::Error),
}

impl Transport {
    /// Opens a session.
    ///
    /// # Errors
    /// The collector cannot be reached.
    pub(super) fn open(collector: &Collector) -> io::Result<Transport> {
        match collector {
            Collector::Udp(at) => {
                let any = match at {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(at)?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Transport::Udp(socket))
            }
            Collector::Tcp(at) => {
                let stream = TcpStream::connect_timeout(at, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                set_tcp_user_timeout(&stream, SILENCE.as_millis() as u32)?;
                Ok(Transport::Tcp(stream))
            }
        }
    }

    /// Longest message that a session to a collector carries, in bytes.
    pub(super) fn most(collector: &Collector) -> usize {
        match collector {
            Collector::Udp(_) => DATAGRAM,
            Collector::Tcp(_) => MOST,
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self {
            Transport::Udp(socket) => match socket.send(message) {
                Ok(_) => Ok(()),
                // That is the answer to an earlier one, which Linux gives once.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => match socket.send(message) {
                    Ok(_) => Err(SendError::Refused),
                    Err(error) => Err(SendError::NotSent(error)),
                },
                Err(error) => Err(SendError::NotSent(error)),
            },
            // A message of which a part was sent cannot be taken up: with what follows, the stream would be no messages.
            Transport::Tcp(stream) => stream.write_all(message).map_err(SendError::Over),
        }
    }

    /// True if the collector has ended the session. It sends nothing else (RFC 7011, section 10.4.2).
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Transport::Udp(_) => false,
            Transport::Tcp(stream) => {
                let mut bytes = [0_u8; 512];
                match recv(&*stream, &mut bytes[..], RecvFlags::DONTWAIT) {
                    Ok((_, len)) => len == 0,
                    Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
                }
            }
        }
    }
}
