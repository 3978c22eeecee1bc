//! Compilation of a policy's interfaces and routes to longest-prefix-match tables.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Fib4, Fib6, Route4, Route6};
use policy::Policy;
use policy::model::{NextHop, RouteTarget};
use wire::PortId;

use super::names::Names;
use crate::hop::NO_HOP;
use crate::stage::route::is_link_local;
use crate::tables::vrf::MOST;
use crate::tables::{CompileError, Gateway, Path, Share, Target, Vrf, VrfId, VrfNumber, Vrfs, Ways};

/// Longest-prefix match, and where routes lead.
pub(super) struct Routes {
    pub(super) fib4: Fib4,
    pub(super) fib6: Fib6,
    /// VRFs beside the default one.
    pub(super) vrfs: Vrfs,
    pub(super) targets: Vec<Target>,
    pub(super) ways: Ways,
    pub(super) gateways: Vec<Gateway>,
    /// Paths of each WAN, of IPv4 and IPv6.
    pub(super) wan_paths: Vec<[Path; 2]>,
}

impl Routes {
    /// The only interface by which packets to a target leave, if there is one.
    pub(super) fn exit(&self, target: &Target) -> Option<PortId> {
        match *target {
            Target::Link(link) => Some(link),
            Target::Gateways { first, count } => {
                let ways = self.ways.of(first, count).iter();
                let mut exits = ways.map(|way| self.gateways.get(*way as usize).map(|of| of.interface));
                let exit = exits.next()??;
                exits.all(|other| other == Some(exit)).then_some(exit)
            }
            Target::Local | Target::Broadcast(_) | Target::Wans | Target::Blackhole | Target::Unreachable => {
                None
            }
        }
    }

    /// The hop of a target that is one router; [`NO_HOP`] of others.
    pub(super) fn only_hop(&self, target: &Target) -> u32 {
        match *target {
            Target::Gateways { first, count: 1 } => self.ways.of(first, 1).first().copied().unwrap_or(NO_HOP),
            _ => NO_HOP,
        }
    }
}

/// Compiles the routes: a policy's own, and those to the interfaces' networks, addresses and broadcast
/// addresses, which take precedence.
pub(super) fn compile(policy: &Policy, names: &Names) -> Result<Routes, CompileError> {
    let names_of_vrfs = policy.vrfs();
    if names_of_vrfs.len() > MOST {
        return Err(CompileError::TooManyVrfs(names_of_vrfs.len()));
    }
    let vrf_of = |name: Option<&str>| -> Result<VrfId, CompileError> {
        let Some(name) = name else { return Ok(VrfId::DEFAULT) };
        let place = names_of_vrfs.iter().position(|known| *known == name);
        place.map(|place| VrfId(place as u8 + 1)).ok_or_else(|| CompileError::UnknownVrf(name.to_owned()))
    };
    let of_interface = policy.interfaces.iter().map(|interface| vrf_of(interface.vrf.as_deref()));
    let of_interface: Vec<VrfId> = of_interface.collect::<Result<_, _>>()?;
    let mut builder =
        Builder { routes: vec![PerVrf::default(); names_of_vrfs.len() + 1], ..Builder::default() };
    for route in &policy.routes {
        let target = match &route.target {
            RouteTarget::Blackhole => Target::Blackhole,
            RouteTarget::Unreachable => Target::Unreachable,
            RouteTarget::Via(hops) => builder.via(hops, route.hop_vrf(), policy, names)?,
        };
        builder.add(vrf_of(route.vrf.as_deref())?, route.destination, target);
    }
    let wan_paths = builder.wans(policy, names)?;
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let id = PortId(place as u16);
        for address in &interface.addresses {
            builder.add(of_interface[place], address.trunc(), Target::Link(id));
        }
    }
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let (id, vrf) = (PortId(place as u16), of_interface[place]);
        for address in &interface.addresses {
            // RFC 3021: a /31 has no broadcast address.
            match address {
                IpNet::V4(net) if net.prefix_len() < 31 => {
                    builder.add(vrf, IpAddr::V4(net.broadcast()).into(), Target::Broadcast(id));
                }
                // RFC 4291, section 2.6.1: every router is the subnet-router anycast address; on a link between two
                // routers there is none (RFC 6164, section 5.1). The lowest address of an IPv4 network is a host's, as in
                // Linux since 5.14.
                IpNet::V6(net) if net.prefix_len() < 127 => {
                    builder.add(vrf, IpAddr::V6(net.network()).into(), Target::Local);
                }
                _ => {}
            }
            builder.add(vrf, address.addr().into(), Target::Local);
        }
    }
    let names_of_vrfs = names_of_vrfs.into_iter().map(str::to_owned).collect();
    builder.finish(wan_paths, names_of_vrfs, of_interface)
}

#[derive(Default)]
struct Builder {
    /// Routes by VRF, the default one first.
    routes: Vec<PerVrf>,
    targets: Vec<Target>,
    known: HashMap<TargetKey, u32>,
    ways: Ways,
    /// Beginning of the run of each list of routers: most routes have one router of a few.
    runs: HashMap<Vec<Share>, u32>,
    gateways: Vec<Gateway>,
}

/// Routes of a VRF.
#[derive(Clone, Default)]
struct PerVrf {
    routes4: Vec<Route4>,
    routes6: Vec<Route6>,
}

/// Targets told apart, so that a million routes to ten routers make ten targets.
#[derive(PartialEq, Eq, Hash)]
enum TargetKey {
    Local,
    Broadcast(PortId),
    Link(PortId),
    Gateways(u32, u32),
    Wans,
    Blackhole,
    Unreachable,
}

impl Builder {
    fn add(&mut self, vrf: VrfId, destination: IpNet, target: Target) {
        let key = match target {
            Target::Local => TargetKey::Local,
            Target::Broadcast(id) => TargetKey::Broadcast(id),
            Target::Link(id) => TargetKey::Link(id),
            Target::Gateways { first, count } => TargetKey::Gateways(first, count),
            Target::Wans => TargetKey::Wans,
            Target::Blackhole => TargetKey::Blackhole,
            Target::Unreachable => TargetKey::Unreachable,
        };
        let targets = &mut self.targets;
        let value = *self.known.entry(key).or_insert_with(|| {
            targets.push(target);
            (targets.len() - 1) as u32
        });
        let routes = &mut self.routes[usize::from(vrf.0)];
        match destination {
            IpNet::V4(net) => {
                routes.routes4.push(Route4 {
                    address: net.network().to_bits(),
                    length: net.prefix_len(),
                    value,
                });
            }
            IpNet::V6(net) => {
                routes.routes6.push(Route6 {
                    address: net.network().to_bits(),
                    length: net.prefix_len(),
                    value,
                });
            }
        }
    }

    /// Target of a route by next hops in a VRF.
    fn via(
        &mut self,
        hops: &[NextHop],
        vrf: Option<&str>,
        policy: &Policy,
        names: &Names,
    ) -> Result<Target, CompileError> {
        let mut routers: Vec<Share> = Vec::new();
        for hop in hops {
            let Some(address) = hop.via else {
                // On the link of an interface; of several such, the first counts.
                let name = hop.interface.as_deref().ok_or(CompileError::EmptyNextHop)?;
                return Ok(Target::Link(names.interface(name)?));
            };
            let interface = match &hop.interface {
                Some(name) => names.interface(name)?,
                None => {
                    let place = policy::nat::interface_of(policy, vrf, address)
                        .ok_or(CompileError::NextHopOffLink(address))?;
                    PortId(place as u16)
                }
            };
            let router = self.gateway(Gateway { interface, address: address.into() });
            let weight = u32::from(hop.weight.max(1));
            match routers.iter_mut().find(|share| share.router == router) {
                Some(share) => share.weight += weight,
                None => routers.push(Share { router, weight }),
            }
        }
        if routers.is_empty() {
            return Err(CompileError::EmptyNextHop);
        }
        let count = routers.len() as u32;
        let first = match self.runs.get(&routers) {
            Some(first) => *first,
            None => {
                let name = |router: u32| {
                    let Gateway { interface, address } = self.gateways[router as usize];
                    // Each link has link-local addresses of its own; any other address says who it is, however its link is called.
                    let has_twin = |other: &Share| {
                        other.router != router && self.gateways[other.router as usize].address == address
                    };
                    if is_link_local(address) || routers.iter().any(has_twin) {
                        let link = policy.interfaces.get(usize::from(interface.0));
                        return format!("{}%{}", address.to_ip(), link.map_or("", |link| &link.name));
                    }
                    address.to_ip().to_string()
                };
                let first = self.ways.add(&routers, name);
                self.runs.insert(routers, first);
                first
            }
        };
        Ok(Target::Gateways { first, count })
    }

    /// Place of a router, which is new or known.
    fn gateway(&mut self, gateway: Gateway) -> u32 {
        let known = self.gateways.iter().position(|known| *known == gateway);
        known.unwrap_or_else(|| {
            self.gateways.push(gateway);
            self.gateways.len() - 1
        }) as u32
    }

    /// Adds the default routes of the WANs, and returns their paths. A WAN that is down has paths, too: flows stay with it, and
    /// packets still come by it.
    fn wans(&mut self, policy: &Policy, names: &Names) -> Result<Vec<[Path; 2]>, CompileError> {
        let everywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut paths = Vec::with_capacity(policy.wans.len());
        for wan in &policy.wans {
            let interface = names.interface(&wan.interface)?;
            let own = policy.interfaces.get(usize::from(interface.0));
            paths.push(everywhere.map(|like| match wan.gateway(like) {
                Some(address) => Path::Router(self.gateway(Gateway { interface, address: address.into() })),
                None if own.is_some_and(|own| wan.carries(like, own)) => Path::Link,
                None => Path::None,
            }));
        }
        for (family, like) in everywhere.into_iter().enumerate() {
            if paths.iter().any(|paths| paths[family] != Path::None) {
                let everywhere = match like {
                    IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
                    IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
                };
                self.add(VrfId::DEFAULT, everywhere, Target::Wans);
            }
        }
        Ok(paths)
    }

    /// Builds the FIBs; `names` are those of the VRFs beside the default one.
    fn finish(
        self,
        wan_paths: Vec<[Path; 2]>,
        names: Vec<String>,
        of_interface: Vec<VrfId>,
    ) -> Result<Routes, CompileError> {
        let fib4 = |routes: &PerVrf| Fib4::new(&routes.routes4).map_err(CompileError::Fib);
        let fib6 = |routes: &PerVrf| Fib6::new(&routes.routes6).map_err(CompileError::Fib);
        let Some((default, others)) = self.routes.split_first() else {
            return Err(CompileError::EmptyNextHop);
        };
        let list = others.iter().zip(names).map(|(routes, name)| {
            Ok(Vrf { name, number: VrfNumber::DEFAULT, fib4: fib4(routes)?, fib6: fib6(routes)? })
        });
        let list: Vec<Vrf> = list.collect::<Result<_, CompileError>>()?;
        let of_interface = if list.is_empty() { Vec::new() } else { of_interface };
        Ok(Routes {
            fib4: fib4(default)?,
            fib6: fib6(default)?,
            vrfs: Vrfs { list, of_interface },
            targets: self.targets,
            ways: self.ways,
            gateways: self.gateways,
            wan_paths,
        })
    }
}

/// Interfaces that may stand in for one another share a conntrack zone: those that one route's next hops leave by, those of WANs,
/// and those of a VRF whose source addresses are not checked strictly; in the default VRF, that is the conntrack zone 0.
pub(super) fn ct_zones(policy: &Policy, routes: &Routes) -> Vec<u16> {
    let mut ct_zone: Vec<u16> = (0..policy.interfaces.len() as u16).map(|place| place + 1).collect();
    let unite = |ct_zone: &mut Vec<u16>, a: u16, b: u16| {
        for entry in ct_zone.iter_mut() {
            if *entry == a {
                *entry = b;
            }
        }
    };
    for target in &routes.targets {
        if let Target::Gateways { first, count } = target {
            let ways = routes.ways.of(*first, *count).iter();
            let mut shared = None;
            for gateway in ways.filter_map(|way| routes.gateways.get(*way as usize)) {
                let own = ct_zone[usize::from(gateway.interface.0)];
                match shared {
                    None => shared = Some(own),
                    Some(other) => unite(&mut ct_zone, own, other),
                }
            }
        }
    }
    let mut shared = None;
    for wan in &policy.wans {
        let place = policy.interfaces.iter().position(|interface| interface.name == wan.interface);
        match (place.and_then(|place| ct_zone.get(place).copied()), shared) {
            (Some(own), None) => shared = Some(own),
            (Some(own), Some(other)) => unite(&mut ct_zone, own, other),
            (None, _) => {}
        }
    }
    // The first such interface of each VRF.
    let mut loose: HashMap<&str, usize> = HashMap::new();
    for (place, interface) in policy.interfaces.iter().enumerate() {
        // What comes out of a policy-based tunnel comes by no other way.
        let is_by_policy = interface.esp.as_ref().is_some_and(|tunnel| tunnel.is_by_policy());
        if interface.source_check != policy::model::SourceCheck::Strict && !is_by_policy {
            let own = ct_zone[place];
            let shared = match &interface.vrf {
                None => 0,
                Some(vrf) => ct_zone[*loose.entry(vrf).or_insert(place)],
            };
            unite(&mut ct_zone, own, shared);
        }
    }
    ct_zone
}
