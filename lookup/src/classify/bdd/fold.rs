//! Folding the diagrams of many patterns into one, whose leaves are positions.
//!
//! A diagram of the library says yes or no; here a leaf is the position of the first pattern that matches, or that none
//! does. Nodes are unique and none decides nothing, so there is one diagram of a list of patterns (Bryant, Graph-Based
//! Algorithms for Boolean Function Manipulation, 1986; with more than two leaves: Fujita, McGeer and Yang, Multi-Terminal
//! Binary Decision Diagrams, 1997).
//!
//! The memory is bounded: nodes, the table that makes them unique, and the results that are remembered.

use biodivine_lib_bdd::Bdd;

use crate::classify::{Bounds, Position, TooLarge};

/// A node of the diagram that is being folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Bit tested by the node.
    pub(super) variable: u32,
    /// Edges taken if the bit is 0, and if it is 1.
    pub(super) children: [Edge; 2],
}

/// The place of a node, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge(u32);

/// Target of an edge.
pub(super) enum End {
    Node(usize),
    Leaf(Position),
    Nothing,
}

impl Edge {
    /// No pattern matches.
    pub(super) const NOTHING: Edge = Edge(u32::MAX);

    pub(super) const fn leaf(position: Position) -> Edge {
        Edge(Edge::LEAF | position)
    }

    pub(super) const fn node(place: usize) -> Edge {
        Edge(place as u32)
    }

    pub(super) const fn end(self) -> End {
        if self.0 == u32::MAX {
            End::Nothing
        } else if self.0 & Edge::LEAF != 0 {
            End::Leaf(self.0 & !Edge::LEAF)
        } else {
            End::Node(self.0 as usize)
        }
    }

    const LEAF: u32 = 1 << 31;

    const fn is_leaf(self) -> bool {
        self.0 & Edge::LEAF != 0
    }
}

/// Bytes for each place of the table: itself, half a node, a quarter of a remembered result.
const BYTES_PER_PLACE: usize = 4 + size_of::<Node>() / 2 + size_of::<Merged>() / 4;

/// Places at first.
const FEWEST: usize = 1 << 12;

/// A result that is remembered.
#[derive(Clone, Copy)]
struct Merged {
    first: Edge,
    second: Edge,
    both: Edge,
}

/// Diagrams, and what is shared between them.
pub(super) struct Fold {
    nodes: Vec<Node>,
    /// Places of nodes, by their hash; [`EMPTY`] for none. Its length is a power of two.
    table: Vec<u32>,
    merged: Vec<Merged>,
    /// Diagrams that are still wanted.
    roots: Vec<Edge>,
    bounds: Bounds,
}

const EMPTY: u32 = u32::MAX;

/// Error: there is no place for a node.
struct Full;

impl Fold {
    pub(super) fn new(bounds: Bounds) -> Result<Fold, TooLarge> {
        let mut fold =
            Fold { nodes: Vec::new(), table: Vec::new(), merged: Vec::new(), roots: Vec::new(), bounds };
        fold.grow(FEWEST)?;
        Ok(fold)
    }

    /// Nodes, each behind those that it leads to.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The diagram of patterns at these positions, of which `diagram` gives each by itself.
    pub(super) fn fold(
        &mut self,
        positions: std::ops::Range<Position>,
        diagram: &impl Fn(Position) -> Option<Bdd>,
    ) -> Result<Edge, TooLarge> {
        let many = positions.end - positions.start;
        if many == 0 {
            return Ok(Edge::NOTHING);
        }
        if many == 1 {
            let Some(diagram) = diagram(positions.start) else { return Ok(Edge::NOTHING) };
            return self.insist(|fold| fold.import(&diagram, positions.start));
        }
        let middle = positions.start + many / 2;
        let first = self.fold(positions.start..middle, diagram)?;
        self.roots.push(first);
        let second = self.fold(middle..positions.end, diagram)?;
        self.roots.push(second);
        let both = self.insist(|fold| {
            let [.., first, second] = fold.roots[..] else { return Ok(Edge::NOTHING) };
            fold.merge(first, second)
        });
        self.roots.truncate(self.roots.len() - 2);
        both
    }

    /// Does it; where there is no place, throws unused nodes away, then grows, as long as the bounds admit.
    fn insist(&mut self, work: impl Fn(&mut Fold) -> Result<Edge, Full>) -> Result<Edge, TooLarge> {
        if let Ok(edge) = work(self) {
            return Ok(edge);
        }
        loop {
            let before = self.nodes.len();
            self.collect();
            // What would soon be full again is not worth throwing away again.
            if self.nodes.len() > before / 2 {
                self.grow(self.table.len() * 2)?;
            }
            if let Ok(edge) = work(self) {
                return Ok(edge);
            }
            self.collect();
            self.grow(self.table.len() * 2)?;
        }
    }

    /// The diagram of the library as one that has `position` as its only leaf.
    fn import(&mut self, diagram: &Bdd, position: Position) -> Result<Edge, Full> {
        if diagram.is_false() {
            return Ok(Edge::NOTHING);
        }
        let mut edges = Vec::with_capacity(diagram.size());
        edges.extend([Edge::NOTHING, Edge::leaf(position)]);
        // Each node of ours is behind those that it leads to.
        for place in 2..diagram.size() {
            let node = biodivine_lib_bdd::BddPointer::from_index(place);
            let low = edges[diagram.low_link_of(node).to_index()];
            let high = edges[diagram.high_link_of(node).to_index()];
            edges.push(self.make(diagram.var_of(node).to_index() as u32, [low, high])?);
        }
        Ok(edges.last().copied().unwrap_or(Edge::NOTHING))
    }

    /// Merges two diagrams: the first where it leads to a position, else the second.
    fn merge(&mut self, first: Edge, second: Edge) -> Result<Edge, Full> {
        if first == Edge::NOTHING {
            return Ok(second);
        }
        if second == Edge::NOTHING || first.is_leaf() || first == second {
            return Ok(first);
        }
        let slot = hash(first.0, second.0, 0) as usize & (self.merged.len() - 1);
        let remembered = self.merged[slot];
        if remembered.first == first && remembered.second == second {
            return Ok(remembered.both);
        }
        let (one, other) = (self.node(first), self.node(second));
        let variable =
            one.map_or(u32::MAX, |node| node.variable).min(other.map_or(u32::MAX, |node| node.variable));
        let children = |edge: Edge, node: Option<Node>| {
            node.filter(|node| node.variable == variable).map_or([edge; 2], |node| node.children)
        };
        let ([low, high], [other_low, other_high]) = (children(first, one), children(second, other));
        let low = self.merge(low, other_low)?;
        let high = self.merge(high, other_high)?;
        let both = self.make(variable, [low, high])?;
        self.merged[slot] = Merged { first, second, both };
        Ok(both)
    }

    fn node(&self, edge: Edge) -> Option<Node> {
        if edge.is_leaf() { None } else { self.nodes.get(edge.0 as usize).copied() }
    }

    /// The node, which is there already or not.
    fn make(&mut self, variable: u32, children: [Edge; 2]) -> Result<Edge, Full> {
        if children[0] == children[1] {
            return Ok(children[0]);
        }
        let node = Node { variable, children };
        let mut slot = self.slot(&node);
        loop {
            let place = self.table[slot];
            if place == EMPTY {
                break;
            }
            if self.nodes[place as usize] == node {
                return Ok(Edge::node(place as usize));
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
        if self.nodes.len() >= self.table.len() / 2 {
            return Err(Full);
        }
        self.table[slot] = self.nodes.len() as u32;
        self.nodes.push(node);
        Ok(Edge::node(self.nodes.len() - 1))
    }

    fn slot(&self, node: &Node) -> usize {
        hash(node.children[0].0, node.children[1].0, node.variable) as usize & (self.table.len() - 1)
    }

    /// Throws away the nodes that no root leads to.
    fn collect(&mut self) {
        let mut used = vec![false; self.nodes.len()];
        for root in &self.roots {
            if let End::Node(place) = root.end() {
                used[place] = true;
            }
        }
        // Those that a node leads to are before it.
        for place in (0..self.nodes.len()).rev() {
            if used[place] {
                for child in self.nodes[place].children {
                    if let End::Node(child) = child.end() {
                        used[child] = true;
                    }
                }
            }
        }
        let mut now_at = vec![EMPTY; self.nodes.len()];
        let mut kept = 0;
        let moved = |edge: Edge, now_at: &[u32]| match edge.end() {
            End::Node(place) => Edge(now_at[place]),
            End::Leaf(_) | End::Nothing => edge,
        };
        for place in 0..self.nodes.len() {
            if used[place] {
                let node = self.nodes[place];
                let children = node.children.map(|child| moved(child, &now_at));
                self.nodes[kept] = Node { children, ..node };
                now_at[place] = kept as u32;
                kept += 1;
            }
        }
        self.nodes.truncate(kept);
        for root in &mut self.roots {
            *root = moved(*root, &now_at);
        }
        self.forget();
    }

    /// Makes place for twice as many nodes as there were, or as many as the bounds admit.
    fn grow(&mut self, places: usize) -> Result<(), TooLarge> {
        self.bounds.admit(places * BYTES_PER_PLACE)?;
        self.nodes.reserve_exact(places / 2 - self.nodes.len());
        self.table = vec![EMPTY; places];
        self.merged = Vec::new();
        self.merged = vec![NOT_MERGED; places / 4];
        self.forget();
        Ok(())
    }

    /// Puts all nodes into the table anew, and forgets what was merged.
    fn forget(&mut self) {
        self.merged.fill(NOT_MERGED);
        self.table.fill(EMPTY);
        for place in 0..self.nodes.len() {
            let mut slot = self.slot(&self.nodes[place]);
            while self.table[slot] != EMPTY {
                slot = (slot + 1) & (self.table.len() - 1);
            }
            self.table[slot] = place as u32;
        }
    }
}

/// Two equal edges are never merged.
const NOT_MERGED: Merged = Merged { first: Edge::NOTHING, second: Edge::NOTHING, both: Edge::NOTHING };

fn hash(one: u32, two: u32, three: u32) -> u32 {
    let wide = (u64::from(one) << 32 | u64::from(two)) ^ u64::from(three).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (wide ^ (wide >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 32) as u32
}
