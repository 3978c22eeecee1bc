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
    /// Use of weak algorithms.
    pub legacy: Legacy,
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
    /// Key, followed by the salt where the cipher has one (RFC 4106, section 8.1); empty where there is no cipher.
    pub key: Secret,
    /// Key of the integrity algorithm; empty where the cipher authenticates, or nothing does.
    pub auth_key: Secret,
}

/// Use of algorithms that no longer protect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Legacy {
    /// They are refused.
    #[default]
    Refused,
    /// They are used, in a laboratory.
    Allowed,
}

impl Tunnel {
    /// Returns the security associations of one direction.
    pub fn sas(&self, direction: Direction) -> impl Iterator<Item = &StaticSa> {
        self.sas.iter().filter(move |sa| sa.direction == direction)
    }
}
