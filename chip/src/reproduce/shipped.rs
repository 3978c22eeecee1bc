//! Chips and mappings that are shipped, for the claims.

use policy::Policy;

use super::ReproduceError;
use crate::builtin::{CHIPS, MAPPINGS, named};
use crate::description::{self, Chip};
use crate::mapping::{self, Mapping};

/// A shipped chip.
pub(super) fn chip(name: &str) -> Result<Chip, ReproduceError> {
    chip_with(name, &[])
}

/// A shipped chip with other values of these parameters.
pub(super) fn chip_with(name: &str, values: &[(&str, &str)]) -> Result<Chip, ReproduceError> {
    let mut text = named(CHIPS, name).unwrap_or_default().to_owned();
    for (path, value) in values {
        text = description::set(&text, path, value).map_err(|_| wrong("chip", name))?;
    }
    description::parse(&text, name).chip.ok_or_else(|| wrong("chip", name))
}

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

fn wrong(what: &str, name: &str) -> ReproduceError {
    ReproduceError::Shipped(format!("the {what} {name} is wrong; `chip list` says how"))
}
