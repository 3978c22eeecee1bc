//! Positions of rules that keep their numbers as others come and go.
//!
//! The list is cut into chunks. A rule has a chunk and an offset in it, and a chunk the position of its first rule: a rule that
//! comes or goes moves the offsets of one chunk and the starts of the later ones, and none of the other rules.

use crate::classify::budget::Budget;
use crate::classify::tree::search::Order;
use crate::classify::{NO_MATCH, Position, TooLarge};

/// Rules that a chunk has room for.
const CHUNK: usize = 1 << SHIFT;
const SHIFT: u32 = 8;
/// Rules that a chunk begins with where many are put in order at once.
const FILLED: usize = CHUNK * 3 / 4;
/// The place of a number that no rule has: the first of a chunk that begins at [`NO_MATCH`].
const NOWHERE: u32 = 0;

/// The list of rules: numbers by position, and positions by number.
#[derive(Clone)]
pub(super) struct Numbers {
    /// Chunk and offset, by number.
    places: Vec<u32>,
    /// Positions of the chunks' first rules, by chunk.
    starts: Vec<Position>,
    /// Numbers of rules, [`CHUNK`] for each chunk.
    numbers: Vec<u32>,
    /// Rules in each chunk.
    lengths: Vec<u16>,
    /// Chunks in the order of the list.
    sequence: Vec<u32>,
    /// Chunks without rules.
    spare: Vec<u32>,
    count: usize,
}

/// Positions by number, to be searched with.
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    places: &'a [u32],
    starts: &'a [Position],
}

impl Order for Positions<'_> {
    const HAS_MAP: bool = true;

    #[inline(always)]
    fn position(self, number: u32) -> Position {
        let place = self.places[number as usize];
        self.starts[(place >> SHIFT) as usize] + (place & (CHUNK as u32 - 1))
    }
}

impl Numbers {
    /// A list of `count` rules whose numbers are their positions.
    pub(super) fn new(count: usize) -> Numbers {
        let mut list = Numbers {
            places: vec![NOWHERE; count],
            starts: vec![NO_MATCH],
            numbers: vec![0; CHUNK],
            lengths: vec![0],
            sequence: Vec::new(),
            spare: Vec::new(),
            count,
        };
        for first in (0..count).step_by(FILLED) {
            let chunk = list.new_chunk();
            let length = FILLED.min(count - first);
            list.lengths[chunk as usize] = length as u16;
            list.starts[chunk as usize] = first as Position;
            for offset in 0..length {
                list.put(chunk, offset, (first + offset) as u32);
            }
            list.sequence.push(chunk);
        }
        // Removing is to need no memory.
        list.spare.reserve_exact(list.starts.len());
        list
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn positions(&self) -> Positions<'_> {
        Positions { places: &self.places, starts: &self.starts }
    }

    /// The number of the rule at a position.
    pub(super) fn number(&self, position: Position) -> Option<u32> {
        if position as usize >= self.count {
            return None;
        }
        let chunk = self.sequence[self.place_of(position)];
        let offset = (position - self.starts[chunk as usize]) as usize;
        self.numbers.get(chunk as usize * CHUNK + offset).copied()
    }

    /// All numbers, in the order of the list.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + Clone {
        self.sequence.iter().flat_map(|chunk| {
            let begin = *chunk as usize * CHUNK;
            self.numbers[begin..begin + usize::from(self.lengths[*chunk as usize])].iter().copied()
        })
    }

    /// Takes memory for one rule more, and its number.
    pub(super) fn reserve(&mut self, budget: &mut Budget) -> Result<(), TooLarge> {
        budget.grow(&mut self.places)?;
        budget.grow(&mut self.starts)?;
        budget.make_room(&mut self.numbers, CHUNK)?;
        budget.grow(&mut self.lengths)?;
        budget.grow(&mut self.sequence)?;
        let more = self.starts.len() + 1 - self.spare.len();
        budget.make_room(&mut self.spare, more)
    }

    /// A number that no rule has yet.
    pub(super) fn new_number(&mut self) -> u32 {
        self.places.push(NOWHERE);
        self.places.len() as u32 - 1
    }

    /// Inserts a rule before what is at `position`, or at the end. Returns its position.
    pub(super) fn insert(&mut self, position: Position, number: u32) -> Position {
        let position = position.min(self.count as Position);
        if self.sequence.is_empty() {
            let chunk = self.new_chunk();
            self.starts[chunk as usize] = 0;
            self.sequence.push(chunk);
        }
        let mut place = self.place_of(position);
        if usize::from(self.lengths[self.sequence[place] as usize]) == CHUNK {
            self.split(place);
            place = self.place_of(position);
        }
        let chunk = self.sequence[place];
        let offset = (position - self.starts[chunk as usize]) as usize;
        let length = usize::from(self.lengths[chunk as usize]);
        let begin = chunk as usize * CHUNK;
        self.numbers.copy_within(begin + offset..begin + length, begin + offset + 1);
        for later in &self.numbers[begin + offset + 1..=begin + length] {
            self.places[*later as usize] += 1;
        }
        self.put(chunk, offset, number);
        self.lengths[chunk as usize] += 1;
        for later in &self.sequence[place + 1..] {
            self.starts[*later as usize] += 1;
        }
        self.count += 1;
        position
    }

    /// Removes the rule at a position. Returns its number.
    pub(super) fn remove(&mut self, position: Position) -> Option<u32> {
        let number = self.number(position)?;
        let place = self.place_of(position);
        let chunk = self.sequence[place];
        let offset = (position - self.starts[chunk as usize]) as usize;
        let length = usize::from(self.lengths[chunk as usize]);
        let begin = chunk as usize * CHUNK;
        for later in &self.numbers[begin + offset + 1..begin + length] {
            self.places[*later as usize] -= 1;
        }
        self.numbers.copy_within(begin + offset + 1..begin + length, begin + offset);
        self.lengths[chunk as usize] -= 1;
        self.places[number as usize] = NOWHERE;
        for later in &self.sequence[place + 1..] {
            self.starts[*later as usize] -= 1;
        }
        if length == 1 {
            self.sequence.remove(place);
            self.spare.push(chunk);
        }
        self.count -= 1;
        Some(number)
    }

    /// Bytes of all its lists, with the room in them.
    pub(super) fn bytes(&self) -> usize {
        let words = self.places.capacity()
            + self.starts.capacity()
            + self.numbers.capacity()
            + self.sequence.capacity()
            + self.spare.capacity();
        words * size_of::<u32>() + self.lengths.capacity() * size_of::<u16>()
    }

    /// Bytes of the map from numbers to positions.
    pub(super) fn map_bytes(&self) -> usize {
        (self.places.len() + self.starts.len()) * size_of::<u32>()
    }

    /// The place in the sequence of the chunk that has a position; of the last one for the end of the list.
    fn place_of(&self, position: Position) -> usize {
        let after = self.sequence.partition_point(|chunk| self.starts[*chunk as usize] <= position);
        after.saturating_sub(1)
    }

    fn put(&mut self, chunk: u32, offset: usize, number: u32) {
        self.numbers[chunk as usize * CHUNK + offset] = number;
        self.places[number as usize] = chunk << SHIFT | offset as u32;
    }

    /// An empty chunk that is in no place.
    fn new_chunk(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.starts.push(0);
            self.lengths.push(0);
            self.numbers.resize(self.numbers.len() + CHUNK, 0);
            self.starts.len() as u32 - 1
        })
    }

    /// Moves the second half of a full chunk to another one behind it.
    fn split(&mut self, place: usize) {
        let (old, new) = (self.sequence[place], self.new_chunk());
        for offset in CHUNK / 2..CHUNK {
            self.put(new, offset - CHUNK / 2, self.numbers[old as usize * CHUNK + offset]);
        }
        self.lengths[old as usize] = CHUNK as u16 / 2;
        self.lengths[new as usize] = CHUNK as u16 / 2;
        self.starts[new as usize] = self.starts[old as usize] + CHUNK as u32 / 2;
        self.sequence.insert(place + 1, new);
    }
}

#[cfg(test)]
mod tests {
    use wire::random::Random;

    use super::*;
    use crate::classify::Bounds;

    #[test]
    fn a_list_of_numbers_is_like_any_other_list() {
        let mut random = Random::new(5);
        for first in [0, 1, 700] {
            let mut list: Vec<u32> = (0..first).collect();
            let mut numbers = Numbers::new(list.len());
            let mut budget = Budget::new(Bounds::default()).with(numbers.bytes());
            // Grows to thousands, and shrinks to nothing.
            for step in 0..12_000u32 {
                if random.below(10) < if step < 6_000 { 7 } else { 2 } {
                    numbers.reserve(&mut budget).unwrap();
                    let number = numbers.new_number();
                    let at = random.below(list.len() as u64 + 3) as u32;
                    assert_eq!(numbers.insert(at, number), at.min(list.len() as u32));
                    list.insert((at as usize).min(list.len()), number);
                } else {
                    let at = random.below(list.len() as u64 + 1) as u32;
                    let gone = ((at as usize) < list.len()).then(|| list.remove(at as usize));
                    assert_eq!(numbers.remove(at), gone);
                    if let Some(gone) = gone {
                        assert_eq!(numbers.positions().position(gone), NO_MATCH);
                    }
                }
                assert_eq!(numbers.count(), list.len());
                if step % 500 == 0 {
                    assert!(numbers.iter().eq(list.iter().copied()));
                    for (position, number) in (0..).zip(&list) {
                        assert_eq!(numbers.positions().position(*number), position);
                        assert_eq!(numbers.number(position), Some(*number));
                    }
                    assert_eq!(numbers.number(list.len() as u32), None);
                    assert_eq!(budget.taken(), numbers.bytes());
                }
            }
        }
    }
}
