//! Transport sessions with a collector: UDP, or TCP (RFC 7011, section 10). No call waits for long.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use policy::model::Collector;
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use rustix::net::{RecvFlags, recv};

use super::message::Message;

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
    Tcp(Connection),
}

/// A connection, and the messages that the collector's host has not yet acknowledged.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes that Linux has taken so far.
    taken: u64,
    /// Messages on their way, oldest first. Linux's send buffer bounds their number.
    underway: VecDeque<Underway>,
}

/// A message that Linux has taken.
#[derive(Debug)]
struct Underway {
    /// Bytes of the connection up to the message's end.
    end: u64,
    flow_records: u32,
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
                Ok(Transport::Tcp(Connection { stream, taken: 0, underway: VecDeque::new() }))
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
    pub(super) fn send(&mut self, message: &Message) -> Result<(), SendError> {
        match self {
            Transport::Udp(socket) => match socket.send(&message.bytes) {
                Ok(_) => Ok(()),
                // That is the answer to an earlier one, which Linux gives once.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    match socket.send(&message.bytes) {
                        Ok(_) => Err(SendError::Refused),
                        Err(error) => Err(SendError::NotSent(error)),
                    }
                }
                Err(error) => Err(SendError::NotSent(error)),
            },
            // A message of which a part was sent cannot be taken up: with what follows, the stream would be no messages.
            Transport::Tcp(connection) => connection.send(message).map_err(SendError::Over),
        }
    }

    /// True if the collector has ended the session. It sends nothing else (RFC 7011, section 10.4.2).
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Transport::Udp(_) => false,
            Transport::Tcp(Connection { stream, .. }) => {
                let mut bytes = [0_u8; 512];
                match recv(&*stream, &mut bytes[..], RecvFlags::DONTWAIT) {
                    Ok((_, len)) => len == 0,
                    Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
                }
            }
        }
    }

    /// Ends the session at once. Returns the number of flow records and events in messages that the collector's host has not acknowledged:
    /// it gets no more of them.
    pub(super) fn abort(self) -> u64 {
        match self {
            Transport::Udp(_) => 0,
            Transport::Tcp(connection) => connection.abort(),
        }
    }
}

impl Connection {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut rest = &message.bytes[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.taken += len as u64;
                    rest = rest.get(len..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.underway.push_back(Underway { end: self.taken, flow_records: message.flow_records });
        self.settle()
    }

    /// Forgets messages that have been acknowledged.
    fn settle(&mut self) -> io::Result<()> {
        let acknowledged = self.taken.saturating_sub(u64::from(ports::unacknowledged(&self.stream)?));
        let done = self.underway.partition_point(|message| message.end <= acknowledged);
        self.underway.drain(..done);
        Ok(())
    }

    /// Resets the connection, so that Linux sends nothing of it any more, and returns what was not acknowledged.
    fn abort(mut self) -> u64 {
        let known = self.settle();
        let reset = set_socket_linger(&self.stream, Some(Duration::ZERO));
        debug_assert!(known.is_ok() && reset.is_ok(), "a socket answers for itself");
        self.underway.iter().map(|message| u64::from(message.flow_records)).sum()
    }
}
