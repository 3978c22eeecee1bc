//! Random policies, for property tests: each can be written as a policy file, but need not be valid.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use wire::esp::Secret;
use wire::link::MOST_RATE;
use wire::siit::Prefix;
use wire::vlan::DropEligible;
use wire::{BitRate, Bytes, Dscp, Nanos, Pcp};

use super::{
    Action, AddressItem, AddressRange, Addresses, Atm, Authentication, Balance, Channel, Checksum, Class,
    Clat, Collector, ColourAction, ColourMode, Conditions, Connection, ConnectionEnd, CrossConnect, Driver,
    DynamicSet, Encapsulation, FamilyMatch, FastPath, FragmentLimits, Gateway, Hairpin, IcmpMatch, Interface,
    Ipfix, IpfixRecord, Limits, LinkKind, Log, LogEvent, LogOutput, Mac, MacRange, Macs, Meter, MeterKind,
    MeterRate, MeterScope, MetricsAccess, Mode, MssClamp, MulticastExit, MulticastRoute, Nat, Nat64,
    NatAction, Neighbour, NextHop, NoInstance, Offload, OnExit, OnFailure, Overhead, PageAccess, PcpMap,
    Pickup, Policy, PortChoice, PortDriver, PortMapping, PortRange, PortUse, Ppp, PppRole, PriorityTag,
    Protocol, Rate, RejectWith, Route, RouteTarget, Scope, Search, SearchAlgorithm, Server, ServerState, Set,
    SetSource, SourceCheck, Sticky, Sync, SyncOwner, SyncPeer, SyslogAddress, TcpFlagsMatch, TcpWindow,
    Timeouts, Upnp, Vc, WhenFull, Xfrm, ZoneDefault,
};

mod check;
mod queue;
mod rule;
mod tunnel;
mod wan;

pub(crate) use rule::rule;
use wan::wans;

/// Any policy.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let defaults = vec((name(), name(), action()), 0..4).prop_map(|defaults| {
        let mut defaults: Vec<ZoneDefault> =
            defaults.into_iter().map(|(from, to, action)| ZoneDefault { from, to, action }).collect();
        // TOML has no key twice.
        defaults.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
        defaults.dedup_by(|a, b| (&a.from, &a.to) == (&b.from, &b.to));
        defaults
    });
    let shapes = vec(queue::shape(), 0..3).prop_map(|all| unique(all, |shape| &shape.interface));
    let things = (
        select(&[Mode::Stateful, Mode::Stateless][..]),
        vec(prop_oneof![4 => interface(), 1 => tunnel::interface()], 0..4)
            .prop_map(|all| unique(all, |interface| &interface.name)),
        (
            vec(set(), 0..3).prop_map(|all| unique(all, |set| &set.name)),
            vec(dynamic_set(), 0..3).prop_map(|all| unique(all, |set| &set.name)),
        ),
        (
            (vec(route(), 0..4), vec(multicast_route(), 0..3)),
            wans(),
            select(&[Sticky::Connection, Sticky::Source][..]),
        ),
        (vec(neighbour(), 0..3), vec(cross_connect(), 0..3)),
        defaults,
        vec(rule(), 0..5),
        vec(nat(), 0..4),
        (vec(class(), 0..4), vec(meter(), 0..4), vec(queue::queue(), 0..4), shapes),
    );
    (things, search(), limits(), timeouts(), gateway()).prop_map(
        |(things, search, limits, timeouts, gateway)| {
            let (
                mode,
                interfaces,
                (sets, dynamic_sets),
                ((routes, multicast_routes), (wans, policy_routes), wan_sticky),
                (neighbours, cross_connects),
                defaults,
                rules,
                nats,
                traffic,
            ) = things;
            let (classes, meters, queues, shapes) = traffic;
            Policy {
                mode,
                interfaces,
                sets,
                dynamic_sets,
                routes,
                wans,
                wan_sticky,
                policy_routes,
                multicast_routes,
                neighbours,
                cross_connects,
                defaults,
                rules,
                classes,
                meters,
                queues,
                shapes,
                nats,
                listeners: Vec::new(),
                search,
                limits,
                timeouts,
                gateway,
            }
        },
    )
}

fn search() -> impl Strategy<Value = Search> {
    let memory = option::of((1..1u64 << 20).prop_map(|mebibytes| Bytes(mebibytes << 20)));
    (select(&SearchAlgorithm::ALL), memory).prop_map(|(algorithm, memory)| Search { algorithm, memory })
}

/// Any settings of the daemon.
pub(crate) fn gateway() -> impl Strategy<Value = Gateway> {
    let driver = || select(&[Driver::Auto, Driver::Xdp, Driver::Packet, Driver::Tap][..]);
    let own = (name(), driver()).prop_map(|(interface, driver)| PortDriver { interface, driver });
    let drivers = vec(own, 0..3).prop_map(|all| unique(all, |own| &own.interface));
    let offload = select(&[Offload::Whole, Offload::Segment, Offload::Refuse][..]);
    let fast_path = select(&[FastPath::Auto, FastPath::Tc, FastPath::Xdp, FastPath::Off][..]);
    let metrics = option::of((any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from));
    let path = || option::of(name().prop_map(PathBuf::from));
    let access = (path(), path(), path()).prop_map(|(certificate, key, token)| MetricsAccess {
        certificate,
        key,
        token,
    });
    let page = (
        option::of((any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)),
        (path(), path(), path(), vec(name(), 0..3), vec(name(), 0..3)).prop_map(
            |(tokens, certificate, key, names, origins)| PageAccess {
                tokens,
                certificate,
                key,
                names,
                origins,
            },
        ),
    );
    let on_exit = select(&[OnExit::Closed, OnExit::Open][..]);
    let socket = name().prop_filter("a word of its own", |name| name != "linux");
    let xfrm = prop_oneof![Just(Xfrm::Linux), socket.prop_map(PathBuf::from).prop_map(Xfrm::Socket)];
    let carried = (offload, fast_path);
    let log = (log(), (ipfix(), sync()), option::of(any::<u16>()), page);
    (option::of(any::<u16>()), driver(), drivers, carried, metrics, access, log, option::of(xfrm), on_exit)
        .prop_map(|(workers, driver, drivers, carried, metrics, metrics_access, log, xfrm, on_exit)| {
            let (offload, fast_path) = carried;
            let (log, (ipfix, sync), drop_record, (page, page_access)) = log;
            Gateway {
                workers,
                driver,
                drivers,
                offload,
                fast_path,
                metrics,
                metrics_access,
                page,
                page_access,
                log,
                ipfix,
                sync,
                drop_record,
                xfrm,
                on_exit,
            }
        })
}

/// Any log.
fn log() -> impl Strategy<Value = Log> {
    let path = || name().prop_map(|name| PathBuf::from(format!("/{name}")));
    let at = || (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from);
    let output = prop_oneof![
        Just(LogOutput::Stderr),
        option::of(path()).prop_map(LogOutput::Journald),
        option::of(path()).prop_map(SyslogAddress::Unix).prop_map(LogOutput::Syslog),
        at().prop_map(SyslogAddress::Udp).prop_map(LogOutput::Syslog),
        at().prop_map(SyslogAddress::Tcp).prop_map(LogOutput::Syslog),
        path().prop_map(LogOutput::File),
    ];
    let event = select(&[LogEvent::Rule, LogEvent::Connection, LogEvent::Nat, LogEvent::NatBlock][..]);
    let rate = || {
        (1..u32::MAX, 1..u64::MAX, 1..u32::MAX, scope()).prop_map(|(count, per, burst, scope)| Rate {
            count,
            per: Nanos(per),
            burst,
            scope,
        })
    };
    (vec(output, 0..3), option::of(vec(event, 0..3)), option::of(rate()), option::of(rate()))
        .prop_map(|(outputs, events, rate, total)| Log { outputs, events, rate, total })
}

/// Any export.
fn ipfix() -> impl Strategy<Value = Ipfix> {
    let at = (any::<IpAddr>(), 1..=u16::MAX)
        .prop_filter("a host's", |(ip, _)| !ip.is_unspecified() && !ip.is_multicast())
        .prop_map(SocketAddr::from);
    let collector = (at, any::<bool>())
        .prop_map(|(at, is_udp)| if is_udp { Collector::Udp(at) } else { Collector::Tcp(at) });
    let record = select(&[IpfixRecord::Flow, IpfixRecord::Nat, IpfixRecord::NatBlock][..]);
    let time = || option::of((1..u64::MAX).prop_map(Nanos));
    (option::of(collector), option::of(vec(record, 0..3)), time(), time(), option::of(any::<u32>())).prop_map(
        |(collector, records, active_timeout, template_refresh, domain)| Ipfix {
            collector,
            records,
            active_timeout,
            template_refresh,
            domain,
        },
    )
}

/// Any synchronisation.
fn sync() -> impl Strategy<Value = Sync> {
    let at = (any::<IpAddr>(), 1..=u16::MAX)
        .prop_filter("a host's", |(ip, _)| !ip.is_unspecified() && !ip.is_multicast())
        .prop_map(SocketAddr::from);
    let peer = (at, any::<bool>())
        .prop_map(|(at, listens)| if listens { SyncPeer::Listen(at) } else { SyncPeer::Connect(at) });
    let path = || option::of(name().prop_map(PathBuf::from));
    let owner = select(&[SyncOwner::First, SyncOwner::Hash][..]);
    (option::of(peer), path(), path(), path(), owner).prop_map(|(peer, certificate, key, ca, owner)| Sync {
        peer,
        certificate,
        key,
        ca,
        owner,
    })
}

/// Any interface.
pub(crate) fn interface() -> impl Strategy<Value = Interface> {
    let addresses = vec((address(), any::<u8>()).prop_map(|(address, length)| net(address, length)), 0..3);
    let mss = prop_oneof![Just(MssClamp::Off), Just(MssClamp::Mtu), any::<u16>().prop_map(MssClamp::Bytes)];
    let check = select(&[SourceCheck::Strict, SourceCheck::Loose, SourceCheck::Off][..]);
    let moved = vec(any::<IpAddr>(), 0..3);
    let first = (name(), (name(), vrf()), (addresses, moved), any::<u16>(), option::of(mac()));
    let link = select(&[LinkKind::Ethernet, LinkKind::Ip][..]);
    let second = (option::of(name()), vec(any::<u16>(), 0..3), check, mss, link);
    let rate = (option::of((1..=MOST_RATE.0).prop_map(BitRate)), option::of(any::<u16>()));
    let tag = select(&[PriorityTag::No, PriorityTag::Yes][..]);
    (first, second, rate, (pcp_map(), eligible(), tag), option::of(atm()), option::of(ppp())).prop_map(
        |(first, second, (rate, overhead), (pcp, dei, priority_tag), atm, ppp)| {
            let (name, (zone, vrf), (addresses, virtual_addresses), mtu, mac) = first;
            let (parent, vlans, source_check, mss, link) = second;
            let plain = Interface {
                name,
                zone,
                vrf,
                addresses,
                virtual_addresses,
                link,
                mtu,
                rate,
                device_rate: None,
                multicast_miss: super::MulticastMiss::Drop,
                overhead,
                mac,
                parent,
                vlans,
                pcp,
                dei,
                priority_tag,
                source_check,
                mss,
                esp: None,
                atm,
                ppp: None,
            };
            match ppp {
                None => plain,
                // A session has no Ethernet header.
                Some(ppp) => Interface {
                    link: LinkKind::Ip,
                    mac: None,
                    vlans: Vec::new(),
                    pcp: PcpMap::None,
                    dei: DropEligible::No,
                    priority_tag: PriorityTag::No,
                    ppp: Some(Box::new(ppp)),
                    ..plain
                },
            }
        },
    )
}

fn atm() -> impl Strategy<Value = Atm> {
    let encapsulation = select(&[Encapsulation::Llc, Encapsulation::VcMux][..]);
    let end = || option::of((address(), any::<u16>()).prop_map(SocketAddr::from));
    (any::<u8>(), any::<u16>(), encapsulation, option::of(name()), end(), end()).prop_map(
        |(vpi, vci, encapsulation, line, local, remote)| Atm {
            channel: Channel { vc: Vc { vpi, vci }, encapsulation },
            line,
            local,
            remote,
        },
    )
}

fn ppp() -> impl Strategy<Value = Ppp> {
    let role = select(&[PppRole::Client, PppRole::Server][..]);
    let authentication = select(&[Authentication::None, Authentication::Pap, Authentication::Chap][..]);
    let password = "[ -~]{1,12}".prop_map(|text| Secret::new(text.into_bytes().into()));
    let file = option::of("[a-z/]{1,12}".prop_map(PathBuf::from));
    let peer = option::of(any::<u32>().prop_map(Ipv4Addr::from));
    (role, (name(), name()), authentication, name(), password, file, peer).prop_map(
        |(role, (service, ac_name), authentication, user, password, password_file, peer)| {
            let plain = Ppp { role, service, ac_name, authentication, peer, ..Ppp::new() };
            match (authentication, &password_file) {
                (Authentication::None, _) => plain,
                (_, None) => Ppp { user, password, ..plain },
                (_, Some(_)) => Ppp { user, password_file, ..plain },
            }
        },
    )
}

fn cross_connect() -> impl Strategy<Value = CrossConnect> {
    let connection = prop_oneof![
        (any::<u8>(), any::<u16>()).prop_map(|(vpi, vci)| Connection::Channel(Vc { vpi, vci })),
        any::<u8>().prop_map(Connection::Path),
    ];
    // A name of an interface has no spaces.
    let line = "[a-z0-9._:/+-]{1,15}";
    let end = (line, connection).prop_map(|(line, connection)| ConnectionEnd { line, connection });
    (name(), vec(end, 1..4)).prop_map(|(name, ends)| CrossConnect { name, ends })
}

/// Any conditions.
fn conditions() -> impl Strategy<Value = Conditions> {
    let flags =
        (1..=u8::MAX, any::<u8>()).prop_map(|(mask, value)| TcpFlagsMatch { mask, value: value & mask });
    let icmp = (any::<u8>(), option::of(any::<u8>())).prop_map(|(kind, code)| IcmpMatch { kind, code });
    let who = (names(), names(), names(), names(), macs(), addresses(), addresses());
    let what = (
        select(&[FamilyMatch::Both, FamilyMatch::V4, FamilyMatch::V6][..]),
        protocols(),
        vec(ports(), 0..3),
        vec(ports(), 0..3),
        vec(icmp, 0..3),
        option::of(flags),
        vec(dscp(), 0..3),
    );
    (who, what).prop_map(|(who, what)| {
        let (from, to, in_interfaces, out_interfaces, source_macs, source, destination) = who;
        let (family, protocols, sports, dports, icmp, tcp_flags, dscp) = what;
        Conditions {
            from,
            to,
            in_interfaces,
            out_interfaces,
            family,
            source_macs,
            source,
            destination,
            protocols,
            sports,
            dports,
            icmp,
            tcp_flags,
            dscp,
        }
    })
}

fn dscp() -> impl Strategy<Value = Dscp> {
    (0..64_u8).prop_filter_map("a code point has six bits", Dscp::new)
}

fn pcp() -> impl Strategy<Value = Pcp> {
    (0..8_u8).prop_filter_map("a priority has three bits", Pcp::new)
}

fn eligible() -> impl Strategy<Value = DropEligible> {
    select(&[DropEligible::Yes, DropEligible::No][..])
}

fn pcp_map() -> impl Strategy<Value = PcpMap> {
    let listed = btree_map(dscp(), pcp(), 1..5).prop_map(PcpMap::Listed);
    prop_oneof![Just(PcpMap::None), Just(PcpMap::Selector), listed]
}

/// Any traffic class.
fn class() -> impl Strategy<Value = Class> {
    let priority = (vec(pcp(), 0..3), option::of(eligible()));
    let marks = (option::of(dscp()), option::of(pcp()));
    (name(), conditions(), priority, option::of(name()), marks).prop_map(
        |(name, conditions, (pcp, dei), meter, (mark, mark_pcp))| Class {
            name,
            conditions,
            pcp,
            dei,
            meter,
            mark,
            mark_pcp,
        },
    )
}

/// Any meter.
fn meter() -> impl Strategy<Value = Meter> {
    let rate = || {
        prop_oneof![
            (1..=MOST_RATE.0).prop_map(|rate| MeterRate::Bits(BitRate(rate))),
            (1..20_000_000_000_u64).prop_map(MeterRate::Packets),
        ]
    };
    let burst = || 0..i64::MAX as u64;
    let action = || {
        let words = [ColourAction::Pass, ColourAction::Drop, ColourAction::Ecn, ColourAction::EcnOrDrop];
        prop_oneof![select(words.to_vec()), dscp().prop_map(ColourAction::Mark)]
    };
    let rates =
        (rate(), burst(), option::of(rate()), option::of(burst()), option::of(rate()), option::of(burst()));
    let words = (
        select(&[MeterKind::TokenBucket, MeterKind::SingleRate, MeterKind::TwoRate, MeterKind::Rfc4115][..]),
        select(&[ColourMode::Blind, ColourMode::Aware, ColourMode::DropEligible][..]),
        select(&[NoInstance::Red, NoInstance::Share][..]),
    );
    let actions = (action(), action(), action());
    (name(), rates, words, overhead(), meter_scope(), any::<u32>(), actions).prop_map(
        |(name, rates, (kind, colours, when_full), overhead, per, instances, (green, yellow, red))| {
            let (rate, burst, peak_rate, peak_burst, excess_rate, excess_burst) = rates;
            Meter {
                name,
                kind,
                rate,
                burst,
                peak_rate,
                peak_burst,
                excess_rate,
                excess_burst,
                colours,
                overhead,
                per,
                instances,
                when_full,
                actions: [green, yellow, red],
            }
        },
    )
}

fn overhead() -> impl Strategy<Value = Overhead> {
    let bytes = || (0..=Overhead::MOST.0).prop_map(Bytes);
    prop_oneof![
        select(&[Overhead::IP, Overhead::LAYER_2, Overhead::ETHERNET][..]),
        bytes().prop_map(Overhead::Fixed),
        bytes().prop_map(Overhead::Atm),
        bytes().prop_map(Overhead::Ptm),
    ]
}

fn meter_scope() -> impl Strategy<Value = MeterScope> {
    let lengths =
        || prop_oneof![Just((32, 128)), (0..=32_u8, 0..=128_u8), (0..=32_u8).prop_map(|v4| (v4, 128))];
    prop_oneof![
        Just(MeterScope::All),
        Just(MeterScope::Flow),
        lengths().prop_map(|(v4, v6)| MeterScope::Source(v4, v6)),
        lengths().prop_map(|(v4, v6)| MeterScope::Destination(v4, v6)),
    ]
}

/// Any translation.
pub(crate) fn nat() -> impl Strategy<Value = Nat> {
    let hairpin = || select(&[Hairpin::On, Hairpin::Off][..]);
    let target = (address(), vrf());
    let forward = (option::of(address()), vec(ports(), 0..3), target, option::of(any::<u16>()), hairpin());
    let forward = forward.prop_map(|(outside, ports, (target, vrf), target_port, hairpin)| {
        NatAction::Forward { outside, ports, target, vrf, target_port, hairpin }
    });
    let (one_to_one, npt) = ((prefix(), prefix(), hairpin()), (prefix(), prefix(), hairpin()));
    let kind = prop_oneof![
        port_use().prop_map(|ports| NatAction::Masquerade { ports }),
        (vec(range(), 1..3), port_use()).prop_map(|(pool, ports)| NatAction::Source { pool, ports }),
        Just(NatAction::Exempt),
        forward,
        balance(),
        (vec(ports(), 0..3), option::of(1..=u16::MAX))
            .prop_map(|(ports, to_port)| NatAction::Redirect { ports, to_port }),
        nat64(),
        clat(),
        one_to_one.prop_map(|(outside, inside, hairpin)| NatAction::OneToOne { outside, inside, hairpin }),
        npt.prop_map(|(outside, inside, hairpin)| NatAction::Npt { outside, inside, hairpin }),
    ];
    let who = (name(), names(), names(), addresses(), addresses(), protocols());
    let ends = (vec(ports(), 0..3), vec(ports(), 0..3));
    (who, ends, kind).prop_map(|((name, from, to, source, destination, protocols), ends, action)| {
        let (to, (sports, dports)) = if action.is_of_source() { (to, ends) } else { Default::default() };
        let is_within_prefix = matches!(action, NatAction::Nat64(_));
        let destination = if is_within_prefix { Addresses::default() } else { destination };
        Nat { name, from, to, source, destination, protocols, sports, dports, action }
    })
}

fn nat64() -> impl Strategy<Value = NatAction> {
    (prefix_of_addresses(), vec(range(), 0..3), port_use()).prop_map(|(prefix, pool, ports)| {
        NatAction::Nat64(Nat64 { prefix, pool, ports: PortUse { mapping: None, ..ports } })
    })
}

fn clat() -> impl Strategy<Value = NatAction> {
    (prefix_of_addresses(), vec(range(), 0..3), port_use()).prop_map(|(prefix, pool, ports)| {
        let ports = PortUse { mapping: None, block: None, blocks_per_host: None, ..ports };
        NatAction::Clat(Clat { prefix, pool, ports })
    })
}

/// A prefix that IPv4 addresses are embedded in.
fn prefix_of_addresses() -> impl Strategy<Value = Prefix> {
    let lengths = [32_u8, 40, 48, 56, 64, 96];
    (any::<u128>(), select(lengths.to_vec())).prop_map(|(bits, length)| {
        let net = Ipv6Net::new_assert(Ipv6Addr::from(bits & !(0xff << 56)), length);
        Prefix::new(net.network(), length).expect("bits 64 to 71 and those past the prefix are zero")
    })
}

fn balance() -> impl Strategy<Value = NatAction> {
    let server = (address(), option::of(any::<u16>()), 1..=u8::MAX, any::<bool>());
    let server = server.prop_map(|(address, port, weight, up)| Server {
        address,
        port,
        weight,
        state: if up { ServerState::Up } else { ServerState::Down },
    });
    let words = any::<[bool; 3]>();
    let check = option::of(check::server_check());
    (option::of(address()), vec(ports(), 0..3), vec(server, 1..4), words, check).prop_map(
        |(outside, ports, servers, words, check)| {
            NatAction::Balance(Balance {
                outside,
                ports,
                servers,
                sticky: if words[0] { Sticky::Source } else { Sticky::Connection },
                on_failure: if words[1] { OnFailure::Keep } else { OnFailure::Kill },
                hairpin: if words[2] { Hairpin::On } else { Hairpin::Off },
                check,
            })
        },
    )
}

fn port_use() -> impl Strategy<Value = PortUse> {
    let numbers = (option::of(any::<u32>()), option::of(any::<u16>()), option::of(any::<u16>()));
    let choice = select(&[PortChoice::Preserve, PortChoice::Random][..]);
    (vec(ports(), 1..3), numbers, choice, option::of(port_mapping())).prop_map(
        |(ranges, (quota, block, blocks_per_host), choice, mapping)| PortUse {
            ranges,
            quota,
            block,
            blocks_per_host,
            choice,
            mapping,
        },
    )
}

fn port_mapping() -> impl Strategy<Value = PortMapping> {
    let lifetimes = (any::<u64>().prop_map(Nanos), any::<u64>().prop_map(Nanos));
    let upnp = select(&[Upnp::On, Upnp::Off][..]);
    (vec(ports(), 1..3), lifetimes, any::<u32>(), any::<u32>(), upnp).prop_map(
        |(ports, (lifetime, upnp_lifetime), per_host, size, upnp)| PortMapping {
            ports,
            lifetime,
            per_host,
            size,
            upnp,
            upnp_lifetime,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    let given =
        (any::<u32>(), any::<bool>(), option::of(any::<u32>()), any::<[u32; 5]>(), any::<[bool; 3]>());
    let given = given.prop_map(|(flows, evict, flows_per_source, numbers, words)| Limits {
        flows,
        when_full: if evict { WhenFull::EvictIdle } else { WhenFull::Refuse },
        flows_per_source,
        fragments: FragmentLimits {
            datagrams: numbers[0],
            held: numbers[1],
            datagram: Bytes(numbers[2].into()),
        },
        errors_per_second: numbers[3],
        errors_in_all: numbers[4],
        queue: numbers[0] ^ numbers[3],
        sas: numbers[1] ^ numbers[4],
        tcp_window: if words[0] { TcpWindow::Off } else { TcpWindow::Strict },
        checksum: if words[2] { Checksum::Ignore } else { Checksum::Verify },
        pickup: if words[1] { Pickup::Accept } else { Pickup::Refuse },
    });
    let fragments = any::<u32>().prop_map(|held| Limits {
        fragments: FragmentLimits { held, ..FragmentLimits::default() },
        ..Limits::default()
    });
    prop_oneof![Just(Limits::default()), fragments, given]
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    let given = any::<[u64; 9]>().prop_map(|nanos| Timeouts {
        tcp_half_open: Nanos(nanos[0]),
        tcp_established: Nanos(nanos[1] % 1_000_000 * 1_000_000_000),
        tcp_closing: Nanos(nanos[2] % 1_000),
        tcp_reset: Nanos(nanos[3]),
        udp: Nanos(nanos[4] % 10_000 * 1_000_000),
        udp_unanswered: Nanos(nanos[8]),
        icmp: Nanos(nanos[5]),
        other: Nanos(nanos[6]),
        fragment: Nanos(nanos[7] % 2),
    });
    prop_oneof![Just(Timeouts::default()), given]
}

/// The VRF of an item, if it names one.
fn vrf() -> impl Strategy<Value = Option<Arc<str>>> {
    option::of(name().prop_map(Arc::from))
}

fn route() -> impl Strategy<Value = Route> {
    let hop = (option::of(address()), option::of(name()), prop_oneof![Just(1), 1..=u8::MAX]);
    let hop = hop.prop_filter_map("a next hop has one of the two", |(via, interface, weight)| {
        (via.is_some() || interface.is_some()).then_some(NextHop { via, interface, weight })
    });
    let target = prop_oneof![
        vec(hop, 1..4).prop_map(RouteTarget::Via),
        Just(RouteTarget::Blackhole),
        Just(RouteTarget::Unreachable),
    ];
    (prefix(), vrf(), vrf(), target).prop_map(|(destination, vrf, next_vrf, target)| Route {
        destination,
        vrf,
        next_vrf,
        target,
    })
}

fn multicast_route() -> impl Strategy<Value = MulticastRoute> {
    let exit = (name(), prop_oneof![Just(1), 1..=u8::MAX])
        .prop_map(|(interface, threshold)| MulticastExit { interface, threshold });
    (prefix(), option::of(address()), name(), vec(exit, 0..4))
        .prop_map(|(group, source, from, to)| MulticastRoute { group, source, from, to })
}

fn neighbour() -> impl Strategy<Value = Neighbour> {
    (name(), address(), mac()).prop_map(|(interface, address, mac)| Neighbour { interface, address, mac })
}

fn set() -> impl Strategy<Value = Set> {
    (name(), vec(range(), 0..6)).prop_map(|(name, items)| Set { name, items })
}

fn dynamic_set() -> impl Strategy<Value = DynamicSet> {
    let source = prop_oneof![
        Just(SetSource::Rules),
        name().prop_map(SetSource::File),
        (name(), any::<u64>()).prop_map(|(url, refresh)| SetSource::Url { url, refresh: Nanos(refresh) }),
    ];
    (name(), any::<u32>(), option::of(any::<u64>().prop_map(Nanos)), source)
        .prop_map(|(name, size, timeout, source)| DynamicSet { name, size, timeout, source })
}

fn addresses() -> impl Strategy<Value = Addresses> {
    let item = prop_oneof![range().prop_map(AddressItem::Range), name().prop_map(AddressItem::Set)];
    (vec(item, 0..4), any::<bool>())
        .prop_map(|(items, except)| Addresses { except: except && !items.is_empty(), items })
}

fn macs() -> impl Strategy<Value = Macs> {
    let item = (mac(), mac()).prop_map(|(a, b)| MacRange { first: a.min(b), last: a.max(b) });
    let item = prop_oneof![mac().prop_map(MacRange::single), item];
    (vec(item, 0..4), any::<bool>())
        .prop_map(|(items, except)| Macs { except: except && !items.is_empty(), items })
}

fn action() -> impl Strategy<Value = Action> {
    select(
        &[
            Action::Accept,
            Action::Drop,
            Action::Reject(RejectWith::Fitting),
            Action::Reject(RejectWith::TcpReset),
            Action::Reject(RejectWith::PortUnreachable),
            Action::Reject(RejectWith::HostUnreachable),
            Action::Reject(RejectWith::AdminProhibited),
        ][..],
    )
}

fn scope() -> impl Strategy<Value = Scope> {
    select(&[Scope::Rule, Scope::Source][..])
}

fn protocols() -> impl Strategy<Value = Vec<Protocol>> {
    let named = select(&[Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol::ICMPV6][..]);
    vec(prop_oneof![named, any::<u8>().prop_map(Protocol)], 0..3)
}

fn ports() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        any::<u16>().prop_map(PortRange::single),
        any::<[u16; 2]>().prop_map(|[a, b]| PortRange { first: a.min(b), last: a.max(b) }),
    ]
}

fn range() -> impl Strategy<Value = AddressRange> {
    let pair = |a: IpAddr, b: IpAddr| AddressRange { first: a.min(b), last: a.max(b) };
    prop_oneof![
        prefix().prop_map(AddressRange::from),
        any::<[u32; 2]>().prop_map(move |[a, b]| pair(Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into())),
        any::<[u128; 2]>().prop_map(move |[a, b]| pair(Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into())),
    ]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (address(), any::<u8>()).prop_map(|(address, length)| net(address, length).trunc())
}

fn net(address: IpAddr, length: u8) -> IpNet {
    match address {
        IpAddr::V4(address) => IpNet::V4(Ipv4Net::new_assert(address, length % 33)),
        IpAddr::V6(address) => IpNet::V6(Ipv6Net::new_assert(address, length % 129)),
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
        // Those that print otherwise.
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from(bits).to_ipv6_mapped())),
        Just(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    ]
}

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn names() -> impl Strategy<Value = Vec<String>> {
    vec(name(), 0..3)
}

/// Names with and without characters that TOML wants quotes for.
fn name() -> impl Strategy<Value = String> {
    let word = vec(select(&b"abcxyz019-_.:/"[..]), 1..8)
        .prop_map(|bytes| bytes.into_iter().map(char::from).collect::<String>());
    prop_oneof![4 => word, 1 => select(&["lan", "wan", "self", "any"][..]).prop_map(str::to_owned)]
}

fn unique<T>(mut all: Vec<T>, name: impl Fn(&T) -> &String) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    all.retain(|thing| seen.insert(name(thing).clone()));
    all
}
