//! Any bytes as rules that come and go, in decision trees that are changed in place.
//!
//! Beyond not crashing: after each version of some edits, headers at the edges of the rules find what a scan of the list does, in the trees
//! that were changed, and in those that are only searched, which are made of them; memory keeps within the bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lookup::classify::update::{Edit, Versions};
use lookup::classify::{
    AddressSpan, Admit, Bounds, ClassSpan, Classifier, Header, NO_MATCH, Pattern, PortSpan, Position, Tree,
    TypeMatch,
};
use wire::Family;
use wire::random::Random;

/// Edits of an input, and rules that there may be: an input is to take no more than some seconds, with all that watches it.
const EDITS: usize = 4096;
const RULES: usize = 256;
/// Headers of a comparison.
const HEADERS: usize = 24;

/// Bytes of an input; 0 behind its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A place among so many.
    fn place(&mut self, count: usize) -> usize {
        usize::from(self.next()) * count / 256
    }
}

/// A prefix, or a range that is none, of addresses in which few bits differ, so that rules overlap.
fn addresses(one: u8, other: u8, v6: bool) -> Option<Vec<AddressSpan>> {
    let bits = if v6 { 128 } else { 32 };
    let address = u128::from(one & 0x0f) << (bits - 4) | u128::from(one >> 4) << (bits / 2) | 1;
    let highest = u128::MAX >> (128 - bits);
    let span = |first, last| Some(vec![AddressSpan { v6, first, last }]);
    match other % 16 {
        0..5 => None,
        5 => span(address & !0xff, address | 0xff),
        6 => span(address >> (other >> 4), address),
        7 => Some(Vec::new()),
        at => {
            let host = highest.checked_shr(u32::from(other >> 4) + u32::from(at) * bits / 16).unwrap_or(0);
            span(address & !host, address | host)
        }
    }
}

fn ports(one: u8, other: u8) -> Vec<PortSpan> {
    let (first, last) = (u16::from(one.min(other)) << 4, u16::from(one.max(other)) << 4 | 7);
    match other % 4 {
        0 | 1 => Vec::new(),
        2 => vec![PortSpan { first: u16::from(one), last: u16::from(one) }],
        _ => vec![PortSpan { first, last }],
    }
}

/// A rule of ten bytes.
fn pattern(bytes: [u8; 10]) -> Pattern {
    let [kind, source, sbits, destination, dbits, sport, dport, ports_too, rest, rare] = bytes;
    let v6 = kind & 1 != 0;
    let mut pattern = Pattern {
        source: addresses(source, sbits, v6),
        destination: addresses(destination, dbits, v6),
        sports: ports(sport, ports_too),
        dports: ports(dport, ports_too >> 2),
        protocols: match kind >> 1 & 3 {
            0 => Vec::new(),
            1 => vec![6],
            2 => vec![17],
            _ => vec![1, 6],
        },
        ..Pattern::default()
    };
    match kind >> 3 & 7 {
        0 => pattern.v4 = Admit::No,
        1 => pattern.v6 = Admit::No,
        2 => (pattern.tcp_mask, pattern.tcp_value) = (rest, rest & rare),
        3 => pattern.from = 1 << (rest % 4) | u64::from(rare),
        _ => {}
    }
    // What leaves do not compare, or only where trees were grown for it.
    match rare {
        0 => pattern.to = 1 << (rest % 64),
        1 => pattern.ingress = vec![u16::from(rest % 4)],
        2 => pattern.egress = vec![u16::from(rest % 4)],
        3 => pattern.icmp = vec![TypeMatch { kind: rest % 4, code: None }],
        4 => pattern.dscp = 1 << (rest % 64),
        5 => {
            (pattern.sets_mask, pattern.sets_value) =
                (1 << (rest % 4), u32::from(rest >> 4 & 1) << (rest % 4))
        }
        6 => pattern.source_macs = Some(vec![ClassSpan { first: 1, last: u16::from(rest % 4) + 1 }]),
        7 => pattern.protocols = (0..40).collect(),
        _ => {}
    }
    pattern
}

/// A rule for much, as first rules that hide others.
fn wide(kind: u8) -> Pattern {
    let mut pattern = Pattern::default();
    match kind % 8 {
        0 => pattern.v6 = Admit::No,
        1 => pattern.v4 = Admit::No,
        2 => pattern.protocols = vec![6],
        3 => pattern.source = addresses(kind >> 3, 8, false),
        4 => pattern.destination = addresses(kind >> 3, 8, false),
        5 => pattern.dports = vec![PortSpan { first: 0, last: u16::from(kind) << 4 }],
        6 => pattern.source = addresses(kind >> 3, 8, true),
        _ => {}
    }
    pattern
}

/// Rules of a network and of more networks within it than a block of a leaf has room for: growing leaves these out behind the first.
fn nested(kind: u8) -> impl Iterator<Item = Pattern> {
    let first = u128::from(kind >> 4) << 28;
    let lengths = std::iter::once((0, 4)).chain((0..10).map(|inner| (inner << 20, 12)));
    lengths.map(move |(inner, length)| {
        let (first, host) = (first | inner, u128::from(u32::MAX >> length));
        let spans = Some(vec![AddressSpan { v6: false, first, last: first | host }]);
        Pattern { source: spans, v6: Admit::No, ..Pattern::default() }
    })
}

fn random_pattern(random: &mut Random) -> Pattern {
    let mut bytes = [0; 10];
    bytes.fill_with(|| random.next_u64() as u8);
    // Rare conditions are rare.
    bytes[9] |= if random.below(16) == 0 { 0 } else { 8 };
    pattern(bytes)
}

/// The list after the next edits of an input, and those.
fn edits(bytes: &mut Bytes<'_>, list: &[Pattern]) -> (Vec<Pattern>, Vec<Edit>) {
    let (mut list, mut edits) = (list.to_vec(), Vec::new());
    for _ in 0..=bytes.next() % 8 {
        let kind = bytes.next();
        let insert = |list: &mut Vec<Pattern>, edits: &mut Vec<Edit>, at: usize, pattern: Pattern| {
            if list.len() < RULES {
                list.insert(at, pattern.clone());
                edits.push(Edit::Insert(at as Position, Box::new(pattern)));
            }
        };
        match kind % 8 {
            0 | 1 => {
                let at = bytes.place(list.len() + 1);
                let pattern = pattern(std::array::from_fn(|_| bytes.next()));
                insert(&mut list, &mut edits, at, pattern);
            }
            2 if kind & 8 != 0 => {
                for (at, pattern) in nested(kind).enumerate() {
                    let at = at.min(list.len());
                    insert(&mut list, &mut edits, at, pattern);
                }
            }
            2 => {
                let at = bytes.place(list.len() + 1) / 4;
                insert(&mut list, &mut edits, at, wide(bytes.next()));
            }
            3 => {
                let mut random = Random::new(u64::from(bytes.next()));
                for _ in 0..=kind >> 3 {
                    let at = random.below(list.len() as u64 + 1) as usize;
                    insert(&mut list, &mut edits, at, random_pattern(&mut random));
                }
            }
            _ if list.is_empty() => {}
            4 | 5 => {
                let at = bytes.place(list.len());
                list.remove(at);
                edits.push(Edit::Remove(at as Position));
            }
            6 => {
                let from = bytes.place(list.len());
                for _ in 0..=kind >> 3 {
                    let at = from % list.len().max(1);
                    if at < list.len() {
                        list.remove(at);
                        edits.push(Edit::Remove(at as Position));
                    }
                }
            }
            _ => {
                let from = bytes.place(list.len());
                let pattern = list.remove(from);
                edits.push(Edit::Remove(from as Position));
                let to = bytes.place(list.len() + 1);
                insert(&mut list, &mut edits, to, pattern);
            }
        }
    }
    (list, edits)
}

/// A header that a rule matches in most fields, with edges of another one in some.
fn header(list: &[Pattern], random: &mut Random) -> Header {
    let own = random.below(list.len().max(1) as u64) as usize;
    let edge = |random: &mut Random| {
        let other = random.below(list.len().max(1) as u64) as usize;
        list.get(if random.below(8) == 0 { other } else { own }).cloned().unwrap_or_default()
    };
    let v6 = match edge(random) {
        Pattern { v4: Admit::No, .. } => true,
        Pattern { source: Some(spans), .. } | Pattern { destination: Some(spans), .. } => {
            spans.first().is_some_and(|span| span.v6)
        }
        _ => random.below(2) == 0,
    };
    let highest = if v6 { u128::MAX } else { u32::MAX.into() };
    let address = |spans: Option<Vec<AddressSpan>>, random: &mut Random| {
        let any = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let chosen =
            spans.and_then(|spans| spans.first().copied()).map_or(any, |span| match random.below(4) {
                0 => span.first,
                1 => span.last,
                2 => span.first.midpoint(span.last),
                _ => span.last.wrapping_add(1),
            });
        chosen & highest
    };
    let port = |spans: Vec<PortSpan>, random: &mut Random| {
        let any = random.next_u64() as u16;
        spans.first().map_or(any, |span| if random.below(2) == 0 { span.first } else { span.last })
    };
    let low = |mask: u64| if mask == u64::MAX { 1 } else { mask.trailing_zeros() as u8 & 63 };
    Header {
        family: if random.below(64) == 0 {
            Family::Other
        } else if v6 {
            Family::V6
        } else {
            Family::V4
        },
        source: address(edge(random).source, random),
        destination: address(edge(random).destination, random),
        sport: port(edge(random).sports, random),
        dport: port(edge(random).dports, random),
        protocol: edge(random).protocols.first().copied().unwrap_or(17),
        tcp_flags: edge(random).tcp_value,
        from: low(edge(random).from),
        to: low(edge(random).to),
        dscp: low(edge(random).dscp),
        ingress: edge(random).ingress.first().copied().unwrap_or(9),
        egress: edge(random).egress.first().copied().unwrap_or(9),
        sets: edge(random).sets_value,
        source_mac: edge(random).source_macs.map_or(0, |spans| spans.first().map_or(0, |span| span.last)),
    }
}

fn agrees(search: &(impl Classifier + ?Sized), list: &[Pattern], headers: &[Header]) {
    let mut found = [0; HEADERS];
    search.classify_bulk(headers, &mut found);
    for (header, found) in headers.iter().zip(found) {
        let wanted = (0..).zip(list).find(|(_, pattern)| pattern.matches(header)).map(|(at, _)| at);
        assert_eq!(search.classify(header), wanted, "{header:?}");
        assert_eq!(found, wanted.unwrap_or(NO_MATCH), "{header:?}, in bulk");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let memory = match bytes.next() {
        narrow @ 0..64 => (usize::from(narrow) + 1) << 14,
        _ => Bounds::default().memory,
    };
    let mut random = Random::new(u64::from(bytes.next()));
    let mut list = Vec::new();
    for _ in 0..bytes.next() % 16 {
        list = edits(&mut bytes, &list).0;
    }
    let grown = |list: &[Pattern]| Tree::new(list, Bounds { memory }).ok()?.to_updatable(list);
    let Some(search) = grown(&list) else { return };
    let mut versions = Versions::new(search);
    let (mut made, mut held) = (0, None);
    while !bytes.0.is_empty() && made < EDITS {
        let (after, edits) = edits(&mut bytes, &list);
        made += edits.len();
        match versions.next(edits) {
            Ok(_) => list = after,
            Err(too_large) => assert!(too_large.needed > too_large.bound),
        }
        let now = versions.current();
        let headers: [Header; HEADERS] = std::array::from_fn(|_| header(&list, &mut random));
        agrees(&*now, &list, &headers);
        assert!(now.memory_bytes() <= memory, "{} of {memory}", now.memory_bytes());
        match bytes.next() {
            // A version that is held is not changed.
            0..16 => held = Some((now, list.clone(), headers)),
            16..24 => {
                if let Some((search, list, headers)) = held.take() {
                    agrees(&*search, &list, &headers);
                }
            }
            24..32 => {
                let settled = now.copy().into_classifier();
                agrees(&*settled, &list, &headers);
                let Some(search) = settled.to_updatable(&list) else { return };
                versions = Versions::new(search);
            }
            32..34 => {
                let Some(search) = grown(&list) else { return };
                versions = Versions::new(search);
            }
            _ => {}
        }
    }
    assert!((0..).zip(&list).all(|(at, pattern)| versions.current().pattern(at) == Some(pattern)));
    assert_eq!(versions.current().count(), list.len());
});
