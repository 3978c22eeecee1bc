//! Conditions of a translation, as patterns.

use lookup::classify::{AddressSpan, Pattern};
use policy::Policy;
use policy::model::{AddressItem, Addresses, Nat};

use crate::compile::pattern::{self, About, alternatives, between, within};
use crate::tables::{AddressMatch, CompileError, Side};

/// Conditions of a translation.
#[derive(Clone)]
pub(super) struct Conditions {
    /// All but those on addresses.
    pub(super) pattern: Pattern,
    /// Sources, of which any matches.
    pub(super) source: Vec<AddressMatch>,
    /// Destinations likewise.
    destination: Vec<AddressMatch>,
    /// Sources that are known beforehand.
    pub(super) known: Vec<AddressSpan>,
    /// IPv6 among the sources that are named.
    pub(super) names_v6: NamesV6,
}

/// IPv6 among the sources of a translation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NamesV6 {
    Yes,
    No,
}

impl Conditions {
    /// Conditions with `pattern` for all but addresses.
    ///
    /// # Errors
    /// There is no such set.
    pub(super) fn of(
        nat: &Nat,
        pattern: Pattern,
        policy: &Policy,
        about: &About<'_>,
    ) -> Result<Conditions, CompileError> {
        Ok(Conditions {
            pattern,
            source: alternatives(&nat.source, Side::Source, policy, about.sets)?,
            destination: alternatives(&nat.destination, Side::Destination, policy, about.sets)?,
            known: pattern::known(&nat.source, policy)?,
            names_v6: names_v6(&nat.source, policy)?,
        })
    }

    /// Patterns of all packets that match.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        between(&self.pattern, &self.source, &self.destination)
    }

    /// Patterns of those for one of `destinations` (merged), with `pattern` for the other conditions.
    pub(super) fn patterns_to(&self, pattern: &Pattern, destinations: &[AddressSpan]) -> Vec<Pattern> {
        between(pattern, &self.source, &within(&self.destination, destinations))
    }

    /// Destinations that may match; `None` for all.
    pub(super) fn destinations(&self) -> Option<Vec<AddressSpan>> {
        let spans = self.destination.iter().map(|one| one.spans.clone());
        let all: Option<Vec<Vec<AddressSpan>>> = spans.collect();
        all.map(|all| pattern::merge(all.concat()))
    }
}

/// IPv6 among sources: addresses, and dynamic sets, whose elements are of both versions. Those that are excepted from dynamic ones name
/// only what stands beside them.
fn names_v6(addresses: &Addresses, policy: &Policy) -> Result<NamesV6, CompileError> {
    let is_dynamic =
        |item: &AddressItem| matches!(item, AddressItem::Set(name) if policy.dynamic_set(name).is_some());
    if !addresses.except && addresses.items.iter().any(is_dynamic) {
        return Ok(NamesV6::Yes);
    }
    let fixed = pattern::fixed(addresses, policy);
    let of_version = |spans: &[AddressSpan], v6| spans.iter().any(|span| span.v6 == v6);
    let spans = pattern::spans(&fixed, policy)?;
    let mut has_v6 = spans.as_ref().is_some_and(|spans| of_version(spans, true));
    // Where all of IPv4 is excepted beside sets, IPv6 is what is left.
    if addresses.except && fixed.items.len() < addresses.items.len() {
        has_v6 |= spans.is_some_and(|spans| !of_version(&spans, false));
    }
    Ok(if has_v6 { NamesV6::Yes } else { NamesV6::No })
}
