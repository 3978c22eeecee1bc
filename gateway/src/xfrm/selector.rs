//! Selectors of XFRM in the words of the data plane.

use std::net::IpAddr;

use dataplane::tables::{Address, Ends, Ports, Selector};
use lookup::classify::{AddressSpan, PortSpan};
use wire::esp::Direction;
use wire::header::Protocol;

use super::message::{self, AF_INET, AF_INET6};

/// Selector of an association of this direction; `None` for one that the data plane has no words for: of a port mask with gaps, of ICMP's types, of a
/// user or of an interface of Linux.
pub fn of(selector: &message::Selector, direction: Direction) -> Option<Selector> {
    let message::Selector { destination, source, family, destination_len, source_len, .. } = *selector;
    let source = span(source.ip(family)?, source_len)?;
    let destination = span(destination.ip(family)?, destination_len)?;
    let protocol = Some(Protocol(selector.protocol)).filter(|protocol| protocol.0 != 0);
    let (sports, dports) = (ports(selector.source_port)?, ports(selector.destination_port)?);
    let has_ports = sports.is_some() || dports.is_some();
    if has_ports && !protocol.is_some_and(Protocol::has_ports)
        || selector.interface != 0
        || selector.user != 0
    {
        return None;
    }
    Some(match direction {
        Direction::Out => Selector {
            local: source,
            remote: destination,
            protocol,
            local_ports: sports,
            remote_ports: dports,
        },
        Direction::In => Selector {
            local: destination,
            remote: source,
            protocol,
            local_ports: dports,
            remote_ports: sports,
        },
    })
}

/// Selector of one packet that was to leave.
pub fn of_packet(ends: &Ends) -> message::Selector {
    let Ends { local, remote, protocol, ports } = *ends;
    let bits = if local.v6 { 128 } else { 32 };
    let port = |of: fn(Ports) -> u16| {
        let known = ports.filter(|_| protocol.has_ports());
        known.map_or([0; 2], |ports| [of(ports), u16::MAX])
    };
    message::Selector {
        destination: remote.to_ip().into(),
        source: local.to_ip().into(),
        destination_port: port(|ports| ports.remote),
        source_port: port(|ports| ports.local),
        family: if local.v6 { AF_INET6 } else { AF_INET },
        destination_len: bits,
        source_len: bits,
        protocol: protocol.0,
        ..message::Selector::default()
    }
}

fn span(address: IpAddr, len: u8) -> Option<AddressSpan> {
    let address = Address::from(address);
    let all: u8 = if address.v6 { 128 } else { 32 };
    let host = u128::MAX.checked_shr((128 - all).into())?.checked_shr(len.into()).unwrap_or(0);
    if len > all {
        return None;
    }
    Some(AddressSpan { v6: address.v6, first: address.bits & !host, last: address.bits | host })
}

/// Ports, none for any; `None` for a mask with gaps.
#[allow(clippy::option_option)]
fn ports([port, mask]: [u16; 2]) -> Option<Option<PortSpan>> {
    if mask == 0 {
        return Some(None);
    }
    if mask.leading_ones() + mask.trailing_zeros() != 16 {
        return None;
    }
    Some(Some(PortSpan { first: port & mask, last: port | !mask }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    fn with(ports: [[u16; 2]; 2], protocol: u8) -> message::Selector {
        message::Selector {
            destination: IpAddr::from([10, 2, 9, 9]).into(),
            source: IpAddr::from([10, 1, 0, 0]).into(),
            destination_port: ports[0],
            source_port: ports[1],
            family: AF_INET,
            destination_len: 16,
            source_len: 0,
            protocol,
            ..message::Selector::default()
        }
    }

    #[test]
    fn sides_are_the_gateways() {
        let asked = with([[443, 0xffff], [0x8000, 0xfff0]], 6);
        let span = |first: [u8; 4], last: [u8; 4]| AddressSpan {
            v6: false,
            first: u32::from_be_bytes(first).into(),
            last: u32::from_be_bytes(last).into(),
        };
        let all = span([0; 4], [255; 4]);
        let there = span([10, 2, 0, 0], [10, 2, 255, 255]);
        let out = of(&asked, Direction::Out).unwrap();
        assert_eq!((out.local, out.remote, out.protocol), (all, there, Some(Protocol::TCP)));
        assert_eq!(out.local_ports, Some(PortSpan { first: 0x8000, last: 0x800f }));
        assert_eq!(out.remote_ports, Some(PortSpan { first: 443, last: 443 }));
        let inward = of(&asked, Direction::In).unwrap();
        assert_eq!((inward.local, inward.remote), (there, all));
        assert_eq!(inward.local_ports, Some(PortSpan { first: 443, last: 443 }));
    }

    #[test]
    fn what_there_are_no_words_for_is_none() {
        assert!(of(&with([[0, 0], [0, 0]], 1), Direction::Out).is_some());
        let wrong = [
            with([[0, 0xff], [0, 0]], 6),
            with([[0, 0xffff], [8, 0xffff]], 1),
            with([[0, 0xffff], [0, 0]], 0),
            message::Selector { interface: 3, ..with([[0; 2]; 2], 0) },
            message::Selector { source_len: 33, ..with([[0; 2]; 2], 0) },
            message::Selector { family: 7, ..with([[0; 2]; 2], 0) },
        ];
        for selector in wrong {
            assert_eq!(of(&selector, Direction::Out), None, "{selector:?}");
        }
    }

    proptest! {
        #[test]
        fn a_packets_selector_is_within_a_policys_where_the_data_plane_says_so(
            local: u32, remote: u32, sport: u16, dport: u16, len in 0..=32_u8, mask in 0..=16_u32, near: bool, is_tcp in any::<bool>(),
        ) {
            let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
            let ports = Some(Ports { local: sport, remote: dport });
            let ends = Ends { local: Address::v4(local), remote: Address::v4(remote), protocol, ports };
            let mask = ((u32::from(u16::MAX) << (16 - mask)) & 0xffff) as u16;
            let policy = message::Selector {
                destination: IpAddr::from(if near { remote.to_be_bytes() } else { local.to_be_bytes() }).into(),
                destination_len: len,
                destination_port: [if near { dport } else { sport }, mask],
                protocol: 6,
                family: AF_INET,
                ..message::Selector::default()
            };
            let compiled = dataplane::tables::Selectors::new(vec![of(&policy, Direction::Out).unwrap()]);
            let fits = matches!(compiled.find(&ends, &mut tally::NoTally), dataplane::tables::Fit::At(0));
            prop_assert_eq!(policy.has(&of_packet(&ends)), fits);
        }
    }
}
