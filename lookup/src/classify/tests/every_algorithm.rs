//! Every algorithm answers as the linear scan does, and says the same with and without an account.
//!
//! Headers are aimed at the corners of patterns: each field lies on an edge of some pattern's span, or one beside it.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use tally::Count;
use wire::Family;

use super::super::{
    ALGORITHMS, AddressSpan, Admit, Bounds, ClassSpan, Classifier, Header, NO_MATCH, Pattern, PortSpan,
    TypeMatch,
};

/// Highest address of a family.
fn highest(v6: bool) -> u128 {
    if v6 { u128::MAX } else { u128::from(u32::MAX) }
}

/// Addresses that are near each other as often as not.
fn address(v6: bool) -> impl Strategy<Value = u128> {
    let net: u128 = if v6 { 0x2001_0db8 << 96 } else { 0x0a00_0000 };
    prop_oneof![
        3 => (0..32u128).prop_map(move |low| net + low),
        2 => (0..1u128 << 16).prop_map(move |low| net + (low << 4)),
        1 => any::<u128>().prop_map(move |bits| bits & highest(v6)),
        1 => Just(0),
        1 => Just(highest(v6)),
    ]
}

/// A prefix of any length, or from anywhere to anywhere.
fn span() -> impl Strategy<Value = AddressSpan> {
    any::<bool>().prop_flat_map(|v6| {
        let bits = if v6 { 128 } else { 32 };
        let prefix = (address(v6), 0..=bits).prop_map(move |(address, length)| {
            let host = if length == bits { 0 } else { highest(v6) >> length };
            AddressSpan { v6, first: address & !host, last: address | host }
        });
        let range = (address(v6), address(v6)).prop_map(move |(one, other)| AddressSpan {
            v6,
            first: one.min(other),
            last: one.max(other),
        });
        prop_oneof![4 => prefix, 1 => range]
    })
}

/// Disjoint and ascending, as patterns have them.
fn disjoint(mut spans: Vec<AddressSpan>) -> Vec<AddressSpan> {
    spans.sort_unstable();
    let mut kept: Vec<AddressSpan> = Vec::new();
    for span in spans {
        if kept.last().is_none_or(|last| last.v6 != span.v6 || last.last < span.first) {
            kept.push(span);
        }
    }
    kept
}

fn spans() -> impl Strategy<Value = Option<Vec<AddressSpan>>> {
    option::weighted(
        0.8,
        prop_oneof![12 => vec(span(), 1..2), 2 => vec(span(), 2..6), 1 => vec(span(), 0..1)],
    )
    .prop_map(|spans| spans.map(disjoint))
}

fn ports() -> impl Strategy<Value = Vec<PortSpan>> {
    let port = || prop_oneof![Just(0u16), Just(u16::MAX), 0..8u16, any::<u16>()];
    let span = (port(), port(), any::<bool>()).prop_map(|(one, other, exact)| {
        if exact {
            PortSpan { first: one, last: one }
        } else {
            PortSpan { first: one.min(other), last: one.max(other) }
        }
    });
    prop_oneof![3 => Just(Vec::new()), 4 => vec(span.clone(), 1..2), 1 => vec(span, 2..5)]
}

/// Bits, all of them as a rule.
fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(u64::MAX), 2 => (0..4u32).prop_map(|bit| 1 << bit), 1 => any::<u64>()]
}

fn interfaces() -> impl Strategy<Value = Vec<u16>> {
    prop_oneof![4 => Just(Vec::new()), 1 => vec(prop_oneof![0..4u16, Just(u16::MAX)], 1..3)]
}

fn source_macs() -> impl Strategy<Value = Option<Vec<ClassSpan>>> {
    let class = || prop_oneof![0..6u16, Just(u16::MAX)];
    let span = (class(), class()).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let spans = vec(span, 0..3).prop_map(|mut spans| {
        spans.sort_unstable();
        let mut last = None;
        spans.retain(|(first, end)| {
            let is_apart = last.is_none_or(|last| *first > last);
            if is_apart {
                last = Some(*end);
            }
            is_apart
        });
        spans.into_iter().map(|(first, last)| ClassSpan { first, last }).collect::<Vec<_>>()
    });
    option::weighted(0.2, spans)
}

fn icmp() -> impl Strategy<Value = Vec<TypeMatch>> {
    let item = (0..9u8, option::of(0..4u8)).prop_map(|(kind, code)| TypeMatch { kind, code });
    prop_oneof![5 => Just(Vec::new()), 1 => vec(item, 1..3)]
}

fn protocols() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()];
    prop_oneof![2 => Just(Vec::new()), 4 => vec(one.clone(), 1..2), 1 => vec(one, 2..4)]
}

/// Memberships looked at, and those that must hold.
fn sets() -> impl Strategy<Value = (u32, u32)> {
    let bit = || (0..32u32).prop_map(|bit| 1 << bit);
    let asked = prop_oneof![
        4 => bit().prop_map(|bit| (bit, bit)),
        2 => bit().prop_map(|bit| (bit, 0)),
        2 => (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(a, b, value)| (a & b, value & a & b)),
        // A value outside its mask is never shown: that is a pattern, too.
        1 => any::<(u32, u32)>(),
    ];
    prop_oneof![5 => Just((0, 0)), 1 => asked]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let flags = prop_oneof![3 => Just((0, 0)), 1 => (any::<u8>(), any::<u8>())];
    let families = prop_oneof![6 => Just((Admit::Yes, Admit::Yes)), 1 => Just((Admit::Yes, Admit::No)), 1 => Just((Admit::No, Admit::Yes))];
    (
        (spans(), spans(), ports(), ports(), protocols()),
        (mask(), mask(), mask(), interfaces(), interfaces()),
        (icmp(), flags, families, source_macs(), sets()),
    )
        .prop_map(
            |(
                (source, destination, sports, dports, protocols),
                (from, to, dscp, ingress, egress),
                (icmp, (tcp_mask, tcp_value), (v4, v6), source_macs, (sets_mask, sets_value)),
            )| Pattern {
                from,
                to,
                ingress,
                egress,
                source_macs,
                source,
                destination,
                v4,
                v6,
                protocols,
                sports,
                dports,
                icmp,
                tcp_mask,
                // A value outside its mask is never shown: that is a pattern, too.
                tcp_value,
                dscp,
                sets_mask,
                sets_value,
            },
        )
}

/// Source of a header's fields.
#[derive(Clone, Debug)]
struct Aim {
    v6: bool,
    other: bool,
    /// The pattern that it is to match.
    pattern: Index,
    /// Another pattern that a field follows instead, its edge, and the distance from the edge.
    fields: [(Option<Index>, Index, i8); 12],
    random: (u128, u16, u8),
}

fn aim() -> impl Strategy<Value = Aim> {
    let beside = prop_oneof![20 => Just(0i8), 1 => Just(1i8), 1 => Just(-1i8)];
    let field = (option::weighted(0.06, any::<Index>()), any::<Index>(), beside);
    let fields = proptest::array::uniform12(field);
    let other = proptest::bool::weighted(0.02);
    (any::<bool>(), other, any::<Index>(), fields, any::<(u128, u16, u8)>())
        .prop_map(|(v6, other, pattern, fields, random)| Aim { v6, other, pattern, fields, random })
}

/// One of the edges that `edges` gives of the pattern that a field follows; `otherwise` where it has none.
fn aimed(
    aim: &Aim,
    at: usize,
    patterns: &[Pattern],
    edges: impl Fn(&Pattern) -> Vec<u128>,
    otherwise: u128,
) -> u128 {
    let (other, edge, beside) = &aim.fields[at];
    let pattern = other.unwrap_or(aim.pattern);
    if patterns.is_empty() {
        return otherwise;
    }
    let edges = edges(&patterns[pattern.index(patterns.len())]);
    if edges.is_empty() {
        return otherwise;
    }
    edges[edge.index(edges.len())].wrapping_add_signed(i128::from(*beside))
}

fn header(aim: &Aim, patterns: &[Pattern]) -> Header {
    let v6 = aim.v6;
    let of_spans = |spans: Option<&[AddressSpan]>| -> Vec<u128> {
        let own = spans.unwrap_or_default().iter().filter(|span| span.v6 == v6);
        own.flat_map(|span| [span.first, span.last, span.first.midpoint(span.last)]).collect()
    };
    let of_ports = |spans: &[PortSpan]| -> Vec<u128> {
        spans.iter().flat_map(|span| [span.first.into(), span.last.into()]).collect()
    };
    let of_classes = |spans: Option<&[ClassSpan]>| -> Vec<u128> {
        spans.unwrap_or_default().iter().flat_map(|span| [span.first.into(), span.last.into()]).collect()
    };
    let of_bits = |mask: u64| -> Vec<u128> {
        if mask == u64::MAX { Vec::new() } else { vec![u128::from(mask.trailing_zeros() % 64)] }
    };
    let of_list = |list: &[u16]| -> Vec<u128> { list.iter().map(|item| (*item).into()).collect() };
    let (wide, port, byte) = aim.random;
    Header {
        source: aimed(aim, 0, patterns, |p| of_spans(p.source.as_deref()), wide) & highest(v6),
        destination: aimed(aim, 1, patterns, |p| of_spans(p.destination.as_deref()), wide) & highest(v6),
        sport: aimed(aim, 2, patterns, |p| of_ports(&p.sports), port.into()) as u16,
        dport: aimed(
            aim,
            3,
            patterns,
            |p| {
                let icmp =
                    |item: &TypeMatch| (u128::from(item.kind) << 8) | u128::from(item.code.unwrap_or(byte));
                of_ports(&p.dports).into_iter().chain(p.icmp.iter().map(icmp)).collect()
            },
            port.into(),
        ) as u16,
        protocol: aimed(aim, 5, patterns, |p| p.protocols.iter().map(|one| (*one).into()).collect(), 6) as u8,
        tcp_flags: aimed(
            aim,
            7,
            patterns,
            |p| vec![(p.tcp_value & p.tcp_mask).into(), p.tcp_value.into()],
            byte.into(),
        ) as u8,
        dscp: aimed(aim, 4, patterns, |p| of_bits(p.dscp), 0) as u8 & 63,
        family: match (aim.other, v6) {
            (true, _) => Family::Other,
            (false, true) => Family::V6,
            (false, false) => Family::V4,
        },
        from: aimed(aim, 6, patterns, |p| of_bits(p.from), 1) as u8 & 63,
        to: aimed(aim, 9, patterns, |p| of_bits(p.to), 2) as u8 & 63,
        ingress: aimed(aim, 8, patterns, |p| of_list(&p.ingress), 0) as u16,
        egress: aimed(aim, 8, patterns, |p| of_list(&p.egress), 1) as u16,
        source_mac: aimed(aim, 10, patterns, |p| of_classes(p.source_macs.as_deref()), 0) as u16,
        sets: aimed(aim, 11, patterns, |p| vec![p.sets_value.into(), (!p.sets_mask | p.sets_value).into()], 0)
            as u32,
    }
}

/// Holds `search` to the scan of `patterns`, one by one, in bulk and tallied.
pub(in super::super) fn agrees(
    name: &str,
    search: &(impl Classifier + ?Sized),
    patterns: &[Pattern],
    headers: &[Header],
) -> Result<(), TestCaseError> {
    let mut bulk = vec![0; headers.len()];
    search.classify_bulk(headers, &mut bulk);
    for (header, bulk) in headers.iter().zip(bulk) {
        let wanted = patterns.iter().position(|pattern| pattern.matches(header)).map(|at| at as u32);
        prop_assert_eq!(search.classify(header), wanted, "{} {:?}", name, header);
        let mut count = Count::default();
        prop_assert_eq!(
            search.classify_tallied(header, &mut count),
            wanted,
            "{} {:?}, tallied",
            name,
            header
        );
        prop_assert_eq!(bulk, wanted.unwrap_or(NO_MATCH), "{} {:?}, in bulk", name, header);
    }
    Ok(())
}

proptest! {
    #[test]
    fn equals_the_linear_scan(
        patterns in prop_oneof![vec(pattern(), 0..12), vec(pattern(), 12..150)],
        aims in vec(aim(), 1..100),
    ) {
        let headers: Vec<Header> = aims.iter().map(|aim| header(aim, &patterns)).collect();
        for algorithm in ALGORITHMS {
            if let Ok(search) = (algorithm.build)(&patterns, Bounds::default()) {
                agrees(algorithm.name, &*search, &patterns, &headers)?;
            }
        }
    }
}

/// Change of a list, at a place.
#[derive(Clone, Debug)]
enum Change {
    Insert(Box<Pattern>),
    /// A pattern that is somewhere comes here, too.
    Repeat(Index),
    /// A pattern for everything comes, which hides what follows.
    Cover,
    Remove,
}

fn edits() -> impl Strategy<Value = Vec<(Index, Change)>> {
    let change = prop_oneof![
        6 => pattern().prop_map(|pattern| Change::Insert(Box::new(pattern))),
        1 => any::<Index>().prop_map(Change::Repeat),
        1 => Just(Change::Cover),
        6 => Just(Change::Remove),
    ];
    vec((any::<Index>(), change), 1..60)
}

/// Lists that patterns for everything stand in, too.
fn before() -> impl Strategy<Value = Vec<Pattern>> {
    let one = || prop_oneof![15 => pattern(), 1 => Just(Pattern::default())];
    prop_oneof![vec(one(), 0..12), vec(one(), 12..60)]
}

proptest! {
    #[test]
    fn equals_the_linear_scan_after_each_change(
        before in before(),
        edits in edits(),
        aims in vec(aim(), 1..12),
    ) {
        for algorithm in ALGORITHMS {
            let Ok(search) = (algorithm.build)(&before, Bounds::default()) else { continue };
            let Some(mut search) = search.to_updatable(&before) else { continue };
            let mut patterns = before.clone();
            for (place, change) in &edits {
                let pattern = match change {
                    Change::Insert(pattern) => Some((**pattern).clone()),
                    Change::Repeat(_) if patterns.is_empty() => continue,
                    Change::Repeat(other) => Some(patterns[other.index(patterns.len())].clone()),
                    Change::Cover => Some(Pattern::default()),
                    Change::Remove => None,
                };
                match pattern {
                    Some(pattern) => {
                        let place = place.index(patterns.len() + 1);
                        prop_assert!(search.insert(place as u32, &pattern).is_ok());
                        patterns.insert(place, pattern);
                    }
                    None if patterns.is_empty() => {}
                    None => {
                        let place = place.index(patterns.len());
                        search.remove(place as u32);
                        patterns.remove(place);
                    }
                }
                let headers: Vec<Header> = aims.iter().map(|aim| header(aim, &patterns)).collect();
                agrees(algorithm.name, &*search, &patterns, &headers)?;
            }
            prop_assert_eq!(search.count(), patterns.len());
            for (position, pattern) in (0..).zip(&patterns) {
                prop_assert_eq!(search.pattern(position), Some(pattern));
            }
            let headers: Vec<Header> = aims.iter().map(|aim| header(aim, &patterns)).collect();
            let copy = search.copy();
            search.remove(0);
            agrees(algorithm.name, &*copy, &patterns, &headers)?;
            // And as one that is only searched, and as one that is changed again.
            let settled = copy.into_classifier();
            agrees(algorithm.name, &*settled, &patterns, &headers)?;
            let Some(mut again) = settled.to_updatable(&patterns) else { continue };
            while !patterns.is_empty() {
                let place = patterns.len() / 2;
                again.remove(place as u32);
                patterns.remove(place);
                agrees(algorithm.name, &*again, &patterns, &headers)?;
            }
        }
    }
}

/// Or the property would hold of an algorithm that finds nothing.
#[test]
fn headers_meet_patterns() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut met, mut late) = (0, 0);
    for _ in 0..50 {
        let patterns = vec(pattern(), 30..60).new_tree(&mut runner).unwrap().current();
        let aims = vec(aim(), 40).new_tree(&mut runner).unwrap().current();
        for aim in &aims {
            let header = header(aim, &patterns);
            if let Some(at) = patterns.iter().position(|pattern| pattern.matches(&header)) {
                met += 1;
                late += u32::from(at > 5);
            }
        }
    }
    assert!(met > 300 && late > 100, "of 2,000 headers {met} match, {late} of them late");
}
