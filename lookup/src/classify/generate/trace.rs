//! Headers for a list of patterns, as ClassBench makes them (Taylor and Turner, ClassBench: A Packet Classification
//! Benchmark, 2007, section V): each is drawn for a pattern drawn at random, and comes in a burst whose length follows
//! a Pareto distribution.
//!
//! ClassBench takes corners of a pattern only. Here each field is on a corner as often as inside, or searches that
//! compare boundaries would see nothing else. Any pattern will do: IPv6, sets, zones.

use wire::Family;
use wire::random::Random;

use super::super::{AddressSpan, Admit, Header, NO_MATCH, Pattern, PortSpan, Position};

/// The Pareto distribution of the bursts, as ClassBench's parameters a and b, a being 1: a burst is b / u headers long,
/// rounded up, u drawn evenly from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality(f64);

impl Locality {
    /// Each header is drawn anew: b = 0.
    pub const NONE: Locality = Locality(0.0);
    /// Low locality of ClassBench: b = 0.0001.
    pub const LOW: Locality = Locality(0.0001);
    /// High locality of ClassBench: b = 1.
    pub const HIGH: Locality = Locality(1.0);

    /// Sets ClassBench's b; a negative number and NaN count as 0.
    pub fn new(b: f64) -> Locality {
        Locality(b.max(0.0))
    }

    /// The length of a burst, 1 at least.
    fn burst(self, random: &mut Random) -> usize {
        // Never 0: the longest burst is b × 2^53.
        let share = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (self.0 / share).ceil().max(1.0) as usize
    }
}

/// A header, and what it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aimed {
    /// The header.
    pub header: Header,
    /// The pattern that it matches, though an earlier one may, too; [`NO_MATCH`] where there was none to aim at.
    pub position: Position,
}

/// `count` headers for `patterns`. Patterns that no header matches are passed over; where there is no other, headers
/// are drawn from everywhere.
pub fn trace(patterns: &[Pattern], count: usize, locality: Locality, seed: u64) -> Vec<Aimed> {
    let mut random = Random::new(seed);
    let places = Places::of(patterns);
    let matched: Vec<(Position, &Pattern)> =
        (0..).zip(patterns).filter(|(_, pattern)| !families(pattern).is_empty()).collect();
    let any = Pattern::default();
    let mut headers = Vec::with_capacity(count);
    while headers.len() < count {
        let (position, pattern) = random.pick(&matched).copied().unwrap_or((NO_MATCH, &any));
        let aimed = Aimed { header: header(pattern, &places, &mut random), position };
        let burst = locality.burst(&mut random).min(count - headers.len());
        headers.extend(std::iter::repeat_n(aimed, burst));
    }
    headers
}

/// Zones and interfaces that patterns name. A header that may come from any zone comes from one of them.
struct Places {
    zones: u64,
    ingress: Vec<u16>,
    egress: Vec<u16>,
}

impl Places {
    fn of(patterns: &[Pattern]) -> Places {
        let masks = patterns.iter().flat_map(|pattern| [pattern.from, pattern.to]);
        let zones = masks.filter(|mask| *mask != u64::MAX).fold(0, |all, mask| all | mask);
        let named = |list: fn(&Pattern) -> &Vec<u16>| {
            let mut all: Vec<u16> = patterns.iter().flat_map(list).copied().collect();
            all.sort_unstable();
            all.dedup();
            if all.is_empty() { vec![0] } else { all }
        };
        Places { zones, ingress: named(|pattern| &pattern.ingress), egress: named(|pattern| &pattern.egress) }
    }

    /// A zone that `mask` has; zone 1 where nobody cares.
    fn zone(&self, mask: u64, random: &mut Random) -> u8 {
        let cared = if mask & self.zones == 0 { mask } else { mask & self.zones };
        if cared == u64::MAX { 1 } else { bit_of(cared, random) }
    }
}

/// Families of which a packet can match.
fn families(pattern: &Pattern) -> Vec<Family> {
    let possible = |family: Family, admit: Admit| {
        let v6 = family == Family::V6;
        let has = |spans: &Option<Vec<AddressSpan>>| {
            spans.as_ref().is_none_or(|spans| spans.iter().any(|span| span.v6 == v6))
        };
        admit == Admit::Yes && has(&pattern.source) && has(&pattern.destination)
    };
    let all = [(Family::V4, pattern.v4), (Family::V6, pattern.v6)];
    all.into_iter().filter(|(family, admit)| possible(*family, *admit)).map(|(family, _)| family).collect()
}

/// TCP, UDP, SCTP and DCCP.
const WITH_PORTS: [u8; 4] = [6, 17, 132, 33];
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Flags of most TCP segments: SYN; SYN, ACK; ACK; PSH, ACK; FIN, ACK; RST.
const FLAGS: [u8; 6] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04];

fn header(pattern: &Pattern, places: &Places, random: &mut Random) -> Header {
    let family = random.pick(&families(pattern)).copied().unwrap_or(Family::V4);
    let protocol = random.pick(&pattern.protocols).copied().unwrap_or_else(|| {
        match (pattern.icmp.is_empty(), pattern.tcp_mask, family) {
            (false, _, Family::V6) => ICMPV6,
            (false, ..) => ICMP,
            (true, 0, _) => {
                if random.chance(70) {
                    TCP
                } else {
                    17
                }
            }
            _ => TCP,
        }
    });
    let has_ports = WITH_PORTS.contains(&protocol);
    let dport = match random.pick(&pattern.icmp) {
        Some(message) => {
            let code = message.code.unwrap_or_else(|| random.below(4) as u8);
            u16::from_be_bytes([message.kind, code])
        }
        None if protocol == ICMP && pattern.dports.is_empty() => u16::from_be_bytes([8, 0]),
        None => port(&pattern.dports, has_ports, random),
    };
    let flags = random.pick(&FLAGS).copied().filter(|_| protocol == TCP).unwrap_or(0);
    Header {
        source: address(pattern.source.as_deref(), family, random),
        destination: address(pattern.destination.as_deref(), family, random),
        sport: port(&pattern.sports, has_ports, random),
        dport,
        protocol,
        tcp_flags: (flags & !pattern.tcp_mask) | (pattern.tcp_value & pattern.tcp_mask),
        dscp: if pattern.dscp & 1 != 0 { 0 } else { bit_of(pattern.dscp, random) },
        family,
        from: places.zone(pattern.from, random),
        to: places.zone(pattern.to, random),
        ingress: random.pick(&pattern.ingress).or_else(|| random.pick(&places.ingress)).map_or(0, |id| *id),
        egress: random.pick(&pattern.egress).or_else(|| random.pick(&places.egress)).map_or(0, |id| *id),
        source_mac: pattern
            .source_macs
            .as_ref()
            .and_then(|spans| random.pick(spans))
            .map_or(0, |span| span.first),
        sets: pattern.sets_value & pattern.sets_mask,
    }
}

/// The number of a bit that is set; 0 where none is.
fn bit_of(mask: u64, random: &mut Random) -> u8 {
    let set: Vec<u8> = (0..64).filter(|bit| mask & (1 << bit) != 0).collect();
    random.pick(&set).copied().unwrap_or(0)
}

fn address(spans: Option<&[AddressSpan]>, family: Family, random: &mut Random) -> u128 {
    let v6 = family == Family::V6;
    let last = if v6 { u128::MAX } else { u128::from(u32::MAX) };
    let all = [AddressSpan { v6, first: 0, last }];
    let own: Vec<AddressSpan> = spans.unwrap_or(&all).iter().filter(|span| span.v6 == v6).copied().collect();
    let span = random.pick(&own).copied().unwrap_or(all[0]);
    within(span.first, span.last, random)
}

fn port(spans: &[PortSpan], has_ports: bool, random: &mut Random) -> u16 {
    let all = PortSpan { first: 0, last: u16::MAX };
    match random.pick(spans) {
        None if !has_ports => 0,
        span => {
            let span = span.unwrap_or(&all);
            within(span.first.into(), span.last.into(), random) as u16
        }
    }
}

/// Draws the first, the last, or any number of a span.
fn within(first: u128, last: u128, random: &mut Random) -> u128 {
    let wide = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    match random.below(4) {
        0 => first,
        1 => last,
        _ => match (last - first).checked_add(1) {
            Some(size) => first + wide % size,
            None => wide,
        },
    }
}
