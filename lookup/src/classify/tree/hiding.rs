//! Rules that no leaf has in some part of the header space, because one before them matches all packets there.
//!
//! They are to be put in their leaves when that one is removed, or the packets that it matched would find nothing.

use crate::classify::Position;

/// Rules that hide others somewhere, and those that are hidden.
#[derive(Clone, Debug, Default)]
pub(super) struct Hiding {
    hides: Bits,
    hidden: Bits,
    /// Hidden rules that were compared with rules that hid others and have gone.
    compared: usize,
}

impl Hiding {
    /// One rule hides another.
    pub(super) fn add(&mut self, by: Position, hidden: Position) {
        self.hides.set(by);
        self.hidden.set(hidden);
    }

    /// All that `other` has, too.
    pub(super) fn add_all(&mut self, other: &Hiding) {
        other.hides.iter().for_each(|number| self.hides.set(number));
        other.hidden.iter().for_each(|number| self.hidden.set(number));
    }

    /// True if the rule hides others.
    pub(super) fn hides(&self, number: u32) -> bool {
        self.hides.has(number)
    }

    /// The rules that are hidden somewhere, to be compared with one that has gone. Adds to the number that is compared.
    pub(super) fn compare(&mut self) -> Vec<u32> {
        let hidden: Vec<u32> = self.hidden.iter().collect();
        self.compared += hidden.len();
        hidden
    }

    /// Number of rules that were compared.
    pub(super) fn compared(&self) -> usize {
        self.compared
    }

    /// A rule is hidden nowhere any more.
    pub(super) fn show(&mut self, number: u32) {
        self.hidden.clear(number);
    }

    /// Forgets a rule that is removed.
    pub(super) fn forget(&mut self, number: u32) {
        self.hides.clear(number);
        self.hidden.clear(number);
    }

    /// The same of other numbers; of rules without one, nothing.
    pub(super) fn renumbered(&self, number: impl Fn(u32) -> Option<u32>) -> Hiding {
        let mut hiding = Hiding::default();
        self.hides.iter().filter_map(&number).for_each(|number| hiding.hides.set(number));
        self.hidden.iter().filter_map(&number).for_each(|number| hiding.hidden.set(number));
        hiding
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        (self.hides.0.len() + self.hidden.0.len()) * size_of::<u64>()
    }
}

/// A set of numbers.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    fn clear(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let words = (0u32..).zip(&self.0).filter(|(_, word)| **word != 0);
        words.flat_map(|(place, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 64 * place + bit)
        })
    }
}
