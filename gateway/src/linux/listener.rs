//! Listening endpoints of this machine's sockets, from Linux's `sock_diag`: their ports belong to the machine itself.
//!
//! Covers listening TCP sockets and unconnected UDP sockets. Many of the latter live for one query and its response, so
//! a UDP socket counts once two dumps in a row contain it. Linux sends no events for sockets; they are polled every
//! [`PAUSE`].

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};
use policy::model::{Listener, Protocol};

use super::message::{AF_INET, AF_INET6};
use super::socket::{Error, Operation, wait};

/// Interval between two dumps.
pub const PAUSE: Duration = Duration::from_secs(5);

/// Endpoints kept, at most, lowest first: a machine has some dozens.
const MOST: usize = 4096;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const HEADER: usize = 16;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Socket states, as bits: `TCP_LISTEN`, and `TCP_CLOSE`, the state of unconnected UDP sockets.
const LISTENING: u32 = 1 << 10;
const UNCONNECTED: u32 = 1 << 7;

/// Time limit for Linux's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest datagram of a dump, in bytes.
const LARGEST: usize = 1 << 16;

/// Poller of listening endpoints, with the previous dump.
#[derive(Debug, Default)]
pub struct Listeners {
    before: BTreeSet<Listener>,
}

impl Listeners {
    /// Returns the current listening endpoints.
    ///
    /// # Errors
    /// Failed dump.
    pub fn list(&mut self) -> Result<Vec<Listener>, Error> {
        let failed = |source| Error::new(Operation::ListSockets, source);
        let mut found = BTreeSet::new();
        let mut passing = BTreeSet::new();
        for family in [AF_INET, AF_INET6] {
            dump(family, TCP, LISTENING, &mut found).map_err(failed)?;
            dump(family, UDP, UNCONNECTED, &mut passing).map_err(failed)?;
        }
        found.extend(passing.intersection(&self.before).copied());
        self.before = passing;
        Ok(found.into_iter().take(MOST).collect())
    }
}

fn dump(family: u8, protocol: u8, states: u32, found: &mut BTreeSet<Listener>) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // A header, and `struct inet_diag_req_v2` of 56 bytes: any addresses and ports.
    let mut request = Vec::with_capacity(HEADER + 56);
    request.extend(((HEADER + 56) as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([family, protocol, 0, 0]);
    request.extend(states.to_ne_bytes());
    request.extend([0; 48]);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
    let mut buffer = Vec::with_capacity(LARGEST);
    loop {
        wait(&[socket.as_fd()], Some(PATIENCE))?;
        buffer.clear();
        match socket.recv_from(&mut buffer, 0) {
            // Anybody may send to a netlink socket; only the kernel counts.
            Ok((_, from)) if from.port_number() != 0 => {}
            Ok(_) => {
                if let Some(outcome) = read(&buffer, protocol, found) {
                    return outcome;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Parses the endpoints of a datagram; returns the outcome of the dump at its end.
fn read(mut bytes: &[u8], protocol: u8, found: &mut BTreeSet<Listener>) -> Option<io::Result<()>> {
    while let Some(header) = bytes.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        // One shorter than its header would be read for ever.
        let message = bytes.get(HEADER..length)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            DONE => return Some(Ok(())),
            ERROR => {
                let number = message.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                return Some(if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-number)) });
            }
            SOCK_DIAG_BY_FAMILY => found.extend(endpoints(message, protocol)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    None
}

/// Parses the endpoint of `struct inet_diag_msg`; `None` for loopback. An IPv6 socket on all addresses includes IPv4.
fn endpoints(message: &[u8], protocol: u8) -> Option<Listener> {
    let family = *message.first()?;
    let port = u16::from_be_bytes(*message.get(4..)?.first_chunk()?);
    let address = message.get(8..24)?;
    let address = if family == AF_INET {
        IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(*address.first_chunk::<16>()?)).to_canonical()
    };
    let bound = (!address.is_unspecified()).then_some(address);
    (port != 0 && !address.is_loopback()).then_some(Listener {
        protocol: Protocol(protocol),
        address: bound,
        port,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn sockets_of_this_machine_are_found() {
        let (tcp, udp) = (TcpListener::bind("0.0.0.0:0").unwrap(), UdpSocket::bind("[::]:0").unwrap());
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = |protocol, port| Listener { protocol: Protocol(protocol), address: None, port };
        let (tcp, udp) =
            (wanted(TCP, tcp.local_addr().unwrap().port()), wanted(UDP, udp.local_addr().unwrap().port()));
        let mut listeners = Listeners::default();
        let first = listeners.list().unwrap();
        assert!(first.contains(&tcp) && !first.contains(&udp), "{first:?}");
        let second = listeners.list().unwrap();
        assert!(second.contains(&tcp) && second.contains(&udp), "{second:?}");
        let loopback = alone.local_addr().unwrap().port();
        assert!(second.iter().all(|one| one.port != loopback || one.protocol.0 != TCP));
    }

    #[test]
    fn whatever_comes_is_read_without_a_panic() {
        let mut found = BTreeSet::new();
        for length in 0..120_usize {
            let mut bytes = vec![0xff; length];
            if length >= 6 {
                bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            let _ = read(&bytes, TCP, &mut found);
            bytes[..length.min(4)].fill(0);
            let _ = read(&bytes, TCP, &mut found);
        }
    }
}
