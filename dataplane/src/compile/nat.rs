//! Compilation of a policy's translations to [`NatTables`].
//!
//! The order of interfaces, and of rules and translations that have nothing to do with one another, decides nothing.

use std::net::IpAddr;

use ipnet::IpNet;
use lookup::classify::{AddressSpan, Admit, Linear, Pattern};
use policy::Policy;
use policy::model::{
    Action, FamilyMatch, Hairpin, Interface, Nat, NatAction, PortUse, Protocol, Rule, SELF_ZONE, Server, Upnp,
};
use tally::NoTally;
use wire::PortId;
use wire::esp::NAT_PORT;
use wire::siit::Prefix;

use super::names::Names;
use super::pattern::{self, About, met};
use super::route::Routes;
use crate::nat::{
    AddressRange, Block, Hold, Hosts, NetworkPair, OnDemand, PoolConfig, PortRange, Reserved, merge_ports,
};
use crate::tables::{
    self, Address, CompileError, DestinationAction, FirstAddresses, Home, LOCAL, NO_NUMBER, NatRule,
    NatTables, NewDestination, OWN_ACCORD, OtherPorts, Outgoing, OwnAddress, PoolOwner, PortMappingSpec,
    PortShift, Returning, Servers, Side, SourceAction, Target, Translator, VrfId, Xlat, is_within,
};

mod conditions;

use conditions::{Conditions, NamesV6};

/// The most ports of one range that are taken for those of a service: what is wider lets in whatever there is.
const MOST_SERVED: usize = 1024;

/// Compiles the translations.
pub(super) fn compile(
    policy: &Policy,
    about: &About<'_>,
    routes: &Routes,
) -> Result<NatTables, CompileError> {
    let mut builder = Builder {
        policy,
        about,
        names: about.names,
        routes,
        destination_patterns: Vec::new(),
        destination_of: Vec::new(),
        destinations: Vec::new(),
        source_patterns: Vec::new(),
        source_of: Vec::new(),
        sources: Vec::new(),
        pools: Vec::new(),
        owners: Vec::new(),
        reserved: Vec::new(),
        returning: Vec::new(),
        port_mappings: Vec::new(),
        outside: Vec::new(),
        clats: Vec::new(),
    };
    for nat in &policy.nats {
        builder.add(nat)?;
    }
    builder.finish()
}

struct Builder<'a> {
    policy: &'a Policy,
    about: &'a About<'a>,
    names: &'a Names,
    routes: &'a Routes,
    destination_patterns: Vec<Pattern>,
    destination_of: Vec<u16>,
    destinations: Vec<NatRule<DestinationAction>>,
    source_patterns: Vec<Pattern>,
    source_of: Vec<u16>,
    sources: Vec<NatRule<SourceAction>>,
    pools: Vec<PoolConfig>,
    owners: Vec<PoolOwner>,
    reserved: Vec<Reserved>,
    returning: Vec<Returning>,
    port_mappings: Vec<PortMappingSpec>,
    outside: Vec<AddressSpan>,
    /// Patterns and places of CLATs, which take what no other destination translation does.
    clats: Vec<(Pattern, u16)>,
}

/// A port forward of a policy.
struct Forward<'a> {
    outside: Option<IpAddr>,
    ports: &'a [policy::model::PortRange],
    targets: Vec<Inside>,
    /// Port in the place of the first outside port, from which the others count upwards.
    base_port: Option<u16>,
    hairpin: Hairpin,
    vrf: VrfId,
}

/// A translation between IP versions.
struct Across<'a> {
    xlat: Xlat,
    prefix: Prefix,
    /// Destinations of the hosts that it serves.
    destinations: Vec<AddressSpan>,
    pool: &'a [policy::model::AddressRange],
    ports: &'a PortUse,
}

/// Inside address of a port forward, and the port of the first outside port.
#[derive(Clone, Copy)]
struct Inside {
    address: Address,
    port: Option<u16>,
}

impl Builder<'_> {
    fn add(&mut self, nat: &Nat) -> Result<(), CompileError> {
        // Outside is the default VRF.
        let pattern = Pattern {
            from: self.names.zone_mask(&nat.from)?,
            to: self.names.zone_mask(&nat.to)? & !self.zones_of_vrfs(),
            protocols: nat.protocols.iter().map(|protocol| protocol.0).collect(),
            sports: pattern::ports(&nat.sports),
            dports: pattern::ports(&nat.dports),
            ..Pattern::default()
        };
        let mut base = Conditions::of(nat, pattern, self.policy, self.about)?;
        match &nat.action {
            NatAction::Exempt => {
                base.pattern.to = self.names.zone_mask(&nat.to)?;
                self.source(nat, base.patterns(), SourceAction::Exempt);
            }
            NatAction::Masquerade { ports } => {
                self.port_mapping(&base, ports);
                self.masquerade(nat, base, ports);
            }
            NatAction::Source { pool, ports } => {
                self.port_mapping(&base, ports);
                let addresses: Vec<AddressSpan> =
                    pool.iter().map(|range| pattern::span(range.first.into(), range.last.into())).collect();
                base.pattern.v4 = admit(addresses.iter().any(|span| !span.v6));
                base.pattern.v6 = admit(addresses.iter().any(|span| span.v6));
                let owner = PoolOwner { source: self.sources.len() as u16, interface: None };
                let place = self.pool(pattern::merge(addresses), ports, &base.known, owner);
                self.source(nat, base.patterns(), SourceAction::Pool(place));
            }
            NatAction::Forward { outside, ports, target, vrf, target_port, hairpin } => {
                let target = Inside { address: (*target).into(), port: *target_port };
                let forward = Forward {
                    outside: *outside,
                    ports,
                    targets: vec![target],
                    base_port: *target_port,
                    hairpin: *hairpin,
                    vrf: self.vrf(vrf.as_deref())?,
                };
                self.forward(nat, base, &forward, NewDestination::One(target.address));
            }
            NatAction::Balance(balance) => {
                let inside = |server: &Server| Inside { address: server.address.into(), port: server.port };
                let forward = Forward {
                    outside: balance.outside,
                    ports: &balance.ports,
                    targets: balance.servers.iter().map(inside).collect(),
                    base_port: Some(0),
                    hairpin: balance.hairpin,
                    vrf: VrfId::DEFAULT,
                };
                let list = balance.servers.iter().map(|server| tables::Server {
                    name: server.target(),
                    address: server.address.into(),
                    port: server.port,
                    weight: server.weight,
                    state: server.state,
                });
                let servers = Servers::new(list.collect(), balance.sticky, balance.on_failure);
                self.forward(nat, base, &forward, NewDestination::Servers(servers));
            }
            NatAction::Nat64(nat64) => self.nat64(nat, base, nat64),
            NatAction::Clat(clat) => self.clat(nat, base, clat),
            NatAction::Redirect { ports, to_port } => self.redirect(nat, base, ports, *to_port),
            NatAction::OneToOne { outside, inside, hairpin } => {
                self.one_to_one(nat, base, NetworkPair::in_order(*inside, *outside), *hairpin);
            }
            NatAction::Npt { outside, inside, hairpin } => {
                self.one_to_one(nat, base, NetworkPair::neutral(*inside, *outside), *hairpin);
            }
        }
        Ok(())
    }

    /// Without an outside address, packets of the zones of origin are forwarded whichever of the gateway's own addresses they
    /// are for; those of others, by hairpin, where they are for an address on the zones of origin: their own router they
    /// reach as ever.
    fn forward(&mut self, nat: &Nat, base: Conditions, forward: &Forward<'_>, to: NewDestination) {
        let zones = base.pattern.from;
        let zones_of = |home: PortId| if nat.from.is_empty() { self.home_mask(home) } else { zones };
        let home_of = |address: Address, interface: PortId| Home {
            addresses: pattern::span(address, address),
            interface,
            zones: zones_of(interface),
        };
        let homes: Vec<Home> = match forward.outside {
            Some(outside) => {
                let outside = Address::from(outside);
                vec![home_of(outside, self.home(outside, zones))]
            }
            None => {
                let own = self.shown_addresses().into_iter();
                let own = own.map(|(net, interface)| (Address::from(net.addr()), interface));
                own.filter(|(own, _)| forward.targets.iter().any(|target| target.address.v6 == own.v6))
                    .map(|(own, interface)| home_of(own, interface))
                    .collect()
            }
        };
        let is_abroad = |home: &&Home| {
            forward.outside.is_some()
                || home.interface != LOCAL
                    && zones & (1 << self.names.zone_of(usize::from(home.interface.0))) != 0
        };
        let spans_of = |homes: &mut dyn Iterator<Item = &Home>| {
            pattern::merge(homes.map(|home| home.addresses).collect())
        };
        let (all, abroad) = (spans_of(&mut homes.iter()), spans_of(&mut homes.iter().filter(is_abroad)));
        for span in &all {
            self.reserve(*span, forward.ports, &nat.protocols);
        }
        let mut shifts = Vec::new();
        let mut offset = 0_u16;
        for range in forward.ports {
            let outside = PortRange { first: range.first, last: range.last };
            for target in &forward.targets {
                let first = target.port.map_or(range.first, |port| port.saturating_add(offset));
                let last = first.saturating_add(outside.last - outside.first);
                self.returning.push(Returning {
                    target: target.address,
                    vrf: forward.vrf,
                    ports: PortRange { first, last },
                    outside_port: outside.first,
                    protocols: nat.protocols.iter().map(|protocol| protocol.0).collect(),
                    homes: homes.clone(),
                });
            }
            if let Some(base) = forward.base_port {
                let inside = base.saturating_add(offset);
                shifts.push(PortShift { outside, inside, others: OtherPorts::Follow });
            }
            offset = offset.saturating_add(outside.last - outside.first).saturating_add(1);
        }
        let action =
            DestinationAction { addresses: all.clone(), to, ports: shifts, homes, vrf: Some(forward.vrf) };
        let place = self.destinations.len() as u16;
        let of_vrfs = self.zones_of_vrfs();
        let hosts = ABROAD & !of_vrfs;
        let dports = pattern::ports(forward.ports);
        let mut meets = |from: u64, destinations: &[AddressSpan]| {
            let pattern = Pattern { from, to: u64::MAX, dports: dports.clone(), ..base.pattern.clone() };
            self.destination(place, base.patterns_to(&pattern, destinations));
        };
        match forward.hairpin {
            Hairpin::On if all == abroad => meets(hosts, &all),
            Hairpin::On => {
                meets(zones & hosts, &all);
                meets(hosts & !zones, &abroad);
            }
            Hairpin::Off => meets(zones & !of_vrfs, &all),
        }
        self.destinations.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
    }

    fn redirect(
        &mut self,
        nat: &Nat,
        mut base: Conditions,
        ports: &[policy::model::PortRange],
        to_port: Option<u16>,
    ) {
        let first = |interface: &Interface| {
            let mut own = interface.addresses.iter().map(|net| Address::from(net.addr()));
            FirstAddresses { v4: own.clone().find(|own| !own.v6), v6: own.find(|own| own.v6) }
        };
        let all = PortRange { first: 0, last: u16::MAX };
        let shift = |inside| PortShift { outside: all, inside, others: OtherPorts::Same };
        let action = DestinationAction {
            addresses: EVERYWHERE.into(),
            to: NewDestination::Gateway(self.policy.interfaces.iter().map(first).collect()),
            ports: to_port.map(shift).into_iter().collect(),
            homes: Vec::new(),
            vrf: None,
        };
        base.pattern.from &= ABROAD;
        base.pattern.to = u64::MAX;
        base.pattern.dports = pattern::ports(ports);
        self.destination(self.destinations.len() as u16, base.patterns());
        self.destinations.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
    }

    /// The source translation is that of the destination's, whatever the order of translations: no packet is found by its pattern.
    fn nat64(&mut self, nat: &Nat, mut base: Conditions, nat64: &policy::model::Nat64) {
        let net = nat64.net();
        let [first, last] = [net.network(), net.broadcast()].map(|end| Address::from(IpAddr::V6(end)));
        let span = pattern::span(first, last);
        base.pattern.from &= ABROAD & !self.zones_of_vrfs();
        base.pattern.to = u64::MAX;
        self.destination(self.destinations.len() as u16, base.patterns_to(&base.pattern, &[span]));
        self.translator(
            nat,
            &base,
            Across {
                xlat: Xlat::Plat,
                prefix: nat64.prefix,
                destinations: vec![span],
                pool: &nat64.pool,
                ports: &nat64.ports,
            },
        );
    }

    /// Its pattern stands behind those of all other destination translations, whatever the order of translations.
    fn clat(&mut self, nat: &Nat, mut base: Conditions, clat: &policy::model::Clat) {
        let place = self.destinations.len() as u16;
        let destinations = base.destinations().unwrap_or_else(|| EVERYWHERE.into());
        base.pattern.from &= ABROAD & !self.zones_of_vrfs();
        base.pattern.to = u64::MAX;
        base.pattern.v6 = Admit::No;
        self.clats.extend(base.patterns().into_iter().map(|pattern| (pattern, place)));
        self.translator(
            nat,
            &base,
            Across {
                xlat: Xlat::Clat,
                prefix: clat.prefix,
                destinations,
                pool: &clat.pool,
                ports: &clat.ports,
            },
        );
    }

    /// Adds the translations of both ends between IP versions.
    fn translator(&mut self, nat: &Nat, base: &Conditions, across: Across<'_>) {
        let Across { xlat, prefix, destinations, pool, ports } = across;
        let source = self.sources.len() as u16;
        let action = DestinationAction {
            addresses: destinations,
            to: NewDestination::Across(Translator { xlat, prefix, source }),
            ports: Vec::new(),
            homes: Vec::new(),
            vrf: None,
        };
        self.destinations.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
        let hosts = match xlat {
            Xlat::Plat => Hosts::V6ToV4,
            Xlat::Clat => Hosts::V4ToV6,
        };
        let by = if pool.is_empty() {
            let mut outgoing = vec![Outgoing::default(); self.policy.interfaces.len()];
            let is_outside = |net: &IpNet| net.addr().is_ipv6() == (xlat == Xlat::Clat);
            for (net, id) in self.shown_addresses().into_iter().filter(|(net, _)| is_outside(net)) {
                let address = Address::from(net.addr());
                let owner = PoolOwner { source, interface: Some(id) };
                let pool = self.pool(vec![pattern::span(address, address)], ports, &base.known, owner);
                let own = &mut outgoing[usize::from(id.0)];
                (if address.v6 { &mut own.v6 } else { &mut own.v4 }).push(OwnAddress { net, pool });
            }
            SourceAction::Masquerade(outgoing)
        } else {
            let pool = pool.iter().map(|range| pattern::span(range.first.into(), range.last.into()));
            let owner = PoolOwner { source, interface: None };
            SourceAction::Pool(self.pool(pattern::merge(pool.collect()), ports, &base.known, owner))
        };
        for pool in self.pools.iter_mut().zip(&self.owners).filter(|(_, owner)| owner.source == source) {
            pool.0.hosts = hosts;
        }
        let nobody = Pattern { from: 0, ..Pattern::default() };
        self.source(nat, vec![nobody], SourceAction::Across { xlat, prefix, by: Box::new(by) });
    }

    /// Without zones of origin, outside is the zone on whose network the outside addresses are; where they are on none, and
    /// routed here, every zone but that of the inside.
    fn one_to_one(&mut self, nat: &Nat, base: Conditions, pair: NetworkPair, hairpin: Hairpin) {
        let (inside, outside) = (pair.inside(), pair.outside());
        let first = |span: AddressSpan| Address { bits: span.first, v6: span.v6 };
        let outside_first = first(outside);
        let home = self.home(outside_first, base.pattern.from);
        let to = if !nat.from.is_empty() {
            base.pattern.from
        } else if let Some(link) = self.on_link(outside_first) {
            self.home_mask(link)
        } else {
            let inner = self.towards(first(inside));
            ABROAD & !inner.map_or(0, |interface| 1 << self.names.zone_of(usize::from(interface.0)))
        };
        let action = DestinationAction {
            addresses: vec![outside],
            to: NewDestination::Network(pair),
            ports: Vec::new(),
            vrf: None,
            homes: vec![Home { addresses: outside, interface: home, zones: to }],
        };
        let of_vrfs = self.zones_of_vrfs();
        let from = if hairpin == Hairpin::On { ABROAD } else { base.pattern.from } & !of_vrfs;
        let inward = Pattern { from, to: u64::MAX, ..base.pattern.clone() };
        self.destination(self.destinations.len() as u16, base.patterns_to(&inward, &[outside]));
        self.destinations.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
        let outward =
            Pattern { from: !of_vrfs, to: to & !of_vrfs, source: Some(vec![inside]), ..base.pattern };
        self.source(nat, vec![outward], SourceAction::Network(pair));
    }

    /// A masquerade has a pool for every address of the interfaces that it may leave by. Without IPv6 sources named it is
    /// for IPv4 alone: nobody wants to translate IPv6 by accident.
    fn masquerade(&mut self, nat: &Nat, mut base: Conditions, ports: &PortUse) {
        let named6 = base.names_v6 == NamesV6::Yes;
        base.pattern.v6 = admit(named6);
        let mut outgoing = vec![Outgoing::default(); self.policy.interfaces.len()];
        for (net, id) in self.shown_addresses() {
            let place = usize::from(id.0);
            let leaves_by = base.pattern.to & (1 << self.names.zone_of(place)) != 0;
            if !leaves_by || net.addr().is_ipv6() && !named6 {
                continue;
            }
            let address = Address::from(net.addr());
            let owner = PoolOwner { source: self.sources.len() as u16, interface: Some(id) };
            let pool = self.pool(vec![pattern::span(address, address)], ports, &base.known, owner);
            let own = &mut outgoing[place];
            (if address.v6 { &mut own.v6 } else { &mut own.v4 }).push(OwnAddress { net, pool });
        }
        self.source(nat, base.patterns(), SourceAction::Masquerade(outgoing));
    }

    /// Outside ports of the next source translation that its hosts may ask for.
    fn port_mapping(&mut self, base: &Conditions, ports: &PortUse) {
        let Some(mapping) = &ports.mapping else { return };
        let range = |range: &policy::model::PortRange| PortRange { first: range.first, last: range.last };
        let mut ports: Vec<PortRange> = mapping.ports.iter().map(range).collect();
        merge_ports(&mut ports);
        self.port_mappings.push(PortMappingSpec {
            source: self.sources.len() as u16,
            zones: base.pattern.from & ABROAD,
            hosts: base.source.clone(),
            ports,
            lifetime: mapping.lifetime,
            per_host: mapping.per_host,
            size: mapping.size,
            upnp: (mapping.upnp == Upnp::On).then_some(mapping.upnp_lifetime),
        });
    }

    /// Adds patterns of the destination translation at a place.
    fn destination(&mut self, place: u16, patterns: Vec<Pattern>) {
        self.destination_patterns.extend(patterns);
        self.destination_of.resize(self.destination_patterns.len(), place);
    }

    fn source(&mut self, nat: &Nat, patterns: Vec<Pattern>, action: SourceAction) {
        self.source_patterns.extend(patterns);
        self.source_of.resize(self.source_patterns.len(), self.sources.len() as u16);
        self.sources.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
    }

    fn pool(
        &mut self,
        addresses: Vec<AddressSpan>,
        ports: &PortUse,
        inside: &[AddressSpan],
        owner: PoolOwner,
    ) -> u16 {
        let range = |span: &AddressSpan| AddressRange {
            first: Address { bits: span.first, v6: span.v6 }.to_ip(),
            last: Address { bits: span.last, v6: span.v6 }.to_ip(),
        };
        let inside = || inside.iter().map(range).collect();
        self.outside.extend(&addresses);
        self.owners.push(owner);
        self.pools.push(PoolConfig {
            addresses: addresses.iter().map(range).collect(),
            ports: ports
                .ranges
                .iter()
                .map(|range| PortRange { first: range.first, last: range.last })
                .collect(),
            choice: ports.choice,
            quota: ports.quota_in_force(),
            block: ports.block_by_arithmetic().map(|ports| Block { ports, inside: inside() }),
            on_demand: ports
                .blocks_on_demand()
                .map(|blocks| OnDemand { ports: blocks.ports, most: blocks.most }),
            hosts: Hosts::OfSameFamily,
            reserved: Vec::new(),
        });
        (self.pools.len() - 1) as u16
    }

    /// Sets outside ports aside for a port forward.
    fn reserve(&mut self, span: AddressSpan, ports: &[policy::model::PortRange], protocols: &[Protocol]) {
        for bits in span.first..=span.last {
            let address = Address { bits, v6: span.v6 }.to_ip();
            for range in ports {
                let ports = PortRange { first: range.first, last: range.last };
                let of = |protocol| Reserved { protocol, address, ports, hold: Hold::Always };
                if protocols.is_empty() {
                    self.reserved.push(of(None));
                }
                self.reserved.extend(protocols.iter().map(|protocol| of(Some(protocol.0))));
            }
        }
    }

    /// Sets aside the port of ESP in UDP at the ends of tunnels: what comes in there is no reply to a connection.
    fn reserve_for_tunnels(&mut self) {
        let policy = self.policy;
        for tunnel in policy.interfaces.iter().filter_map(|interface| interface.esp.as_ref()) {
            let address = Address::from(tunnel.local);
            let span = AddressSpan { first: address.bits, last: address.bits, v6: address.v6 };
            let port = policy::model::PortRange { first: NAT_PORT, last: NAT_PORT };
            self.reserve(span, &[port], &[Protocol::UDP]);
        }
    }

    /// Zones of VRFs beside the default one.
    fn zones_of_vrfs(&self) -> u64 {
        let interfaces = self.policy.interfaces.iter().enumerate();
        let of_vrfs = interfaces.filter(|(_, interface)| interface.vrf.is_some());
        of_vrfs.fold(0, |zones, (place, _)| zones | 1 << self.names.zone_of(place))
    }

    /// The VRF of that name.
    fn vrf(&self, name: Option<&str>) -> Result<VrfId, CompileError> {
        let Some(name) = name else { return Ok(VrfId::DEFAULT) };
        let place = self.routes.vrfs.list.iter().position(|vrf| vrf.name == name);
        place.map(|place| VrfId(place as u8 + 1)).ok_or_else(|| CompileError::UnknownVrf(name.to_owned()))
    }

    /// The interfaces of the default VRF: outside addresses are theirs.
    fn interfaces(&self) -> impl Iterator<Item = (PortId, &Interface)> {
        let interfaces = (0..).map(PortId).zip(&self.policy.interfaces);
        interfaces.filter(|(_, interface)| interface.vrf.is_none())
    }

    /// The gateway's own addresses, each with its network and interface.
    fn own_addresses(&self) -> Vec<(IpNet, PortId)> {
        let interfaces = self.interfaces();
        interfaces.flat_map(|(id, interface)| interface.addresses.iter().map(move |net| (*net, id))).collect()
    }

    /// Addresses that a masquerade may show, each with its network and interface: virtual addresses first, as the others are one
    /// gateway's alone, and whether Linux has them at present or not.
    fn shown_addresses(&self) -> Vec<(IpNet, PortId)> {
        let interfaces = self.interfaces();
        let of = |(id, interface): (PortId, &Interface)| {
            let moved = interface.virtual_addresses.clone();
            let net_of = |address: &IpAddr| {
                let around = interface.addresses.iter().filter(|net| net.contains(address));
                let length = around.map(IpNet::prefix_len).max();
                length.and_then(|length| IpNet::new(*address, length).ok()).unwrap_or(IpNet::from(*address))
            };
            let mut shown: Vec<(IpNet, PortId)> = moved.iter().map(|address| (net_of(address), id)).collect();
            let own = interface.addresses.iter().filter(|net| !moved.contains(&net.addr()));
            shown.extend(own.map(|net| (*net, id)));
            shown
        };
        interfaces.flat_map(of).collect()
    }

    /// The interface on whose network an address is: of several, that with the longest prefix.
    fn on_link(&self, address: Address) -> Option<PortId> {
        let ip = address.to_ip();
        let mut found: Option<(u8, PortId)> = None;
        for (net, id) in self.own_addresses() {
            if net.contains(&ip) && found.is_none_or(|(length, _)| length < net.prefix_len()) {
                found = Some((net.prefix_len(), id));
            }
        }
        found.map(|(_, id)| id)
    }

    /// The interface by which packets to an address leave: that of its network, else of the first router of its route.
    fn towards(&self, address: Address) -> Option<PortId> {
        if let Some(link) = self.on_link(address) {
            return Some(link);
        }
        let value = match address.v6 {
            true => self.routes.fib6.lookup(address.bits, &mut NoTally),
            false => self.routes.fib4.lookup(address.bits as u32, &mut NoTally),
        }?;
        match *self.routes.targets.get(value as usize)? {
            Target::Link(link) | Target::Broadcast(link) => Some(link),
            Target::Gateways { first, .. } => {
                let gateway = *self.routes.ways.of(first, 1).first()?;
                self.routes.gateways.get(gateway as usize).map(|gateway| gateway.interface)
            }
            Target::Wans => {
                let like = address.to_ip();
                let wan = self.policy.wans.iter().find(|wan| {
                    self.policy.interface(&wan.interface).is_some_and(|own| wan.carries(like, own))
                })?;
                self.names.interface(&wan.interface).ok()
            }
            Target::Local | Target::Blackhole | Target::Unreachable => None,
        }
    }

    /// The interface that an outside address is at home on: where packets to it would leave by, if it is in the outside
    /// zones; else of those zones the one whose name comes first.
    fn home(&self, address: Address, zones: u64) -> PortId {
        if let Some(link) = self.on_link(address) {
            return link;
        }
        let is_outside = |place: &usize| zones & (1 << self.names.zone_of(*place)) != 0;
        let routed = self.towards(address).filter(|id| is_outside(&usize::from(id.0)));
        let interfaces = &self.policy.interfaces;
        let named = || (0..interfaces.len()).filter(is_outside).min_by_key(|place| &interfaces[*place].name);
        routed.or_else(|| named().map(|place| PortId(place as u16))).unwrap_or(LOCAL)
    }

    /// The zone of an interface, as a mask; all but the gateway's own where there is none.
    fn home_mask(&self, home: PortId) -> u64 {
        if home == LOCAL { ABROAD } else { 1 << self.names.zone_of(usize::from(home.0)) }
    }

    /// Pools for what the gateway translates of its own accord: of addresses where packets are turned back, and of those
    /// whose ports others are given.
    fn accord(&mut self) -> Vec<Outgoing> {
        let homes: Vec<Home> = self.destinations.iter().flat_map(|nat| nat.action.homes.clone()).collect();
        let outside = pattern::merge(self.outside.clone());
        if homes.is_empty() && outside.is_empty() {
            return Vec::new();
        }
        let mut accord = vec![Outgoing::default(); self.policy.interfaces.len()];
        for (net, id) in self.own_addresses() {
            let address = Address::from(net.addr());
            let is_home =
                |home: &Home| home.addresses.v6 == address.v6 && home.interface == id || home.has(address);
            if !is_within(&outside, address) && !homes.iter().any(is_home) {
                continue;
            }
            let owner = PoolOwner { source: OWN_ACCORD, interface: Some(id) };
            let span = pattern::span(address, address);
            let pool = self.pool(vec![span], &PortUse::default(), &[], owner);
            let own = &mut accord[usize::from(id.0)];
            (if address.v6 { &mut own.v6 } else { &mut own.v4 }).push(OwnAddress { net, pool });
        }
        accord
    }

    /// Ports of the gateway's own services: those that rules to it let in, and those that its sockets listen on.
    fn services(&self) -> Result<Vec<Reserved>, CompileError> {
        let hold = Hold::WhileOthersAreFree;
        let own: Vec<IpAddr> = self.own_addresses().into_iter().map(|(net, _)| net.addr()).collect();
        let mut services = Vec::new();
        let serves = |rule: &&Rule| {
            rule.action == Action::Accept
                && rule.conditions.to.iter().any(|zone| zone == SELF_ZONE)
                && !rule.conditions.dports.is_empty()
        };
        for rule in met(self.policy).map(|(_, rule)| rule).filter(serves) {
            let destination = &rule.conditions.destination;
            let destinations =
                pattern::alternatives(destination, Side::Destination, self.policy, self.about.sets)?;
            // An address may come into a dynamic set at any time.
            let may_be = |own: Address| {
                let mut spans = destinations.iter().map(|one| &one.spans);
                spans.any(|spans| spans.as_ref().is_none_or(|spans| is_within(spans, own)))
            };
            let own = own.iter().filter(|own| {
                let family = if own.is_ipv4() { FamilyMatch::V4 } else { FamilyMatch::V6 };
                (rule.conditions.family == FamilyMatch::Both || rule.conditions.family == family)
                    && may_be(Address::from(**own))
            });
            for address in own {
                let narrow = rule
                    .conditions
                    .dports
                    .iter()
                    .filter(|range| (range.first..=range.last).len() <= MOST_SERVED);
                for range in narrow {
                    let ports = PortRange { first: range.first, last: range.last };
                    let of = |protocol| Reserved { protocol, address: *address, ports, hold };
                    services.extend(rule.conditions.protocols.iter().map(|protocol| of(Some(protocol.0))));
                }
            }
        }
        for listener in &self.policy.listeners {
            let ports = PortRange { first: listener.port, last: listener.port };
            let bound = own.iter().filter(|own| listener.address.is_none_or(|address| address == **own));
            services.extend(bound.map(|address| Reserved {
                protocol: Some(listener.protocol.0),
                address: *address,
                ports,
                hold,
            }));
        }
        Ok(services)
    }

    fn finish(mut self) -> Result<NatTables, CompileError> {
        if (self.destinations.len() + 1) * (self.sources.len() + 1) > 1 << 16 {
            return Err(CompileError::TooManyNats {
                destinations: self.destinations.len(),
                sources: self.sources.len(),
            });
        }
        let accord = self.accord();
        if !self.pools.is_empty() {
            let services = self.services()?;
            self.reserved.extend(services);
            self.reserve_for_tunnels();
        }
        // What is set aside holds for all pools that have the address: it is enough that one says so.
        let mut pool_of = std::collections::HashMap::new();
        for reserved in &self.reserved {
            let first = || self.pools.iter().position(|pool| pool.has(reserved.address));
            if let Some(place) = *pool_of.entry(reserved.address).or_insert_with(first) {
                self.pools[place].reserved.push(*reserved);
            }
        }
        self.returning.sort_by_key(|forward| forward.target);
        let has_translator = self.destinations.iter().any(|rule| rule.action.translator().is_some());
        for (pattern, place) in std::mem::take(&mut self.clats) {
            self.destination(place, vec![pattern]);
        }
        let asks = self.port_mappings.iter().filter(|spec| spec.upnp.is_some());
        let upnp_zones = asks.fold(0, |zones, spec| zones | spec.zones);
        Ok(NatTables {
            has_translator,
            destination_search: Box::new(Linear::new(&self.destination_patterns)),
            destination_of: self.destination_of,
            source_search: Box::new(Linear::new(&self.source_patterns)),
            source_of: self.source_of,
            destinations: self.destinations,
            sources: self.sources,
            pools: self.pools,
            owners: self.owners,
            accord,
            returning: self.returning,
            upnp_zones,
            port_mappings: self.port_mappings,
            gateways: self.policy.gateway.sync.half().map_or(1, |_| policy::model::Half::COUNT),
            outside: pattern::merge(self.outside),
        })
    }
}

/// Every zone but the gateway's own, [`SELF`](crate::tables::SELF).
const ABROAD: u64 = !1;

/// All addresses.
const EVERYWHERE: [AddressSpan; 2] = [
    AddressSpan { v6: false, first: 0, last: u32::MAX as u128 },
    AddressSpan { v6: true, first: 0, last: u128::MAX },
];

fn admit(admitted: bool) -> Admit {
    if admitted { Admit::Yes } else { Admit::No }
}
