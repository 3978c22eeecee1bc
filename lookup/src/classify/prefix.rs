//! Ranges as prefixes.

use super::field::Span;

/// A prefix, of 32 or 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) value: u128,
    pub(super) length: u8,
}

impl Prefix {
    /// Returns the values of the prefix, in a field of `width` bits.
    pub(super) fn span(self, width: u32) -> Span {
        let host = u128::MAX.checked_shr(128 - width + u32::from(self.length)).unwrap_or(0);
        Span { first: self.value, last: self.value | host }
    }
}

/// Continuation: more is wanted, or not.
#[derive(PartialEq, Eq)]
pub(super) enum Go {
    On,
    Back,
}

/// Prefixes of at most `length` bits that cover ascending spans, one by one.
pub(super) fn each_piece(spans: &[Span], width: u32, length: u32, mut give: impl FnMut(Prefix) -> Go) {
    let below = if length == width { 0 } else { (u128::MAX >> (128 - width)) >> length };
    let mut spans = spans.iter().map(|span| Span { first: span.first & !below, last: span.last | below });
    let mut next = spans.next();
    while let Some(mut span) = next {
        next = spans.next();
        while let Some(following) = next.filter(|next| next.first <= span.last.saturating_add(1)) {
            span.last = span.last.max(following.last);
            next = spans.next();
        }
        let mut first = span.first;
        loop {
            // The largest block that begins here and ends in the span.
            let aligned = first.trailing_zeros().min(width);
            let room = (span.last - first).checked_add(1).map_or(128, |count| count.ilog2());
            let host = aligned.min(room);
            let prefix = Prefix { value: first, length: (width - host) as u8 };
            if give(prefix) == Go::Back {
                return;
            }
            let last = prefix.span(width).last;
            if last >= span.last {
                break;
            }
            first = last + 1;
        }
    }
}
