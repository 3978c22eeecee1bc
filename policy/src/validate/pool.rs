//! Pools of outside addresses and their ports: size, and exclusive use.

use super::Validator;
use super::shape::merged;
use super::space::{Family, Space};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{AddressRange, Balance, Clat, Nat, Nat64, NatAction, OnDemand, PortRange, PortUse};

impl Validator<'_> {
    pub(super) fn pools(&mut self) {
        let policy = self.policy;
        for (index, nat) in policy.nats.iter().enumerate() {
            let item = Item::Nat(index);
            if self.lines.is_broken(item) {
                continue;
            }
            match &nat.action {
                NatAction::Masquerade { ports } => {
                    self.port_use(item, ports);
                    self.port_mapping(item, nat, ports);
                    // Each interface by itself has to have room.
                    self.blocks(
                        item,
                        nat,
                        ports,
                        &Space::of_ranges(one_address_each()),
                        "the interface's address",
                    );
                }
                NatAction::Source { pool, ports } => {
                    self.port_use(item, ports);
                    self.port_mapping(item, nat, ports);
                    let space = Space::of_ranges(pool.iter().copied());
                    self.blocks(item, nat, ports, &space, "the pool");
                    self.overlaps(index, pool, ports);
                }
                NatAction::Nat64(nat64) => {
                    self.port_use(item, &nat64.ports);
                    if nat64.ports.block_by_arithmetic().is_some() {
                        let message = "nobody counts the IPv6 addresses that would own blocks".to_owned();
                        let hint = "`blocks-per-host` gives blocks on demand";
                        self.wrong(Code::BlockMisfit, item, "block", message, hint);
                    }
                    self.blocks_on_demand(item, &nat64.ports);
                    self.overlaps(index, &nat64.pool, &nat64.ports);
                }
                NatAction::Clat(clat) => {
                    self.port_use(item, &clat.ports);
                    self.overlaps(index, &clat.pool, &clat.ports);
                }
                NatAction::Exempt
                | NatAction::Forward { .. }
                | NatAction::Balance(_)
                | NatAction::Redirect { .. }
                | NatAction::OneToOne { .. }
                | NatAction::Npt { .. } => {}
            }
        }
    }

    fn port_use(&mut self, item: Item, ports: &PortUse) {
        if ports.ranges.iter().any(|range| range.first == 0) {
            let message = "port 0 cannot be handed out".to_owned();
            self.wrong(Code::PortOverflow, item, "ports", message, "begin at 1, or at 1024 as by default");
        }
        if ports.quota == Some(0) {
            let message = "with `quota` = 0 nobody would get a port".to_owned();
            self.wrong(Code::BadLimit, item, "quota", message, "1 at least, or leave it out for no bound");
        }
    }

    /// Reports outside addresses with too few ports for a block of each source (RFC 7422, section 2).
    fn blocks(&mut self, item: Item, nat: &Nat, ports: &PortUse, outside: &Space, whose: &str) {
        self.blocks_on_demand(item, ports);
        let Some(block) = ports.block_by_arithmetic() else { return };
        // A block lies within one range.
        let ranges = merged(&ports.ranges);
        let blocks_of = |range: &PortRange| size(*range).checked_div(block.into()).unwrap_or(0);
        let per_address: u128 = ranges.iter().map(|range| u128::from(blocks_of(range))).sum();
        let all: u32 = ranges.iter().map(|range| size(*range)).sum();
        if per_address == 0 {
            let message = format!("a block of {block} ports does not fit in {all} ports");
            self.wrong(Code::BlockMisfit, item, "block", message, "from 1 to the number of `ports`");
            return;
        }
        if nat.source.items.is_empty() || nat.source.except {
            let message = "blocks of ports need a `source` that is counted".to_owned();
            let hint = "list the inside addresses: source = \"10.0.0.0/16\"";
            self.wrong(Code::BlockMisfit, item, "block", message, hint);
            return;
        }
        let hint = "each address of `source` owns a block from the start: write addresses or a set of [set], or blocks on demand (`blocks-per-host`)";
        if self.has_dynamic_sets(item, "source", &nat.source, hint) {
            return;
        }
        if ports.quota.is_some_and(|quota| quota > block.into()) {
            let message = format!("a quota past the block of {block} ports has no effect");
            self.wrong(Code::BlockMisfit, item, "quota", message, "leave it out: the block is the quota");
        }
        let source = self.spaces.of_addresses(&nat.source);
        for family in outside.families().filter(|family| source.has(*family)) {
            let (inside, addresses) = (source.count(family), outside.count(family));
            let blocks = addresses.saturating_mul(per_address);
            if inside > blocks {
                let message =
                    format!("{inside} inside addresses need as many blocks, and there are {blocks}");
                let hint = format!(
                    "{whose}: addresses {addresses} x ({} ports / {block} = {per_address} blocks) = {blocks} blocks; \
                     {} addresses are needed, or smaller blocks",
                    all,
                    inside.div_ceil(per_address)
                );
                self.wrong(Code::BlockMisfit, item, "block", message, hint);
            }
        }
    }

    /// Reports blocks on demand that no host could take, or that would be of no use.
    fn blocks_on_demand(&mut self, item: Item, ports: &PortUse) {
        let Some(most) = ports.blocks_per_host else { return };
        let Some(block) = ports.block else {
            let message = "`blocks-per-host` without `block`".to_owned();
            let hint = "give the ports of a block: block = 512";
            return self.wrong(Code::BlockMisfit, item, "blocks-per-host", message, hint);
        };
        if most == 0 || most > OnDemand::MOST {
            let message = format!("{most} blocks of a host");
            let hint = format!("from 1 to {}", OnDemand::MOST);
            self.wrong(Code::BlockMisfit, item, "blocks-per-host", message, hint);
        }
        if block < OnDemand::LEAST {
            let message = format!("blocks on demand of {block} ports");
            let hint = format!("{} at least", OnDemand::LEAST);
            return self.wrong(Code::BlockMisfit, item, "block", message, hint);
        }
        let has_block = |range: &PortRange| {
            let first = u32::from(range.first).next_multiple_of(block.into());
            first + u32::from(block) <= u32::from(range.last) + 1
        };
        if !merged(&ports.ranges).iter().any(has_block) {
            let message = format!("no block of {block} ports is within `ports`");
            let hint = format!("blocks begin at multiples of {block}");
            return self.wrong(Code::BlockMisfit, item, "block", message, hint);
        }
        let all = u32::from(block) * u32::from(most);
        if ports.quota.is_some_and(|quota| quota > all) {
            let message = format!("a quota past the {all} ports of {most} blocks has no effect");
            self.wrong(Code::BlockMisfit, item, "quota", message, "leave it out: the blocks are the quota");
        }
    }

    /// Reports addresses that the pool of translation `index` shares with others.
    fn overlaps(&mut self, index: usize, pool: &[AddressRange], ports: &PortUse) {
        let policy = self.policy;
        let item = Item::Nat(index);
        let space = Space::of_ranges(pool.iter().copied());
        let mut found: Vec<(String, Option<Item>)> = Vec::new();
        let given: u128 =
            pool.iter().map(|range| total(&Space::of_ranges([*range]))).fold(0, u128::saturating_add);
        if given > total(&space) {
            found.push(("itself: an address is there twice".to_owned(), None));
        }
        if space.overlaps(&self.own) {
            found.push(("the gateway's own addresses".to_owned(), None));
        }
        for (at, other) in policy.nats.iter().enumerate().filter(|(at, _)| *at != index) {
            let (theirs, their_ports) = match &other.action {
                // Of two pools, the later one is reported.
                NatAction::Source { pool, ports }
                | NatAction::Nat64(Nat64 { pool, ports, .. })
                | NatAction::Clat(Clat { pool, ports, .. })
                    if at < index =>
                {
                    (Space::of_ranges(pool.iter().copied()), ports.ranges.clone())
                }
                NatAction::Forward { outside: Some(outside), ports, .. }
                | NatAction::Balance(Balance { outside: Some(outside), ports, .. }) => {
                    (Space::of(*outside), ports.clone())
                }
                NatAction::OneToOne { outside, .. } | NatAction::Npt { outside, .. } => {
                    (Space::of_net(*outside), Vec::new())
                }
                _ => continue,
            };
            let shares_ports = their_ports.is_empty()
                || their_ports.iter().any(|range| ports.ranges.iter().any(|own| meet(*range, *own)));
            if shares_ports && space.overlaps(&theirs) {
                found.push((format!("the translation \"{}\"", other.name), Some(Item::Nat(at))));
            }
        }
        for (what, other) in found {
            let message = format!("the pool of \"{}\" shares addresses with {what}", policy.nats[index].name);
            let diagnostic = Diagnostic::new(Code::PoolOverlap, message)
                .hint("give the pool addresses, or ports, that nothing else uses")
                .at(self.lines.place_of(item, "pool"))
                .and("the other", other.and_then(|other| self.lines.place(other)));
            self.report(diagnostic);
        }
    }
}

/// Least pool of a masquerade: one outside address of each family.
fn one_address_each() -> [AddressRange; 2] {
    use std::net::{Ipv4Addr, Ipv6Addr};
    [AddressRange::single(Ipv4Addr::UNSPECIFIED.into()), AddressRange::single(Ipv6Addr::UNSPECIFIED.into())]
}

fn size(range: PortRange) -> u32 {
    u32::from(range.last.saturating_sub(range.first)) + 1
}

fn total(space: &Space) -> u128 {
    Family::BOTH.iter().map(|family| space.count(*family)).fold(0, u128::saturating_add)
}

fn meet(a: PortRange, b: PortRange) -> bool {
    a.first <= b.last && b.first <= a.last
}
