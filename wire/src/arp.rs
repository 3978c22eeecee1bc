//! ARP for IPv4 over Ethernet (RFC 826). Any other pair of address kinds is refused by name.

use std::net::Ipv4Addr;

use crate::ethernet::{EtherType, Mac};
use crate::header::{array, be16, be32, put};

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Reason why bytes are no ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 28 bytes.
    #[error("shorter than an ARP packet")]
    TooShort,
    /// Hardware type other than Ethernet, or address length other than 6 bytes.
    #[error("ARP for other hardware than Ethernet")]
    Hardware,
    /// Protocol type other than IPv4, or address length other than 4 bytes.
    #[error("ARP for another protocol than IPv4")]
    Protocol,
}

/// Checks that `payload` is a packet for IPv4 over Ethernet.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Packet<'_>, Malformed> {
    let Some(bytes) = payload.first_chunk::<LEN>() else { return Err(Malformed::TooShort) };
    if be16(bytes, 0) != 1 || bytes[4] != 6 {
        return Err(Malformed::Hardware);
    }
    if be16(bytes, 2) != EtherType::IPV4.0 || bytes[5] != 4 {
        return Err(Malformed::Protocol);
    }
    Ok(Packet(bytes))
}

/// A packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl Packet<'_> {
    /// Operation code: request, reply or another.
    #[inline]
    pub fn operation(self) -> Operation {
        Operation(be16(self.0, 6))
    }

    /// The sender's Ethernet address.
    #[inline]
    pub fn sender_mac(self) -> Mac {
        Mac(array(self.0, 8))
    }

    /// The sender's IPv4 address; zero in a probe (RFC 5227).
    #[inline]
    pub fn sender_ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.0, 14))
    }

    /// The target's Ethernet address; without meaning in a request.
    #[inline]
    pub fn target_mac(self) -> Mac {
        Mac(array(self.0, 18))
    }

    /// The target's IPv4 address.
    #[inline]
    pub fn target_ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.0, 24))
    }

    /// The packet's fields, free of its bytes.
    pub fn fields(self) -> Fields {
        Fields {
            operation: self.operation(),
            sender_mac: self.sender_mac(),
            sender_ip: self.sender_ip(),
            target_mac: self.target_mac(),
            target_ip: self.target_ip(),
        }
    }
}

/// The operation code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub u16);

impl Operation {
    /// Request: asks for the hardware address of the target.
    pub const REQUEST: Operation = Operation(1);
    /// Reply: gives the sender's hardware address.
    pub const REPLY: Operation = Operation(2);
}

/// A packet's fields, to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Operation code.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: Mac,
    /// The sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address.
    pub target_mac: Mac,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl Fields {
    /// The packet's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        put(&mut bytes, 0, [0, 1, 8, 0, 6, 4]);
        put(&mut bytes, 6, self.operation.0.to_be_bytes());
        put(&mut bytes, 8, self.sender_mac.0);
        put(&mut bytes, 14, self.sender_ip.octets());
        put(&mut bytes, 18, self.target_mac.0);
        put(&mut bytes, 24, self.target_ip.octets());
        bytes
    }
}

#[cfg(test)]
mod tests;
