//! Outside ports that hosts may ask for.

use wire::Nanos;

use super::Validator;
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{Nat, PortMapping, PortUse, Upnp};

impl Validator<'_> {
    /// Checks whose hosts may ask for outside ports, and the bounds of what they get.
    pub(super) fn port_mapping(&mut self, item: Item, nat: &Nat, ports: &PortUse) {
        let Some(mapping) = &ports.mapping else { return };
        if nat.from.is_empty() {
            let message = "hosts of every zone, those outside too, could ask for outside ports".to_owned();
            let hint = "name the zones of the hosts that may ask: from = \"lan\"";
            self.wrong(Code::BadPortMapping, item, "port-mapping", message, hint);
        }
        if ports.blocks_per_host.is_some() {
            let message = "a host's ports are those of its blocks, and it may not ask for others".to_owned();
            let hint = "leave out `blocks-per-host` (each host then has one `block`, from which it may ask), or `port-mapping`";
            self.wrong(Code::BadPortMapping, item, "port-mapping", message, hint);
        }
        let own = |port: u16| ports.ranges.iter().any(|range| (range.first..=range.last).contains(&port));
        let has_ports = mapping.ports.iter().any(|range| {
            own(range.first.max(1))
                || ports.ranges.iter().any(|own| (range.first..=range.last).contains(&own.first))
        });
        if !has_ports {
            let message = "none of the ports that may be asked for is a port of the translation".to_owned();
            let hint = "the translation's own `ports`, 1024-65535 by default, must have them, too";
            self.wrong(Code::BadPortMapping, item, "port", message, hint);
        }
        if mapping.lifetime == Nanos(0) || mapping.lifetime > PortMapping::MOST_LIFETIME {
            let message = "a mapping's lifetime is a second to a day (RFC 6887, section 15)".to_owned();
            let hint = "hosts ask again before its end: write lifetime = \"2h\"";
            self.wrong(Code::BadPortMapping, item, "lifetime", message, hint);
        }
        if let Some(zone) = nat.from.iter().find(|zone| mapping.upnp == Upnp::On && nat.to.contains(zone)) {
            let message = format!("hosts of zone \"{zone}\" could ask by UPnP, and it is outside, too");
            let hint = "UPnP has no authentication: leave the zone out of `from`, or out of `to`";
            self.wrong(Code::BadPortMapping, item, "upnp", message, hint);
        }
        if mapping.upnp_lifetime == Nanos(0) || mapping.upnp_lifetime > PortMapping::UPNP_LIFETIME {
            let message = "a mapping by UPnP lasts a second to a week (WANIPConnection:2)".to_owned();
            let hint = "programs that ask without an end do not ask again: write upnp-lifetime = \"7d\"";
            self.wrong(Code::BadPortMapping, item, "upnp-lifetime", message, hint);
        }
        for (key, number) in [("per-host", mapping.per_host), ("size", mapping.size)] {
            if number == 0 || number > PortMapping::MOST_SIZE {
                let message =
                    format!("`{key}` is a number of mappings, 1 to {}, not {number}", PortMapping::MOST_SIZE);
                let hint = "for no mappings leave the table [nat.port-mapping] out";
                self.wrong(Code::BadPortMapping, item, key, message, hint);
            }
        }
    }
}
