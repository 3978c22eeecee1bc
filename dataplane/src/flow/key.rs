//! Key of one direction of a flow: addresses, ports, protocol.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};
use wire::Family;
use wire::header::Protocol;

/// One direction of a flow, as its packets carry it at that place of the pipeline.
///
/// Plain numbers in host order; equal keys have equal bytes. A zeroed key belongs to no packet.
/// For protocols without ports both are 0; what stands for ports in ICMP is the business of the stage that
/// makes the key ([`Key::reversed`] swaps the two).
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Key {
    /// IPv4: source << 32 | destination, then zeros. IPv6: source high, low, destination high, low.
    addresses: [u64; 4],
    /// sport << 48 | dport << 32 | protocol << 24 | family << 16 | conntrack zone.
    ends: u64,
}

impl Key {
    /// The key of an IPv4 packet; addresses as numbers in host order.
    #[inline(always)]
    pub fn v4(source: u32, destination: u32, sport: u16, dport: u16, protocol: u8) -> Key {
        let addresses = [u64::from(source) << 32 | u64::from(destination), 0, 0, 0];
        Key { addresses, ends: ends(sport, dport, protocol, Family::V4) }
    }

    /// The key of an IPv6 packet; addresses as numbers in host order.
    #[inline(always)]
    pub fn v6(source: u128, destination: u128, sport: u16, dport: u16, protocol: u8) -> Key {
        let addresses =
            [(source >> 64) as u64, source as u64, (destination >> 64) as u64, destination as u64];
        Key { addresses, ends: ends(sport, dport, protocol, Family::V6) }
    }

    /// Returns the values in place of source and destination port in an ICMP query: the identifier on the querying side,
    /// the type of the request on the replying side. A request and its reply have reversed keys; a request in the other
    /// direction with the same identifier has another key.
    #[inline]
    pub fn query_ports(family: Family, kind: u8, id: u16) -> (u16, u16) {
        const ANSWERING: u16 = 0xff00;
        let (asks, answers) = match (family, kind) {
            (Family::V4, 0) => (8, true),
            (Family::V4, 14 | 16 | 18) => (kind - 1, true),
            (Family::V6, 129) => (128, true),
            _ => (kind, false),
        };
        let question = ANSWERING | u16::from(asks);
        if answers { (question, id) } else { (id, question) }
    }

    /// Returns the values in place of a port and of the protocol in a key of the other IP version, for protocols that NAT64 translates: the question
    /// of an echo request ([`Key::query_ports`]) and ICMP have others there.
    pub(crate) fn across(port: u16, protocol: u8, to: Family) -> (u16, u8) {
        let (v4, v6) = (Key::query_ports(Family::V4, 8, 0).1, Key::query_ports(Family::V6, 128, 0).1);
        match (Protocol(protocol), to) {
            (Protocol::ICMPV6, Family::V4) => (if port == v6 { v4 } else { port }, Protocol::ICMP.0),
            (Protocol::ICMP, Family::V6) => (if port == v4 { v6 } else { port }, Protocol::ICMPV6.0),
            _ => (port, protocol),
        }
    }

    /// The same key in a conntrack zone: a number for the interfaces that its packets may arrive by. Packets that
    /// arrive by others do not belong to the flow.
    #[inline(always)]
    #[must_use]
    pub fn in_ct_zone(self, ct_zone: u16) -> Key {
        Key { ends: self.ends & !0xffff | u64::from(ct_zone), ..self }
    }

    /// Stand-in for the source port of a PPTP call's packets, which have one call ID, that of their receiver.
    pub const CALL: u16 = 1;

    /// The key of the packets that answer, where nothing is translated.
    #[inline(always)]
    pub fn reversed(&self) -> Key {
        let [a, b, c, d] = self.addresses;
        let addresses = if self.is_v4() { [a.rotate_left(32), 0, 0, 0] } else { [c, d, a, b] };
        let ports = ((self.ends >> 32) as u32).rotate_left(16);
        Key { addresses, ends: u64::from(ports) << 32 | self.ends & 0xffff_ffff }
    }

    /// IPv4, IPv6, or neither (a zeroed key).
    #[inline(always)]
    pub fn family(&self) -> Family {
        match (self.ends >> 16) as u8 {
            4 => Family::V4,
            6 => Family::V6,
            _ => Family::Other,
        }
    }

    /// True if this is a key of IPv4 packets.
    #[inline(always)]
    pub fn is_v4(&self) -> bool {
        (self.ends >> 16) as u8 == Family::V4 as u8
    }

    /// The source address.
    pub fn source(&self) -> IpAddr {
        match self.family() {
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.source_v6())),
            Family::V4 | Family::Other => IpAddr::V4(Ipv4Addr::from_bits(self.source_v4())),
        }
    }

    /// The destination address.
    pub fn destination(&self) -> IpAddr {
        match self.family() {
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.destination_v6())),
            Family::V4 | Family::Other => IpAddr::V4(Ipv4Addr::from_bits(self.destination_v4())),
        }
    }

    /// The source of an IPv4 key, in host order.
    #[inline(always)]
    pub fn source_v4(&self) -> u32 {
        (self.addresses[0] >> 32) as u32
    }

    /// The destination of an IPv4 key, in host order.
    #[inline(always)]
    pub fn destination_v4(&self) -> u32 {
        self.addresses[0] as u32
    }

    /// The source of an IPv6 key, in host order.
    #[inline(always)]
    pub fn source_v6(&self) -> u128 {
        u128::from(self.addresses[0]) << 64 | u128::from(self.addresses[1])
    }

    /// The destination of an IPv6 key, in host order.
    #[inline(always)]
    pub fn destination_v6(&self) -> u128 {
        u128::from(self.addresses[2]) << 64 | u128::from(self.addresses[3])
    }

    /// The source port, or what stands for it.
    #[inline(always)]
    pub fn sport(&self) -> u16 {
        (self.ends >> 48) as u16
    }

    /// The destination port, or what stands for it.
    #[inline(always)]
    pub fn dport(&self) -> u16 {
        (self.ends >> 32) as u16
    }

    /// The transport protocol.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        (self.ends >> 24) as u8
    }

    /// True if this is the key of a packet, of IPv4 or IPv6.
    #[inline(always)]
    pub(crate) fn is_some(&self) -> bool {
        self.ends & 0xff_0000 != 0
    }

    /// The conntrack zone.
    #[inline(always)]
    pub fn ct_zone(&self) -> u16 {
        self.ends as u16
    }

    /// The words that the hash takes: addresses, then ports, protocol and family. Not the conntrack zone: keys that differ in
    /// nothing else are found together, where conntrack zones have changed.
    #[inline(always)]
    pub(crate) fn words(&self) -> (&[u64; 4], u64) {
        (&self.addresses, self.ends & !0xffff)
    }
}

impl PartialEq for Key {
    /// With no branch but for the family: keys that are compared are nearly always equal, and lie in one cache line.
    #[inline(always)]
    fn eq(&self, other: &Key) -> bool {
        let (a, b) = (&self.addresses, &other.addresses);
        let difference = (a[0] ^ b[0]) | (self.ends ^ other.ends);
        if self.is_v4() {
            // The ends have the family, and IPv4 fills one word of addresses.
            return difference == 0;
        }
        difference | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) == 0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(bytemuck::bytes_of(self));
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source(), self.destination());
        let (sport, dport, protocol) = (self.sport(), self.dport(), self.protocol());
        write!(f, "protocol {protocol} {source} port {sport} > {destination} port {dport}")
    }
}

const fn ends(sport: u16, dport: u16, protocol: u8, family: Family) -> u64 {
    (sport as u64) << 48 | (dport as u64) << 32 | (protocol as u64) << 24 | (family as u64) << 16
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::{any, prop, proptest};

    use super::Key;

    #[test]
    fn v4_parts_come_back_and_turn_around() {
        let key = Key::v4(0xc0a8_010a, 0xc633_6407, 50_000, 443, 6);
        assert_eq!(key.source(), "192.168.1.10".parse::<IpAddr>().unwrap());
        assert_eq!(key.destination(), "198.51.100.7".parse::<IpAddr>().unwrap());
        assert_eq!((key.sport(), key.dport(), key.protocol()), (50_000, 443, 6));
        assert_eq!(key.reversed(), Key::v4(0xc633_6407, 0xc0a8_010a, 443, 50_000, 6));
        assert_eq!(key.reversed().reversed(), key);
    }

    #[test]
    fn v6_parts_come_back_and_turn_around() {
        let (a, b) = (0x2001_0db8_0000_0000_0000_0000_0000_0001, 0x2001_0db8_0000_0000_0000_0000_0000_0002);
        let key = Key::v6(a, b, 1, 2, 17);
        assert_eq!(key.source(), "2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(key.destination_v6(), b);
        assert_eq!(key.reversed(), Key::v6(b, a, 2, 1, 17));
        assert_eq!(key.reversed().reversed(), key);
    }

    proptest! {
        /// Keys of both families from few numbers, so that many are equal.
        #[test]
        fn keys_are_equal_if_their_bytes_are(
            one in (any::<bool>(), prop::array::uniform3(0..2_u16)),
            other in (any::<bool>(), prop::array::uniform3(0..2_u16)),
        ) {
            let key = |(is_v4, [source, destination, port]): (bool, [u16; 3])| match is_v4 {
                true => Key::v4(source.into(), destination.into(), port, 1, 6),
                // In words that IPv4 does not have.
                false => Key::v6(u128::from(source), u128::from(destination) << 64 | 1, port, 1, 6),
            };
            let (one, other) = (key(one), key(other));
            assert_eq!(one == other, bytemuck::bytes_of(&one) == bytemuck::bytes_of(&other));
        }
    }

    #[test]
    fn each_part_tells_keys_apart() {
        let key = Key::v4(1, 2, 3, 4, 6);
        let others = [
            Key::v4(9, 2, 3, 4, 6),
            Key::v4(1, 9, 3, 4, 6),
            Key::v4(1, 2, 9, 4, 6),
            Key::v4(1, 2, 3, 9, 6),
            Key::v4(1, 2, 3, 4, 17),
            Key::v6(1 << 96 | 2 << 64, 0, 3, 4, 6),
            Key::default(),
        ];
        for other in others {
            assert_ne!(key, other);
        }
    }
}
