//! Renumbering: places of rules, interfaces, pools, translations and traffic classes in the old tables and in the new ones, by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use wire::{Meta, PortId};

use super::{NO_NUMBER, PoolOwner, Tables, is_linux};
use crate::nat::PoolConfig;
use crate::recorder::NOWHERE;
use crate::verdict::Reason;

/// Renumbering from places in the old tables to places in the new ones, and back.
pub(crate) struct Renumbering {
    /// Places in the old tables, by place in the new ones.
    pub(crate) rules_were: Vec<Option<u32>>,
    pub(crate) interfaces_were: Vec<Option<u16>>,
    pub(crate) pools_were: Vec<Option<u16>>,
    /// Places in the new tables, by place in the old ones.
    pub(crate) rules_become: Vec<Option<u32>>,
    pub(crate) interfaces_become: Vec<Option<u16>>,
    pub(crate) destinations_become: Vec<Option<u16>>,
    pub(crate) sources_become: Vec<Option<u16>>,
    pub(crate) classes_become: Vec<Option<u16>>,
    /// Numbers of trees of incoming packets in the new tables, by their numbers in the old ones, from 0 for none.
    trees_become: Vec<u8>,
    /// Number of source translations in the new tables, plus one.
    width: u16,
    /// New numbers of conntrack zones that are renumbered; `None` if ambiguous.
    pub(crate) ct_zones: BTreeMap<u16, Option<u16>>,
}

impl Renumbering {
    pub(crate) fn new(old: &Tables, new: &Tables) -> Renumbering {
        let rules = |tables: &Tables| tables.filter.rules.iter().map(|rule| rule.number).collect::<Vec<_>>();
        let interfaces = |tables: &Tables| tables.interfaces.iter().map(|of| of.number).collect::<Vec<_>>();
        fn classes(tables: &Tables) -> Vec<&str> {
            tables.classes.list.iter().map(|class| class.name.as_str()).collect()
        }
        let interfaces_become: Vec<Option<u16>> = places(&interfaces(old), &interfaces(new));
        let tree = |number: u8| {
            let PortId(place) = old.queues.interface(number)?;
            let port = interfaces_become.get(usize::from(place)).copied().flatten()?;
            Some(new.queues.number(PortId(port)))
        };
        let trees_become = (0..=u8::MAX).map(|number| tree(number).unwrap_or(0)).collect();
        let destinations = old.nat.destinations.iter().map(|nat| new.destination_numbered(nat.number));
        let sources = old.nat.sources.iter().map(|nat| new.source_numbered(nat.number));
        Renumbering {
            rules_were: places(&rules(new), &rules(old)),
            interfaces_were: places(&interfaces(new), &interfaces(old)),
            pools_were: places(&pools(new), &pools(old)),
            rules_become: places(&rules(old), &rules(new)),
            interfaces_become,
            destinations_become: destinations.collect(),
            sources_become: sources.collect(),
            classes_become: places(&classes(old), &classes(new)),
            trees_become,
            width: new.nat.sources.len() as u16 + 1,
            ct_zones: ct_zones(old, new),
        }
    }

    /// Pair of translations in the new tables; a translation that is gone becomes none.
    pub(crate) fn pair(&self, pair: u16) -> u16 {
        let width = self.sources_become.len() as u16 + 1;
        let becomes = |counted: u16, list: &[Option<u16>]| {
            let place = usize::from(counted).checked_sub(1).and_then(|place| *list.get(place)?);
            place.map_or(0, |place| place + 1)
        };
        let destination = becomes(pair / width, &self.destinations_become);
        destination * self.width + becomes(pair % width, &self.sources_become)
    }

    /// Interface in the new tables; `None` if gone.
    pub(crate) fn interface(&self, id: PortId) -> Option<PortId> {
        if is_linux(id) {
            return Some(id);
        }
        self.interfaces_become.get(usize::from(id.0)).copied().flatten().map(PortId)
    }

    /// Renumbers the interfaces of a held frame.
    ///
    /// # Errors
    /// [`Reason::InterfaceGone`]
    pub(crate) fn carry(&self, meta: &mut Meta) -> Result<(), Reason> {
        let ingress = self.interface(meta.ingress);
        meta.outer_tree = self.tree(meta.outer_tree);
        // What Linux sends says which way it is to go.
        let egress = if is_linux(meta.ingress) { self.interface(meta.egress) } else { Some(meta.egress) };
        (meta.ingress, meta.egress) = (ingress.unwrap_or(NOWHERE), egress.unwrap_or(NOWHERE));
        ingress.and(egress).map(|_| ()).ok_or(Reason::InterfaceGone)
    }

    /// Renumbers interface, rule and translations of a frame queued for the interface at `egress`; gone ones become none.
    pub(crate) fn send_on(&self, meta: &mut Meta, egress: PortId) {
        meta.egress = egress;
        meta.ingress = self.interface(meta.ingress).unwrap_or(NOWHERE);
        meta.outer_tree = self.tree(meta.outer_tree);
        meta.rule = self.rules_become.get(meta.rule as usize).copied().flatten().unwrap_or(Meta::NO_RULE);
        meta.nat = self.pair(meta.nat);
        let class =
            usize::from(meta.class).checked_sub(1).and_then(|class| *self.classes_become.get(class)?);
        meta.class = class.map_or(0, |class| class + 1);
    }

    /// Number of a tree of incoming packets in the new tables; 0 if gone.
    fn tree(&self, number: u8) -> u8 {
        self.trees_become.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Conntrack zone of a datagram in the new tables; `None` if ambiguous.
    pub(crate) fn ct_zone(&self, ct_zone: u16) -> Option<u16> {
        self.ct_zones.get(&ct_zone).copied().unwrap_or(Some(ct_zone))
    }
}

/// Keys of the pools: translation, interface, and the interface's address.
fn pools(tables: &Tables) -> Vec<(u32, u32, Option<IpAddr>)> {
    let nat = &tables.nat;
    let key = |(owner, config): (&PoolOwner, &PoolConfig)| {
        let source = nat.sources.get(usize::from(owner.source)).map_or(NO_NUMBER, |nat| nat.number);
        let interface = owner.interface.and_then(|id| tables.interface(id));
        let address = config.addresses.first().filter(|_| interface.is_some()).map(|range| range.first);
        (source, interface.map_or(NO_NUMBER, |of| of.number), address)
    };
    nat.owners.iter().zip(&nat.pools).map(key).collect()
}

/// The place of each in another list.
fn places<K: Copy + Eq + std::hash::Hash, P: TryFrom<usize>>(of: &[K], there: &[K]) -> Vec<Option<P>> {
    let known: HashMap<K, usize> = there.iter().copied().zip(0..).collect();
    of.iter().map(|key| P::try_from(*known.get(key)?).ok()).collect()
}

/// New numbers of conntrack zones that are renumbered; `None` if ambiguous.
fn ct_zones(old: &Tables, new: &Tables) -> BTreeMap<u16, Option<u16>> {
    let mut after: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
    for before in &old.interfaces {
        if let Some(now) = new.interface_numbered(before.number).and_then(|id| new.interface(id)) {
            after.entry(before.ct_zone).or_default().insert(now.ct_zone);
        }
    }
    after
        .into_iter()
        .filter(|(ct_zone, now)| now.len() > 1 || !now.contains(ct_zone))
        .map(|(ct_zone, now)| (ct_zone, if now.len() == 1 { now.first().copied() } else { None }))
        .collect()
}
