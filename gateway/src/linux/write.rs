//! Asking Linux to do something, on a socket of its own.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_CREATE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};

use super::message::Body;
use super::socket::{Enough, Error, Operation, Socket};
use super::state::NeighbourKey;

/// Asks Linux to do things.
#[derive(Debug)]
pub struct Writer {
    socket: Socket,
}

const RTM_NEWNEIGH: u16 = 28;

impl Writer {
    /// A socket to ask by, in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Where none can be had.
    pub fn open() -> Result<Writer, Error> {
        Ok(Writer { socket: Socket::open()? })
    }

    /// Asks Linux to find out a neighbour's link-layer address, or whether it is still there, as if there were a packet
    /// to send to it. The answer comes as news.
    ///
    /// # Errors
    ///
    /// Where the interface is gone or the table of neighbours is full.
    pub fn resolve(&mut self, key: NeighbourKey) -> Result<(), Error> {
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family: family(key.address),
            ifindex: key.link.0,
            flags: NeighbourFlags::Use,
            ..NeighbourHeader::default()
        };
        let address = match key.address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes.push(NeighbourAttribute::Destination(address));
        self.request(RTM_NEWNEIGH, NLM_F_CREATE, &message).map_err(|source| Error {
            operation: Operation::Resolve,
            subject: Some(format!("{} on interface {}", key.address, key.link.0)),
            source,
        })
    }

    /// Sends a message and waits for its answer.
    fn request(&mut self, kind: u16, flags: u16, message: &impl Emitable) -> io::Result<()> {
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        let sequence = self.socket.send(kind, flags | NLM_F_ACK, &body)?;
        let mut outcome = 0;
        self.socket.answers(sequence, |message| match message.body {
            Body::Answer(error) => {
                outcome = error;
                Enough::Yes
            }
            _ => Enough::No,
        })?;
        if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-outcome)) }
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
