//! Packets that a translator between IP versions is sent, and prefixes that it has.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::{Just, Strategy};
use proptest::prop_oneof;
use wire::build::{Packet, Tcp};
use wire::tcp::Flags;

/// Server of IPv4.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// Kind of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    Echo,
}

/// Kinds that are translated.
pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Tcp), Just(Kind::Udp), Just(Kind::Echo)]
}

/// A prefix, and the server's address under it as RFC 6052, section 2.2 has it, by hand.
pub(crate) fn prefix() -> impl Strategy<Value = (&'static str, Ipv6Addr)> {
    prop_oneof![
        Just(("64:ff9b::/96", "64:ff9b::c633:6407".parse().unwrap())),
        Just(("2001:dbf::/32", "2001:dbf:c633:6407::".parse().unwrap())),
        Just(("2001:dbf:100::/40", "2001:dbf:1c6:3364:7::".parse().unwrap())),
        Just(("2001:dbf:122::/48", "2001:dbf:122:c633:64:700::".parse().unwrap())),
        Just(("2001:dbf:122:300::/56", "2001:dbf:122:3c6:33:6407::".parse().unwrap())),
        Just(("2001:dbf:122:344::/64", "2001:dbf:122:344:c6:3364:700::".parse().unwrap())),
    ]
}

/// Returns a packet of that kind, to the server or from it.
pub(crate) fn transport<'a>(
    packet: Packet<'a>,
    kind: Kind,
    [sport, dport]: [u16; 2],
    payload: &'a [u8],
    answers: bool,
) -> Packet<'a> {
    let packet = match kind {
        Kind::Tcp => packet.tcp(Tcp {
            sport,
            dport,
            seq: 77,
            flags: if answers { Flags::SYN_ACK } else { Flags::SYN },
            ack: 78,
            ..Tcp::default()
        }),
        Kind::Udp => packet.udp(sport, dport),
        Kind::Echo if answers => packet.echo_reply(dport, 9),
        Kind::Echo => packet.echo_request(sport, 9),
    };
    packet.payload(payload)
}

/// Returns the ports of a packet; of an echo, its identifier twice.
pub(crate) fn ports(kind: Kind, payload: &[u8]) -> [u16; 2] {
    let at = |place: usize| u16::from_be_bytes([payload[place], payload[place + 1]]);
    match kind {
        Kind::Echo => [at(4); 2],
        _ => [at(0), at(2)],
    }
}
