use std::sync::LazyLock;

use proptest::prelude::*;
use wire::build::Tcp;
use wire::tcp::Flags;
use wire::{Meta, build, ipv4};

use super::{Carried, any as in_general, link, plain4, v4};
use crate::Tables;

/// Returns the metadata before parsing: the offset of the IP header, and the flags of the link layer.
fn fresh(flags: u16) -> Meta {
    Meta { network: 14, flags, ..Meta::default() }
}

/// Tables of [`PORTS`].
static TABLES: LazyLock<Tables> =
    LazyLock::new(|| Tables::compile(&policy::check(PORTS, "ports.toml").policy.unwrap(), 1).unwrap());

/// Checks that the fast path decides nothing, or the same as the general path.
fn compare(bytes: &[u8], flags: u16) -> Result<(), TestCaseError> {
    let (mut short, mut general) = (fresh(flags), fresh(flags));
    let (is_plain, second) = (plain4(bytes, &mut short), v4(bytes, &mut general, &TABLES));
    if is_plain {
        prop_assert!(matches!(second, Ok(Carried::Packet)), "{:?}", second.err());
        prop_assert_eq!(format!("{short:?}"), format!("{general:?}"));
    } else {
        prop_assert_eq!(format!("{short:?}"), format!("{:?}", fresh(flags)));
    }
    Ok(())
}

/// A port that hears its own frames and groups', and a VLAN of it.
const PORTS: &str = r#"
    [interface.own]
    zone = "a"
    addresses = ["10.0.0.1/24"]
    mac = "02:00:00:00:00:01"
    [interface.vlan]
    zone = "b"
    parent = "own"
    vlan = 7
    addresses = ["10.0.1.1/24"]
"#;

#[test]
fn packets_of_hosts_take_the_short_way() {
    let packet = || build::ipv4([10, 0, 0, 2].into(), [128, 0, 0, 3].into()).payload(&[0; 20]);
    for bytes in [packet().udp(1, 2).to_vec(), packet().tcp(Tcp::default()).to_vec()] {
        assert!(plain4(&bytes, &mut fresh(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_agrees_with_the_general_on_any_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        flags in 0_u16..2,
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
        (is_nobody, flags) in (0..4_u8, 0_u16..2),
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
        compare(&bytes, flags)?;
        // Cut short, too.
        compare(&bytes[..bytes.len().min(place)], flags)?;
    }

    #[test]
    fn frames_by_the_short_way_are_those_by_the_general(
        (mac, is_group, ethertype) in (0..3_u8, any::<bool>(), prop_oneof![3 => Just(0x0800_u16), 1 => Just(0x8100), 1 => any::<u16>()]),
        ingress in 0..3_u16,
        (source, destination) in (prop::array::uniform4(any::<u8>()), prop::array::uniform4(any::<u8>())),
        (size, len) in (0..30_usize, 0..80_usize),
    ) {
        let checked = policy::check(PORTS, "test");
        let tables = Tables::compile(&checked.policy.unwrap(), 1).unwrap();
        let data = [7; 30];
        let packet = build::ipv4(source.into(), destination.into()).payload(&data[..size]).udp(1, 67).to_vec();
        let mut frame = vec![2, 0, 0, 0, 0, mac, 2, 0, 0, 0, 0, 9];
        frame[0] |= u8::from(is_group);
        frame.extend(ethertype.to_be_bytes());
        if ethertype == 0x8100 {
            frame.extend([0, 7, 8, 0]);
        }
        frame.extend(&packet);
        frame.truncate(len.max(size));
        let fresh = Meta { ingress: wire::PortId(ingress), ..Meta::default() };
        let (mut short, mut general) = (fresh.clone(), fresh);
        let (first, second) = (link(&frame, &mut short, &tables), in_general(&frame, &mut general, &tables));
        prop_assert_eq!(first.is_ok(), second.is_ok());
        prop_assert_eq!(first.err(), second.err());
        prop_assert_eq!(format!("{short:?}"), format!("{general:?}"));
    }
}
