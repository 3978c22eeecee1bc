//! Tunnels: interfaces whose link is ESP to a peer.

use std::net::IpAddr;

use wire::esp::{Direction, Secret, Suite};

/// Tunnel of an interface: IP packets in ESP (RFC 4303, tunnel mode) to one peer and from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer address of the gateway: one of another interface.
    pub local: IpAddr,
    /// Outer address of the peer.
    pub remote: IpAddr,
    /// Security associations, in the order of the file.
    pub sas: Vec<StaticSa>,
}

/// Security association with its key in the policy: for laboratories and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSa {
    /// Direction, as the gateway has it.
    pub direction: Direction,
    /// Security parameters index; 1 to 255 are reserved.
    pub spi: u32,
    /// Cipher and integrity algorithm.
    pub suite: Suite,
    /// Key, followed by the salt (RFC 4106, section 8.1).
    pub key: Secret,
}

impl Tunnel {
    /// Returns the security associations of one direction.
    pub fn sas(&self, direction: Direction) -> impl Iterator<Item = &StaticSa> {
        self.sas.iter().filter(move |sa| sa.direction == direction)
    }
}
