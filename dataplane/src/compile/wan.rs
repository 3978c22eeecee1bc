//! Compilation of WANs and policy routes.

use lookup::classify::Linear;
use policy::Policy;

use super::pattern::{About, of_conditions};
use super::route::Routes;
use crate::tables::{Address, CompileError, Path, PolicyRoute, RouteSearch, Wan, WanId, Wans};

/// Compiles WANs, whose paths `routes` has, and the policy routes to them.
pub(super) fn compile(policy: &Policy, about: &About<'_>, routes: &Routes) -> Result<Wans, CompileError> {
    let names = about.names;
    let mut list = Vec::with_capacity(policy.wans.len());
    for (place, wan) in policy.wans.iter().enumerate() {
        let interface = names.interface(&wan.interface)?;
        let own = policy.interfaces.get(usize::from(interface.0));
        let own = own.into_iter().flat_map(|interface| &interface.addresses);
        list.push(Wan {
            name: wan.name.clone(),
            interface,
            own: own.map(|net| Address::from(net.addr())).collect(),
            paths: routes.wan_paths.get(place).copied().unwrap_or([Path::None; 2]),
            weight: wan.weight.max(1),
            tier: wan.tier,
            state: wan.state,
            on_failure: wan.on_failure,
        });
    }
    let mut policy_routes = Vec::with_capacity(policy.policy_routes.len());
    let mut patterns = Vec::with_capacity(policy.policy_routes.len());
    let mut route_of = Vec::with_capacity(policy.policy_routes.len());
    // Routes do not ask for MAC addresses.
    let about = About { macs: None, ..*about };
    for route in &policy.policy_routes {
        let via = policy.wans.iter().position(|wan| wan.name == route.via);
        let via = via.and_then(|place| u8::try_from(place).ok());
        policy_routes.push(PolicyRoute {
            name: route.name.clone(),
            via: WanId(via.ok_or_else(|| CompileError::UnknownWan(route.via.clone()))?),
            when_down: route.when_down,
        });
        patterns.extend(of_conditions(&route.conditions, policy, &about)?);
        route_of.resize(patterns.len(), (policy_routes.len() - 1) as u16);
    }
    let search = (!patterns.is_empty())
        .then(|| RouteSearch { classifier: Box::new(Linear::new(&patterns)), route_of });
    Ok(Wans::new(list, policy_routes, search, policy.interfaces.len(), policy.wan_sticky))
}
