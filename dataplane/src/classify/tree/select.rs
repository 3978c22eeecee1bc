//! Choosing the bits that a node gathers.
//!
//! One bit after the other, each time that which makes the lists that a packet is compared with shortest. A packet is
//! taken to belong to any cuboid with the same likelihood, and to lie anywhere in it.

use super::entry::Fixed;
use super::layout::{Node, Shape, WIDTH};

/// A cuboid in a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<S: Shape> {
    /// Its number among all.
    pub entry: u32,
    /// The bits that it fixes.
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
/// By how much the lists that packets meet must get shorter, as a share, for a bit to be worth its branches.
const WORTH: f32 = 0.005;
/// What a copy of each cuboid counts beside the length of a list.
const COPIES: f32 = 0.25;
/// Words of the largest shape, and their bits.
const WORDS: usize = 8;
const ALL_BITS: usize = 64 * WORDS;

/// Cuboids that agree in the bits chosen so far.
#[derive(Clone, Copy)]
struct Cell {
    begin: usize,
    end: usize,
}

/// Of the cuboids of a cell, how many fix a bit, and the share of packets that they stand for.
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
) -> Option<Selection<S>> {
    let step = members.len().div_ceil(SAMPLE);
    let sample: Vec<&Member<S>> = members.iter().step_by(step).collect();
    // How many of the sample are as a whole block of all.
    let block = (WIDTH as f32 / step as f32).max(1.0);
    let most_bits = (usize::BITS - (members.len() * BRANCHES).leading_zeros()).min(MOST_BITS);
    let mut selection = Selection { words: [u8::MAX; 2], masks: [0; 2], shape: std::marker::PhantomData };
    let mut list: Vec<u32> = (0..sample.len() as u32).collect();
    let mut cells = vec![Cell { begin: 0, end: list.len() }];
    let mut weights = vec![1.0 / sample.len() as f32; sample.len()];
    while selection.bits() < most_bits {
        let Some(bit) = best::<S>(&sample, known, &selection, &list, &cells, &weights, block) else { break };
        selection.add(bit);
        let (word, mask) = (bit / 64, 1u64 << (bit % 64));
        let mut next = Vec::with_capacity(list.len() * 2);
        let mut next_cells = Vec::with_capacity(cells.len() * 2);
        for cell in &cells {
            for wanted in [0, mask] {
                let begin = next.len();
                for place in &list[cell.begin..cell.end] {
                    let fixed = &sample[*place as usize].fixed;
                    let is_open = fixed.mask.as_ref()[word] & mask == 0;
                    if is_open && selection.open(fixed) <= open
                        || !is_open && fixed.value.as_ref()[word] & mask == wanted
                    {
                        next.push(*place);
                    }
                }
                if next.len() > begin {
                    next_cells.push(Cell { begin, end: next.len() });
                }
            }
        }
        for (place, member) in sample.iter().enumerate() {
            if member.fixed.mask.as_ref()[word] & mask == 0 {
                weights[place] /= 2.0;
            }
        }
        (list, cells) = (next, next_cells);
        let long = |cell: &&Cell| (cell.end - cell.begin) as f32 > block;
        let left: f32 = cells
            .iter()
            .filter(long)
            .flat_map(|cell| &list[cell.begin..cell.end])
            .map(|p| weights[*p as usize])
            .sum();
        if left < LEFT {
            break;
        }
    }
    (selection.bits() > 0).then_some(selection)
}

/// The bit that is worth most.
fn best<S: Shape>(
    sample: &[&Member<S>],
    known: &Fixed<S::Key>,
    selection: &Selection<S>,
    list: &[u32],
    cells: &[Cell],
    weights: &[f32],
    block: f32,
) -> Option<usize> {
    let words = S::Key::default().as_ref().len();
    let mut usable = [0u64; WORDS];
    for (word, usable) in usable.iter_mut().enumerate().take(words) {
        if selection.may_use(word) {
            *usable = !known.mask.as_ref()[word] & !selection.mask(word);
        }
    }
    let cost = |side: Side| side.weight * side.count.max(block);
    let mut gain = [0f32; ALL_BITS];
    let mut copies = [0f32; ALL_BITS];
    let mut before = 0f32;
    let mut sides = [[Side::default(); 2]; ALL_BITS];
    let mut touched: Vec<usize> = Vec::new();
    for cell in cells {
        let mut whole = Side::default();
        for place in &list[cell.begin..cell.end] {
            let (fixed, weight) = (&sample[*place as usize].fixed, weights[*place as usize]);
            whole.count += 1.0;
            whole.weight += weight;
            for (word, usable) in usable.iter().enumerate().take(words) {
                let mut bits = fixed.mask.as_ref()[word] & usable;
                let value = fixed.value.as_ref()[word];
                while bits != 0 {
                    let bit = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let at = 64 * word + bit;
                    let [zero, one] = &mut sides[at];
                    if zero.count + one.count == 0.0 {
                        touched.push(at);
                    }
                    let side = if value >> bit & 1 == 0 { zero } else { one };
                    side.count += 1.0;
                    side.weight += weight;
                }
            }
        }
        let cost_before = cost(whole);
        before += cost_before;
        for at in touched.drain(..) {
            let [zero, one] = std::mem::take(&mut sides[at]);
            let open = Side {
                count: whole.count - zero.count - one.count,
                weight: (whole.weight - zero.weight - one.weight) / 2.0,
            };
            let both =
                |side: Side| cost(Side { count: side.count + open.count, weight: side.weight + open.weight });
            gain[at] += cost_before - both(zero) - both(one);
            // Those that fix it are not copied.
            copies[at] -= zero.count + one.count;
        }
    }
    let worth = |at: usize| gain[at] - COPIES * (copies[at] + list.len() as f32) / sample.len() as f32;
    let best = (0..64 * words)
        .filter(|at| gain[*at] > WORTH * before)
        .max_by(|a, b| worth(*a).total_cmp(&worth(*b)))?;
    Some(best)
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

    /// How many bits.
    pub(super) fn bits(&self) -> u32 {
        self.masks[0].count_ones() + self.masks[1].count_ones()
    }

    /// How many of the bits a cuboid leaves open.
    pub(super) fn open(&self, fixed: &Fixed<S::Key>) -> u32 {
        self.masks
            .iter()
            .enumerate()
            .map(|(place, bits)| (bits & !self.of(&fixed.mask, place)).count_ones())
            .sum()
    }

    /// Of a header's words, the one of that place.
    fn of(&self, key: &S::Key, place: usize) -> u64 {
        key.as_ref().get(usize::from(self.words[place])).copied().unwrap_or(0)
    }

    /// The node that gathers them.
    pub(super) fn node(&self, first: u32) -> Node {
        let words = self.words.map(|word| if word == u8::MAX { 0 } else { word });
        Node { masks: self.masks, first, words, shift: self.masks[0].count_ones() as u8 }
    }

    /// Calls `each` for the cells in which a cuboid lies.
    pub(super) fn each_cell(&self, fixed: &Fixed<S::Key>, mut each: impl FnMut(usize)) {
        let gather = |key: &S::Key| {
            let parts = [0, 1].map(|place| super::gather(self.of(key, place), self.masks[place]));
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

    /// What is known in a cell.
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
