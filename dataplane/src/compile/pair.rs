//! Compiles what the division of flows between two gateways goes by.

use policy::Policy;
use policy::model::NatAction;

use super::pattern;
use crate::tables::{Address, CompileError, Pair};

/// The division, where the policy has a second gateway with a half of the flows.
///
/// # Errors
/// A translation names a set that there is not.
pub(super) fn compile(policy: &Policy) -> Result<Option<Pair>, CompileError> {
    let Some(half) = policy.gateway.sync.half() else { return Ok(None) };
    let (mut hosts, mut fixed) = (Vec::new(), Vec::new());
    for nat in &policy.nats {
        match &nat.action {
            // Without `source` they are of all hosts, outside ones too: nothing tells one end from the other. Nor does a dynamic set, which the
            // two gateways need not know alike at every moment.
            NatAction::Masquerade { .. } | NatAction::Source { .. } => {
                hosts.extend(pattern::known(&nat.source, policy)?);
            }
            NatAction::OneToOne { inside, .. } | NatAction::Npt { inside, .. } => {
                fixed.push(pattern::span(inside.network().into(), inside.broadcast().into()));
            }
            _ => {}
        }
    }
    let virtual_addresses = policy.interfaces.iter().flat_map(|interface| &interface.virtual_addresses);
    let mut shared: Vec<Address> = virtual_addresses.map(|address| Address::from(*address)).collect();
    shared.sort_unstable();
    shared.dedup();
    Ok(Some(Pair { half, shared, hosts: pattern::merge(hosts), fixed: pattern::merge(fixed) }))
}
