//! A pattern as a product: for each field the values that match, whatever the others have.

use super::field::{Field, ORDER, Version};
use crate::classify::field::join;
use crate::classify::{Header, Pattern};

pub use crate::classify::field::Span;

/// Values of a field: disjoint, ascending, not touching.
pub type Spans = Vec<Span>;

/// For each field its values, in the order of [`ORDER`]; every one where `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    fields: [Option<Spans>; ORDER.len()],
}

impl Product {
    /// Every header.
    pub fn all() -> Product {
        Product { fields: Default::default() }
    }

    /// Returns the headers of a version that a pattern matches; `None` if there are none.
    pub fn of(pattern: &Pattern, version: Version) -> Option<Product> {
        let mut product = Product::all();
        for field in ORDER {
            let mut spans = Spans::new();
            field.of_version(version).spans(pattern, &mut spans);
            product.limit(field, Some(spans), version);
        }
        (!product.is_empty()).then_some(product)
    }

    /// The values of a field; every one where `None`.
    pub fn get(&self, field: Field) -> Option<&Spans> {
        self.fields[place(field)].as_ref()
    }

    /// Sets the values of a field: spans in any order, or every value.
    pub fn limit(&mut self, field: Field, spans: Option<Spans>, version: Version) {
        let whole = Span { first: 0, last: field.highest(version) };
        self.fields[place(field)] = spans.map(merged).filter(|spans| *spans != [whole]);
    }

    /// True if some field has no value left.
    pub fn is_empty(&self) -> bool {
        self.fields.iter().flatten().any(Vec::is_empty)
    }

    /// True if a header, of the version that this is for, is in it.
    pub fn has(&self, header: &Header) -> bool {
        ORDER.iter().zip(&self.fields).all(|(field, spans)| {
            spans.as_ref().is_none_or(|spans| {
                let value = field.of(header);
                let at = spans.partition_point(|span| span.last < value);
                spans.get(at).is_some_and(|span| span.first <= value)
            })
        })
    }

    /// True if there is a header in both.
    pub fn overlaps(&self, other: &Product) -> bool {
        self.fields.iter().zip(&other.fields).all(|pair| match pair {
            (Some(these), Some(those)) => overlap(these, those),
            _ => true,
        })
    }

    /// Returns the intersection; `None` if it is empty.
    pub fn within(&self, other: &Product, version: Version) -> Option<Product> {
        let mut product = self.clone();
        for field in ORDER {
            let spans = match (self.get(field), other.get(field)) {
                (Some(these), Some(those)) => Some(both(these, those)),
                (these, those) => these.or(those).cloned(),
            };
            product.limit(field, spans, version);
        }
        (!product.is_empty()).then_some(product)
    }

    /// Both as one, if they differ in one field only.
    pub fn joined(&self, other: &Product, version: Version) -> Option<Product> {
        let mut different = ORDER.into_iter().filter(|field| self.get(*field) != other.get(*field));
        let Some(field) = different.next() else { return Some(self.clone()) };
        if different.next().is_some() {
            return None;
        }
        let mut joined = self.clone();
        let spans = match (self.get(field), other.get(field)) {
            (Some(these), Some(those)) => Some(these.iter().chain(those).copied().collect()),
            _ => None,
        };
        joined.limit(field, spans, version);
        Some(joined)
    }

    /// True if every header of `other` is in this one.
    pub fn contains(&self, other: &Product) -> bool {
        self.fields.iter().zip(&other.fields).all(|pair| match pair {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(these), Some(those)) => those.iter().all(|span| {
                let at = these.partition_point(|one| one.last < span.first);
                these.get(at).is_some_and(|one| one.first <= span.first && span.last <= one.last)
            }),
        })
    }
}

fn place(field: Field) -> usize {
    ORDER.iter().position(|one| *one == field).unwrap_or(0)
}

/// Sorts, and joins what overlaps or touches.
pub fn merged(mut spans: Spans) -> Spans {
    join(&mut spans);
    spans
}

fn overlap(these: &[Span], those: &[Span]) -> bool {
    if let ([one], [other]) = (these, those) {
        return one.first <= other.last && other.first <= one.last;
    }
    let (few, many) = if these.len() <= those.len() { (these, those) } else { (those, these) };
    few.iter().any(|span| {
        let at = many.partition_point(|other| other.last < span.first);
        many.get(at).is_some_and(|other| other.first <= span.last)
    })
}

/// Values in both; of merged spans.
pub fn both(these: &[Span], those: &[Span]) -> Spans {
    let within = |one: &Span| {
        let mut parts = Vec::new();
        for other in those {
            let (first, last) = (one.first.max(other.first), one.last.min(other.last));
            if first <= last {
                parts.push(Span { first, last });
            }
        }
        parts
    };
    these.iter().flat_map(within).collect()
}
