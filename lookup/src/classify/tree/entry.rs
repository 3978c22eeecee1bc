//! Patterns as cuboids: the form that a leaf compares, with the bits of a header that each cuboid fixes.

use wire::Family;

use super::layout::{Kind, MACS, MISC, Shape, ZONES};
use crate::classify::field::{Field, Span};
use crate::classify::prefix::{Go, each_piece};
use crate::classify::{Admit, Pattern, Position};

/// Cuboids that a pattern may become; one that would become more is held in a wider one, and compared whole where that
/// is met.
const MOST: usize = 32;

/// Prefixes that a range of IPv6 addresses may become.
const PREFIXES: usize = 8;

/// A part of the headers that a pattern matches, or of a few more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<S: Shape> {
    /// Position of the pattern.
    pub position: Position,
    /// Exactness: all headers in the cuboid match, or the pattern has to be asked.
    pub exact: Exact,
    /// Of each lane the lowest value, or the mask of the bits compared.
    pub low: S::Lanes,
    /// Of each lane the distance to the highest value, or the value of the bits compared.
    pub span: S::Lanes,
}

/// Exactness of a cuboid, compared with its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exact {
    /// The cuboid says all that the pattern does.
    Yes,
    /// The pattern asks for more.
    No,
}

/// Bits that all headers of a cuboid share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed<K> {
    /// Mask of the bits.
    pub mask: K,
    /// Values of the bits; others are 0.
    pub value: K,
}

/// Ranges of one field, and their exactness compared with the pattern's condition.
struct Choices<T> {
    list: Vec<T>,
    exact: Exact,
}

/// (mask, value).
type Bits = (u32, u32);

impl<T> Choices<T> {
    fn exactly(list: Vec<T>) -> Choices<T> {
        Choices { list, exact: Exact::Yes }
    }

    fn widen(&mut self, to: T) {
        *self = Choices { list: vec![to], exact: Exact::No };
    }
}

/// The cuboids of a pattern among headers of one family.
pub(super) fn of_pattern<S: Shape>(pattern: &Pattern, position: Position, entries: &mut Vec<Entry<S>>) {
    let admitted = if S::FAMILY == Family::V6 { pattern.v6 } else { pattern.v4 };
    let is_never_shown =
        pattern.tcp_value & !pattern.tcp_mask != 0 || pattern.sets_value & !pattern.sets_mask != 0;
    if admitted == Admit::No || is_never_shown {
        return;
    }
    let [mut source, mut destination] = S::ADDRESSES.map(|field| addresses::<S>(field, pattern));
    let [mut sports, mut dports] =
        [Field::Sport, Field::Dport].map(|field| Choices::exactly(spans(field, pattern)));
    let mut misc = misc(pattern);
    let mut zones = zones(pattern);
    let mut macs = Choices::exactly(spans(Field::SourceMac, pattern));
    // The longest list first: that loses least.
    loop {
        let lengths = [
            source.list.len(),
            destination.list.len(),
            sports.list.len(),
            dports.list.len(),
            misc.list.len(),
            zones.list.len(),
            macs.list.len(),
        ];
        if lengths.into_iter().fold(1, usize::saturating_mul) <= MOST {
            break;
        }
        let longest = (0..lengths.len()).max_by_key(|at| lengths[*at]).unwrap_or(0);
        match longest {
            0 => source.widen(hull::<S>(&source.list)),
            1 => destination.widen(hull::<S>(&destination.list)),
            2 => sports.widen(ends(&sports.list)),
            3 => dports.widen(ends(&dports.list)),
            4 => misc.widen(agreed(&misc.list)),
            5 => zones.widen(agreed(&zones.list)),
            _ => macs.widen(ends(&macs.list)),
        }
    }
    let all = [source.exact, destination.exact, sports.exact, dports.exact, misc.exact, zones.exact];
    // Interfaces to leave by, MAC addresses and memberships in sets are rare, and not worth the comparison of a lane.
    let is_beside = [Field::Egress, Field::SourceMac].iter().any(|field| field.is_asked(pattern))
        || pattern.sets_mask != 0;
    let exact = if all.contains(&Exact::No) || is_beside { Exact::No } else { Exact::Yes };
    for source in &source.list {
        for destination in &destination.list {
            for sports in &sports.list {
                for dports in &dports.list {
                    for misc in &misc.list {
                        for (zones, macs) in beside(&zones.list, &macs.list) {
                            let mut low = S::Lanes::default();
                            let mut span = S::Lanes::default();
                            S::set_addresses(&mut low, &mut span, [*source, *destination]);
                            let (lows, spans) = (low.as_mut(), span.as_mut());
                            let at = S::PORTS;
                            lows[at] = (sports.first | dports.first << 16) as u32;
                            let [sports, dports] = [sports, dports].map(|span| span.last - span.first);
                            spans[at] = (sports | dports << 16) as u32;
                            (lows[at + MISC], spans[at + MISC]) = *misc;
                            (lows[at + ZONES], spans[at + ZONES]) = zones;
                            (lows[at + MACS], spans[at + MACS]) =
                                (macs.first as u32, (macs.last - macs.first) as u32);
                            entries.push(Entry { position, exact, low, span });
                        }
                    }
                }
            }
        }
    }
}

/// Each of the zones with each of the MAC addresses.
fn beside<'a>(zones: &'a [Bits], macs: &'a [Span]) -> impl Iterator<Item = (Bits, &'a Span)> {
    zones.iter().flat_map(move |zones| macs.iter().map(move |macs| (*zones, macs)))
}

/// Returns the spans of a pattern's condition on a field.
fn spans(field: Field, pattern: &Pattern) -> Vec<Span> {
    let mut spans = Vec::new();
    field.spans(pattern, &mut spans);
    spans
}

/// Addresses; prefixes only, where the shape compares them word by word.
fn addresses<S: Shape>(field: Field, pattern: &Pattern) -> Choices<Span> {
    let own = spans(field, pattern);
    if S::FAMILY == Family::V4 {
        return Choices::exactly(own);
    }
    let mut choices = Choices::exactly(Vec::new());
    for span in own {
        let mut parts = Vec::new();
        each_piece(&[span], field.bits(), field.bits(), |prefix| {
            parts.push(prefix.span(field.bits()));
            if parts.len() > PREFIXES { Go::Back } else { Go::On }
        });
        if parts.len() > PREFIXES {
            choices.list.push(hull::<S>(&[span]));
            choices.exact = Exact::No;
        } else {
            choices.list.extend(parts);
        }
    }
    choices
}

/// Returns the hull of the spans: the longest prefix that contains all, which every shape can compare.
fn hull<S: Shape>(spans: &[Span]) -> Span {
    let Span { first, last } = ends(spans);
    let differ = first ^ last;
    let host = if differ == 0 { 0 } else { u128::MAX >> differ.leading_zeros() };
    Span { first: first & !host, last: (last | host) & S::ADDRESSES[0].highest() }
}

/// Returns the span from the lowest value to the highest; spans ascend, and are empty only for a pattern that matches
/// nothing.
fn ends(spans: &[Span]) -> Span {
    let first = spans.first().map_or(0, |span| span.first);
    Span { first, last: spans.last().map_or(0, |span| span.last) }
}

/// Bits that all look at and agree in.
fn agreed(list: &[Bits]) -> Bits {
    let Some(first) = list.first() else { return (0, 0) };
    let mask = list.iter().fold(first.0, |mask, (other, value)| mask & other & !(value ^ first.1));
    (mask, first.1 & mask)
}

/// Protocol, TCP flags and code point: `protocol | flags << 8 | dscp << 16`.
fn misc(pattern: &Pattern) -> Choices<Bits> {
    let any = pattern.protocols.is_empty();
    let protocols = pattern.protocols.iter().map(|protocol| (0xff, u32::from(*protocol)));
    let protocols = if any { vec![(0, 0)] } else { protocols.collect() };
    let flags = (u32::from(pattern.tcp_mask) << 8, u32::from(pattern.tcp_value) << 8);
    let points = one_of(pattern.dscp, 16);
    Choices { list: product(&product(&protocols, &[flags]), &points.list), exact: points.exact }
}

/// Zones and the interface of origin: `from | to << 8 | ingress << 16`.
fn zones(pattern: &Pattern) -> Choices<Bits> {
    let (from, to) = (one_of(pattern.from, 0), one_of(pattern.to, 8));
    let any = pattern.ingress.is_empty();
    let ingress = pattern.ingress.iter().map(|interface| (0xffff << 16, u32::from(*interface) << 16));
    let ingress: Vec<Bits> = if any { vec![(0, 0)] } else { ingress.collect() };
    let exact = if from.exact == Exact::Yes { to.exact } else { Exact::No };
    Choices { list: product(&product(&from.list, &to.list), &ingress), exact }
}

/// The numbers that `mask` has a bit for, in a byte that begins at bit `shift`; any, where there are many.
fn one_of(mask: u64, shift: u32) -> Choices<Bits> {
    if mask == u64::MAX {
        return Choices::exactly(vec![(0, 0)]);
    }
    if mask.count_ones() as usize > MOST {
        return Choices { list: vec![(0, 0)], exact: Exact::No };
    }
    let numbers = (0..64).filter(|bit| mask & (1 << bit) != 0);
    Choices::exactly(numbers.map(|bit: u32| (0xff << shift, bit << shift)).collect())
}

fn product(these: &[Bits], those: &[Bits]) -> Vec<Bits> {
    these.iter().flat_map(|a| those.iter().map(move |b| (a.0 | b.0, a.1 | b.1))).collect()
}

impl<S: Shape> Entry<S> {
    /// Returns the position of the pattern, if the pattern has to be asked.
    pub(super) fn asks(&self) -> Option<Position> {
        (self.exact == Exact::No).then_some(self.position)
    }

    /// The part of the cuboid that another one has, too; `None` where they have no header in common.
    pub(super) fn common(&self, other: &Entry<S>) -> Option<Entry<S>> {
        let mut common = Entry { low: S::Lanes::default(), span: S::Lanes::default(), ..*self };
        for slice in S::SLICES {
            let of = |entry: &Entry<S>| {
                let [low, span] = [&entry.low, &entry.span].map(|lanes| slice.of(lanes.as_ref()[slice.lane]));
                (low, span)
            };
            let ((low, span), (other_low, other_span)) = (of(self), of(other));
            let (low, span) = match slice.kind {
                Kind::Range => {
                    let first = low.max(other_low);
                    (first, (low + span).min(other_low + other_span).checked_sub(first)?)
                }
                Kind::Bits if (span ^ other_span) & low & other_low != 0 => return None,
                Kind::Bits => (low | other_low, span | other_span),
            };
            common.low.as_mut()[slice.lane] |= low << slice.shift;
            common.span.as_mut()[slice.lane] |= span << slice.shift;
        }
        Some(common)
    }

    /// The bits that all of its headers share, of those whose `known` bits have their values; `None` where none of its
    /// headers does, as far as the first bits of each field tell.
    pub(super) fn fixed(&self, known: &Fixed<S::Key>) -> Option<Fixed<S::Key>> {
        let mut fixed = Fixed { mask: S::Key::default(), value: S::Key::default() };
        for slice in S::SLICES {
            let (word, shift) = (slice.word(), slice.shift_in_word());
            let part = |key: &S::Key| (key.as_ref()[word] >> shift) as u32 & slice.highest();
            let given = (part(&known.mask), part(&known.value));
            let low = slice.of(self.low.as_ref()[slice.lane]);
            let span = slice.of(self.span.as_ref()[slice.lane]);
            let (mask, value) = match slice.kind {
                Kind::Range => shared((low, low + span), given, slice.bits)?,
                Kind::Bits => (low, span),
            };
            if (value ^ given.1) & mask & given.0 != 0 {
                return None;
            }
            fixed.mask.as_mut()[word] |= u64::from(mask) << shift;
            fixed.value.as_mut()[word] |= u64::from(value) << shift;
        }
        Some(fixed)
    }

    /// True if all headers with these bits lie in it.
    pub(super) fn covers(&self, known: &Fixed<S::Key>) -> bool {
        S::SLICES.iter().all(|slice| {
            let (word, shift) = (slice.word(), slice.shift_in_word());
            let known = (known.mask.as_ref()[word] >> shift) as u32 & slice.highest();
            let low = slice.of(self.low.as_ref()[slice.lane]);
            let span = slice.of(self.span.as_ref()[slice.lane]);
            match slice.kind {
                // A prefix, the bits of which are known.
                Kind::Range => {
                    span & span.wrapping_add(1) == 0 && low & span == 0 && known | span == slice.highest()
                }
                Kind::Bits => low & !known == 0,
            }
        })
    }
}

/// Returns the leading bits common to all values of a range that begin with the known bits; `None` if no value does.
fn shared((low, high): (u32, u32), known: Bits, bits: u32) -> Option<Bits> {
    let unused = 32 - bits;
    let leading = (known.0 << unused).leading_ones();
    let free = if leading == bits { 0 } else { u32::MAX >> unused >> leading };
    let begin = known.1 & !free;
    let (low, high) = (low.max(begin), high.min(begin | free));
    if low > high {
        return None;
    }
    let differ = low ^ high;
    let open = if differ == 0 { 0 } else { u32::MAX >> differ.leading_zeros() };
    let mask = u32::MAX >> unused & !open;
    Some((mask, low & mask))
}
