//! The policy model: pure data, comparable, printable, without handles.
//!
//! A [`Policy`] says nothing of its execution, and holds only what an operator may write; semantic checks are the business
//! of `validate`. Names are kept as written; `compile` in the dataplane turns them into indices.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use wire::{Bytes, Nanos};

#[cfg(test)]
pub(crate) mod arbitrary;
mod check;
mod class;
mod cross_connect;
mod dynamic_set;
mod gateway;
mod interface;
mod ipfix;
mod limit;
mod log;
mod metrics;
mod multicast;
mod nat;
mod page;
mod port_mapping;
mod ppp;
mod queue;
mod rule;
mod selector;
mod sync;
mod tunnel;
mod wan;

pub use check::{CheckUrl, Pace, Probe, Scheme, ServerCheck, StatusRange};
pub use class::{
    Class, Colour, ColourAction, ColourMode, Meter, MeterKind, MeterRate, MeterScope, NoInstance, Overhead,
};
pub use cross_connect::{Connection, ConnectionEnd, CrossConnect};
pub use dynamic_set::{DynamicSet, SetSource};
pub use gateway::{Driver, FastPath, Gateway, Offload, OnExit, PortDriver, Xfrm};
pub use interface::{
    Atm, Channel, Encapsulation, Interface, LinkKind, Mac, MssClamp, PcpMap, PriorityTag, SourceCheck, Vc,
};
pub use ipfix::{Collector, Ipfix, IpfixRecord};
pub use limit::{Checksum, FragmentLimits, Limits, Pickup, TcpWindow, Timeouts, WhenFull};
pub use log::{Log, LogEvent, LogOutput, SyslogAddress};
pub use metrics::MetricsAccess;
pub use multicast::{MulticastExit, MulticastMiss, MulticastRoute};
pub use nat::{
    Balance, Clat, Hairpin, Nat, Nat64, NatAction, OnDemand, PortChoice, PortUse, Server, ServerState, Sticky,
};
pub use page::PageAccess;
pub use port_mapping::{PortMapping, Upnp};
pub use ppp::{Authentication, Ppp, PppRole};
pub use queue::{
    Dropper, Fairness, Isolation, Phb, Queue, RedThreshold, Scheduler, Shape, Template, TreeWorkers,
};
pub use rule::{
    Action, AddressItem, AddressRange, Addresses, Conditions, ConnectionLimit, DnatStatus, Excess,
    FamilyMatch, Helper, IcmpMatch, Logging, MacRange, Macs, PortRange, Protocol, Rate, RejectWith, Rule,
    Scope, State, SynAnswer, TcpFlagsMatch,
};
pub(crate) use selector::overlap;
pub use selector::{SelectorEnd, SelectorPair};
pub use sync::{Half, Sync, SyncOwner, SyncPeer, vni};
pub use tunnel::{
    Binding, DfBit, Follow, FragmentWhen, KeyFiles, KeySource, Legacy, Lifetime, Reading, StaticSa, Tunnel,
    TunnelDscp, WindowSize,
};
pub use wan::{OnFailure, PolicyRoute, Wan, WanCheck, WanState, WhenDown};

/// Zone of the gateway itself: the destination of traffic to the gateway's own addresses.
pub const SELF_ZONE: &str = "self";

/// Zone of packets that Linux forwards from an interface outside the policy to one inside. Rules and defaults with this
/// zone as the origin decide on such packets; without any, the packets are dropped.
pub const OTHER_ZONE: &str = "other";

/// Keyword for every zone in a default action.
pub const ANY_ZONE: &str = "any";

/// Name of the VRF of all interfaces that name no other.
pub const DEFAULT_VRF: &str = "default";

/// A whole policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Connection tracking: stateful or stateless.
    pub mode: Mode,
    /// Interfaces, in the order of the file; names are unique.
    pub interfaces: Vec<Interface>,
    /// Named sets of addresses.
    pub sets: Vec<Set>,
    /// Sets of addresses that change without a reload; they share the names of `sets`.
    pub dynamic_sets: Vec<DynamicSet>,
    /// Static routes. Routes to the interfaces' own networks are implied.
    pub routes: Vec<Route>,
    /// WANs, which share the default routes; names and interfaces are unique.
    pub wans: Vec<Wan>,
    /// New flows that keep to one WAN: each by itself, or all of a source address.
    pub wan_sticky: Sticky,
    /// Policy routes: the WANs of chosen traffic. The first that matches a flow decides.
    pub policy_routes: Vec<PolicyRoute>,
    /// Multicast routes.
    pub multicast_routes: Vec<MulticastRoute>,
    /// Static neighbours: the link-layer addresses of next hops.
    pub neighbours: Vec<Neighbour>,
    /// Cross-connections of ATM cells; names are unique.
    pub cross_connects: Vec<CrossConnect>,
    /// Actions for new connections that no rule decides, by zone pair. A pair without one: drop.
    pub defaults: Vec<ZoneDefault>,
    /// Filter rules; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Traffic classes; a packet is of the first whose conditions it meets.
    pub classes: Vec<Class>,
    /// Traffic meters.
    pub meters: Vec<Meter>,
    /// Queues before interfaces, in trees. An interface without any has one first-in-first-out queue.
    pub queues: Vec<Queue>,
    /// Shapes of interfaces: trees of queues in short. Interfaces are unique.
    pub shapes: Vec<Shape>,
    /// Address translations; of each kind (source, destination) the first that matches applies.
    pub nats: Vec<Nat>,
    /// Endpoints that sockets of the machine itself listen on: no key of the file, but found on a live host. Translations
    /// hand out the endpoints' ports last.
    pub listeners: Vec<Listener>,
    /// Classifier for the rules.
    pub search: Search,
    /// Bounds on state: flows, fragments, errors, queues.
    pub limits: Limits,
    /// Lifetimes of idle flows and fragments.
    pub timeouts: Timeouts,
    /// Settings of the live daemon; replay and chip ignore them.
    pub gateway: Gateway,
}

/// Connection tracking: stateful, the first packet decides for the rest of its connection; or stateless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Connections are tracked; only the first packet is matched against the rules.
    #[default]
    Stateful,
    /// No connections and no NAT; every packet is matched against the rules.
    Stateless,
}

/// Selection of the classifier for the filter rules. All algorithms find the same rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Lookup algorithm.
    pub algorithm: SearchAlgorithm,
    /// Memory limit; by default 64 MiB, or 5 KiB a rule if more. An algorithm that exceeds the limit falls back to another.
    pub memory: Option<Bytes>,
}

/// Lookup algorithm of the classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchAlgorithm {
    /// The fastest for the rules at hand.
    #[default]
    Auto,
    /// Linear search, rule by rule.
    Linear,
    /// Linear search, compiled to code of a network processor.
    Coded,
    /// Intervals and bit vectors.
    RangeMatch,
    /// Hash tables, one for each tuple of prefix lengths (tuple space search).
    Tuple,
    /// Decision trees.
    Tree,
    /// Binary decision diagrams.
    Bdd,
}

impl SearchAlgorithm {
    /// All algorithms.
    pub const ALL: [SearchAlgorithm; 7] = [
        SearchAlgorithm::Auto,
        SearchAlgorithm::Linear,
        SearchAlgorithm::Coded,
        SearchAlgorithm::RangeMatch,
        SearchAlgorithm::Tuple,
        SearchAlgorithm::Tree,
        SearchAlgorithm::Bdd,
    ];

    /// Name of the algorithm, in policies as elsewhere.
    pub const fn name(self) -> &'static str {
        match self {
            SearchAlgorithm::Auto => "auto",
            SearchAlgorithm::Linear => "linear",
            SearchAlgorithm::Coded => "coded",
            SearchAlgorithm::RangeMatch => "range_match",
            SearchAlgorithm::Tuple => "tuple",
            SearchAlgorithm::Tree => "tree",
            SearchAlgorithm::Bdd => "bdd",
        }
    }
}

/// A named set of addresses, used as `@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Name, without the `@`.
    pub name: String,
    /// Addresses of the set; sets do not nest.
    pub items: Vec<AddressRange>,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub destination: IpNet,
    /// VRF of the route: packets that come in by its interfaces take it; the default one where absent.
    pub vrf: Option<Arc<str>>,
    /// VRF of the next hops where it is another (a route leak), or [`DEFAULT_VRF`].
    pub next_vrf: Option<Arc<str>>,
    /// Target of matching packets.
    pub target: RouteTarget,
}

/// Target of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// Next hops, at least one; of several, each flow is assigned one (ECMP).
    Via(Vec<NextHop>),
    /// Silent discard.
    Blackhole,
    /// Discard, answered with ICMP destination unreachable.
    Unreachable,
}

/// One next hop of a route: address, interface or both. An interface alone means that the destinations are on its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// IP address of the router.
    pub via: Option<IpAddr>,
    /// Outgoing interface; found from `via` if absent.
    pub interface: Option<String>,
    /// Share of the flows among the route's next hops, 1 to 255.
    pub weight: u8,
}

/// A static neighbour (the link-layer address that ARP or ND would find).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface of the neighbour.
    pub interface: String,
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// Link-layer address of the neighbour.
    pub mac: Mac,
}

/// Action for new connections of a zone pair that no rule decides. The most specific pair wins: both zones named, then
/// `from` named, then `to` named, then neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDefault {
    /// Zone of origin, or [`ANY_ZONE`].
    pub from: String,
    /// Zone of destination, or [`ANY_ZONE`].
    pub to: String,
    /// Action for the connections.
    pub action: Action,
}

/// An endpoint that a socket of the machine itself listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Bound address; `None` for every address of the machine.
    pub address: Option<IpAddr>,
    /// Local port.
    pub port: u16,
}

impl Route {
    /// Returns the VRF that its next hops are in; `None` for the default one.
    pub fn hop_vrf(&self) -> Option<&str> {
        self.next_vrf.as_deref().or(self.vrf.as_deref()).filter(|vrf| *vrf != DEFAULT_VRF)
    }
}

impl Policy {
    /// Returns the policy with other routes; its own, of which there may be a million, are not copied.
    #[must_use]
    pub fn with_routes(&self, routes: Vec<Route>) -> Policy {
        Policy {
            mode: self.mode,
            interfaces: self.interfaces.clone(),
            sets: self.sets.clone(),
            dynamic_sets: self.dynamic_sets.clone(),
            routes,
            wans: self.wans.clone(),
            wan_sticky: self.wan_sticky,
            policy_routes: self.policy_routes.clone(),
            multicast_routes: self.multicast_routes.clone(),
            neighbours: self.neighbours.clone(),
            cross_connects: self.cross_connects.clone(),
            defaults: self.defaults.clone(),
            rules: self.rules.clone(),
            classes: self.classes.clone(),
            meters: self.meters.clone(),
            queues: self.queues.clone(),
            shapes: self.shapes.clone(),
            nats: self.nats.clone(),
            listeners: self.listeners.clone(),
            search: self.search,
            limits: self.limits,
            timeouts: self.timeouts,
            gateway: self.gateway.clone(),
        }
    }

    /// Returns the interface named `name`.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Returns the WAN named `name`.
    pub fn wan(&self, name: &str) -> Option<&Wan> {
        self.wans.iter().find(|wan| wan.name == name)
    }

    /// Returns the set named `name`.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == name)
    }

    /// Returns the dynamic set named `name`.
    pub fn dynamic_set(&self, name: &str) -> Option<&DynamicSet> {
        self.dynamic_sets.iter().find(|set| set.name == name)
    }

    /// Returns all zones but [`SELF_ZONE`], in the order of the interfaces.
    pub fn zones(&self) -> Vec<&str> {
        let mut zones: Vec<&str> = Vec::new();
        for interface in &self.interfaces {
            if !zones.contains(&interface.zone.as_str()) {
                zones.push(&interface.zone);
            }
        }
        zones
    }

    /// Returns the names of the VRFs beside the default one, in the order of the interfaces.
    pub fn vrfs(&self) -> Vec<&str> {
        let mut vrfs: Vec<&str> = Vec::new();
        for vrf in self.interfaces.iter().filter_map(|interface| interface.vrf.as_deref()) {
            if !vrfs.contains(&vrf) {
                vrfs.push(vrf);
            }
        }
        vrfs
    }

    /// Returns the VRF of a zone's interfaces; `None` for the default one.
    pub fn vrf_of_zone(&self, zone: &str) -> Option<&str> {
        self.interfaces.iter().find(|interface| interface.zone == zone)?.vrf.as_deref()
    }

    /// True if priorities in the VLAN tags of frames (IEEE 802.1Q) decide on packets: conditions of classes, or colours for meters.
    pub fn reads_priority(&self) -> bool {
        self.classes.iter().any(Class::asks_priority)
            || self.meters.iter().any(|meter| meter.colours == ColourMode::DropEligible)
    }

    /// True if a rule or a default names [`OTHER_ZONE`]; if none does, all packets from it are dropped.
    pub fn admits_other(&self) -> bool {
        self.rules.iter().any(|rule| rule.conditions.names_other())
            || self.defaults.iter().any(|default| default.from == OTHER_ZONE)
    }

    /// Action for a new connection between two zones that no rule decides. Defaults from every zone do not apply to
    /// [`OTHER_ZONE`].
    pub fn default_action(&self, from: &str, to: &str) -> Action {
        let given = |a: &str, b: &str| {
            self.defaults
                .iter()
                .find(|default| default.from == a && default.to == b)
                .map(|default| default.action)
        };
        let named = given(from, to).or_else(|| given(from, ANY_ZONE));
        if from == OTHER_ZONE {
            return named.unwrap_or(Action::Drop);
        }
        named.or_else(|| given(ANY_ZONE, to)).or_else(|| given(ANY_ZONE, ANY_ZONE)).unwrap_or(Action::Drop)
    }
}

/// Returns whole seconds as a duration, for defaults.
const fn seconds(count: u64) -> Nanos {
    Nanos::from_secs(count)
}
