//! Ordered binary decision diagrams of the patterns: one bit of the header after the other decides where to go on.
//!
//! Future work of Vlaeminck et al. (Implementation of network systems using network processor technology,
//! CDES'05, section VII), after Hazelhurst, Attar and Sinnappan (Algorithms for Improving the Dependability of Firewall
//! and Filter Rule Lists, DSN 2000). A look-up meets each bit once at most, however many patterns there are: its time is
//! bounded by the header's length. The memory grows with patterns that overlap in many ways; a list whose diagram
//! does not fit is for another algorithm.
//!
//! The library makes a diagram of each pattern, and the algebra of sets of headers on top (`set`); `fold` makes one
//! diagram of all, whose leaves are positions.

use tally::{Branch, Op, Region, Tally};
use wire::Family;

use super::{Bounds, Classifier, Header, Pattern, Position, TooLarge};
use field::{Field, Version};
use fold::{Edge, End, Fold};
use product::Product;

pub mod field;
mod fold;
pub mod product;
pub mod set;

/// A diagram for each version of IP.
#[derive(Clone, Debug)]
pub struct Bdd {
    nodes: Vec<Step>,
    v4: Next,
    v6: Next,
}

/// A node, as the look-up walks it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Bit number in a [`Key`].
    bit: u32,
    /// Next step if the bit is 0, and if it is 1.
    next: [Next; 2],
}

/// The place of a node, or, with its highest bit set, a position; [`NOTHING`] for no match.
type Next = u32;

const FOUND: Next = 1 << 31;
const NOTHING: Next = Next::MAX;

/// Bytes that a network processor reads for a node: two places of 27 bits, and the number of the bit.
const STEP_BYTES: u32 = 8;

/// Instructions of a node: its address, the bit's word out of local memory, shift and mask, the next node's place, and
/// the test for a leaf.
const STEP: u32 = 7;

/// Bytes that a diagram may take while it is built: these, and so many for each pattern. Where more are needed, the patterns
/// overlap in so many ways that another algorithm is the better one, and it is better known soon.
const BYTES: usize = 1 << 20;
const BYTES_PER_PATTERN: usize = 16 << 10;

/// A header as words. The high halves of addresses come late, which IPv4 has no use for; a power of two of words spares the bound.
type Key = [u64; 8];

impl Bdd {
    /// Builds the diagrams.
    ///
    /// # Errors
    /// The patterns do not fit within the bounds.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<Bdd, TooLarge> {
        let own = BYTES + patterns.len() * BYTES_PER_PATTERN;
        let bounds = Bounds { memory: bounds.memory.min(own) };
        let mut bdd = Bdd { nodes: Vec::new(), v4: NOTHING, v6: NOTHING };
        bdd.v4 = bdd.add(patterns, Version::V4, bounds)?;
        let left = Bounds { memory: bounds.memory.saturating_sub(bdd.memory_bytes()) };
        bdd.v6 = bdd.add(patterns, Version::V6, left)?;
        Ok(bdd)
    }

    /// Adds the nodes for one version.
    fn add(&mut self, patterns: &[Pattern], version: Version, bounds: Bounds) -> Result<Next, TooLarge> {
        let mut fold = Fold::new(bounds)?;
        let diagram = |position: Position| {
            let product = Product::of(&patterns[position as usize], version)?;
            Some(set::bdd(&product, version))
        };
        let root = fold.fold(0..patterns.len() as Position, &diagram)?;
        Ok(self.lay_out(&fold, root, version))
    }

    /// Copies the nodes that the look-up can come to, in the order in which it does where all bits are 0.
    fn lay_out(&mut self, fold: &Fold, root: Edge, version: Version) -> Next {
        let bits = key_bits(version);
        let mut places = vec![NOTHING; fold.nodes().len()];
        let mut waiting = vec![root];
        let mut order = Vec::new();
        while let Some(edge) = waiting.pop() {
            let End::Node(node) = edge.end() else { continue };
            if places[node] == NOTHING {
                places[node] = (self.nodes.len() + order.len()) as Next;
                order.push(node);
                let [low, high] = fold.nodes()[node].children;
                waiting.extend([high, low]);
            }
        }
        let next = |edge: Edge| match edge.end() {
            End::Node(node) => places[node],
            End::Leaf(position) => FOUND | position,
            End::Nothing => NOTHING,
        };
        self.nodes.reserve_exact(order.len());
        for node in order {
            let node = fold.nodes()[node];
            self.nodes.push(Step { bit: bits[node.variable as usize], next: node.children.map(next) });
        }
        next(root)
    }

    fn root(&self, family: Family) -> Next {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
            Family::Other => NOTHING,
        }
    }
}

/// The place in a key of each variable's bit.
fn key_bits(version: Version) -> Vec<u32> {
    let mut bits = Vec::with_capacity(usize::from(version.bits()));
    for field in field::ORDER {
        let (word, shift) = match field {
            Field::Source => (0, 0),
            Field::Destination => (1, 0),
            Field::Sport => (2, 0),
            Field::Dport => (2, 16),
            Field::Ingress => (2, 32),
            Field::Egress => (2, 48),
            Field::Protocol => (3, 0),
            Field::Flags => (3, 8),
            Field::Dscp => (3, 16),
            Field::From => (3, 24),
            Field::To => (3, 32),
            Field::SourceMac => (3, 40),
            Field::Sets(number) => (6, 8 * u32::from(number)),
        };
        for bit in (0..u32::from(field.bits(version))).rev() {
            // The high half of an address is four words on.
            bits.push(if bit < 64 { word * 64 + shift + bit } else { (word + 4) * 64 + bit - 64 });
        }
    }
    bits
}

fn key(header: &Header) -> Key {
    let ports = u64::from(header.sport)
        | u64::from(header.dport) << 16
        | u64::from(header.ingress) << 32
        | u64::from(header.egress) << 48;
    let rest = u64::from(header.protocol)
        | u64::from(header.tcp_flags) << 8
        | u64::from(header.dscp) << 16
        | u64::from(header.from) << 24
        | u64::from(header.to) << 32
        | u64::from(header.source_mac) << 40;
    let (source, destination) = (header.source, header.destination);
    let high = |address: u128| (address >> 64) as u64;
    let sets = u64::from(header.sets);
    [source as u64, destination as u64, ports, rest, high(source), high(destination), sets, 0]
}

fn position(next: Next) -> Option<Position> {
    (next != NOTHING).then_some(next & !FOUND)
}

impl Step {
    #[inline(always)]
    fn follow(&self, key: &Key) -> Next {
        let bit = key[self.bit as usize / 64 % key.len()] >> (self.bit % 64) & 1;
        self.next[bit as usize]
    }
}

impl Classifier for Bdd {
    fn classify(&self, header: &Header) -> Option<Position> {
        let key = key(header);
        let mut at = self.root(header.family);
        while at & FOUND == 0 {
            at = self.nodes[at as usize].follow(&key);
        }
        position(at)
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        let key = key(header);
        let mut at = self.root(header.family);
        while at & FOUND == 0 {
            tally.read(Region::RuleTable, (at * STEP_BYTES) as usize, STEP_BYTES);
            tally.instructions(STEP);
            let next = self.nodes[at as usize].follow(&key);
            if next & FOUND == 0 {
                tally.branch(Branch::Taken)
            } else {
                tally.execute(Op::Branch, 1)
            }
            at = next;
        }
        position(at)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice())
    }

    fn region_bytes(&self) -> u64 {
        self.nodes.len() as u64 * u64::from(STEP_BYTES)
    }

    fn program(&self) -> u32 {
        // And the header's words put into local memory, the first node's place, and the end.
        STEP + 1 + 16
    }
}

#[cfg(test)]
mod tests;
