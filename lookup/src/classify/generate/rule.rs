//! Rules like those of real sets, from a seed.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::Ipv4Addr;

use wire::random::Random;

use super::super::{AddressSpan, Admit, Pattern, PortSpan, TypeMatch};
use super::table::{ACL, Class, FW, IPC, Kind, Ports, Tree};

/// Kind of rule set to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    /// An access list of a router: hosts and networks to services of hosts.
    Acl,
    /// A firewall: anybody to services, services to anybody, and much that is left open.
    Fw,
    /// Chains of a Linux router: networks to networks, any protocol.
    Ipc,
}

/// A rule as ClassBench writes it, with its [`Display`](fmt::Display): IPv4 prefixes, ranges of ports, protocol, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Source ports.
    pub sport: PortSpan,
    /// Destination ports.
    pub dport: PortSpan,
    /// Transport protocol; `None` for any.
    pub protocol: Option<u8>,
    /// Value of the 16 bits TCP flags << 8, or ICMP type << 8 | code.
    pub flags: u16,
    /// Mask of the bits compared.
    pub flags_mask: u16,
}

/// An IPv4 prefix; host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// First address of the prefix.
    pub address: u32,
    /// Length in bits, 0 to 32.
    pub length: u8,
}

/// `count` rules, or as many as there is room for: well over a million. Another count makes another set, not a longer
/// one.
pub fn rules(like: Like, count: usize, seed: u64) -> Vec<Filter> {
    let kind = match like {
        Like::Acl => &ACL,
        Like::Fw => &FW,
        Like::Ipc => &IPC,
    };
    let mut sources = Addresses::new(&kind.source, count, seed);
    let mut destinations = Addresses::new(&kind.destination, count, !seed);
    let mut sites = Sites::new();
    let mut random = Random::new(seed);
    let mut seen = HashSet::with_capacity(count);
    let mut filters = Vec::with_capacity(count);
    let mut repeats = 0;
    while filters.len() < count && repeats < MOST_REPEATS {
        let stray = repeats > STRAY_AFTER;
        let filter = draw(kind, &mut sources, &mut destinations, &mut sites, stray, &mut random);
        if seen.insert(filter) {
            filters.push(filter);
            repeats = 0;
        } else {
            repeats += 1;
        }
    }
    // Stable: among equals, the order of the draw.
    filters.sort_by_key(|filter| Reverse(filter.specificity()));
    filters
}

/// Pairs of source and destination that have been drawn, as often as they were, by their lengths.
type Sites = HashMap<(u8, u8), Vec<(Prefix, Prefix)>>;

/// Number of repeats in a row after which addresses leave the tree.
const STRAY_AFTER: u32 = 64;

/// Number of repeats in a row after which there is no room for another rule.
const MOST_REPEATS: u32 = 100_000;

fn draw(
    kind: &Kind,
    sources: &mut Addresses,
    destinations: &mut Addresses,
    sites: &mut Sites,
    stray: bool,
    random: &mut Random,
) -> Filter {
    let class: &Class = weighted(kind.classes, random);
    let (from, to) = weighted(class.lengths, random);
    let (from, to) = (weighted(from, random), weighted(to, random));
    let known = sites.entry((from, to)).or_default();
    let again = random.pick(known).copied().filter(|_| !stray && random.chance(kind.again));
    let (source, destination) = again.unwrap_or_else(|| {
        let source = sources.draw(from, None, stray, random);
        // Some rules are within a site: both addresses begin alike.
        let alike = (from.min(to) >= SITE && random.below(1_000) < kind.alike)
            .then(|| Prefix::of(source.address, SITE));
        (source, destinations.draw(to, alike, stray, random))
    });
    known.push((source, destination));
    let (flags, flags_mask) = weighted(class.flags, random);
    Filter {
        source,
        destination,
        sport: ports(class.sport, kind.sports, kind.sport_ranges, random),
        dport: ports(class.dport, kind.dports, kind.dport_ranges, random),
        protocol: class.protocol,
        flags,
        flags_mask,
    }
}

/// Length of the prefix that a site has.
const SITE: u8 = 20;

fn ports(class: Ports, exact: &[(u16, u32)], ranges: &[((u16, u16), u32)], random: &mut Random) -> PortSpan {
    let (first, last) = match class {
        Ports::Any => (0, u16::MAX),
        Ports::High => (1_024, u16::MAX),
        Ports::Exact => {
            let port = weighted(exact, random);
            (port, port)
        }
        Ports::Range => weighted(ranges, random),
    };
    PortSpan { first, last }
}

/// One of the values, as often as their weights say; there is one at least.
fn weighted<V: Copy>(choices: &[(V, u32)], random: &mut Random) -> V {
    let total: u32 = choices.iter().map(|choice| choice.1).sum();
    let mut left = random.below(total.into()) as u32;
    for &(value, weight) in choices {
        if left < weight {
            return value;
        }
        left -= weight;
    }
    choices[0].0
}

/// The addresses of one side: a binary tree, each node of which has one child or two, and prefers one of the two. What a node is
/// like follows from the seed and its place, so that the tree needs no memory.
struct Addresses {
    tree: &'static Tree,
    /// Levels from the root at which every node has two children: larger sets are spread wider.
    spread: u8,
    seed: u64,
    /// Prefixes drawn so far, with repetitions, by length: a prefix drawn often is drawn more often.
    drawn: [Vec<Prefix>; 33],
    known: HashSet<Prefix>,
    /// Depth of nesting of known prefixes, by each prefix that is known or contains known prefixes.
    depths: HashMap<Prefix, usize>,
}

impl Addresses {
    fn new(tree: &'static Tree, count: usize, seed: u64) -> Addresses {
        let spread = (count / tree.crowd).max(1).ilog2().min(16) as u8 + 1;
        let drawn = [const { Vec::new() }; 33];
        Addresses { tree, spread, seed, drawn, known: HashSet::new(), depths: HashMap::new() }
    }

    /// Draws a prefix of `length` bits, beginning as `begin` does: a known prefix, or a new one. A prefix nested too
    /// deep is drawn again, a few times.
    fn draw(&mut self, length: u8, begin: Option<Prefix>, stray: bool, random: &mut Random) -> Prefix {
        let drawn = &mut self.drawn[usize::from(length)];
        let again = random.pick(drawn).copied().filter(|_| begin.is_none() && !stray);
        if let Some(prefix) = again.filter(|_| random.chance(self.tree.again)) {
            drawn.push(prefix);
            return prefix;
        }
        let mut prefix = self.walk(length, begin, stray, random);
        for _ in 0..16 {
            if self.known.contains(&prefix) || self.depth_with(prefix) <= self.tree.nested {
                break;
            }
            prefix = self.walk(length, begin, stray, random);
        }
        self.drawn[usize::from(length)].push(prefix);
        if self.known.insert(prefix) {
            let mut depth = self.depths.get(&prefix).copied().unwrap_or(0);
            for shorter in (0..=length).rev().map(|shorter| Prefix::of(prefix.address, shorter)) {
                depth += usize::from(self.known.contains(&shorter));
                let deepest = self.depths.entry(shorter).or_default();
                *deepest = depth.max(*deepest);
            }
        }
        prefix
    }

    /// Returns the depth of nesting of known prefixes around `prefix`, itself included.
    fn depth_with(&self, prefix: Prefix) -> usize {
        let around = |shorter: &u8| self.known.contains(&Prefix::of(prefix.address, *shorter));
        (0..prefix.length).filter(around).count() + 1 + self.depths.get(&prefix).copied().unwrap_or(0)
    }

    fn walk(&self, length: u8, begin: Option<Prefix>, stray: bool, random: &mut Random) -> Prefix {
        let mut address = begin.map_or(0, |begin| begin.address);
        for level in begin.map_or(0, |begin| begin.length)..length {
            let place = u64::from(address) << 8 | u64::from(level);
            let node = Random::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place).next_u64();
            let (two, skew) = match level < self.spread || stray && level > 3 {
                true => (100, 10),
                false => self.tree.at(level),
            };
            let preferred = (node >> 63) as u32;
            // Of the lighter child's share, skew = 1 - lighter / heavier.
            let lighter = two > node % 100 && random.below(200 - skew) < 100 - skew;
            address |= (preferred ^ u32::from(lighter)) << (31 - level);
        }
        Prefix::of(address, length)
    }
}

impl Prefix {
    /// Returns the prefix of the first `length` bits of an address; 0 to 32.
    pub fn of(address: u32, length: u8) -> Prefix {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        Prefix { address: address & mask, length }
    }

    /// Returns the addresses of the prefix; `None` for all addresses.
    fn spans(self) -> Option<Vec<AddressSpan>> {
        let hosts = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let span = AddressSpan { v6: false, first: self.address.into(), last: (self.address | hosts).into() };
        (self.length > 0).then(|| vec![span])
    }
}

impl Filter {
    /// Returns the pattern, as the import of ClassBench's sets makes it.
    pub fn pattern(&self) -> Pattern {
        let ports = |span: PortSpan| {
            if (span.first, span.last) == (0, u16::MAX) { Vec::new() } else { vec![span] }
        };
        let [mask, _] = self.flags_mask.to_be_bytes();
        let [value, _] = (self.flags & self.flags_mask).to_be_bytes();
        let is_icmp = self.protocol == Some(1);
        let (source, destination) = (self.source.spans(), self.destination.spans());
        let v6 = if source.is_some() || destination.is_some() { Admit::Yes } else { Admit::No };
        Pattern {
            source,
            destination,
            v6,
            protocols: self.protocol.into_iter().collect(),
            sports: ports(self.sport),
            dports: ports(self.dport),
            icmp: if is_icmp && mask != 0 { vec![TypeMatch { kind: value, code: None }] } else { Vec::new() },
            tcp_mask: if is_icmp { 0 } else { mask },
            tcp_value: if is_icmp { 0 } else { value },
            ..Pattern::default()
        }
    }

    /// Bits that it looks at, about: a rule that matches all that another does, and more, has fewer.
    pub fn specificity(&self) -> u32 {
        let ports = |span: PortSpan| 16 - (u32::from(span.last - span.first) + 1).ilog2();
        u32::from(self.source.length)
            + u32::from(self.destination.length)
            + ports(self.sport)
            + ports(self.dport)
            + self.protocol.map_or(0, |_| 8)
            + self.flags_mask.count_ones()
    }
}

impl fmt::Display for Filter {
    /// A line of a ClassBench filter set, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, mask) = self.protocol.map_or((0, 0), |protocol| (protocol, 0xff));
        write!(
            f,
            "@{}\t{}\t{} : {}\t{} : {}\t{protocol:#04x}/{mask:#04X}\t{:#06x}/{:#06x}",
            self.source,
            self.destination,
            self.sport.first,
            self.sport.last,
            self.dport.first,
            self.dport.last,
            self.flags,
            self.flags_mask
        )
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.address), self.length)
    }
}
