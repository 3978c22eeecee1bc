//! Policy and Linux together.

use policy::Policy;

use crate::linux::State;

/// What is carried out.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The policy, with what Linux adds.
    pub policy: Policy,
    /// What was left out.
    pub notes: Vec<String>,
}

/// See the module.
pub fn effective(policy: &Policy, linux: &State) -> Effective {
    let mut policy = policy.clone();
    for interface in &mut policy.interfaces {
        if let Some((_, link)) = linux.link_named(&interface.name) {
            interface.mac = link.mac.or(interface.mac);
            interface.mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        }
    }
    Effective { policy, notes: Vec::new() }
}
