use proptest::prelude::*;
use wire::build::Tcp;
use wire::tcp::Flags;
use wire::{Meta, build, ipv4};

use super::{Carried, plain4, v4};

/// Returns the metadata before parsing: the offset of the IP header, and the flags of the link layer.
fn fresh(flags: u16) -> Meta {
    Meta { network: 14, flags, ..Meta::default() }
}

/// Checks that the fast path decides nothing, or the same as the general path.
fn compare(bytes: &[u8], flags: u16) -> Result<(), TestCaseError> {
    let (mut short, mut general) = (fresh(flags), fresh(flags));
    let (first, second) = (plain4(bytes, &mut short), v4(bytes, &mut general));
    match first {
        Ok(false) => prop_assert_eq!(format!("{short:?}"), format!("{:?}", fresh(flags))),
        Ok(true) => {
            prop_assert!(matches!(second, Ok(Carried::Packet)), "{:?}", second.err());
            prop_assert_eq!(format!("{short:?}"), format!("{general:?}"));
        }
        Err(reason) => prop_assert_eq!(Some(reason), second.err()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_agrees_with_the_general_on_any_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        flags in 0_u16..3,
        is_plain in any::<bool>(),
    ) {
        if let Some(first) = bytes.first_mut().filter(|_| is_plain) {
            *first = 0x45;
        }
        if ipv4::parse_prefix(&bytes).is_ok() {
            ipv4::fill_checksum(&mut bytes);
        }
        compare(&bytes, flags)?;
    }

    #[test]
    fn the_short_way_agrees_with_the_general_on_broken_packets(
        (source, destination) in (prop::array::uniform4(any::<u8>()), prop::array::uniform4(any::<u8>())),
        kind in 0..4_u8,
        (sport, dport, tcp_flags) in (any::<u16>(), prop_oneof![Just(67), any::<u16>()], any::<u8>()),
        size in 0..30_usize,
        (spoilt, place, with) in (0..3_u8, 0..48_usize, any::<u8>()),
        padding in 0..12_usize,
        (is_nobody, link) in (0..4_u8, 0_u16..3),
    ) {
        let (source, destination) = match is_nobody {
            0 => ([0; 4], [255; 4]),
            1 => (source, source),
            _ => (source, destination),
        };
        let data = [7; 30];
        let packet = build::ipv4(source.into(), destination.into()).payload(&data[..size]);
        let packet = match kind {
            0 => packet.tcp(Tcp { sport, dport, flags: Flags(tcp_flags), ..Tcp::default() }),
            1 => packet.udp(sport, dport),
            2 => packet.udp(sport, dport).dont_fragment(),
            _ => packet.echo_request(sport, dport),
        };
        let mut bytes = packet.to_vec();
        bytes.resize(bytes.len() + padding, 0);
        if let Some(byte) = bytes.get_mut(place).filter(|_| spoilt > 0) {
            *byte ^= with;
        }
        if spoilt == 2 && ipv4::parse_prefix(&bytes).is_ok() {
            ipv4::fill_checksum(&mut bytes);
        }
        compare(&bytes, link)?;
        // Cut short, too.
        compare(&bytes[..bytes.len().min(place)], link)?;
    }
}
