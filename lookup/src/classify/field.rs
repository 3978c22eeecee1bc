//! The fields of a header, and which of their values a pattern asks for.

use wire::Family;

use super::{AddressSpan, Admit, Header, Pattern};

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Source address of IPv4, and with it the admission of IPv4.
    Source4,
    Destination4,
    /// Source address of IPv6, and with it the admission of IPv6.
    Source6,
    Destination6,
    Sport,
    /// And of ICMP, type and code.
    Dport,
    Protocol,
    TcpFlags,
    Dscp,
    From,
    To,
    Ingress,
    Egress,
    /// Its class.
    SourceMac,
    /// Memberships in sets: the byte of this number, the lowest first.
    Sets(u8),
}

/// Values from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The lowest.
    pub first: u128,
    /// The highest.
    pub last: u128,
}

impl Field {
    /// All: those of IPv4, of both families, of IPv6; the most telling at the ends.
    pub(super) const ALL: [Field; 18] = [
        Field::Source4,
        Field::Destination4,
        Field::Dport,
        Field::Sport,
        Field::Protocol,
        Field::TcpFlags,
        Field::Dscp,
        Field::From,
        Field::To,
        Field::Ingress,
        Field::Egress,
        Field::SourceMac,
        Field::Sets(0),
        Field::Sets(1),
        Field::Sets(2),
        Field::Sets(3),
        Field::Source6,
        Field::Destination6,
    ];

    /// Bits of a value.
    pub(super) fn bits(self) -> u32 {
        match self {
            Field::Source6 | Field::Destination6 => 128,
            Field::Source4 | Field::Destination4 => 32,
            Field::Sport | Field::Dport | Field::Ingress | Field::Egress | Field::SourceMac => 16,
            Field::Protocol | Field::TcpFlags | Field::Sets(_) => 8,
            Field::Dscp | Field::From | Field::To => 6,
        }
    }

    /// The highest value.
    pub(super) fn highest(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns the only family whose packets are compared by the field; `None` for both.
    pub(super) fn only(self) -> Option<Family> {
        match self {
            Field::Source4 | Field::Destination4 => Some(Family::V4),
            Field::Source6 | Field::Destination6 => Some(Family::V6),
            _ => None,
        }
    }

    /// The most spans that the patterns ask for here, before they are joined.
    pub(super) fn most_spans(self, patterns: &[Pattern]) -> usize {
        let of = |pattern: &Pattern| match self {
            Field::Source4 | Field::Source6 => pattern.source.as_ref().map_or(1, Vec::len),
            Field::Destination4 | Field::Destination6 => pattern.destination.as_ref().map_or(1, Vec::len),
            Field::Sport => pattern.sports.len(),
            // Those, and these again where both are asked for.
            Field::Dport => 2 * (pattern.dports.len() + pattern.icmp.len()),
            Field::Ingress => pattern.ingress.len(),
            Field::Egress => pattern.egress.len(),
            Field::SourceMac => pattern.source_macs.as_ref().map_or(1, Vec::len),
            Field::Protocol | Field::TcpFlags | Field::Sets(_) | Field::Dscp | Field::From | Field::To => 256,
        };
        patterns.iter().map(of).max().unwrap_or(0)
    }

    /// The value that a header shows, of 32 bits or fewer; 0 of wider ones.
    #[inline(always)]
    pub(super) fn value(self, header: &Header) -> u32 {
        match self {
            Field::Source4 => header.source as u32,
            Field::Destination4 => header.destination as u32,
            Field::Source6 | Field::Destination6 => 0,
            Field::Sport => header.sport.into(),
            Field::Dport => header.dport.into(),
            Field::Protocol => header.protocol.into(),
            Field::TcpFlags => header.tcp_flags.into(),
            Field::Dscp => header.dscp.into(),
            Field::From => header.from.into(),
            Field::To => header.to.into(),
            Field::Ingress => header.ingress.into(),
            Field::Egress => header.egress.into(),
            Field::SourceMac => header.source_mac.into(),
            Field::Sets(number) => byte(header.sets, number).into(),
        }
    }

    /// The IPv6 address that a header shows here.
    #[inline(always)]
    pub(super) fn wide_value(self, header: &Header) -> u128 {
        if self == Field::Source6 { header.source } else { header.destination }
    }

    /// True if the pattern asks for anything here.
    pub(super) fn is_asked(self, pattern: &Pattern) -> bool {
        match self {
            Field::Source4 => pattern.source.is_some() || pattern.v4 == Admit::No,
            Field::Source6 => pattern.source.is_some() || pattern.v6 == Admit::No,
            Field::Destination4 | Field::Destination6 => pattern.destination.is_some(),
            Field::Sport => !pattern.sports.is_empty(),
            Field::Dport => !pattern.dports.is_empty() || !pattern.icmp.is_empty(),
            Field::Protocol => !pattern.protocols.is_empty(),
            Field::TcpFlags => pattern.tcp_mask != 0 || pattern.tcp_value != 0,
            Field::Dscp => pattern.dscp != u64::MAX,
            Field::From => pattern.from != u64::MAX,
            Field::To => pattern.to != u64::MAX,
            Field::Ingress => !pattern.ingress.is_empty(),
            Field::Egress => !pattern.egress.is_empty(),
            Field::SourceMac => pattern.source_macs.is_some(),
            Field::Sets(number) => {
                byte(pattern.sets_mask, number) != 0 || byte(pattern.sets_value, number) != 0
            }
        }
    }

    /// Puts the values that the pattern asks for here into `spans`: ascending, with a gap between any two; none where it
    /// can match nothing.
    pub(super) fn spans(self, pattern: &Pattern, spans: &mut Vec<Span>) {
        spans.clear();
        if !self.is_asked(pattern) {
            spans.push(Span { first: 0, last: self.highest() });
            return;
        }
        let list = |values: &[u16], spans: &mut Vec<Span>| spans.extend(values.iter().map(|v| one(*v)));
        match self {
            Field::Source4 if pattern.v4 == Admit::No => {}
            Field::Source6 if pattern.v6 == Admit::No => {}
            Field::Source4 | Field::Source6 => self.addresses(pattern.source.as_deref(), spans),
            Field::Destination4 | Field::Destination6 => {
                self.addresses(pattern.destination.as_deref(), spans);
            }
            Field::Sport => spans.extend(pattern.sports.iter().map(|span| span_of(span.first, span.last))),
            Field::Dport => return dports(pattern, spans),
            Field::Protocol => {
                spans.extend(pattern.protocols.iter().map(|protocol| one(u16::from(*protocol))));
            }
            Field::TcpFlags => {
                masked(pattern.tcp_mask, pattern.tcp_value, spans);
            }
            Field::Sets(number) => {
                masked(byte(pattern.sets_mask, number), byte(pattern.sets_value, number), spans);
            }
            Field::Dscp => bits(pattern.dscp, spans),
            Field::From => bits(pattern.from, spans),
            Field::To => bits(pattern.to, spans),
            Field::Ingress => list(&pattern.ingress, spans),
            Field::Egress => list(&pattern.egress, spans),
            Field::SourceMac => {
                let asked = pattern.source_macs.iter().flatten();
                spans.extend(asked.map(|span| span_of(span.first, span.last)));
            }
        }
        join(spans);
    }

    fn addresses(self, asked: Option<&[AddressSpan]>, spans: &mut Vec<Span>) {
        let highest = self.highest();
        let Some(asked) = asked else { return spans.push(Span { first: 0, last: highest }) };
        let v6 = self.bits() == 128;
        let own = asked.iter().filter(|span| span.v6 == v6 && span.first <= highest);
        spans.extend(own.map(|span| Span { first: span.first, last: span.last.min(highest) }));
    }
}

/// A byte of memberships in sets, the lowest first.
#[inline(always)]
pub(super) fn byte(sets: u32, number: u8) -> u8 {
    (sets >> (8 * u32::from(number & 3))) as u8
}

/// Bytes whose bits of the mask are those of the value.
fn masked(mask: u8, value: u8, spans: &mut Vec<Span>) {
    let asked = (0..=255u8).filter(|byte| byte & mask == value);
    spans.extend(asked.map(|byte| one(u16::from(byte))));
}

fn one(value: u16) -> Span {
    span_of(value, value)
}

fn span_of(first: u16, last: u16) -> Span {
    Span { first: first.into(), last: last.into() }
}

fn bits(mask: u64, spans: &mut Vec<Span>) {
    spans.extend((0..64).filter(|bit| mask & (1 << bit) != 0).map(one));
}

/// Ports, and types of ICMP: two conditions on one field.
fn dports(pattern: &Pattern, spans: &mut Vec<Span>) {
    let types = pattern.icmp.iter().map(|item| {
        let of = |code| u16::from_be_bytes([item.kind, code]);
        item.code.map_or(span_of(of(0), of(u8::MAX)), |code| one(of(code)))
    });
    let types = any_or(types.collect());
    let ports = any_or(pattern.dports.iter().map(|span| span_of(span.first, span.last)).collect());
    let both = |ports: &Span, types: &Span| Span {
        first: ports.first.max(types.first),
        last: ports.last.min(types.last),
    };
    let pairs = ports.iter().flat_map(|ports| types.iter().map(move |types| both(ports, types)));
    spans.extend(pairs.filter(|span| span.first <= span.last));
}

/// Spans of the condition; the full range if it is empty.
fn any_or(mut asked: Vec<Span>) -> Vec<Span> {
    if asked.is_empty() {
        asked.push(span_of(0, u16::MAX));
    }
    join(&mut asked);
    asked
}

/// Sorts spans, and joins those that overlap or touch. A span that ends before it begins holds no value.
pub(super) fn join(spans: &mut Vec<Span>) {
    spans.retain(|span| span.first <= span.last);
    spans.sort_unstable();
    let mut kept = 0;
    for at in 0..spans.len() {
        let span = spans[at];
        if kept > 0 && span.first <= spans[kept - 1].last.saturating_add(1) {
            spans[kept - 1].last = spans[kept - 1].last.max(span.last);
        } else {
            spans[kept] = span;
            kept += 1;
        }
    }
    spans.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::super::{PortSpan, TypeMatch};
    use super::*;

    #[test]
    fn ports_and_types_are_asked_of_one_field() {
        let mut spans = Vec::new();
        let mut pattern = Pattern { icmp: vec![TypeMatch { kind: 8, code: None }], ..Pattern::default() };
        Field::Dport.spans(&pattern, &mut spans);
        assert_eq!(spans, [span_of(0x800, 0x8ff)]);
        pattern.dports = vec![PortSpan { first: 0x8f0, last: 0x900 }, PortSpan { first: 0, last: 0x803 }];
        Field::Dport.spans(&pattern, &mut spans);
        assert_eq!(spans, [span_of(0x800, 0x803), span_of(0x8f0, 0x8ff)]);
        pattern.dports = vec![PortSpan { first: 1, last: 2 }];
        Field::Dport.spans(&pattern, &mut spans);
        assert_eq!(spans, []);
        // From high to low there is no port, which is not the same as no condition.
        pattern.dports = vec![PortSpan { first: 2, last: 1 }];
        Field::Dport.spans(&pattern, &mut spans);
        assert_eq!(spans, []);
        pattern.icmp.clear();
        Field::Dport.spans(&pattern, &mut spans);
        assert_eq!(spans, []);
    }

    #[test]
    fn what_overlaps_or_touches_is_one_span() {
        let mut spans = vec![span_of(9, 9), span_of(0, 3), span_of(2, 5), span_of(6, 7)];
        join(&mut spans);
        assert_eq!(spans, [span_of(0, 7), span_of(9, 9)]);
    }

    #[test]
    fn flags_are_asked_of_their_mask() {
        let mut spans = Vec::new();
        let pattern = Pattern { tcp_mask: 0x12, tcp_value: 0x02, ..Pattern::default() };
        Field::TcpFlags.spans(&pattern, &mut spans);
        let within = |flags: u128| spans.iter().any(|span| span.first <= flags && flags <= span.last);
        for flags in 0..=255u8 {
            assert_eq!(within(flags.into()), flags & 0x12 == 0x02, "{flags:#x}");
        }
        Field::TcpFlags.spans(&Pattern { tcp_value: 1, ..Pattern::default() }, &mut spans);
        assert_eq!(spans, [], "a value outside its mask is never shown");
    }
}
