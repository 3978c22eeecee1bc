//! Choosing the bits that a node gathers.
//!
//! One bit after the other, each time that which makes the lists that a packet is compared with shortest. A packet is
//! taken to belong to any cuboid with the same likelihood, and to lie anywhere in it.

use super::entry::Fixed;
use super::kernel::{Kernel, Plain};
use super::layout::{Node, Shape, WIDTH};

/// A cuboid in a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<S: Shape> {
    /// Number of the cuboid among all.
    pub entry: u32,
    /// Bits that the cuboid fixes.
    pub fixed: Fixed<S::Key>,
}

/// The bits that a node gathers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<S: Shape> {
    words: [u8; 2],
    masks: [u64; 2],
    shape: std::marker::PhantomData<S>,
}

/// The most bits that a node gathers.
const MOST_BITS: u32 = 18;
/// A node has at most this many times as many branches as cuboids.
const BRANCHES: usize = 8;
/// Members that the choice looks at; of more, it takes some at equal distances.
const SAMPLE: usize = 8192;
/// The share of packets that may meet lists that are too long, and are left to further nodes.
const LEFT: f32 = 0.02;
/// Least share by which a bit must shorten the lists that packets meet, to be worth its branches.
const WORTH: f32 = 0.005;
/// Cost of a copy of each cuboid, relative to the length of a list.
const COPIES: f32 = 0.25;
/// A node's branches lead to so many copies of each cuboid, at most.
const MOST_COPIES: usize = 64;
/// Words of the largest shape, and their bits.
const WORDS: usize = 8;
const ALL_BITS: usize = 64 * WORDS;

/// Cuboids that agree in the bits chosen so far.
#[derive(Clone, Copy)]
struct Cell {
    begin: usize,
    end: usize,
}

/// Number of the cuboids of a cell that fix a bit, and the share of packets that these stand for.
#[derive(Clone, Copy, Default)]
struct Side {
    count: f32,
    weight: f32,
}

/// Chooses; `None` where no bit makes lists shorter. Cuboids in which more than `open` of the bits are open are not
/// followed further.
pub(super) fn select<S: Shape>(
    members: &[Member<S>],
    known: &Fixed<S::Key>,
    open: u32,
    scratch: &mut Scratch,
) -> Option<Selection<S>> {
    let step = members.len().div_ceil(SAMPLE);
    let sample: Vec<&Member<S>> = members.iter().step_by(step).collect();
    // How many of the sample are as a whole block of all.
    let block = (WIDTH as f32 / step as f32).max(1.0);
    let most_bits = (usize::BITS - (members.len() * BRANCHES).leading_zeros()).min(MOST_BITS);
    let mut selection = Selection { words: [u8::MAX; 2], masks: [0; 2], shape: std::marker::PhantomData };
    let list: Vec<u32> = (0..sample.len() as u32).collect();
    let cells = vec![Cell { begin: 0, end: list.len() }];
    let weights = vec![1.0 / sample.len() as f32; sample.len()];
    let mut division = Division { sample: &sample, weights, list, cells, block };
    while selection.bits() < most_bits {
        let Some(bit) = division.best(known, &selection, scratch) else { break };
        selection.add(bit);
        division.divide(bit, &selection, open);
        if division.left() < LEFT || division.list.len() > MOST_COPIES * sample.len() {
            break;
        }
    }
    (selection.bits() > 0).then_some(selection)
}

/// Working memory of the selection of bits, kept from one selection to the next: most nodes are small, and allocating it
/// anew would be most of the work.
pub(super) struct Scratch {
    /// Of a cell, by bit: the cuboids that fix it to 0 and to 1.
    sides: Vec<[Side; 2]>,
    /// Bits that any of a cell fixes.
    fixed: Vec<usize>,
    /// Gain of each bit.
    gains: Vec<Gain>,
    /// Bits that anything fixes.
    seen: Vec<usize>,
    /// Cuboids that were looked at for these trees.
    pub(super) work: usize,
}

/// Gain of a bit.
#[derive(Clone, Copy, Default)]
struct Gain {
    /// Reduction of the length of the lists that packets meet.
    shorter: f32,
    /// Number of members that need no copy, because they fix the bit.
    spared: f32,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            sides: vec![Default::default(); ALL_BITS],
            fixed: Vec::new(),
            gains: vec![Gain::default(); ALL_BITS],
            seen: Vec::new(),
            work: 0,
        }
    }
}

/// The nodes of a tree as they are divided further and further.
struct Division<'a, S: Shape> {
    sample: &'a [&'a Member<S>],
    /// Share of packets that a copy of a member stands for, by member of the sample.
    weights: Vec<f32>,
    /// Members of the cells, one cell after the other.
    list: Vec<u32>,
    cells: Vec<Cell>,
    /// Number of members that are as long as a block.
    block: f32,
}

impl<S: Shape> Division<'_, S> {
    /// The bit that is worth most; of the words that `selection` may still use.
    fn best(&self, known: &Fixed<S::Key>, selection: &Selection<S>, scratch: &mut Scratch) -> Option<usize> {
        let words = S::Key::default().as_ref().len();
        let mut usable = [0u64; WORDS];
        for (word, usable) in usable.iter_mut().enumerate().take(words) {
            if selection.may_use(word) {
                *usable = !known.mask.as_ref()[word] & !selection.mask(word);
            }
        }
        let cost = |side: Side| side.weight * side.count.max(self.block);
        let mut before = 0f32;
        let Scratch { sides, fixed, gains, seen, work } = scratch;
        for cell in self.long() {
            let mut whole = Side::default();
            for place in &self.list[cell.begin..cell.end] {
                let (member, weight) = (&self.sample[*place as usize].fixed, self.weights[*place as usize]);
                whole.count += 1.0;
                whole.weight += weight;
                for (word, usable) in usable.iter().enumerate().take(words) {
                    let mut bits = member.mask.as_ref()[word] & usable;
                    let value = member.value.as_ref()[word];
                    while bits != 0 {
                        let bit = bits.trailing_zeros() as usize;
                        bits &= bits - 1;
                        let at = 64 * word + bit;
                        let [zero, one] = &mut sides[at];
                        if zero.count + one.count == 0.0 {
                            fixed.push(at);
                        }
                        let side = if value >> bit & 1 == 0 { zero } else { one };
                        side.count += 1.0;
                        side.weight += weight;
                    }
                }
            }
            let cost_before = cost(whole);
            before += cost_before;
            for at in fixed.drain(..) {
                let [zero, one] = std::mem::take(&mut sides[at]);
                let open = Side {
                    count: whole.count - zero.count - one.count,
                    weight: (whole.weight - zero.weight - one.weight) / 2.0,
                };
                let both = |side: Side| {
                    cost(Side { count: side.count + open.count, weight: side.weight + open.weight })
                };
                if gains[at].spared == 0.0 {
                    seen.push(at);
                }
                gains[at].shorter += cost_before - both(zero) - both(one);
                gains[at].spared += zero.count + one.count;
            }
        }
        let copies = self.long().map(|cell| cell.end - cell.begin).sum::<usize>();
        *work += copies;
        let copies = copies as f32;
        let members = self.sample.len() as f32;
        let worth = |gain: Gain| gain.shorter - COPIES * (copies - gain.spared) / members;
        let mut best: Option<(f32, usize)> = None;
        for at in seen.drain(..) {
            let gain = std::mem::take(&mut gains[at]);
            let better = best.is_none_or(|(most, place)| (worth(gain), at) > (most, place));
            if gain.shorter > WORTH * before && better {
                best = Some((worth(gain), at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// Divides all cells by one more bit; members that leave more than `open` of those of `selection` open are followed no
    /// further.
    fn divide(&mut self, bit: usize, selection: &Selection<S>, open: u32) {
        let (word, mask) = (bit / 64, 1u64 << (bit % 64));
        let mut list = Vec::with_capacity(self.list.len() * 2);
        let mut cells = Vec::with_capacity(self.cells.len() * 2);
        for cell in &self.cells {
            for wanted in [0, mask] {
                let begin = list.len();
                for place in &self.list[cell.begin..cell.end] {
                    let fixed = &self.sample[*place as usize].fixed;
                    let is_open = fixed.mask.as_ref()[word] & mask == 0;
                    let is_in = if is_open {
                        selection.open(fixed) <= open
                    } else {
                        fixed.value.as_ref()[word] & mask == wanted
                    };
                    if is_in {
                        list.push(*place);
                    }
                }
                if list.len() > begin {
                    cells.push(Cell { begin, end: list.len() });
                }
            }
        }
        for (member, weight) in self.sample.iter().zip(&mut self.weights) {
            if member.fixed.mask.as_ref()[word] & mask == 0 {
                *weight /= 2.0;
            }
        }
        (self.list, self.cells) = (list, cells);
    }

    /// Cells that do not fit a block. What is in the others is found, and of no account.
    fn long(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| (cell.end - cell.begin) as f32 > self.block)
    }

    /// The share of packets that meet lists longer than a block.
    fn left(&self) -> f32 {
        let members = self.long().flat_map(|cell| &self.list[cell.begin..cell.end]);
        members.map(|place| self.weights[*place as usize]).sum()
    }
}

impl<S: Shape> Selection<S> {
    fn may_use(&self, word: usize) -> bool {
        self.words.iter().any(|used| *used == u8::MAX || usize::from(*used) == word)
    }

    fn mask(&self, word: usize) -> u64 {
        let place = self.words.iter().position(|used| usize::from(*used) == word);
        place.map_or(0, |place| self.masks[place])
    }

    fn add(&mut self, bit: usize) {
        let (word, mask) = ((bit / 64) as u8, 1 << (bit % 64));
        for (used, bits) in self.words.iter_mut().zip(&mut self.masks) {
            if *used == u8::MAX || *used == word {
                *used = word;
                *bits |= mask;
                return;
            }
        }
    }

    /// The selection that a node has been made of.
    pub(super) fn of_node(node: &Node) -> Selection<S> {
        Selection { words: node.words, masks: node.masks, shape: std::marker::PhantomData }
    }

    /// Number of bits.
    pub(super) fn bits(&self) -> u32 {
        self.masks[0].count_ones() + self.masks[1].count_ones()
    }

    /// Returns the number of the bits that a cuboid leaves open.
    pub(super) fn open(&self, fixed: &Fixed<S::Key>) -> u32 {
        self.masks
            .iter()
            .enumerate()
            .map(|(place, bits)| (bits & !self.of(&fixed.mask, place)).count_ones())
            .sum()
    }

    /// Returns the word at a place of the selection out of a header's key.
    fn of(&self, key: &S::Key, place: usize) -> u64 {
        key.as_ref().get(usize::from(self.words[place])).copied().unwrap_or(0)
    }

    /// Returns the node that gathers these bits.
    pub(super) fn node(&self, first: u32) -> Node {
        let words = self.words.map(|word| if word == u8::MAX { 0 } else { word });
        Node { masks: self.masks, first, words, shift: self.masks[0].count_ones() as u8 }
    }

    /// Calls `each` for the cells in which a cuboid lies.
    pub(super) fn each_cell(&self, fixed: &Fixed<S::Key>, mut each: impl FnMut(usize)) {
        let gather = |key: &S::Key| {
            let parts = [0, 1].map(|place| Plain.gather(self.of(key, place), self.masks[place]));
            (parts[0] | parts[1] << self.masks[0].count_ones()) as usize
        };
        let value = gather(&fixed.value);
        let open = !gather(&fixed.mask) & ((1 << self.bits()) - 1);
        let mut part = 0usize;
        loop {
            each(value | part);
            part = part.wrapping_sub(open) & open;
            if part == 0 {
                break;
            }
        }
    }

    /// Returns the bits known in a cell.
    pub(super) fn within(&self, known: &Fixed<S::Key>, cell: usize) -> Fixed<S::Key> {
        let mut within = *known;
        let mut bits = cell as u64;
        for (word, mask) in self.words.iter().zip(self.masks) {
            let mut rest = mask;
            while rest != 0 {
                let bit = rest & rest.wrapping_neg();
                rest ^= bit;
                let word = usize::from(*word);
                within.mask.as_mut()[word] |= bit;
                if bits & 1 != 0 {
                    within.value.as_mut()[word] |= bit;
                }
                bits >>= 1;
            }
        }
        within
    }
}
