//! Random tunnels.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use wire::esp::{Direction, Secret, Suite};

use super::address;
use crate::model::{Interface, LinkKind, StaticSa, Tunnel};

/// Any interface that is a tunnel.
pub(super) fn interface() -> impl Strategy<Value = Interface> {
    let key = vec(any::<u8>(), 0..40).prop_map(|bytes| Secret::new(bytes.into()));
    let suite = select(&["aes128-gcm", "aes256-gcm"][..]).prop_map(|name| *Suite::named(name, None).unwrap());
    let direction = select(&[Direction::In, Direction::Out][..]);
    let sa = (direction, any::<u32>(), suite, key).prop_map(|(direction, spi, suite, key)| StaticSa {
        direction,
        spi,
        suite,
        key,
    });
    let tunnel = (address(), address(), vec(sa, 0..4));
    (super::interface(), tunnel).prop_map(|(interface, (local, remote, sas))| {
        let Interface { name, zone, addresses, mtu, source_check, mss, .. } = interface;
        Interface {
            addresses,
            link: LinkKind::Ip,
            mtu,
            source_check,
            mss,
            esp: Some(Box::new(Tunnel { local, remote, sas })),
            ..Interface::new(&name, &zone)
        }
    })
}
