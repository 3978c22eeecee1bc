//! What was asked for: pure data, comparable, printable, without handles.
//!
//! A [`Policy`] says nothing of how it is carried out, and holds only what an operator may write; whether it
//! makes sense is the business of `validate`. Names are kept as written; `compile` in the dataplane turns
//! them into indices.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::{Bytes, Nanos};

use crate::word;

#[cfg(test)]
pub(crate) mod arbitrary;
mod gateway;
mod interface;
mod limit;
mod log;
mod metrics;
mod nat;
mod rule;

pub use gateway::{Driver, Gateway, Offload, OnExit, PortDriver};
pub use interface::{Interface, LinkKind, Mac, MssClamp, SourceCheck};
pub use limit::{Checksum, FragmentLimits, Limits, Pickup, TcpWindow, Timeouts, WhenFull};
pub use log::{Log, LogEvent, LogOutput, SyslogAddress};
pub use metrics::MetricsAccess;
pub use nat::{Hairpin, Nat, NatAction, PortChoice, PortUse};
pub use rule::{
    Action, AddressItem, AddressRange, Addresses, ConnectionLimit, FamilyMatch, IcmpMatch, Logging, MacRange,
    Macs, PortRange, Protocol, Rate, RejectWith, Rule, Scope, State, SynAnswer, TcpFlagsMatch,
};

/// The zone of the gateway itself: traffic to its own addresses goes to this zone.
pub const SELF_ZONE: &str = "self";

/// The zone of what Linux forwards from interfaces that the policy does not name, out by one that it names. Rules and defaults
/// that name it as the origin decide on it; where none does, it is dropped.
pub const OTHER_ZONE: &str = "other";

/// The word that stands for every zone in a default action.
pub const ANY_ZONE: &str = "any";

/// Everything that one policy file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Connection tracking: stateful or stateless.
    pub mode: Mode,
    /// Interfaces, in the order of the file; names are unique.
    pub interfaces: Vec<Interface>,
    /// Named sets of addresses.
    pub sets: Vec<Set>,
    /// Static routes. Those to the interfaces' own networks need not be written.
    pub routes: Vec<Route>,
    /// Static neighbours: the link-layer addresses of next hops.
    pub neighbours: Vec<Neighbour>,
    /// What happens to a new connection that no rule decides, by zone pair. Where none is given: drop.
    pub defaults: Vec<ZoneDefault>,
    /// Filter rules; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Address translations; of each kind (source, destination) the first that matches applies.
    pub nats: Vec<Nat>,
    /// Endpoints that sockets of the machine itself listen on: no key of a file, but what a live host finds. Their ports
    /// are handed out by no translation while others are free.
    pub listeners: Vec<Listener>,
    /// How the rules are searched.
    pub search: Search,
    /// Bounds on what is remembered.
    pub limits: Limits,
    /// How long it is remembered.
    pub timeouts: Timeouts,
    /// Knobs of the live daemon; replay and chip ignore them.
    pub gateway: Gateway,
}

/// Connection tracking: does the first packet decide for the rest of its connection?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Connections are tracked; only the first packet meets the rules.
    #[default]
    Stateful,
    /// No connections and no NAT; every packet meets the rules.
    Stateless,
}

/// How the filter rules are searched. What is found is the same by every algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// By what.
    pub algorithm: SearchAlgorithm,
    /// Memory that it may take; by default as much as so many rules are worth. One that would take more gives way.
    pub memory: Option<Bytes>,
}

/// An algorithm that searches rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchAlgorithm {
    /// The fastest for these rules.
    #[default]
    Auto,
    /// One rule after the other.
    Linear,
    /// The same, translated to code of a network processor.
    Coded,
    /// Intervals and bit vectors.
    RangeMatch,
    /// Hash tables by prefix lengths.
    Tuple,
    /// Decision trees.
    Tree,
    /// Binary decision diagrams.
    Bdd,
}

impl SearchAlgorithm {
    /// All.
    pub fn all() -> impl Iterator<Item = SearchAlgorithm> {
        // A former name is no algorithm of its own.
        word::SEARCH_ALGORITHM.iter().filter(|(name, one)| one.name() == *name).map(|(_, one)| *one)
    }

    /// Its name in a policy, which is its name everywhere.
    pub fn name(self) -> &'static str {
        word::SEARCH_ALGORITHM.iter().find(|(_, one)| *one == self).map_or("auto", |(name, _)| name)
    }
}

/// A named set of addresses, used as `@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name, without the `@`.
    pub name: String,
    /// What it holds; sets do not hold sets.
    pub items: Vec<AddressRange>,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destinations it is for.
    pub destination: IpNet,
    /// Where they go.
    pub target: RouteTarget,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To one of these next hops, chosen by flow (ECMP) where there are several; never empty.
    Via(Vec<NextHop>),
    /// Nowhere: dropped in silence.
    Blackhole,
    /// Nowhere: answered with ICMP destination unreachable.
    Unreachable,
}

/// One next hop of a route. At least one of the two is given; an interface alone means that the destinations
/// are on its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The router's address.
    pub via: Option<IpAddr>,
    /// The interface to leave by; found from `via` where absent.
    pub interface: Option<String>,
    /// Share of the flows among the route's next hops, 1 to 255.
    pub weight: u8,
}

/// A static neighbour (the link-layer address that ARP or ND would find).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface it is on.
    pub interface: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub mac: Mac,
}

/// The action for new connections of a zone pair that no rule decides. The most specific pair counts:
/// both zones named, then `from` named, then `to` named, then neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDefault {
    /// Zone of origin, or [`ANY_ZONE`].
    pub from: String,
    /// Zone of destination, or [`ANY_ZONE`].
    pub to: String,
    /// What happens.
    pub action: Action,
}

/// An endpoint that a socket of the machine itself listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Transport protocol.
    pub protocol: Protocol,
    /// The address that it is bound to; `None` for every address of the machine.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Policy {
    /// The interface of that name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The set of that name.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == name)
    }

    /// All zones, in the order in which interfaces name them, without [`SELF_ZONE`].
    pub fn zones(&self) -> Vec<&str> {
        let mut zones: Vec<&str> = Vec::new();
        for interface in &self.interfaces {
            if !zones.contains(&interface.zone.as_str()) {
                zones.push(&interface.zone);
            }
        }
        zones
    }

    /// True if a rule or a default names [`OTHER_ZONE`]: without, all of it is dropped.
    pub fn admits_other(&self) -> bool {
        self.rules.iter().any(Rule::names_other)
            || self.defaults.iter().any(|default| default.from == OTHER_ZONE)
    }

    /// What happens to a new connection between two zones that no rule decides. Defaults from every zone do not speak of
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

/// Whole seconds as a duration, for defaults.
const fn seconds(count: u64) -> Nanos {
    Nanos::from_secs(count)
}
