//! PPP sessions.

use std::net::IpAddr;
use std::sync::Arc;

use policy::Policy;
use policy::model::Interface as Named;
use wire::PortId;

use super::names::Names;
use crate::tables::{Carrier, CompileError, Interface, Session};

/// Adds the sessions to their interfaces, and to those that carry them. Returns the interfaces of all sessions.
pub(super) fn add(
    policy: &Policy,
    names: &Names,
    interfaces: &mut [Interface],
) -> Result<Vec<PortId>, CompileError> {
    let mut sessions = Vec::new();
    for (place, named) in policy.interfaces.iter().enumerate() {
        let Some(ppp) = &named.ppp else { continue };
        let id = PortId(place as u16);
        let number = sessions.len() as u16;
        sessions.push(id);
        let carrier = match &named.parent {
            Some(parent) => Carrier::Ethernet(names.interface(parent)?),
            None => Carrier::Atm,
        };
        let carrier_id = if let Carrier::Ethernet(parent) = carrier { parent } else { id };
        let Some(by) = interfaces.get_mut(usize::from(carrier_id.0)) else { continue };
        let (mac, priorities, root) = (by.mac, by.priorities.clone(), by.root);
        let carrier_name = by.name.clone();
        if carrier_id != id {
            by.sessions.push(number);
        }
        let first4 = |named: &Named| {
            named.addresses.iter().find_map(|net| match net.addr() {
                IpAddr::V4(address) => Some(address.to_bits()),
                IpAddr::V6(_) => None,
            })
        };
        let session = Session {
            place: number,
            name: named.name.clone(),
            carrier,
            carrier_name,
            mac,
            ppp: (**ppp).clone(),
            address4: first4(named),
            has_v6: named.addresses.iter().any(|net| net.addr().is_ipv6()),
            mtu: named.mtu,
            published: Arc::default(),
        };
        if let Some(own) = interfaces.get_mut(place) {
            own.ppp = Some(Arc::new(session));
            // Frames of its packets are its carrier's.
            own.root = root;
            if carrier_id != id {
                own.priorities = priorities;
            }
        }
    }
    Ok(sessions)
}
