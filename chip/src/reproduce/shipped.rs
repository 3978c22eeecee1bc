//! Mappings that are shipped, and policies of studies, for the claims.

use policy::Policy;

use super::ReproduceError;
use crate::builtin::{MAPPINGS, named};
use crate::description::Chip;
use crate::mapping::{self, Mapping};

/// A shipped mapping of that chip.
pub(super) fn mapping(name: &str, chip: &Chip) -> Result<Mapping, ReproduceError> {
    let text = named(MAPPINGS, name).unwrap_or_default();
    mapping::parse(text, name, chip).mapping.ok_or_else(|| wrong("mapping", name))
}

/// A study's policy, from the text that a claim writes.
pub(super) fn policy(text: &str, name: &str) -> Result<Policy, ReproduceError> {
    let checked = policy::check(text, name);
    let first = || checked.diagnostics.first().map(|found| found.message.clone()).unwrap_or_default();
    checked.policy.clone().ok_or_else(|| ReproduceError::Shipped(format!("the policy is wrong: {}", first())))
}

pub(super) fn wrong(what: &str, name: &str) -> ReproduceError {
    ReproduceError::Shipped(format!("the {what} {name} is wrong; `chip list` says how"))
}
