//! Pools that follow one another, against a plain model of who holds what.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use policy::model::PortChoice;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use tally::NoTally;

use super::super::super::{
    AddressRange, Block, Capacity, Endpoint, Hold, Hosts, MappingId, Mappings, PoolConfig, PoolId, PortRange,
    Refusal, Reserved, Restore, Share,
};
use super::PoolsPlan;

const SEED: [u64; 2] = [5, 6];
const UDP: u8 = 17;

/// A pool of a policy, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: u8,
    config: PoolConfig,
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn inside(host: u8, port: u16) -> Endpoint {
    Endpoint::v4(0x0a00_0000 + u32::from(host), port, UDP)
}

fn named() -> impl Strategy<Value = Named> {
    let ranges = prop_oneof![Just((4000, 4003)), Just((4002, 4009)), Just((1, 65_535))];
    let blocks = prop_oneof![4 => Just(None), 1 => Just(Some(1_u16)), 1 => Just(Some(2))];
    let reserved = prop::collection::vec((0u8..4, 3998u16..4006, 0u16..4, any::<bool>()), 0..3);
    let choice = prop_oneof![Just(PortChoice::Preserve), Just(PortChoice::Random)];
    (0u8..3, 0u8..3, 1u8..3, ranges, blocks, reserved, choice).prop_map(
        |(name, first, count, (low, high), block, reserved, choice)| {
            let hosts = AddressRange { first: inside(0, 0).ip(), last: inside(1, 0).ip() };
            let reserved = reserved.into_iter().map(|(last, first, more, always)| Reserved {
                protocol: (more != 3).then_some(UDP),
                address: address(last),
                ports: PortRange { first, last: first + more },
                hold: if always { Hold::Always } else { Hold::WhileOthersAreFree },
            });
            let config = PoolConfig {
                addresses: vec![AddressRange { first: address(first), last: address(first + count - 1) }],
                ports: vec![PortRange { first: low, last: high }],
                choice,
                quota: None,
                block: block.map(|ports| Block { ports, inside: vec![hosts] }),
                on_demand: None,
                hosts: Hosts::OfSameFamily,
                reserved: reserved.collect(),
            };
            Named { name, config }
        },
    )
}

/// Pools with names of their own. What is set aside holds for all that have the address.
fn pools() -> impl Strategy<Value = Vec<Named>> {
    prop::collection::vec(named(), 0..4).prop_map(|mut pools| {
        let mut names = HashSet::new();
        pools.retain(|pool| names.insert(pool.name));
        let all: Vec<Reserved> = pools.iter().flat_map(|pool| pool.config.reserved.clone()).collect();
        for pool in &mut pools {
            let has = |reserved: &&Reserved| pool.config.has(reserved.address);
            pool.config.reserved = all.iter().filter(has).copied().collect();
        }
        pools
    })
}

#[derive(Clone, Debug)]
enum Action {
    /// A host's port asks for a mapping of the pool at a place.
    Map(usize, u8, u16),
    Release(usize),
    Change(Vec<Named>),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (any::<usize>(), 0u8..3, 0u16..3).prop_map(|(pool, host, port)| Action::Map(pool, host, port)),
        3 => any::<usize>().prop_map(Action::Release),
        2 => pools().prop_map(Action::Change),
    ]
}

fn configs(pools: &[Named]) -> Vec<PoolConfig> {
    pools.iter().map(|pool| pool.config.clone()).collect()
}

fn is_reserved(pools: &[Named], end: &Endpoint, hold: Hold) -> bool {
    pools.iter().flat_map(|pool| &pool.config.reserved).filter(|reserved| reserved.hold == hold).any(
        |reserved| {
            reserved.address == end.ip() && (reserved.ports.first..=reserved.ports.last).contains(&end.port)
        },
    )
}

/// A mapping and the references held to it.
struct Held {
    id: MappingId,
    name: u8,
    inside: Endpoint,
    outside: Endpoint,
    /// The pool as it was, where blocks are owned by arithmetic.
    blocks: Option<PoolConfig>,
    /// Its host has gone on to another address since.
    left: bool,
}

/// True if a mapping may still be used, by what the present pools say.
fn is_possible(held: &Held, pools: &[Named]) -> bool {
    pools.iter().any(|pool| {
        let same = match (&held.blocks, &pool.config.block) {
            (None, None) => true,
            (Some(old), Some(_)) => {
                old.ports == pool.config.ports
                    && old.addresses == pool.config.addresses
                    && old.block == pool.config.block
            }
            _ => false,
        };
        pool.name == held.name && same && pool.config.has(held.outside.ip())
    })
}

fn change(table: &mut Mappings, old: &[Named], new: &[Named]) {
    let was =
        new.iter().map(|pool| old.iter().position(|old| old.name == pool.name).map(|place| place as u16));
    let share = table.ports.share();
    let change = PoolsPlan::prepare(&configs(old), &configs(new), was.collect(), share).ok().unwrap();
    table.apply(change);
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 1_000, ..Default::default() })]

    #[test]
    fn pools_follow_one_another_as_the_model_says(
        first in pools(),
        actions in prop::collection::vec(action(), 0..60),
        workers in 1u16..4,
    ) {
        let share = Share::new(workers / 2, workers).unwrap();
        let capacity = Capacity { mappings: 100, hosts: 100 };
        let mut table = Mappings::new(capacity, &configs(&first), SEED, share).unwrap();
        let (mut pools, mut held): (Vec<Named>, Vec<Held>) = (first, Vec::new());
        for action in actions {
            match action {
                Action::Map(place, host, port) if !pools.is_empty() => {
                    let place = place % pools.len();
                    let pool = &pools[place];
                    let inside = inside(host, port);
                    let mapped = table.map(PoolId(place as u16), inside, &mut NoTally);
                    // A host that keeps to an address which its pool has no more goes on to another.
                    for held in held.iter_mut().filter(|held| held.name == pool.name) {
                        held.left |= held.inside.ip() == inside.ip() && !pool.config.has(held.outside.ip());
                    }
                    let known = held.iter().find(|held| {
                        let same = held.name == pool.name && held.inside == inside;
                        same && !held.left && is_possible(held, &pools)
                    });
                    match (mapped, known) {
                        // One inside end is one outside end.
                        (Ok(mapped), Some(known)) => {
                            assert_eq!((mapped.id, mapped.outside), (known.id, known.outside));
                        }
                        (Ok(mapped), None) => {
                            let end = mapped.outside;
                            let PortRange { first, last } = pool.config.ports[0];
                            assert!(pool.config.has(end.ip()) && (first.max(1)..=last).contains(&end.port));
                            assert!(share.owns(end.port) && !is_reserved(&pools, &end, Hold::Always), "{end}");
                            let is_lent = is_reserved(&pools, &end, Hold::WhileOthersAreFree);
                            assert_eq!(table.is_service(mapped.id), is_lent, "{end}");
                            if is_lent && pool.config.block.is_none() {
                                let is_left = |port: &u16| {
                                    let other = Endpoint { port: *port, ..end };
                                    let aside = [Hold::Always, Hold::WhileOthersAreFree];
                                    share.owns(*port)
                                        && !aside.iter().any(|hold| is_reserved(&pools, &other, *hold))
                                        && held.iter().all(|held| held.outside != other)
                                };
                                assert_eq!((first.max(1)..=last).find(is_left), None, "{end} while others are free");
                            }
                            assert!(held.iter().all(|held| held.outside != end), "{end} twice");
                            if pool.config.block.is_some() {
                                let owner = table.owner_of(end.ip(), end.port);
                                // Pools that share an address may both own a port.
                                assert!(owner.is_some_and(|(_, owner)| owner == inside.ip()) || pools.len() > 1);
                            }
                        }
                        (Err(Refusal::NoAddress), _) => assert!(pool.config.block.is_some() && host > 1),
                        (Err(refusal), known) => {
                            assert!(refusal == Refusal::PortsExhausted && known.is_none());
                        }
                    }
                    if let Ok(mapped) = mapped {
                        let blocks = pool.config.block.is_some().then(|| pool.config.clone());
                        held.push(Held { id: mapped.id, name: pool.name, inside, outside: mapped.outside, blocks, left: false });
                    }
                }
                Action::Release(place) if !held.is_empty() => {
                    let held = held.swap_remove(place % held.len());
                    table.release(held.id, &mut NoTally);
                }
                Action::Change(new) => {
                    change(&mut table, &pools, &new);
                    // A name that goes and comes back is another; here it has no other number.
                    for held in &mut held {
                        if !is_possible(held, &new) && !new.iter().any(|pool| pool.name == held.name && held.blocks.is_none() && pool.config.block.is_none()) {
                            held.name = u8::MAX;
                        }
                    }
                    pools = new;
                }
                _ => {}
            }
            let mut references: HashMap<MappingId, u32> = HashMap::new();
            for held in &held {
                *references.entry(held.id).or_default() += 1;
                let mapping = table.get(held.id).unwrap();
                // What is held stays as it is, whatever pools there are.
                assert_eq!((mapping.inside, mapping.outside), (held.inside, held.outside));
                let name = mapping.pool.map(|pool| pools[usize::from(pool.0)].name);
                assert_eq!(name, is_possible(held, &pools).then_some(held.name), "{held:?} under {pools:#?}");
            }
            assert_eq!(table.len() as usize, references.len());
            for (id, count) in references {
                assert_eq!(table.get(id).unwrap().references, count);
            }
        }
        for held in held {
            table.release(held.id, &mut NoTally);
        }
        assert!(table.is_blank());
        // Every port is free again: as many can be had as the pools have.
        let single = vec![Named { name: 9, config: PoolConfig {
            addresses: vec![AddressRange { first: address(0), last: address(4) }],
            ports: vec![PortRange { first: 4000, last: 4009 }], choice: PortChoice::Preserve, quota: None, block: None, on_demand: None, hosts: Hosts::OfSameFamily,
 reserved: Vec::new(),
        } }];
        change(&mut table, &pools, &single);
        let all: HashSet<Endpoint> = (0..100)
            .filter_map(|host| table.map(PoolId(0), inside(host, 1), &mut NoTally).ok())
            .map(|mapped| mapped.outside)
            .collect();
        let own = (4000..=4009).filter(|port| share.owns(*port)).count();
        assert_eq!(all.len(), 5 * own);
        assert!(table.outside.len() <= 10, "addresses that nobody uses are kept");
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {} of {}", self.inside, self.outside, self.name)
    }
}

fn pool(first: u8, last: u8, ports: [u16; 2]) -> PoolConfig {
    PoolConfig {
        addresses: vec![AddressRange { first: address(first), last: address(last) }],
        ports: vec![PortRange { first: ports[0], last: ports[1] }],
        choice: PortChoice::Random,
        quota: None,
        block: None,
        on_demand: None,
        hosts: Hosts::OfSameFamily,
        reserved: Vec::new(),
    }
}

#[test]
fn a_mapping_made_again_elsewhere_keeps_its_outside_port_or_says_why_not() {
    let capacity = Capacity { mappings: 2, hosts: 2 };
    let new = |pool: PoolConfig, share| Mappings::new(capacity, &[pool], SEED, share).unwrap();
    let outside = |last, port| Endpoint::new(address(last), port, UDP);
    let mut table = new(pool(1, 2, [4000, 4001]), Share::WHOLE);
    let pool_id = PoolId(0);
    // Ranges are for those that are made anew.
    let first = table.restore(pool_id, inside(1, 1), outside(2, 5000)).unwrap();
    assert_eq!(table.restore(pool_id, inside(1, 1), outside(2, 5000)), Ok(first));
    assert_eq!(table.get(first).unwrap().references, 2);
    for (inside, outside, why) in [
        (inside(1, 1), outside(2, 5001), Restore::Otherwise),
        (inside(1, 2), outside(1, 5001), Restore::Otherwise),
        (inside(2, 2), outside(2, 5000), Restore::PortTaken),
        (inside(2, 2), outside(3, 5000), Restore::AddressGone),
        (inside(2, 2), outside(1, 0), Restore::Malformed),
        (inside(2, 2), Endpoint { protocol: 6, ..outside(1, 1) }, Restore::Malformed),
        (
            Endpoint { protocol: 50, ..inside(2, 2) },
            Endpoint { protocol: 50, ..outside(1, 1) },
            Restore::Malformed,
        ),
    ] {
        assert_eq!(table.restore(pool_id, inside, outside), Err(why), "{inside} to {outside}");
    }
    assert_eq!(table.restore(PoolId(1), inside(2, 2), outside(1, 1)), Err(Restore::AddressGone));
    table.restore(pool_id, inside(2, 2), outside(2, 4000)).unwrap();
    assert_eq!(table.restore(pool_id, inside(2, 3), outside(2, 4001)), Err(Restore::TableFull));
    // The port is taken: 4000 of the second address is handed out to nobody else.
    table.release(first, &mut NoTally);
    table.release(first, &mut NoTally);
    let mapped = table.map(pool_id, inside(2, 5), &mut NoTally).unwrap();
    assert_eq!(mapped.outside, outside(2, 4001));
    // Other shares, other blocks.
    let mut second = new(pool(1, 2, [4000, 4001]), Share::new(1, 2).unwrap());
    assert_eq!(second.restore(pool_id, inside(1, 1), outside(2, 5000)), Err(Restore::NotOurs));
    assert!(second.restore(pool_id, inside(1, 1), outside(2, 5003)).is_ok());
    let hosts = AddressRange { first: inside(0, 0).ip(), last: inside(3, 0).ip() };
    let block = Some(Block { ports: 2, inside: vec![hosts] });
    let mut blocks = new(PoolConfig { block, ..pool(1, 1, [4000, 4007]) }, Share::WHOLE);
    assert_eq!(blocks.restore(pool_id, inside(1, 1), outside(1, 4001)), Err(Restore::NotOurs));
    assert!(blocks.restore(pool_id, inside(1, 1), outside(1, 4003)).is_ok());
}

#[test]
fn bitmaps_of_addresses_that_nobody_uses_are_given_up() {
    let capacity = Capacity { mappings: 10, hosts: 10 };
    let one = |last| vec![Named { name: 1, config: pool(last, last, [4000, 4009]) }];
    let mut table = Mappings::new(capacity, &configs(&one(1)), SEED, Share::WHOLE).unwrap();
    let bytes = table.memory_bytes();
    let held = table.map(PoolId(0), inside(1, 1), &mut NoTally).unwrap();
    change(&mut table, &one(1), &one(2));
    assert!(table.memory_bytes() > bytes);
    assert_eq!(table.pool_of(held.id), None);
    for turn in 2..100 {
        change(&mut table, &one(turn), &one(turn + 1));
        // The first address's bitmaps, and those of the present one.
        assert_eq!(table.memory_bytes(), bytes + Mappings::bytes_of_address());
    }
    table.release(held.id, &mut NoTally);
    change(&mut table, &one(100), &one(1));
    assert_eq!(table.memory_bytes(), bytes);
    // One more, as addresses come before others go.
    assert_eq!((table.outside.len(), table.pools.len()), (3, 1));
}
