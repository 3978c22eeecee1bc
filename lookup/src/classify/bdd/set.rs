//! Sets of headers, as binary decision diagrams of the library.

use std::collections::HashMap;

use biodivine_lib_bdd::{Bdd, BddNode, BddPointer, BddVariable, BddVariableSet};

use super::field::{ORDER, Version};
use super::product::{Product, Span};

/// The diagram of a product: nodes of the last field first, for each leads on to those behind it.
pub fn bdd(product: &Product, version: Version) -> Bdd {
    let bits = version.bits();
    let mut nodes = vec![BddNode::mk_zero(bits), BddNode::mk_one(bits)];
    let mut inside = BddPointer::one();
    for field in ORDER.iter().rev() {
        if let Some(spans) = product.get(*field) {
            let mut level = Level {
                first: field.first_variable(version),
                bits: field.bits(version),
                inside,
                nodes: &mut nodes,
                known: HashMap::new(),
            };
            inside = level.build(0, 0, spans);
        }
    }
    match inside {
        pointer if pointer.is_zero() => BddVariableSet::new_anonymous(bits).mk_false(),
        pointer if pointer.is_one() => BddVariableSet::new_anonymous(bits).mk_true(),
        _ => {
            Bdd::from_nodes(&nodes).expect("nodes behind those that they lead to, in the order of variables")
        }
    }
}

/// Building the nodes of one field.
struct Level<'a> {
    first: u16,
    bits: u16,
    inside: BddPointer,
    nodes: &'a mut Vec<BddNode>,
    known: HashMap<BddNode, BddPointer>,
}

impl Level<'_> {
    /// The node that decides on the bit `depth` of the values that begin with `prefix`, of which `spans` are inside.
    fn build(&mut self, depth: u16, prefix: u128, spans: &[Span]) -> BddPointer {
        let free = u32::from(self.bits - depth);
        let last = prefix | u128::MAX.checked_shr(128 - free).unwrap_or(0);
        match spans {
            [] => return BddPointer::zero(),
            [span] if span.first <= prefix && last <= span.last => return self.inside,
            _ => {}
        }
        let half = prefix | 1 << (free - 1);
        let below = spans.partition_point(|span| span.first < half);
        let above = spans.partition_point(|span| span.last < half);
        let high = self.build(depth + 1, half, &spans[above..]);
        let low = self.build(depth + 1, prefix, &spans[..below]);
        if low == high {
            return low;
        }
        let node = BddNode::mk_node(BddVariable::from_index(usize::from(self.first + depth)), low, high);
        let next = BddPointer::from_index(self.nodes.len());
        let place = *self.known.entry(node).or_insert(next);
        if place == next {
            self.nodes.push(node);
        }
        place
    }
}
