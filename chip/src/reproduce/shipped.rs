//! Mappings that are shipped, and policies of studies, for the claims.

use policy::Policy;

use super::ReproduceError;
use crate::builtin::{MAPPINGS, named};
use crate::description::Chip;
use crate::mapping::{self, Mapping};

/// A shipped mapping of that chip.
pub(super) fn mapping(name: &str, chip: &Chip) -> Result<Mapping, ReproduceError> {
    mapping_with(name, chip, &[])
}

/// A shipped mapping of that chip with other values at these paths.
pub(super) fn mapping_with(
    name: &str,
    chip: &Chip,
    values: &[(&str, &str)],
) -> Result<Mapping, ReproduceError> {
    let mut text = named(MAPPINGS, name).unwrap_or_default().to_owned();
    for (path, value) in values {
        text = mapping::set(&text, path, value).map_err(|_| wrong("mapping", name))?;
    }
    mapping::parse(&text, name, chip).mapping.ok_or_else(|| wrong("mapping", name))
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
