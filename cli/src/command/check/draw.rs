//! Drawing of a policy's trees of queues: the way of packets from classes by meters to leaves, and on to the port.
//!
//! Packets go from the left to the right. Each tree has a part of its own, and each leaf rows of its own, so that no card lies on
//! another. Queues that are alike are one stack, and the drawing is bounded: what it leaves out, it says.

use std::collections::HashMap;

use policy::Policy;

use crate::svg::{Card, Drawing, Kind, Stroke};
use part::{Node, Part, Source};

mod part;
mod queue;
mod source;

/// Width of a card.
const CARD: f64 = 240.0;
/// Space between columns, in which lines bend.
const GAP: f64 = 44.0;
/// Space between rows.
const ROW: f64 = 9.0;
/// Space between a frame and what is in it; above, with a line of text.
const FRAME: f64 = 9.0;
const FRAME_HEAD: f64 = 28.0;
/// Left margin.
const LEFT: f64 = 16.0;

/// Returns the drawing of a sound policy, as SVG.
pub(super) fn draw(policy: &Policy, file: &str) -> String {
    let mut drawing = Drawing::default();
    let parts = part::parts(policy);
    drawing.heading(LEFT, 26.0, file, "queues before and behind interfaces");
    if parts.list.is_empty() {
        let limit = policy.limits.queue;
        let text = format!("Each interface has one queue, first in, first out, of {limit} packets.");
        drawing.text(LEFT, 50.0, &text);
    }
    for part in &parts.list {
        Placed::of(part, &mut drawing);
    }
    if let Some(text) = parts.left_out() {
        let y = drawing.bottom() + 26.0;
        drawing.text(LEFT, y, &text);
    }
    drawing.finish(&format!("Queues of {file}"))
}

/// Places of a part's columns, and those of the leaves that have been drawn.
struct Placed<'a> {
    drawing: &'a mut Drawing,
    /// Left edges of classes, of meters, and of the deepest leaves.
    classes: f64,
    meters: f64,
    leaves: f64,
    /// Levels of the tree.
    levels: usize,
    /// Middle of the left edge of each leaf.
    ends: HashMap<String, (f64, f64)>,
    /// Lines that go to leaves which may not have been drawn yet: from there, to the leaf of that name.
    also: Vec<(f64, String)>,
}

impl Placed<'_> {
    /// Draws a part below all that is there.
    fn of(part: &Part, drawing: &mut Drawing) {
        let top = drawing.bottom() + 34.0;
        drawing.heading(LEFT, top, &part.heading, &part.note);
        let has_meters = part.root.any_source(&|source: &Source| source.meter.is_some());
        let meters = LEFT + CARD + GAP;
        let leaves = if has_meters { meters + CARD + GAP } else { meters };
        let mut placed = Placed {
            drawing,
            classes: LEFT,
            meters,
            leaves,
            levels: part.root.levels(),
            ends: HashMap::new(),
            also: Vec::new(),
        };
        let height = part.root.height().max(part.port.height());
        let y = top + 14.0;
        let (right, middle) = placed.node(&part.root, 0, y, height);
        let port = middle - part.port.height() / 2.0;
        placed.drawing.card(&part.port, right + GAP, port);
        placed.drawing.join(Stroke::Full, (right, middle), (right + GAP, middle), GAP);
        if let Some(by_code_point) = &part.by_code_point {
            let card_y = y + height + ROW;
            placed.drawing.card(&by_code_point.card, placed.classes, card_y);
            let from = card_y + by_code_point.card.height() / 2.0;
            for leaf in &by_code_point.leaves {
                placed.join_leaf(Stroke::Dotted, from, leaf, 6.0);
            }
        }
        for (from, leaf) in std::mem::take(&mut placed.also) {
            placed.join_leaf(Stroke::Full, from, &leaf, -4.0);
        }
    }

    /// Joins the end of the columns of classes and meters, at that height, to a leaf.
    fn join_leaf(&mut self, stroke: Stroke, from: f64, leaf: &str, aside: f64) {
        let Some((x, y)) = self.ends.get(leaf).copied() else { return };
        let start = self.leaves - GAP;
        if stroke == Stroke::Dotted && start > self.classes + CARD {
            self.drawing.join(stroke, (self.classes + CARD, from), (start, from), 0.0);
        }
        self.drawing.join(stroke, (start, from), (x, y + aside), GAP);
    }

    /// Draws a node and all that is in it into so much height. Returns its right edge, and the height of its middle.
    fn node(&mut self, node: &Node, level: usize, y: f64, height: f64) -> (f64, f64) {
        let column = |level: usize| self.leaves + (self.levels - 1 - level) as f64 * (CARD + GAP);
        let (x, right) = (column(level), column(level) + CARD);
        let (mut y, mut height) = (y, height);
        if let Some(text) = &node.instances {
            let left = column(level + node.levels() - 1);
            let (whole, slack) = (node.height(), (height - node.height()) / 2.0);
            let corner = (left - FRAME, y + slack);
            self.drawing.frames(corner, (right - left + 2.0 * FRAME, whole - 6.0), text);
            (y, height) = (y + slack + FRAME_HEAD, whole - FRAME_HEAD - FRAME - 6.0);
        }
        if node.children.is_empty() {
            let middle = y + height / 2.0;
            self.drawing.card(&node.card, x, middle - node.card.height() / 2.0);
            self.ends.extend(node.names.iter().map(|name| (name.clone(), (x, middle))));
            self.sources(node, x, y, height, middle);
            return (right, middle);
        }
        let slack = (height - node.height_of_children()).max(0.0) / 2.0;
        let mut at = y + slack;
        let mut middles = Vec::with_capacity(node.children.len());
        for child in &node.children {
            let (right, middle) = self.node(child, level + 1, at, child.height());
            middles.push((right, middle));
            at += child.height() + ROW;
        }
        let (first, last) = (middles.first(), middles.last());
        let middle = first.zip(last).map_or(y, |(first, last)| (first.1 + last.1) / 2.0);
        // The card may be higher than all children together.
        let half = node.card.height() / 2.0;
        let middle = middle.clamp((y + half).min(y + height - half), (y + height - half).max(y + half));
        self.drawing.card(&node.card, x, middle - half);
        for (right, from) in middles {
            self.drawing.join(Stroke::Full, (right, from), (x, middle), GAP);
        }
        (right, middle)
    }

    /// Draws the classes of a leaf, with their meters.
    fn sources(&mut self, leaf: &Node, x: f64, y: f64, height: f64, middle: f64) {
        let mut at = y + (height - leaf.height_of_sources()).max(0.0) / 2.0;
        for source in &leaf.sources {
            let own = source.height();
            let center = at + own / 2.0;
            self.drawing.card(&source.class, self.classes, center - source.class.height() / 2.0);
            let start = self.leaves - GAP;
            match &source.meter {
                Some(meter) => {
                    self.drawing.join(
                        Stroke::Full,
                        (self.classes + CARD, center),
                        (self.meters, center),
                        GAP,
                    );
                    self.drawing.card(meter, self.meters, center - meter.height() / 2.0);
                }
                None => {
                    self.drawing.join(Stroke::Full, (self.classes + CARD, center), (start, center), 0.0);
                }
            }
            self.drawing.join(Stroke::Full, (start, center), (x, middle), GAP);
            self.also.extend(source.also.iter().map(|leaf| (center, leaf.clone())));
            at += own + ROW;
        }
    }
}

impl Node {
    /// Number of levels, itself counted.
    fn levels(&self) -> usize {
        1 + self.children.iter().map(Node::levels).max().unwrap_or(0)
    }

    fn any_source(&self, is_it: &impl Fn(&Source) -> bool) -> bool {
        self.sources.iter().any(is_it) || self.children.iter().any(|child| child.any_source(is_it))
    }

    fn height_of_children(&self) -> f64 {
        stacked(self.children.iter().map(Node::height))
    }

    fn height_of_sources(&self) -> f64 {
        stacked(self.sources.iter().map(Source::height))
    }

    /// Height that the node takes with all that is in it, and with its classes.
    fn height(&self) -> f64 {
        let inside = self.height_of_children().max(self.height_of_sources()).max(self.card.height());
        inside + if self.instances.is_some() { FRAME_HEAD + FRAME + 6.0 } else { 0.0 }
    }
}

impl Source {
    fn height(&self) -> f64 {
        self.class.height().max(self.meter.as_ref().map_or(0.0, Card::height))
    }
}

/// Height of rows, with the space between them.
fn stacked(heights: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = heights.fold((0.0, 0), |(sum, count), height| (sum + height, count + 1));
    sum + ROW * f64::from((count - 1).max(0))
}

/// A card of the drawing's width.
fn card(kind: Kind, title: &str, text: &[String]) -> Card {
    Card::new(kind, CARD, title, text)
}
