//! A policy's rules, as sets over interfaces and MAC addresses that may be another policy's, too.

use std::ops::Range;

use biodivine_lib_bdd::Bdd;
use dataplane::compile::{RulePattern, patterns_by};
use dataplane::tables::{CompileError, LOCAL, NO_MAC, SetUses, SourceMacs};
use lookup::classify::bdd::field::{Field, Version};
use lookup::classify::bdd::product::{Product, Span};
use lookup::classify::bdd::set::bdd;
use lookup::classify::{Pattern, Position};
use policy::Policy;
use policy::model::{OTHER_ZONE, Rule, SELF_ZONE};
use wire::header::Protocol;
use wire::{LinkKind, Nanos};

use super::algebra::{Algebra, PAIRS_PER_NODE, Spent};
use super::outline::Outline;
use super::{Decider, Fate};

/// Interfaces and classes of MAC addresses that the numbers in headers stand for.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Interfaces by name. The gateway itself is [`LOCAL`].
    pub(super) names: Vec<String>,
    /// Link kind of each interface: its frames have an Ethernet header or not.
    links: Vec<LinkKind>,
    /// Classes of source MAC addresses; `None` where no rule asks for any.
    pub(super) macs: Option<SourceMacs>,
    /// Dynamic sets that rules ask for, a bit of headers each. Whatever they have in them is considered.
    pub(super) sets: SetUses,
    /// Different additions of rules to sets: the set, and the lifetime of the element.
    additions: Vec<(String, Option<Nanos>)>,
}

impl Space {
    /// Interfaces of these names and the addresses that rules of these policies ask for. Of an interface that they have as
    /// different links it is the last one's.
    pub(super) fn of(names: Vec<String>, policies: &[&Policy]) -> Result<Space, CompileError> {
        let link = |name: &String| {
            policies
                .iter()
                .rev()
                .find_map(|policy| policy.interface(name))
                .map_or(LinkKind::Ethernet, |of| of.link)
        };
        let links = names.iter().map(link).collect();
        let mut additions = Vec::new();
        for rule in policies.iter().flat_map(|policy| &policy.rules) {
            additions.extend(addition(rule).filter(|addition| !additions.contains(addition)));
        }
        let macs = SourceMacs::of(policies.iter().copied())?;
        Ok(Space { names, links, macs, sets: SetUses::of_rules(policies.iter().copied())?, additions })
    }

    /// The fate by a rule.
    fn fate(&self, rule: &Rule) -> Fate {
        let number = addition(rule).and_then(|own| self.additions.iter().position(|one| *one == own));
        Fate { adds: number.map(|number| number as u32), ..Fate::by_rule(rule) }
    }

    /// The classes that packets by an interface can have; every one where no rule asks.
    pub(super) fn classes(&self, ingress: u16) -> Option<Span> {
        let highest = self.macs.as_ref()?.highest();
        Some(match self.links.get(usize::from(ingress)) {
            Some(LinkKind::Ip) => Span { first: NO_MAC.into(), last: NO_MAC.into() },
            Some(LinkKind::Ethernet) | None => Span { first: 1, last: highest.into() },
        })
    }
}

/// Addition of a rule to a dynamic set.
fn addition(rule: &Rule) -> Option<(String, Option<Nanos>)> {
    rule.add_source.clone().map(|set| (set, rule.add_for))
}

/// The rules that can meet a packet, in order.
pub(super) struct Ruling {
    pub(super) judges: Vec<Judge>,
    /// Outlines of the judges, by version; the outline of all headers for a judge without a product, which is asked for
    /// next.
    outlines: [Vec<Outline>; 2],
    /// Default fates, by interface of origin, then of destination; the gateway itself is last.
    defaults: Vec<Vec<Fate>>,
}

/// A rule, or a part of one: a rule that asks for one of several dynamic sets has a part for each, all in a row.
pub(super) struct Judge {
    pub(super) place: Position,
    pub(super) fate: Fate,
    pub(super) products: [Option<Product>; 2],
}

impl Judge {
    pub(super) fn product(&self, version: Version) -> Option<&Product> {
        self.products[version as usize].as_ref()
    }

    pub(super) fn decider(&self) -> Decider {
        Decider::Rule(self.place)
    }
}

impl Ruling {
    /// The rules of `policy` for packets by the interfaces of a space; it has all of them.
    pub(super) fn of(policy: &Policy, space: &Space) -> Result<Ruling, CompileError> {
        let Space { names, macs, sets, .. } = space;
        let zones: Vec<&str> = names
            .iter()
            .map(|name| policy.interface(name).map_or(SELF_ZONE, |interface| interface.zone.as_str()))
            .collect();
        // Where there is no interface, rules can be looked at all the same.
        let from = if zones.is_empty() { &[SELF_ZONE][..] } else { &zones };
        let defaults = from
            .iter()
            .map(|from| {
                let to = zones.iter().copied().chain([SELF_ZONE]);
                to.map(|to| Fate::by_default(policy.default_action(from, to))).collect()
            })
            .collect();
        let mut judges = Vec::new();
        for RulePattern { rule: place, pattern } in patterns_by(policy, macs.as_ref(), sets)? {
            let Some(rule) = policy.rules.get(place as usize) else { continue };
            let fate = space.fate(rule);
            let admits = |zones: &[String], interfaces: &[String], name: &str, zone: &str| {
                (zones.is_empty() || zones.iter().any(|one| one == zone))
                    && (interfaces.is_empty() || interfaces.iter().any(|one| one == name))
            };
            let places = |listed: &[String], interfaces: &[String]| -> Vec<Span> {
                let own = names.iter().zip(&zones).enumerate();
                own.filter(|(_, (name, zone))| admits(listed, interfaces, name, zone))
                    .map(|(number, _)| Span { first: number as u128, last: number as u128 })
                    .collect()
            };
            let origins = places(&rule.conditions.from, &rule.conditions.in_interfaces);
            let mut ends = places(&rule.conditions.to, &rule.conditions.out_interfaces);
            if admits(&rule.conditions.to, &rule.conditions.out_interfaces, SELF_ZONE, SELF_ZONE) {
                ends.push(Span { first: LOCAL.0.into(), last: LOCAL.0.into() });
            }
            // Of what Linux forwards from interfaces that are not the policy's alone: of no packet that is looked at here.
            if rule.conditions.from.iter().all(|zone| zone == OTHER_ZONE) && !rule.conditions.from.is_empty()
            {
                continue;
            }
            let everywhere = (origins.len() == names.len(), ends.len() > names.len());
            let pattern =
                Pattern { from: u64::MAX, to: u64::MAX, ingress: Vec::new(), egress: Vec::new(), ..pattern };
            let products = Version::BOTH.map(|version| {
                let mut product = Product::of(&pattern, version)?;
                if !everywhere.0 {
                    product.limit(Field::Ingress, Some(origins.clone()), version);
                }
                if !everywhere.1 {
                    product.limit(Field::Egress, Some(ends.clone()), version);
                }
                (!product.is_empty()).then_some(product)
            });
            judges.push(Judge { place, fate, products });
        }
        let outlines = Version::BOTH.map(|version| {
            let of = |judge: &Judge| Outline::of(judge.product(version).unwrap_or(&Product::all()), version);
            judges.iter().map(of).collect()
        });
        Ok(Ruling { judges, outlines, defaults })
    }

    /// The places of all rules.
    pub(super) fn places(&self) -> Range<usize> {
        0..self.judges.len()
    }

    /// The rules among those at `places` that have packets in common with a product, each with its place and product.
    pub(super) fn overlapping<'a>(
        &'a self,
        places: Range<usize>,
        product: &'a Product,
        version: Version,
        algebra: &mut Algebra<'_>,
    ) -> Result<impl Iterator<Item = (usize, &'a Judge, &'a Product)> + use<'a>, Spent> {
        algebra.spend(places.len() as u64 / PAIRS_PER_NODE)?;
        let asked = Outline::of(product, version);
        let outlines = &self.outlines[version as usize][places.clone()];
        let near = places.zip(outlines).filter(move |(_, outline)| outline.meets(&asked));
        Ok(near.filter_map(move |(place, _)| {
            let judge = &self.judges[place];
            let theirs = judge.product(version).filter(|theirs| theirs.overlaps(product))?;
            Some((place, judge, theirs))
        }))
    }

    /// True if this is the fate of all packets of a product, as far as the rules show one by one.
    pub(super) fn does_only(
        &self,
        fate: Fate,
        product: &Product,
        version: Version,
        algebra: &mut Algebra<'_>,
    ) -> Result<bool, Spent> {
        for (_, judge, theirs) in self.overlapping(self.places(), product, version, algebra)? {
            if judge.fate != fate {
                return Ok(false);
            }
            if theirs.contains(product) {
                return Ok(true);
            }
        }
        Ok(self.defaults.iter().flatten().all(|default| *default == fate))
    }

    /// The default for packets from and to these interfaces.
    pub(super) fn default(&self, ingress: u16, egress: u16) -> Fate {
        let row = self.defaults.get(usize::from(ingress)).map_or(&[][..], Vec::as_slice);
        let fate = row.get(usize::from(egress)).or(row.last());
        fate.copied().unwrap_or(Fate::by_default(policy::model::Action::Drop))
    }

    /// The different defaults, each with the packets that have it, whatever the rules say.
    pub(super) fn defaults(&self, version: Version) -> Vec<(Fate, Bdd)> {
        let mut found: Vec<(Fate, Vec<Product>)> = Vec::new();
        for (ingress, row) in self.defaults.iter().enumerate() {
            for (egress, fate) in row.iter().enumerate() {
                let egress = if egress + 1 == row.len() { LOCAL.0 } else { egress as u16 };
                let product = way(ingress as u16, egress, version);
                match found.iter_mut().find(|(known, _)| known == fate) {
                    Some((_, products)) => products.push(product),
                    None => found.push((*fate, vec![product])),
                }
            }
        }
        found.into_iter().map(|(fate, products)| (fate, union(&products, version))).collect()
    }
}

/// All packets from one interface to another.
pub(super) fn way(ingress: u16, egress: u16, version: Version) -> Product {
    let mut product = Product::all();
    let single = |value: u16| Some(vec![Span { first: value.into(), last: value.into() }]);
    product.limit(Field::Ingress, single(ingress), version);
    product.limit(Field::Egress, single(egress), version);
    product
}

/// The union of a few products, whose number the policy bounds.
fn union(products: &[Product], version: Version) -> Bdd {
    match products {
        [] => Algebra::nothing(version),
        [product] => bdd(product, version),
        many => {
            let (some, others) = many.split_at(many.len() / 2);
            union(some, version).or(&union(others, version))
        }
    }
}

/// All ways through the gateway: one for each kind of link.
pub(super) fn ways(space: &Space, version: Version) -> Vec<Product> {
    let many = space.names.len() as u16;
    let single = |number: u16| Span { first: number.into(), last: number.into() };
    let ends: Vec<Span> = (0..many).chain([LOCAL.0]).map(single).collect();
    let mut found: Vec<(Option<Span>, Vec<Span>)> = Vec::new();
    for ingress in 0..many.max(1) {
        let classes = space.classes(ingress);
        match found.iter_mut().find(|(known, _)| *known == classes) {
            Some((_, origins)) => origins.push(single(ingress)),
            None => found.push((classes, vec![single(ingress)])),
        }
    }
    let product = |(classes, origins): (Option<Span>, Vec<Span>)| {
        let mut way = Product::all();
        way.limit(Field::Ingress, Some(origins), version);
        way.limit(Field::Egress, Some(ends.clone()), version);
        way.limit(Field::SourceMac, classes.map(|classes| vec![classes]), version);
        way
    };
    found.into_iter().map(product).collect()
}

/// The headers that there can be: from an interface, to one or to the gateway, and with ports, ICMP types and TCP flags
/// where the protocol has such things.
pub(super) fn possible(space: &Space, version: Version) -> Bdd {
    union(&ways(space, version), version).and(&union(&shapes(version), version))
}

/// Returns the possible headers of each kind of protocol.
pub(super) fn shapes(version: Version) -> Vec<Product> {
    let zero = || Some(vec![Span { first: 0, last: 0 }]);
    let message = match version {
        Version::V4 => Protocol::ICMP,
        Version::V6 => Protocol::ICMPV6,
    };
    let all = (0..=u8::MAX).map(Protocol);
    let (with_ports, without): (Vec<Protocol>, Vec<Protocol>) =
        all.filter(|one| *one != Protocol::TCP && *one != message).partition(|one| one.has_ports());
    let product = |protocols: &[Protocol], fields: &[Field]| {
        let mut product = Product::all();
        let single = |one: &Protocol| Span { first: one.0.into(), last: one.0.into() };
        product.limit(Field::Protocol, Some(protocols.iter().map(single).collect()), version);
        for field in fields {
            product.limit(*field, zero(), version);
        }
        product
    };
    vec![
        product(&[Protocol::TCP], &[]),
        product(&with_ports, &[Field::Flags]),
        // The identifier of an echo stands in the place of the source port.
        product(&[message], &[Field::Flags]),
        product(&without, &[Field::Flags, Field::Sport, Field::Dport]),
    ]
}

/// Packets, by their deciders.
pub(super) struct Decided<'a> {
    /// Judges in order, each with the packets that it decides on.
    pub(super) parts: Vec<(&'a Judge, Bdd)>,
    /// Packets that no judge decides on.
    pub(super) left: Bdd,
}

/// The first judges in order that decide on some of `packets`, each with those packets, and what no judge decides on.
pub(super) fn decided<'a>(
    ruling: &'a Ruling,
    judges: Range<usize>,
    version: Version,
    within: &'a Product,
    packets: &Bdd,
    algebra: &mut Algebra<'_>,
) -> Result<Decided<'a>, Spent> {
    let mut left = packets.clone();
    let mut parts = Vec::new();
    for (_, judge, product) in ruling.overlapping(judges, within, version, algebra)? {
        if left.is_false() {
            break;
        }
        let theirs = bdd(product, version);
        if algebra.meet(&left, &theirs)? {
            let part = algebra.both(&left, &theirs)?;
            left = algebra.without(&left, &theirs)?;
            parts.push((judge, part));
        }
    }
    Ok(Decided { parts, left })
}
