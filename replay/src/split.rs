//! Division of a replay among tasks, by flow.
//!
//! A [`Part`] has all packets between two addresses, in both directions, with what ICMP errors quote of them. Each task reads the whole
//! capture and plays its part ([`Player::part`](crate::Player::part)); [`merge`] makes one summary of theirs, the summary of a replay of
//! all packets. [`obstacles`] are what keeps a policy from being divided: state that flows between different addresses share.
//!
//! Some memory and some bounds every policy shares: the flow table, neighbours, fragments, the rate of answers. They matter only once one of
//! them is reached. A part says how much it has used, and what it has asked for; [`merge`] refuses where a replay of all packets might have been
//! refused something.

use std::fmt;

use dataplane::Tables;
use dataplane::replay::has_room_for_bursts;
use policy::Policy;
use policy::model::{Helper, MulticastMiss, Scope, SynAnswer};

mod merge;
mod pair;
mod result;

pub use merge::{Bound, Inexact, merge};
use pair::Place;
pub use result::PartResult;

use crate::measurement::MOST_MEASURED;

/// One of the parts that a replay is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: u16,
    of: u16,
}

/// Assignment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// To this part.
    Here,
    /// To another part.
    Elsewhere,
    /// To no part: a fragment of an ICMP error belongs to the flow that is quoted, and its further fragments do not say which.
    Nowhere,
}

impl Part {
    /// Part `number`, from 0, of so many; `None` if there is no such part.
    pub fn new(number: u16, of: u16) -> Option<Part> {
        (number < of).then_some(Part { number, of })
    }

    /// Returns the part that an Ethernet frame is assigned to. Frames without an IP packet are the first part's.
    pub(crate) fn assign(self, frame: &[u8]) -> Assigned {
        let place = match pair::place(frame) {
            Place::None => 0,
            // The upper bits of the hash, scaled.
            Place::Hash(hash) => (((hash >> 32) * u64::from(self.of)) >> 32) as u16,
            Place::Unknown => return Assigned::Nowhere,
        };
        if place == self.number { Assigned::Here } else { Assigned::Elsewhere }
    }
}

/// Part of a policy by which flows share state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Translations share addresses and ports.
    Nat(String),
    /// A rule bounds the rate of each source, whose flows are in several parts.
    RatePerSource(String),
    /// A rule bounds the number of connections.
    Connections(String),
    /// A rule answers SYNs for servers.
    SynProxy(String),
    /// A rule reads connections, and lets in others that they announce.
    Helper(String, Helper),
    /// A rule adds addresses to a set.
    AddsToSet(String, String),
    /// The number of flows of a source is bounded.
    FlowsPerSource,
    /// A meter counts packets of several flows.
    Meter(String),
    /// Packets wait for one another before an interface whose rate is bounded.
    Rate(String),
    /// Packets wait for one another in trees of queues.
    Queues,
    /// Packets that come at one moment may fill the queue of an interface.
    ShortQueue(u32),
    /// An association of a tunnel numbers the packets of all flows.
    Tunnel(String),
    /// A PPP session has a state.
    Session(String),
    /// Cells are put together to packets.
    Cells(String),
    /// Packets to a group have several flows' copies.
    Multicast,
    /// Two gateways share the flows.
    Pair,
    /// More classes than are measured: which ones are depends on the order of packets.
    Classes(usize),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Nat(name) => write!(f, "translation \"{name}\" shares addresses and ports among flows"),
            Obstacle::RatePerSource(name) => write!(f, "rule \"{name}\" has a rate for each source"),
            Obstacle::Connections(name) => write!(f, "rule \"{name}\" counts connections"),
            Obstacle::SynProxy(name) => write!(f, "rule \"{name}\" is a SYN proxy"),
            Obstacle::Helper(name, helper) => {
                let helper = match helper {
                    Helper::Ftp => "FTP",
                    Helper::Sip => "SIP",
                    Helper::Pptp => "PPTP",
                };
                write!(f, "rule \"{name}\" lets in connections that {helper} announces")
            }
            Obstacle::AddsToSet(name, set) => write!(f, "rule \"{name}\" adds to the set @{set}"),
            Obstacle::FlowsPerSource => f.write_str("[limit] flows-per-source counts the flows of a source"),
            Obstacle::Meter(name) => write!(f, "meter \"{name}\" counts packets of several flows"),
            Obstacle::Rate(name) => {
                write!(f, "interface \"{name}\" has a rate, at which packets wait for one another")
            }
            Obstacle::Queues => f.write_str("packets wait for one another in queues"),
            Obstacle::ShortQueue(length) => {
                write!(f, "[limit] queue = {length} may overflow by packets that come at one moment")
            }
            Obstacle::Tunnel(name) => write!(f, "tunnel \"{name}\" numbers the packets of all flows"),
            Obstacle::Session(name) => write!(f, "interface \"{name}\" is a PPP session"),
            Obstacle::Cells(name) => write!(f, "interface \"{name}\" puts packets together from cells"),
            Obstacle::Multicast => f.write_str("packets to multicast groups are copied"),
            Obstacle::Pair => f.write_str("two gateways share the flows"),
            Obstacle::Classes(count) => write!(f, "{count} classes are more than are measured"),
        }
    }
}

/// Returns what keeps a replay by this policy, compiled to `tables`, from being divided; nothing if it can be.
pub fn obstacles(policy: &Policy, tables: &Tables) -> Vec<Obstacle> {
    let mut found: Vec<Obstacle> = Vec::new();
    found.extend(policy.nats.iter().map(|nat| Obstacle::Nat(nat.name.clone())));
    for rule in &policy.rules {
        let name = || rule.name.clone();
        if rule.rate.is_some_and(|rate| rate.scope == Scope::Source) {
            found.push(Obstacle::RatePerSource(name()));
        }
        if rule.connections.is_some() {
            found.push(Obstacle::Connections(name()));
        }
        if rule.syn == SynAnswer::Proxy {
            found.push(Obstacle::SynProxy(name()));
        }
        found.extend(rule.helper.map(|helper| Obstacle::Helper(name(), helper)));
        found.extend(rule.add_source.clone().map(|set| Obstacle::AddsToSet(name(), set)));
    }
    if policy.limits.flows_per_source.is_some() {
        found.push(Obstacle::FlowsPerSource);
    }
    found.extend(policy.meters.iter().map(|meter| Obstacle::Meter(meter.name.clone())));
    for interface in &policy.interfaces {
        let name = || interface.name.clone();
        if interface.rate.or(interface.device_rate).is_some() {
            found.push(Obstacle::Rate(name()));
        }
        if interface.esp.is_some() {
            found.push(Obstacle::Tunnel(name()));
        }
        if interface.ppp.is_some() {
            found.push(Obstacle::Session(name()));
        }
        if interface.atm.is_some() {
            found.push(Obstacle::Cells(name()));
        }
        if interface.multicast_miss == MulticastMiss::Punt {
            found.push(Obstacle::Multicast);
        }
    }
    found.extend(policy.cross_connects.iter().map(|connect| Obstacle::Cells(connect.name.clone())));
    if !policy.queues.is_empty() || !policy.shapes.is_empty() {
        found.push(Obstacle::Queues);
    } else if !has_room_for_bursts(tables) {
        found.push(Obstacle::ShortQueue(tables.limits.queue));
    }
    if !policy.multicast_routes.is_empty() {
        found.push(Obstacle::Multicast);
    }
    if tables.pair.is_some() {
        found.push(Obstacle::Pair);
    }
    if policy.classes.len() >= MOST_MEASURED {
        found.push(Obstacle::Classes(policy.classes.len()));
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
