//! Dynamic sets: their bounds, and the bits by which rules and classes ask for memberships.

use policy::Policy;
use policy::model::{AddressItem, Addresses, Conditions, DynamicSet, Rule, SetSource};
use wire::Nanos;

use super::CompileError;

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

/// Use of a set in conditions. Its place in [`SetUses::list`] is the number of its bit in headers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetUse {
    /// Name of the set.
    pub set: String,
    /// End of the packet.
    pub side: Side,
}

/// Uses of dynamic sets in the conditions of rules and classes, of one policy or of several that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUses {
    /// Uses, each once, in the order of names.
    pub list: Vec<SetUse>,
}

impl SetUses {
    /// Returns the uses in these policies, by the names of the sets.
    ///
    /// # Errors
    /// There are more than 32.
    pub fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Result<SetUses, CompileError> {
        let mut uses = SetUses::default();
        for policy in policies {
            let rules = policy.rules.iter().map(|rule| &rule.conditions);
            for conditions in rules.chain(policy.classes.iter().map(|class| &class.conditions)) {
                for (side, addresses) in sides(conditions) {
                    for set in named(addresses, policy) {
                        if uses.bit(&set.name, side).is_none() {
                            uses.list.push(SetUse { set: set.name.clone(), side });
                        }
                    }
                }
            }
        }
        uses.list.sort_unstable();
        let many = uses.list.len();
        if many > DynamicSet::MOST_USES { Err(CompileError::TooManySetUses(many)) } else { Ok(uses) }
    }

    /// The bit of a use; `None` where there is no such use.
    pub fn bit(&self, set: &str, side: Side) -> Option<u32> {
        let place = self.list.iter().position(|one| one.side == side && one.set == set)?;
        Some(1 << (place % 32))
    }
}

/// Address conditions with their sides.
fn sides(conditions: &Conditions) -> [(Side, &Addresses); 2] {
    [(Side::Source, &conditions.source), (Side::Destination, &conditions.destination)]
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

/// Questions of rules and classes about sets, as the packet path asks them.
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
    /// True if a rule adds to a set.
    pub(crate) has_additions: bool,
}

impl SetQuestions {
    /// True if a rule or a class asks for a set.
    #[inline(always)]
    pub(crate) fn are_any(&self) -> bool {
        self.of_rules | self.of_classes != 0
    }

    /// The bit of headers that stands for a set, by place, at that end of packets; 0 where nobody asks.
    pub fn bit(&self, set: u16, side: Side) -> u32 {
        self.bits.get(usize::from(set)).map_or(0, |bits| bits[side as usize])
    }

    /// Sets that a rule or a class asks for, a bit each.
    pub(crate) fn sets(&self) -> u32 {
        self.asked[0] | self.asked[1]
    }

    /// Compiles the questions of a policy.
    pub(crate) fn of(policy: &Policy, uses: &SetUses) -> SetQuestions {
        let bits_of = |conditions: &Conditions| {
            sides(conditions).into_iter().fold(0, |bits, (side, addresses)| {
                named(addresses, policy).fold(bits, |bits, set| bits | uses.bit(&set.name, side).unwrap_or(0))
            })
        };
        let mut questions = SetQuestions {
            of_rules: policy.rules.iter().fold(0, |bits, rule| bits | bits_of(&rule.conditions)),
            of_classes: policy.classes.iter().fold(0, |bits, class| bits | bits_of(&class.conditions)),
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
