//! Multicast routes in force, for operators: the policy's own, and those of Linux's multicast forwarding cache.

use std::fmt;
use std::net::IpAddr;

use dataplane::Tables;
use dataplane::tables::MulticastRoutes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::PortId;

/// View of a multicast route for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MulticastView {
    /// Group, or prefix of groups.
    pub group: String,
    /// Source of the packets; any where absent.
    pub source: Option<IpAddr>,
    /// Interface that packets come in by.
    pub from: String,
    /// Interfaces that copies leave by.
    pub to: Vec<MulticastExitView>,
    /// Packets forwarded, each once, since the route was made.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// Interface that copies of multicast packets leave by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MulticastExitView {
    /// Name of the interface.
    pub interface: String,
    /// TTL threshold: packets leave whose TTL is greater.
    pub threshold: u8,
}

impl MulticastView {
    /// Views of all routes, in their order; interfaces are those of the tables.
    pub fn all(routes: &MulticastRoutes, tables: &Tables) -> Vec<MulticastView> {
        let name =
            |id: PortId| tables.interface(id).map_or_else(String::new, |interface| interface.name.clone());
        let exit = |exit: &dataplane::tables::MulticastExit| MulticastExitView {
            interface: name(exit.interface),
            threshold: exit.threshold,
        };
        let routes = routes.list.iter().map(|route| MulticastView {
            group: match route.group.prefix_len() == route.group.max_prefix_len() {
                true => route.group.addr().to_string(),
                false => route.group.to_string(),
            },
            source: route.source,
            from: name(route.from),
            to: route.exits.iter().map(exit).collect(),
            packets: route.count.packets(),
            bytes: route.count.bytes(),
        });
        routes.collect()
    }
}

impl fmt::Display for MulticastView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.group)?;
        if let Some(source) = self.source {
            write!(f, " from {source}")?;
        }
        write!(f, " by {} to ", self.from)?;
        if self.to.is_empty() {
            f.write_str("nowhere")?;
        }
        for (place, exit) in self.to.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{}", exit.interface)?;
            if exit.threshold > 1 {
                write!(f, " (TTL above {})", exit.threshold)?;
            }
        }
        write!(f, ": {} packets, {} bytes", self.packets, self.bytes)
    }
}
