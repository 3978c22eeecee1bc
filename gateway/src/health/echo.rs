//! Echo requests and replies (RFC 792; RFC 4443, section 4) by raw sockets.
//!
//! A raw socket needs CAP_NET_RAW, which the process keeps; where bound, it sends by its interface whatever the routes of Linux say, and
//! hears what comes in by it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use wire::{checksum, icmpv4, icmpv6};

use super::Trouble;

/// Bytes of an echo message: its header, a token, and no more.
const LEN: usize = 16;

/// Longest packet that is read: what is longer is no answer of ours.
const LONGEST: usize = 256;

/// Echo: identifier, sequence number, and a token that nobody can know who has not seen the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Echo {
    id: u16,
    seq: u16,
    token: u64,
}

/// Types of messages of an IP version.
#[derive(Clone, Copy)]
struct Types {
    request: u8,
    reply: u8,
}

const V4: Types = Types { request: icmpv4::Type::ECHO_REQUEST.0, reply: icmpv4::Type::ECHO_REPLY.0 };
const V6: Types = Types { request: icmpv6::Type::ECHO_REQUEST.0, reply: icmpv6::Type::ECHO_REPLY.0 };

impl Echo {
    /// The first of a check.
    fn new() -> Echo {
        let random = random();
        Echo { id: random as u16, seq: 1, token: random.rotate_left(32) }
    }

    /// The next one, with a token of its own.
    fn next(self) -> Echo {
        Echo { seq: self.seq.wrapping_add(1), token: random(), ..self }
    }

    fn message(self, kind: u8) -> [u8; LEN] {
        let mut message = [0; LEN];
        message[0] = kind;
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&self.seq.to_be_bytes());
        message[8..].copy_from_slice(&self.token.to_be_bytes());
        message
    }

    /// The echo of a message of that kind; `None` of other messages.
    fn of(message: &[u8], kind: u8) -> Option<Echo> {
        let message: &[u8; LEN] = message.get(..LEN)?.try_into().ok()?;
        let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let token = u64::from_be_bytes(message[8..].try_into().ok()?);
        (message[0] == kind && message[1] == 0).then_some(Echo { id: word(4), seq: word(6), token })
    }
}

/// A number that others do not know.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Echo requests to one host, one after the other.
pub(crate) struct Ping {
    host: IpAddr,
    /// Interface that requests leave by, and answers come in by, whatever Linux's routes say. `None`: as these say.
    interface: Option<String>,
    echo: Echo,
}

impl Ping {
    /// Echo requests to a host, by an interface alone where one is named.
    pub(crate) fn new(host: IpAddr, interface: Option<&str>) -> Ping {
        Ping { host, interface: interface.map(str::to_owned), echo: Echo::new() }
    }

    /// Asks once, and waits for the answer.
    ///
    /// # Errors
    /// No socket, a refusal by the system, or an ICMP error.
    pub(crate) async fn ask(&mut self) -> Result<(), Trouble> {
        let host = self.host;
        let (domain, protocol, types) = match host {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, V4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, V6),
        };
        let made = Socket::new(domain, Type::RAW, Some(protocol));
        let socket = made.map_err(|error| Trouble::NotAsked(error.kind()))?;
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.set_nonblocking(true)?;
        // From here on it hears this host alone, and of errors on the way.
        socket.connect(&SocketAddr::new(host, 0).into())?;
        self.echo = self.echo.next();
        let mut message = self.echo.message(types.request);
        if host.is_ipv4() {
            // Of IPv6 the kernel computes it, with the source address that it chooses.
            let sum = checksum::of(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        socket.send(&message)?;
        // Its packets are read as datagrams are.
        let socket = UdpSocket::from_std(socket.into())?;
        loop {
            let mut packet = [0; LONGEST];
            let length = socket.recv(&mut packet).await?;
            let answer =
                packet.get(..length).and_then(|packet| Echo::of(payload(packet, host)?, types.reply));
            if answer == Some(self.echo) {
                return Ok(());
            }
        }
    }
}

/// The ICMP message of a packet as a raw socket gives it: of IPv4 behind the IP header, of IPv6 alone.
fn payload(packet: &[u8], from: IpAddr) -> Option<&[u8]> {
    match from {
        IpAddr::V4(_) => packet.get(usize::from(packet.first()? & 15) * 4..),
        IpAddr::V6(_) => Some(packet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_as_what_it_was_and_nothing_else_does() {
        let echo = Echo { id: 0x1234, seq: 7, token: 0x0102_0304_0506_0708 };
        let message = echo.message(V4.request);
        assert_eq!(message, [8, 0, 0, 0, 0x12, 0x34, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Echo::of(&message, V4.request), Some(echo));
        assert_eq!(Echo::of(&message, V4.reply), None);
        assert_eq!(Echo::of(&message[..15], V4.request), None);
        assert_ne!(Echo::of(&echo.next().message(V6.reply), V6.reply), Some(echo));
        let packet = [&[0x46_u8][..], &[0; 23], &message].concat();
        assert_eq!(payload(&packet, IpAddr::from([192, 0, 2, 1])), Some(&message[..]));
        assert_eq!(payload(&[], IpAddr::from([192, 0, 2, 1])), None);
        assert_eq!(payload(&[0x4f], IpAddr::from([192, 0, 2, 1])), None);
    }
}
