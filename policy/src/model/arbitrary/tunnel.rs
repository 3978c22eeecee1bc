//! Random tunnels.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use wire::esp::{Direction, SUITES, Secret};

use super::address;
use crate::model::{Interface, Legacy, LinkKind, StaticSa, Tunnel};

/// Any interface that is a tunnel.
pub(super) fn interface() -> impl Strategy<Value = Interface> {
    let key = vec(any::<u8>(), 0..40).prop_map(|bytes| Secret::new(bytes.into()));
    let auth_key = key.clone();
    let suite = select(&SUITES[..]);
    let direction = select(&[Direction::In, Direction::Out][..]);
    // No key where the suite takes none: there is no key of the file for it.
    let only = |key: Secret, len: u8| if len == 0 { Secret::new(Box::default()) } else { key };
    let sa = (direction, any::<u32>(), suite, key, auth_key).prop_map(
        move |(direction, spi, suite, key, auth_key)| StaticSa {
            direction,
            spi,
            suite,
            key: only(key, suite.key),
            auth_key: only(auth_key, suite.auth_key),
        },
    );
    let legacy = select(&[Legacy::Refused, Legacy::Allowed][..]);
    let tunnel = (address(), address(), legacy, vec(sa, 0..4));
    (super::interface(), tunnel).prop_map(|(interface, (local, remote, legacy, sas))| {
        let Interface { name, zone, addresses, mtu, source_check, mss, .. } = interface;
        Interface {
            addresses,
            link: LinkKind::Ip,
            mtu,
            source_check,
            mss,
            esp: Some(Box::new(Tunnel { local, remote, legacy, sas })),
            ..Interface::new(&name, &zone)
        }
    })
}
