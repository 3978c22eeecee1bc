//! Compilation of a policy to tables. A policy without errors of `validate` compiles, save for bounds of
//! the implementation.

use std::net::IpAddr;
use std::sync::Arc;

use lookup::classify::{Algorithm, Bounds, Choice, Pattern, Task};
use lookup::fib::FibError;
use policy::Policy;
use policy::model::{
    ANY_ZONE, Mac, Mode, MssClamp, OTHER_ZONE, Rule, SELF_ZONE, SourceCheck, State, SynAnswer,
};
use wire::link_kind::NEAR;
use wire::vlan::{Tag, Tags};
use wire::{Bytes, Link, LinkKind, PortId};

use super::number::OTHER_NUMBER;
use super::{
    Filter, FilterRule, Hearing, Interface, LOCAL, NO_NUMBER, Neighbour, Numbers, OTHER, SELF, SourceMacs,
    Tables,
};
use super::{nat, pattern, route};
use crate::pipeline::Selection;

/// The most zones there can be, the gateway's own included: a mask of them is 64 bits.
const MAX_ZONES: usize = 64;

/// Reason for refusing to compile a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A rule or translation names a zone that no interface is in.
    #[error("no interface is in zone `{0}`")]
    UnknownZone(String),
    /// An interface that does not exist is named.
    #[error("there is no interface `{0}`")]
    UnknownInterface(String),
    /// A set that does not exist is named.
    #[error("there is no set `{0}`")]
    UnknownSet(String),
    /// A route has neither router nor interface.
    #[error("a route has neither router nor interface")]
    EmptyNextHop,
    /// A router is on no interface's network.
    #[error("the router {0} is on no interface's network")]
    NextHopOffLink(IpAddr),
    /// More zones than 64, the gateway's own included.
    #[error("{0} zones, with `self`; there can be {MAX_ZONES}")]
    TooManyZones(usize),
    /// More interfaces than 65,534.
    #[error("{0} interfaces; there can be 65534")]
    TooManyInterfaces(usize),
    /// Rules tell more classes of source MAC addresses apart than 65,535.
    #[error("{0} intervals between the MAC addresses of rules; there can be 65535")]
    TooManyMacs(usize),
    /// (destination translations + 1) × (source translations + 1) is more than 65,536.
    #[error(
        "{destinations} destination and {sources} source translations; the product of both, each \
         plus one, can be 65536"
    )]
    TooManyNats {
        /// Destination translations.
        destinations: usize,
        /// Source translations.
        sources: usize,
    },
    /// The routes do not fit.
    #[error("routes: {0}")]
    Fib(FibError),
}

impl Tables {
    /// Compiles a policy. `epoch`, 1 at least, tells this compilation from others; flows of another are revalidated.
    /// Tables that take the place of others are made with [`Tables::compile_after`].
    pub fn compile(policy: &Policy, epoch: u16) -> Result<Tables, CompileError> {
        Tables::compile_with(policy, epoch, wanted(policy), None)
    }

    /// The same, with rules to be searched by `algorithm`, whatever the policy says.
    pub fn compile_for(
        policy: &Policy,
        epoch: u16,
        algorithm: &'static Algorithm,
    ) -> Result<Tables, CompileError> {
        Tables::compile_with(policy, epoch, Some(algorithm), None)
    }

    /// Compiles the tables that take the place of `old` ([`Tables::after`]). The search of the rules is made from the one
    /// before where few of them have changed, and it can be.
    pub fn compile_after(policy: &Policy, old: &Tables) -> Result<Tables, CompileError> {
        let tables = Tables::compile_with(policy, 0, wanted(policy), Some(&old.filter))?;
        Ok(tables.after(old))
    }

    fn compile_with(
        policy: &Policy,
        epoch: u16,
        wanted: Option<&'static Algorithm>,
        before: Option<&Filter>,
    ) -> Result<Tables, CompileError> {
        let names = Names::new(policy)?;
        let routes = route::compile(policy, &names)?;
        let ct_zones = route::ct_zones(policy, &routes);
        let interfaces = interfaces(policy, &names, &ct_zones)?;
        let source_macs = SourceMacs::of([policy])?;
        let neighbours = policy
            .neighbours
            .iter()
            .map(|neighbour| {
                Ok(Neighbour {
                    interface: names.interface(&neighbour.interface)?,
                    address: neighbour.address.into(),
                    mac: neighbour.mac,
                })
            })
            .collect::<Result<_, CompileError>>()?;
        let mut tables = Tables {
            epoch: epoch.max(1),
            mode: policy.mode,
            interfaces,
            itself: itself(),
            filter: filter(policy, &names, source_macs.as_ref(), wanted, before)?,
            source_macs,
            nat: nat::compile(policy, &names, &routes)?,
            zones: names.zones,
            fib4: routes.fib4,
            fib6: routes.fib6,
            targets: routes.targets,
            ways: routes.ways,
            gateways: routes.gateways,
            neighbours,
            other: names.other.map(other),
            other_groups: policy.default_action(OTHER_ZONE, ANY_ZONE),
            limits: policy.limits,
            log: policy.gateway.log.clone(),
            timeouts: policy.timeouts,
            idle: Vec::new(),
            numbers: Numbers::default(),
            own_bits: own_bits(policy),
            stages: Selection::default(),
        };
        tables.stages = Selection::of(&tables);
        tables.number(None);
        Ok(tables)
    }
}

/// A bit for each of the gateway's own addresses.
fn own_bits(policy: &Policy) -> u64 {
    let networks = policy.interfaces.iter().flat_map(|interface| &interface.addresses);
    networks.fold(0, |bits, network| bits | 1 << super::Address::from(network.addr()).own_bit())
}

/// The algorithm that a policy names; `None` where the fastest is wanted.
fn wanted(policy: &Policy) -> Option<&'static Algorithm> {
    Algorithm::named(policy.search.algorithm.name())
}

/// Places of named things.
pub(super) struct Names {
    zones: Vec<String>,
    interfaces: Vec<String>,
    zone_of: Vec<u8>,
    /// The place of the zone of interfaces that are not the policy's, where it is named.
    other: Option<u8>,
}

impl Names {
    fn new(policy: &Policy) -> Result<Names, CompileError> {
        if policy.interfaces.len() >= usize::from(OTHER.0) {
            return Err(CompileError::TooManyInterfaces(policy.interfaces.len()));
        }
        let mut zones = vec![SELF_ZONE.to_owned()];
        zones.extend(policy.zones().into_iter().filter(|zone| *zone != SELF_ZONE).map(str::to_owned));
        let other = policy.admits_other().then(|| {
            zones.push(OTHER_ZONE.to_owned());
            (zones.len() - 1) as u8
        });
        if zones.len() > MAX_ZONES {
            return Err(CompileError::TooManyZones(zones.len()));
        }
        let place = |name: &str| zones.iter().position(|zone| zone == name).unwrap_or(0) as u8;
        let zone_of = policy.interfaces.iter().map(|interface| place(&interface.zone)).collect();
        let interfaces = policy.interfaces.iter().map(|interface| interface.name.clone()).collect();
        Ok(Names { zones, interfaces, zone_of, other })
    }

    /// The zone of the interface at a place.
    pub(super) fn zone_of(&self, interface: usize) -> u8 {
        self.zone_of.get(interface).copied().unwrap_or(SELF)
    }

    /// A bit for each zone; all of them for an empty list.
    pub(super) fn zone_mask(&self, zones: &[String]) -> Result<u64, CompileError> {
        if zones.is_empty() {
            return Ok(u64::MAX);
        }
        zones.iter().try_fold(0, |mask, name| {
            let place = self.zones.iter().position(|zone| zone == name);
            Ok(mask | 1 << place.ok_or_else(|| CompileError::UnknownZone(name.clone()))?)
        })
    }

    /// A bit for each zone of origin. An empty list does not mean what Linux forwards from interfaces that are not the policy's.
    pub(super) fn origin_mask(&self, zones: &[String]) -> Result<u64, CompileError> {
        let mask = self.zone_mask(zones)?;
        Ok(match self.other {
            Some(other) if zones.is_empty() => mask & !(1 << other),
            _ => mask,
        })
    }

    /// The place of an interface.
    pub(super) fn interface(&self, name: &str) -> Result<PortId, CompileError> {
        let place = self.interfaces.iter().position(|interface| interface == name);
        place.map(|place| PortId(place as u16)).ok_or_else(|| CompileError::UnknownInterface(name.to_owned()))
    }

    /// Places of interfaces.
    pub(super) fn interfaces(&self, names: &[String]) -> Result<Vec<u16>, CompileError> {
        names.iter().map(|name| Ok(self.interface(name)?.0)).collect()
    }
}

fn interfaces(policy: &Policy, names: &Names, ct_zones: &[u16]) -> Result<Vec<Interface>, CompileError> {
    let mut interfaces = Vec::with_capacity(policy.interfaces.len());
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let root = match &interface.parent {
            None => PortId(place as u16),
            Some(parent) => names.interface(parent)?,
        };
        let mut tags = Tags::NONE;
        match interface.vlans.as_slice() {
            [id] => tags = tags.with(Tag::customer(*id)),
            [outer, inner] => {
                tags = tags.with(Tag::service(*outer));
                tags = tags.with(Tag::customer(*inner));
            }
            _ => {}
        }
        let first = |v6: bool| interface.addresses.iter().map(|net| net.addr()).find(|a| a.is_ipv6() == v6);
        // IPv4 and TCP headers take 40 bytes of a packet, IPv6 and TCP 60 (RFC 6691).
        let clamp = |headers: u16| match interface.mss {
            MssClamp::Off => u16::MAX,
            MssClamp::Mtu => interface.mtu.saturating_sub(headers),
            MssClamp::Bytes(bytes) => bytes,
        };
        let parent_mac = policy.interfaces.get(usize::from(root.0)).and_then(|parent| parent.mac);
        let given = interface.mac.or(parent_mac).filter(|_| interface.link == LinkKind::Ethernet);
        let mac = match interface.link {
            LinkKind::Ethernet => given.unwrap_or_else(|| assumed_mac(root)),
            LinkKind::Ip => NEAR,
        };
        interfaces.push(Interface {
            name: interface.name.clone(),
            number: NO_NUMBER,
            zone: names.zone_of(place),
            root,
            tags,
            vlans: Vec::new(),
            link: interface.link,
            mac,
            mac_bits: mac.to_bits(),
            hearing: if given.is_some() { Hearing::Own } else { Hearing::All },
            mtu: interface.mtu,
            egress: Link::new(interface.link, interface.rate, interface.overhead()),
            ct_zone: ct_zones.get(place).copied().unwrap_or(0),
            source_check: interface.source_check,
            mss4: clamp(40),
            mss6: clamp(60),
            networks: interface.addresses.clone(),
            address4: first(false).and_then(|address| match address {
                IpAddr::V4(v4) => Some(v4.to_bits()),
                IpAddr::V6(_) => None,
            }),
            address6: first(true).and_then(|address| match address {
                IpAddr::V6(v6) => Some(v6.to_bits()),
                IpAddr::V4(_) => None,
            }),
            answered: Vec::new(),
        });
    }
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let id = PortId(place as u16);
        let root = interfaces[place].root;
        if root != id {
            let outer = interface.vlans.first().copied().unwrap_or(0);
            let inner = interface.vlans.get(1).copied().unwrap_or(0);
            if let Some(carrier) = interfaces.get_mut(usize::from(root.0)) {
                carrier.vlans.push((outer, inner, id));
            }
        }
    }
    for on_link in policy::nat::on_link_addresses(policy) {
        if let Some(interface) = interfaces.get_mut(on_link.interface) {
            interface.answered.push(on_link.addresses);
        }
    }
    Ok(interfaces)
}

/// The gateway itself, as if it were an interface. No interface shares its conntrack zone: theirs are numbered from 1, and
/// there are fewer than 65,535.
fn itself() -> Interface {
    Interface {
        name: SELF_ZONE.to_owned(),
        number: NO_NUMBER,
        zone: SELF,
        root: LOCAL,
        tags: Tags::NONE,
        vlans: Vec::new(),
        link: LinkKind::Ethernet,
        mac: Mac::ZERO,
        mac_bits: 0,
        hearing: Hearing::All,
        mtu: u16::MAX,
        egress: Link::new(LinkKind::Ethernet, None, Bytes(0)),
        ct_zone: u16::MAX,
        source_check: SourceCheck::Off,
        mss4: u16::MAX,
        mss6: u16::MAX,
        networks: Vec::new(),
        address4: None,
        address6: None,
        answered: Vec::new(),
    }
}

/// Interfaces outside the policy, as one interface: packets that Linux sends, but of another zone.
fn other(zone: u8) -> Interface {
    Interface { name: OTHER_ZONE.to_owned(), number: OTHER_NUMBER, zone, root: OTHER, ..itself() }
}

/// A locally administered address for an interface whose own is not known.
fn assumed_mac(interface: PortId) -> Mac {
    let [high, low] = interface.0.to_be_bytes();
    Mac([0x02, 0x57, 0x52, 0x00, high, low])
}

/// Rules that can meet a packet: in a stateful policy those that list `new`, or no state at all. Each with its place
/// among the policy's rules.
pub fn met(policy: &Policy) -> impl Iterator<Item = (u32, &Rule)> {
    let is_met = |rule: &Rule| {
        policy.mode == Mode::Stateless || rule.states.is_empty() || rule.states.contains(&State::New)
    };
    (0..).zip(&policy.rules).filter(move |(_, rule)| is_met(rule))
}

/// Returns the patterns of the rules that can match a packet, in rule order: the input of a classifier.
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns(policy: &Policy) -> Result<Vec<Pattern>, CompileError> {
    patterns_by(policy, SourceMacs::of([policy])?.as_ref())
}

/// [`patterns`], with classes of source MAC addresses that may be those of several policies ([`SourceMacs::of`]).
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns_by(policy: &Policy, macs: Option<&SourceMacs>) -> Result<Vec<Pattern>, CompileError> {
    patterns_of(policy, &Names::new(policy)?, macs)
}

fn patterns_of(
    policy: &Policy,
    names: &Names,
    macs: Option<&SourceMacs>,
) -> Result<Vec<Pattern>, CompileError> {
    met(policy).map(|(_, rule)| pattern::of_rule(rule, policy, names, macs)).collect()
}

fn filter(
    policy: &Policy,
    names: &Names,
    macs: Option<&SourceMacs>,
    wanted: Option<&'static Algorithm>,
    before: Option<&Filter>,
) -> Result<Filter, CompileError> {
    let patterns = patterns_of(policy, names, macs)?;
    let rule_of = met(policy).map(|(place, _)| place).collect();
    let mut rules = Vec::with_capacity(policy.rules.len());
    for rule in &policy.rules {
        rules.push(FilterRule {
            name: rule.name.clone(),
            number: NO_NUMBER,
            meter: NO_NUMBER,
            action: rule.action,
            rate: rule.rate,
            connections: rule.connections,
            timeout: rule.timeout,
            idle: 0,
            syn: rule.syn,
            log: rule.log,
        });
    }
    let mut defaults = Vec::with_capacity(names.zones.len() * names.zones.len());
    for from in &names.zones {
        for to in &names.zones {
            defaults.push(policy.default_action(from, to));
        }
    }
    let bounds = policy.search.memory.map(|memory| Bounds { memory: memory.0 as usize });
    let bounds = bounds.unwrap_or(Bounds::of(patterns.len()));
    let task = Task { patterns, wanted, bounds };
    Ok(Filter {
        search: match before {
            Some(before) => Choice::after(&before.search, task),
            None => Arc::new(Choice::new(task)),
        },
        rule_of,
        has_syn_proxy: rules.iter().any(|rule| rule.syn == SynAnswer::Proxy),
        rules,
        defaults,
        zones: names.zones.len(),
    })
}

#[cfg(test)]
mod tests;
