//! Compilation of a policy to tables. A policy without errors of `validate` compiles, save for bounds of
//! the implementation.

use std::net::IpAddr;
use std::sync::Arc;

use lookup::classify::{Algorithm, Bounds, Choice, Pattern, Task};
use policy::Policy;
use policy::model::{
    ANY_ZONE, Helper, Mac, MssClamp, MulticastMiss, OTHER_ZONE, SELF_ZONE, SourceCheck, SynAnswer, TcpWindow,
};
use wire::atm::{Connection, Vc};
use wire::link_kind::NEAR;
use wire::vlan::{Tag, Tags};
use wire::{Bytes, Link, LinkKind, PortId};

use crate::flow::tcp::WindowCheck;
use crate::helper;
use crate::pipeline::Selection;
use crate::tables::{
    Address, Circuit, CompileError, Filter, FilterRule, Hearing, Interface, LOCAL, MulticastRoutes,
    NO_NUMBER, Neighbour, Numbers, OTHER, OTHER_NUMBER, PatternRule, Priorities, SELF, SetAddition,
    SetQuestions, SetUses, SourceMacs, Tables, set,
};

mod class;
mod multicast;
mod names;
mod nat;
mod pair;
mod pattern;
mod queue;
mod route;
mod selector;
mod session;
mod tunnel;
mod wan;

pub(crate) use tunnel::keyless;

use names::Names;
use pattern::About;
pub use pattern::{RulePattern, met, patterns, patterns_by};

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
        let mut interfaces = interfaces(policy, &names, &ct_zones)?;
        let sessions = session::add(policy, &names, &mut interfaces)?;
        let source_macs = SourceMacs::of([policy])?;
        let set_uses = SetUses::of([policy])?;
        let about = About { names: &names, macs: source_macs.as_ref(), sets: &set_uses };
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
        let classes = class::compile(policy, &about, wanted)?;
        let nat = nat::compile(policy, &about, &routes)?;
        let wans = wan::compile(policy, &about, &routes)?;
        let mut tables = Tables {
            epoch: epoch.max(1),
            mode: policy.mode,
            zone_of: interfaces.iter().map(|interface| interface.zone).collect(),
            interfaces,
            sessions,
            tunnels: tunnel::compile(policy)?,
            itself: itself(),
            filter: filter(policy, &about, wanted, before)?,
            queues: queue::compile(policy, &names, &classes.list)?,
            classes,
            sets: set::specs(policy)?,
            set_questions: SetQuestions::of(policy, &set_uses),
            source_macs,
            nat,
            wans,
            multicast: multicast::compile(policy, &names)?,
            zones: names.zones,
            exits: routes.targets.iter().map(|target| routes.exit(target)).collect(),
            only_hops: routes.targets.iter().map(|target| routes.only_hop(target)).collect(),
            fib4: routes.fib4,
            fib6: routes.fib6,
            vrfs: routes.vrfs,
            targets: routes.targets,
            ways: routes.ways,
            gateways: routes.gateways,
            neighbours,
            other: names.other.map(other),
            other_groups: policy.default_action(OTHER_ZONE, ANY_ZONE),
            limits: policy.limits,
            log: policy.gateway.log.clone(),
            ipfix: policy.gateway.ipfix.clone(),
            synchronises: policy.gateway.sync.peer.is_some(),
            pair: pair::compile(policy)?,
            window: window(policy),
            drop_record: policy.gateway.drop_record().into(),
            timeouts: policy.timeouts,
            idle: Vec::new(),
            numbers: Numbers::default(),
            own_bits: own_bits(policy),
            source_check: strictest(policy),
            stages: Selection::default(),
        };
        tables.stages = Selection::of(&tables);
        tables.number(None);
        Ok(tables)
    }
}

/// Compiles the multicast routes of a policy alone.
///
/// # Errors
/// As [`Tables::compile`].
pub(crate) fn multicast_routes(policy: &Policy) -> Result<MulticastRoutes, CompileError> {
    multicast::compile(policy, &Names::new(policy)?)
}

/// Check of TCP windows. Where a second gateway forwards packets of the same flows, each may see one direction.
fn window(policy: &Policy) -> WindowCheck {
    match policy.limits.tcp_window {
        TcpWindow::Off => WindowCheck::Off,
        TcpWindow::Strict if policy.gateway.sync.half().is_some() => WindowCheck::OneWay,
        TcpWindow::Strict => WindowCheck::Strict,
    }
}

/// The strictest check of sources of all interfaces.
fn strictest(policy: &Policy) -> SourceCheck {
    let any = |check| policy.interfaces.iter().any(|interface| interface.source_check == check);
    let checks = [SourceCheck::Strict, SourceCheck::Loose];
    checks.into_iter().find(|check| any(*check)).unwrap_or(SourceCheck::Off)
}

/// A bit for each of the gateway's own addresses.
fn own_bits(policy: &Policy) -> u64 {
    let networks = policy.interfaces.iter().flat_map(|interface| &interface.addresses);
    networks.fold(0, |bits, network| bits | 1 << Address::from(network.addr()).own_bit())
}

/// The algorithm that a policy names; `None` where the fastest is wanted.
fn wanted(policy: &Policy) -> Option<&'static Algorithm> {
    Algorithm::named(policy.search.algorithm.name())
}

fn interfaces(policy: &Policy, names: &Names, ct_zones: &[u16]) -> Result<Vec<Interface>, CompileError> {
    let mut interfaces = Vec::with_capacity(policy.interfaces.len());
    let mut tunnels = 0..;
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
        let mtu = match &interface.esp {
            Some(tunnel) => policy::tunnel::mtu(policy, place, tunnel).max(policy::tunnel::LEAST_MTU),
            None => interface.mtu,
        };
        // IPv4 and TCP headers take 40 bytes of a packet, IPv6 and TCP 60 (RFC 6691).
        let clamp = |headers: u16| match interface.mss {
            MssClamp::Off => u16::MAX,
            MssClamp::Mtu => mtu.saturating_sub(headers),
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
            vni: policy::model::vni(&interface.name),
            tags,
            vlans: Vec::new(),
            link: interface.link,
            mac,
            mac_bits: mac.to_bits().swap_bytes() >> 16,
            hearing: if given.is_some() { Hearing::Own } else { Hearing::All },
            mtu,
            egress: link(interface),
            ct_zone: ct_zones.get(place).copied().unwrap_or(0),
            source_check: match &interface.esp {
                // Selectors say which sources come out of it: no route leads back.
                Some(tunnel) if tunnel.is_by_policy() => SourceCheck::Off,
                _ => interface.source_check,
            },
            multicast_miss: interface.multicast_miss,
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
            priorities: Priorities::of(interface),
            tunnel: interface.esp.as_ref().and_then(|_| tunnels.next()),
            channel: interface.atm.as_ref().map(|atm| atm.channel),
            circuits: circuits(policy, interface, names)?,
            ppp: None,
            sessions: Vec::new(),
        });
    }
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let id = PortId(place as u16);
        let root = interfaces[place].root;
        if root != id && interface.ppp.is_none() {
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

/// The ATM connections whose cells come by an interface's port, in their order.
fn circuits(
    policy: &Policy,
    port: &policy::model::Interface,
    names: &Names,
) -> Result<Vec<(Vc, Circuit)>, CompileError> {
    if port.atm.is_none() {
        return Ok(Vec::new());
    }
    let all = policy.interfaces.iter().enumerate();
    let of = |(place, interface): (usize, &policy::model::Interface)| {
        let is_by_port = interface.name == port.name || interface.line() == port.name;
        let atm = interface.atm.as_ref().filter(|_| is_by_port)?;
        Some((atm.channel.vc, Circuit::Interface(PortId(place as u16))))
    };
    let mut circuits: Vec<_> = all.filter_map(of).collect();
    for cross in &policy.cross_connects {
        let [one, other] = cross.ends.as_slice() else { continue };
        for (here, there) in [(one, other), (other, one)] {
            if here.line == port.name {
                let vc = match here.connection {
                    Connection::Channel(vc) => vc,
                    Connection::Path(vpi) => Vc { vpi, vci: 0 },
                };
                let (port, onto) = (names.interface(&there.line)?, there.connection);
                circuits.push((vc, Circuit::Switched { port, onto }));
            }
        }
    }
    circuits.sort_unstable_by_key(|(vc, _)| *vc);
    Ok(circuits)
}

/// The link of an interface: at the rate of the policy, else at that of the device.
fn link(interface: &policy::model::Interface) -> Link {
    let overhead = interface.overhead();
    let link = match (interface.rate, interface.device_rate) {
        (None, Some(rate)) => Link::of_device(interface.link, rate, overhead),
        (rate, _) => Link::new(interface.link, rate, overhead),
    };
    if interface.atm.is_some() { link.in_cells() } else { link }
}

/// The gateway itself, as if it were an interface. No interface shares its conntrack zones ([`vrf::OWN_CT_ZONES`](crate::tables::vrf)): theirs are
/// numbered from 1, and there are fewer.
fn itself() -> Interface {
    Interface {
        name: SELF_ZONE.to_owned(),
        number: NO_NUMBER,
        zone: SELF,
        root: LOCAL,
        vni: 0,
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
        multicast_miss: MulticastMiss::Drop,
        mss4: u16::MAX,
        mss6: u16::MAX,
        networks: Vec::new(),
        address4: None,
        address6: None,
        answered: Vec::new(),
        priorities: Priorities::default(),
        tunnel: None,
        channel: None,
        circuits: Vec::new(),
        ppp: None,
        sessions: Vec::new(),
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

/// The search for the first of patterns that matches, within the memory that the policy allows.
fn task(policy: &Policy, patterns: Vec<Pattern>, wanted: Option<&'static Algorithm>) -> Task {
    let bounds = policy.search.memory.map(|memory| Bounds { memory: memory.0 as usize });
    let bounds = bounds.unwrap_or(Bounds::of(patterns.len()));
    Task { patterns, wanted, bounds }
}

fn filter(
    policy: &Policy,
    about: &About<'_>,
    wanted: Option<&'static Algorithm>,
    before: Option<&Filter>,
) -> Result<Filter, CompileError> {
    let names = about.names;
    let patterns = pattern::patterns_of(policy, about)?;
    let mut rules: Vec<FilterRule> = Vec::with_capacity(policy.rules.len());
    for rule in &policy.rules {
        rules.push(FilterRule {
            name: rule.name.clone(),
            number: NO_NUMBER,
            meter: NO_NUMBER,
            action: rule.action,
            rate: rule.rate,
            rate_bit: about.sets.rate_bit(rule),
            connections: rule.connections,
            timeout: rule.timeout.or(rule.helper.and_then(helper::timeout)),
            idle: 0,
            syn: rule.syn,
            helper: rule.helper,
            adds: SetAddition::of(rule, policy)?,
            log: rule.log,
        });
    }
    let rule_of = patterns
        .iter()
        .filter_map(|of| Some(PatternRule::new(of.rule, rules.get(of.rule as usize)?)))
        .collect();
    let patterns = patterns.into_iter().map(|of| of.pattern).collect();
    let mut defaults = Vec::with_capacity(names.zones.len() * names.zones.len());
    for from in &names.zones {
        for to in &names.zones {
            defaults.push(policy.default_action(from, to));
        }
    }
    let task = task(policy, patterns, wanted);
    Ok(Filter {
        search: match before {
            Some(before) => Choice::after(&before.search, task),
            None => Arc::new(Choice::new(task)),
        },
        rule_of,
        has_syn_proxy: rules.iter().any(|rule| rule.syn == SynAnswer::Proxy),
        has_helpers: rules.iter().any(|rule| rule.helper.is_some()),
        has_calls: rules.iter().any(|rule| rule.helper == Some(Helper::Pptp)),
        rules,
        defaults,
        zones: names.zones.len(),
    })
}

#[cfg(test)]
mod tests;
