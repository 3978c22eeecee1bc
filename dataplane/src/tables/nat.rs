//! From a policy's translations to what `dnat` and `snat` search.
//!
//! Source and destination translations are two lists; of each, the first that matches applies. A flow
//! carries both places in one number, see [`NatTables::pair`].

use policy::Policy;
use policy::model::{Hairpin, Nat, NatAction, PortUse, Protocol};
use tally::Tally;
use wire::PortId;

use super::compile::{CompileError, Names};
use super::pattern;
use super::{Address, NO_NUMBER};
use crate::classify::{AddressSpan, Admit, Classifier, Header, Linear, Pattern, Position};
use crate::nat::{AddressRange, Block, PoolConfig, PortRange, Reserved};

/// Translations, compiled.
pub struct NatTables {
    /// Destination translations: their search, in the order of `destinations`.
    pub destination_search: Box<dyn Classifier>,
    /// Source translations: their search, in the order of `sources`.
    pub source_search: Box<dyn Classifier>,
    /// What destination translations do.
    pub destinations: Vec<NatRule<DestinationAction>>,
    /// What source translations do.
    pub sources: Vec<NatRule<SourceAction>>,
    /// Pools of outside addresses and ports.
    pub pools: Vec<PoolConfig>,
    /// Whose each of them is.
    pub owners: Vec<PoolOwner>,
    /// Addresses of all pools, merged: where a packet from outside may meet a mapping.
    pub outside: Vec<AddressSpan>,
}

/// The translation that a pool is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOwner {
    /// The source translation, by place from 0.
    pub source: u16,
    /// The interface of whose addresses it is, where the translation is a masquerade.
    pub interface: Option<PortId>,
}

/// A translation, compiled.
#[derive(Clone, Debug)]
pub struct NatRule<Action> {
    /// Its name.
    pub name: String,
    /// Its number, which stays with its name.
    pub number: u32,
    /// What it does.
    pub action: Action,
}

/// A destination translation.
#[derive(Clone, Debug)]
pub struct DestinationAction {
    /// The outside addresses: disjoint, ascending.
    pub addresses: Vec<AddressSpan>,
    /// The lowest address of the new destinations.
    pub target: Address,
    /// The address that becomes `target`; higher ones follow in order. `None`: all become `target`.
    pub first: Option<u128>,
    /// The outside port that becomes the inside port; higher ones follow in order.
    pub port: Option<PortShift>,
    /// Zones whose packets come from outside; those of others are turned back (hairpin).
    pub outside_zones: u64,
    /// The interface that a turned-back packet would have left by.
    pub outside: PortId,
}

/// Ports translated in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShift {
    /// The first outside port.
    pub outside: u16,
    /// What it becomes.
    pub inside: u16,
}

/// A source translation.
#[derive(Clone, Debug)]
pub enum SourceAction {
    /// None.
    Exempt,
    /// By a pool.
    Pool(u16),
    /// By the pool of the interface that the packet leaves by, by place of the interface.
    Masquerade(Vec<Outgoing>),
    /// One by one.
    OneToOne {
        /// The lowest inside address.
        inside: u128,
        /// What it becomes.
        outside: Address,
        /// What the highest one becomes.
        last: Address,
    },
}

/// Pools of an interface's own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// For IPv4.
    pub v4: Option<u16>,
    /// For IPv6.
    pub v6: Option<u16>,
}

impl NatTables {
    /// Both places in one number, 0 for none: `destination` and `source` are places, counted from 1.
    #[inline]
    pub fn pair(&self, destination: u16, source: u16) -> u16 {
        destination * (self.sources.len() as u16 + 1) + source
    }

    /// How many pairs there are, the pair of none included.
    pub fn pairs(&self) -> usize {
        (self.destinations.len() + 1) * (self.sources.len() + 1)
    }

    /// The places in a pair, counted from 0.
    pub fn places(&self, pair: u16) -> (Option<usize>, Option<usize>) {
        let width = self.sources.len() + 1;
        let pair = usize::from(pair);
        ((pair / width).checked_sub(1), (pair % width).checked_sub(1))
    }

    /// Names of the translations in a pair.
    pub fn names(&self, pair: u16) -> impl Iterator<Item = &str> {
        let (destination, source) = self.places(pair);
        let destination = destination.and_then(|place| self.destinations.get(place)).map(|rule| &rule.name);
        let source = source.and_then(|place| self.sources.get(place)).map(|rule| &rule.name);
        destination.into_iter().chain(source).map(String::as_str)
    }

    /// The first destination translation that matches, counted from 1, and what it does.
    pub fn destination<T: Tally>(
        &self,
        header: &Header,
        tally: &mut T,
    ) -> Option<(u16, &NatRule<DestinationAction>)> {
        let place = search(self.destination_search.as_ref(), header, tally)?;
        self.destinations.get(place as usize).map(|rule| (place as u16 + 1, rule))
    }

    /// The first source translation that matches, counted from 1, and what it does.
    pub fn source<T: Tally>(&self, header: &Header, tally: &mut T) -> Option<(u16, &NatRule<SourceAction>)> {
        let place = search(self.source_search.as_ref(), header, tally)?;
        self.sources.get(place as usize).map(|rule| (place as u16 + 1, rule))
    }

    /// Whether a pool has this outside address.
    pub fn is_outside(&self, address: Address) -> bool {
        is_within(&self.outside, address)
    }
}

impl SourceAction {
    /// The pool that translates what leaves by `out`, where a pool does.
    pub fn pool(&self, out: PortId, v6: bool) -> Option<u16> {
        match self {
            SourceAction::Pool(pool) => Some(*pool),
            SourceAction::Masquerade(outgoing) => {
                outgoing.get(usize::from(out.0)).and_then(|own| if v6 { own.v6 } else { own.v4 })
            }
            SourceAction::Exempt | SourceAction::OneToOne { .. } => None,
        }
    }
}

/// Whether disjoint, ascending spans hold an address.
pub(crate) fn is_within(spans: &[AddressSpan], address: Address) -> bool {
    let after = spans.partition_point(|span| (span.v6, span.first) <= (address.v6, address.bits));
    spans[..after].last().is_some_and(|span| span.v6 == address.v6 && address.bits <= span.last)
}

/// Searches, telling what it costs where somebody wants to know.
fn search<T: Tally>(classifier: &dyn Classifier, header: &Header, tally: &mut T) -> Option<Position> {
    if tally.is_kept() { classifier.classify_tallied(header, tally) } else { classifier.classify(header) }
}

/// Compiles the translations.
pub(super) fn compile(policy: &Policy, names: &Names) -> Result<NatTables, CompileError> {
    let mut builder = Builder::new(policy, names);
    for nat in &policy.nats {
        builder.add(nat)?;
    }
    builder.finish()
}

struct Builder<'a> {
    policy: &'a Policy,
    names: &'a Names,
    destination_patterns: Vec<Pattern>,
    destinations: Vec<NatRule<DestinationAction>>,
    source_patterns: Vec<Pattern>,
    sources: Vec<NatRule<SourceAction>>,
    pools: Vec<PoolConfig>,
    owners: Vec<PoolOwner>,
    reserved: Vec<Reserved>,
    outside: Vec<AddressSpan>,
}

impl<'a> Builder<'a> {
    fn new(policy: &'a Policy, names: &'a Names) -> Builder<'a> {
        Builder {
            policy,
            names,
            destination_patterns: Vec::new(),
            destinations: Vec::new(),
            source_patterns: Vec::new(),
            sources: Vec::new(),
            pools: Vec::new(),
            owners: Vec::new(),
            reserved: Vec::new(),
            outside: Vec::new(),
        }
    }

    fn add(&mut self, nat: &Nat) -> Result<(), CompileError> {
        let base = Pattern {
            from: self.names.zone_mask(&nat.from)?,
            to: self.names.zone_mask(&nat.to)?,
            source: pattern::spans(&nat.source, self.policy)?,
            destination: pattern::spans(&nat.destination, self.policy)?,
            protocols: nat.protocols.iter().map(|protocol| protocol.0).collect(),
            ..Pattern::default()
        };
        match &nat.action {
            NatAction::Exempt => self.source(nat, base, SourceAction::Exempt),
            NatAction::Masquerade { ports } => self.masquerade(nat, base, ports),
            NatAction::Source { pool, ports } => {
                let addresses: Vec<AddressSpan> =
                    pool.iter().map(|range| pattern::span(range.first.into(), range.last.into())).collect();
                let mut base = base;
                base.v4 = admit(addresses.iter().any(|span| !span.v6));
                base.v6 = admit(addresses.iter().any(|span| span.v6));
                let place = self.pool(pattern::merge(addresses), *ports, &base, None);
                self.source(nat, base, SourceAction::Pool(place));
            }
            NatAction::Forward { outside, ports, target, target_port, hairpin } => {
                let target = Address::from(*target);
                let outside_zones = base.from;
                let addresses: Vec<(Address, PortId)> = match outside {
                    Some(address) => {
                        vec![((*address).into(), self.home(Address::from(*address), outside_zones))]
                    }
                    None => self.own_addresses(outside_zones, target.v6),
                };
                let spans = addresses.iter().map(|(address, _)| pattern::span(*address, *address)).collect();
                let spans = pattern::merge(spans);
                for (address, _) in &addresses {
                    self.reserve(*address, ports, &nat.protocols);
                }
                let port = target_port
                    .zip(ports.first())
                    .map(|(inside, range)| PortShift { outside: range.first, inside });
                let home = addresses.first().map_or(super::LOCAL, |(_, interface)| *interface);
                let action = DestinationAction {
                    addresses: spans.clone(),
                    target,
                    first: None,
                    port,
                    outside_zones: if nat.from.is_empty() { self.home_mask(home) } else { outside_zones },
                    outside: home,
                };
                let pattern = Pattern { destination: Some(spans), dports: pattern::ports(ports), ..base };
                self.destination(nat, pattern, action, *hairpin);
            }
            NatAction::OneToOne { outside, inside, hairpin } => {
                let span_of =
                    |net: &ipnet::IpNet| pattern::span(net.network().into(), net.broadcast().into());
                let outside_first = Address::from(outside.network());
                let home = self.home(outside_first, base.from);
                let to = if nat.from.is_empty() { self.home_mask(home) } else { base.from };
                let action = DestinationAction {
                    addresses: vec![span_of(outside)],
                    target: inside.network().into(),
                    first: Some(outside_first.bits),
                    port: None,
                    outside_zones: to,
                    outside: home,
                };
                let inward = Pattern { destination: Some(vec![span_of(outside)]), ..base.clone() };
                self.destination(nat, inward, action, *hairpin);
                let outward = Pattern {
                    from: u64::MAX,
                    to,
                    source: Some(vec![span_of(inside)]),
                    destination: None,
                    ..base
                };
                let inside = Address::from(inside.network()).bits;
                let last = outside.broadcast().into();
                self.source(nat, outward, SourceAction::OneToOne { inside, outside: outside_first, last });
            }
        }
        Ok(())
    }

    /// A masquerade has a pool for every interface and family that it may leave by. Without IPv6 sources
    /// named it is for IPv4 alone: nobody wants to translate IPv6 by accident.
    fn masquerade(&mut self, nat: &Nat, mut base: Pattern, ports: &PortUse) {
        let named6 = base.source.as_ref().is_some_and(|spans| spans.iter().any(|span| span.v6));
        base.v6 = admit(named6);
        let mut outgoing = vec![Outgoing::default(); self.policy.interfaces.len()];
        for (place, interface) in self.policy.interfaces.iter().enumerate() {
            if base.to & (1 << self.names.zone_of(place)) == 0 {
                continue;
            }
            let id = Some(PortId(place as u16));
            let own = |v6: bool| {
                let address = interface.addresses.iter().find(|net| net.addr().is_ipv6() == v6)?;
                Some(Address::from(address.addr()))
            };
            if let Some(address) = own(false) {
                let pool = self.pool(vec![pattern::span(address, address)], *ports, &base, id);
                outgoing[place].v4 = Some(pool);
            }
            if let Some(address) = own(true).filter(|_| named6) {
                let pool = self.pool(vec![pattern::span(address, address)], *ports, &base, id);
                outgoing[place].v6 = Some(pool);
            }
        }
        self.source(nat, base, SourceAction::Masquerade(outgoing));
    }

    fn source(&mut self, nat: &Nat, pattern: Pattern, action: SourceAction) {
        self.source_patterns.push(pattern);
        self.sources.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
    }

    fn destination(&mut self, nat: &Nat, pattern: Pattern, action: DestinationAction, hairpin: Hairpin) {
        let from = if hairpin == Hairpin::On { ABROAD } else { pattern.from };
        self.destination_patterns.push(Pattern { from, to: u64::MAX, ..pattern });
        self.destinations.push(NatRule { name: nat.name.clone(), number: NO_NUMBER, action });
    }

    /// Adds a pool of the source translation that will be added next.
    fn pool(
        &mut self,
        addresses: Vec<AddressSpan>,
        ports: PortUse,
        pattern: &Pattern,
        interface: Option<PortId>,
    ) -> u16 {
        let range = |span: &AddressSpan| AddressRange {
            first: Address { bits: span.first, v6: span.v6 }.to_ip(),
            last: Address { bits: span.last, v6: span.v6 }.to_ip(),
        };
        let inside = || pattern.source.iter().flatten().map(range).collect();
        self.outside.extend(&addresses);
        self.owners.push(PoolOwner { source: self.sources.len() as u16, interface });
        self.pools.push(PoolConfig {
            addresses: addresses.iter().map(range).collect(),
            ports: PortRange { first: ports.range.first, last: ports.range.last },
            quota: ports.quota,
            block: ports.block.map(|ports| Block { ports, inside: inside() }),
            reserved: Vec::new(),
        });
        (self.pools.len() - 1) as u16
    }

    /// Sets outside ports aside for a port forward.
    fn reserve(&mut self, address: Address, ports: &[policy::model::PortRange], protocols: &[Protocol]) {
        for range in ports {
            let ports = PortRange { first: range.first, last: range.last };
            let address = address.to_ip();
            if protocols.is_empty() {
                self.reserved.push(Reserved { protocol: None, address, ports });
            }
            for protocol in protocols {
                self.reserved.push(Reserved { protocol: Some(protocol.0), address, ports });
            }
        }
    }

    /// The gateway's own addresses of a family in those zones.
    fn own_addresses(&self, zones: u64, v6: bool) -> Vec<(Address, PortId)> {
        let mut own = Vec::new();
        for (place, interface) in self.policy.interfaces.iter().enumerate() {
            if zones & (1 << self.names.zone_of(place)) != 0 {
                for net in interface.addresses.iter().filter(|net| net.addr().is_ipv6() == v6) {
                    own.push((net.addr().into(), PortId(place as u16)));
                }
            }
        }
        own
    }

    /// The interface that an outside address is at home on: whose network has it, else the first of the
    /// outside zones.
    fn home(&self, address: Address, zones: u64) -> PortId {
        let interfaces = &self.policy.interfaces;
        let on_link = interfaces
            .iter()
            .position(|interface| interface.addresses.iter().any(|net| net.contains(&address.to_ip())));
        let in_zone = || (0..interfaces.len()).find(|place| zones & (1 << self.names.zone_of(*place)) != 0);
        on_link.or_else(in_zone).map_or(super::LOCAL, |place| PortId(place as u16))
    }

    /// The zone of an interface, as a mask; all but the gateway's own where there is none.
    fn home_mask(&self, home: PortId) -> u64 {
        if home == super::LOCAL { ABROAD } else { 1 << self.names.zone_of(usize::from(home.0)) }
    }

    fn finish(mut self) -> Result<NatTables, CompileError> {
        if (self.destinations.len() + 1) * (self.sources.len() + 1) > 1 << 16 {
            return Err(CompileError::TooManyNats {
                destinations: self.destinations.len(),
                sources: self.sources.len(),
            });
        }
        for pool in &mut self.pools {
            let reserved = self.reserved.iter().filter(|reserved| pool.has(reserved.address));
            pool.reserved = reserved.copied().collect();
        }
        Ok(NatTables {
            destination_search: Box::new(Linear::new(&self.destination_patterns)),
            source_search: Box::new(Linear::new(&self.source_patterns)),
            destinations: self.destinations,
            sources: self.sources,
            pools: self.pools,
            owners: self.owners,
            outside: pattern::merge(self.outside),
        })
    }
}

/// Every zone but the gateway's own, [`super::SELF`].
const ABROAD: u64 = !1;

fn admit(admitted: bool) -> Admit {
    if admitted { Admit::Yes } else { Admit::No }
}
