//! Differences between two policies: the packets that they treat differently.
//!
//! Rules that both policies have, in an order that both have, decide the same: where they are the first to match in both.
//! So a packet's fate can only differ where a rule decides that the other policy lacks or has elsewhere, or where no rule
//! decides and the default differs. Those packets are asked for, rule by rule, in both policies; the thousands of rules
//! that stayed cost nothing unless they overlap.

use std::collections::{HashMap, HashSet};

use biodivine_lib_bdd::Bdd;
use dataplane::tables::{CompileError, LOCAL, SetUses, SourceMacs};
use lookup::classify::bdd::field::{Field, Version};
use lookup::classify::bdd::product::{Product, Span, merged};
use lookup::classify::bdd::set::bdd;
use policy::Policy;
use policy::plan::staying;

use super::algebra::{Algebra, Effort, Spent};
use super::region::{fewer, products, regions};
use super::ruling::{Decided, Judge, Ruling, Space, decided, shapes, way, ways};
use super::{Decider, Fate, Outcome, Region};

/// Result of comparing two policies.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names of the interfaces that both have; packets between these, and to the gateway, are compared.
    pub interfaces: Vec<String>,
    /// Classes of source MAC addresses, by which regions name them; `None` where no rule asks for any.
    pub macs: Option<SourceMacs>,
    /// Dynamic sets that rules ask for, by which regions name them.
    pub sets: SetUses,
    /// Differences, disjoint; those of one pair of deciding rules together, in the order of the old policy's rules.
    pub differences: Vec<Difference>,
    /// Completeness: there may be more differences.
    pub outcome: Outcome,
}

/// Packets, and the decision of each policy on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The packets.
    pub region: Region,
    /// Decision of the old policy.
    pub old: Judgement,
    /// Decision of the new policy.
    pub new: Judgement,
}

/// Decision of a policy on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Rule or default that decides.
    pub by: Decider,
    /// Fate of the packets.
    pub fate: Fate,
}

/// The most regions that one pair of deciding rules is taken apart into, for each version of IP.
const MOST_REGIONS: usize = 2000;

/// No rule takes more than this part of the effort; and as much is kept for taking apart what was found.
const SHARE: u64 = 4;

/// Effort on a question at first, in nodes, and the factor for another try at a question left open.
const LITTLE: u64 = 10_000;
const DEEPER: u64 = 16;

/// Compares what `old` and `new` do with packets between interfaces that both have.
///
/// # Errors
/// One of the policies cannot be compiled.
pub fn compare(old: &Policy, new: &Policy, effort: Effort<'_>) -> Result<Comparison, CompileError> {
    let names = old.interfaces.iter().map(|interface| interface.name.clone());
    let names: Vec<String> = names.filter(|name| new.interface(name).is_some()).collect();
    let space = Space::of(names, &[old, new])?;
    let (old_rules, new_rules) = (Ruling::of(old, &space)?, Ruling::of(new, &space)?);
    let mut search = Search {
        old: &old_rules,
        new: &new_rules,
        space: &space,
        algebra: Algebra::new(effort),
        share: effort.nodes() / SHARE,
        found: Vec::new(),
        outcome: Outcome::Complete,
    };
    // Policies without any interface can be compared; those that have none in common cannot.
    if !space.names.is_empty() || (old.interfaces.is_empty() && new.interfaces.is_empty()) {
        let changed = changed(&old_rules.judges, &new_rules.judges);
        let kept = search.algebra.set_aside(effort.nodes() - effort.nodes() / SHARE);
        search.ask(questions(&changed));
        search.algebra.take_back(kept);
    }
    let differences = search.differences();
    let outcome = search.outcome;
    let Space { names, macs, sets, .. } = space;
    Ok(Comparison { interfaces: names, macs, sets, differences, outcome })
}

/// Places of judges that are in one list only, or at another place among the common ones.
struct Changed {
    old: Vec<usize>,
    new: Vec<usize>,
}

fn changed(old: &[Judge], new: &[Judge]) -> Changed {
    // The same products and the same fate are the same number.
    let mut known: HashMap<&[Option<Product>; 2], Vec<(Fate, usize)>> = HashMap::new();
    let mut numbers: Vec<usize> = Vec::with_capacity(old.len() + new.len());
    for judge in old.iter().chain(new) {
        let same = known.entry(&judge.products).or_default();
        let number = match same.iter().find(|(fate, _)| *fate == judge.fate) {
            Some((_, number)) => *number,
            None => {
                same.push((judge.fate, numbers.len()));
                numbers.len()
            }
        };
        numbers.push(number);
    }
    let (before, after) = numbers.split_at(old.len());
    let pairs = staying(before, after);
    let stays_old: HashSet<usize> = pairs.iter().map(|pair| pair.old).collect();
    let stays_new: HashSet<usize> = pairs.iter().map(|pair| pair.new).collect();
    Changed {
        old: (0..old.len()).filter(|place| !stays_old.contains(place)).collect(),
        new: (0..new.len()).filter(|place| !stays_new.contains(place)).collect(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

/// Question about packets of a version.
#[derive(Clone, Copy)]
enum Question {
    /// Packets that a rule decides on, where the other policy lacks the rule or has it elsewhere.
    Rule(Side, usize, Version),
    /// Packets that no rule decides on in either policy, where the default differs.
    Defaults(Version),
}

/// All questions, those of the two policies by turns.
fn questions(changed: &Changed) -> Vec<Question> {
    let mut questions = Vec::new();
    for version in Version::BOTH {
        for at in 0..changed.old.len().max(changed.new.len()) {
            for (side, places) in [(Side::Old, &changed.old), (Side::New, &changed.new)] {
                questions.extend(places.get(at).map(|place| Question::Rule(side, *place, version)));
            }
        }
        questions.push(Question::Defaults(version));
    }
    questions
}

/// Packets about which each policy has one judgement.
struct Found {
    old: Judgement,
    new: Judgement,
    sets: [Bdd; 2],
}

struct Search<'a> {
    old: &'a Ruling,
    new: &'a Ruling,
    space: &'a Space,
    algebra: Algebra<'a>,
    share: u64,
    found: Vec<Found>,
    outcome: Outcome,
}

impl Search<'_> {
    /// Answers the questions, cheap ones first: with two policies that have little in common, some questions could take
    /// all the effort before anything is found.
    fn ask(&mut self, mut questions: Vec<Question>) {
        let most = self.share;
        let mut share = LITTLE.min(most);
        while !questions.is_empty() {
            questions.retain(|question| self.with(share, |search| search.answer(*question)).is_err());
            if share >= most || self.algebra.is_spent() {
                break;
            }
            share = share.saturating_mul(DEEPER).min(most);
        }
        if !questions.is_empty() {
            self.outcome = Outcome::Stopped;
        }
    }

    fn answer(&mut self, question: Question) -> Result<(), Spent> {
        match question {
            Question::Rule(side, place, version) => self.changed_rule(side, place, version),
            Question::Defaults(version) => self.changed_defaults(version),
        }
    }

    /// Does something with a part of the effort.
    fn with(&mut self, part: u64, work: impl FnOnce(&mut Self) -> Result<(), Spent>) -> Result<(), Spent> {
        let aside = self.algebra.set_aside(part);
        let done = work(self);
        self.algebra.take_back(aside);
        done
    }

    /// [`Question::Rule`].
    fn changed_rule(&mut self, side: Side, place: usize, version: Version) -> Result<(), Spent> {
        let (mine, other) = match side {
            Side::Old => (self.old, self.new),
            Side::New => (self.new, self.old),
        };
        let judge = &mine.judges[place];
        let Some(product) = judge.product(version) else { return Ok(()) };
        if other.does_only(judge.fate, product, version, &mut self.algebra)? {
            return Ok(());
        }
        let set = bdd(product, version);
        let left = decided(mine, 0..place, version, product, &set, &mut self.algebra)?.left;
        let judgement = Judgement { by: judge.decider(), fate: judge.fate };
        for (theirs, part) in self.judged(other, version, product, &left)? {
            let (old, new) = match side {
                Side::Old => (judgement, theirs),
                Side::New => (theirs, judgement),
            };
            self.add(old, new, &part, version)?;
        }
        Ok(())
    }

    /// [`Question::Defaults`].
    fn changed_defaults(&mut self, version: Version) -> Result<(), Spent> {
        let (old, new) = (self.old, self.new);
        let ends = (0..self.space.names.len() as u16).chain([LOCAL.0]);
        for ingress in 0..self.space.names.len().max(1) as u16 {
            for egress in ends.clone() {
                let (before, after) = (old.default(ingress, egress), new.default(ingress, egress));
                if before == after {
                    continue;
                }
                let product = way(ingress, egress, version);
                let set = bdd(&product, version);
                let left = decided(old, old.places(), version, &product, &set, &mut self.algebra)?.left;
                let left = decided(new, new.places(), version, &product, &left, &mut self.algebra)?.left;
                let by_default = |fate| Judgement { by: Decider::Default, fate };
                self.add(by_default(before), by_default(after), &left, version)?;
            }
        }
        Ok(())
    }

    /// Returns the decisions of a policy's rules and defaults on packets within a product.
    fn judged(
        &mut self,
        ruling: &Ruling,
        version: Version,
        within: &Product,
        packets: &Bdd,
    ) -> Result<Vec<(Judgement, Bdd)>, Spent> {
        let Decided { parts, left } =
            decided(ruling, ruling.places(), version, within, packets, &mut self.algebra)?;
        let by_rule =
            |(judge, part): (&Judge, Bdd)| (Judgement { by: judge.decider(), fate: judge.fate }, part);
        let mut judged: Vec<(Judgement, Bdd)> = parts.into_iter().map(by_rule).collect();
        if !left.is_false() {
            for (fate, packets) in ruling.defaults(version) {
                let part = self.algebra.both(&left, &packets)?;
                judged.push((Judgement { by: Decider::Default, fate }, part));
            }
        }
        Ok(judged)
    }

    fn add(&mut self, old: Judgement, new: Judgement, part: &Bdd, version: Version) -> Result<(), Spent> {
        if old.fate == new.fate || part.is_false() {
            return Ok(());
        }
        let place = self.found.iter().position(|found| found.old == old && found.new == new);
        let place = place.unwrap_or_else(|| {
            self.found.push(Found { old, new, sets: Version::BOTH.map(Algebra::nothing) });
            self.found.len() - 1
        });
        let set = &mut self.found[place].sets[version as usize];
        *set = self.algebra.either(set, part)?;
        Ok(())
    }

    /// Returns the differences found, as regions.
    fn differences(&mut self) -> Vec<Difference> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|found| (found.old.by, found.new.by));
        let mut differences = Vec::new();
        for Found { old, new, sets } in found {
            let mut lists = [Vec::new(), Vec::new()];
            for version in Version::BOTH {
                let set = &sets[version as usize];
                let told = self.with(self.share, |search| {
                    let list = products(set, version, MOST_REGIONS, &mut search.algebra)?;
                    if list.len() >= MOST_REGIONS {
                        search.outcome = Outcome::Stopped;
                    }
                    lists[version as usize] = list;
                    Ok(())
                });
                if told.is_err() {
                    self.outcome = Outcome::Stopped;
                }
                let list = &mut lists[version as usize];
                *list = there_can_be(list, self.space, version);
            }
            let [v4, v6] = lists;
            let regions = regions(v4, v6);
            differences.extend(regions.into_iter().map(|region| Difference { region, old, new }));
        }
        differences
    }
}

/// The part of products that packets can be in, asking for interfaces and MAC addresses only where not all will do.
fn there_can_be(products: &[Product], space: &Space, version: Version) -> Vec<Product> {
    let mut found = Vec::new();
    for way in ways(space, version) {
        for product in products {
            let Some(mut product) = product.within(&way, version) else { continue };
            if product.get(Field::SourceMac) == way.get(Field::SourceMac) {
                product.limit(Field::SourceMac, None, version);
            }
            if shapes(version).iter().any(|shape| product.within(shape, version).is_some()) {
                found.push(product);
            }
        }
    }
    // What is the same by all kinds of links is one again.
    let mut found = fewer(found, version);
    let spans = |numbers: &mut dyn Iterator<Item = u16>| {
        merged(numbers.map(|number| Span { first: number.into(), last: number.into() }).collect())
    };
    let many = space.names.len() as u16;
    let origins = spans(&mut (0..many.max(1)));
    let ends = spans(&mut (0..many).chain([LOCAL.0]));
    for product in &mut found {
        for (field, all) in [(Field::Ingress, &origins), (Field::Egress, &ends)] {
            if product.get(field) == Some(all) {
                product.limit(field, None, version);
            }
        }
    }
    found
}
