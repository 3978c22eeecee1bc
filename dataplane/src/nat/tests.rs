use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use policy::model::PortChoice;
use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use tally::{Count, NoTally, Region};

use super::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(first: &str, last: &str, ports: [u16; 2]) -> PoolConfig {
    PoolConfig {
        addresses: vec![AddressRange { first: ip(first), last: ip(last) }],
        ports: vec![PortRange { first: ports[0], last: ports[1] }],
        choice: PortChoice::Random,
        quota: None,
        block: None,
        on_demand: None,
        hosts: Hosts::OfSameFamily,
        reserved: Vec::new(),
    }
}

fn table(mappings: u32, pools: &[PoolConfig]) -> Mappings {
    Mappings::new(Capacity { mappings, hosts: mappings }, pools, SEED, Share::WHOLE).unwrap()
}

fn inside(host: u32, port: u16, protocol: u8) -> Endpoint {
    Endpoint::v4(0x0a00_0000 + host, port, protocol)
}

#[test]
fn hosts_with_one_address_in_two_vrfs_are_two() {
    let mut table = table(8, &[pool("192.0.2.1", "192.0.2.1", [1024, 65535])]);
    let [red, blue] = [1, 2].map(|vrf| Endpoint { vrf: VrfNumber(vrf), ..inside(1, 5000, TCP) });
    let mut map = |host| table.map(PoolId(0), host, &mut NoTally).unwrap();
    let [of_red, of_blue] = [map(red), map(blue)];
    assert_ne!(of_red.outside.port, of_blue.outside.port);
    assert_eq!((map(red), map(blue)), (of_red, of_blue), "each keeps its own");
    for (mapped, host) in [(of_red, red), (of_blue, blue)] {
        assert_eq!(table.inside_of(&mapped.outside, &mut NoTally), Some((mapped.id, host)));
        assert_eq!(mapped.outside.vrf, VrfNumber::DEFAULT);
        table.release(mapped.id, &mut NoTally);
        table.release(mapped.id, &mut NoTally);
    }
    assert!(table.is_blank());
}

#[test]
fn ipv6_hosts_are_mapped_to_ipv4_endpoints_where_the_pool_is_for_them() {
    let nat64 = PoolConfig { hosts: Hosts::V6ToV4, ..pool("192.0.2.1", "192.0.2.2", [1024, 65535]) };
    let pools = [nat64, pool("192.0.2.1", "192.0.2.2", [1024, 65535])];
    let mut table = table(10, &pools);
    let host = Endpoint::v6(0x2001_0db8 << 96 | 7, 5000, UDP);
    let mapped = table.map(PoolId(0), host, &mut NoTally).unwrap();
    assert_eq!(mapped.outside.family, Family::V4);
    assert_eq!(table.inside_of(&mapped.outside, &mut NoTally), Some((mapped.id, host)));
    // Both pools hand out ports of one address, each once.
    let other = table.map(PoolId(1), inside(1, mapped.outside.port, UDP), &mut NoTally).unwrap();
    assert_ne!(other.outside, mapped.outside);
    assert_eq!(table.map(PoolId(0), inside(2, 5000, UDP), &mut NoTally), Err(Refusal::NoAddress));
    assert_eq!(table.map(PoolId(1), host, &mut NoTally), Err(Refusal::NoAddress));
    // A host keeps to its address, and ends as others do.
    let second = table.map(PoolId(0), Endpoint { port: 5001, ..host }, &mut NoTally).unwrap();
    assert_eq!(second.outside.address, mapped.outside.address);
    for id in [mapped.id, second.id, other.id] {
        table.release(id, &mut NoTally);
    }
    assert!(table.is_blank());
    // With the same ends it can be made again, by the pool for it alone.
    assert!(table.restore(PoolId(0), host, mapped.outside).is_ok());
    assert_eq!(table.restore(PoolId(1), host, second.outside), Err(Restore::Malformed));
}

#[test]
fn a_mapping_is_the_same_whatever_the_destination_and_ends_with_its_last_reference() {
    let mut table = table(10, &[pool("192.0.2.1", "192.0.2.1", [1024, 65535])]);
    let first = table.map(PoolId(0), inside(1, 5000, UDP), &mut NoTally).unwrap();
    let second = table.map(PoolId(0), inside(1, 5000, UDP), &mut NoTally).unwrap();
    assert_eq!(first, second);
    assert_eq!(first.outside.ip(), ip("192.0.2.1"));
    assert!(first.outside.port >= 1024);
    assert_eq!(table.inside_of(&first.outside, &mut NoTally), Some((first.id, inside(1, 5000, UDP))));
    assert_eq!(table.retain(first.id, &mut NoTally), Some(first));
    assert_eq!(table.get(first.id).unwrap().references, 3);
    for left in [1, 1, 0] {
        table.release(first.id, &mut NoTally);
        assert_eq!(table.len(), left);
    }
    assert_eq!(table.inside_of(&first.outside, &mut NoTally), None);
    assert_eq!(table.retain(first.id, &mut NoTally), None);
    assert_eq!(table.get(first.id), None);
    let counters = table.counters(PoolId(0)).unwrap();
    assert_eq!((counters.created, counters.ended, counters.live()), (1, 1, 0));
    assert!(table.is_blank());
}

#[test]
fn each_port_is_handed_out_once_and_the_last_one_too() {
    // The range begins and ends inside of words, and spans several words of the second level.
    let range = [1000, 13_030];
    let count = u32::from(range[1] - range[0]) + 1;
    let mut table = table(count + 10, &[pool("192.0.2.1", "192.0.2.1", range)]);
    let mut seen = HashSet::new();
    let mut ids = Vec::new();
    for number in 0..count {
        let mapped = table.map(PoolId(0), inside(number, 7, TCP), &mut NoTally).unwrap();
        assert!((range[0]..=range[1]).contains(&mapped.outside.port));
        assert!(seen.insert(mapped.outside.port));
        ids.push(mapped.id);
    }
    assert_eq!(table.map(PoolId(0), inside(0, 8, TCP), &mut NoTally), Err(Refusal::PortsExhausted));
    assert_eq!(table.map(PoolId(0), inside(count, 8, TCP), &mut NoTally), Err(Refusal::PortsExhausted));
    assert_eq!(table.counters(PoolId(0)).unwrap().ports_exhausted, 2);
    // The other protocols have ports of their own, and what exists is untouched.
    assert!(table.map(PoolId(0), inside(0, 8, UDP), &mut NoTally).is_ok());
    assert!(table.map(PoolId(0), inside(0, 8, ICMP), &mut NoTally).is_ok());
    assert!(table.map(PoolId(0), inside(3, 7, TCP), &mut NoTally).is_ok());
    // One that comes back is the one that is given.
    let port = table.get(ids[77]).unwrap().outside.port;
    table.release(ids[77], &mut NoTally);
    assert_eq!(table.map(PoolId(0), inside(9, 9, TCP), &mut NoTally).unwrap().outside.port, port);
}

#[test]
fn a_refusal_of_an_exhausted_pool_is_cheap() {
    let mut table = table(70_000, &[pool("192.0.2.1", "192.0.2.1", [1, 65535])]);
    for number in 0..65_535 {
        table.map(PoolId(0), inside(number, 7, TCP), &mut NoTally).unwrap();
    }
    assert!(table.map(PoolId(0), inside(70_000, 7, TCP), &mut NoTally).is_err());
    let mut count = Count::default();
    assert!(table.map(PoolId(0), inside(70_001, 7, TCP), &mut count).is_err());
    assert!(count.references(Region::NatTable).reads < 60, "{:?}", count.references(Region::NatTable));
}

#[test]
fn ports_are_spread_and_the_seed_decides_them() {
    let draw = |seed| {
        let pools = [pool("192.0.2.1", "192.0.2.1", [1024, 65535])];
        let mut table = Mappings::new(Capacity::of(2000), &pools, seed, Share::WHOLE).unwrap();
        (0..1000)
            .map(|port| table.map(PoolId(0), inside(1, port, UDP), &mut NoTally).unwrap().outside.port)
            .collect::<Vec<_>>()
    };
    let ports = draw(SEED);
    assert_eq!(ports, draw(SEED));
    assert_ne!(ports, draw([1, 2]));
    // A thousand of 64512 in eight parts: 125 each, with a standard deviation of 10.5.
    for part in 0..8u16 {
        let from = 1024 + part * 8064;
        let hits = ports.iter().filter(|port| (from..=from + 8063).contains(*port)).count();
        assert!((72..=178).contains(&hits), "{hits} ports from {from}");
    }
    // Neighbours in time are no neighbours in number.
    let near = ports.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 16).count();
    assert!(near < 10, "{near}");
}

#[test]
fn a_quota_holds_per_host_and_protocol() {
    let mut table =
        table(100, &[PoolConfig { quota: Some(3), ..pool("192.0.2.1", "192.0.2.1", [1024, 65535]) }]);
    let ids: Vec<_> =
        (0..3).map(|port| table.map(PoolId(0), inside(1, port, TCP), &mut NoTally).unwrap().id).collect();
    assert_eq!(table.map(PoolId(0), inside(1, 3, TCP), &mut NoTally), Err(Refusal::QuotaReached));
    assert_eq!(table.counters(PoolId(0)).unwrap().quota_reached, 1);
    // An endpoint that has its mapping, another protocol and another host are not concerned.
    assert!(table.map(PoolId(0), inside(1, 2, TCP), &mut NoTally).is_ok());
    assert!(table.map(PoolId(0), inside(1, 3, UDP), &mut NoTally).is_ok());
    assert!(table.map(PoolId(0), inside(2, 3, TCP), &mut NoTally).is_ok());
    table.release(ids[0], &mut NoTally);
    assert!(table.map(PoolId(0), inside(1, 3, TCP), &mut NoTally).is_ok());
}

#[test]
fn a_host_keeps_to_its_address_and_only_a_newcomer_takes_another() {
    let mut table = table(100, &[pool("192.0.2.1", "192.0.2.4", [10, 14])]);
    let first = table.map(PoolId(0), inside(1, 0, TCP), &mut NoTally).unwrap().outside.address;
    for port in 1..5 {
        assert_eq!(table.map(PoolId(0), inside(1, port, TCP), &mut NoTally).unwrap().outside.address, first);
    }
    assert_eq!(table.map(PoolId(0), inside(1, 9, TCP), &mut NoTally), Err(Refusal::PortsExhausted));
    let udp = table.map(PoolId(0), inside(1, 9, UDP), &mut NoTally).unwrap();
    assert_eq!(udp.outside.address, first);
    assert_eq!(table.map_address(PoolId(0), inside(1, 0, 47), &mut NoTally).unwrap().address, first);
    // Newcomers find the fifteen ports that are left, wherever their hash sends them.
    let mut others = HashMap::new();
    for host in 2..17 {
        let mapped = table.map(PoolId(0), inside(host, 0, TCP), &mut NoTally).unwrap();
        *others.entry(mapped.outside.address).or_insert(0) += 1;
    }
    assert_eq!(others.len(), 3);
    assert!(!others.contains_key(&first));
    assert_eq!(table.map(PoolId(0), inside(50, 0, TCP), &mut NoTally), Err(Refusal::PortsExhausted));
}

#[test]
fn pools_that_share_an_address_share_its_ports() {
    let mut table = table(
        100,
        &[
            pool("192.0.2.1", "192.0.2.1", [10, 19]),
            pool("192.0.2.1", "192.0.2.2", [15, 24]),
            pool("192.0.2.9", "192.0.2.9", [10, 19]),
        ],
    );
    let mut seen = HashSet::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for host in 0..100 {
        first.extend(table.map(PoolId(0), inside(host, 1, TCP), &mut NoTally));
        second.extend(table.map(PoolId(1), inside(host, 1, TCP), &mut NoTally));
    }
    assert!(first.iter().chain(&second).all(|mapped| seen.insert(mapped.outside)));
    // 15 ports of the first address, 10 of the second.
    assert_eq!(seen.len(), 25);
    // A port that one pool frees, the other one may take, though it had found the address full.
    let shared = first.iter().find(|mapped| mapped.outside.port >= 15);
    if let Some(shared) = shared {
        table.release(shared.id, &mut NoTally);
        let again = table.map(PoolId(1), inside(200, 1, TCP), &mut NoTally).unwrap();
        assert_eq!(again.outside, shared.outside);
    }
    // The same inside endpoint has a mapping of its own in each pool.
    assert!(table.map(PoolId(2), inside(0, 1, TCP), &mut NoTally).is_ok());
}

#[test]
fn reserved_ports_are_never_handed_out() {
    let reserved = |protocol, first, last| Reserved {
        protocol,
        address: ip("192.0.2.1"),
        ports: PortRange { first, last },
        hold: Hold::Always,
    };
    let mut config = pool("192.0.2.1", "192.0.2.2", [10, 13]);
    config.reserved = vec![reserved(Some(TCP), 0, 11), reserved(None, 12, 12)];
    // The reservation of one pool holds for the other one.
    let mut table = table(100, &[config, pool("192.0.2.1", "192.0.2.1", [10, 13])]);
    let tcp: Vec<_> =
        (0..9).filter_map(|host| table.map(PoolId(1), inside(host, 1, TCP), &mut NoTally).ok()).collect();
    assert_eq!(tcp.iter().map(|mapped| mapped.outside.port).collect::<Vec<_>>(), [13]);
    let mut udp: Vec<_> = (0..9)
        .filter_map(|host| table.map(PoolId(1), inside(host, 1, UDP), &mut NoTally).ok())
        .map(|mapped| mapped.outside.port)
        .collect();
    udp.sort_unstable();
    assert_eq!(udp, [10, 11, 13]);
}

#[test]
fn deterministic_blocks_are_arithmetic_both_ways() {
    // 64512 ports make 252 blocks of 256, so that 300 hosts need two addresses.
    let mut config = pool("192.0.2.1", "192.0.2.2", [1024, 65535]);
    let range = |first, last| AddressRange { first: ip(first), last: ip(last) };
    config.block = Some(Block {
        ports: 256,
        inside: vec![range("10.9.0.0", "10.9.0.255"), range("10.1.0.0", "10.1.0.43")],
    });
    let mut table = table(2000, &[config]);
    let block = |address| table.block_of(PoolId(0), ip(address)).unwrap();
    assert_eq!(block("10.9.0.0"), (ip("192.0.2.1"), PortRange { first: 1024, last: 1279 }));
    assert_eq!(block("10.9.0.251"), (ip("192.0.2.1"), PortRange { first: 65_280, last: 65_535 }));
    assert_eq!(block("10.9.0.252"), (ip("192.0.2.2"), PortRange { first: 1024, last: 1279 }));
    // Number 256 is block 4 of the second address.
    assert_eq!(block("10.1.0.0"), (ip("192.0.2.2"), PortRange { first: 2048, last: 2303 }));
    assert_eq!(table.block_of(PoolId(0), ip("10.1.0.44")), None);
    let hosts = (0..256u32).map(|n| 0x0a09_0000 + n).chain((0..44).map(|n| 0x0a01_0000 + n));
    for host in hosts {
        let host = IpAddr::from(host.to_be_bytes());
        let (outside, ports) = table.block_of(PoolId(0), host).unwrap();
        for port in [ports.first, ports.first + 100, ports.last] {
            assert_eq!(table.owner_of(outside, port), Some((PoolId(0), host)));
        }
    }
    assert_eq!(table.owner_of(ip("192.0.2.1"), 1023), None);
    assert_eq!(table.owner_of(ip("192.0.2.2"), 1024 + 48 * 256), None);
    assert_eq!(table.owner_of(ip("192.0.2.3"), 2000), None);
    // What is handed out comes from the block, all of it and no more.
    let host = Endpoint::new(ip("10.1.0.7"), 0, UDP);
    for port in 0..256 {
        let mapped = table.map(PoolId(0), Endpoint { port, ..host }, &mut NoTally).unwrap();
        assert_eq!(table.owner_of(mapped.outside.ip(), mapped.outside.port), Some((PoolId(0), host.ip())));
    }
    assert_eq!(
        table.map(PoolId(0), Endpoint { port: 999, ..host }, &mut NoTally),
        Err(Refusal::PortsExhausted)
    );
    assert_eq!(table.map(PoolId(0), inside(1, 1, UDP), &mut NoTally), Err(Refusal::NoAddress));
    assert_eq!(table.map_address(PoolId(0), host, &mut NoTally).unwrap().ip(), ip("192.0.2.2"));
}

#[test]
fn families_and_protocols_find_their_own_or_are_refused() {
    let mut both = pool("192.0.2.1", "192.0.2.1", [1024, 65535]);
    both.addresses.push(AddressRange::one(ip("2001:db8::1")));
    let mut table = table(100, &[both, pool("192.0.2.1", "192.0.2.1", [1024, 65535])]);
    // The same bits in the other family are another host.
    let v4 = table.map(PoolId(0), Endpoint::v4(7, 1, TCP), &mut NoTally).unwrap();
    let v6 = table.map(PoolId(0), Endpoint::v6(7, 1, TCP), &mut NoTally).unwrap();
    assert_eq!((v4.outside.ip(), v6.outside.ip()), (ip("192.0.2.1"), ip("2001:db8::1")));
    assert_ne!(v4.id, v6.id);
    let refused = |table: &mut Mappings, pool, end| table.map(PoolId(pool), end, &mut NoTally).unwrap_err();
    assert_eq!(refused(&mut table, 1, Endpoint::v6(7, 1, TCP)), Refusal::NoAddress);
    assert_eq!(refused(&mut table, 1, inside(1, 0, 50)), Refusal::NoPorts);
    assert_eq!(refused(&mut table, 1, Endpoint { protocol: TCP, ..Endpoint::default() }), Refusal::NoAddress);
    assert_eq!(refused(&mut table, 2, inside(1, 1, TCP)), Refusal::NoPool);
    let counters = table.counters(PoolId(1)).unwrap();
    assert_eq!((counters.no_address, counters.no_ports), (2, 1));
    assert_eq!(table.counters(PoolId(2)), None);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let mut blocks = pool("192.0.2.1", "192.0.2.1", [1024, 1033]);
    let hosts = AddressRange { first: ip("10.0.0.1"), last: ip("10.0.0.4") };
    blocks.block = Some(Block { ports: 4, inside: vec![hosts, hosts] });
    let mut twice = pool("192.0.2.1", "192.0.2.3", [5, 4]);
    twice.addresses.push(AddressRange::one(ip("192.0.2.2")));
    twice.addresses.push(AddressRange { first: ip("::1"), last: ip("192.0.2.2") });
    let mut large = pool("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", [0, 9]);
    large.block = Some(Block { ports: 10, inside: Vec::new() });
    let none = PoolConfig { addresses: Vec::new(), ..pool("::", "::", [0, 0]) };
    let errors =
        Mappings::new(Capacity::of(1), &[blocks, twice, large, none], SEED, Share::WHOLE).err().unwrap();
    let problems: Vec<_> = errors
        .iter()
        .map(|error| match error {
            ConfigError::Pool { pool, problem } => (pool.0, *problem),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(
        problems,
        [
            (0, PoolProblem::InsideOverlap(hosts)),
            (0, PoolProblem::TooFewBlocks { inside: 4, blocks: 2 }),
            (1, PoolProblem::BadPorts(PortRange { first: 5, last: 4 })),
            (1, PoolProblem::BadRange(AddressRange { first: ip("::1"), last: ip("192.0.2.2") })),
            (1, PoolProblem::Twice(ip("192.0.2.2"))),
            (2, PoolProblem::BadBlock { ports: 10 }),
            (2, PoolProblem::TooManyAddresses { count: 1 << 64 }),
            (3, PoolProblem::BadPorts(PortRange { first: 0, last: 0 })),
            (3, PoolProblem::NoAddress),
        ]
    );
}

#[test]
fn a_full_table_refuses_and_stays_whole() {
    let pools = [pool("192.0.2.1", "192.0.2.1", [1024, 65535])];
    let mut table = Mappings::new(Capacity { mappings: 4, hosts: 2 }, &pools, SEED, Share::WHOLE).unwrap();
    let first = table.map(PoolId(0), inside(1, 1, TCP), &mut NoTally).unwrap();
    table.map(PoolId(0), inside(2, 1, TCP), &mut NoTally).unwrap();
    assert_eq!(table.map(PoolId(0), inside(3, 1, TCP), &mut NoTally), Err(Refusal::TableFull));
    table.map(PoolId(0), inside(1, 2, TCP), &mut NoTally).unwrap();
    table.map(PoolId(0), inside(1, 3, TCP), &mut NoTally).unwrap();
    assert_eq!(table.map(PoolId(0), inside(1, 4, TCP), &mut NoTally), Err(Refusal::TableFull));
    assert_eq!(table.counters(PoolId(0)).unwrap().table_full, 2);
    table.release(first.id, &mut NoTally);
    assert!(table.map(PoolId(0), inside(1, 4, TCP), &mut NoTally).is_ok());
}

#[test]
fn a_million_mappings_fit_in_64_megabytes() {
    let pools = [pool("192.0.2.0", "192.0.2.15", [1024, 65535])];
    let table = Mappings::new(Capacity::of(1_000_000), &pools, SEED, Share::WHOLE).unwrap();
    assert!(table.memory_bytes() < 64_000_000, "{}", table.memory_bytes());
    assert_eq!(Mappings::bytes_of_address(), 24_960);
}

#[derive(Clone, Debug)]
enum Act {
    Map { pool: u16, end: Endpoint },
    Release(prop::sample::Index),
    Retain(prop::sample::Index),
}

fn act() -> impl Strategy<Value = Act> {
    let end = (0u32..6, 0u16..8, prop::sample::select(vec![TCP, UDP, ICMP]), any::<bool>()).prop_map(
        |(host, port, protocol, v6)| {
            if v6 { Endpoint::v6(u128::from(host), port, protocol) } else { inside(host, port, protocol) }
        },
    );
    prop_oneof![
        3 => (0u16..3, end).prop_map(|(pool, end)| Act::Map { pool, end }),
        2 => any::<prop::sample::Index>().prop_map(Act::Release),
        1 => any::<prop::sample::Index>().prop_map(Act::Retain),
    ]
}

/// Expected contents of a table: by pool and inside endpoint, the mapping and its references.
type Model = HashMap<(u16, Endpoint), (Mapped, u32)>;

proptest! {
    #[test]
    fn the_table_is_its_model(acts in prop::collection::vec(act(), 1..400)) {
        let quota = 5;
        let range = [62, 67];
        let mut pools = [
            PoolConfig { quota: Some(quota), ..pool("192.0.2.1", "192.0.2.2", range) },
            pool("192.0.2.2", "192.0.2.3", [64, 70]),
            pool("2001:db8::1", "2001:db8::2", range),
        ];
        pools[0].addresses.push(AddressRange::one(ip("2001:db8::2")));
        let capacity = Capacity { mappings: 40, hosts: 12 };
        let mut table = Mappings::new(capacity, &pools, SEED, Share::WHOLE).unwrap();
        let mut model = Model::new();
        let has = |pool: u16, address: IpAddr| pools[usize::from(pool)].addresses.iter()
            .any(|range| range.first <= address && address <= range.last);
        for act in acts {
            match act {
                Act::Map { pool, end } => {
                    let held: Vec<_> = model.iter()
                        .filter(|((p, e), _)| *p == pool && (e.address, e.family) == (end.address, end.family))
                        .map(|((_, e), (mapped, _))| (e.protocol, mapped.outside)).collect();
                    let ports = pools[usize::from(pool)].ports[0];
                    let free_of = |address: u128| (ports.first..=ports.last).any(|port| {
                        let outside = Endpoint { address, port, ..end };
                        !model.values().any(|(mapped, _)| mapped.outside == outside)
                    });
                    let mine: Vec<u128> = pools[usize::from(pool)].addresses.iter()
                        .map(|range| (bits_of(range.first), bits_of(range.last)))
                        .filter(|((_, family), _)| *family == end.family)
                        .flat_map(|((first, _), (last, _))| first..=last).collect();
                    let hosts = model.keys().map(|(p, e)| (p, e.address, e.family)).collect::<HashSet<_>>();
                    let of_protocol = held.iter().filter(|(p, _)| *p == end.protocol).count();
                    let full = model.len() == 40 || held.is_empty() && hosts.len() == 12;
                    let free = match held.first() {
                        Some((_, outside)) => free_of(outside.address),
                        None => mine.iter().any(|address| free_of(*address)),
                    };
                    let expected = if pool == 0 && of_protocol as u32 >= quota {
                        Some(Refusal::QuotaReached)
                    } else if full {
                        Some(Refusal::TableFull)
                    } else if mine.is_empty() {
                        Some(Refusal::NoAddress)
                    } else if !free {
                        Some(Refusal::PortsExhausted)
                    } else {
                        None
                    };
                    let got = table.map(PoolId(pool), end, &mut NoTally);
                    if let Some((mapped, references)) = model.get_mut(&(pool, end)) {
                        prop_assert_eq!(got, Ok(*mapped));
                        *references += 1;
                    } else if let Some(refusal) = expected {
                        prop_assert_eq!(got, Err(refusal));
                    } else {
                        let mapped = got.unwrap();
                        prop_assert!(model.values().all(|(other, _)| other.outside != mapped.outside));
                        prop_assert!(model.values().all(|(other, _)| other.id != mapped.id));
                        prop_assert!(ports.first <= mapped.outside.port && mapped.outside.port <= ports.last);
                        prop_assert!(has(pool, mapped.outside.ip()));
                        prop_assert!(held.iter().all(|(_, o)| o.address == mapped.outside.address));
                        model.insert((pool, end), (mapped, 1));
                    }
                }
                Act::Release(_) | Act::Retain(_) if model.is_empty() => {}
                Act::Release(index) => {
                    let mut keys: Vec<_> = model.iter().map(|(key, (mapped, _))| (mapped.id, *key)).collect();
                    keys.sort_by_key(|(id, _)| *id);
                    let (id, key) = *index.get(&keys);
                    table.release(id, &mut NoTally);
                    let references = &mut model.get_mut(&key).unwrap().1;
                    *references -= 1;
                    if *references == 0 {
                        model.remove(&key);
                    }
                }
                Act::Retain(index) => {
                    let mut all: Vec<_> = model.values_mut().collect();
                    all.sort_by_key(|(mapped, _)| mapped.id);
                    let at = index.index(all.len());
                    prop_assert_eq!(table.retain(all[at].0.id, &mut NoTally), Some(all[at].0));
                    all[at].1 += 1;
                }
            }
            prop_assert_eq!(table.len() as usize, model.len());
            for ((pool, end), (mapped, references)) in &model {
                prop_assert_eq!(table.inside_of(&mapped.outside, &mut NoTally), Some((mapped.id, *end)));
                prop_assert_eq!(table.get(mapped.id), Some(Mapping {
                    id: mapped.id, pool: Some(PoolId(*pool)), inside: *end, outside: mapped.outside,
                    references: *references,
                }));
            }
        }
        prop_assert_eq!(table.iter().count(), model.len());
        let created: u64 = (0..3).map(|pool| table.counters(PoolId(pool)).unwrap().live()).sum();
        prop_assert_eq!(created as usize, model.len());
        for (mapped, references) in model.values() {
            for _ in 0..*references {
                table.release(mapped.id, &mut NoTally);
            }
        }
        prop_assert!(table.is_blank());
    }

    #[test]
    fn a_port_search_finds_the_first_free_one(
        taken in prop::collection::hash_set(1u16.., 0..300),
        full in prop::collection::vec(0u16..1024, 0..40),
        bounds in (1u16.., 1u16..), start in any::<prop::sample::Index>(),
    ) {
        let range = PortRange { first: bounds.0.min(bounds.1), last: bounds.0.max(bounds.1) };
        let mut taken = taken;
        taken.extend(full.iter().flat_map(|word| word * 64..=word * 64 + 63));
        let mut ports = port::Ports::new(Share::WHOLE, 0);
        let home = ports.add(port::Chunk::new(2, Share::WHOLE).unwrap());
        (0..2).for_each(|address| ports.settle(address, home, address));
        for port in &taken {
            ports.reserve(1, PortSpace::Udp, PortRange { first: *port, last: *port });
        }
        let start = range.first + start.index(usize::from(range.last - range.first) + 1) as u16;
        let expected = (start..=range.last).chain(range.first..start).find(|port| !taken.contains(port));
        prop_assert_eq!(ports.next(1, PortSpace::Udp, range, start), expected);
        // The neighbours are other maps.
        prop_assert_eq!(ports.next(1, PortSpace::Tcp, range, start), Some(start));
        prop_assert_eq!(ports.next(0, PortSpace::Icmp, range, start), Some(start));
    }
}
