//! Outside ports that hosts may ask for.

use super::Keys;
use crate::model::{PortMapping, PortUse, Upnp};
use crate::value::packet::PORTS;
use crate::value::time::DURATION;
use crate::value::{Flag, NUMBER32};

/// `port-mapping` of a source translation: a table, which may be empty.
pub(super) fn of_ports(keys: &mut Keys<'_, '_>, ports: &mut PortUse) {
    match keys {
        Keys::Read(_) => {
            let mut mapping = PortMapping::default();
            let found = keys.table("[nat.port-mapping]", |keys| port_mapping(keys, &mut mapping));
            ports.mapping = found.is_some().then_some(mapping);
            keys.absorb(found);
        }
        Keys::Print(out) => {
            if let Some(mapping) = &mut ports.mapping {
                // A table without keys is printed, too.
                out.open("[nat.port-mapping]");
                port_mapping(&mut Keys::Print(out), mapping);
            }
        }
    }
}

/// Keys of `[nat.port-mapping]`.
pub(super) fn port_mapping(keys: &mut Keys<'_, '_>, mapping: &mut PortMapping) {
    let usual = PortMapping::default();
    keys.list_or("port", PORTS, &mut mapping.ports, usual.ports);
    keys.key_or("lifetime", DURATION, &mut mapping.lifetime, usual.lifetime);
    keys.key_or("per-host", NUMBER32, &mut mapping.per_host, usual.per_host);
    keys.key_or("size", NUMBER32, &mut mapping.size, usual.size);
    keys.key("upnp", Flag(Upnp::On, Upnp::Off), &mut mapping.upnp);
    keys.key_or("upnp-lifetime", DURATION, &mut mapping.upnp_lifetime, usual.upnp_lifetime);
}
