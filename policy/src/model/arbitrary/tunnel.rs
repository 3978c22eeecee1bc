//! Random tunnels.

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use wire::esp::{Direction, EcnUse, Esn, Mode, SUITES, Secret, Tfc, Udp};
use wire::{Dscp, Nanos};

use super::address;
use crate::model::{
    DfBit, Follow, FragmentWhen, Interface, KeyFiles, KeySource, Legacy, Lifetime, LinkKind, PortRange,
    Protocol, SelectorEnd, StaticSa, Tunnel, TunnelDscp, WindowSize,
};

/// Any interface that is a tunnel.
pub(super) fn interface() -> impl Strategy<Value = Interface> {
    let key = vec(any::<u8>(), 0..40).prop_map(|bytes| Secret::new(bytes.into()));
    let auth_key = key.clone();
    let suite = select(&SUITES[..]);
    let direction = select(&[Direction::In, Direction::Out][..]);
    // No key where the suite takes none: there is no key of the file for it.
    let only = |key: Secret, len: u8| if len == 0 { Secret::new(Box::default()) } else { key };
    let esn = select(&[Esn::Off, Esn::On][..]);
    let bound = || option::of(0..=i64::MAX as u64);
    let lifetime = (bound(), bound(), bound()).prop_map(|(bytes, packets, time)| Lifetime {
        bytes,
        packets,
        time: time.map(Nanos),
    });
    let lifetimes = (lifetime.clone(), lifetime);
    let file = || option::of(super::name().prop_map(PathBuf::from));
    let sa = (direction, any::<u32>(), suite, esn, lifetimes, key, auth_key, [file(), file()]).prop_map(
        move |(direction, spi, suite, esn, (soft, hard), key, auth_key, [key_file, auth_key_file])| {
            let files = KeyFiles {
                key: key_file.filter(|_| suite.key > 0),
                auth_key: auth_key_file.filter(|_| suite.auth_key > 0),
                ..KeyFiles::default()
            };
            StaticSa {
                direction,
                spi,
                suite,
                esn,
                soft,
                hard,
                key: only(key, if files.key.is_some() { 0 } else { suite.key }),
                auth_key: only(auth_key, if files.auth_key.is_some() { 0 } else { suite.auth_key }),
                files,
            }
        },
    );
    let window = any::<Option<u32>>().prop_map(|size| size.map_or(WindowSize::Off, WindowSize::Numbers));
    let df = select(&[DfBit::Copy, DfBit::Set, DfBit::Clear][..]);
    let dscp = option::of(0..64_u8)
        .prop_map(|dscp| dscp.and_then(Dscp::new).map_or(TunnelDscp::Copy, TunnelDscp::Fixed));
    let ecn = select(&[EcnUse::Copy, EcnUse::Off][..]);
    let tfc = prop_oneof![Just(Tfc::Off), Just(Tfc::Mtu), (1..=u16::MAX).prop_map(Tfc::Multiple)];
    let legacy = select(&[Legacy::Refused, Legacy::Allowed][..]);
    let keys = select(&[KeySource::Policy, KeySource::Ike][..]);
    let source = (keys, any::<Option<u32>>(), any::<Option<u32>>());
    let udp = select(&[Udp::No, Udp::Yes][..]);
    let follow = select(&[Follow::Yes, Follow::No][..]);
    let fragment = select(&[FragmentWhen::Before, FragmentWhen::After][..]);
    let keepalive = option::of((1_000_000_000..=i64::MAX as u64).prop_map(Nanos));
    let way = (udp, keepalive, follow, fragment);
    let header = (window, df, dscp, ecn, tfc, legacy, source);
    let ports = || select(vec![None, Some(PortRange::single(443)), Some(PortRange { first: 5, last: 9 })]);
    let protocol = || {
        option::of((any::<u8>(), ports())).prop_map(|of| match of {
            Some((number, ports)) if Protocol(number).has_ports() => (Some(Protocol(number)), ports),
            Some((number, _)) => (Some(Protocol(number)), None),
            None => (None, None),
        })
    };
    let end = || {
        (super::prefix(), protocol()).prop_map(|(net, (protocol, ports))| SelectorEnd {
            net,
            protocol,
            ports,
        })
    };
    let selectors = (vec(end(), 0..3), vec(end(), 0..3), vec(super::prefix(), 0..3));
    let mode = select(&[Mode::Tunnel, Mode::Transport][..]);
    let tunnel = (address(), option::of(address()), mode, way, header, selectors, vec(sa, 0..4));
    (super::interface(), tunnel).prop_map(
        |(interface, (local, remote, mode, way, header, selectors, sas))| {
            let (udp, keepalive, follow, mut fragment) = way;
            let (local_net, remote_net, mut direct) = selectors;
            let (window, mut df, mut dscp, mut ecn, mut tfc, legacy, (keys, reqid, if_id)) = header;
            if mode == Mode::Transport {
                // There are no keys for them.
                direct.clear();
                (fragment, df, dscp) = (FragmentWhen::Before, DfBit::Copy, TunnelDscp::Copy);
                (ecn, tfc) = (EcnUse::Copy, Tfc::Off);
            }
            let Interface { name, zone, addresses, mtu, source_check, mss, .. } = interface;
            Interface {
                addresses,
                link: LinkKind::Ip,
                mtu,
                source_check,
                mss,
                esp: Some(Box::new(Tunnel {
                    local,
                    remote,
                    mode,
                    local_net,
                    remote_net,
                    direct,
                    udp,
                    keepalive: keepalive.filter(|_| udp == Udp::Yes),
                    follow,
                    fragment,
                    window,
                    df,
                    dscp,
                    ecn,
                    tfc,
                    legacy,
                    keys,
                    reqid,
                    if_id,
                    sas,
                })),
                ..Interface::new(&name, &zone)
            }
        },
    )
}
