//! Compilation of multicast routes.

use policy::Policy;
use policy::model::MulticastMiss;

use super::names::Names;
use crate::tables::{CompileError, MulticastExit, MulticastRoute, MulticastRoutes};

pub(super) fn compile(policy: &Policy, names: &Names) -> Result<MulticastRoutes, CompileError> {
    let mut list = Vec::with_capacity(policy.multicast_routes.len());
    for route in &policy.multicast_routes {
        let from = names.interface(&route.from)?;
        let mut exits = Vec::with_capacity(route.to.len());
        for exit in &route.to {
            let interface = names.interface(&exit.interface)?;
            exits.push(MulticastExit { interface, threshold: exit.threshold });
        }
        // What has come in by an interface does not go back there.
        exits.retain(|exit| exit.interface != from);
        let (group, source) = (route.group.trunc(), route.source);
        list.push(MulticastRoute { group, source, from, exits, count: Default::default() });
    }
    let mut interfaces = policy.interfaces.iter();
    let has_punts = interfaces.any(|interface| interface.multicast_miss == MulticastMiss::Punt);
    Ok(MulticastRoutes::new(list, has_punts))
}
