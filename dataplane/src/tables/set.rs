//! Dynamic sets: their bounds, and the bits by which rules, classes, translations and policy routes ask for memberships.

use lookup::classify::AddressSpan;
use policy::Policy;
use policy::model::{AddressItem, Addresses, Conditions, DynamicSet, NatAction, Rule, SetSource};
use wire::Nanos;

use super::nat::is_within;
use super::{Address, CompileError};

/// A dynamic set, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// Its name.
    pub name: String,
    /// Most elements.
    pub size: u32,
    /// Lifetime of elements that are added without one of their own; `None`: until they are removed.
    pub timeout: Option<Nanos>,
    /// Source of the elements.
    pub source: SetSource,
}

/// End of a packet that is looked for in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// Source address, before source NAT.
    Source = 0,
    /// Destination address, after destination NAT.
    Destination = 1,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Side; 2] = [Side::Source, Side::Destination];
}

/// Bit of headers ([`Header::sets`](lookup::classify::Header::sets)) that no set has: a translation of the policy has changed the packet's
/// destination.
pub const DNAT: u32 = 1 << DynamicSet::MOST_USES;

/// Use of a set in conditions. Its place in [`SetUses::list`] is the number of its bit in headers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetUse {
    /// Name of the set.
    pub set: String,
    /// End of the packet.
    pub side: Side,
}

/// Uses of dynamic sets in conditions, of one policy or of several that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUses {
    /// Uses, each once, in the order of names.
    pub list: Vec<SetUse>,
    /// Names of rules whose rate is a condition ([`Rule::matches_by_rate`]). Their bits are behind those of the uses, and set in headers of
    /// packets that the rule has let go on.
    pub rates: Vec<String>,
}

impl SetUses {
    /// Returns the uses in all conditions of these policies, by the names of the sets.
    ///
    /// # Errors
    /// There are more than 31.
    pub fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Result<SetUses, CompileError> {
        SetUses::among(policies, |policy| of_rules(policy).chain(of_others(policy)).collect())
    }

    /// Returns the uses in rules and classes alone: those that an analysis of rules has to tell apart.
    ///
    /// # Errors
    /// There are more than 31.
    pub fn of_rules<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Result<SetUses, CompileError> {
        SetUses::among(policies, |policy| of_rules(policy).collect())
    }

    fn among<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        conditions: impl Fn(&'a Policy) -> Vec<Ends<'a>>,
    ) -> Result<SetUses, CompileError> {
        let mut uses = SetUses::default();
        for policy in policies {
            for rule in policy.rules.iter().filter(|rule| rule.matches_by_rate()) {
                if !uses.rates.contains(&rule.name) {
                    uses.rates.push(rule.name.clone());
                }
            }
            for ends in conditions(policy) {
                for (side, addresses) in Side::BOTH.into_iter().zip(ends) {
                    for set in named(addresses, policy) {
                        if uses.bit(&set.name, side).is_none() {
                            uses.list.push(SetUse { set: set.name.clone(), side });
                        }
                    }
                }
            }
        }
        uses.list.sort_unstable();
        let many = uses.list.len() + uses.rates.len();
        if many > DynamicSet::MOST_USES { Err(CompileError::TooManySetUses(many)) } else { Ok(uses) }
    }

    /// The bit of a use; `None` where there is no such use.
    pub fn bit(&self, set: &str, side: Side) -> Option<u32> {
        let place = self.list.iter().position(|one| one.side == side && one.set == set)?;
        Some(1 << (place % 32))
    }

    /// The bit of the rate of a rule; 0 where that is no condition, though it may be one of a rule of that name in another policy.
    pub(crate) fn rate_bit(&self, rule: &Rule) -> u32 {
        let place = self.rates.iter().position(|one| *one == rule.name).filter(|_| rule.matches_by_rate());
        place.map_or(0, |place| 1 << ((self.list.len() + place) % 32))
    }
}

/// Conditions on both ends of a packet, by [`Side`].
type Ends<'a> = [&'a Addresses; 2];

fn ends(conditions: &Conditions) -> Ends<'_> {
    [&conditions.source, &conditions.destination]
}

/// Conditions of rules and classes.
fn of_rules(policy: &Policy) -> impl Iterator<Item = Ends<'_>> {
    let classes = policy.classes.iter().map(|class| ends(&class.conditions));
    policy.rules.iter().map(|rule| ends(&rule.conditions)).chain(classes)
}

/// Conditions of translations and policy routes.
fn of_others(policy: &Policy) -> impl Iterator<Item = Ends<'_>> {
    let routes = policy.policy_routes.iter().map(|route| ends(&route.conditions));
    policy.nats.iter().map(|nat| [&nat.source, &nat.destination]).chain(routes)
}

/// Addresses that match by themselves and by their memberships in sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressMatch {
    /// Addresses, disjoint and ascending; `None` for all.
    pub spans: Option<Vec<AddressSpan>>,
    /// Bits of headers that are compared.
    pub mask: u32,
    /// Their values.
    pub value: u32,
}

impl AddressMatch {
    /// True if an address with those memberships matches.
    pub(crate) fn has(&self, address: Address, sets: u32) -> bool {
        sets & self.mask == self.value && self.spans.as_ref().is_none_or(|spans| is_within(spans, address))
    }
}

/// Dynamic sets among addresses.
pub(crate) fn named<'a>(
    addresses: &'a Addresses,
    policy: &'a Policy,
) -> impl Iterator<Item = &'a DynamicSet> {
    addresses.items.iter().filter_map(|item| match item {
        AddressItem::Set(name) => policy.dynamic_set(name),
        AddressItem::Range(_) => None,
    })
}

/// Addition of a rule to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAddition {
    /// Place of the set in [`Tables::sets`](super::Tables::sets).
    pub set: u16,
    /// Lifetime of the element; `None`: until it is removed.
    pub lasts: Option<Nanos>,
}

impl SetAddition {
    /// The addition that a rule makes, if it makes any.
    pub(crate) fn of(rule: &Rule, policy: &Policy) -> Result<Option<SetAddition>, CompileError> {
        let Some(name) = &rule.add_source else { return Ok(None) };
        let place = policy.dynamic_sets.iter().position(|set| set.name == *name);
        let set = place.ok_or_else(|| CompileError::UnknownSet(name.clone()))?;
        Ok(Some(SetAddition { set: set as u16, lasts: rule.add_for.or(policy.dynamic_sets[set].timeout) }))
    }
}

/// Questions about sets, as the packet path asks them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetQuestions {
    /// For each set the bits of headers that its elements stand for, by [`Side`].
    pub(crate) bits: Vec<[u32; 2]>,
    /// Sets asked for, a bit each, by [`Side`].
    pub(crate) asked: [u32; 2],
    /// Bits that rules ask for.
    pub(crate) of_rules: u32,
    /// Bits that classes ask for.
    pub(crate) of_classes: u32,
    /// Bits that destination translations ask for, of the destination in front of them.
    pub(crate) of_destinations: u32,
    /// Bits that source translations ask for.
    pub(crate) of_sources: u32,
    /// Bits that policy routes ask for.
    pub(crate) of_routes: u32,
    /// True if a rule adds to a set.
    pub(crate) has_additions: bool,
}

impl SetQuestions {
    /// Bits whose changes flows have to notice: those that rules and classes ask for. Translations and policy routes decide on a flow
    /// once.
    #[inline(always)]
    pub(crate) fn watched(&self) -> u32 {
        self.of_rules | self.of_classes
    }

    /// True if flows have to notice changes of some set.
    #[inline(always)]
    pub(crate) fn are_watched(&self) -> bool {
        self.watched() != 0
    }

    /// The bit of headers that stands for a set, by place, at that end of packets; 0 where nobody asks.
    pub fn bit(&self, set: u16, side: Side) -> u32 {
        self.bits.get(usize::from(set)).map_or(0, |bits| bits[side as usize])
    }

    /// Sets whose changes flows have to notice, a bit each.
    pub(crate) fn watched_sets(&self) -> u32 {
        let sets = self.bits.iter().enumerate();
        let watched = sets.filter(|(_, bits)| (bits[0] | bits[1]) & self.watched() != 0);
        watched.fold(0, |sets, (place, _)| sets | 1 << (place % 32))
    }

    /// Compiles the questions of a policy.
    pub(crate) fn of(policy: &Policy, uses: &SetUses) -> SetQuestions {
        let bits_of = |bits, ends: Ends<'_>| {
            Side::BOTH.into_iter().zip(ends).fold(bits, |bits, (side, addresses)| {
                named(addresses, policy).fold(bits, |bits, set| bits | uses.bit(&set.name, side).unwrap_or(0))
            })
        };
        let nats = |is_asked: fn(&NatAction) -> bool| {
            let asked = policy.nats.iter().filter(|nat| is_asked(&nat.action));
            asked.map(|nat| [&nat.source, &nat.destination]).fold(0, bits_of)
        };
        let routes = policy.policy_routes.iter();
        let mut questions = SetQuestions {
            of_rules: policy.rules.iter().map(|rule| ends(&rule.conditions)).fold(0, bits_of),
            of_classes: policy.classes.iter().map(|class| ends(&class.conditions)).fold(0, bits_of),
            // One-to-one translations ask for the peer outside, whose packets have their destination translated.
            of_destinations: nats(|action| !action.is_of_source()),
            of_sources: nats(NatAction::is_of_source),
            of_routes: routes.map(|route| ends(&route.conditions)).fold(0, bits_of),
            has_additions: policy.rules.iter().any(|rule| rule.add_source.is_some()),
            ..SetQuestions::default()
        };
        for (place, set) in policy.dynamic_sets.iter().enumerate() {
            let bits = Side::BOTH.map(|side| uses.bit(&set.name, side).unwrap_or(0));
            for (asked, bits) in questions.asked.iter_mut().zip(bits) {
                *asked |= u32::from(bits != 0) << (place % 32);
            }
            questions.bits.push(bits);
        }
        questions
    }
}

/// Compiles the dynamic sets of a policy.
pub(crate) fn specs(policy: &Policy) -> Result<Vec<SetSpec>, CompileError> {
    if policy.dynamic_sets.len() > DynamicSet::MOST {
        return Err(CompileError::TooManySets(policy.dynamic_sets.len()));
    }
    let spec = |set: &DynamicSet| {
        let DynamicSet { name, size, timeout, source } = set.clone();
        SetSpec { name, size: size.clamp(1, DynamicSet::MOST_SIZE), timeout, source }
    };
    Ok(policy.dynamic_sets.iter().map(spec).collect())
}
