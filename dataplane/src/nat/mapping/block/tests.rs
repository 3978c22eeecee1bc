//! Blocks on demand, against a plain model of who has which, over reloads and restarts, with several workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use policy::model::PortChoice;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use tally::NoTally;

use super::super::super::{
    AddressRange, BlockChange, Capacity, Endpoint, Hold, Hosts, Mapped, MappingId, Mappings, OnDemand,
    PoolConfig, PoolId, PortRange, Refusal, Reserved, Restore, Share,
};
use super::super::PoolsPlan;

const SEED: [u64; 2] = [7, 8];
const TCP: u8 = 6;
const UDP: u8 = 17;

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn inside(host: u8, port: u16, protocol: u8) -> Endpoint {
    Endpoint::v4(0x0a00_0000 + u32::from(host), port, protocol)
}

fn pool(last: u8, ports: [u16; 2], on_demand: Option<OnDemand>) -> PoolConfig {
    PoolConfig {
        addresses: vec![AddressRange { first: address(1), last: address(last) }],
        ports: vec![PortRange { first: ports[0], last: ports[1] }],
        choice: PortChoice::Preserve,
        quota: None,
        block: None,
        on_demand,
        hosts: Hosts::OfSameFamily,
        reserved: Vec::new(),
    }
}

fn blocks(ports: u16, most: u16) -> Option<OnDemand> {
    Some(OnDemand { ports, most })
}

fn table(pools: &[PoolConfig], share: Share) -> Mappings {
    Mappings::new(Capacity { mappings: 2_000, hosts: 200 }, pools, SEED, share).unwrap()
}

fn map(table: &mut Mappings, end: Endpoint) -> Result<Mapped, Refusal> {
    table.map(PoolId(0), end, &mut NoTally)
}

/// Events so far, as change, last byte of the host, and first port.
fn events(table: &mut Mappings) -> Vec<(BlockChange, u8, u16)> {
    let last = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    std::iter::from_fn(|| table.take_block_event())
        .map(|event| (event.change, last(event.block.inside), event.block.ports.first))
        .collect()
}

#[test]
fn a_host_takes_blocks_as_it_needs_them_and_gives_them_back() {
    let mut table = table(&[pool(1, [1024, 65535], blocks(16, 2))], Share::WHOLE);
    let first = map(&mut table, inside(1, 7, UDP)).unwrap();
    let begin = first.outside.port / 16 * 16;
    assert_eq!(events(&mut table), [(BlockChange::Allocated, 1, begin)]);
    // Its other flows have ports of the same block, those of the other protocol too.
    let mut held: Vec<Mapped> = (8..23).map(|port| map(&mut table, inside(1, port, UDP)).unwrap()).collect();
    held.push(map(&mut table, inside(1, 7, TCP)).unwrap());
    assert!(held.iter().all(|mapped| mapped.outside.port / 16 * 16 == begin));
    assert_eq!(events(&mut table), []);
    let other = map(&mut table, inside(2, 7, UDP)).unwrap();
    assert_ne!(other.outside.port / 16 * 16, begin);
    assert!(matches!(events(&mut table)[..], [(BlockChange::Allocated, 2, _)]));
    // The block is full of UDP: a second one is the last.
    let second: Vec<Mapped> = (30..46).map(|port| map(&mut table, inside(1, port, UDP)).unwrap()).collect();
    let next = second[0].outside.port / 16 * 16;
    assert_eq!(events(&mut table), [(BlockChange::Allocated, 1, next)]);
    assert_eq!(map(&mut table, inside(1, 99, UDP)), Err(Refusal::QuotaReached));
    assert!(map(&mut table, inside(1, 99, TCP)).is_ok());
    // The first one ends with its last mapping, of whatever protocol; the other is the host's first by then.
    for mapped in held.iter().chain([&first]) {
        table.release(mapped.id, &mut NoTally);
    }
    assert_eq!(events(&mut table), []);
    let again = map(&mut table, inside(1, 99, TCP)).unwrap();
    table.release(again.id, &mut NoTally);
    let tcp = table.iter().find(|mapping| mapping.inside == inside(1, 99, TCP)).unwrap();
    table.release(tcp.id, &mut NoTally);
    assert_eq!(events(&mut table), [(BlockChange::Freed, 1, begin)]);
    assert_eq!(table.usage(PoolId(0)).unwrap().blocks, 2);
    for mapped in second.iter().chain([&other]) {
        table.release(mapped.id, &mut NoTally);
    }
    assert_eq!(events(&mut table).len(), 2);
    assert!(table.is_blank());
}

#[test]
fn an_exhausted_pool_refuses_newcomers_until_a_block_is_free() {
    // Four blocks, one of which is set aside; ports 1000 to 1008 are in none.
    let mut config = pool(1, [1000, 1087], blocks(16, 4));
    let ports = PortRange { first: 1024, last: 1039 };
    config.reserved = vec![Reserved { protocol: None, address: address(1), ports, hold: Hold::Always }];
    let mut table = table(&[config], Share::WHOLE);
    let ids: Vec<MappingId> =
        (1..5).filter_map(|host| map(&mut table, inside(host, 1, UDP)).ok()).map(|m| m.id).collect();
    assert_eq!(ids.len(), 4);
    assert_eq!(map(&mut table, inside(5, 1, UDP)), Err(Refusal::PortsExhausted));
    assert_eq!(map(&mut table, inside(6, 1, TCP)), Err(Refusal::PortsExhausted));
    // Those that have a block go on, up to its end.
    assert!((2..17).all(|port| map(&mut table, inside(1, port, UDP)).is_ok()));
    assert_eq!(map(&mut table, inside(1, 17, UDP)), Err(Refusal::PortsExhausted));
    table.release(ids[2], &mut NoTally);
    assert!(map(&mut table, inside(5, 1, UDP)).is_ok());
    assert_eq!(table.counters(PoolId(0)).unwrap().ports_exhausted, 3);
}

#[test]
fn services_of_the_gateway_are_in_no_host_s_hands() {
    let mut config = pool(1, [1024, 1055], blocks(16, 4));
    let ports = PortRange { first: 1024, last: 1030 };
    let hold = Hold::WhileOthersAreFree;
    config.reserved = vec![Reserved { protocol: Some(UDP), address: address(1), ports, hold }];
    let mut table = table(&[config], Share::WHOLE);
    let got: Vec<u16> = (0..40)
        .filter_map(|port| map(&mut table, inside(1, port, UDP)).ok())
        .map(|m| m.outside.port)
        .collect();
    assert_eq!(got.len(), 32 - 7);
    assert!(got.iter().all(|port| *port > 1030));
}

#[test]
fn blocks_are_made_again_by_mappings_that_are_restored() {
    let pools = [pool(2, [1024, 65535], blocks(16, 2))];
    let mut before = table(&pools, Share::WHOLE);
    for host in 1..40 {
        for port in 0..20 {
            map(&mut before, inside(host, port, UDP)).unwrap();
            events(&mut before);
        }
    }
    let mut after = table(&pools, Share::WHOLE);
    for mapping in before.iter() {
        after.restore(PoolId(0), mapping.inside, mapping.outside).unwrap();
    }
    // Nobody is told again of what goes on.
    assert_eq!(events(&mut after), []);
    let set = |table: &Mappings| {
        table.blocks().map(|block| (block.outside, block.ports.first, block.inside)).collect::<BTreeSet<_>>()
    };
    assert_eq!((set(&after).len(), set(&after)), (78, set(&before)));
    assert_eq!(after.usage(PoolId(0)).unwrap().blocks, 78);
    // Another host gets no port of a block that is somebody's.
    let theirs = before.iter().find(|mapping| mapping.outside.port % 16 == 15).unwrap();
    let free =
        (0..15).map(|step| Endpoint { port: theirs.outside.port - step, protocol: TCP, ..theirs.outside });
    for outside in free {
        assert_eq!(after.restore(PoolId(0), inside(99, 1, TCP), outside), Err(Restore::PortTaken));
    }
    let ids: Vec<MappingId> = after.iter().map(|mapping| mapping.id).collect();
    for id in ids {
        after.release(id, &mut NoTally);
        events(&mut after);
    }
    assert!(after.is_blank());
}

#[test]
fn workers_have_blocks_of_their_own() {
    let pools = [pool(1, [1024, 2047], blocks(64, 4))];
    let mut all = BTreeMap::new();
    for worker in 0..3 {
        let mut table = table(&pools, Share::new(worker, 3).unwrap());
        for host in 0..20 {
            let Ok(mapped) = map(&mut table, inside(host, 5000, UDP)) else { continue };
            assert_eq!(Share::owner_in_block(mapped.outside.port, 64, 3, 1), worker);
            assert!(all.insert(mapped.outside.port / 64, worker).is_none());
        }
    }
    // All sixteen.
    assert_eq!(all.len(), 16);
}

/// A pool of a policy, by its name.
#[derive(Clone, Debug)]
struct Named {
    name: u8,
    config: PoolConfig,
}

fn pools() -> impl Strategy<Value = Vec<Named>> {
    let sizes =
        prop_oneof![1 => Just(None), 4 => Just(Some(16_u16)), 2 => Just(Some(20)), 2 => Just(Some(32))];
    let ranges = prop_oneof![Just([1000_u16, 1090]), Just([1024, 1087]), Just([1040, 1200])];
    let aside = (1u8..4, 1020_u16..1100, 0_u16..20, any::<bool>());
    let one = (0u8..3, 1u8..4, ranges, sizes, 1_u16..4, prop::collection::vec(aside, 0..2));
    let one = one.prop_map(|(name, last, ports, size, most, aside)| {
        let reserved = aside.into_iter().map(|(last, first, more, always)| Reserved {
            protocol: None,
            address: address(last),
            ports: PortRange { first, last: first + more },
            hold: if always { Hold::Always } else { Hold::WhileOthersAreFree },
        });
        let config = pool(last, ports, size.map(|ports| OnDemand { ports, most }));
        Named { name, config: PoolConfig { reserved: reserved.collect(), ..config } }
    });
    prop::collection::vec(one, 1..3).prop_map(|mut pools| {
        let mut names = BTreeSet::new();
        pools.retain(|pool| names.insert(pool.name));
        pools
    })
}

#[derive(Clone, Debug)]
enum Action {
    Map(usize, u8, u16, bool),
    Release(usize),
    /// The oldest mappings of one host end.
    ReleaseHost(u8),
    Change(Vec<Named>),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (any::<usize>(), 0u8..6, 0u16..40, any::<bool>())
            .prop_map(|(pool, host, port, tcp)| Action::Map(pool, host, port, tcp)),
        4 => any::<usize>().prop_map(Action::Release),
        1 => (0u8..6).prop_map(Action::ReleaseHost),
        1 => pools().prop_map(Action::Change),
    ]
}

fn configs(pools: &[Named]) -> Vec<PoolConfig> {
    pools.iter().map(|pool| pool.config.clone()).collect()
}

/// Size of the blocks of an address.
fn size_of(pools: &[Named], outside: IpAddr) -> Option<u16> {
    let mut own = pools.iter().filter(|pool| pool.config.has(outside));
    own.find_map(|pool| pool.config.on_demand).map(|blocks| blocks.ports)
}

fn is_aside(pools: &[Named], outside: IpAddr, port: u16) -> bool {
    let mut all = pools.iter().flat_map(|pool| &pool.config.reserved);
    all.any(|reserved| reserved.address == outside && reserved.ports.has(port))
}

/// A block, by outside address and first port.
type Place = (IpAddr, u16);

/// A mapping that is held: its inside and outside ends, the size of blocks that its address was divided into, and whether it goes on.
type Held = (MappingId, Endpoint, Endpoint, Option<u16>, bool);

/// Plain account of what is held, and of the blocks that follow from it.
#[derive(Default)]
struct Model {
    /// Mappings with their references; with what size the address was divided, and whether the pool goes on.
    held: Vec<Held>,
    /// Who has been told to have which block.
    told: BTreeMap<Place, (IpAddr, PortRange)>,
    /// Ports that were set aside at some time.
    aside: BTreeSet<Place>,
}

impl Model {
    fn set_aside(&mut self, pools: &[Named]) {
        for reserved in pools.iter().flat_map(|pool| &pool.config.reserved) {
            self.aside
                .extend((reserved.ports.first..=reserved.ports.last).map(|port| (reserved.address, port)));
        }
    }

    fn hear(&mut self, table: &mut Mappings) {
        while let Some(event) = table.take_block_event() {
            let block = event.block;
            let place = (block.outside, block.ports.first);
            let before = match event.change {
                BlockChange::Allocated => self.told.insert(place, (block.inside, block.ports)),
                BlockChange::Freed => {
                    Some(self.told.remove(&place).unwrap()).filter(|old| *old != (block.inside, block.ports))
                }
            };
            assert_eq!(before, None, "{event:?}");
        }
    }

    /// Blocks that mappings of the present division are in, with their hosts.
    fn used(&self, pools: &[Named]) -> HashMap<Place, BTreeSet<IpAddr>> {
        let mut used: HashMap<Place, BTreeSet<IpAddr>> = HashMap::new();
        for (_, inside, outside, size, _) in &self.held {
            let Some(size) = size.filter(|size| size_of(pools, outside.ip()).is_none_or(|now| now == *size))
            else {
                continue;
            };
            used.entry((outside.ip(), outside.port / size * size)).or_default().insert(inside.ip());
        }
        used
    }
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 600, ..Default::default() })]

    #[test]
    fn no_two_hosts_have_one_block_and_all_are_told_of(
        first in pools(),
        actions in prop::collection::vec(action(), 0..250),
        workers in 1_u16..4,
    ) {
        let share = Share::new(workers - 1, workers).unwrap();
        let (mut pools, mut model) = (first, Model::default());
        let mut table = table(&configs(&pools), share);
        model.set_aside(&pools);
        for action in actions {
            match action {
                Action::Map(place, host, port, tcp) => {
                    let place = place % pools.len();
                    let config = &pools[place].config;
                    let end = inside(host, port, if tcp { TCP } else { UDP });
                    match table.map(PoolId(place as u16), end, &mut NoTally) {
                        Ok(mapped) => {
                            let size = size_of(&pools, mapped.outside.ip());
                            assert!(config.has(mapped.outside.ip()));
                            if !model.held.iter().any(|held| held.0 == mapped.id) {
                                let PortRange { first, last } = config.ports[0];
                                let port = mapped.outside.port;
                                assert!((first..=last).contains(&port), "{port}");
                                let owner = size.map_or(Share::owner(port, workers, 1), |size| Share::owner_in_block(port, size, workers, 1));
                                assert_eq!(owner, workers - 1);
                                assert!(size.is_none() || !is_aside(&pools, mapped.outside.ip(), port), "{port} is set aside");
                                assert!(model.held.iter().all(|held| held.2 != mapped.outside), "twice");
                            }
                            model.held.push((mapped.id, end, mapped.outside, size, true));
                        }
                        Err(Refusal::QuotaReached) => {
                            let most = usize::from(config.on_demand.unwrap().most);
                            let own = table.blocks().filter(|block| block.inside == end.ip() && block.pool == Some(PoolId(place as u16)));
                            // More where an earlier policy allowed more.
                            assert!(own.count() >= most);
                        }
                        Err(refusal) => {
                            assert_eq!(refusal, Refusal::PortsExhausted);
                            // Of an address that would do, no block is whole and nobody's.
                            let own: Vec<IpAddr> = table.blocks().filter(|block| block.inside == end.ip() && block.pool == Some(PoolId(place as u16))).map(|block| block.outside).collect();
                            let mine = model.held.iter().filter(|held| held.4 && held.1.ip() == end.ip());
                            let is_newcomer = own.is_empty() && mine.count() == 0;
                            let PortRange { first, last } = config.ports[0];
                            for outside in (1..4).map(address).filter(|outside| config.has(*outside)) {
                                let Some(size) = size_of(&pools, outside) else { continue };
                                let free = (1..65_536 / u32::from(size)).map(|number| number as u16 * size).find(|begin| {
                                    let end = *begin + (size - 1);
                                    first <= *begin && end <= last
                                        && (begin / size) % workers == workers - 1
                                        && (*begin..=end).any(|port| !is_aside(&pools, outside, port))
                                        && model.held.iter().all(|held| held.2.ip() != outside || !(*begin..=end).contains(&held.2.port))
                                });
                                // A host that an earlier policy has moved to another address stays there.
                                let is_elsewhere = |held: &Held| held.1.ip() == end.ip() && held.2.ip() != outside;
                                let has_moved = model.held.iter().any(is_elsewhere);
                                let would_do = is_newcomer || own.contains(&outside) && !has_moved;
                                assert!(!would_do || free.is_none(), "{free:?} of {outside} is free");
                            }
                        }
                    }
                }
                Action::Release(at) if !model.held.is_empty() => {
                    let at = at % model.held.len();
                    let held = model.held.swap_remove(at);
                    table.release(held.0, &mut NoTally);
                }
                Action::ReleaseHost(host) => {
                    let ip = inside(host, 0, UDP).ip();
                    let (gone, held): (Vec<Held>, Vec<Held>) = std::mem::take(&mut model.held).into_iter().partition(|held| held.1.ip() == ip);
                    model.held = held;
                    for held in gone {
                        table.release(held.0, &mut NoTally);
                        model.hear(&mut table);
                    }
                }
                Action::Change(new) => {
                    let was = new.iter().map(|pool| pools.iter().position(|old| old.name == pool.name).map(|place| place as u16));
                    let plan = PoolsPlan::prepare(&configs(&pools), &configs(&new), was.collect(), share).ok().unwrap();
                    let retired = table.apply(plan);
                    for block in &retired.ended {
                        assert!(model.told.remove(&(block.outside, block.ports.first)).is_some(), "{block:?}");
                    }
                    pools = new;
                    model.set_aside(&pools);
                    for held in &mut model.held {
                        let stays = size_of(&pools, held.2.ip()) == held.3 && table.pool_of(held.0).is_some();
                        held.4 &= stays;
                        if size_of(&pools, held.2.ip()).is_some_and(|now| held.3 != Some(now)) || pools.iter().any(|pool| pool.config.has(held.2.ip())) && size_of(&pools, held.2.ip()) != held.3 {
                            held.3 = None;
                        }
                    }
                }
                Action::Release(_) => {}
            }
            model.hear(&mut table);
            // What people have been told is what is.
            let blocks: Vec<_> = table.blocks().collect();
            let now: BTreeMap<Place, (IpAddr, PortRange)> =
                blocks.iter().map(|block| ((block.outside, block.ports.first), (block.inside, block.ports))).collect();
            assert_eq!(now.len(), blocks.len(), "two hosts have one block");
            assert_eq!(&now, &model.told);
            // Each block that is used is its host's, nobody else is in it, and none is kept for nothing.
            let used = model.used(&pools);
            for ((outside, begin), hosts) in &used {
                assert_eq!(hosts.len(), 1, "{outside} {begin}: {hosts:?}");
                assert_eq!(now.get(&(*outside, *begin)).map(|block| block.0), hosts.first().copied(), "{outside} {begin}");
            }
            assert_eq!(now.len(), used.len());
            // Blocks of one address do not overlap.
            let mut spans: Vec<_> = blocks.iter().map(|block| (block.outside, block.ports.first, block.ports.last)).collect();
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 < pair[1].1), "{spans:?}");
            // Nobody else has a port of somebody's block, from before either, but for ports that nobody is given.
            for block in &blocks {
                let in_block = |held: &&Held| held.2.ip() == block.outside && block.ports.has(held.2.port);
                let mut others = model.held.iter().filter(in_block);
                assert!(others.all(|held| held.1.ip() == block.inside || model.aside.contains(&(block.outside, held.2.port))), "{block:?}");
            }
            // A host has one outside address in a pool, and no more blocks than it may.
            for (at, pool) in pools.iter().enumerate() {
                let Some(OnDemand { most, .. }) = pool.config.on_demand else { continue };
                let mut of_host: HashMap<(IpAddr, IpAddr), u16> = HashMap::new();
                for block in blocks.iter().filter(|block| block.pool == Some(PoolId(at as u16))) {
                    *of_host.entry((block.inside, block.outside)).or_default() += 1;
                }
                // A policy that allows fewer takes none away.
                let _ = most;
                assert!(of_host.values().all(|count| *count <= 3), "{of_host:?}");
            }
        }
        for held in std::mem::take(&mut model.held) {
            table.release(held.0, &mut NoTally);
            model.hear(&mut table);
        }
        assert!(model.told.is_empty() && table.is_blank());
        // Nothing is lost: all ports can be had again.
        let single = vec![Named { name: 9, config: pool(3, [1024, 1151], blocks(16, 64)) }];
        let was = vec![None];
        let plan = PoolsPlan::prepare(&configs(&pools), &configs(&single), was, share).ok().unwrap();
        table.apply(plan);
        let all: BTreeSet<(IpAddr, u16)> = (0..250_u8)
            .flat_map(|host| (0..16).map(move |port| (host, port)))
            .filter_map(|(host, port)| table.map(PoolId(0), inside(host, port, UDP), &mut NoTally).ok())
            .map(|mapped| (mapped.outside.ip(), mapped.outside.port))
            .collect();
        let own = (64..72_u16).filter(|number| number % workers == workers - 1).count();
        assert_eq!(all.len(), 3 * 16 * own);
    }
}
