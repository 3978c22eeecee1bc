//! Rules that decide nothing, redundant rules, and rules whose order matters.
//!
//! Most rules are soon known to matter, by a packet that only they let in: a few headers are tried with each. Rules that
//! these do not settle are settled by sets.

use std::collections::BTreeMap;

use biodivine_lib_bdd::Bdd;
use dataplane::tables::{CompileError, SetUses, SourceMacs};
use lookup::classify::bdd::field::{Field, ORDER, Version};
use lookup::classify::bdd::product::{Product, Span, both};
use lookup::classify::bdd::set::bdd;
use lookup::classify::{Header, Position};
use policy::Policy;
use wire::random::Random;

use super::algebra::{Algebra, Effort, Spent};
use super::region::{Families, products};
use super::ruling::{Judge, Ruling, Space, decided, possible, shapes};
use super::{Decider, Fate, Region};

/// Limit on the effort for a set that would only make a nicer example, in nodes.
const LITTLE: u64 = 20_000;

/// Kinds of findings to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Rules without effect.
    Effect,
    /// Rules without effect, and rules in conflict.
    EffectAndOverlaps,
}

/// Something about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No packet can meet the rule's conditions.
    Impossible {
        /// The rule.
        rule: Position,
    },
    /// Earlier rules match all that the rule matches.
    Hidden {
        /// The rule.
        rule: Position,
        /// Rules that together match all of it, none of which could be left out.
        by: Vec<Position>,
        /// Packets that the rule matches.
        packets: Region,
    },
    /// Without the rule every packet would have the same fate. All rules found redundant can be left out at once.
    Redundant {
        /// The rule.
        rule: Position,
        /// Deciders without the rule.
        instead: Vec<Decider>,
        /// Packets that the rule decides on.
        packets: Region,
    },
    /// Two rules, neither of which matches all that the other does, do different things to packets that both match.
    Overlap {
        /// The rule that decides.
        first: Position,
        /// The rule that would decide, if it came first.
        second: Position,
        /// Packets that both match.
        packets: Region,
    },
}

/// Result of the search for findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Findings, in the order of the rules.
    pub list: Vec<Finding>,
    /// Rules left open at the end of the effort: their effect, or their conflicts, are not known.
    pub open: Vec<Position>,
    /// Conflicts past [`MOST_OVERLAPS`] are not looked for.
    pub more_overlaps: bool,
    /// Classes of source MAC addresses, by which regions have them; `None` where no rule asks for any.
    pub macs: Option<SourceMacs>,
    /// Dynamic sets that rules ask for, by which regions have them.
    pub sets: SetUses,
}

/// The most conflicts that are reported.
pub const MOST_OVERLAPS: usize = 200;

/// Headers that are tried with a rule, before sets are made.
const TRIALS: usize = 24;

/// Later rules that do something else with which headers are tried.
const MOST_TRIED: usize = 100;

/// No rule takes more than this part of the effort.
const SHARE: u64 = 400;

/// Looks at the rules of `policy`. Interfaces are numbered as it has them.
///
/// # Errors
/// The policy cannot be compiled.
pub fn findings(policy: &Policy, look: Look, effort: Effort<'_>) -> Result<Findings, CompileError> {
    let names: Vec<String> = policy.interfaces.iter().map(|interface| interface.name.clone()).collect();
    let space = Space::of(names, &[policy])?;
    let ruling = Ruling::of(policy, &space)?;
    let mut search = Search {
        judges: &ruling.judges,
        defaults: Version::BOTH.map(|version| ruling.defaults(version)),
        possible: Version::BOTH.map(|version| possible(&space, version)),
        ruling: &ruling,
        space: &space,
        gone: vec![Gone::No; ruling.judges.len()],
        algebra: Algebra::new(effort),
        share: effort.nodes() / SHARE,
        found: Findings {
            list: Vec::new(),
            open: Vec::new(),
            more_overlaps: false,
            macs: None,
            sets: SetUses::default(),
        },
        random: Random::new(1),
    };
    for at in 0..search.judges.len() {
        search.settle(at, Search::hidden);
    }
    // From the last one up, so that all that are found can be left out together.
    for at in (0..search.judges.len()).rev() {
        if search.gone[at] == Gone::No {
            search.settle(at, Search::redundant);
        }
    }
    if look == Look::EffectAndOverlaps {
        for at in 0..search.judges.len() {
            if search.gone[at] == Gone::No {
                search.settle(at, Search::overlaps);
            }
        }
    }
    let mut found = search.found;
    found.list = whole(found.list, &ruling.judges);
    // What rules do with what Linux forwards is not looked at, so none that also decides on that is without effect.
    let is_looked_at =
        |place: Position| policy.rules.get(place as usize).is_none_or(|rule| !rule.conditions.names_other());
    found.list.retain(|finding| matches!(finding, Finding::Overlap { .. }) || is_looked_at(finding.rule()));
    found.list.sort_by_key(Finding::rule);
    found.open.sort_unstable();
    found.open.dedup();
    (found.macs, found.sets) = (space.macs, space.sets);
    Ok(found)
}

/// Findings about rules, from those about their parts: a rule has no effect if none of its parts has.
fn whole(parts: Vec<Finding>, judges: &[Judge]) -> Vec<Finding> {
    let count = |rule: Position| judges.iter().filter(|judge| judge.place == rule).count();
    let (overlaps, effects): (Vec<Finding>, Vec<Finding>) =
        parts.into_iter().partition(|finding| matches!(finding, Finding::Overlap { .. }));
    let mut list: Vec<Finding> = Vec::new();
    for overlap in overlaps {
        let Finding::Overlap { first, second, .. } = &overlap else { continue };
        let is_same = |known: &Finding| matches!(known, Finding::Overlap { first: one, second: other, .. } if one == first && other == second);
        if !list.iter().any(is_same) {
            list.push(overlap);
        }
    }
    let mut rules: BTreeMap<Position, Vec<Finding>> = BTreeMap::new();
    for finding in effects {
        rules.entry(finding.rule()).or_default().push(finding);
    }
    list.extend(
        rules
            .into_iter()
            .filter(|(rule, parts)| count(*rule) == parts.len())
            .filter_map(|(_, parts)| joined(parts)),
    );
    list
}

/// Finding about a rule from those about all its parts.
fn joined(parts: Vec<Finding>) -> Option<Finding> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next()?;
    for part in parts {
        whole = match (whole, part) {
            (Finding::Impossible { .. }, other) | (other, Finding::Impossible { .. }) => other,
            (Finding::Hidden { rule, mut by, packets }, Finding::Hidden { by: more, .. }) => {
                by.extend(more);
                Finding::Hidden { rule, by, packets }
            }
            (Finding::Redundant { rule, mut instead, packets }, Finding::Redundant { instead: more, .. }) => {
                instead.extend(more);
                Finding::Redundant { rule, instead, packets }
            }
            (Finding::Redundant { rule, mut instead, packets }, Finding::Hidden { by, .. })
            | (Finding::Hidden { by, .. }, Finding::Redundant { rule, mut instead, packets }) => {
                instead.extend(by.into_iter().map(Decider::Rule));
                Finding::Redundant { rule, instead, packets }
            }
            (whole, _) => whole,
        };
    }
    match &mut whole {
        Finding::Hidden { rule, by, .. } => {
            by.retain(|one| one != rule);
            by.sort_unstable();
            by.dedup();
        }
        Finding::Redundant { rule, instead, .. } => {
            instead.retain(|one| *one != Decider::Rule(*rule));
            instead.sort_unstable();
            instead.dedup();
        }
        Finding::Impossible { .. } | Finding::Overlap { .. } => {}
    }
    Some(whole)
}

impl Finding {
    /// The rule that it is about.
    pub fn rule(&self) -> Position {
        match self {
            Finding::Impossible { rule }
            | Finding::Hidden { rule, .. }
            | Finding::Redundant { rule, .. }
            | Finding::Overlap { second: rule, .. } => *rule,
        }
    }
}

/// State of a rule in the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    No,
    /// The rule is found to have no effect, and is not considered any more.
    Yes,
}

struct Search<'a> {
    judges: &'a [Judge],
    ruling: &'a Ruling,
    space: &'a Space,
    defaults: [Vec<(Fate, Bdd)>; 2],
    possible: [Bdd; 2],
    gone: Vec<Gone>,
    algebra: Algebra<'a>,
    share: u64,
    found: Findings,
    /// For what only has to be various.
    random: Random,
}

/// A question about the rule at a place among the judges.
type Question<'a> = fn(&mut Search<'a>, usize) -> Result<(), Spent>;

impl<'a> Search<'a> {
    /// Asks, with a part of the effort.
    fn settle(&mut self, at: usize, question: Question<'a>) {
        let kept = self.algebra.set_aside(self.share);
        if question(self, at).is_err() {
            self.found.open.push(self.judges[at].place);
        }
        self.algebra.take_back(kept);
    }

    /// Tests a rule for being hidden: earlier rules match all that it matches.
    fn hidden(&mut self, at: usize) -> Result<(), Spent> {
        let judges = self.judges;
        let judge = &judges[at];
        let mut asked: Vec<(Version, &Product, Vec<usize>)> = Vec::new();
        for version in Version::BOTH {
            let Some(product) = judge.product(version) else { continue };
            let earlier = self.overlapping(product, version, 0..at)?;
            let samples = self.samples(product, version);
            let free = |header: &Header| !earlier.iter().any(|one| is_in(&judges[*one], header, version));
            if samples.iter().any(free) {
                return Ok(());
            }
            asked.push((version, product, earlier));
        }
        let mut by: Vec<usize> = Vec::new();
        let mut sets: Vec<(Version, Bdd)> = Vec::new();
        for (version, product, earlier) in asked {
            let mut left = self.set(product, version)?;
            if left.is_false() {
                continue;
            }
            sets.push((version, left.clone()));
            let whole =
                |one: &&usize| judges[**one].product(version).is_some_and(|wide| wide.contains(product));
            if let Some(whole) = earlier.iter().find(whole) {
                by.push(*whole);
                continue;
            }
            for one in earlier {
                let Some(theirs) = judges[one].product(version) else { continue };
                let theirs = bdd(theirs, version);
                if self.algebra.meet(&left, &theirs)? {
                    left = self.algebra.without(&left, &theirs)?;
                    by.push(one);
                }
                if left.is_false() {
                    break;
                }
            }
            if !left.is_false() {
                return Ok(());
            }
        }
        self.gone[at] = Gone::Yes;
        by.sort_unstable();
        by.dedup();
        let finding = match sets.first() {
            None => Finding::Impossible { rule: judge.place },
            Some((version, set)) => {
                let packets = self.region(set, *version)?;
                let by = self.needed(by, &sets)?;
                Finding::Hidden { rule: judge.place, by, packets }
            }
        };
        self.found.list.push(finding);
        Ok(())
    }

    /// Returns the rules of `by` that are needed to cover `sets`.
    fn needed(&mut self, by: Vec<usize>, sets: &[(Version, Bdd)]) -> Result<Vec<Position>, Spent> {
        let mut kept = by;
        let mut place = 0;
        while place < kept.len() && kept.len() > 1 {
            let mut others = kept.clone();
            others.remove(place);
            let mut covered = true;
            for (version, set) in sets {
                let mut left = set.clone();
                for one in &others {
                    if let Some(theirs) = self.judges[*one].product(*version) {
                        left = self.algebra.without(&left, &bdd(theirs, *version))?;
                    }
                }
                covered &= left.is_false();
            }
            if covered { kept = others } else { place += 1 }
        }
        Ok(kept.into_iter().map(|one| self.judges[one].place).collect())
    }

    /// Tests a rule for redundancy: without it, its packets would be decided the same.
    fn redundant(&mut self, at: usize) -> Result<(), Spent> {
        let judges = self.judges;
        let judge = &judges[at];
        if judge.fate.counts() {
            return Ok(());
        }
        for version in Version::BOTH {
            let Some(product) = judge.product(version) else { continue };
            let earlier = self.overlapping(product, version, 0..at)?;
            let later = self.overlapping(product, version, at + 1..judges.len())?;
            let ruling = self.ruling;
            // Whether the rule decides on it, and another would do something else.
            let notices = |header: &Header| {
                let next = || later.iter().find(|one| is_in(&judges[**one], header, version));
                let fate = || match next() {
                    Some(next) => judges[*next].fate,
                    None => ruling.default(header.ingress, header.egress),
                };
                !earlier.iter().any(|one| is_in(&judges[*one], header, version)) && fate() != judge.fate
            };
            if self.samples(product, version).iter().any(notices) {
                return Ok(());
            }
            // Where a rule matches nearly everything, what others of its packets would meet is seldom hit by chance.
            for other in later.iter().filter(|one| judges[**one].fate != judge.fate).take(MOST_TRIED) {
                self.algebra.spend(earlier.len() as u64)?;
                let shared = judges[*other].product(version).and_then(|other| other.within(product, version));
                if shared.is_some_and(|shared| self.samples(&shared, version).iter().any(notices)) {
                    return Ok(());
                }
            }
        }
        if let Some(other) = self.taken_over(at)? {
            let packets = self.some_decided(at)?;
            if let Some(packets) = packets {
                self.gone[at] = Gone::Yes;
                let instead = vec![judges[other].decider()];
                self.found.list.push(Finding::Redundant { rule: judge.place, instead, packets });
            }
            return Ok(());
        }
        let mut instead = Vec::new();
        let mut packets = None;
        for version in Version::BOTH {
            let Some(product) = judge.product(version) else { continue };
            let mut left = self.decided_by(at, product, version)?;
            if packets.is_none() && !left.is_false() {
                packets = Some(self.region(&left, version)?);
            }
            for one in self.overlapping(product, version, at + 1..judges.len())? {
                if left.is_false() {
                    break;
                }
                let Some(theirs) = judges[one].product(version) else { continue };
                let theirs = bdd(theirs, version);
                if !self.algebra.meet(&left, &theirs)? {
                    continue;
                }
                if judges[one].fate != judge.fate {
                    return Ok(());
                }
                left = self.algebra.without(&left, &theirs)?;
                instead.push(judges[one].decider());
            }
            if left.is_false() {
                continue;
            }
            instead.push(Decider::Default);
            for (fate, packets) in &self.defaults[version as usize] {
                if *fate != judge.fate && self.algebra.meet(&left, packets)? {
                    return Ok(());
                }
            }
        }
        instead.sort_unstable();
        instead.dedup();
        if let Some(packets) = packets {
            self.gone[at] = Gone::Yes;
            self.found.list.push(Finding::Redundant { rule: judge.place, instead, packets });
        }
        Ok(())
    }

    /// Some of the packets that a rule decides on; `None` if there is none. A part if that is little work, else a single one.
    fn some_decided(&mut self, at: usize) -> Result<Option<Region>, Spent> {
        let judges = self.judges;
        let mut open = false;
        for version in Version::BOTH {
            let Some(product) = judges[at].product(version) else { continue };
            let aside = self.algebra.set_aside(LITTLE);
            let left = self.decided_by(at, product, version);
            self.algebra.take_back(aside);
            match left {
                Ok(left) if left.is_false() => {}
                Ok(left) => return Ok(Some(self.region(&left, version)?)),
                Err(Spent) => {
                    let earlier = self.overlapping(product, version, 0..at)?;
                    let free =
                        |header: &Header| !earlier.iter().any(|one| is_in(&judges[*one], header, version));
                    if let Some(header) = self.samples(product, version).into_iter().find(free) {
                        return Ok(Some(Region::of(&header, version)));
                    }
                    open = true;
                }
            }
        }
        if open { Err(Spent) } else { Ok(None) }
    }

    /// A later rule that matches all that a rule does and does the same, as do all that overlap in between: the question
    /// whether the rule is redundant is settled without sets.
    fn taken_over(&mut self, at: usize) -> Result<Option<usize>, Spent> {
        let judges = self.judges;
        let mut by = None;
        for version in Version::BOTH {
            let Some(product) = judges[at].product(version) else { continue };
            let later = self.overlapping(product, version, at + 1..judges.len())?;
            let same = later.into_iter().take_while(|one| judges[*one].fate == judges[at].fate);
            let mut same = same.filter(|one| contains(&judges[*one], &judges[at]));
            let Some(other) = same.next() else { return Ok(None) };
            by = by.max(Some(other));
        }
        Ok(by)
    }

    /// Searches for earlier rules that decide otherwise on some packets of a rule, where neither matches all that the other does.
    fn overlaps(&mut self, at: usize) -> Result<(), Spent> {
        let judges = self.judges;
        let judge = &judges[at];
        let mut told: Vec<usize> = Vec::new();
        for version in Version::BOTH {
            let Some(product) = judge.product(version) else { continue };
            for one in self.overlapping(product, version, 0..at)? {
                let earlier = &judges[one];
                if earlier.fate.action == judge.fate.action
                    || told.contains(&one)
                    || contains(earlier, judge)
                    || contains(judge, earlier)
                {
                    continue;
                }
                let Some(shared) =
                    earlier.product(version).and_then(|earlier| earlier.within(product, version))
                else {
                    continue;
                };
                let left = self.decided_by(one, &shared, version)?;
                if left.is_false() {
                    continue;
                }
                if self.found.list.iter().filter(|found| matches!(found, Finding::Overlap { .. })).count()
                    >= MOST_OVERLAPS
                {
                    self.found.more_overlaps = true;
                    return Ok(());
                }
                let packets = self.region(&left, version)?;
                told.push(one);
                self.found.list.push(Finding::Overlap { first: earlier.place, second: judge.place, packets });
            }
        }
        Ok(())
    }

    /// The headers of `product`, which is part of the rule's, that no earlier rule matches.
    fn decided_by(&mut self, at: usize, product: &Product, version: Version) -> Result<Bdd, Spent> {
        let set = self.set(product, version)?;
        Ok(decided(self.ruling, 0..at, version, product, &set, &mut self.algebra)?.left)
    }

    fn set(&mut self, product: &Product, version: Version) -> Result<Bdd, Spent> {
        self.algebra.both(&bdd(product, version), &self.possible[version as usize])
    }

    /// A part of a set, for an example.
    fn region(&mut self, set: &Bdd, version: Version) -> Result<Region, Spent> {
        let families = match version {
            Version::V4 => Families::V4,
            Version::V6 => Families::V6,
        };
        let product = products(set, version, 1, &mut self.algebra)?.pop().unwrap_or(Product::all());
        Ok(Region { families, product })
    }

    /// The rules among those at `places` that are not gone, and overlap with a product.
    fn overlapping(
        &mut self,
        product: &Product,
        version: Version,
        places: std::ops::Range<usize>,
    ) -> Result<Vec<usize>, Spent> {
        let overlapping = self.ruling.overlapping(places, product, version, &mut self.algebra)?;
        Ok(overlapping.map(|(place, ..)| place).filter(|place| self.gone[*place] == Gone::No).collect())
    }

    /// Headers of a product that there can be.
    fn samples(&mut self, product: &Product, version: Version) -> Vec<Header> {
        let ways = self.ways(product);
        if ways.is_empty() {
            return Vec::new();
        }
        let shapes: Vec<Product> =
            shapes(version).iter().filter_map(|shape| product.within(shape, version)).collect();
        let mut found = Vec::new();
        for number in 0..TRIALS {
            let Some(shape) = shapes.get(number % shapes.len().max(1)) else { break };
            let (ingress, egress) = ways[self.random.next_u64() as usize % ways.len()];
            let mut header = Header {
                family: match version {
                    Version::V4 => wire::Family::V4,
                    Version::V6 => wire::Family::V6,
                },
                ..Header::default()
            };
            // Of the addresses that come by that interface, those that the product asks for.
            let asked = shape.get(Field::SourceMac);
            let macs = self.space.classes(ingress).map(|classes| match asked {
                Some(asked) => both(asked, &[classes]),
                None => vec![classes],
            });
            if macs.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            for field in ORDER {
                let spans = match field {
                    Field::SourceMac => macs.as_ref(),
                    _ => shape.get(field),
                };
                let value = self.value(spans, field, version);
                field.put(value, &mut header);
            }
            found.push(Header { ingress, egress, ..header });
        }
        found
    }

    /// Ways through the gateway that a product has, of a few interfaces each.
    fn ways(&mut self, product: &Product) -> Vec<(u16, u16)> {
        let many = self.space.names.len().max(1) as u16;
        let itself = dataplane::tables::LOCAL.0;
        let of = |field: Field, all: Vec<u16>| -> Vec<u16> {
            let inside = |number: &u16| {
                product.get(field).is_none_or(|spans| {
                    spans
                        .iter()
                        .any(|span| span.first <= (*number).into() && u128::from(*number) <= span.last)
                })
            };
            all.into_iter().filter(inside).collect()
        };
        let origins = of(Field::Ingress, (0..many).collect());
        let ends = of(Field::Egress, (0..self.space.names.len() as u16).chain([itself]).collect());
        let (first, second) = (self.random.next_u64() as usize, self.random.next_u64() as usize);
        let some = |list: &[u16], from: usize| -> Vec<u16> {
            (0..list.len().min(4)).map(|step| list[(from % list.len() + step) % list.len()]).collect()
        };
        let (origins, ends) = (some(&origins, first), some(&ends, second));
        origins.iter().flat_map(|from| ends.iter().map(move |to| (*from, *to))).collect()
    }

    /// A value of a field: an end of a span as often as one in the middle.
    fn value(&mut self, spans: Option<&Vec<Span>>, field: Field, version: Version) -> u128 {
        let whole = [Span { first: 0, last: field.highest(version) }];
        let spans = spans.map_or(&whole[..], Vec::as_slice);
        let span = spans[self.random.next_u64() as usize % spans.len()];
        match self.random.next_u64() % 4 {
            0 => span.first,
            1 => span.last,
            _ => {
                let wide = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
                span.first + (span.last - span.first).checked_add(1).map_or(wide, |many| wide % many)
            }
        }
    }
}

fn is_in(judge: &Judge, header: &Header, version: Version) -> bool {
    judge.product(version).is_some_and(|product| product.has(header))
}

/// True if one rule matches all that another does.
fn contains(one: &Judge, other: &Judge) -> bool {
    Version::BOTH.iter().all(|version| match (one.product(*version), other.product(*version)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(wide), Some(narrow)) => wide.contains(narrow),
    })
}
